"""Newton's method for one kernel where it used to end far from the optimum."""

from __future__ import annotations

import numpy as np
import pytest
from dense_gram import DenseGram

from kernelweave.linear_systems import cholesky, with_low_rank
from kernelweave.losses import SquaredHinge
from kernelweave.solvers.newton import solve_smooth


@pytest.mark.parametrize("seed", [10, 38, 51])
def test_a_warm_start_of_other_weights_at_a_huge_C(seed):
    """One sample against fifteen: from the alpha of another kernel 200 steps went nowhere."""
    n, loss = 16, SquaredHinge()
    A = np.random.default_rng(seed).normal(size=(n, 20))
    gram = DenseGram(A @ A.T / 20)
    y, C = np.append(-np.ones(n - 1), 1.0), np.full(n, 1e7)
    other = solve_smooth(loss, y, C, DenseGram(np.eye(n)), tol=1e-6)
    found = solve_smooth(loss, y, C, gram, tol=1e-6, alpha=other.alpha, intercept=other.intercept)
    assert found.converged
    cold = solve_smooth(loss, y, C, gram, tol=1e-6)
    np.testing.assert_allclose(found.fitted, cold.fitted, rtol=1e-3, atol=1e-3)


@pytest.mark.filterwarnings("error")
def test_a_diagonal_that_rounding_takes_below_zero():
    solve = cholesky(np.diag([1.0, -1e-9]), np.zeros(2))
    assert np.all(np.isfinite(solve(np.ones(2))))


@pytest.mark.filterwarnings("error")
def test_a_low_rank_part_that_takes_all_curvature_away():
    """The identity less the projection onto v: its inverse is that of the rest."""
    v = np.array([[0.6, 0.8, 0.0]])
    solve = with_low_rank(lambda x: x, v, np.array([-1.0]))
    across = np.array([-0.8, 0.6, 5.0])
    np.testing.assert_allclose(solve(across), across, atol=1e-12)
    assert np.all(np.isfinite(solve(np.ones(3))))
