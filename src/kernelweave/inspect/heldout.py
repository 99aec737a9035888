"""Held-out samples, checked, and 95 % intervals of what they say of a model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import _safe_indexing, column_or_1d
from sklearn.utils.validation import _num_samples, check_consistent_length

from kernelweave.errors import InvalidInputError
from kernelweave.inspect.learnt import find_estimator, reach

__all__ = [
    "HeldOut",
    "area_under_roc",
    "bootstrap",
    "read_held_out",
    "resamples",
    "task_of",
    "wilson",
]

# Predictions on more samples than these would take long and change no figure.
_MOST_SAMPLES = 20_000


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Samples that the model has not seen.

    `X` is as the estimator takes them, after the steps of a pipeline before it. Of `n_given`
    samples some are drawn if there are very many; `n_unlabelled` had no known label.
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
    """Return "classes", "labels" (several at once), "outliers" or "numbers"."""
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
    return HeldOut(reach(model, X)[1], truth, names[rows], n, lost)


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


Floats = NDArray[np.float64]

# 97.5 % of a normal distribution are below it.
_Z = 1.959963984540054
_REPLICATES = 400
# Numbers in the table of replicates: more samples than this leaves fewer replicates, which suffice.
_ENTRIES = 2**22


def wilson(hits: float, n: int) -> tuple[float, float]:
    """Return Wilson's interval of a share (1927): it stays within 0 and 1, for few samples too."""
    share = hits / n
    middle = share + _Z**2 / (2 * n)
    reach = _Z * np.sqrt(share * (1 - share) / n + _Z**2 / (4 * n**2))
    scale = 1 + _Z**2 / n
    return max(0.0, float((middle - reach) / scale)), min(1.0, float((middle + reach) / scale))


def resamples(n: int, seed: int = 0) -> Floats:
    """Return how often each of n samples is drawn, one row for each bootstrap replicate."""
    replicates = int(np.clip(_ENTRIES // max(n, 1), 100, _REPLICATES))
    rng = np.random.default_rng(seed)
    return rng.multinomial(n, np.full(n, 1.0 / n), size=replicates).astype(np.float64)


def bootstrap(statistic: Callable[[Floats], Floats], drawn: Floats) -> tuple[float, float] | None:
    """Return the interval of a statistic; it is given the counts, and answers for each replicate.

    Replicates on which it is not defined (a class may not be drawn at all) do not count; where
    that is most of them there is no interval.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        values = statistic(drawn)
    known = values[np.isfinite(values)]
    if len(known) < 0.5 * len(values):
        return None
    low, high = np.quantile(known, [0.025, 0.975])
    return float(low), float(high)


def area_under_roc(positive: NDArray[np.bool_], scores: Floats, drawn: Floats) -> Floats:
    """Return the area under the ROC curve of weighted samples, for each row of weights.

    It is the share of pairs, one positive and one negative, with the right order; ties count half.
    """
    _, group = np.unique(scores, return_inverse=True)
    order = np.argsort(group, kind="stable")
    starts = np.flatnonzero(np.diff(group[order], prepend=-1))
    weights = drawn[:, order]
    right = positive[order]
    ups = np.add.reduceat(weights * right, starts, axis=1)
    downs = np.add.reduceat(weights * ~right, starts, axis=1)
    below = np.cumsum(downs, axis=1) - 0.5 * downs
    return (ups * below).sum(axis=1) / (ups.sum(axis=1) * downs.sum(axis=1))
