"""The programs over cutting planes: HiGHS checked and mended, models against a convex solver."""

from __future__ import annotations

import os
import subprocess
import sys

import cvxpy as cp
import numpy as np
import pytest
from scipy.optimize import linprog

from kernelweave.bank import DenseBank
from kernelweave.combine import WeightedSum
from kernelweave.losses import get_loss
from kernelweave.problem import Problem
from kernelweave.regularizers import ElasticNet, Entropy, Simplex, SquaredLp
from kernelweave.solvers.bundle import minimise_penalised_model
from kernelweave.solvers.cuts import CutLP, Cuts, minimise_model, nearest_below, solve_dual

M = 4


def stored(constants, quads):
    """Cuts with these numbers, whatever alpha would have them."""
    m = quads.shape[1]
    bank = DenseBank().from_matrices([np.eye(2)] * m)
    ones = np.ones((1, 2))
    cuts = Cuts(Problem(bank, ones, ones, get_loss("hinge"), Simplex(), WeightedSum()))
    for c, q in zip(constants, quads, strict=True):
        cuts.add(np.zeros((1, 2)), q)
        cuts.constants[-1] = c
    return cuts


def random_cuts(rng, count, m, size=1.0):
    quads = size * np.abs(rng.normal(size=(count, m)))
    return stored(size * rng.normal(size=count), quads)


def rows_of(lp):
    return lp._highs.getNumRow() - 1  # one is on the sum of the weights


def test_idle_cuts_go_after_a_while_and_the_program_keeps_step():
    cuts = random_cuts(np.random.default_rng(3), 9, M)
    lp = CutLP(cuts, None)
    value = lp.solve().value
    assert rows_of(lp) == len(cuts) == 9
    program = lp._highs
    kept = cuts.quads[[0, 2, 3, 4, 5, 6, 7]]
    used = np.ones(9)
    used[[1, 8]] = 0.0
    patience = 1
    while not len(idle := cuts.used(used)):
        patience += 1
    assert 1 < patience < 100
    np.testing.assert_array_equal(idle, [1, 8])
    # A cut that came after the last solve is in the store but not yet in the program.
    cuts.add(np.zeros((1, 2)), np.full(M, 0.1))
    cuts.constants[-1] = -5.0
    lp.drop(np.array([1, 8]))
    assert (rows_of(lp), len(cuts)) == (7, 8)
    np.testing.assert_array_equal(cuts.quads[:-1], kept)
    assert lp.solve().value == pytest.approx(CutLP(cuts, None).solve().value, rel=1e-9)
    assert rows_of(lp) == len(cuts) == 8
    assert lp._highs is program  # had the wrong rows gone, it would have been built again
    assert lp.solve().value <= value + 1e-12
    for _ in range(patience - 1):
        cuts.used(np.zeros(8))
    cuts.used(np.ones(8))
    assert len(cuts.used(np.zeros(8))) == 0  # one use, and patience starts anew


# The linear program


def reference(cuts, price, limit):
    m, J = cuts.quads.shape[1], len(cuts)
    A = np.hstack([-0.5 * cuts.quads, -np.ones((J, 1))])
    b = -cuts.constants
    sums = np.append(np.ones(m), 0.0)[None]
    cost = np.append(np.full(m, price or 0.0), 1.0)
    bounds = [(0, None)] * m + [(None, None)]
    if price is None:
        found = linprog(cost, A, b, sums, [limit], bounds=bounds)
    else:
        found = linprog(cost, np.vstack([A, sums]), np.append(b, limit), bounds=bounds)
    return found.fun


