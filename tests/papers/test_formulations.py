"""The papers' formulations are one problem: asked for the same optimum, they give it."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer

from kernelweave import MKLClassifier
from kernelweave.kernels import RBF, Linear, simplemkl_family, spicymkl_family
from kernelweave.regularizers import (
    L1,
    LpBall,
    SquaredLp,
    block_l1_to_l1_weight,
    simplex_C_to_block_l1,
)

X, y = load_breast_cancer(return_X_y=True)
X, y = X[:120, :6], y[:120]
KERNELS = [
    *(RBF(width=w * 50).on(j) for j in range(3) for w in (0.1, 1.0)),
    Linear().on(4),
    Linear().on(5),
]


def component_norms(model: MKLClassifier) -> np.ndarray:
    """|f_k| = d_k sqrt(alpha' K_k alpha)."""
    stack = model._kernel_set.block(model.support_, model.support_)
    alpha = model.dual_coef_[0]
    return model.weights_ * np.sqrt(np.einsum("i,kij,j->k", alpha, stack, alpha))


@pytest.mark.parametrize("loss", ["hinge", "logistic"])
def test_simplex_is_block_l1(loss):
    """SpicyMKL eq. 13: simplex with loss weight C is block l1 with c = sum |f_k| / C."""
    C = 3.0
    simplex = MKLClassifier(KERNELS, C=C, loss=loss, tol=1e-7).fit(X, y)
    weight = block_l1_to_l1_weight(simplex_C_to_block_l1(C, component_norms(simplex)))
    block = MKLClassifier(KERNELS, C=1.0, loss=loss, regularizer=L1(weight), tol=1e-7).fit(X, y)
    np.testing.assert_allclose(block.decision_function(X), simplex.decision_function(X), atol=5e-3)
    # The same components, so the same kernels in the same proportions.
    np.testing.assert_allclose(block.weights_ / block.weights_.sum(), simplex.weights_, atol=5e-3)


def test_squared_norm_penalty_is_a_ball_of_the_right_radius():
    """SPG-GMKL's penalty s/2 |d|_p^2 has the optimum of the ball |d|_p <= 1 at another C."""
    penalty = MKLClassifier(KERNELS, C=2.0, regularizer=SquaredLp(2.0, 4.0), tol=1e-7).fit(X, y)
    radius = np.linalg.norm(penalty.weights_)
    # K(r d) with loss weight C is K(d) with loss weight r C: both scale alpha'K alpha alike.
    ball = MKLClassifier(KERNELS, C=2.0 * radius, regularizer=LpBall(2.0), tol=1e-7).fit(X, y)
    np.testing.assert_allclose(ball.decision_function(X), penalty.decision_function(X), atol=1e-2)
    np.testing.assert_allclose(ball.weights_, penalty.weights_ / radius, atol=5e-3)


def test_family_sizes_of_the_protocols():
    """SimpleMKL: 13 (d + 1) kernels; SpicyMKL: 27 (d + 1)."""
    assert len(MKLClassifier(simplemkl_family()).fit(X, y).weights_) == 13 * 7
    assert len(MKLClassifier(spicymkl_family()).fit(X, y).weights_) == 27 * 7


def test_simplex_weights_are_sparse_and_lp_weights_are_not():
    """Kloft et al.: the norm p decides between picking kernels and weighting all of them."""
    counts = [
        np.count_nonzero(MKLClassifier(KERNELS, regularizer=r).fit(X, y).weights_ > 1e-3)
        for r in ("simplex", LpBall(1.33), LpBall(4.0))
    ]
    assert counts[0] < len(KERNELS) == counts[-1]
    assert counts == sorted(counts)
