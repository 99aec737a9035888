"""Screening drops kernels and changes nothing else."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer

from kernelweave.bank import build_bank
from kernelweave.combine import WeightedSum
from kernelweave.losses import get_loss
from kernelweave.operators import ComputedOperator
from kernelweave.problem import Problem
from kernelweave.regularizers import L1, BlockNorm, ElasticNet, LpBall, Simplex
from kernelweave.solvers import SPG, ActiveSet, Limits, recompute, solve
from kernelweave.solvers.certificate import Screening


@pytest.fixture(scope="module")
def data():
    X, y = load_breast_cancer(return_X_y=True)
    kernels = ComputedOperator.build("simplemkl", X[::6])
    return build_bank("auto", kernels, tol=1e-6), np.where(y[::6] == 1, 1.0, -1.0)[None]


def make(data, loss, regularizer, C=1.0):
    bank, y = data
    return Problem(bank, y, np.full(y.shape, C), get_loss(loss), regularizer, WeightedSum())


CASES = [
    ("squared_hinge", Simplex(), ActiveSet()),
    ("logistic", L1(2.0), ActiveSet()),
    ("logistic", Simplex(), SPG()),
    ("squared_hinge", ElasticNet(3.0, 0.9), SPG()),
    ("logistic", BlockNorm(13, 2.0, 2.0), SPG()),
]


@pytest.mark.parametrize(("loss", "regularizer", "solver"), CASES, ids=repr)
def test_the_same_optimum_with_fewer_kernels(data, loss, regularizer, solver):
    problem = make(data, loss, regularizer)
    limits = Limits(tol=1e-6, max_iter=3000)
    screenings = []
    make_screening = Screening.for_problem

    def spy(problem):
        screenings.append(make_screening(problem))
        return screenings[-1]

    with patch.object(Screening, "for_problem", spy):
        screened = solve(problem, solver, limits)
    with patch.object(Screening, "for_problem", lambda problem: None):
        plain = solve(problem, solver, limits)
    assert screened.converged and plain.converged
    kept = screenings[-1].kept
    assert len(kept) < problem.m, "nothing was dropped, so nothing was tested"
    dropped = np.setdiff1d(np.arange(problem.m), kept)
    assert np.all(plain.d[dropped] <= 1e-3 * plain.d.max())
    assert screened.certificate.primal == pytest.approx(plain.certificate.primal, rel=2e-6)
    # The certificate still covers all kernels.
    again, _ = recompute(problem, screened.d, screened.alpha, screened.intercept)
    assert again.gap <= limits.tol


@pytest.mark.parametrize(
    ("loss", "regularizer"), [("hinge", Simplex()), ("logistic", LpBall(2.0))], ids=repr
)
def test_nothing_is_claimed_where_nothing_can_be_proven(data, loss, regularizer):
    assert Screening.for_problem(make(data, loss, regularizer)) is None


def test_the_bound_on_the_eigenvalues(data):
    bank, _ = data
    bounds = bank.eigenvalue_bound()
    n = bank.n
    centre = np.eye(n) - 1.0 / n
    for k in range(0, bank.m, 7):
        K = bank.block(np.arange(n), None, np.array([k]))[0]
        top = np.linalg.eigvalsh(centre @ K @ centre)[-1]
        assert top <= bounds[k] * (1 + 1e-6)
        assert bounds[k] <= max(1e-6, K.trace())
