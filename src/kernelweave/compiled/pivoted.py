"""The loops of :func:`~kernelweave.linear_systems.pivoted_cholesky`, and all of it for formulas.

For a kernel that is a formula of few columns a step takes microseconds; there all is compiled.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

__all__ = ["INNER", "SQUARED_DISTANCE", "eliminate", "pivoted_cholesky_form"]

SQUARED_DISTANCE = 0
INNER = 1


@njit(cache=True, nogil=True, fastmath=True)
def _form_row(
    X: np.ndarray, i: int, form: int, p0: float, p1: float, p2: float, out: np.ndarray
) -> None:
    """Row i of exp(-p0 |x-z|^2), or of (p2 <x,z> + p1)^p0, into `out`."""
    n, n_columns = X.shape
    for j in range(n):
        value = 0.0
        if form == SQUARED_DISTANCE:
            for c in range(n_columns):
                difference = X[i, c] - X[j, c]
                value += difference * difference
        else:
            for c in range(n_columns):
                value += X[i, c] * X[j, c]
        out[j] = value
    if form == SQUARED_DISTANCE:
        for j in range(n):
            out[j] = math.exp(-p0 * out[j])
    else:
        degree = int(p0)
        for j in range(n):
            base = p2 * out[j] + p1
            power = 1.0
            for _ in range(degree):
                power *= base
            out[j] = power


@njit(cache=True, nogil=True, fastmath=True)
def eliminate(
    factors: np.ndarray, rank: int, pivot: int, scale: float, residual: np.ndarray
) -> None:
    """Turn the raw row in factors[rank] into the next Cholesky row; lower the residual diagonal."""
    row = factors[rank]
    n = row.shape[0]
    for r in range(rank):
        c = factors[r, pivot]
        other = factors[r]
        for j in range(n):
            row[j] -= c * other[j]
    for j in range(n):
        row[j] /= scale
        residual[j] = max(residual[j] - row[j] * row[j], 0.0)
    residual[pivot] = 0.0


@njit(cache=True, nogil=True)
def pivoted_cholesky_form(
    X: np.ndarray,
    form: int,
    p0: float,
    p1: float,
    p2: float,
    residual: np.ndarray,
    factors: np.ndarray,
    target: float,
    rank: int,
    most: int,
) -> int:
    """Factor an elementwise kernel on the rows of X, from `rank` pivots on; return their number.

    `residual` enters as the diagonal of what these pivots leave of K, and leaves as the diagonal of
    the remainder; `factors` (max_rank, n) receives one row a pivot. Stops when the remainder's
    trace is at most `target` or there are `most` pivots.
    """
    while rank < most:
        pivot = 0
        trace = 0.0
        for j in range(residual.shape[0]):
            trace += residual[j]
            if residual[j] > residual[pivot]:
                pivot = j
        if trace <= target or residual[pivot] <= 0.0:
            break
        _form_row(X, pivot, form, p0, p1, p2, factors[rank])
        eliminate(factors, rank, pivot, math.sqrt(residual[pivot]), residual)
        rank += 1
    return rank
