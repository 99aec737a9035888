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

from kernelweave.compiled.blocks import (
    GAUSSIAN_COLUMNS,
    GAUSSIAN_ROWS,
    GAUSSIAN_SHARED,
    GAUSSIAN_TILE,
)
from kernelweave.compiled.exp import NO_SPECIAL_VALUES, power_of_half

__all__ = [
    "Batch",
    "buffers",
    "kernel_values",
    "load",
    "padded",
    "pair_values",
    "quad",
    "rectangle",
    "rectangle_products",
    "weighted_rows",
]

Batch = tuple[np.ndarray, np.ndarray, np.ndarray, float, np.ndarray]


@njit(cache=True, nogil=True)
def padded(n: int) -> int:
    """The length of loops for n entries: a multiple of the SIMD width, nothing is left over."""
    return -(-n // GAUSSIAN_ROWS) * GAUSSIAN_ROWS


@njit(cache=True, nogil=True)
def buffers(batch: Batch, left: int, right: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Memory for the columns of so many samples on both sides, and for some rows of a kernel."""
    columns, like = batch[0], batch[4]
    a = np.zeros((columns.shape[1], padded(left)), like.dtype)
    b = np.zeros((columns.shape[1], padded(right)), like.dtype)
    return a, b, np.empty((GAUSSIAN_ROWS, GAUSSIAN_COLUMNS), like.dtype)


@njit(cache=True, nogil=True)
def _load(table: np.ndarray, batch: Batch, k: int, root: float, out: np.ndarray) -> int:
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
def load(table: np.ndarray, batch: Batch, k: int, out: np.ndarray) -> int:
    """Load the columns of kernel k, scaled for it; return their number."""
    return _load(table, batch, k, batch[1][k], out)


@njit(cache=True, nogil=True)
def _sharing(batch: Batch, kernels: np.ndarray, p: int, ratios: np.ndarray) -> tuple[int, float]:
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
    size: int, A: np.ndarray, i: int, rows: int, B: np.ndarray, j: int, n: int, out: np.ndarray
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
def _values(z: np.ndarray, ratio: float, rows: int, n: int, out: np.ndarray) -> None:
    """out[r, c] = 2^(-ratio z[r, c]) for r < rows, c < n."""
    for r in range(rows):
        source, target = z[r, :n], out[r, :n]
        for c in range(n):
            target[c] = power_of_half(ratio * source[c])


@njit(cache=True, nogil=True)
def kernel_values(
    size: int, A: np.ndarray, i: int, rows: int, B: np.ndarray, j: int, n: int, out: np.ndarray
) -> None:
    """out[r, c] = 2^-|A[:, i + r] - B[:, j + c]|^2 for r < rows, c < n and `size` columns."""
    _distances(size, A, i, rows, B, j, n, out)
    _values(out, out.dtype.type(1.0), rows, n, out)


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
    table: np.ndarray,
    batch: Batch,
    kernels: np.ndarray,
    V: np.ndarray,
    first: int,
    last: int,
    out: np.ndarray,
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
        size = _load(table, batch, kernels[p], scale, b)
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
    left: np.ndarray, right: np.ndarray, batch: Batch, kernels: np.ndarray, out: np.ndarray
) -> None:
    """out[p, i, j] = K(left i, right j) for kernels[p]."""
    q, s = left.shape[1], right.shape[1]
    a, b, z = buffers(batch, q, s)
    e, ratios = np.empty_like(z), np.empty(GAUSSIAN_SHARED, z.dtype)
    p = 0
    while p < kernels.size:
        stop, scale = _sharing(batch, kernels, p, ratios)
        size = _load(left, batch, kernels[p], scale, a)
        _load(right, batch, kernels[p], scale, b)
        for i in range(0, q, GAUSSIAN_ROWS):
            rows = min(GAUSSIAN_ROWS, q - i)
            for j in range(0, s, GAUSSIAN_COLUMNS):
                end = min(j + GAUSSIAN_COLUMNS, s)
                _distances(size, a, i, rows, b, j, padded(end - j), z)
                for k in range(p, stop):
                    _values(z, ratios[k - p], rows, padded(end - j), e)
                    out[k, i : i + rows, j:end] = e[:rows, : end - j]
        p = stop


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
    a, b, z = buffers(batch, q, s)
    e, ratios = np.empty_like(z), np.empty(GAUSSIAN_SHARED, z.dtype)
    out[:] = 0.0
    p = 0
    while p < kernels.size:
        stop, scale = _sharing(batch, kernels, p, ratios)
        size = _load(left, batch, kernels[p], scale, a)
        _load(right, batch, kernels[p], scale, b)
        for i in range(0, q, GAUSSIAN_ROWS):
            rows = min(GAUSSIAN_ROWS, q - i)
            for j in range(0, s, GAUSSIAN_COLUMNS):
                end = min(j + GAUSSIAN_COLUMNS, s)
                _distances(size, a, i, rows, b, j, padded(end - j), z)
                for k in range(p, stop):
                    _values(z, ratios[k - p], rows, padded(end - j), e)
                    for t in range(V.shape[0]):
                        for r in range(rows):
                            out[k, t, i + r] += _dot(e[r], V[t, j:end])
        p = stop


@njit(cache=True, nogil=True, fastmath=NO_SPECIAL_VALUES)
def _add_values(
    z: np.ndarray, ratio: float, weight: float, rows: int, n: int, out: np.ndarray
) -> None:
    """out[r, c] += weight 2^(-ratio z[r, c]) for r < rows, c < n."""
    for r in range(rows):
        source, target = z[r, :n], out[r, :n]
        for c in range(n):
            target[c] += weight * power_of_half(ratio * source[c])


@njit(cache=True, nogil=True)
def _weighted_tile(
    left: np.ndarray,
    right: np.ndarray,
    batch: Batch,
    kernels: np.ndarray,
    weights: np.ndarray,
    above: bool,
) -> np.ndarray:
    """sum_p weights[p] K(left i, right j) for kernels[p], of at most GAUSSIAN_COLUMNS samples j.

    Kernels run in order outside, so that every entry is one sum in fixed order, of few kernels at
    a time in the type of the values and of these sums in float64; few left samples keep that sum in
    the cache. With `above` the right samples begin with the left ones, and rows are computed from
    their diagonal block on.
    """
    q, s = left.shape[1], right.shape[1]
    a, b, z = buffers(batch, q, s)
    e, ratios = np.empty_like(z), np.empty(GAUSSIAN_SHARED, z.dtype)
    sums, w = np.zeros((q, padded(s))), weights.astype(z.dtype)
    p = 0
    while p < kernels.size:
        stop, scale = _sharing(batch, kernels, p, ratios)
        size = _load(left, batch, kernels[p], scale, a)
        _load(right, batch, kernels[p], scale, b)
        for i in range(0, q, GAUSSIAN_ROWS):
            rows, start = min(GAUSSIAN_ROWS, q - i), i if above else 0
            width = padded(s) - start
            _distances(size, a, i, rows, b, start, width, z)
            e[:rows, :width] = 0.0
            for k in range(p, stop):
                _add_values(z, ratios[k - p], w[k], rows, width, e)
            for r in range(rows):
                x, target = e[r], sums[i + r, start:]
                for c in range(target.shape[0]):
                    target[c] += x[c]
        p = stop
    if above:
        for i in range(q):
            for j in range(i):
                sums[i, j] = sums[j, i]
    return sums[:, :s]


@njit(cache=True, nogil=True)
def _store(sums: np.ndarray, out: np.ndarray, i: int, j: int, mirrored: bool) -> None:
    """Write sums to out from (i, j) on, and their mirror image from (j, i) on."""
    q, s = sums.shape
    for r in range(q):
        source, target = sums[r], out[i + r, j : j + s]
        for c in range(s):
            target[c] = source[c]
    if mirrored:
        # Some columns at a time: each write fills up a line of the cache.
        for first in range(0, s, GAUSSIAN_ROWS):
            for r in range(q):
                for c in range(first, min(first + GAUSSIAN_ROWS, s)):
                    out[j + c, i + r] = sums[r, c]


@njit(cache=True, nogil=True)
def weighted_rows(
    left: np.ndarray,
    right: np.ndarray,
    batch: Batch,
    kernels: np.ndarray,
    weights: np.ndarray,
    first: int,
    last: int,
    mirrored: bool,
    out: np.ndarray,
) -> None:
    """out[i, j] = sum_p weights[p] K(left i, right j) for kernels[p] and first <= i < last.

    With `mirrored` both sides are the same samples: only the part from the diagonal on is computed,
    and its mirror image written, too. `first` is a multiple of GAUSSIAN_TILE.
    """
    for i in range(first, last, GAUSSIAN_TILE):
        mine = np.ascontiguousarray(left[:, i : min(i + GAUSSIAN_TILE, last)])
        for j in range(i if mirrored else 0, right.shape[1], GAUSSIAN_COLUMNS):
            run = np.ascontiguousarray(right[:, j : j + GAUSSIAN_COLUMNS])
            above = mirrored and i == j
            sums = _weighted_tile(mine, run, batch, kernels, weights, above)
            _store(sums, out, i, j, mirrored)


@njit(cache=True, nogil=True)
def pair_values(pair: np.ndarray, batch: Batch, kernels: np.ndarray, out: np.ndarray) -> None:
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
