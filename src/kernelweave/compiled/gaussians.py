r"""Passes over many Gaussian kernels on a few columns each, computed where they are used.

A kernel is :math:`2^{-z}` with :math:`z = \sum_c (b_{ci} - b_{cj})^2` and scaled columns
:math:`b_c = \sqrt{\gamma_k \log_2 e}\; x_c` in a small buffer. A few rows of it at a time are held
against a run of columns, in a buffer that stays in the first-level cache. Neighbours that read the
same columns share the distances, which are those of the narrowest of them: each of the others is
:math:`2^{-rz}` with a ratio :math:`r \le 1`. Arguments that the passes share:

batch : tuple (columns, roots, shift, scale, like)
    Kernel k reads the rows ``columns[k]`` of a table, filled up with -1, less their ``shift`` and
    times ``roots[k]``, or times a `scale` for all kernels unless that is zero: differences of
    columns as they are lose no digit. All is computed in the type of `like`; sums are float64.
table, left, right : (p, S)
    Samples, one row a column of the data.
kernels
    The kernels to take; results are in their order.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from kernelweave.arrays import AnyArray as Array
from kernelweave.compiled.blocks import (
    GAUSSIAN_COLUMNS,
    GAUSSIAN_ROWS,
    GAUSSIAN_SHARED,
    GAUSSIAN_TILE,
)
from kernelweave.compiled.exp import NO_SPECIAL_VALUES, power_of_half

Batch = tuple[Array, Array, Array, float, Array]


@njit(cache=True, nogil=True)
def padded(n: int) -> int:
    """The length of loops for n entries: a multiple of the SIMD width, nothing is left over."""
    return -(-n // GAUSSIAN_ROWS) * GAUSSIAN_ROWS


@njit(cache=True, nogil=True)
def buffers(batch: Batch, left: int, right: int) -> tuple[Array, Array, Array]:
    """Memory for the columns of so many samples on both sides, and for some rows of a kernel."""
    columns, like = batch[0], batch[4]
    a = np.zeros((columns.shape[1], padded(left)), like.dtype)
    b = np.zeros((columns.shape[1], padded(right)), like.dtype)
    return a, b, np.empty((GAUSSIAN_ROWS, GAUSSIAN_COLUMNS), like.dtype)


@njit(cache=True, nogil=True)
def load(table: Array, batch: Batch, k: int, root: float, out: Array) -> int:
    """out[c, i] = root (table[j, i] - shift[j]) for the columns j of kernel k; return their number.

    This is computed in float64, so that a value of `out` is rounded only once.
    """
    size = 0
    for j in batch[0][k]:
        if j < 0:
            break
        row, target, shift = table[j], out[size], batch[2][j]
        size += 1
        for i in range(row.shape[0]):
            target[i] = root * (row[i] - shift)
    return size


@njit(cache=True, nogil=True)
def _sharing(batch: Batch, kernels: Array, p: int, ratios: Array) -> tuple[int, float]:
    """Which of the kernels from p on read the same columns: up to which one, and their scale.

    The scale is that of all kernels or the largest of their roots, and `ratios` are the squares of
    all roots relative to it.
    """
    columns, roots = batch[0], batch[1]
    own, stop, scale = columns[kernels[p]], p, 0.0
    while stop < min(kernels.size, p + ratios.size):
        other = columns[kernels[stop]]
        for c in range(own.size):
            if other[c] != own[c]:
                break
        else:
            scale = max(scale, roots[kernels[stop]])
            stop += 1
            continue
        break
    scale = batch[3] if batch[3] > 0.0 else max(scale, 1e-300)
    for q in range(p, stop):
        ratios[q - p] = (roots[kernels[q]] / scale) ** 2
    return stop, scale


@njit(cache=True, nogil=True, fastmath=NO_SPECIAL_VALUES)
def _distances(
    size: int, A: Array, i: int, rows: int, B: Array, j: int, n: int, out: Array
) -> None:
    """out[r, c] = |A[:, i + r] - B[:, j + c]|^2 for r < rows, c < n and `size` columns.

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


