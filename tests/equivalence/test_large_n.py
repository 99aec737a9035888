"""Beyond a few thousand samples no combined matrix is formed: the same optimum, other ways."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import make_classification

from kernelweave import MKLClassifier, MKLRegressor
from kernelweave.bank import LazyBank
from kernelweave.kernels import RBF, Polynomial
from kernelweave.regularizers import LpBall

N = 3200
KERNELS = [RBF(width=1.0).on(0), RBF(width=2.0).on([1, 2]), Polynomial(2).on(3)]


@pytest.fixture(scope="module")
def data():
    return make_classification(N, 4, n_informative=3, n_redundant=0, flip_y=0.1, random_state=0)


@pytest.fixture(scope="module")
def reference(data):
    return MKLClassifier(KERNELS, bank="dense", C=0.5).fit(*data)


@pytest.mark.parametrize(
    "bank", ["factored", LazyBank(40), "auto"], ids=["factored", "lazy", "auto"]
)
def test_banks_agree(data, reference, bank):
    X, y = data
    model = MKLClassifier(KERNELS, bank=bank, C=0.5).fit(X, y)
    assert model.converged_ and model.gap_ <= 1e-3
    assert model.objective_ == pytest.approx(reference.objective_, rel=1.1e-3)
    assert model.dual_objective_ <= reference.objective_
    agree = np.sign(model.decision_function(X)) == np.sign(reference.decision_function(X))
    assert agree.mean() > 0.99


def test_spectral_gradient_agrees(data, reference):
    model = MKLClassifier(KERNELS, bank="factored", C=0.5, solver="spg").fit(*data)
    assert model.objective_ == pytest.approx(reference.objective_, rel=1.1e-3)


def test_lp_ball(data):
    X, y = data
    dense = MKLClassifier(KERNELS, bank="dense", regularizer=LpBall(2.0)).fit(X, y)
    thin = MKLClassifier(KERNELS, bank="factored", regularizer=LpBall(2.0)).fit(X, y)
    assert thin.objective_ == pytest.approx(dense.objective_, rel=1.1e-3)
    np.testing.assert_allclose(thin.weights_, dense.weights_, atol=0.02)


def test_a_smooth_loss_without_a_matrix(data):
    X, y = data
    thin = MKLClassifier(KERNELS, bank="factored", loss="logistic", tol=1e-2).fit(X, y)
    dense = MKLClassifier(KERNELS, bank="dense", loss="logistic", tol=1e-2).fit(X, y)
    assert thin.converged_ and dense.converged_
    assert thin.objective_ == pytest.approx(dense.objective_, rel=1.1e-2)


def test_regression(data):
    X, _ = data
    y = np.sin(2 * X[:, 0]) + 0.5 * X[:, 3] ** 2
    model = MKLRegressor(KERNELS, bank="factored", epsilon=0.2).fit(X, y)
    assert model.converged_ and model.score(X, y) > 0.8
