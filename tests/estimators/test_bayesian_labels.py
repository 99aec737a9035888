"""BayesianMKLClassifier with several labels, and with labels that are not known."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from same_numbers import AFTER_A_FIT, assert_same_numbers
from scipy import sparse
from sklearn.datasets import make_multilabel_classification
from sklearn.exceptions import DataConversionWarning
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score

from kernelweave import BayesianMKLClassifier
from kernelweave.errors import InvalidInputError
from kernelweave.estimators.targets import read_labels
from kernelweave.kernels import RBF, Linear

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

KERNELS = [RBF(width=3.0), RBF(width=10.0), Linear()]
QUICK = {"kernels": KERNELS, "max_iter": 15, "bank": "dense"}


@pytest.fixture(scope="module")
def several():
    return make_multilabel_classification(70, 5, n_classes=3, random_state=0)


@pytest.fixture(scope="module")
def fitted(several):
    return BayesianMKLClassifier(**QUICK).fit(*several)


class TestSeveralLabels:
    def test_shapes_and_agreement(self, several, fitted):
        X, Y = several
        mean, std = fitted.decision_function(X, return_std=True)
        p = fitted.predict_proba(X)
        assert fitted.weights_.shape == (3,) and fitted.intercept_.shape == (3,)
        assert mean.shape == std.shape == p.shape == (70, 3)
        assert_array_equal(fitted.predict(X), mean > 0)
        assert_array_equal(fitted.predict(X), p > 0.5)
        assert fitted.score(X, Y) > 0.6
        assert_array_equal(fitted.classes_, [[0, 1]] * 3)

    @pytest.mark.parametrize(
        ("convert", "kind"),
        [
            (lambda Y: Y.tolist(), np.int64),
            (pd.DataFrame, np.int64),
            (lambda Y: pl.DataFrame(Y, schema=list("abc")), np.int64),
            (sparse.csr_array, np.int64),
            (lambda Y: Y.astype(bool), np.bool_),
            (lambda Y: Y.astype(np.int8), np.int8),
            (lambda Y: Y.astype(float), np.int64),
        ],
        ids=["lists", "pandas", "polars", "csr", "bool", "int8", "float"],
    )
    def test_every_kind_of_table(self, several, fitted, convert, kind):
        X, Y = several
        model = BayesianMKLClassifier(**QUICK).fit(X, convert(Y))
        assert_same_numbers(model.weights_, fitted.weights_, AFTER_A_FIT)
        assert model.predict(X).dtype == kind
        assert_array_equal(model.predict(X), fitted.predict(X))

    def test_a_fit_for_each_label(self, several):
        X, Y = several
        model = BayesianMKLClassifier(**QUICK, multi_class="ovr").fit(X, Y)
        alone = BayesianMKLClassifier(**QUICK).fit(X, Y[:, 1])
        assert model.weights_.shape == (3, 3)
        assert_allclose(model.weights_[1], alone.weights_)
        assert_allclose(model.predict_proba(X)[:, 1], alone.predict_proba(X)[:, 1])

    def test_columns_of_one_value(self, several):
        X, Y = several
        Y = np.column_stack([Y, np.zeros(70, int), np.ones(70, int)])
        model = BayesianMKLClassifier(**QUICK).fit(X, Y)
        p = model.predict_proba(X)
        assert np.all(p[:, 3] < 0.5) and np.all(p[:, 4] > 0.5)
        assert_array_equal(model.predict(X)[:, 3:], Y[:, 3:])

    @pytest.mark.parametrize("count", [2, 3])
    def test_scores_of_scikit_learn(self, several, count):
        X, Y = several
        Y = Y[:, :count]
        model = BayesianMKLClassifier(**QUICK)
        for scoring in ("accuracy", "roc_auc", "f1_macro", "average_precision"):
            scores = cross_val_score(model, X, Y, cv=2, scoring=scoring, error_score="raise")
            assert np.all(scores > 0.3)
        p = cross_val_predict(model, X, Y, cv=2, method="predict_proba")
        assert p.shape == Y.shape
        search = GridSearchCV(model, {"margin": [0.5, 1.0]}, cv=2).fit(X, Y)
        assert search.predict(X).shape == Y.shape

    def test_one_column_is_no_table(self, several, fitted):
        X, Y = several
        with pytest.warns(DataConversionWarning):
            model = BayesianMKLClassifier(**QUICK).fit(X, Y[:, :1])
        assert model.predict(X).shape == (70,)

    @pytest.mark.parametrize(
        ("y", "match"),
        [
            ([[0, 2], [1, 0]], "0 and 1.*got 2"),
            ([[-1, 1], [1, -1]], "0 and 1.*got -1"),
            ([["a", "b"], ["b", "a"]], "0 and 1.*got 'a', 'b'"),
            ([[0, np.nan], [1, 1]], "missing value.*unlabeled=np.nan"),
            ([[0, 1], [1]], "could not be read as an array"),
        ],
        ids=str,
    )
    def test_errors(self, y, match):
        with pytest.raises(InvalidInputError, match=match):
            BayesianMKLClassifier("linear").fit([[1.0], [2.0]], y)


def hidden(y, marker):
    """Every third label replaced by the marker, as a list."""
    return [marker if i % 3 == 0 else value for i, value in enumerate(np.asarray(y).tolist())]


MARKED = {
    "-1": (lambda y: np.array(hidden(y, -1)), -1),
    "7": (lambda y: np.array(hidden(y, 7)), 7),
    "list": (lambda y: hidden(y, "unknown"), "unknown"),
    "objects": (lambda y: np.array(hidden(y, "unknown"), dtype=object), "unknown"),
    "nan": (lambda y: np.array(hidden(y, np.nan)), np.nan),
    "None": (lambda y: hidden(y, None), np.nan),
    "pandas": (lambda y: pd.Series(hidden(y, None), dtype="Int64"), np.nan),
    "NA": (lambda y: pd.Series(hidden(y, None), dtype="Int64"), pd.NA),
    "-1 in Int64": (lambda y: pd.Series(hidden(y, -1), dtype="Int64"), -1),
    "polars": (lambda y: pl.Series(hidden(y, None)), float("nan")),
}


@pytest.fixture(scope="module")
def expected(two_classes):
    X, y = two_classes
    return BayesianMKLClassifier(**QUICK, unlabeled=-1).fit(X, hidden(y, -1))


class TestUnlabeled:
    def test_they_are_learnt_from(self, two_classes, expected):
        X, y = two_classes
        rows = np.arange(120) % 3 > 0
        without = BayesianMKLClassifier(**QUICK).fit(X[rows], y[rows])
        assert expected.score(X, y) > 0.75
        assert not np.allclose(
            expected.decision_function(X), without.decision_function(X), atol=0.01
        )

    @pytest.mark.parametrize("kind", MARKED)
    def test_any_marker(self, two_classes, expected, kind):
        X, y = two_classes
        make, marker = MARKED[kind]
        model = BayesianMKLClassifier(**QUICK, unlabeled=marker).fit(X, make(y))
        assert_array_equal(model.classes_, [0, 1])
        assert model.classes_.dtype.kind in "if"
        assert_same_numbers(model.weights_, expected.weights_, AFTER_A_FIT)
        assert_array_equal(model.predict(X), expected.predict(X))
        score = model.score(X, make(y))
        rows = np.arange(120) % 3 > 0
        assert score == pytest.approx((model.predict(X) == y)[rows].mean())

    @pytest.mark.parametrize("marker", ["?", np.nan, None], ids=str)
    def test_text(self, two_classes, expected, marker):
        X, y = two_classes
        names = np.array(["ill", "well"])[y].tolist()
        labels = names if marker is None else hidden(names, marker)
        model = BayesianMKLClassifier(**QUICK, unlabeled=marker).fit(X, labels)
        assert_array_equal(model.classes_, ["ill", "well"])
        if marker is not None:
            assert_same_numbers(model.weights_, expected.weights_, AFTER_A_FIT)

    def test_several_classes(self, three_classes):
        X, y = three_classes
        model = BayesianMKLClassifier(**QUICK, unlabeled=-1).fit(X, hidden(y, -1))
        assert_array_equal(model.classes_, [0, 1, 2])
        assert model.score(X, y) > 0.8
        signs, _ = read_labels(hidden(y, -1), -1)
        assert signs.shape == (3, 150)
        assert not signs[:, ::3].any() and np.all(signs[:, 1::3].sum(axis=0) == -1)

    def test_a_marker_that_does_not_occur(self, two_classes):
        X, y = two_classes
        plain = BayesianMKLClassifier(**QUICK).fit(X, y)
        for marker in (-1, "none", np.nan):
            model = BayesianMKLClassifier(**QUICK, unlabeled=marker).fit(X, y)
            assert_same_numbers(model.weights_, plain.weights_, AFTER_A_FIT)

    @pytest.mark.parametrize("marker", [-1, np.nan, "unknown"], ids=str)
    def test_single_entries_of_a_table(self, several, marker):
        X, Y = several
        table = Y.astype(object)
        table[::4, 0] = marker
        table[5] = marker
        model = BayesianMKLClassifier(**QUICK, unlabeled=marker).fit(X, table)
        signs, _ = read_labels(table.tolist(), marker)
        expected = 2.0 * Y.T - 1.0
        expected[0, ::4] = 0.0
        expected[:, 5] = 0.0
        assert_array_equal(signs, expected)
        assert model.predict(X).dtype == np.int64
        rows = np.setdiff1d(np.arange(70), [*range(0, 70, 4), 5])
        right = (model.predict(X) == Y).all(axis=1)
        assert model.score(X, table) == pytest.approx(right[rows].mean())
        weight = np.arange(70.0)
        weighted = np.average(right[rows], weights=weight[rows])
        assert model.score(X, table, sample_weight=weight) == pytest.approx(weighted)

    @pytest.mark.parametrize(
        ("y", "marker", "match"),
        [
            ([-1, -1, -1], -1, "no labels: all 3 samples have the marker unlabeled=-1"),
            ([-1, 1, 1], -1, r"one class only \(1\).*1 samples have the marker unlabeled=-1"),
            ([0, 0, 0], None, r"one class only \(0\)"),
            ([0.0, np.nan, 1.0], None, "missing value.*unlabeled=np.nan"),
            (["a", None, "b"], "?", "missing value"),
            (np.array([0, pd.NA, 1], dtype=object), -1, "missing value"),
            ([0, "b", "?"], "?", "mixes text with other labels: 0, 'b'"),
            ([0.5, 1.5, -1], -1, "continuous"),
            ([[0, -1], [1, -1], [1, -1]], -1, "column 1 of y holds no labels"),
            ([[-1, -1]] * 3, -1, "no labels"),
            (None, -1, "requires y"),
            ([0, 1], -1, "inconsistent numbers of samples"),
        ],
        ids=str,
    )
    def test_errors(self, y, marker, match):
        with pytest.raises(ValueError, match=match):
            BayesianMKLClassifier("linear", unlabeled=marker).fit([[1.0], [2.0], [4.0]], y)

    def test_nothing_to_score(self, two_classes, expected):
        X, _ = two_classes
        with pytest.raises(InvalidInputError, match="nothing to score"):
            expected.score(X[:2], [-1, -1])
