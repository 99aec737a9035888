"""The contest of `helps.py` on one small split: all contestants, one problem, one metric."""

from __future__ import annotations

import math

import numpy as np
import pytest

from kernelweave.kernels import RBF, Linear

pytest.importorskip("pandas")
from benchmarks.helps import contest as module
from benchmarks.helps.__main__ import Interval, corrected_interval
from benchmarks.timing import Budget


@pytest.fixture
def contest(monkeypatch):
    """The module, with two solvers and little time for Bayes."""
    monkeypatch.setattr(module, "CS", (0.1, 1.0))
    monkeypatch.setattr(module, "SOLVERS", ("silp", "spg"))
    monkeypatch.setattr(module, "BAYES_SECONDS", 0.0)
    return module


@pytest.fixture
def problem(contest):
    """Classes of 48 and 12 rows to learn from, which the second column alone tells apart."""
    rng = np.random.default_rng(0)
    y = np.tile([-1.0, -1.0, 1.0, -1.0, -1.0], 18)
    X = rng.normal(size=(90, 2))
    X[:, 1] += 2.0 * y
    kernels = [Linear(), RBF(width=2.0), Linear().on([0]), Linear().on([1])]
    return contest.Problem(X[:60], X[60:], y[:60], y[60:], kernels, [], 2, balanced=True)


def test_all_contestants_on_one_split(contest, problem):
    found = contest.run_contest(problem, seed=0)
    learnt = ["auto", "lp2", "uniform", "silp", "spg"]
    assert list(found) == [*learnt, "bayes", "single", "svc"]
    for name, one in found.items():
        assert 0.8 <= one["score"] <= 1.0 and math.isfinite(one["seconds"]), name
    for name in learnt:
        one = found[name]
        assert one["gap"] <= contest.TOL, name
        assert one["gap"] == pytest.approx(
            (one["objective"] - one["dual"]) / max(1.0, one["objective"])
        ), name
    # The same problem at the same C: no one is below what another one proved.
    bounds = [(found[name]["objective"], found[name]["dual"]) for name in ("auto", "silp", "spg")]
    assert max(dual for _, dual in bounds) <= min(objective for objective, _ in bounds)
    assert found["auto"]["C"] in contest.CS and found["svc"]["C"] in contest.CS
    assert found["auto"]["cv"] > 0.8 and 1 <= found["auto"]["kernels"] <= 4
    assert found["single"]["kernel"] != problem.kernels[2].name
    assert not found["bayes"]["converged"]


def test_rare_classes_count_as_much(contest, problem):
    assert contest._score(problem, -np.ones(30)) == 0.5
    assert contest._weights(problem) == "balanced"
    plain = contest.Problem(**{**vars(problem), "balanced": False})
    assert contest._score(plain, -np.ones(30)) == 0.8


def test_of_many_kernels_only_the_aligned_ones_are_tried_alone(contest, problem, monkeypatch):
    monkeypatch.setattr(contest, "_SINGLES", 3)
    tried = contest._candidates(problem)
    assert [kernel.name for kernel in tried] == [problem.kernels[k].name for k in (0, 1, 3)]


def test_a_fit_ends_when_its_seconds_are_over():
    assert Budget(-1.0)(None)
    assert not Budget(1e6)(None)


def test_corrected_interval_and_verdicts():
    # By hand: variance 2.5, (1/5 + 3/7) 2.5 = 1.571429, t(4, 0.975) = 2.776445; in per cent.
    found = corrected_interval([0.01, 0.02, 0.03, 0.04, 0.05], 70, 30)
    half = 2.776445 * 100 * (1.571429 / 2.5) ** 0.5 / 30
    np.testing.assert_allclose(found, [3.0, 3.0 - half, 3.0 + half], atol=1e-5)
    assert np.isnan(corrected_interval([1.0], 70, 30).low)
    wide = corrected_interval([0.1, 0.2, 0.3, 0.4, 0.5], 70, 30)
    np.testing.assert_allclose(wide, [30.0, -4.80458, 64.80458], atol=1e-4)
    ends = {(0.1, 1): "yes", (-1, -0.1): "no", (-1, 1): "no difference", (0, 0): "no difference"}
    assert [Interval(0.0, *pair).verdict for pair in ends] == list(ends.values())
