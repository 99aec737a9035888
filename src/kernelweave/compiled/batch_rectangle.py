"""Many Gaussian kernels between two sets of samples: values, sums, contractions, products.

The left samples are taken two at a time and held against a run of right samples; see
:mod:`kernelweave.compiled.batch` for the arguments that are not explained here.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from kernelweave.compiled.batch_rows import BLOCK, dot, fill_points, load, padded, pair_rows

__all__ = ["contract_rectangle", "rectangle", "rectangle_products", "weighted_rectangle"]

_SCALAR = {"contract", "nnan", "ninf", "nsz"}


@njit(cache=True, nogil=True)
def rectangle(
    left: np.ndarray,
    right: np.ndarray,
    columns: np.ndarray,
    roots: np.ndarray,
    kernels: np.ndarray,
    like: np.ndarray,
    out: np.ndarray,
    first: int,
    last: int,
) -> None:
    """out[p, i, j] = K(left i, right j) for kernels[p], p in first..last."""
    q, s = left.shape[1], right.shape[1]
    b = np.empty((columns.shape[1], padded(s)), like.dtype)
    B = np.empty((columns.shape[1], 2 * BLOCK), like.dtype)
    e = np.empty((2, BLOCK), like.dtype)
    for position in range(first, last):
        k = kernels[position]
        size = load(right, columns[k], roots[k], 0, padded(s), b)
        for i in range(0, q, 2):
            fill_points(left, columns[k], roots[k], i, B, BLOCK)
            for j in range(0, s, BLOCK):
                n = min(BLOCK, s - j)
                pair_rows(size, b, j, B, 0, BLOCK, padded(n), e)
                out[position, i, j : j + n] = e[0, :n]
                if i + 1 < q:
                    out[position, i + 1, j : j + n] = e[1, :n]


@njit(cache=True, nogil=True)
def contract_rectangle(
    left: np.ndarray,
    right: np.ndarray,
    columns: np.ndarray,
    roots: np.ndarray,
    M: np.ndarray,
    like: np.ndarray,
    out: np.ndarray,
    first: int,
    last: int,
) -> None:
    """out[k] = sum_ij M[i, j] K_k(left i, right j), k in first..last."""
    q, s = left.shape[1], right.shape[1]
    b = np.empty((columns.shape[1], padded(s)), like.dtype)
    B = np.empty((columns.shape[1], 2 * BLOCK), like.dtype)
    e = np.empty((2, BLOCK), like.dtype)
    for k in range(first, last):
        size = load(right, columns[k], roots[k], 0, padded(s), b)
        total = 0.0
        for i in range(0, q, 2):
            fill_points(left, columns[k], roots[k], i, B, BLOCK)
            for j in range(0, s, BLOCK):
                n = min(BLOCK, s - j)
                pair_rows(size, b, j, B, 0, BLOCK, padded(n), e)
                total += dot(e[0], M[i, j : j + n], n)
                if i + 1 < q:
                    total += dot(e[1], M[i + 1, j : j + n], n)
        out[k] = total


@njit(cache=True, nogil=True)
def rectangle_products(
    left: np.ndarray,
    right: np.ndarray,
    columns: np.ndarray,
    roots: np.ndarray,
    kernels: np.ndarray,
    V: np.ndarray,
    like: np.ndarray,
    out: np.ndarray,
    first: int,
    last: int,
) -> None:
    """out[p, t, i] = sum_j K(left i, right j) V[t, j] for kernels[p], p in first..last."""
    q, s = left.shape[1], right.shape[1]
    b = np.empty((columns.shape[1], padded(s)), like.dtype)
    B = np.empty((columns.shape[1], 2 * BLOCK), like.dtype)
    e = np.empty((2, BLOCK), like.dtype)
    for position in range(first, last):
        k = kernels[position]
        size = load(right, columns[k], roots[k], 0, padded(s), b)
        target = out[position]
        target[:] = 0.0
        for i in range(0, q, 2):
            fill_points(left, columns[k], roots[k], i, B, BLOCK)
            for j in range(0, s, BLOCK):
                n = min(BLOCK, s - j)
                pair_rows(size, b, j, B, 0, BLOCK, padded(n), e)
                for t in range(V.shape[0]):
                    target[t, i] += dot(e[0], V[t, j : j + n], n)
                    if i + 1 < q:
                        target[t, i + 1] += dot(e[1], V[t, j : j + n], n)


@njit(cache=True, nogil=True, fastmath=_SCALAR)
def weighted_rectangle(
    left: np.ndarray,
    right: np.ndarray,
    columns: np.ndarray,
    roots: np.ndarray,
    kernels: np.ndarray,
    weights: np.ndarray,
    like: np.ndarray,
    out: np.ndarray,
    j: int,
) -> None:
    """out[i, j'] = sum_p weights[p] K(left i, right j') for a run of at most BLOCK samples j'.

    Kernels run in order outside, so that every entry is one float64 sum in fixed order; few left
    samples keep that sum in the cache.
    """
    q = left.shape[1]
    real = min(BLOCK, right.shape[1] - j)
    n = padded(real)
    b = np.empty((columns.shape[1], n), like.dtype)
    B = np.empty((columns.shape[1], 2 * n), like.dtype)
    e = np.empty((2, n), like.dtype)
    tile = np.zeros((q + 1, n))
    for position in range(kernels.shape[0]):
        k = kernels[position]
        size = load(right, columns[k], roots[k], j, n, b)
        weight = weights[position]
        for i in range(0, q, 2):
            fill_points(left, columns[k], roots[k], i, B, n)
            pair_rows(size, b, 0, B, 0, n, n, e)
            r, s, x, y = e[0], e[1], tile[i], tile[i + 1]
            for c in range(n):
                x[c] += weight * r[c]
                y[c] += weight * s[c]
    for i in range(q):
        for c in range(real):
            out[i, j + c] = tile[i, c]
