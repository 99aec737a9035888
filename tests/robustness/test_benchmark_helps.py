"""The contest of `helps.py` on one small split: all contestants, one problem, one metric."""

from __future__ import annotations

import importlib
import math
from pathlib import Path

import numpy as np
import pytest

from kernelweave.kernels import RBF, Linear

pytest.importorskip("pandas")
BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def contest(monkeypatch):
    """The module, with two solvers and little time for Bayes."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    module = importlib.import_module("helps_contest")
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


def test_a_fit_ends_when_its_seconds_are_over(contest):
    assert contest.Budget(-1.0)(None)
    assert not contest.Budget(1e6)(None)
