"""The search along a Newton direction, by slopes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

__all__ = ["zero_of_slope"]

# A slope within this part of the first is as good as zero.
_FLAT = 0.1


def zero_of_slope(
    slope: Callable[[float], float],
    first: float,
    fallen: Callable[[float], bool],
    longest: float = 1.0,
) -> float:
    """Where, in (0, longest], a rising `slope` with ``slope(0) = first < 0`` is nearly zero.

    A small slope uphill does not mean a low place, after a sharp corner: `fallen` must agree.

    Examples
    --------
    >>> round(zero_of_slope(lambda t: 4.0 * t - 1.0, -1.0, lambda t: True), 3)
    0.25
    """
    low, at_low, high = 0.0, first, longest
    at_high = slope(high)
    if at_high <= 0 or (at_high <= _FLAT * abs(first) and fallen(high)):
        return high
    for _ in range(60):
        # The zero of the chord, kept away from the ends so that the bracket shrinks for certain.
        t = low + (high - low) * float(np.clip(-at_low / (at_high - at_low), 0.1, 0.9))
        at_t = slope(t)
        if abs(at_t) <= _FLAT * abs(first) and (at_t <= 0 or fallen(t)):
            return t
        if at_t < 0:
            low, at_low = t, at_t
        else:
            high, at_high = t, at_t
    return low
