"""Spectral projected gradients where they used to creep."""

from __future__ import annotations

import pytest
from hard_problems import check_fit, draw, fit

from kernelweave.regularizers import L1, BlockNorm


@pytest.mark.parametrize(
    ("seed", "loss", "regularizer"),
    [(67, "logistic", L1(0.03)), (109, "squared_hinge", BlockNorm(2, 1.5, 0.01))],
    ids=str,
)
def test_large_weights_of_a_small_price(seed, loss, regularizer):
    """Weights far above one need steps far above ten: 1,000 iterations were not enough."""
    problem = draw(seed, loss=loss, regularizer=regularizer, n=(8, 25), m=(1, 8))
    done = fit(problem, "spg", 1e-4, max_iter=200)
    check_fit(done, 1e-4)
    assert done.result.converged and done.result.d.max() > 10.0
