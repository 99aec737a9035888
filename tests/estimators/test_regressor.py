"""MKLRegressor: the same promises, with a regression loss."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV
from sklearn.svm import SVR

from kernelweave import MKLRegressor
from kernelweave.kernels import RBF, Linear
from kernelweave.losses import EpsilonInsensitive


def test_signature():
    parameters = inspect.signature(MKLRegressor).parameters
    assert parameters["loss"].default == "epsilon_insensitive"
    assert parameters["epsilon"].default == 0.1
    assert parameters["target_scale"].default == "standardize"
    assert parameters["kernels"].default == "default"


def test_one_kernel_is_an_svr(curve):
    X, y = curve
    options = {"C": 5.0, "epsilon": 0.05, "target_scale": None, "tol": 1e-8}
    model = MKLRegressor(RBF(gamma=0.7), **options).fit(X, y)
    svr = SVR(gamma=0.7, C=5.0, epsilon=0.05, tol=1e-9).fit(X, y)
    np.testing.assert_allclose(model.predict(X), svr.predict(X), atol=1e-3)


def test_the_right_width_and_column_are_found(curve):
    X, y = curve
    kernels = [RBF(width=w).on(j) for j in (0, 1) for w in (0.1, 0.7, 10.0)]
    model = MKLRegressor(kernels, C=10).fit(X, y)
    assert model.kernel_names_[model.weights_.argmax()] == "rbf(width=0.7) on column 0"
    assert model.score(X, y) > 0.95 and model.gap_ <= 1e-3


def test_squared_loss_is_kernel_ridge(curve):
    X, y = curve
    model = MKLRegressor(RBF(gamma=0.7), loss="squared", C=5.0, tol=1e-9).fit(X, y)
    K = RBF(gamma=0.7)(X)
    n = len(y)
    system = np.block(
        [[K + np.eye(n) / 10.0, np.ones((n, 1))], [np.ones((1, n)), np.zeros((1, 1))]]
    )
    solution = np.linalg.solve(system, np.append(y, 0.0))
    np.testing.assert_allclose(model.predict(X), K @ solution[:-1] + solution[-1], atol=1e-4)


def test_sample_weights(curve):
    X, y = curve
    weight = np.where(X[:, 0] > 0, 1.0, 0.0)
    model = MKLRegressor(RBF(gamma=0.7), C=10).fit(X, y, sample_weight=weight)
    used = weight > 0
    alone = MKLRegressor(RBF(gamma=0.7), C=10, normalize=None).fit(X[used], y[used])
    np.testing.assert_allclose(model.predict(X[used]), alone.predict(X[used]), atol=0.05)


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_raw_targets_of_any_size(curve, unit):
    X, y = curve
    model = MKLRegressor(epsilon=0.01 * unit, target_scale=None).fit(X, unit * y)
    assert np.isfinite(model.predict(X)).all()
    assert model.gap_ <= 1e-3 and model.converged_


def test_a_loss_object_brings_its_own_epsilon(curve):
    X, y = curve
    one = MKLRegressor(Linear(), loss=EpsilonInsensitive(0.3)).fit(X, y)
    two = MKLRegressor(Linear(), epsilon=0.3).fit(X, y)
    np.testing.assert_allclose(one.predict(X), two.predict(X))


def test_grid_search(curve):
    X, y = curve
    search = GridSearchCV(MKLRegressor(), {"C": [0.1, 10.0], "epsilon": [0.05]}, cv=3).fit(X, y)
    assert search.best_params_["C"] == 10.0
