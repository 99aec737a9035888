r"""Passes over many Gaussian kernels on a few columns each, computed where they are used.

A kernel is :math:`2^{-z}` with :math:`z = \sum_c (b_{ci} - b_{cj})^2` and scaled columns
:math:`b_c = \sqrt{\gamma_k \log_2 e}\; x_c` in a small buffer. A few rows of it at a time are held
against a run of columns, in a buffer that stays in the first-level cache. Arguments that the passes
share:

batch : tuple of arrays (columns, roots, like)
    Kernel k reads the rows ``columns[k]`` of a table, filled up with -1, times ``roots[k]``. All
    is computed in the type of `like`; sums are float64.
table, left, right : (p, S)
    Samples, one row a column of the data.
kernels
    The kernels to take; results are in their order.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from kernelweave.compiled.blocks import GAUSSIAN_COLUMNS, GAUSSIAN_ROWS
from kernelweave.compiled.exp import NO_SPECIAL_VALUES, power_of_half

__all__ = [
    "Batch",
    "buffers",
    "contract_rectangle",
    "kernel_values",
    "load",
    "padded",
    "pair_values",
    "quad",
    "rectangle",
    "rectangle_products",
    "square_products",
    "weighted_rectangle",
]

Batch = tuple[np.ndarray, np.ndarray, np.ndarray]


@njit(cache=True, nogil=True)
def buffers(batch: Batch, left: int, right: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Memory for the columns of so many samples on both sides, and for some rows of a kernel."""
    columns, _, like = batch
    a = np.zeros((columns.shape[1], padded(left)), like.dtype)
    b = np.zeros((columns.shape[1], padded(right)), like.dtype)
    return a, b, np.empty((GAUSSIAN_ROWS, GAUSSIAN_COLUMNS), like.dtype)


