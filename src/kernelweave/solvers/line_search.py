"""The search along a Newton direction, by slopes alone."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

__all__ = ["zero_of_slope"]

# A slope within this part of the first is as good as zero.
_FLAT = 0.1


def zero_of_slope(slope: Callable[[float], float], first: float) -> float:
    """Where, in (0, 1], a rising `slope` with ``slope(0) = first < 0`` is nearly zero.

    The function with that slope, which is convex, is lower there than at zero. Its values, whose
    differences rounding can hide, are not asked for: up to t it changes by at most
    ``(slope(t / 2) + slope(t)) t / 2``, because the slope rises.

    Examples
    --------
    >>> round(zero_of_slope(lambda t: 4.0 * t - 1.0, -1.0), 3)
    0.25
    """

    def good(t: float, at_t: float) -> bool:
        return at_t <= 0 or slope(0.5 * t) <= -at_t

    low, at_low, high = 0.0, first, 1.0
    at_high = slope(high)
    if at_high <= _FLAT * abs(first) and good(high, at_high):
        return high
    for _ in range(60):
        # The zero of the chord, kept away from the ends so that the bracket shrinks for certain.
        t = low + (high - low) * float(np.clip(-at_low / (at_high - at_low), 0.1, 0.9))
        at_t = slope(t)
        if abs(at_t) <= _FLAT * abs(first) and good(t, at_t):
            return t
        if at_t < 0:
            low, at_low = t, at_t
        else:
            high, at_high = t, at_t
    return low
