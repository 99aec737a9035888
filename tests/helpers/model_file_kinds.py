"""Fitted models of every kind, for the tests of model files: small, and each made once."""

from __future__ import annotations

from functools import cache

import numpy as np
import pandas as pd
import polars as pl
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.datasets import load_iris
from sklearn.impute import SimpleImputer
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, OneHotEncoder, OrdinalEncoder, StandardScaler
from sklearn.svm import SVC

from kernelweave import (
    BayesianMKLClassifier,
    BayesianMKLRegressor,
    MKLClassifier,
    MKLClassifierCV,
    MKLOneClass,
    MKLRegressor,
    MKLRegressorCV,
    NystromMKLClassifier,
    sample_ids,
)
from kernelweave.kernels import (
    RBF,
    Distance,
    Kernel,
    Linear,
    Precomputed,
    RBFBatch,
    Spectrum,
    WeightedDegree,
    simplemkl_family,
)
from kernelweave.losses import Logistic
from kernelweave.regularizers import LpBall
from kernelweave.tables import TableEncoder


class Wavelet(Kernel):
    """A kernel of a user's own."""

    def __init__(self, width=1.0):
        self.width = width

    @property
    def name(self):
        return f"wavelet(width={self.width:g})"

    def evaluate(self, pair):
        return np.exp(-0.5 * pair.sqdist / self.width**2)

    def diagonal(self, samples):
        return np.ones(samples.n)


class Halved(TransformerMixin, BaseEstimator):
    """A transformer of a user's own."""

    def fit(self, X, y=None):
        self.n_features_in_ = X.shape[1]
        return self

    def transform(self, X):
        return X / 2


def twice(X):
    """A function of a user's own."""
    return 2 * X


def iris():
    """Half of iris: 75 samples of 3 classes."""
    X, y = load_iris(return_X_y=True)
    return X[::2], y[::2]


def kernels():
    return [
        RBF(width=1).on([0, 2], StandardScaler()),
        Linear(),
        RBF(width=2).on(3) * Linear().on(1),
    ]


def batch(transformer=None):
    return RBFBatch.random(50, 4, sizes=(1, 3), transformer=transformer)


def table(library):
    """A frame with numbers, whole numbers, gaps, text, groups and flags."""
    X, y = iris()
    rng = np.random.default_rng(0)
    age = np.where(rng.random(75) < 0.2, None, X[:, 1])
    columns = {
        "length": X[:, 0],
        "count": np.rint(10 * X[:, 2]).astype(np.int64),
        "age": pd.Series(age, dtype="Float64") if library is pd else pl.Series(age.tolist()),
        "colour": rng.choice(["red", "blue", "grün"], 75),
        "ward": rng.choice(["a", "b"], 75),
        "flag": rng.random(75) < 0.5,
    }
    frame = library.DataFrame(columns)
    if library is pd:
        return frame.astype({"ward": "category"}), y
    return frame.with_columns(pl.col("ward").cast(pl.Categorical)), y


def table_kernels():
    numbers = make_pipeline(SimpleImputer(), StandardScaler())
    return [
        RBF(width=1).on(["length", "count"], MinMaxScaler()),
        RBF(width=2).on(["age", "length"], numbers, label="body"),
        Linear().on(["colour", "ward"], OneHotEncoder(handle_unknown="ignore")),
        Linear().on("ward", OrdinalEncoder()),
        Linear().on("flag"),
    ]


def sequences():
    rng = np.random.default_rng(1)
    y = np.arange(30) % 2
    texts = ["".join(rng.choice(list("ACGT"), 12, p=[0.4, 0.1, 0.3, 0.2])) for _ in y]
    return ["ACGT"[c] * 3 + text for c, text in zip(y, texts, strict=True)], y


def _labels():
    X, y = iris()
    return X, np.column_stack([y == 0, y == 1, X[:, 0] > 6]).astype(int)


def _matrix():
    X, y = iris()
    ids = np.column_stack([sample_ids(75), X])
    K = X @ X.T
    D = ((X[:, None] - X[None]) ** 2).sum(axis=2)
    kinds = [Precomputed(pd.DataFrame(K), "as a frame").on(0), Distance(D, name="given").on(0)]
    return MKLClassifier([*kinds, RBF(width=1).on(slice(1, None))]).fit(ids, y), ids


def _on(data, model, y=None):
    X, target = data
    return model.fit(X, target if y is None else y), X


def _sparse(model):
    X, y = iris()
    thin = sparse.csr_matrix(np.where(X < 2, 0.0, X))
    return model.fit(thin, y), thin


def _search(**settings):
    grid = {"kernels": [kernels(), [Linear()]], "C": [0.1, 1.0]}
    return GridSearchCV(MKLClassifier(tol=1e-2), grid, cv=2, **settings)


