"""How far a number from few held-out samples may be off: 95 % intervals."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

__all__ = ["area_under_roc", "bootstrap", "resamples", "wilson"]

Floats = NDArray[np.float64]

# 97.5 % of a normal distribution are below it.
_Z = 1.959963984540054
_REPLICATES = 400
# Numbers in the table of replicates: more samples than this leaves fewer replicates, which suffice.
_ENTRIES = 2**22


def wilson(hits: float, n: int) -> tuple[float, float]:
    """Return Wilson's interval of a share (1927): it stays within 0 and 1, for few samples too.

    Examples
    --------
    >>> low, high = wilson(9, 10)
    >>> round(low, 3), round(high, 3)
    (0.596, 0.982)
    """
    share = hits / n
    middle = share + _Z**2 / (2 * n)
    reach = _Z * np.sqrt(share * (1 - share) / n + _Z**2 / (4 * n**2))
    scale = 1 + _Z**2 / n
    return max(0.0, float((middle - reach) / scale)), min(1.0, float((middle + reach) / scale))


def resamples(n: int, seed: int = 0) -> Floats:
    """Return how often each of n samples is drawn, one row for each bootstrap replicate.

    Examples
    --------
    >>> drawn = resamples(5)
    >>> drawn.shape, set(drawn.sum(axis=1).tolist())
    ((400, 5), {5.0})
    """
    replicates = int(np.clip(_ENTRIES // max(n, 1), 100, _REPLICATES))
    rng = np.random.default_rng(seed)
    return rng.multinomial(n, np.full(n, 1.0 / n), size=replicates).astype(np.float64)


def bootstrap(statistic: Callable[[Floats], Floats], drawn: Floats) -> tuple[float, float] | None:
    """Return the interval of a statistic; it is given the counts, and answers for each replicate.

    Replicates on which it is not defined (a class may not be drawn at all) do not count; where
    that is most of them there is no interval.

    Examples
    --------
    >>> errors = np.array([1.0, 2.0, 3.0, 2.0])
    >>> low, high = bootstrap(lambda drawn: drawn @ errors / 4, resamples(4))
    >>> 1.0 <= low < 2.0 < high <= 3.0
    True
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

    Examples
    --------
    >>> truth, scores = np.array([False, True, True]), np.array([0.1, 0.1, 0.8])
    >>> area_under_roc(truth, scores, np.ones((1, 3)))
    array([0.75])
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
