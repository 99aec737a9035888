"""Held-out samples, checked, and what they say of a model with 95 % intervals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import binomtest
from sklearn.utils import _safe_indexing, column_or_1d
from sklearn.utils.validation import _num_samples, check_consistent_length

from kernelweave.arrays import Array, Flags
from kernelweave.errors import InvalidInputError
from kernelweave.inspect.ranking import find_estimator, reach
from kernelweave.inspect.words import KeyNumber, listed, number, percent

# A number for each row of weights of the samples.
Statistic = Callable[[Array], Array]

# The standard error of a share of so many samples is 0.5 / sqrt(20,000) = 0.35 % at most.
_MOST_SAMPLES = 20_000
# An end of a 95 % interval of B replicates is off by sqrt(0.025 * 0.975 / B) / 0.058 standard
# errors of the statistic (the error of a quantile, with the normal density there): 0.13 for 400.
_REPLICATES = 400
# Numbers in the table of replicates, 32 MB; of 20,000 samples it has 209, and the 0.13 become 0.18.
_ENTRIES = 2**22


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Samples that the model has not seen.

    `X` is as the estimator takes them, after the steps of a pipeline before it; `note` says what a
    reader should know about which samples these are.
    """

    X: Any
    y: Array | None
    names: Array
    note: str

    @property
    def n(self) -> int:
        """How many samples there are."""
        return len(self.names)


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
    names = np.asarray(X.index) if hasattr(X, "iloc") else np.arange(n)
    rows = np.arange(n)
    if n > _MOST_SAMPLES:
        rows = np.sort(np.random.default_rng(0).choice(n, _MOST_SAMPLES, replace=False))
    truth, notes, drawn = None, [], len(rows)
    if y is not None:
        check_consistent_length(X, y)
        truth, numbers = np.asarray(y), task_of(estimator) == "numbers"
        if task_of(estimator) != "labels" and not (numbers and np.shape(truth)[1:] > (1,)):
            truth = np.asarray(column_or_1d(y))
        truth = truth.astype(float) if numbers else truth
        # Bayesian classifiers may mark samples that have no label.
        marker = getattr(estimator, "unlabeled", None)
        if marker is not None:
            some = truth[rows].reshape(len(rows), -1)
            # NaN is not equal to itself, and stands for every missing value.
            missing = (some != some) if marker != marker else (some == marker)
            rows = rows[~np.asarray(missing, dtype=bool).any(axis=1)]
        truth = truth[rows]
        if not len(truth):
            raise InvalidInputError("no held-out sample has a known label; leave y out.")
        _check_labels(estimator, truth)
    if len(rows) < drawn:
        notes.append(f"{drawn - len(rows):,} samples without a label were left out.")
    if drawn < n:
        notes.append(f"Drawn at random from {n:,} held-out samples.")
    if len(rows) < n:
        X = _safe_indexing(X, rows)
    return HeldOut(reach(model, X)[1], truth, names[rows], " ".join(notes))


def _check_labels(estimator: Any, truth: Array) -> None:
    task = task_of(estimator)
    if task == "numbers" and not np.all(np.isfinite(truth)):
        raise InvalidInputError("y of the held-out samples has missing or infinite values.")
    if task in ("numbers", "labels"):
        return
    given = set(truth.tolist())
    got = listed([repr(label) for label in sorted(given, key=str)])
    if task == "classes" and not given & set(estimator.classes_.tolist()):
        allowed = listed([repr(label) for label in estimator.classes_.tolist()])
        raise InvalidInputError(
            f"no held-out label is among the classes of the model, {allowed}; got {got}."
        )
    if task == "outliers" and not given <= {1, -1}:
        raise InvalidInputError(
            f"for an outlier model y must be +1 (normal) or -1 (outlier), or None; got {got}."
        )


def share(head: str, hits: int, n: int, small: str = "") -> KeyNumber:
    """Return a share of n samples, with Wilson's interval."""
    low, high = wilson(hits, n)
    interval = f"{percent(low)} to {percent(high)}"
    return KeyNumber(head, percent(hits / n), small, interval=interval)


def estimate(
    head: str,
    statistic: Statistic,
    drawn: Array,
    small: str,
    say: Callable[[float], str] = number,
) -> KeyNumber:
    """Return a statistic of samples, with its bootstrap interval."""
    ends = bootstrap(statistic, drawn)
    interval = "" if ends is None else f"{say(ends[0])} to {say(ends[1])}"
    value = float(statistic(np.ones((1, drawn.shape[1])))[0])
    return KeyNumber(head, say(value), small, interval=interval)


def wilson(hits: int, n: int) -> tuple[float, float]:
    """Return Wilson's interval of a share (1927): it stays within 0 and 1, for few samples too."""
    low, high = binomtest(int(hits), int(n)).proportion_ci(method="wilson")
    return float(low), float(high)


def resamples(n: int, seed: int = 0) -> Array:
    """Return how often each of n samples is drawn, one row for each bootstrap replicate."""
    replicates = int(np.clip(_ENTRIES // max(n, 1), 100, _REPLICATES))
    rng = np.random.default_rng(seed)
    return rng.multinomial(n, np.full(n, 1.0 / n), size=replicates).astype(np.float64)


def bootstrap(statistic: Statistic, drawn: Array) -> tuple[float, float] | None:
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


def area_under_roc(positive: Flags, scores: Array, drawn: Array) -> Array:
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
