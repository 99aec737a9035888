"""From the options of a command to an estimator that has not been fitted yet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.pipeline import Pipeline

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

__all__ = ["Blueprint", "Settings", "build_model", "needs_names", "settings_from", "with_rows"]

_ID = "row"
# With a given C, with one chosen by cross-validation, and Bayesian.
_ESTIMATORS: dict[str, tuple[type[KernelEstimator], ...]] = {
    "classification": (MKLClassifier, MKLClassifierCV, BayesianMKLClassifier),
    "regression": (MKLRegressor, MKLRegressorCV, BayesianMKLRegressor),
}


@dataclass(frozen=True)
class Settings:
    """What a user can choose about the model; None is the estimator's own default."""

    kernels: str = "default"
    view: Sequence[str] = ()
    kernel_matrix: Sequence[str] = ()
    solver: str = "auto"
    C: float | None = None
    cv: int | None = None
    loss: str | None = None
    regularizer: str | None = None
    balanced: bool = False
    nu: float = 0.1
    tol: float | None = None
    time_limit: float | None = None
    cache_mb: float | None = None
    n_jobs: int | None = None
    seed: int = 0


def settings_from(options: dict[str, Any], time_limit: float | None) -> Settings:
    """Take the settings from the options of a command, which go by the same names."""
    names = {f.name for f in fields(Settings)}
    given = {n: v for n, v in options.items() if n in names and v is not None}
    return Settings(**{**given, "time_limit": time_limit})


@dataclass(frozen=True)
class Blueprint:
    """An unfitted model, the samples in the form it takes them, and lines about how they are read.

    `X` are all rows of the data.
    """

    model: Any
    X: Any
    about: list[tuple[str, str]] = field(default_factory=list)


def needs_names(settings: Settings) -> bool:
    """Whether the columns are asked for by name, which sparse data do not have."""
    return bool(settings.view or settings.kernel_matrix or settings.kernels.endswith(".toml"))


def build_model(
    data: Data,
    settings: Settings,
    train: NDArray[np.intp],
    *,
    encoded: bool = False,
) -> Blueprint:
    """Choose the estimator for the task and give it kernels for the columns of the data.

    The rows `train` decide what each column is. The model is a pipeline, to be fitted on the same
    rows, that takes rows as they are in a file; with ``encoded=True`` it is the estimator alone, to
    be fitted on any rows, and the samples are encoded.
    """
    options = _options(data.task, settings)
    kind = _estimator(data.task, settings)
    if not data.is_table:
        return Blueprint(kind(settings.kernels, **options), data.X, [("kernels", settings.kernels)])
    matrices = read_matrices(settings.kernel_matrix, (None, data.n_rows))
    X = with_rows(data.X, data.rows) if matrices else data.X
    encoder = TableEncoder(id_column=_ID if matrices else None)
    seen = clone(encoder).fit(X[train])
    views = parse_views(settings.view, data.X.columns) if settings.view else None
    kernels = table_kernels(settings.kernels, seen, views, matrices)
    about = [("columns", text) for text in seen.notes_]
    if views:
        about.append(("views", _describe_views(views, data.X.columns)))
    estimator = kind(kernels, **options)
    if encoded:
        return Blueprint(estimator, seen.transform(X), about)
    return Blueprint(Pipeline([("table", encoder), ("model", estimator)]), X, about)


def with_rows(X: pl.DataFrame, rows: NDArray[np.intp]) -> pl.DataFrame:
    """Add the column of row numbers by which precomputed kernels know the samples."""
    if _ID in X.columns:
        raise InvalidInputError(
            f"with --kernel-matrix the name {_ID!r} is taken by the number of the row; rename the "
            "column of the data that has it."
        )
    return X.with_columns(pl.Series(_ID, rows, dtype=pl.Int64))


def _estimator(task: str, settings: Settings) -> type[KernelEstimator]:
    bayes = settings.solver == "bayes"
    if settings.cv is not None and (bayes or task == "outlier"):
        why = "has no C to choose" if bayes else "has no labels to score by"
        what = "--solver bayes" if bayes else "--task outlier"
        raise InvalidInputError(f"--cv chooses C, and {what} {why}; leave out one of them.")
    if bayes and task == "outlier":
        raise InvalidInputError("--solver bayes is for classification and regression.")
    if task == "outlier":
        return MKLOneClass
    plain, chosen, bayesian = _ESTIMATORS[task]
    return bayesian if bayes else plain if settings.cv is None else chosen


def _options(task: str, settings: Settings) -> dict[str, Any]:
    """Return the parameters of the estimator."""
    given: dict[str, Any] = {
        "max_time": settings.time_limit,
        "random_state": settings.seed,
        "n_jobs": settings.n_jobs,
        "tol": settings.tol,
        "cache_mb": settings.cache_mb,
    }
    bayes = settings.solver == "bayes"
    convex = {"C": settings.C, "loss": settings.loss, "regularizer": settings.regularizer}
    for name, value in convex.items():
        if bayes and value is not None:
            raise InvalidInputError(f"--{name} is not for --solver bayes, which has no {name}.")
    if settings.C is not None and settings.cv is not None:
        raise InvalidInputError("--C gives C and --cv chooses it; leave out one of them.")
    if settings.balanced and (task != "classification" or bayes):
        raise InvalidInputError("--balanced is for classification by the convex solvers.")
    if not bayes:
        given |= {"solver": settings.solver, "regularizer": settings.regularizer}
    if task == "outlier":
        for name in ("C", "loss"):
            if convex[name] is not None:
                raise InvalidInputError(f"--{name} is not for --task outlier; it has --nu.")
        given["nu"] = settings.nu
    elif not bayes:
        given |= {"loss": settings.loss, "cv": settings.cv}
        given |= {"C": settings.C, "class_weight": "balanced" if settings.balanced else None}
    return {name: value for name, value in given.items() if value is not None}


def _describe_views(views: dict[str, list[str]], columns: Sequence[str]) -> str:
    used = {column for group in views.values() for column in group}
    sizes = ", ".join(f"{name} ({len(group)} columns)" for name, group in views.items())
    unused = [column for column in columns if column not in used]
    return sizes + (f"; {len(unused)} columns are in no view and not used" if unused else "")
