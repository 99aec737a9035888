"""Small data sets shared by the estimator tests."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_iris, make_classification


@pytest.fixture(scope="session")
def two_classes():
    X, y = make_classification(120, 6, n_informative=3, flip_y=0.05, random_state=0)
    return X, y


@pytest.fixture(scope="session")
def three_classes():
    return load_iris(return_X_y=True)


@pytest.fixture(scope="session")
def curve():
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, size=(90, 2))
    return X, np.sin(2 * X[:, 0]) + 0.05 * rng.normal(size=90)
