"""Euclidean projections onto the simplex and onto the non-negative part of an lp ball."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kernelweave.regularizers.norms import dual_exponent, norm

__all__ = ["project_lp_ball", "project_simplex"]

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
    if p == 2.0:
        return d / norm(d, 2.0)
    positive = d > 0
    d[positive] = _onto_sphere(d[positive], p)
    return d


def _onto_sphere(v: Array, p: float) -> Array:
    """Projection of positive `v`, outside the ball, by a search for lambda."""
    # At the solution lambda = norm_{p*}(v - d), so the norm of v itself is an upper end.
    low, high = 0.0, norm(v, dual_exponent(p))
    # The first guess is exact where all entries are equal.
    size = norm(v, p)
    multiplier = high * (1.0 - 1.0 / size)
    d = v
    for _ in range(100):
        d = _shrink(v, multiplier, p)
        size = norm(d, p)
        if abs(size - 1.0) <= 1e-14:
            break
        low, high = (multiplier, high) if size > 1.0 else (low, multiplier)
        slope = _size_slope(d, multiplier, p, size)
        # Newton on 1 / size - 1, whose derivative is -slope / size^2.
        step = (size - 1.0) * size / -slope if slope < 0 else np.nan
        proposal = multiplier + step
        if not low < proposal < high:
            proposal = 0.5 * (low + high)
        if proposal == multiplier or high - low <= 1e-16 * high:
            break
        multiplier = proposal
    return d / norm(d, p)


def _size_slope(d: Array, multiplier: float, p: float, size: float) -> float:
    """Derivative of ``norm_p(d)`` in lambda, from ``d + lambda d^(p-1) = v``."""
    if p < 2.0:
        rate = d / (d ** (2.0 - p) + multiplier * (p - 1.0))
    else:
        rate = d ** (p - 1.0) / (1.0 + multiplier * (p - 1.0) * d ** (p - 2.0))
    return -float(((d / size) ** (p - 1.0)) @ rate)


def _shrink(v: Array, multiplier: float, p: float) -> Array:
    """Solve ``d + lambda d^(p-1) = v`` for every entry by Newton's method.

    In d for p > 2, in x = d^(p-1) for p < 2, the left side is convex, so Newton from the right of
    the root comes down to it without overshooting.
    """
    if multiplier <= 0.0:
        return v
    if p > 2.0:
        power, linear, raised = p - 1.0, 1.0, multiplier
    else:
        power, linear, raised = 1.0 / (p - 1.0), multiplier, 1.0
    x = np.minimum(v / linear, (v / raised) ** (1.0 / power))
    for _ in range(100):
        tail = raised * x ** (power - 1.0)
        step = (linear * x + tail * x - v) / (linear + power * tail)
        x = np.maximum(x - step, 0.0)
        if np.all(np.abs(step) <= 4e-16 * x):
            break
    if p > 2.0:
        return x
    # The power multiplies the relative error of x, the difference has the absolute error of v.
    d = x**power
    return np.where(power * d <= v, d, np.maximum(v - multiplier * x, 0.0))