@njit(cache=True, nogil=True, fastmath=NO_SPECIAL_VALUES)
def _values(z: Array, ratio: float, rows: int, n: int, out: Array) -> None:
    """out[r, c] = 2^(-ratio z[r, c]) for r < rows, c < n."""
    for r in range(rows):
        source, target = z[r, :n], out[r, :n]
        for c in range(n):
            target[c] = power_of_half(ratio * source[c])


@njit(cache=True, nogil=True)
def kernel_values(
    size: int, A: Array, i: int, rows: int, B: Array, j: int, n: int, out: Array
) -> None:
    """out[r, c] = 2^-|A[:, i + r] - B[:, j + c]|^2 for r < rows, c < n and `size` columns."""
    _distances(size, A, i, rows, B, j, n, out)
    _values(out, out.dtype.type(1.0), rows, n, out)


@njit(cache=True, nogil=True, fastmath=True)
def _dot(x: Array, y: Array) -> float:
    """Sum of x[c] y[c], as long as y, in float64."""
    total = 0.0
    for c in range(y.shape[0]):
        total += x[c] * y[c]
    return total


@njit(cache=True, nogil=True, fastmath=True)
def _two_sided(e: Array, x: Array, i: int, y: Array, j: int, n: int, square: bool) -> float:
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
    table: Array, batch: Batch, kernels: Array, V: Array, first: int, last: int, out: Array
) -> None:
    """out[p] = the part of sum_t V[t]'K V[t] of rows first..last, for kernels[p]; V is (T, S).

    Blocks of eight rows, each from its diagonal on: what is right of the diagonal block counts
    twice, and every value is computed once. `first` is a multiple of eight.
    """
    tasks, n = V.shape
    _, b, e = buffers(batch, 0, n)
    z, ratios = np.empty_like(e), np.empty(GAUSSIAN_SHARED, e.dtype)
    v = np.zeros((tasks, padded(n)))
    v[:, :n] = V
    x = v.astype(e.dtype)
    out[:] = 0.0
    p = 0
    while p < kernels.size:
        stop, scale = _sharing(batch, kernels, p, ratios)
        size = load(table, batch, kernels[p], scale, b)
        for i in range(first, padded(last), GAUSSIAN_ROWS):
            for j in range(i, padded(n), GAUSSIAN_COLUMNS):
                width = min(GAUSSIAN_COLUMNS, padded(n) - j)
                _distances(size, b, i, GAUSSIAN_ROWS, b, j, width, z)
                for q in range(p, stop):
                    _values(z, ratios[q - p], GAUSSIAN_ROWS, width, e)
                    for t in range(tasks):
                        out[q] += _two_sided(e, x[t], i, v[t], j, width, i == j)
        p = stop


@njit(cache=True, nogil=True)
def rectangle(
    left: Array, right: Array, batch: Batch, kernels: Array, V: Array, out: Array
) -> None:
    """out[p, i, j] = K(left i, right j) for kernels[p], or with rows in V their products with K.

    These are out[p, t, i] = sum_j K(left i, right j) V[t, j], `out` being zero before.
    """
    q, s = left.shape[1], right.shape[1]
    a, b, z = buffers(batch, q, s)
    e, ratios = np.empty_like(z), np.empty(GAUSSIAN_SHARED, z.dtype)
    p = 0
    while p < kernels.size:
        stop, scale = _sharing(batch, kernels, p, ratios)
        size = load(left, batch, kernels[p], scale, a)
        load(right, batch, kernels[p], scale, b)
        for i in range(0, q, GAUSSIAN_ROWS):
            rows = min(GAUSSIAN_ROWS, q - i)
            for j in range(0, s, GAUSSIAN_COLUMNS):
                end = min(j + GAUSSIAN_COLUMNS, s)
                _distances(size, a, i, rows, b, j, padded(end - j), z)
                for k in range(p, stop):
                    _values(z, ratios[k - p], rows, padded(end - j), e)
                    for r in range(rows):
                        for t in range(V.shape[0]):
                            out[k, t, i + r] += _dot(e[r], V[t, j:end])
                        if V.shape[0] == 0:
                            # In a loop: to assign slices takes a second to compile.
                            source, target = e[r], out[k, i + r, j:end]
                            for c in range(target.shape[0]):
                                target[c] = source[c]
        p = stop


