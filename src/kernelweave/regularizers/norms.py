"""Norms that neither overflow nor underflow, and where they are attained."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from kernelweave.arrays import Array
from kernelweave.errors import InvalidInputError
from kernelweave.validation import positive_number

__all__ = ["checked_exponent", "dual_exponent", "largest_on_sphere", "norm", "sphere_weights"]


def checked_exponent(owner: str, p: object) -> float:
    """Return `p` as a float >= 1, or raise."""
    value = positive_number(f"p of {owner}", p)
    if value < 1.0:
        raise InvalidInputError(f"p of {owner} must be a finite number >= 1; got {p!r}.")
    return value


def dual_exponent(p: float) -> float:
    """Return ``p / (p - 1)``, infinity for p = 1."""
    return np.inf if p == 1.0 else p / (p - 1.0)


def norm(x: ArrayLike, p: float) -> float:
    r"""Return :math:`\|x\|_p`, p > 0, with the largest entry taken out first.

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


def sphere_weights(norms: Array, p: float) -> Array:
    r"""Minimise :math:`\tfrac12 \sum_k |f_k|^2 / d_k` over :math:`\|d\|_p \le 1`, in closed form.

    .. math:: d_k = |f_k|^{2/(p+1)} \Big/ \Big( \sum_j |f_j|^{2p/(p+1)} \Big)^{1/p} .
    """
    return _on_sphere(norms, 2.0 / (p + 1.0), p)


def largest_on_sphere(z: Array, p: float) -> Array:
    r"""Maximise :math:`\sum_k d_k z_k` over :math:`d \ge 0, \|d\|_p \le 1`, :math:`p > 1`.

    .. math:: d_k = z_k^{1/(p-1)} \Big/ \Big( \sum_j z_j^{p/(p-1)} \Big)^{1/p} .

    Examples
    --------
    >>> largest_on_sphere(np.array([3.0, 4.0]), 2.0).tolist()
    [0.6, 0.8]
    """
    return _on_sphere(z, 1.0 / (p - 1.0), p)


def _on_sphere(x: Array, power: float, p: float) -> Array:
    """Powers of x, negative entries counting as zero, of norm one; equal ones if all are zero."""
    top = float(np.max(x))
    if not top > 0:
        return np.full(len(x), len(x) ** (-1.0 / p))
    raised = (np.maximum(x, 0.0) / top) ** power
    return raised / norm(raised, p)
