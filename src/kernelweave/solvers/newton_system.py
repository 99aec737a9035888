"""Solves with dense matrices of Newton steps, and with parts of low rank added."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve, lu_solve, pinvh
from scipy.linalg.lapack import dgetrf

from kernelweave.problem import Array

__all__ = ["Solve", "cholesky", "with_low_rank"]

# What is added to a diagonal that is not positive, relative to its largest entry.
_RIDGE = 1e-13

Solve = Callable[[Array], Array]


def cholesky(K: Array, D: Array) -> Solve:
    """Solve with K + diag(D), scaled to a diagonal of ones; K is overwritten. Takes columns too."""
    # Differences of huge numbers may end just below zero.
    total = np.maximum(D + K.diagonal(), 0.0)
    size = np.where(np.isfinite(total), total, 0.0)
    ridge = _RIDGE * float(size.max(initial=0.0))
    # Zero for samples that cannot move, and for those that nothing holds: K is zero there.
    scale = np.zeros_like(total)
    np.divide(1.0, np.sqrt(total + ridge), out=scale, where=total + ridge > 0)
    K *= scale[:, None]
    K *= scale
    here = np.diag_indices(len(K))
    for _ in range(8):
        K[here] = 1.0 + (ridge * scale**2)
        try:
            factor = cho_factor(K, lower=True, check_finite=False)
        except LinAlgError:
            ridge = max(100.0 * ridge, np.finfo(np.float64).tiny)
            continue
        return lambda v: (scale * cho_solve(factor, (scale * v.T).T, check_finite=False).T).T
    return _diagonal(total)


def _diagonal(total: Array) -> Solve:
    inverse = 1.0 / np.maximum(total, np.finfo(np.float64).tiny)
    return lambda v: (inverse * v.T).T


def with_low_rank(solve: Solve, V: Array, s: Array) -> Solve:
    """Solve with A + V'diag(s) V by Woodbury's formula; `solve`, that with A, takes columns too."""
    keep = s != 0
    V, s = V[keep], s[keep]
    if not len(s):
        return solve
    # (diag(1/s) + V A^-1 V') with its rows scaled, so that no size of s overflows.
    V = np.sqrt(np.abs(s))[:, None] * V
    Z = solve(V.T.copy())
    small = V @ Z
    small[np.diag_indices(len(s))] += np.sign(s)
    *factor, singular = dgetrf(small)
    # Of a matrix without an inverse, the rows of V in which it has one.
    pseudo = pinvh(small, check_finite=False) if singular else None

    def whole(v: Array) -> Array:
        u = solve(v)
        w = V @ u
        w = lu_solve(factor, w, check_finite=False) if pseudo is None else pseudo @ w
        return u - Z @ w

    return whole