@pytest.mark.parametrize("size", [1e-9, 1.0, 1e9])
@pytest.mark.parametrize("price", [None, 0.4])
def test_hot_starts_give_the_cold_answer_whatever_the_scale(price, size):
    """Also when cuts outgrow the scale the program was built in, and after a cut of nothing."""
    rng = np.random.default_rng(4)
    price = None if price is None else price * size
    cuts = random_cuts(rng, 1, 7, size)
    lp = CutLP(cuts, price)
    for step in range(16):
        limit = 1.0 if price is None else 1.0 + 0.3 * step
        found = lp.solve(limit)
        expected = reference(stored(cuts.constants / size, cuts.quads / size), price and 0.4, limit)
        tol = 2e-6 * max(np.abs(cuts.constants).max(), size)
        assert found.value == pytest.approx(size * expected, abs=tol)
        if cuts.quads[-1].any():  # a new program takes its scale from the latest cut
            assert found.value == pytest.approx(CutLP(cuts, price).solve(limit).value, abs=tol)
        above = (price or 0.0) * found.d.sum() + cuts.values(found.d).max()
        assert above == pytest.approx(found.value, abs=tol)
        assert found.multipliers.shape == (len(cuts),) and found.multipliers.min() >= 0
        assert found.multipliers.sum() == pytest.approx(1.0)
        assert found.d.min() >= 0 and found.d.sum() <= limit * (1 + 1e-8)
        assert price is not None or found.d.sum() == pytest.approx(limit)
        if step == 9:
            lp.drop(np.flatnonzero(found.multipliers == 0)[::2])
        grown = size * (1e6 if step == 5 else 0.0 if step == 7 else 1.0)
        cuts.add(np.zeros((1, 2)), grown * np.abs(rng.normal(size=7)))
        cuts.constants[-1] = grown * rng.normal()


def test_no_weights_at_all_are_an_answer_under_l1():
    cuts = stored(np.array([2.0, 1.0]), np.array([[0.1, 0.2], [0.3, 0.1]]))
    found = CutLP(cuts, 5.0).solve(3.0)
    np.testing.assert_array_equal(found.d, [0.0, 0.0])
    assert found.value == pytest.approx(2.0)


def too_short(right):
    return True, right[1][:-1], right[2]


def no_weights(right):
    return True, np.zeros_like(right[1]), right[2]


def no_multipliers(right):
    return True, right[1], np.zeros_like(right[2])


def multipliers_not_a_number(right):
    return True, right[1], np.full_like(right[2], np.nan)


def slightly_wrong(right):
    columns = right[1].copy()
    columns[:-1] = 0.5 * columns[:-1] + 0.5 * columns[:-1].mean()
    return True, columns, right[2]


BROKEN = [too_short, no_weights, no_multipliers, multipliers_not_a_number, slightly_wrong]


@pytest.mark.parametrize("price", [None, 0.2])
@pytest.mark.parametrize("broken", BROKEN)
def test_garbage_from_a_hot_start_is_mended_by_a_cold_one(monkeypatch, broken, price):
    cuts = random_cuts(np.random.default_rng(5), 8, M)
    lp = CutLP(cuts, price)
    lp.solve(2.0 if price else 1.0)
    cuts.add(np.zeros((1, 2)), np.linspace(0.2, 2.0, M))
    cuts.constants[-1] = 1.2
    run, build, calls, builds = CutLP._run, CutLP._build, [], []

    def once(self, limit):
        calls.append(1)
        return broken(run(self, limit)) if len(calls) == 1 else run(self, limit)

    def counted(self):
        builds.append(1)
        build(self)

    limit = 2.0 if price else 1.0
    expected = CutLP(cuts, price).solve(limit)
    monkeypatch.setattr(CutLP, "_run", once)
    monkeypatch.setattr(CutLP, "_build", counted)
    with np.errstate(all="raise"):
        found = lp.solve(limit)
    assert len(calls) == 2 and len(builds) == 1
    assert found.value == pytest.approx(expected.value, rel=1e-9)
    assert rows_of(lp) == len(cuts)
    monkeypatch.setattr(CutLP, "_run", lambda self, limit: broken(run(self, limit)))
    assert lp.solve(limit) is None
    monkeypatch.setattr(CutLP, "_run", run)
    assert lp.solve(limit).value == pytest.approx(expected.value, rel=1e-9)


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="threads are counted on Linux")
def test_highs_is_silent_and_starts_no_threads(capfd):
    cuts = random_cuts(np.random.default_rng(6), 10, 30)
    before = len(os.listdir("/proc/self/task"))
    lp = CutLP(cuts, None)
    lp.solve()
    CutLP(cuts, None).solve()
    lp.solve()
    assert len(os.listdir("/proc/self/task")) == before
    assert capfd.readouterr() == ("", "")


