"""Euclidean projections onto the simplex and onto the non-negative part of an lp ball."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kernelweave.regularizers.groups import Segments
from kernelweave.regularizers.norm_prox import power_parts
from kernelweave.regularizers.norms import dual_exponent

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


def project_lp_ball(v: Array, p: float, segments: Segments | None = None) -> Array:
    r"""Project onto :math:`\{d \ge 0, \|d\|_p \le 1\}`, :math:`p \ge 1`.

    Outside the ball the projection solves :math:`d_k + \lambda d_k^{p-1} = v_k` with the
    :math:`\lambda > 0` that makes the norm one.

    Parameters
    ----------
    v : ndarray of shape (m,)
        Any vector.
    p : float
        Exponent >= 1, finite; > 1 with `segments`.
    segments : Segments, optional
        Parts of `v`, each of which is projected onto a ball of its own.

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
    if p == 1.0:
        return d if d.sum() <= 1.0 else project_simplex(d)
    parts = segments or Segments.whole(d.size)
    size = parts.norms(d, p)
    if p == 2.0:
        return d / parts.spread(np.maximum(size, 1.0))
    outside = (d > 0) & (parts.spread(size) > 1.0)
    if np.any(outside):
        within = parts.subset(outside)
        _, _, shell = power_parts(d[outside], 1.0, dual_exponent(p), 1.0, within)
        d[outside] = shell / within.spread(within.norms(shell, p))
    return d