@njit(cache=True, nogil=True, fastmath=NO_SPECIAL_VALUES)
def _add_values(z: Array, ratio: float, weight: float, rows: int, n: int, out: Array) -> None:
    """out[r, c] += weight 2^(-ratio z[r, c]) for r < rows, c < n."""
    for r in range(rows):
        source, target = z[r, :n], out[r, :n]
        for c in range(n):
            target[c] += weight * power_of_half(ratio * source[c])


@njit(cache=True, nogil=True)
def _weighted_tile(
    left: Array, right: Array, batch: Batch, kernels: Array, weights: Array
) -> Array:
    """sum_p weights[p] K(left i, right j) for kernels[p], of at most GAUSSIAN_COLUMNS samples j.

    Kernels run in order outside, so that every entry is one sum in fixed order, of few kernels at
    a time in the type of the values and of these sums in float64; few left samples keep that sum in
    the cache.
    """
    q, width = left.shape[1], padded(right.shape[1])
    a, b, z = buffers(batch, q, right.shape[1])
    e, ratios = np.empty_like(z), np.empty(GAUSSIAN_SHARED, z.dtype)
    sums, w = np.zeros((q, width)), weights.astype(z.dtype)
    p = 0
    while p < kernels.size:
        stop, scale = _sharing(batch, kernels, p, ratios)
        size = load(left, batch, kernels[p], scale, a)
        load(right, batch, kernels[p], scale, b)
        for i in range(0, q, GAUSSIAN_ROWS):
            rows = min(GAUSSIAN_ROWS, q - i)
            _distances(size, a, i, rows, b, 0, width, z)
            e[:rows, :width] = 0.0
            for k in range(p, stop):
                _add_values(z, ratios[k - p], w[k], rows, width, e)
            for r in range(rows):
                x, target = e[r], sums[i + r]
                for c in range(width):
                    target[c] += x[c]
        p = stop
    return sums[:, : right.shape[1]]


@njit(cache=True, nogil=True)
def weighted_rows(
    left: Array,
    right: Array,
    batch: Batch,
    kernels: Array,
    weights: Array,
    first: int,
    last: int,
    lower: bool,
    out: Array,
) -> None:
    """out[i, j] = sum_p weights[p] K(left i, right j) for kernels[p] and first <= i < last.

    With `lower` both sides are the same samples, and what is above the diagonal is left out.
    """
    for i in range(first, last, GAUSSIAN_TILE):
        stop = min(i + GAUSSIAN_TILE, last)
        end = stop if lower else right.shape[1]
        mine = np.ascontiguousarray(left[:, i:stop])
        for j in range(0, end, GAUSSIAN_COLUMNS):
            run = np.ascontiguousarray(right[:, j : min(j + GAUSSIAN_COLUMNS, end)])
            sums = _weighted_tile(mine, run, batch, kernels, weights)
            for r in range(stop - i):
                source, target = sums[r], out[i + r, j:]
                for c in range(source.shape[0]):
                    target[c] = source[c]


@njit(cache=True, nogil=True)
def pair_values(pair: Array, batch: Batch, kernels: Array, out: Array) -> None:
    """out[p] = K(x, z) of kernels[p] between the two samples of `pair`, in float64."""
    columns, roots = batch[0], batch[1]
    for p in range(kernels.size):
        z = 0.0
        for j in columns[kernels[p]]:
            if j < 0:
                break
            difference = roots[kernels[p]] * (pair[j, 0] - pair[j, 1])
            z += difference * difference
        out[p] = 2.0**-z