ANOTHER_USER = """
import highspy, numpy as np
other = highspy.Highs()
for option, value in (("output_flag", False), ("threads", 2)):
    other.setOptionValue(option, value)
other.addVars(1, np.zeros(1), np.ones(1))
assert other.run() == highspy.HighsStatus.kOk

from kernelweave.solvers.cuts import CutLP

class Cuts:
    constants, quads = np.zeros(2), np.array([[1.0, 2.0], [2.0, 1.0]])
    def __len__(self):
        return 2
    def values(self, d):
        return self.constants - 0.5 * self.quads @ d

assert abs(CutLP(Cuts(), None).solve().value + 0.75) < 1e-9
"""


def test_another_user_of_highs_may_have_set_its_threads():
    """They belong to the process; HiGHS refuses to run on a different number of them."""
    command = [sys.executable, "-c", ANOTHER_USER]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


# The quadratic programs


def referee_level(constants, slopes, d, metric, limit, exact_sum):
    x, level = cp.Variable(len(d), nonneg=True), cp.Variable()
    rows = [level >= c + g @ x for c, g in zip(constants, slopes, strict=True)]
    rows.append(cp.sum(x) == limit if exact_sum else cp.sum(x) <= limit)
    objective = level + 0.5 * cp.quad_form(x - d, cp.psd_wrap(metric))
    problem = cp.Problem(cp.Minimize(objective), rows)
    problem.solve(solver=cp.CLARABEL)
    return problem.value


@pytest.mark.parametrize("exact_sum", [True, False])
@pytest.mark.parametrize("size", [1e-4, 1.0, 1e4])
def test_the_level_step_against_a_convex_solver(size, exact_sum):
    rng = np.random.default_rng(7)
    for _ in range(3):
        R = rng.normal(size=(5, 6))
        metric = R.T @ R + 1e-6 * np.eye(6)
        constants, slopes = rng.normal(size=5), rng.normal(size=(5, 6))
        d = rng.dirichlet(np.ones(6))
        limit = 1.0 if exact_sum else 2.0
        expected = referee_level(constants, slopes, d, metric, limit, exact_sum)
        weights, shares = nearest_below(
            size * constants, size * slopes, d, size * metric, limit, exact_sum
        )
        assert weights.min() >= 0 and shares.min() >= 0
        assert shares.sum() == pytest.approx(1.0)
        total = weights.sum()
        assert total == pytest.approx(1.0) if exact_sum else total <= limit * (1 + 1e-9)
        level = (constants + slopes @ weights).max()
        value = level + 0.5 * (weights - d) @ metric @ (weights - d)
        assert value == pytest.approx(expected, abs=1e-5)
        # Only cuts that are highest there have a share.
        assert shares @ (constants + slopes @ weights) == pytest.approx(level, abs=1e-5)


def test_a_step_on_cuts_under_any_metric():
    """From none to one of 1e20; where that is no number there is no step."""
    slopes = np.array([[-1.0, 0.0], [1.0, 0.0]])
    args = np.zeros(2), slopes, np.array([0.3, 0.7])
    np.testing.assert_allclose(nearest_below(*args, np.zeros((2, 2)), 1.0, True)[0], [0, 1])
    stiff = nearest_below(*args, 1e20 * np.eye(2), 1.0, True)[0]
    np.testing.assert_allclose(stiff, [0.3, 0.7], atol=1e-6)
    for metric in (np.full((2, 2), np.nan), np.full((2, 2), np.inf)):
        assert nearest_below(*args, metric, 1.0, True) is None


@pytest.mark.parametrize("free_sum", [False, True])
@pytest.mark.parametrize("rank", [1, 4, 9])
def test_the_model_of_a_polyhedral_step_against_a_convex_solver(rank, free_sum):
    rng = np.random.default_rng(8)
    for _ in range(3):
        R = rng.normal(size=(rank, 7))
        d = rng.dirichlet(np.ones(7)) * (rng.random(7) < 0.6)
        d[0] += 0.1
        gradient = rng.normal(size=7)
        x = cp.Variable(7, nonneg=True)
        objective = gradient @ (x - d) + 0.5 * cp.sum_squares(R @ (x - d))
        most = 2 * d.sum() + 1
        rows = [cp.sum(x) <= most] if free_sum else [cp.sum(x) == d.sum()]
        expected = cp.Problem(cp.Minimize(objective), rows).solve(solver=cp.CLARABEL)
        found = minimise_model(R.T @ R, gradient, d, 1e-7, most if free_sum else None)
        value = gradient @ (found - d) + 0.5 * np.sum((R @ (found - d)) ** 2)
        assert found.min() >= 0
        assert found.sum() <= most + 1e-9 if free_sum else found.sum() == pytest.approx(d.sum())
        assert value == pytest.approx(expected, abs=1e-5)


