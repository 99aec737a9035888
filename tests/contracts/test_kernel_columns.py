"""Kernels on chosen columns: every way to say which, every kind of table, transformers."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest
from same_numbers import assert_same_numbers
from scipy import sparse
from sklearn.compose import make_column_selector
from sklearn.decomposition import PCA
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

from kernelweave.kernels import RBF, Linear, Pair, Samples, default_family
from kernelweave.operators import ComputedOperator

NAMES = ["a", "b", "c", "d"]


@pytest.fixture
def X():
    return np.random.default_rng(0).normal(size=(15, 4))


@pytest.mark.parametrize(
    ("columns", "meant", "label"),
    [
        (2, [2], "column 2"),
        (-1, [3], "column 3"),
        (np.int64(1), [1], "column 1"),
        ([3, 0], [3, 0], "columns 3, 0"),
        (np.array([0, 1, 2]), [0, 1, 2], "columns 0-2"),
        (slice(1, 3), [1, 2], "columns 1-2"),
        (slice(None, None, 2), [0, 2], "columns 0, 2"),
        ([True, False, False, True], [0, 3], "columns 0, 3"),
        (np.array([True, False, True, False]), [0, 2], "columns 0, 2"),
        (lambda table: [table.shape[1] - 1], [3], "column 3"),
    ],
)
def test_columns_of_arrays(X, columns, meant, label):
    kernel = RBF(width=2).on(columns)
    np.testing.assert_allclose(kernel(X), RBF(width=2)(X[:, meant]), rtol=1e-12)
    assert kernel.bind(Samples(X)).name == f"rbf(width=2) on {label}"
    np.testing.assert_allclose(kernel(sparse.csr_matrix(X)), kernel(X), rtol=1e-9)


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
@pytest.mark.parametrize(
    ("columns", "meant", "label"),
    [
        ("b", [1], "b"),
        (["d", "a"], [3, 0], "d, a"),
        (slice("b", "d"), [1, 2, 3], "b, c, d"),
        (NAMES, [0, 1, 2, 3], "a, b, ... (4 columns)"),
        (1, [1], "b"),
        ([True, True, False, False], [0, 1], "a, b"),
        (lambda table: [name for name in table.columns if name < "c"], [0, 1], "a, b"),
    ],
)
def test_columns_of_frames(X, frame, columns, meant, label):
    table = frame(dict(zip(NAMES, X.T, strict=True)))
    kernel = RBF(width=2).on(columns)
    np.testing.assert_allclose(kernel(table), RBF(width=2)(X[:, meant]), rtol=1e-12)
    assert kernel.bind(Samples(table)).name == f"rbf(width=2) on {label}"


def test_column_selector_of_scikit_learn(X):
    table = pd.DataFrame(X, columns=NAMES).assign(kind="u")
    kernel = Linear().on(make_column_selector(dtype_include=np.number))
    np.testing.assert_allclose(kernel(table), X @ X.T, atol=1e-12)


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_text_through_an_encoder(X, frame):
    words = ["red", "blue", "green"] * 5
    table = frame({"x": X[:, 0], "colour": words})
    kernel = Linear().on("colour", OneHotEncoder(handle_unknown="ignore"))
    same = np.equal.outer(np.array(words), np.array(words))
    np.testing.assert_array_equal(kernel(table), same.astype(float))
    bound = kernel.bind(Samples(table))
    assert bound.name == "linear on colour via OneHotEncoder"
    new = Samples(frame({"x": [0.0], "colour": ["violet"]}))
    assert not bound.evaluate(Pair(new, Samples(table))).any()


def test_missing_values_through_an_imputer(X):
    holes = X.copy()
    holes[3, 1] = np.nan
    pipeline = make_pipeline(SimpleImputer(), StandardScaler(), PCA(2))
    kernel = RBF(width=1).on(slice(None), pipeline)
    Z = pipeline.fit_transform(holes)
    np.testing.assert_allclose(kernel(holes), RBF(width=1)(Z), rtol=1e-10)
    assert kernel.name == "rbf(width=1) on all columns via SimpleImputer+StandardScaler+PCA"


def test_the_transformer_is_fitted_on_training_rows_only(X):
    given = StandardScaler()
    kernel = Linear().on([0, 1], given)
    train = Samples(X[:10])
    bound = kernel.bind(train)
    scaler = StandardScaler().fit(X[:10, :2])
    values = bound.evaluate(Pair(Samples(X[10:]), train))
    expected = scaler.transform(X[10:, :2]) @ scaler.transform(X[:10, :2]).T
    np.testing.assert_allclose(values, expected, atol=1e-12)
    assert not hasattr(given, "mean_")


def test_equal_transformers_are_fitted_once(X):
    calls = []

    class Counting(StandardScaler):
        def fit(self, *args, **kwargs):
            calls.append(1)
            return super().fit(*args, **kwargs)

    one = Counting()
    kernels = [RBF(width=w).on([0, 1], one) for w in (1, 2, 3)]
    bank = ComputedOperator.build([*kernels, Linear().on([0, 1], Counting(with_mean=False))], X)
    assert len(calls) == 2
    bank.block(np.arange(5))
    assert len(calls) == 2
    assert bank.kernels[0].path == bank.kernels[2].path != bank.kernels[3].path


def test_blocks_are_shared_in_a_pair(X):
    samples = Samples(X)
    pair = Pair(samples, samples)
    first, second = (RBF(width=w).on([0, 1], StandardScaler()).bind(samples) for w in (1, 2))
    first.evaluate(pair)
    second.evaluate(pair)
    assert pair.through(first.path) is pair.through(second.path)


def test_blocks_too_large_to_keep_are_cut_again(X, monkeypatch):
    kernels = [RBF(width=2).on([0, 3]), Linear().on([1, 2]) * Linear().on(0)]
    expected = ComputedOperator.build(kernels, X).block([2, 4])
    monkeypatch.setattr("kernelweave.kernels.samples._KEEP_BYTES", 0)
    assert_same_numbers(ComputedOperator.build(kernels, X).block([2, 4]), expected)


def test_transformers_that_cannot_be_compared_still_work(X):
    kernel = Linear().on(0, FunctionTransformer(lambda z: z * 2))
    both = ComputedOperator.build(
        [kernel, Linear().on(0, FunctionTransformer(lambda z: z * 3))], X, None
    )
    values = both.block([0])
    np.testing.assert_allclose(values[1], values[0] * 9 / 4, rtol=1e-12)


def test_nested_choices_apply_the_outer_one_first(X):
    table = pd.DataFrame(X, columns=NAMES)
    kernel = RBF(width=1).on("c").on(["a", "c", "d"], StandardScaler())
    z = (X[:, [2]] - X[:, 2].mean()) / X[:, 2].std()
    np.testing.assert_allclose(kernel(table), RBF(width=1)(z), rtol=1e-10)
    name = kernel.bind(Samples(table)).name
    assert name == "rbf(width=1) on c on a, c, d via StandardScaler"


def test_frames_with_columns_in_another_order(X):
    table = pd.DataFrame(X, columns=NAMES)
    samples = Samples(table)
    bound = RBF(width=1).on(["a", "d"], StandardScaler()).bind(samples)
    shuffled = Samples(table[["d", "c", "b", "a"]])
    np.testing.assert_allclose(
        bound.evaluate(Pair(shuffled, samples)), bound.evaluate(Pair(samples, samples)), rtol=1e-12
    )


def test_a_bound_list_keeps_sharing_after_pickling(X):
    kernels = [RBF(width=w).on([0, 1], StandardScaler()) for w in (1, 2)]
    bank = pickle.loads(pickle.dumps(ComputedOperator.build(kernels, X)))
    assert bank.kernels[0].path == bank.kernels[1].path
    np.testing.assert_allclose(
        bank.block([3]), ComputedOperator.build(kernels, X).block([3]), rtol=1e-13
    )


def test_a_label_names_the_columns(X):
    scaled = RBF(width=2).on(slice(0, 3), StandardScaler(), label="mRNA")
    assert scaled.name == "rbf(width=2) on mRNA"
    assert scaled.bind(Samples(X)).name == "rbf(width=2) on mRNA"
    plain = RBF(width=2).on(slice(0, 3), StandardScaler())
    assert scaled != plain
    assert_same_numbers(
        ComputedOperator.build(scaled, X).block([0]), ComputedOperator.build(plain, X).block([0])
    )
    family = default_family().on([0, 1], label="acids")
    assert all(kernel.name.endswith(" on acids") for kernel in family.expand(Samples(X)))
