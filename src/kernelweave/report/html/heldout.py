"""The held-out samples: what the model says of them, as far as every section needs it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import _safe_indexing, column_or_1d
from sklearn.utils.validation import _num_samples, check_consistent_length

from kernelweave.describe.learnt import find_estimator
from kernelweave.errors import InvalidInputError

__all__ = ["HeldOut", "Part", "number_block", "read_held_out", "task_of"]

# Predictions on more samples than these would take long and change no figure.
_MOST_SAMPLES = 20_000


class Part(NamedTuple):
    """What held-out samples say of a model.

    `sentence` and `headline` (head, text, small) go to the top of the page, `blocks` to a section.
    """

    sentence: str
    headline: dict[str, str]
    blocks: list[dict[str, Any]]


def number_block(
    head: str,
    value: float,
    interval: tuple[float, float] | None,
    small: str,
    say: Callable[[float], str],
) -> dict[str, str]:
    """Return one number with its interval, in words.

    Examples
    --------
    >>> number_block("MAE", 2.0, (1.5, 2.5), "off by so much", "{:g}".format)["interval"]
    '1.5 to 2.5'
    """
    between = "" if interval is None else f"{say(interval[0])} to {say(interval[1])}"
    return {"head": head, "text": say(value), "interval": between, "small": small}


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Samples that the model has not seen.

    Attributes
    ----------
    X : array, frame or sequences
        As the estimator takes them: the steps of a pipeline before it have been done.
    y : ndarray or None
        What is true of them.
    names : ndarray
        What they are called.
    n_given : int
        How many were given; of very many some are drawn.
    n_unlabelled : int
        How many were left out because their label is not known.
    """

    X: Any
    y: NDArray[Any] | None
    names: NDArray[Any]
    n_given: int
    n_unlabelled: int = 0

    @property
    def n(self) -> int:
        """How many samples there are."""
        return len(self.names)

    @property
    def note(self) -> str:
        """What a reader should know about which samples these are."""
        notes = []
        if self.n_unlabelled:
            notes.append(f"{self.n_unlabelled:,} samples without a label were left out.")
        if self.n + self.n_unlabelled < self.n_given:
            notes.append(f"Drawn at random from {self.n_given:,} held-out samples.")
        return " ".join(notes)


def task_of(estimator: Any) -> str:
    """Return "classes", "labels" (several at once), "outliers" or "numbers".

    Examples
    --------
    >>> from kernelweave import MKLRegressor
    >>> task_of(MKLRegressor())
    'numbers'
    """
    if hasattr(estimator, "classes_"):
        return "labels" if np.ndim(estimator.classes_[0]) > 0 else "classes"
    return "outliers" if hasattr(estimator, "offset_") else "numbers"


def read_held_out(model: Any, X: Any, y: Any) -> HeldOut | None:
    """Check the held-out samples before any work is done with them."""
    if X is None:
        if y is not None:
            raise InvalidInputError("y was given without X; give both, the held-out samples.")
        return None
    estimator = find_estimator(model)
    n = _num_samples(X)
    if n == 0:
        raise InvalidInputError("X holds no samples (0 rows); leave it out for a report without.")
    if y is not None:
        check_consistent_length(X, y)
    names = np.asarray(X.index) if hasattr(X, "iloc") else np.arange(n)
    rows = np.arange(n)
    if n > _MOST_SAMPLES:
        rows = np.sort(np.random.default_rng(0).choice(n, _MOST_SAMPLES, replace=False))
    truth, lost = None, 0
    if y is not None:
        truth = _truth(estimator, y)
        known = _known(estimator, truth[rows])
        lost = len(known) - int(known.sum())
        rows = rows[known]
        truth = truth[rows]
        if not len(truth):
            raise InvalidInputError("no held-out sample has a known label; leave y out.")
        _check_labels(estimator, truth)
    if len(rows) < n:
        X = _safe_indexing(X, rows)
    return HeldOut(_reach(model, X), truth, names[rows], n, lost)


def _reach(model: Any, X: Any) -> Any:
    """X as the estimator inside a search or pipeline gets it."""
    if hasattr(model, "best_estimator_"):
        return _reach(model.best_estimator_, X)
    if hasattr(model, "steps"):
        before, last = model[:-1], model.steps[-1][1]
        return _reach(last, before.transform(X) if len(before) else X)
    return X


def _truth(estimator: Any, y: Any) -> NDArray[Any]:
    task = task_of(estimator)
    table = np.asarray(y)
    if task == "labels" or (task == "numbers" and table.ndim == 2 and table.shape[1] > 1):
        return table.astype(float) if task == "numbers" else table
    flat = np.asarray(column_or_1d(y))
    return flat.astype(float) if task == "numbers" else flat


def _known(estimator: Any, truth: NDArray[Any]) -> NDArray[np.bool_]:
    """Which samples have a label; Bayesian classifiers may mark those that have none."""
    marker = getattr(estimator, "unlabeled", None)
    if marker is None:
        return np.ones(len(truth), dtype=bool)
    # NaN is not equal to itself, and stands for every missing value.
    table = (truth != truth) if marker != marker else (truth == marker)
    missing = np.asarray(table, dtype=bool).reshape(len(truth), -1)
    known: NDArray[np.bool_] = np.logical_not(missing.any(axis=1))
    return known


def _check_labels(estimator: Any, truth: NDArray[Any]) -> None:
    task = task_of(estimator)
    if task == "classes":
        allowed = estimator.classes_.tolist()
        if not set(truth.tolist()) & set(allowed):
            raise InvalidInputError(
                f"no held-out label is among the classes of the model, "
                f"{_some(allowed)}; got {_some(sorted(set(truth.tolist()), key=str))}."
            )
    if task == "outliers" and not set(truth.tolist()) <= {1, -1}:
        raise InvalidInputError(
            "for an outlier model y must be +1 (normal) or -1 (outlier), or None; got "
            f"{_some(sorted(set(truth.tolist()), key=str))}."
        )
    if task == "numbers" and not np.all(np.isfinite(truth)):
        raise InvalidInputError("y of the held-out samples has missing or infinite values.")


def _some(items: list[Any], most: int = 5) -> str:
    shown = ", ".join(repr(item) for item in items[:most])
    return shown if len(items) <= most else f"{shown} and {len(items) - most} more"