@njit(cache=True, nogil=True)
def padded(n: int) -> int:
    """The length of loops for n entries: a multiple of the SIMD width, nothing is left over."""
    return -(-n // GAUSSIAN_ROWS) * GAUSSIAN_ROWS


@njit(cache=True, nogil=True)
def load(table: np.ndarray, batch: Batch, k: int, out: np.ndarray) -> int:
    """out[c, i] = roots[k] table[columns[k, c], i]; return the number of columns.

    The product is taken in float64, so that a value of `out` is rounded only once.
    """
    columns, roots, _ = batch
    root, size = roots[k], 0
    for j in columns[k]:
        if j < 0:
            break
        row, target = table[j], out[size]
        size += 1
        for i in range(row.shape[0]):
            target[i] = root * row[i]
    return size


@njit(cache=True, nogil=True, fastmath=NO_SPECIAL_VALUES)
def kernel_values(
    size: int, A: np.ndarray, i: int, rows: int, B: np.ndarray, j: int, n: int, out: np.ndarray
) -> None:
    """out[r, c] = 2^-|A[:, i + r] - B[:, j + c]|^2 for r < rows, c < n and `size` columns.

    Slices of length n tell LLVM that nothing wraps around.
    """
    for r in range(rows):
        target, first, x = out[r, :n], A[0, i + r], B[0, j : j + n]
        for c in range(n):
            difference = x[c] - first
            target[c] = difference * difference
        for column in range(1, size):
            other, y = A[column, i + r], B[column, j : j + n]
            for c in range(n):
                difference = y[c] - other
                target[c] += difference * difference
        for c in range(n):
            target[c] = power_of_half(target[c])


@njit(cache=True, nogil=True, fastmath=True)
def _dot(x: np.ndarray, y: np.ndarray) -> float:
    """Sum of x[c] y[c], as long as y, in float64."""
    total = 0.0
    for c in range(y.shape[0]):
        total += x[c] * y[c]
    return total


@njit(cache=True, nogil=True, fastmath=True)
def _two_sided(
    e: np.ndarray, x: np.ndarray, i: int, y: np.ndarray, j: int, n: int, square: bool
) -> float:
    """Twice the sum of x[i + r] e[r, c] y[j + c] over r < 8, c < n; c < 8 counts once if `square`.

    Sums over rows are in the type of e and x.
    """
    x0, x1, x2, x3 = x[i], x[i + 1], x[i + 2], x[i + 3]
    x4, x5, x6, x7 = x[i + 4], x[i + 5], x[i + 6], x[i + 7]
    e0, e1, e2, e3 = e[0, :n], e[1, :n], e[2, :n], e[3, :n]
    e4, e5, e6, e7 = e[4, :n], e[5, :n], e[6, :n], e[7, :n]
    here = y[j : j + n]
    total, once = 0.0, 0.0
    for c in range(n):
        four = (x0 * e0[c] + x1 * e1[c]) + (x2 * e2[c] + x3 * e3[c])
        total += here[c] * (four + ((x4 * e4[c] + x5 * e5[c]) + (x6 * e6[c] + x7 * e7[c])))
    if square:
        for c in range(8):
            four = (x0 * e0[c] + x1 * e1[c]) + (x2 * e2[c] + x3 * e3[c])
            once += here[c] * (four + ((x4 * e4[c] + x5 * e5[c]) + (x6 * e6[c] + x7 * e7[c])))
    return 2.0 * total - once


@njit(cache=True, nogil=True)
def quad(
    table: np.ndarray, batch: Batch, kernels: np.ndarray, V: np.ndarray, out: np.ndarray
) -> None:
    """out[p] = sum_t V[t]'K V[t] for kernels[p]; V is (T, S).

    Blocks of eight rows, each from its diagonal on: what is right of the diagonal block counts
    twice, and every value is computed once.
    """
    tasks, n = V.shape
    _, b, e = buffers(batch, 0, n)
    v = np.zeros((tasks, padded(n)))
    v[:, :n] = V
    x = v.astype(e.dtype)
    for p in range(kernels.size):
        size = load(table, batch, kernels[p], b)
        total = 0.0
        for i in range(0, padded(n), GAUSSIAN_ROWS):
            for j in range(i, padded(n), GAUSSIAN_COLUMNS):
                stop = min(j + GAUSSIAN_COLUMNS, padded(n))
                kernel_values(size, b, i, GAUSSIAN_ROWS, b, j, stop - j, e)
                for t in range(tasks):
                    total += _two_sided(e, x[t], i, v[t], j, stop - j, i == j)
        out[p] = total


@njit(cache=True, nogil=True, fastmath=NO_SPECIAL_VALUES)
def _add_row(weight: float, e: np.ndarray, out: np.ndarray) -> None:
    for c in range(out.shape[0]):
        out[c] += weight * e[c]


@njit(cache=True, nogil=True)
def square_products(
    table: np.ndarray, batch: Batch, kernels: np.ndarray, V: np.ndarray, out: np.ndarray
) -> None:
    """out[p, t] = K V[t] for kernels[p]; V is (T, S). Blocks of rows as in `quad`."""
    tasks, n = V.shape
    _, b, e = buffers(batch, 0, n)
    for p in range(kernels.size):
        size = load(table, batch, kernels[p], b)
        target = out[p]
        target[:] = 0.0
        for i in range(0, n, GAUSSIAN_ROWS):
            rows = min(GAUSSIAN_ROWS, n - i)
            for j in range(i, n, GAUSSIAN_COLUMNS):
                stop = min(j + GAUSSIAN_COLUMNS, n)
                kernel_values(size, b, i, rows, b, j, padded(stop - j), e)
                beyond = rows if i == j else 0
                for t in range(tasks):
                    for r in range(rows):
                        target[t, i + r] += _dot(e[r], V[t, j:stop])
                        _add_row(V[t, i + r], e[r, beyond:], target[t, j + beyond : stop])


@njit(cache=True, nogil=True)
def rectangle(
    left: np.ndarray, right: np.ndarray, batch: Batch, kernels: np.ndarray, out: np.ndarray
) -> None:
    """out[p, i, j] = K(left i, right j) for kernels[p]."""
    q, s = left.shape[1], right.shape[1]
    a, b, e = buffers(batch, q, s)
    for p in range(kernels.size):
        size = load(left, batch, kernels[p], a)
        load(right, batch, kernels[p], b)
        for i in range(0, q, GAUSSIAN_ROWS):
            rows = min(GAUSSIAN_ROWS, q - i)
            for j in range(0, s, GAUSSIAN_COLUMNS):
                stop = min(j + GAUSSIAN_COLUMNS, s)
                kernel_values(size, a, i, rows, b, j, padded(stop - j), e)
                out[p, i : i + rows, j:stop] = e[:rows, : stop - j]


@njit(cache=True, nogil=True)
def contract_rectangle(
    left: np.ndarray,
    right: np.ndarray,
    batch: Batch,
    kernels: np.ndarray,
    M: np.ndarray,
    out: np.ndarray,
) -> None:
    """out[p] = sum_ij M[i, j] K(left i, right j) for kernels[p]."""
    q, s = M.shape
    a, b, e = buffers(batch, q, s)
    for p in range(kernels.size):
        size = load(left, batch, kernels[p], a)
        load(right, batch, kernels[p], b)
        total = 0.0
        for i in range(0, q, GAUSSIAN_ROWS):
            rows = min(GAUSSIAN_ROWS, q - i)
            for j in range(0, s, GAUSSIAN_COLUMNS):
                stop = min(j + GAUSSIAN_COLUMNS, s)
                kernel_values(size, a, i, rows, b, j, padded(stop - j), e)
                for r in range(rows):
                    total += _dot(e[r], M[i + r, j:stop])
        out[p] = total


@njit(cache=True, nogil=True)
def rectangle_products(
    left: np.ndarray,
    right: np.ndarray,
    batch: Batch,
    kernels: np.ndarray,
    V: np.ndarray,
    out: np.ndarray,
) -> None:
    """out[p, t, i] = sum_j K(left i, right j) V[t, j] for kernels[p]."""
    q, s = left.shape[1], right.shape[1]
    a, b, e = buffers(batch, q, s)
    for p in range(kernels.size):
        size = load(left, batch, kernels[p], a)
        load(right, batch, kernels[p], b)
        target = out[p]
        target[:] = 0.0
        for i in range(0, q, GAUSSIAN_ROWS):
            rows = min(GAUSSIAN_ROWS, q - i)
            for j in range(0, s, GAUSSIAN_COLUMNS):
                stop = min(j + GAUSSIAN_COLUMNS, s)
                kernel_values(size, a, i, rows, b, j, padded(stop - j), e)
                for t in range(V.shape[0]):
                    for r in range(rows):
                        target[t, i + r] += _dot(e[r], V[t, j:stop])


@njit(cache=True, nogil=True, fastmath=NO_SPECIAL_VALUES)
def weighted_rectangle(
    left: np.ndarray,
    right: np.ndarray,
    batch: Batch,
    kernels: np.ndarray,
    weights: np.ndarray,
    above: bool,
) -> np.ndarray:
    """sum_p weights[p] K(left i, right j) for kernels[p], of at most GAUSSIAN_COLUMNS samples j.

    Kernels run in order outside, so that every entry is one float64 sum in fixed order; few left
    samples keep that sum in the cache. With `above` the right samples begin with the left ones,
    and rows are computed from their diagonal block on.
    """
    q, s = left.shape[1], right.shape[1]
    a, b, e = buffers(batch, q, s)
    sums = np.zeros((q, padded(s)))
    for p in range(kernels.shape[0]):
        size, weight = load(left, batch, kernels[p], a), weights[p]
        load(right, batch, kernels[p], b)
        for i in range(0, q, GAUSSIAN_ROWS):
            rows, start = min(GAUSSIAN_ROWS, q - i), i if above else 0
            kernel_values(size, a, i, rows, b, start, padded(s) - start, e)
            for r in range(rows):
                x, target = e[r], sums[i + r, start:]
                for c in range(target.shape[0]):
                    target[c] += weight * x[c]
    if above:
        for i in range(q):
            for j in range(i):
                sums[i, j] = sums[j, i]
    return sums[:, :s]


@njit(cache=True, nogil=True)
def pair_values(pair: np.ndarray, batch: Batch, kernels: np.ndarray, out: np.ndarray) -> None:
    """out[p] = K(x, z) of kernels[p] between the two samples of `pair`, in float64."""
    columns, roots, _ = batch
    for p in range(kernels.size):
        z = 0.0
        for j in columns[kernels[p]]:
            if j < 0:
                break
            difference = roots[kernels[p]] * (pair[j, 0] - pair[j, 1])
            z += difference * difference
        out[p] = 2.0**-z
