"""From the options of a command to an estimator that has not been fitted yet."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import polars as pl
from sklearn.base import clone
from sklearn.pipeline import Pipeline

from kernelweave.arrays import Index
from kernelweave.cli.data import Data, read_matrices
from kernelweave.errors import InvalidInputError
from kernelweave.estimators import (
    BayesianMKLClassifier,
    BayesianMKLRegressor,
    MKLClassifier,
    MKLClassifierCV,
    MKLOneClass,
    MKLRegressor,
    MKLRegressorCV,
)
from kernelweave.estimators.kernel_estimator import KernelEstimator
from kernelweave.tables import TableEncoder, parse_views, table_kernels

_ID = "row"
# Options of all estimators, with the names of their parameters.
_PARAMETERS = {"time_limit": "max_time", "seed": "random_state"}
_PARAMETERS |= {name: name for name in ("n_jobs", "tol", "cache_mb")}
# With a given C, with one chosen by cross-validation, and Bayesian.
_ESTIMATORS: dict[str, tuple[type[KernelEstimator], ...]] = {
    "classification": (MKLClassifier, MKLClassifierCV, BayesianMKLClassifier),
    "regression": (MKLRegressor, MKLRegressorCV, BayesianMKLRegressor),
}


def needs_names(given: dict[str, Any]) -> bool:
    """Whether the columns are asked for by name, which sparse data do not have."""
    by_name = given.get("view") or given.get("kernel_matrix")
    return bool(by_name or given["kernels"].endswith(".toml"))


def build_model(
    data: Data, given: dict[str, Any], train: Index, *, encoded: bool = False
) -> tuple[Any, Any, list[tuple[str, str]]]:
    """Choose the estimator for the task and give it kernels for the columns of the data.

    `given` are the options of the command. The rows `train` decide what each column is. Returns an
    unfitted model, all samples in the form it takes them, and lines about how they are read. The
    model is a pipeline, to be fitted on the same rows, that takes rows as they are in a file; with
    ``encoded=True`` it is the estimator alone, to be fitted on any rows, and the samples are
    encoded.
    """
    make = _estimator(data.task, given)
    if not data.is_table:
        return make(given["kernels"]), data.X, [("kernels", given["kernels"])]
    matrices = read_matrices(given.get("kernel_matrix", ()), (None, data.n_rows))
    X = with_rows(data.X, data.rows) if matrices else data.X
    encoder = TableEncoder(id_column=_ID if matrices else None)
    seen = clone(encoder).fit(X[train])
    views = parse_views(given.get("view", ()), data.X.columns)
    estimator = make(table_kernels(given["kernels"], seen, views, matrices))
    about = [("columns", text) for text in seen.notes_]
    if views:
        sizes = ", ".join(f"{name} ({len(group)} columns)" for name, group in views.items())
        unused = set(data.X.columns).difference(*views.values())
        more = f"; {len(unused)} columns are in no view and not used" if unused else ""
        about.append(("views", sizes + more))
    if encoded:
        return estimator, seen.transform(X), about
    return Pipeline([("table", encoder), ("model", estimator)]), X, about


def with_rows(X: pl.DataFrame, rows: Index) -> pl.DataFrame:
    """Add the column of row numbers by which precomputed kernels know the samples."""
    if _ID in X.columns:
        raise InvalidInputError(
            f"with --kernel-matrix the name {_ID!r} is taken by the number of the row; rename the "
            "column of the data that has it."
        )
    return X.with_columns(pl.Series(_ID, rows, dtype=pl.Int64))


def _estimator(task: str, given: dict[str, Any]) -> Callable[..., KernelEstimator]:
    """Return the estimator for a task with its parameters, but without kernels."""
    bayes, outlier = given.get("solver") == "bayes", task == "outlier"
    for name in ("C", "loss", "regularizer"):
        if name in given and bayes:
            raise InvalidInputError(f"--{name} is not for --solver bayes, which has no {name}.")
        if name in given and outlier and name != "regularizer":
            raise InvalidInputError(f"--{name} is not for --task outlier; it has --nu.")
    if bayes and outlier:
        raise InvalidInputError("--solver bayes is for classification and regression.")
    if "cv" in given and (bayes or outlier):
        why = "has no C to choose" if bayes else "has no labels to score by"
        what = "--solver bayes" if bayes else "--task outlier"
        raise InvalidInputError(f"--cv chooses C, and {what} {why}; leave out one of them.")
    if "cv" in given and "C" in given:
        raise InvalidInputError("--C gives C and --cv chooses it; leave out one of them.")
    if given.get("balanced") and (task != "classification" or bayes):
        raise InvalidInputError("--balanced is for classification by the convex solvers.")
    names = dict(_PARAMETERS)
    if not bayes:
        names |= {name: name for name in ("solver", "C", "loss", "regularizer", "cv")}
    parameters = {name: given[option] for option, name in names.items() if option in given}
    if given.get("balanced"):
        parameters["class_weight"] = "balanced"
    if outlier:
        return partial(MKLOneClass, nu=given["nu"], **parameters)
    plain, chosen, bayesian = _ESTIMATORS[task]
    return partial(bayesian if bayes else chosen if "cv" in given else plain, **parameters)