def _columns():
    names = make_column_selector(dtype_include=np.number)
    numbers = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    steps = [
        ("numbers", numbers, ["length", "count", "age"]),
        ("text", OneHotEncoder(), ["colour"]),
    ]
    model = MKLClassifier([RBF(width=2), Linear()])
    kinds = [Linear().on(names, SimpleImputer())]
    X, y = table(pd)
    pipe = make_pipeline(ColumnTransformer(steps, remainder="drop"), model).fit(X, y)
    return pipe, MKLClassifier(kinds).fit(X, y), X


KINDS = {
    "classifier": lambda: _on(iris(), MKLClassifier(kernels())),
    "ovr": lambda: _on(
        iris(), MKLClassifier(kernels(), multi_class="ovr", class_weight="balanced")
    ),
    "logistic": lambda: _on(
        iris(), MKLClassifier(kernels(), loss=Logistic(), regularizer=LpBall(p=2))
    ),
    "default": lambda: _on(iris(), MKLClassifier()),
    "family": lambda: _on(iris(), MKLClassifier(simplemkl_family(), normalize=("center", "trace"))),
    "product": lambda: _on(iris(), MKLClassifier(combination="product", regularizer="l1")),
    "mixture": lambda: _on(iris(), MKLClassifier(combination="polynomial_mixture", tol=0.1)),
    "batch": lambda: _on(iris(), MKLClassifier(batch(StandardScaler()))),
    "batch and others": lambda: _on(
        iris(), MKLClassifier([Linear(), batch(), RBF(width=1)], solver="uniform")
    ),
    "matrices": _matrix,
    "flags as classes": lambda: _on(
        iris(), MKLClassifier(kernels(), class_weight={True: 3.0, False: 1.0}), iris()[1] > 0
    ),
    "names as classes": lambda: _on(
        iris(), MKLClassifier(kernels()), np.array(["x", "y", "zz"], dtype=object)[iris()[1]]
    ),
    "csr": lambda: _sparse(MKLClassifier([Linear(), RBF(width=1), Linear().on([0, 1])])),
    "pandas": lambda: _on(table(pd), MKLClassifier(table_kernels())),
    "polars": lambda: _on(table(pl), MKLClassifier(table_kernels())),
    "numbers in pandas": lambda: _on(
        (pd.DataFrame(iris()[0], columns=list("abcd")), iris()[1]),
        MKLClassifier([RBF(width=1).on(pd.Index(["a", "c"]), StandardScaler()), Linear()]),
    ),
    "selector": lambda: _columns()[1:],
    "sequences": lambda: _on(
        sequences(),
        MKLClassifier([Spectrum((1, 3)).by_length(), WeightedDegree(3).by_position(5)]),
    ),
    "bytes": lambda: _on(
        (np.array([text.encode() for text in sequences()[0]], dtype=object), sequences()[1]),
        MKLClassifier([Spectrum(2), WeightedDegree(2, shift=1)]),
    ),
    "regressor": lambda: _on(
        iris(), MKLRegressor(kernels(), loss="squared"), iris()[0][:, 0] + 0.1 * iris()[1]
    ),
    "one class": lambda: _on(iris(), MKLOneClass(kernels(), nu=0.2)),
    "classifier cv": lambda: _on(
        iris(), MKLClassifierCV(kernels(), Cs=3, cv=KFold(2, shuffle=True))
    ),
    "regressor cv": lambda: _on(
        iris(), MKLRegressorCV(kernels(), Cs=[0.1, 1.0], cv=2, scoring="r2"), iris()[0][:, 0]
    ),
    "nystrom": lambda: _on(iris(), NystromMKLClassifier(kernels(), n_components=20)),
    "bayesian": lambda: _on(
        iris(), BayesianMKLClassifier(kernels(), sparsity="sparse", max_iter=20)
    ),
    "bayesian ovr": lambda: _on(
        iris(), BayesianMKLClassifier(kernels(), multi_class="ovr", max_iter=20)
    ),
    "bayesian labels": lambda: _on(_labels(), BayesianMKLClassifier(kernels(), max_iter=20)),
    "bayesian regressor": lambda: _on(
        iris(), BayesianMKLRegressor(kernels(), max_iter=20), iris()[0][:, :2]
    ),
    "pipeline": lambda: _on(iris(), make_pipeline(StandardScaler(), MKLClassifier(kernels()))),
    "encoded table": lambda: _on(
        table(pl), make_pipeline(TableEncoder(), MKLClassifier([RBF(width=2), Linear()]))
    ),
    "columns and pipeline": lambda: (_columns()[0], _columns()[2]),
    "search": lambda: _on(iris(), _search()),
    "search by a score": lambda: _on(iris(), _search(scoring="balanced_accuracy")),
    "calibrated": lambda: _on(iris(), CalibratedClassifierCV(MKLClassifier(kernels()), cv=2)),
    "in front of an svm": lambda: _on(
        iris(), make_pipeline(MKLClassifier(kernels()), SVC(kernel="precomputed"))
    ),
}


@cache
def fitted(kind):
    """A fitted model of that kind and samples to predict; made once."""
    return KINDS[kind]()
