"""Euclidean projections onto the simplex and onto the non-negative part of an lp ball."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kernelweave.regularizers.groups import Segments
from kernelweave.regularizers.norms import dual_exponent, norm

__all__ = ["project_lp_ball", "project_lp_balls", "project_simplex"]

Array = NDArray[np.float64]


def project_simplex(v: Array) -> Array:
    r"""Project onto :math:`\{d \ge 0, \sum_k d_k = 1\}` by sorting.

    Parameters
    ----------
    v : ndarray of shape (m,)
        Any vector.

    Returns
    -------
    ndarray of shape (m,)
        The nearest point of the simplex.

    Examples
    --------
    >>> import numpy as np
    >>> project_simplex(np.array([2.0, 2.0, 0.0])).tolist()
    [0.5, 0.5, 0.0]
    """
    # Shifting all entries changes nothing, and with the largest at zero the sums keep their digits.
    shifted = np.asarray(v, dtype=np.float64) - np.max(v)
    # Entries more than one below the largest are zero for certain: most of a long vector.
    near = np.sort(shifted[shifted > -1.0])[::-1]
    excess = np.cumsum(near) - 1.0
    count = np.arange(1, near.size + 1)
    last = int(np.flatnonzero(near * count > excess)[-1])
    d = np.maximum(shifted - excess[last] / (last + 1.0), 0.0)
    return d / d.sum()


def project_lp_ball(v: Array, p: float) -> Array:
    r"""Project onto :math:`\{d \ge 0, \|d\|_p \le 1\}`, :math:`p \ge 1`.

    Outside the ball the projection solves :math:`d_k + \lambda d_k^{p-1} = v_k` with the
    :math:`\lambda > 0` that makes the norm one; :math:`1 / \|d(\lambda)\|_p` is increasing in
    :math:`\lambda` (linear for p = 2), and its value one is found by Newton steps in a bracket.

    Parameters
    ----------
    v : ndarray of shape (m,)
        Any vector.
    p : float
        Exponent >= 1.

    Returns
    -------
    ndarray of shape (m,)
        The nearest point of the set.

    Examples
    --------
    >>> import numpy as np
    >>> d = project_lp_ball(np.array([1.0, 1.0, -5.0]), 3.0)
    >>> round(float(np.sum(d**3)), 12), float(d[2])
    (1.0, 0.0)
    """
    d = np.maximum(np.asarray(v, dtype=np.float64), 0.0)
    if norm(d, p) <= 1.0:
        return d
    if p == 1.0:
        return project_simplex(d)
    return project_lp_balls(d, p, Segments(np.zeros(1, dtype=np.int64), d.size))


def project_lp_balls(v: Array, p: float, segments: Segments) -> Array:
    r"""Project every segment of `v` onto the non-negative part of the lp ball, all at once.

    Parameters
    ----------
    v : ndarray of shape (m,)
        Any vector.
    p : float
        Exponent > 1, finite.
    segments : Segments
        The parts of `v` that are projected, each onto a ball of its own.

    Returns
    -------
    ndarray of shape (m,)
        The nearest point of the set.

    Examples
    --------
    >>> import numpy as np
    >>> segments = Segments(np.array([0, 2]), 3)
    >>> project_lp_balls(np.array([3.0, 4.0, 0.5]), 2.0, segments).round(10).tolist()
    [0.6, 0.8, 0.5]
    """
    d = np.maximum(np.asarray(v, dtype=np.float64), 0.0)
    size = segments.norms(d, p)
    if p == 2.0:
        return d / segments.spread(np.maximum(size, 1.0))
    outside = (d > 0) & (segments.spread(size) > 1.0)
    if np.any(outside):
        d[outside] = _onto_spheres(d[outside], p, segments.subset(outside))
    return d


def _onto_spheres(v: Array, p: float, segments: Segments) -> Array:
    """Projection of segments of positive entries, all outside the ball, by searches for lambda."""
    # At the solution lambda = norm_{p*}(v - d), so the norm of v itself is an upper end.
    high = segments.norms(v, dual_exponent(p))
    low = np.zeros_like(high)
    # The first guess is exact where all entries are equal.
    size = segments.norms(v, p)
    multiplier = high * (1.0 - 1.0 / size)
    x: Array | None = None
    d = v
    for _ in range(100):
        each = segments.spread(multiplier)
        x, d = _shrink(v, each, p, x)
        size = segments.norms(d, p)
        large = size > 1.0
        low, high = np.where(large, multiplier, low), np.where(large, high, multiplier)
        slope = _size_slope(d, each, p, size, segments)
        # Newton on 1 / size - 1, whose derivative is -slope / size^2.
        with np.errstate(divide="ignore", invalid="ignore"):
            proposal = multiplier - (size - 1.0) * size / slope
        middle = 0.5 * (low + high)
        proposal = np.where((low < proposal) & (proposal < high), proposal, middle)
        done = (np.abs(size - 1.0) <= 1e-14) | (proposal == multiplier)
        done |= high - low <= 1e-16 * high
        if np.all(done):
            break
        multiplier = np.where(done, multiplier, proposal)
    return d / segments.spread(segments.norms(d, p))


def _size_slope(d: Array, multiplier: Array, p: float, size: Array, segments: Segments) -> Array:
    """Derivative of ``norm_p(d)`` in lambda, from ``d + lambda d^(p-1) = v``."""
    if p < 2.0:
        rate = d / (d ** (2.0 - p) + multiplier * (p - 1.0))
    else:
        rate = d ** (p - 1.0) / (1.0 + multiplier * (p - 1.0) * d ** (p - 2.0))
    return -segments.sums((d / segments.spread(size)) ** (p - 1.0) * rate)


def _shrink(v: Array, multiplier: Array, p: float, guess: Array | None) -> tuple[Array, Array]:
    """Solve ``d + lambda d^(p-1) = v`` for every entry by Newton's method.

    In x = d for p > 2, in x = d^(p-1) for p < 2, the left side is convex, so Newton from the right
    of the root comes down to it without overshooting, and from the left is on the right after one
    step, cut at a bound. Returns (x, d); x is the guess for the next lambda.
    """
    linear: Array | float
    raised: Array | float
    if p > 2.0:
        power, linear, raised = p - 1.0, 1.0, multiplier
    else:
        power, linear, raised = 1.0 / (p - 1.0), multiplier, 1.0
    with np.errstate(divide="ignore"):  # a multiplier of zero bounds nothing
        bound = np.minimum(v / linear, (v / raised) ** (1.0 / power))
    x = bound if guess is None else np.minimum(guess, bound)
    for _ in range(100):
        tail = raised * x ** (power - 1.0)
        step = (linear * x + tail * x - v) / (linear + power * tail)
        x = np.clip(x - step, 0.0, bound)
        # Convergence is quadratic: after a step this small the error of x^power is rounding.
        if np.all(np.abs(step) * power <= 1e-9 * x):
            break
    if p > 2.0:
        return x, x
    # The power multiplies the relative error of x, the difference has the absolute error of v.
    d = x**power
    return x, np.where(power * d <= v, d, np.maximum(v - multiplier * x, 0.0))
