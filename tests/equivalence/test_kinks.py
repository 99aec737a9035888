"""Where T has no gradient, and what a rough alpha owes."""

from __future__ import annotations

import numpy as np
import pytest

from kernelweave import MKLClassifier
from kernelweave.bank import DenseBank
from kernelweave.combine import WeightedSum
from kernelweave.kernels import WeightedDegree
from kernelweave.losses import get_loss
from kernelweave.problem import Problem
from kernelweave.regularizers import Simplex
from kernelweave.solvers import ActiveSet, Limits, solve
from kernelweave.solvers.certificate import certify
from kernelweave.solvers.inner import Evaluator, Point
from kernelweave.solvers.loop import _inner_gap

LENGTH, MOTIF = 20, "TTTTCAGGTAAG"


def planted(n, seed):
    """Random DNA; half of it with a motif in the middle, mutated, and moved in some."""
    rng = np.random.default_rng(seed)
    letters = rng.integers(0, 4, (n, LENGTH), dtype=np.uint8)
    y = np.where(rng.random(n) < 0.5, 1, -1)
    moved = rng.integers(-3, 4, n) * (rng.random(n) < 0.3)
    first = LENGTH // 2 - len(MOTIF) // 2 + moved
    rows = np.flatnonzero(y == 1)
    for j, letter in enumerate(MOTIF):
        kept = rows[rng.random(len(rows)) > 0.25]
        letters[kept, first[kept] + j] = "ACGT".index(letter)
    return np.frombuffer(b"ACGT", np.uint8)[letters].view(f"S{LENGTH}").ravel(), y


@pytest.mark.parametrize(("n", "seed"), [(500, 1), (1000, 0)])
def test_second_order_steps_end_at_kinks_and_with_rough_alphas(n, seed):
    """The gap falls with the root of what alpha owes; plain cutting planes took a hundred steps."""
    X, y = planted(n, seed)
    family = WeightedDegree(2).by_position()
    model = MKLClassifier(family, C=0.03, solver="active-set", tol=1e-5, max_iter=60).fit(X, y)
    assert model.converged_ and model.gap_ <= 1e-5
    solves = [line.inner_solves for line in model.history_]
    assert solves == sorted(solves)


def problem_of(kernels, y):
    C = np.ones((1, len(y)))
    return Problem(kernels, y[None], C, get_loss("hinge"), Simplex(), WeightedSum()).bound()


def test_what_alpha_owes_is_measured_at_the_weights():
    """Components of unequal norms have better weights, whose objective can be below T(d)."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 3)), np.where(rng.random(60) < 0.5, 1.0, -1.0)
    X[:, 0] += 2.0 * y
    bank = DenseBank().from_matrices([np.outer(x, x) + 0.1 * np.eye(60) for x in X.T])
    problem = problem_of(bank, y)
    d = np.full(3, 1.0 / 3.0)
    evaluator = Evaluator(problem)
    rough, exact = (evaluator.evaluate(d, tol) for tol in (0.5, 1e-9))
    unit = max(1.0, abs(exact.value))
    for point, owed in ((rough, exact.value - rough.value), (exact, 0.0)):
        quad = evaluator.problem.bank.quad(point.alpha)
        seen = certify(problem, d, point.alpha, point.intercept, point.fitted, quad)
        found = _inner_gap(problem, seen, point)
        assert found >= 0.5 * owed / unit
        assert found <= max(2.0 * seen.gap, 1e-8)
    assert exact.value - rough.value > 1e-4 * unit


def test_a_working_set_that_all_kernels_in_use_exceed():
    rng = np.random.default_rng(0)
    factors = rng.normal(size=(40, 30, 5))
    y = np.where(rng.random(30) < 0.5, -1.0, 1.0)
    problem = problem_of(DenseBank().from_matrices([F @ F.T for F in factors]), y)
    start = Point.start(np.full(40, 1 / 40), np.zeros((1, 30)), np.zeros(1))
    result = solve(problem, ActiveSet(working_set=1), Limits(tol=1e-3), start)
    assert result.converged
