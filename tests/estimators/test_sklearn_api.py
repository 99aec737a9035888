"""The estimators keep scikit-learn's promises."""

from __future__ import annotations

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from kernelweave import (
    MKLClassifier,
    MKLClassifierCV,
    MKLOneClass,
    MKLRegressor,
    MKLRegressorCV,
)

ESTIMATORS = [
    MKLClassifier(),
    MKLClassifier(loss="logistic", multi_class="ovr"),
    MKLRegressor(),
    MKLRegressor(loss="squared"),
    MKLOneClass(),
    MKLOneClass(nu=0.1, regularizer="lp_ball"),
    MKLClassifierCV("linear", Cs=2, cv=3),
    MKLRegressorCV("linear", Cs=2, cv=3),
]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@parametrize_with_checks(ESTIMATORS)
def test_scikit_learn_checks(estimator, check):
    check(estimator)
