"""What a loss does not say about itself, found from its gradient alone.

Most functions take a ``gradient`` that maps decision values ``z`` to the derivatives of as many
losses, elementwise, each non-decreasing in its own ``z``.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from kernelweave.arrays import Array, Flags

Gradient = Callable[[Array], Array]

_EPS = float(np.finfo(np.float64).eps)
# Powers of two, so that dividing by a step adds no rounding: about 1.5e-8, and 1000 times that.
_STEP, _LONGER = 2.0**-26, 2.0**10
# A gradient that still changes by this share between two places far out has no limit.
_SETTLED = 1e-3


def per_weight(alpha: Array, C: Array) -> Array:
    """``alpha / C``, and zero for samples of weight zero, whose alpha is zero too.

    Examples
    --------
    >>> import numpy as np
    >>> per_weight(np.array([1.0, 0.0]), np.array([4.0, 0.0])).tolist()
    [0.25, 0.0]
    """
    alpha, C = np.broadcast_arrays(alpha, C)
    return np.divide(alpha, C, out=np.zeros(alpha.shape), where=C > 0)


def slope_of(gradient: Gradient, z: Array, unit: float) -> Array:
    """Slope of `gradient` at z by central differences, never negative.

    Steps are about 1e-8 of ``max(abs(z), unit)``: short, because in a corner, as Huber's, a
    difference is a mean of the slopes on both sides, and the samples of a fit like to sit in
    corners. Where so little of the slope survives the rounding of the gradient, the step is 1000
    times as long. Newton's method, which asks for this, does not need many digits. Zero where the
    gradient is constant to rounding, or overflows.
    """

    def differences(step: Array) -> tuple[Array, Array, Array]:
        """Slope, change of the gradient, size of the gradient."""
        low, high = z - step, z + step
        below, above = gradient(low), gradient(high)
        rise, size = np.abs(above - below), np.maximum(np.abs(below), np.abs(above))
        # The places differ by what rounding left of twice the step.
        return (above - below) / (high - low), rise, size

    step = _STEP * np.maximum(np.abs(z), unit)
    with np.errstate(all="ignore"):
        slope, rise, size = differences(step)
        # No change at all is a constant, and a longer step would only look round its corner.
        vague = (rise > 0) & (rise <= 1e4 * _EPS * size)
        if np.any(vague):
            slope = np.where(vague, differences(_LONGER * step)[0], slope)
    return np.where(np.isfinite(slope), np.maximum(slope, 0.0), 0.0)


def point_of_slope(gradient: Gradient, target: Array) -> Array:
    """Find z with ``gradient(z) = target``, the one nearest to zero if there are several.

    First the sign of z, then its size, by bisection in the order of floating-point numbers: 65
    evaluations for any size of z up to 1e60, and no derivative that could mislead. Infinite where
    the gradient does not come to its target; where it jumps over the target, the place of the jump.
    """
    with np.errstate(all="ignore"):
        side = np.sign(target - gradient(np.zeros_like(target)))

        def reached(bits: NDArray[np.int64]) -> Flags:
            # An overflow that is not a number lies beyond every target.
            short = side * (target - gradient(side * bits.view(np.float64))) > 0
            return np.asarray(~short)

        low, high = np.zeros(target.shape, np.int64), np.full(target.shape, 2.0**200).view(np.int64)
        nowhere = ~reached(high)
        for _ in range(63):
            middle = low + (high - low) // 2
            there = reached(middle)
            low, high = np.where(there, low, middle), np.where(there, middle, high)
    size = np.where(nowhere, np.inf, high.view(np.float64))
    return np.where(side == 0, 0.0, side * size)


def gradient_limits(gradient: Gradient, shape: tuple[int, ...]) -> tuple[Array, Array]:
    """Limits of `gradient` as z goes to minus and plus infinity, infinite where it has none.

    It is looked at very far out. There a formula may overflow in ways of its own (``inf / inf``,
    or ``z / inf = 0``); what is not a number, or turns back, is not believed, and then the last
    places before that decide. `shape` is that of the z that it takes.
    """
    low, high = (_limit(gradient, shape, side) for side in (-1.0, 1.0))
    return -low, high


def _limit(gradient: Gradient, shape: tuple[int, ...], side: float) -> Array:
    """Limit of ``side * gradient(side * t)`` as t goes to infinity."""
    with np.errstate(all="ignore"):
        for ladder in ([1.0, 1e16, 1e32, 1e64], 10.0 ** np.arange(-12, 65)):
            rungs = np.array([side * gradient(np.full(shape, side * t)) for t in ladder])
            size = np.fmax.accumulate(np.abs(rungs))
            sound = ~np.isnan(rungs)
            sound[1:] &= ~(rungs[1:] < rungs[:-1] - 1e-9 * size[1:])
            if np.all(sound):
                break
        # The last rung before the first that is not sound, and the one before that.
        last = np.maximum(np.argmin(np.vstack([sound, np.zeros((1, *shape))]), axis=0) - 1, 0)
        here, before, size = (
            np.take_along_axis(values, index[None], axis=0)[0]
            for values, index in ((rungs, last), (rungs, np.maximum(last - 1, 0)), (size, last))
        )
        settled = np.abs(here - before) <= _SETTLED * size
    return np.where(settled | np.isnan(here), here, np.inf)


def jump_of(gradient: Gradient, centre: Array) -> tuple[int, float, float, float] | None:
    """Find a place where `gradient` jumps: (element, z, value before, value after), or None.

    Between neighbours on a grid that spans 24 decades to both sides of `centre`, halves in which
    the gradient rises more are followed down to rounding. The rise of a continuous gradient
    vanishes there. (The gradient takes z of shape (k, n), n the length of `centre`.)
    """
    steps = 10.0 ** np.arange(-12.0, 12.25, 0.25)
    grid = centre + np.concatenate([-steps[::-1], [0.0], steps])[:, None]
    with np.errstate(all="ignore"):
        low, high = grid[:-1], grid[1:]
        below, above = gradient(low), gradient(high)
        first = above - below
        for _ in range(64):
            middle = low + 0.5 * (high - low)
            at = gradient(middle)
            left = at - below >= above - at
            low, below = np.where(left, low, middle), np.where(left, below, at)
            high, above = np.where(left, middle, high), np.where(left, at, above)
        # Less than 1e-6 of the gradient may be rounding; below 1e-200 there is little else.
        size = np.fmax(1e-6 * np.fmax(np.abs(below), np.abs(above)), 1e-200)
        share = (above - below) / np.fmax(first, size)
        # Few numbers lie between the ends of a short interval: a large part can be one step.
        share -= 100.0 * (high - low) / np.diff(grid, axis=0)
    share = np.where(np.isfinite(share) & np.isfinite(above) & np.isfinite(below), share, 0.0)
    k, i = np.unravel_index(int(np.argmax(share)), share.shape)
    if not share[k, i] > 1e-3:
        return None
    return int(i), float(high[k, i]), float(below[k, i]), float(above[k, i])
