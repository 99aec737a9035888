"""Estimators on sparse data: the sparse bank learns what the dense one learns."""

from __future__ import annotations

import tracemalloc
from itertools import pairwise

import numpy as np
import pytest
from scipy import sparse

from kernelweave import MKLClassifier, MKLRegressor
from kernelweave.kernels import RBF, Linear
from kernelweave.operators import FeatureOperator


def text_like(n, p, per_row, seed=0):
    """Counts in which columns have very different frequencies, and labels from some of them."""
    rng = np.random.default_rng(seed)
    columns = (p ** rng.random(n * per_row)).astype(int) - 1
    rows = np.repeat(np.arange(n), per_row)
    X = sparse.csr_array((np.ones(n * per_row), (rows, columns)), shape=(n, p))
    X.sum_duplicates()
    informative = (rng.random(p) < 0.3) * rng.normal(size=p)
    score = X @ informative + 0.5 * rng.normal(size=n)
    return X, np.where(score > np.median(score), "yes", "no")


@pytest.fixture(scope="module")
def data():
    return text_like(400, 1000, 12)


def groups(p, count):
    """Linear kernels on blocks of columns that are about equally full."""
    edges = np.round(np.geomspace(1, p + 1, count + 1)).astype(int) - 1
    return [Linear().on(slice(a, b)) for a, b in pairwise(edges)]


@pytest.mark.parametrize("loss", ["hinge", "logistic"])
@pytest.mark.parametrize("normalize", ["trace", ("center", "trace"), None], ids=str)
def test_same_weights_and_predictions_as_from_matrices(data, loss, normalize):
    X, y = data
    kernels = [*groups(1000, 5), Linear()]
    fits = {
        bank: MKLClassifier(
            kernels, bank=bank, C=0.3, tol=1e-7, loss=loss, normalize=normalize
        ).fit(X[:300], y[:300])
        for bank in ("sparse", "dense")
    }
    assert all(fit.converged_ for fit in fits.values())
    mine, theirs = fits["sparse"], fits["dense"]
    assert mine.weights_ == pytest.approx(theirs.weights_, abs=2e-3)
    assert mine.objective_ == pytest.approx(theirs.objective_, rel=1e-6)
    np.testing.assert_allclose(
        mine.decision_function(X[300:]), theirs.decision_function(X[300:]), atol=2e-3
    )
    assert mine.score(X[300:], y[300:]) > 0.6


class _NoMatrix(FeatureOperator):
    matrix_limit = 100

    def weighted(self, d, rows=None, columns=None, out=None):
        assert rows is not None, "an n x n matrix was formed"
        return super().weighted(d, rows, columns, out)


class NoMatrix:
    """The plan of a bank that answers as one of many samples does."""

    def build(self, kernels):
        return _NoMatrix.of(kernels)


def test_without_a_matrix_the_fit_is_the_same(data):
    X, y = data
    model = MKLClassifier([*groups(1000, 5), Linear()], bank="sparse", tol=1e-6, C=0.3)
    formed = model.fit(X, y)
    weights, objective = formed.weights_, formed.objective_

    again = model.set_params(bank=NoMatrix()).fit(X, y)
    assert again.converged_
    assert again.objective_ == pytest.approx(objective, rel=1e-5)
    assert again.weights_ == pytest.approx(weights, abs=5e-3)


def test_several_classes_and_regression(data):
    X, _ = data
    columns = np.asarray(X[:, [0, 1, 2]].sum(axis=1)).ravel()
    classes = np.digitize(columns, np.quantile(columns, [0.3, 0.7]))
    for model, y in ((MKLClassifier, classes), (MKLRegressor, columns)):
        fits = [
            model(groups(1000, 3), bank=bank, tol=1e-6).fit(X, y) for bank in ("sparse", "dense")
        ]
        assert fits[0].weights_ == pytest.approx(fits[1].weights_, abs=5e-3)
        assert fits[0].objective_ == pytest.approx(fits[1].objective_, rel=1e-5)


def test_auto_mixes_banks_and_gives_the_same_answer(data):
    X, y = data
    kernels = [Linear(), RBF(gamma=0.05), Linear().on(slice(0, 100))]
    auto, dense = (MKLClassifier(kernels, bank=b, tol=1e-6).fit(X, y) for b in ("auto", "dense"))
    assert auto.weights_ == pytest.approx(dense.weights_, abs=5e-3)


def test_many_samples_and_columns_in_little_memory():
    X, y = text_like(10_000, 30_000, 20)
    model = MKLClassifier([*groups(30_000, 2), Linear()], bank="sparse", C=0.1, tol=1e-2)
    tracemalloc.start()
    try:
        model.fit(X, y)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # One n x n matrix would take 400 MB in single precision.
    assert peak < 1.5e8
    assert model.converged_
    new, truth = text_like(500, 30_000, 20)
    assert model.predict(new).shape == truth.shape
