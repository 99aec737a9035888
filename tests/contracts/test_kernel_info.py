"""Every registered kernel can be described: its family, its view, its columns."""

from __future__ import annotations

import inspect
import warnings
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from kernelweave import MKLClassifier
from kernelweave.inspect import KernelInfo, describe_kernels
from kernelweave.kernels import (
    RBF,
    Distance,
    Kernel,
    Linear,
    Polynomial,
    Precomputed,
    RBFBatch,
    Spectrum,
    WeightedDegree,
    default_family,
    from_matrices,
    sample_ids,
)
from kernelweave.kernels.columns import OnColumns
from kernelweave.kernels.strings.parts import StringKernel
from kernelweave.operators import DistanceOperator, bind_kernels

EXAMPLES = [
    pytest.param(cls, kernel, id=f"{cls.__name__}-{i}")
    for cls in Kernel.registry
    if not inspect.isabstract(cls) and cls.__module__.startswith("kernelweave.")
    for i, kernel in enumerate(cls.examples())
]
FRAME = pd.DataFrame(
    np.random.default_rng(0).normal(size=(12, 5)), columns=["a", "b", "c", "d", "e"]
)


def described(kernels, X, kernel_set=None, asked=None):
    made = bind_kernels(kernels, X, normalize=None) if kernel_set is None else kernel_set
    model = SimpleNamespace(weights_=np.ones(made.m), kernel_names_=made.names, _kernel_set=made)
    return describe_kernels(model, asked)


def words(kernels, X=FRAME):
    return [(info.family, info.view, info.columns) for info in described(kernels, X)]


@pytest.mark.parametrize("cls, kernel", EXAMPLES)
def test_every_kernel_says_what_it_is(cls, kernel):
    X = cls.example_data(np.random.default_rng(0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = bind_kernels(kernel, X, normalize=None)
    (info,) = described(None, None, made)
    assert isinstance(info, KernelInfo)
    assert info.name == made.names[0]
    assert info.view
    # The words of the family are those of the class that is evaluated in the end.
    inner = kernel
    while isinstance(inner, OnColumns):
        inner = inner.kernel
    assert info.family.replace(" ", "") == type(inner).__name__.lower()
    if kernel.core.reads_ids:
        assert info.columns == ()
        assert info.view == kernel.name
        return
    n_columns = made.samples.n_columns
    assert set(info.columns) <= {str(j) for j in range(n_columns)}
    # What is seen decides the values: other columns may change, these may not.
    if not isinstance(inner, StringKernel):
        Z = np.array(X, dtype=float)
        unseen = [j for j in range(n_columns) if str(j) not in info.columns]
        Z[:, unseen] = np.arange(len(Z))[:, None]
        np.testing.assert_allclose(kernel(Z), kernel(X), rtol=1e-12)


def test_families_and_views():
    assert words([Linear(), Polynomial(2), RBF(width=1.0)]) == [
        (family, "all columns", ("a", "b", "c", "d", "e"))
        for family in ("linear", "polynomial", "rbf")
    ]
    assert words([RBF(width=1.0).on("b"), RBF(width=1.0).on(["a", "c"], StandardScaler())]) == [
        ("rbf", "b", ("b",)),
        ("rbf", "a, c", ("a", "c")),
    ]
    assert words(Linear().on([0, 1], label="mRNA")) == [("linear", "mRNA", ("a", "b"))]
    assert words(Linear().on(slice(1, 3)), FRAME.to_numpy()) == [
        ("linear", "columns 1-2", ("1", "2"))
    ]
    assert words((RBF(width=1.0).on("b") + Linear()).on(slice(None))) == [
        ("sum", "b and all columns", ("b", "a", "c", "d", "e"))
    ]
    assert words(Distance("cityblock").on("e")) == [("distance", "e", ("e",))]


def test_columns_are_followed_through_views_and_transformers():
    # The outer view is what the user calls the data; the column is the one in the end.
    family = default_family(per_feature=True).on(["d", "b"], label="proteins")
    assert words(family)[-1] == ("rbf", "proteins", ("b",))
    within = RBF(width=1.0).on(1, label="inner").on(["e", "c"], label="outer")
    assert words(within) == [("rbf", "outer", ("c",))]
    assert words(RBF(width=1.0).on(1).on(["e", "c"])) == [("rbf", "c", ("c",))]
    imputed = make_pipeline(SimpleImputer(), StandardScaler())
    assert words(RBF(width=1.0).on(1).on(["e", "c"], imputed)) == [("rbf", "c", ("c",))]
    # After a transformer that mixes, a column is made of all that went in.
    assert words(RBF(width=1.0).on(["e", "c"], PCA(2))) == [("rbf", "e, c", ("e", "c"))]
    assert words(RBF(width=1.0).on(1).on(["e", "c"], PCA(2))) == [
        ("rbf", "column 1 of PCA of e, c", ("e", "c"))
    ]
    colours = pd.DataFrame({"size": [1.0, 2.0, 3.0], "colour": ["red", "blue", "red"]})
    assert words(Linear().on("colour", OneHotEncoder()), colours) == [
        ("linear", "colour", ("colour",))
    ]


def test_matrices_and_distances():
    K = np.eye(4)
    given = from_matrices([K, K], names=["expression", "network"])
    assert words(given, sample_ids(4)) == [
        ("precomputed", "expression", ()),
        ("precomputed", "network", ()),
    ]
    beside = np.column_stack([np.arange(4.0), np.arange(4.0)])
    assert words([Precomputed(K, "K").on(0), Linear().on(1)], beside) == [
        ("precomputed", "K", ()),
        ("linear", "column 1", ("1",)),
    ]
    infos = described(None, None, DistanceOperator.build("default", FRAME))
    assert [(info.family, info.view, info.columns) for info in infos] == [
        ("rbf", name, (name,)) for name in FRAME
    ]


def test_sequences():
    table = pd.DataFrame({"id": [1.0, 2.0], "promoter": ["ACGTAC", "TTGACA"]})
    kernels = [WeightedDegree(2).by_position(3).on("promoter"), Spectrum(2).on("promoter")]
    assert set(words(kernels, table)) == {
        ("weighted degree", "promoter", ("promoter",)),
        ("spectrum", "promoter", ("promoter",)),
    }


def test_batches_without_looking_at_all_of_them():
    batch = RBFBatch([[0, 2], [1, -1]], [1.0, 2.0], transformer=StandardScaler())
    assert words([Linear(), batch])[1:] == [("rbf", "a, c", ("a", "c")), ("rbf", "b", ("b",))]
    mixed = RBFBatch([[0, 1], [1, -1]], [1.0, 2.0], transformer=PCA(2))
    assert words(mixed)[1] == ("rbf", "column 1 of PCA of all columns", tuple("abcde"))
    million = bind_kernels(RBFBatch.random(1_000_000, 5), FRAME)
    first, last = described(None, None, million, [0, -1])
    assert last.name == million.names[999_999]
    assert first.family == last.family == "rbf"


def test_models_that_are_not_fitted():
    with pytest.raises(NotFittedError, match="call fit first"):
        describe_kernels(MKLClassifier())
