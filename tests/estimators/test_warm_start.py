"""`warm_start=True`: the next fit starts where the last one ended."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris

from kernelweave import MKLClassifier, MKLRegressor
from kernelweave.regularizers import L1

CS = [0.3, 1.0, 3.0]


@pytest.mark.parametrize(
    "options",
    [
        {"kernels": "simplemkl"},
        {"kernels": "simplemkl", "solver": "spg", "regularizer": "lp_ball"},
        {"kernels": "simplemkl", "loss": "logistic"},
        {"combination": "product", "regularizer": "l1"},
    ],
    ids=str,
)
def test_a_path_of_C_takes_fewer_steps_to_the_same_optima(options):
    X, y = load_breast_cancer(return_X_y=True)
    X, y = X[::3], y[::3]
    warm = MKLClassifier(**options, warm_start=True, tol=1e-4, max_iter=3000)
    steps = {"warm": 0, "cold": 0}
    for C in CS:
        warm.set_params(C=C).fit(X, y)
        cold = MKLClassifier(**options, C=C, tol=1e-4, max_iter=3000).fit(X, y)
        assert warm.converged_ and cold.converged_
        assert warm.objective_ == pytest.approx(cold.objective_, rel=3e-4)
        if CS[0] != C:
            steps["warm"] += warm.history_[-1].inner_iterations
            steps["cold"] += cold.history_[-1].inner_iterations
    assert steps["warm"] < steps["cold"]


def test_the_same_problem_again_is_solved_at_once():
    X, y = load_iris(return_X_y=True)
    model = MKLClassifier(warm_start=True).fit(X, y)
    weights = model.weights_.copy()
    model.fit(X, y)
    assert len(model.history_) <= 2
    np.testing.assert_allclose(model.weights_, weights, atol=1e-2)


def test_other_data_and_other_settings_start_anew_or_move_inside():
    X, y = load_iris(return_X_y=True)
    model = MKLClassifier(warm_start=True, regularizer=L1(0.05)).fit(X, y)
    assert model.fit(X[::2], y[::2]).converged_
    assert model.set_params(regularizer="simplex").fit(X[::2], y[::2]).converged_
    assert model.weights_.sum() == pytest.approx(1.0)
    assert model.set_params(kernels="rbf").fit(X, y).converged_
    assert model.set_params(multi_class="ovr").fit(X, y).converged_


def test_sample_weights_that_become_zero():
    X, y = load_diabetes(return_X_y=True)
    model = MKLRegressor(warm_start=True, C=0.1).fit(X, y / 100)
    weight = np.ones(len(y))
    weight[::2] = 0.0
    model.fit(X, y / 100, sample_weight=weight)
    cold = MKLRegressor(C=0.1).fit(X, y / 100, sample_weight=weight)
    assert model.objective_ == pytest.approx(cold.objective_, rel=2e-3)


def test_a_cold_estimator_keeps_nothing():
    X, y = load_iris(return_X_y=True)
    warm, cold = (MKLClassifier(warm_start=on).fit(X, y) for on in (True, False))
    assert len(pickle.dumps(cold)) < len(pickle.dumps(warm))
    assert not hasattr(clone(warm), "_solutions")
