"""The searches along one variable: for roots of rising functions, and for a nearly flat place."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kernelweave.arrays import Array

# A value this small beside the terms that it is the difference of is their rounding.
_ROUNDING = 4.0 * float(np.finfo(np.float64).eps)
# So is one this small where Newton's step does not halve it, or leaves the bracket.
_NOISE = 1e-12
# One evaluation in so many halves the bracket in any case. That takes 64 of them.
_OFTEN = 16
# A slope within this part of the first is as good as zero.
_FLAT = 0.1
# Two trials halve a bracket: after these it is as narrow as float64 can tell from its first width.
_MOST_TRIALS = 104
_LEAST = np.iinfo(np.int64).min


def rising_roots(
    function: Callable[[Array], tuple[Array, ArrayLike, Array]],
    start: ArrayLike,
    low: ArrayLike = -np.inf,
    high: ArrayLike = np.inf,
    tolerance: float = _ROUNDING,
) -> Array:
    """Find where functions that do not fall change sign, each in its own bracket, all at once.

    Steps are those that `function` proposes, Newton's as a rule, while they stay inside the bracket
    and halve the value, or the bracket has no end. Otherwise, and now and then in any case, the
    bracket is halved, in turns by the mean of its ends and in the order of floating-point numbers:
    so a root of any size is found to its last digit, whatever its unit.

    `function` maps places to ``(value, size, proposal)``: the values there, the size of the terms
    that they are differences of, and where to look next, NaN if nowhere in particular. A value that
    is not a number counts as positive, one up to `tolerance` of its size as zero.

    The roots are returned to rounding, where the functions were evaluated last. Where a function
    jumps over zero, the first number behind the jump; where it is negative up to `high`, that;
    where it is positive all along, the number after `low`.
    """
    x = np.array(start, dtype=np.float64)
    low, high = (np.array(np.broadcast_to(end, x.shape), dtype=np.float64) for end in (low, high))
    last, done, plain = np.full(x.shape, np.inf), np.zeros(x.shape, dtype=bool), False
    for count in range(1, 64 * _OFTEN + 1):
        value, size, proposal = function(x)
        below, off = value < 0, np.abs(value)
        low, high = np.where(below, x, low), np.where(below, high, x)
        # (Beside infinite terms no value is small.)
        size = np.where(np.isinf(size), 0.0, size)
        done |= off <= tolerance * size
        in_order, small = count % _OFTEN == 0, off <= _NOISE * size
        taken = (off <= 0.5 * last) & (small | (not in_order)) | np.isinf(low) | np.isinf(high)
        taken &= (low <= proposal) & (proposal <= high) & (proposal != x)
        done |= small & ~taken & ~np.isnan(proposal)
        last = np.where(taken, off, np.inf)
        moved, following = done | taken, np.where(done, x, proposal)
        if not moved.all():
            plain = not (plain or in_order)
            following = np.where(moved, following, _middle(low, high, plain))
        # Nothing but the upper end is left where that is the middle.
        done |= following == x
        if done.all():
            break
        x = following
    return x


def rising_root(
    function: Callable[[float], tuple[float, float, float]],
    start: float,
    low: float = -np.inf,
    high: float = np.inf,
    tolerance: float = _ROUNDING,
) -> float:
    """Find the root of one function as :func:`rising_roots` does, without arrays."""
    x, last, plain = float(start), np.inf, False
    for count in range(1, 64 * _OFTEN + 1):
        value, size, proposal = function(x)
        off, size = abs(value), 0.0 if size == np.inf else size
        if off <= tolerance * size:
            break
        low, high = (x, high) if value < 0 else (low, x)
        in_order, small = count % _OFTEN == 0, off <= _NOISE * size
        useful = (off <= 0.5 * last and (small or not in_order)) or high - low == np.inf
        if useful and low <= proposal <= high and proposal != x:
            x, last = proposal, off
            continue
        if small and proposal == proposal:
            break
        plain = not (plain or in_order)
        middle = float(_middle(np.array(low), np.array(high), plain))
        if middle == x:
            break
        x, last = middle, np.inf
    return x


def _middle(low: Array, high: Array, plain: bool) -> Array:
    """The mean of finite ends, or the number half way in the order of floating-point numbers.

    Of two neighbours the upper one.
    """
    if plain:
        with np.errstate(invalid="ignore"):
            mean = 0.5 * low + 0.5 * high
        between = (low < mean) & (mean < high) & (np.abs(mean) < np.inf)
        return mean if between.all() else np.where(between, mean, _middle(low, high, False))
    a, b = _order(low.view(np.int64)), _order(high.view(np.int64))
    return _order((a | b) - ((a ^ b) >> 1)).view(np.float64)


def _order(bits: NDArray[np.int64]) -> NDArray[np.int64]:
    """Integers that rise with the numbers of these bits, and bits from such integers."""
    negative = bits < 0
    if not negative.any():
        return bits
    return np.where(negative, _LEAST - np.minimum(bits, 0), bits)


def zero_of_slope(slope: Callable[[float], float], first: float) -> float:
    """Where, in (0, 1], a rising `slope` with ``slope(0) = first < 0`` is nearly zero.

    The search along a direction of descent, which need not be exact. The function with that slope,
    which is convex, is lower there than at zero. Its values, whose differences rounding can hide,
    are not asked for: up to t it changes by at most ``(slope(t / 2) + slope(t)) t / 2``, because
    the slope rises.
    """

    def good(t: float, at_t: float) -> bool:
        return at_t <= 0 or slope(0.5 * t) <= -at_t

    low, at_low, high = 0.0, first, 1.0
    at_high = slope(high)
    if at_high <= _FLAT * abs(first) and good(high, at_high):
        return high
    shrank = True
    for _ in range(_MOST_TRIALS):
        # The zero of the chord, away from the ends; the middle where that has not halved the
        # bracket, so that a zero next to one of its ends is found as well.
        share = float(np.clip(-at_low / (at_high - at_low), 0.1, 0.9)) if shrank else 0.5
        width = high - low
        t = low + share * width
        at_t = slope(t)
        if abs(at_t) <= _FLAT * abs(first) and good(t, at_t):
            return t
        if at_t < 0:
            low, at_low = t, at_t
        else:
            high, at_high = t, at_t
        shrank = high - low <= 0.5 * width
    return low
