"""The estimators keep scikit-learn's promises."""

from __future__ import annotations

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from kernelweave import (
    BayesianMKLClassifier,
    BayesianMKLRegressor,
    MKLClassifier,
    MKLClassifierCV,
    MKLOneClass,
    MKLRegressor,
    MKLRegressorCV,
    NystromMKLClassifier,
)

ESTIMATORS = [
    MKLClassifier(),
    MKLClassifier(loss="logistic", multi_class="ovr"),
    MKLRegressor(),
    MKLOneClass(),
    MKLClassifierCV("linear", Cs=2, cv=2),
    MKLRegressorCV("linear", Cs=2, cv=2),
    NystromMKLClassifier(),
    NystromMKLClassifier(n_components=5, loss="hinge", class_weight="balanced"),
    BayesianMKLClassifier(max_iter=8),
    BayesianMKLClassifier("rbf", sparsity="sparse", multi_class="ovr", max_iter=5),
    BayesianMKLRegressor(max_iter=8),
]


def promises_not_made(estimator):
    if isinstance(estimator, BayesianMKLClassifier):
        # The most probable class is the side of zero, but a sample that the model knows less of
        # has a probability nearer to one half.
        return {"check_decision_proba_consistency": "probabilities count the uncertainty of f"}
    return {}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@parametrize_with_checks(ESTIMATORS, expected_failed_checks=promises_not_made)
def test_scikit_learn_checks(estimator, check):
    check(estimator)
