"""Predictions for samples that a precomputed matrix did not have when the model was fitted."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.datasets import load_iris

from kernelweave import BayesianMKLClassifier, MKLClassifier, load, sample_ids, save
from kernelweave.errors import InvalidInputError, UnknownNameError
from kernelweave.estimators import with_new_rows
from kernelweave.kernels import RBF, Linear, Spectrum, from_matrices

OLD, NEW = np.arange(100), np.arange(100, 150)


@pytest.fixture(scope="module")
def iris():
    X, y = load_iris(return_X_y=True)
    mixed = np.random.default_rng(0).permutation(150)
    X, y = X[mixed], y[mixed]
    return {"linear": Linear()(X), "rbf": RBF(width=1.0)(X)}, X, y


def cut(grams, rows, columns):
    return {name: K[np.ix_(rows, columns)] for name, K in grams.items()}


def fit(grams, y, **options):
    kernels = from_matrices(list(grams.values()), names=list(grams))
    return MKLClassifier(kernels, regularizer="lp_ball", **options).fit(sample_ids(len(y)), y)


@pytest.mark.parametrize("normalize", ["trace", "center"])
def test_the_same_as_a_matrix_over_all_samples(iris, normalize):
    grams, _, y = iris
    model = fit(cut(grams, OLD, OLD), y[OLD], normalize=normalize)
    grown = with_new_rows(model, cut(grams, NEW, OLD))
    kernels = from_matrices(list(grams.values()), names=list(grams))
    whole = MKLClassifier(kernels, regularizer="lp_ball", normalize=normalize)
    whole.fit(sample_ids(150)[OLD], y[OLD])
    assert_allclose(
        grown.decision_function(sample_ids(150)[NEW]),
        whole.decision_function(sample_ids(150)[NEW]),
        rtol=1e-9,
    )
    # The old samples are still there, and the model itself is as it was.
    assert_allclose(grown.decision_function(sample_ids(100)), whole.decision_function(OLD[:, None]))
    with pytest.raises(InvalidInputError, match="0 to 99"):
        model.predict([[100]])


def test_new_rows_are_saved_with_the_model(iris, tmp_path):
    grams, _, y = iris
    model = fit(cut(grams, OLD, OLD), y[OLD])
    grown = with_new_rows(model, cut(grams, NEW, OLD))
    save(grown, tmp_path / "grown.skops")
    again = load(tmp_path / "grown.skops")
    ids = sample_ids(150)[NEW]
    assert_allclose(again.decision_function(ids), grown.decision_function(ids), rtol=1e-9)


def test_beside_kernels_of_other_kinds(iris):
    grams, X, y = iris
    names = np.array([f"ACGT{'AC' * (i % 5)}" for i in range(150)])
    table = np.column_stack([np.arange(150), X, names]).astype(object)
    (matrix,) = from_matrices([grams["rbf"][np.ix_(OLD, OLD)]], names=["rbf"])
    kernels = [matrix.on(0), Linear().on([1, 2]), Spectrum(2).on(5)]
    model = MKLClassifier(kernels, regularizer="lp_ball").fit(table[OLD], y[OLD])
    grown = with_new_rows(model, {"rbf": grams["rbf"][np.ix_(NEW, OLD)]})
    (all_of_it,) = from_matrices([grams["rbf"]], names=["rbf"])
    whole = MKLClassifier([all_of_it.on(0), *kernels[1:]], regularizer="lp_ball")
    whole.fit(table[OLD], y[OLD])
    assert_allclose(grown.decision_function(table[NEW]), whole.decision_function(table[NEW]))


def test_what_cannot_be(iris):
    grams, _, y = iris
    model = fit(cut(grams, OLD, OLD), y[OLD])
    rows = cut(grams, NEW, OLD)
    with pytest.raises(InvalidInputError, match="needs precomputed kernel 'rbf'"):
        with_new_rows(model, {"linear": rows["linear"]})
    with pytest.raises(UnknownNameError, match="did you mean 'linear'"):
        with_new_rows(model, {**rows, "liner": rows["linear"]})
    with pytest.raises(InvalidInputError, match=r"100 columns; got shape \(50, 99\)"):
        with_new_rows(model, {**rows, "rbf": rows["rbf"][:, :99]})
    with pytest.raises(InvalidInputError, match="same new samples"):
        with_new_rows(model, {**rows, "rbf": rows["rbf"][:49]})
    small = cut(grams, OLD[:40], OLD[:40])
    kernels = from_matrices(list(small.values()), names=list(small))
    bayes = BayesianMKLClassifier(kernels, max_iter=3).fit(sample_ids(40), y[:40])
    with pytest.raises(InvalidInputError, match="diagonal"):
        with_new_rows(bayes, rows)
