"""Norms that neither overflow nor underflow."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

__all__ = ["dual_exponent", "norm"]


def norm(x: ArrayLike, p: float) -> float:
    r"""Return :math:`\|x\|_p`, with the largest entry taken out first.

    Parameters
    ----------
    x : array-like of shape (m,)
        Any vector; an empty one has norm 0.
    p : float
        Exponent > 0 or infinity.

    Returns
    -------
    float
        The norm.

    Examples
    --------
    >>> norm([3e200, 3e200, 3e200, 3e200], 2.0)
    6e+200
    """
    size = np.abs(np.asarray(x, dtype=np.float64))
    top = float(size.max(initial=0.0))
    if top == 0.0 or not np.isfinite(top) or np.isinf(p):
        return top
    return top * float(((size / top) ** p).sum() ** (1.0 / p))


def dual_exponent(p: float) -> float:
    """Return ``p / (p - 1)``, infinity for p = 1.

    Examples
    --------
    >>> dual_exponent(2.0), dual_exponent(1.0)
    (2.0, inf)
    """
    return np.inf if p == 1.0 else p / (p - 1.0)