def price(regularizer, x):
    s = regularizer.weight
    if isinstance(regularizer, ElasticNet):
        rho = regularizer.l1_ratio
        return s * rho * cp.sum(x) + 0.5 * s * (1 - rho) * cp.sum_squares(x), []
    if isinstance(regularizer, Entropy):
        return s * (np.log(x.size) - cp.sum(cp.entr(x))), [cp.sum(x) == 1]
    return 0.5 * s * cp.square(cp.pnorm(x, regularizer.p, approx=False)), []


@pytest.mark.parametrize("regularizer", [ElasticNet(0.8, 0.5), Entropy(0.3)], ids=repr)
def test_the_model_with_a_curved_price_against_a_convex_solver(regularizer):
    rng = np.random.default_rng(9)
    for rank in (2, 8):
        R = rng.normal(size=(rank, 6))
        d, gradient = rng.dirichlet(np.ones(6)), -np.abs(rng.normal(size=6))
        x = cp.Variable(6, nonneg=True)
        cost, rows = price(regularizer, x)
        model = gradient @ (x - d) + 0.5 * cp.sum_squares(R @ (x - d))
        objective = cost + model
        expected = cp.Problem(cp.Minimize(objective), rows).solve(solver=cp.CLARABEL)
        found = minimise_penalised_model(R, gradient, d, regularizer, 3.0)
        move = found - d
        value = regularizer.value(found) + gradient @ move + 0.5 * np.sum((R @ move) ** 2)
        assert value == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("regularizer", [ElasticNet(0.8, 0.5), Entropy(0.3)], ids=repr)
def test_without_curvature_the_price_alone_bends_the_model(regularizer):
    """All alpha at their bounds: a step must be taken all the same."""
    gradient = -np.array([3.0, 2.0, 0.1])
    d = regularizer.start(3)

    def value(x):
        return regularizer.value(x) + gradient @ x

    best = regularizer.dual_weights(-2 * gradient)
    found, flat = d, np.zeros((1, 3))
    for _ in range(21):
        most = 2 * found.sum() + 1
        found = minimise_penalised_model(flat, gradient, found, regularizer, most)
    assert value(found) == pytest.approx(value(best), abs=1e-6)


@pytest.mark.parametrize(
    "regularizer", [SquaredLp(2.0, 1.5), SquaredLp(1.5), Entropy(0.7)], ids=repr
)
def test_the_smooth_master_under_other_prices(regularizer):
    cuts = random_cuts(np.random.default_rng(10), 7, 5)
    d, theta = cp.Variable(5, nonneg=True), cp.Variable()
    cost, rows = price(regularizer, d)
    rows += [theta >= c - 0.5 * (q @ d) for c, q in zip(cuts.constants, cuts.quads, strict=True)]
    expected = cp.Problem(cp.Minimize(cost + theta), rows).solve(solver=cp.CLARABEL)
    found = solve_dual(cuts, regularizer, np.eye(7)[-1], expected + 1e-6)
    assert found.value <= expected + 1e-7
    assert found.value == pytest.approx(expected, abs=1e-5)
    assert regularizer.value(found.d) + cuts.values(found.d).max() == pytest.approx(
        expected, abs=1e-3
    )
    np.testing.assert_allclose(found.d, d.value, atol=1e-3)


@pytest.mark.parametrize("steep", 10.0 ** np.arange(1, 8))
def test_the_smooth_master_meets_a_flat_cut_and_a_steep_one(steep):
    """Of the steep cut, the higher one at no weights, a tiny multiplier is enough."""
    cuts, regularizer, upper = stored([20.0, 300.0], np.array([[0.1], [steep]])), ElasticNet(), 30.0
    found = solve_dual(cuts, regularizer, np.eye(2)[0], upper)
    left = regularizer.value(found.d) + cuts.values(found.d).max() - found.value
    assert 0 <= left <= 0.011 * (upper - found.value) or found.value > upper


def test_a_regularizer_that_cannot_tell_its_weights_has_no_master():
    cuts = random_cuts(np.random.default_rng(11), 3, 4)
    assert solve_dual(cuts, SquaredLp(1.0), np.eye(3)[-1], 0.0) is None
