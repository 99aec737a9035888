"""Kernels as factors of low rank, K = F'F: their pivoted Cholesky factors, and products with them.

The loops of :func:`~kernelweave.linear_systems.pivoted_cholesky`, and all of it for a kernel that
is a formula of few columns: there a step takes microseconds.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from kernelweave.arrays import Array
from kernelweave.compiled import CALLED, INSIDE, ZERO
from kernelweave.compiled.dense_rows import add_rows, consecutive, row_products

SQUARED_DISTANCE = 0
INNER = 1


@njit(**INSIDE, fastmath=True)
def _form_row(X: Array, i: int, form: int, p0: float, p1: float, p2: float, out: Array) -> None:
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


@njit(**CALLED, fastmath=True)
def eliminate(factors: Array, rank: int, pivot: int, scale: float, residual: Array) -> None:
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
        left = residual[j] - row[j] * row[j]
        residual[j] = left if left > 0.0 else 0.0
    residual[pivot] = 0.0


@njit(**CALLED)
def pivoted_cholesky_form(
    X: Array,
    form: int,
    p0: float,
    p1: float,
    p2: float,
    residual: Array,
    factors: Array,
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
        pivot, trace = ZERO, 0.0
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


@njit(**CALLED)
def factor_products(factors: Array, offsets: Array, kernels: Array, V: Array, out: Array) -> None:
    """out[p, t] = F'F V[t] for the factor F of kernel kernels[p].

    A factor is read from memory once: it is still in the cache for the second product.
    """
    for p in range(kernels.size):
        rows = consecutive(offsets[kernels[p]], offsets[kernels[p] + 1])
        c = np.empty(rows.shape[0], np.float64)
        out[p] = 0.0
        for t in range(V.shape[0]):
            row_products(factors, rows, V[t], c)
            add_rows(factors, rows, c, out[p, t], ZERO, V.shape[1])


@njit(**CALLED)
def factor_rows(factors: Array, offsets: Array, kernels: Array, idx: Array, out: Array) -> None:
    """out[p, s] = row idx[s] of F'F for the factor F of kernel kernels[p]."""
    for p in range(kernels.size):
        rows = consecutive(offsets[kernels[p]], offsets[kernels[p] + 1])
        c = np.empty(rows.shape[0], np.float64)
        out[p] = 0.0
        for s in range(idx.shape[0]):
            for r in range(rows.shape[0]):
                c[r] = factors[rows[r], idx[s]]
            add_rows(factors, rows, c, out[p, s], ZERO, factors.shape[1])


@njit(**CALLED)
def factor_sums(
    factors: Array, offsets: Array, V: Array, out: Array, first: int, last: int
) -> None:
    """out[t] += sum over the kernels k in first..last of F_k'F_k V[k, t], each factor read once."""
    for k in range(first, last):
        rows = consecutive(offsets[k], offsets[k + 1])
        c = np.empty(rows.shape[0], np.float64)
        for t in range(V.shape[1]):
            row_products(factors, rows, V[k, t], c)
            add_rows(factors, rows, c, out[t], ZERO, V.shape[2])
