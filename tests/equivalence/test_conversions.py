"""The papers' parameters name the same optimum, in both directions."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest

from kernelweave.errors import InvalidInputError
from kernelweave.regularizers import (
    L1,
    block_l1_to_l1_weight,
    block_l1_to_simplex_C,
    l1_weight_to_block_l1,
    simplex_C_to_block_l1,
)


def data() -> tuple[list[np.ndarray], np.ndarray]:
    """Factors of four kernels on 25 samples, and labels."""
    rng = np.random.default_rng(0)
    factors = [rng.normal(size=(25, 2)) for _ in range(4)]
    y = np.where(factors[0][:, 0] + 0.5 * factors[1][:, 1] + 0.3 * rng.normal(size=25) > 0, 1, -1)
    return factors, y.astype(float)


def solve(penalty: str, loss_weight: float, c: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Decision values and norms of the components, for the logistic loss, by a conic solver."""
    factors, y = data()
    w = [cp.Variable(2) for _ in factors]
    b = cp.Variable()
    z = sum(F @ v for F, v in zip(factors, w, strict=True)) + b
    norms = sum(cp.norm(v) for v in w)
    omega = cp.square(norms) / 2 if penalty == "simplex" else c * norms
    losses = cp.sum(cp.logistic(-cp.multiply(y, z)))
    tight = {"tol_gap_abs": 1e-11, "tol_gap_rel": 1e-11, "tol_feas": 1e-11}
    cp.Problem(cp.Minimize(loss_weight * losses + omega)).solve(solver="CLARABEL", **tight)
    return z.value, np.array([np.linalg.norm(v.value) for v in w])


@pytest.mark.parametrize("C", [0.3, 5.0])
def test_simplex_to_block_l1_and_back(C: float) -> None:
    simplex_decision, simplex_norms = solve("simplex", C)
    c = simplex_C_to_block_l1(C, simplex_norms)
    block_decision, block_norms = solve("block l1", 1.0, c)
    np.testing.assert_allclose(block_decision, simplex_decision, atol=1e-4)
    np.testing.assert_allclose(block_norms, simplex_norms, atol=1e-4)
    assert block_l1_to_simplex_C(c, block_norms) == pytest.approx(C, rel=1e-3)


def test_block_l1_to_simplex_and_back() -> None:
    block_decision, block_norms = solve("block l1", 1.0, 1.5)
    C = block_l1_to_simplex_C(1.5, block_norms)
    simplex_decision, simplex_norms = solve("simplex", C)
    np.testing.assert_allclose(simplex_decision, block_decision, atol=1e-4)
    assert simplex_C_to_block_l1(C, simplex_norms) == pytest.approx(1.5, rel=1e-3)


@pytest.mark.parametrize("weight", [0.02, 1.0, 30.0])
def test_l1_weight_and_block_l1(weight: float) -> None:
    c = l1_weight_to_block_l1(weight)
    assert block_l1_to_l1_weight(c) == pytest.approx(weight)
    assert l1_weight_to_block_l1(block_l1_to_l1_weight(c)) == pytest.approx(c)
    norms = np.array([0.3, 0.0, 2.0])
    # Equal penalties, and equal dual constraints q <= 2 s and sqrt(q) <= c.
    assert L1(weight).omega(norms) == pytest.approx(c * norms.sum())
    assert L1(weight).dual_penalty(np.array([0.999 * c**2])) == 0.0
    assert L1(weight).dual_penalty(np.array([1.001 * c**2])) == np.inf


@pytest.mark.parametrize("convert", [simplex_C_to_block_l1, block_l1_to_simplex_C])
def test_the_zero_function_names_no_problem(convert: type) -> None:
    with pytest.raises(InvalidInputError, match="not all zero; their sum is 0"):
        convert(1.0, np.zeros(3))
    with pytest.raises(InvalidInputError, match="must be a finite number > 0; got -1"):
        convert(-1.0, np.ones(3))


@pytest.mark.parametrize("convert", [l1_weight_to_block_l1, block_l1_to_l1_weight])
def test_coefficients_must_be_positive(convert: type) -> None:
    with pytest.raises(InvalidInputError, match="must be a finite number > 0; got 0"):
        convert(0)
