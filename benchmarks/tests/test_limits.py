"""The counts behind the limit, and the lines behind the growth, of the benchmarks."""

from __future__ import annotations

import numpy as np
import pytest
from same_numbers import AFTER_A_FIT, assert_same_numbers

from benchmarks.growth.__main__ import sizes_of, upper_slope
from benchmarks.limit import ledger as module
from benchmarks.limit.ledger import counting
from benchmarks.limit.problems import tasks
from benchmarks.limit.roofline import LEVELS, level_of
from benchmarks.problems import problem_on
from kernelweave.bank import DenseBank, FactoredBank, build_bank
from kernelweave.kernels import RBF
from kernelweave.operators import bind_kernels
from kernelweave.solvers import Limits, get_solver, solve


@pytest.fixture
def X() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(40, 3))


def test_a_line_is_found_with_its_error() -> None:
    sizes = np.array([10.0, 20.0, 40.0, 80.0, 160.0])
    values = 3.0 * sizes**1.7
    values[0] = 100.0  # Of the lower part, which does not count.
    exact = upper_slope(sizes, values)
    assert exact == pytest.approx((1.7, 0.0), abs=1e-9)
    off = values * np.exp([0.0, 0.1, -0.1, 0.05, 0.2])
    # By hand, x = -1.5, -0.5, 0.5, 1.5 in units of log 2: slope 0.225 / 5, the squared residuals
    # add up to 0.03675, sqrt(0.03675 / 2 / 5) = 0.060622.
    rough = upper_slope(sizes, off)
    assert rough == pytest.approx((1.7 + 0.045 / np.log(2), 0.060622 / np.log(2)), rel=1e-5)


def test_two_points_have_no_line() -> None:
    assert upper_slope([1.0, 2.0], [1.0, 2.0]) is None


def test_series_double() -> None:
    assert sizes_of("silp", "n", False) == [(200, 20), (400, 20), (800, 20), (1600, 20)]
    assert sizes_of("silp", "m", True)[-1] == (200, 1280)


def test_passes_over_matrices_count_the_rows_they_read(X: np.ndarray) -> None:
    bank = DenseBank("float32").build(bind_kernels([RBF(width=1.0), RBF(width=2.0)], X))
    v = np.zeros(40)
    v[[1, 5, 39]] = 1.0
    with counting() as ledger:
        bank.apply(v)
    assert ledger.total("moved") == 2 * 3 * 40 * 4
    assert ledger.total("flops") == 2 * 2 * 3 * 40
    with counting() as ledger:
        bank.apply(v, np.array([0]))
        bank.weighted(np.array([0.0, 1.0]))
    assert ledger.total("moved") == 3 * 40 * 4 + 40 * 40 * (4 + 8)
    with counting() as ledger:
        bank.quad(np.ones(40))
    assert ledger.total("moved") == 2 * 4 * 40 * 40
    with counting() as ledger:
        bank.quad(v)  # Three rows.
        bank.apply(v, None, np.array([0, 2]))
    assert ledger.total("moved") == 2 * 4 * 3 * 40 + 2 * 4 * 2 * 40


def test_building_counts_an_exponential_for_each_pair(X: np.ndarray) -> None:
    with counting() as ledger:
        DenseBank().build(bind_kernels([RBF(width=1.0).on([0]), RBF(width=1.5).on([1])], X))
    assert ledger.total("exps") == 2 * 40 * 40


def test_factors_count_by_their_ranks(X: np.ndarray) -> None:
    bank = FactoredBank().build(bind_kernels([RBF(width=9.0).on([0]), RBF(width=9.0).on([1])], X))
    with counting() as ledger:
        bank.apply(np.ones(40))
    assert ledger.total("moved") == 8 * 40 * (bank.ranks.sum() + 2)
    assert ledger.total("flops") == 4 * 40 * bank.ranks.sum()


@pytest.mark.parametrize("name", ["active-set", "silp", "silp-chunking", "spicy", "mwu", "spg"])
def test_a_counted_fit_is_the_same_fit(X: np.ndarray, name: str) -> None:
    y = np.where(X[:, 0] * X[:, 1] + 0.3 * X[:, 2] > 0, 1.0, -1.0)
    bank = build_bank("dense", bind_kernels([RBF(width=w) for w in (0.5, 1.0, 2.0)], X))
    problem = problem_on(bank, y)
    plain = solve(problem, get_solver(name, problem), Limits(tol=1e-3))
    with counting() as ledger:
        counted = solve(problem, get_solver(name, problem), Limits(tol=1e-3))
    assert_same_numbers(counted.d, plain.d, AFTER_A_FIT)
    assert sum(ledger.amounts["rounds" if name == "mwu" else "passes over matrices"].values())
    steps = counted.history[-1].inner_iterations
    if name in ("active-set", "silp", "spg"):
        # The steps that the formula of SMO was given are those that the fit reports.
        assert ledger.amounts["SMO steps"]["flops", "gemm"] >= 2 * 13 * steps > 0


def test_every_task_can_be_counted() -> None:
    for task in tasks(full=False, small=True):
        with counting() as ledger:
            task.work()
        assert ledger.amounts, task.name


def test_the_limit_takes_the_slowest_of_a_kind_and_adds_up_kinds() -> None:
    levels = LEVELS
    ledger = module.Ledger()
    ledger.add("pass", moved=100.0, of=levels[1], flops=10.0)
    ledger.add("pass", moved=100.0, of=levels[1] + 1)
    ledger.add("factor", flops=30.0, rate="cholesky")
    ledger.add("kernels", exps=8.0, by="own32", moved=1.0)
    rates = {
        "read": {str(level): 100.0 for level in levels} | {str(levels[1]): 50.0},
        "flops": {"gemm": 10.0, "cholesky": 10.0},
        "exps": {"own32": 2.0},
    }
    least = {"pass": (4.0, "moved"), "factor": (3.0, "flops"), "kernels": (4.0, "exps")}
    assert ledger.least(rates) == least


def test_seconds_of_work_inside_other_work_count_once(monkeypatch: pytest.MonkeyPatch) -> None:
    ledger, ticks = module.Ledger(), iter([0.0, 1.0, 4.0, 10.0])
    monkeypatch.setattr(module.time, "process_time", lambda: next(ticks))
    ledger.timed("outer", lambda: ledger.timed("inner", lambda: None))
    assert ledger.seconds["inner"] == 3.0
    assert ledger.seconds["outer"] == 7.0


def test_a_size_between_two_levels_is_taken_as_the_faster() -> None:
    low, high = LEVELS[1:3]
    assert level_of(high - 1) == low
    assert level_of(high) == high
    assert level_of(1) == LEVELS[0]
