"""One-dimensional searches for the intercept: the zero of a non-decreasing slope."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from kernelweave.root_search import rising_root

__all__ = ["root_of_slope", "root_of_steps"]

_EPS = float(np.finfo(np.float64).eps)


def root_of_slope(
    terms: Callable[[float], NDArray[np.float64]],
    start: float,
    *,
    shift: float = 0.0,
    curvature: Callable[[float], float] | None = None,
) -> float:
    r"""Find where :math:`\sum_i \mathrm{terms}_i(b) + \mathrm{shift}` changes sign.

    The sum must be non-decreasing in :math:`b`. A root at 1e12 is as reachable as one at 1.

    Parameters
    ----------
    terms : callable
        Maps b to the array of the summands' derivatives.
    start : float
        Where to begin.
    shift : float
        Constant added to the sum.
    curvature : callable, optional
        Maps b to the derivative of the sum.

    Returns
    -------
    float
        The root to rounding accuracy; when the sum never changes sign, the place from where it is
        zero to rounding.

    Examples
    --------
    >>> import numpy as np
    >>> round(root_of_slope(lambda b: np.array([b - 1.0, b - 3.0]), 0.0), 12)
    2.0
    """
    first, reach = 0.0, 1.0 + abs(start)

    def slope(b: float) -> tuple[float, float, float]:
        nonlocal first, reach
        values = terms(b)
        total, size = float(values.sum()) + shift, float(np.abs(values).sum()) + abs(shift)
        # Where a summand overflows, nothing is small beside the others.
        if np.isfinite(size):
            first = first or size
            # Summands of one sign may fall towards zero for ever. Those of both signs have a root,
            # however small they are beside those of the start: weights may differ by many decades.
            one_sign = min(values.min(), shift) >= 0 or max(values.max(), shift) <= 0
            if abs(total) <= 2 * _EPS * size + (1e-2 * _EPS * first if one_sign else 0.0):
                return 0.0, size, b
        bend = np.nan if curvature is None else curvature(b)
        step = -total / bend if bend > 0 else np.inf
        if not abs(step) <= reach:
            step, reach = reach if total < 0 else -reach, 4.0 * reach
        return total, size, b + step

    return rising_root(slope, start)


def root_of_steps(
    breaks: NDArray[np.float64], jumps: NDArray[np.float64], first: float, start: float = 0.0
) -> float:
    """Find where a non-decreasing step function changes sign, exactly, by sorting.

    The function is `first` left of all `breaks` and rises by ``jumps[i]`` at ``breaks[i]``. On an
    interval where it is zero the middle is returned (or the finite end).

    Parameters
    ----------
    breaks, jumps : ndarray of shape (k,)
        Positions and heights (>= 0) of the steps.
    first : float
        Value left of all breaks.
    start : float
        Returned when there is no step at all.

    Returns
    -------
    float
        The position of the sign change.

    Examples
    --------
    >>> import numpy as np
    >>> root_of_steps(np.array([1.0, 2.0, 4.0]), np.ones(3), -1.5)
    2.0
    >>> root_of_steps(np.array([1.0, 2.0, 4.0, 7.0]), np.ones(4), -2.0)
    3.0
    """
    keep = jumps > 0
    if not keep.any():
        return float(start)
    breaks, jumps = breaks[keep], jumps[keep]
    order = np.argsort(breaks, kind="stable")
    breaks = breaks[order]
    after = first + np.cumsum(jumps[order])
    # Exact zeros of the slope do not survive the additions: call zero what rounding calls zero.
    slack = 1e-13 * (abs(first) + float(jumps.sum()))
    left = min(int(np.searchsorted(after, -slack)), breaks.size - 1)
    right = left
    if abs(after[left]) <= slack:
        right = min(int(np.searchsorted(after, slack, side="right")), breaks.size - 1)
    return float(breaks[left] + 0.5 * (breaks[right] - breaks[left]))
