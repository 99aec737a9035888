"""Sequences as X of the estimators: every kind of input, and scikit-learn's tools around them."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score, train_test_split
from sklearn.pipeline import make_pipeline
from thinned import thinned

from kernelweave import MKLClassifier, MKLOneClass, MKLRegressor, stability
from kernelweave.errors import InvalidInputError
from kernelweave.kernels import RBF, Spectrum

RNG = np.random.default_rng(0)
y = np.repeat([0, 1], 20)
TEXTS = [
    "".join(RNG.choice(list("ACGT"), p=[0.4, 0.2, 0.2, 0.2] if one else None, size=size))
    for one, size in zip(y, RNG.integers(12, 20, len(y)), strict=True)
]
NUMBERS = RNG.normal(size=len(y)) + y
KERNELS = [Spectrum(k=1), Spectrum(k=3)]

KINDS = {
    "list": list(TEXTS),
    "tuple": tuple(TEXTS),
    "bytes": [text.encode() for text in TEXTS],
    "U": np.array(TEXTS),
    "S": np.array(TEXTS, dtype="S"),
    "object": np.array(TEXTS, dtype=object),
    "pandas": pd.Series(TEXTS, index=np.arange(len(y)) + 7, name="sequence"),
    "category": pd.Series(TEXTS, dtype="category"),
    "polars": pl.Series(TEXTS),
    "column": np.array(TEXTS, dtype=object)[:, None],
}
TABLE = {"sequence": TEXTS, "gc": NUMBERS}
ROWS = [list(row) for row in zip(TEXTS, NUMBERS.tolist(), strict=True)]
TABLES = {
    "pandas": pd.DataFrame(TABLE),
    "pandas strings": pd.DataFrame(TABLE).astype({"sequence": "string"}),
    "polars": pl.DataFrame(TABLE),
    "objects": np.array(ROWS, dtype=object),
    "lists": ROWS,
    "tuples": [tuple(row) for row in ROWS],
}


@pytest.fixture(scope="module")
def decisions():
    return MKLClassifier(KERNELS).fit(KINDS["list"], y).decision_function(KINDS["list"])


@pytest.mark.parametrize("kind", KINDS)
class TestKinds:
    def test_the_same_model(self, kind, decisions):
        X = KINDS[kind]
        model = MKLClassifier(KERNELS).fit(X, y)
        assert model.n_features_in_ == 1
        assert not hasattr(model, "feature_names_in_")
        np.testing.assert_allclose(model.decision_function(X), decisions)
        np.testing.assert_allclose(model.decision_function(TEXTS), decisions)
        again = pickle.loads(pickle.dumps(model))
        np.testing.assert_allclose(again.decision_function(X), decisions)

    def test_tools_of_scikit_learn(self, kind):
        X = KINDS[kind]
        train, test, y_train, y_test = train_test_split(X, y, stratify=y, random_state=0)
        model = clone(MKLClassifier(KERNELS))
        alone = model.fit(train, y_train).score(test, y_test)
        assert alone >= 0.6
        assert make_pipeline("passthrough", model).fit(train, y_train).score(test, y_test) == alone
        scores = cross_val_score(model, X, y, cv=2)
        np.testing.assert_array_equal(scores, cross_val_score(model, TEXTS, y, cv=2))
        search = GridSearchCV(model, {"kernels": [KERNELS, KERNELS[1]]}, cv=2)
        assert search.fit(X, y).predict(X).shape == y.shape

    def test_stability(self, kind):
        model = MKLClassifier(KERNELS)
        result = stability(model, KINDS[kind], y, n_bootstrap=2, random_state=0)
        same = stability(model, TEXTS, y, n_bootstrap=2, random_state=0)
        np.testing.assert_allclose(result.replicates, same.replicates)

    def test_regression_and_outliers(self, kind):
        X = KINDS[kind]
        model = MKLRegressor(KERNELS).fit(X, NUMBERS)
        np.testing.assert_allclose(
            model.predict(X), MKLRegressor(KERNELS).fit(TEXTS, NUMBERS).predict(TEXTS)
        )
        detector = MKLOneClass(KERNELS, nu=0.2).fit(X)
        assert detector.n_features_in_ == 1
        assert (detector.predict(X) == -1).mean() <= 0.2
        assert (detector.fit_predict(X) == detector.predict(TEXTS)).all()


@pytest.mark.parametrize("bank", ["dense", "lazy", "factored", "sparse"])
def test_every_bank_reads_sequences(bank, decisions):
    model = MKLClassifier(KERNELS, bank=bank, tol=1e-6).fit(TEXTS, y)
    assert model.converged_
    np.testing.assert_allclose(model.decision_function(TEXTS), decisions, atol=0.05)


@pytest.mark.parametrize("normalize", ["trace", "diagonal", "center", None])
def test_every_normalization(normalize):
    model = MKLClassifier(KERNELS, normalize=normalize).fit(TEXTS, y)
    new = model.decision_function(TEXTS[:7])
    np.testing.assert_allclose(new, model.decision_function(TEXTS)[:7], rtol=1e-6, atol=1e-9)


def test_the_learnt_kernel_reads_sequences():
    model = MKLClassifier(KERNELS).fit(TEXTS, y)
    K = model.combined_kernel(TEXTS)
    np.testing.assert_allclose(model.transform(TEXTS), K, rtol=1e-6)
    np.testing.assert_allclose(model.combined_kernel(TEXTS[:3], np.array(TEXTS)), K[:3], rtol=1e-6)
    np.testing.assert_allclose(model.as_kernel()(TEXTS, TEXTS[:4]), K[:, :4], rtol=1e-6)


class TestTables:
    @pytest.mark.parametrize("kind", TABLES)
    def test_a_column_beside_numbers(self, kind):
        X = TABLES[kind]
        sequence, gc = ("sequence", "gc") if "pa" in kind or "po" in kind else (0, 1)
        kernels = [Spectrum(k=2).on(sequence), RBF(width=1.0).on(gc)]
        model = MKLClassifier(kernels).fit(X, y)
        assert model.n_features_in_ == 2
        apart = MKLClassifier([Spectrum(k=2).on("sequence"), RBF(width=1.0).on("gc")])
        wanted = apart.fit(TABLES["pandas"], y).decision_function(TABLES["pandas"])
        np.testing.assert_allclose(model.decision_function(X), wanted)
        assert cross_val_score(model, X, y, cv=3).min() > 0.5
        result = stability(model, X, y, n_bootstrap=2, random_state=0)
        assert result.replicates.shape == (2, 2)

    def test_the_table_is_not_checked_where_no_kernel_looks(self):
        X = [[text, number, None] for text, number in ROWS]
        model = MKLClassifier([Spectrum(k=2).on(0), RBF(width=1.0).on(1)]).fit(X, y)
        assert model.n_features_in_ == 3

    def test_errors_name_column_and_row(self):
        kernels = [Spectrum(k=2).on("sequence"), RBF(width=1.0).on("gc")]
        frame = TABLES["pandas"].copy()
        frame.loc[3, "sequence"] = None
        with pytest.raises(InvalidInputError, match="sequence of row 3 is missing"):
            MKLClassifier(kernels).fit(frame, y)
        frame = TABLES["pandas"].copy()
        frame.loc[4, "gc"] = np.nan
        with pytest.raises(InvalidInputError, match=r"NaN in column 'gc' \(row 4\)"):
            MKLClassifier(kernels).fit(frame, y)
        with pytest.raises(InvalidInputError, match="one column of sequences; X has 2"):
            MKLClassifier(Spectrum(k=2)).fit(TABLES["pandas"], y)


class TestErrors:
    @pytest.mark.parametrize(
        ("kernels", "estimator"),
        thinned(
            ["default", "simplemkl", "features", "rbf", RBF(width=1)],
            [MKLClassifier, MKLRegressor, MKLOneClass],
            keep=3,
        ),
    )
    def test_kernels_on_numbers_point_to_string_kernels(self, estimator, kernels):
        with pytest.raises(InvalidInputError, match=r"Spectrum.*WeightedDegree.*kernels=\[Spec"):
            estimator(kernels).fit(TEXTS, y)

    def test_the_default_on_a_table(self):
        with pytest.raises(InvalidInputError, match=r"column 'sequence'.*Spectrum\(k=3\).on\('seq"):
            MKLClassifier().fit(TABLES["pandas"], y)

    @pytest.mark.parametrize("numbers", [np.zeros((3, 1)), np.zeros(3), [1.0], [[1], [2]], []])
    def test_numbers_for_a_model_of_sequences(self, numbers):
        model = MKLClassifier(KERNELS).fit(TEXTS, y)
        with pytest.raises(InvalidInputError, match=r"no text, but MKLClassifier was fitted"):
            model.predict(numbers)

    def test_other_input_at_prediction(self):
        model = MKLClassifier(KERNELS).fit(TEXTS, y)
        with pytest.raises(ValueError, match="2 features, but MKLClassifier is expecting 1"):
            model.predict(ROWS)
        with pytest.raises(InvalidInputError, match=r"a single text.*\[X\]"):
            model.predict(TEXTS[0])
        with pytest.raises(InvalidInputError, match="0 rows"):
            model.predict(np.array([], dtype="S5"))
        with pytest.raises(InvalidInputError, match="sequence 1 holds the letter '!'"):
            model.predict(["ACG", "AC!"])
        numeric = MKLClassifier(RBF(width=1)).fit(NUMBERS[:, None], y)
        with pytest.raises(InvalidInputError, match="cannot be read as numbers"):
            numeric.predict(TEXTS)
        # A table whose text no kernel reads is another matter.
        table = MKLClassifier(RBF(width=1).on(1)).fit(ROWS, y)
        assert table.predict(np.column_stack([NUMBERS, NUMBERS])).shape == y.shape

    def test_a_second_fit_forgets_the_first(self):
        model = MKLClassifier(KERNELS).fit(TEXTS, y)
        model.set_params(kernels=RBF(width=1)).fit(NUMBERS[:, None], y)
        assert model.predict(NUMBERS[:, None]).shape == y.shape

    def test_at_the_fit(self):
        model = MKLClassifier(KERNELS)
        with pytest.raises(InvalidInputError, match=r"row 39 is missing \(None\)"):
            model.fit([*TEXTS[:-1], None], y)
        with pytest.raises(ValueError, match="inconsistent numbers of samples"):
            model.fit(TEXTS, y[:-1])
        with pytest.raises(ValueError, match="1D array"):
            model.fit(NUMBERS, y)
        with pytest.raises(ValueError, match="2-dimensional container"):
            model.fit(pd.Series(NUMBERS), y)
