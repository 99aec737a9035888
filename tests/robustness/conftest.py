"""Data and files that several tests share."""

from __future__ import annotations

import pytest
from sklearn.datasets import load_breast_cancer, load_iris


@pytest.fixture(scope="session")
def wide_cancer():
    X, y = load_breast_cancer(return_X_y=True)
    return X[::6], y[::6]


@pytest.fixture(scope="session")
def cancer(wide_cancer):
    """With fewer columns, and so fewer kernels."""
    X, y = wide_cancer
    return X[:, :8], y


@pytest.fixture(scope="session")
def iris():
    X, y = load_iris(return_X_y=True)
    return X[::2], y[::2]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "fit.npz"


@pytest.fixture
def write(tmp_path):
    def write(name, data):
        path = tmp_path / name
        path.write_bytes(data.encode() if isinstance(data, str) else data)
        return path

    return write
