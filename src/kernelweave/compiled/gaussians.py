r"""Passes over many Gaussian kernels on a few columns each, computed where they are used.

A kernel is :math:`2^{-rz}` with :math:`z = \sum_c (b_{ci} - b_{cj})^2` and scaled columns b in a
small buffer. A few rows of it at a time are held against a run of columns, in a buffer that stays
in the first-level cache. Neighbours that read the same columns share the distances z, and differ
in their ratio r. Arguments that the passes share:

left, right : (p, S)
    Samples, one row a column of the data, both read-only.
kernels : tuple (columns, scales, ratios, ends, shift)
    Kernel p reads the rows ``columns[p]`` of the tables, filled up with -1, less their ``shift``
    and times ``scales[p]``: differences of columns as they are lose no digit. It has the ratio
    ``ratios[p]``, and shares its distances with those behind it until ``ends[p]``.
some, rows : tuple (first, last)
    The kernels and the rows to take.
work : (2 * columns + 2 * GAUSSIAN_ROWS, GAUSSIAN_COLUMNS)
    Memory for the scaled columns of both sides, distances and values, zero at first. All is
    computed in its type, and summed up in float64.

Compiling is part of a user's first run. So both passes are made of the same short loops, there is
one version for each type of `work`, and no assignment of slices, whose message of error takes
longer to compile than these loops.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from kernelweave.arrays import Array
from kernelweave.compiled import CALLED, INSIDE, ZERO
from kernelweave.compiled.blocks import (
    GAUSSIAN_COLUMNS,
    GAUSSIAN_MANY,
    GAUSSIAN_PARTS,
    GAUSSIAN_ROWS,
    GAUSSIAN_SHARED,
    GAUSSIAN_VALUES,
    GAUSSIAN_WORK,
    Range,
)
from kernelweave.compiled.exp import NO_SPECIAL_VALUES, power_of_half

Kernels = tuple[Array, Array, Array, Array, Array]


def gaussian_blocks(
    count: int, rows: int, entries: float
) -> tuple[list[tuple[Range, Range]], int, float]:
    """Return the kernels and rows that a thread takes at a time, how many rows, and all the work.

    There are `entries` values of each kernel. Kernels that may share distances stay together, and
    of many kernels the rows are cut into few parts: each keeps a sum of every kernel.
    """
    many = max(1, count)
    if count >= GAUSSIAN_MANY:
        many = int(np.clip(GAUSSIAN_VALUES / max(1.0, entries), 16, 1024))
    each = max(1.0, many * entries / max(1, rows))
    height = max(1, int(GAUSSIAN_VALUES / each) // GAUSSIAN_ROWS) * GAUSSIAN_ROWS
    if count >= GAUSSIAN_MANY:
        height = max(height, -(-rows // (GAUSSIAN_ROWS * GAUSSIAN_PARTS)) * GAUSSIAN_ROWS)
    blocks = [
        ((p, min(p + many, count)), (i, min(i + height, rows)))
        for p in range(0, count, many)
        for i in range(0, rows, height)
    ]
    return blocks, height, GAUSSIAN_WORK * count * entries


@njit(**INSIDE)
def load(table: Array, kernels: Kernels, p: int, first: int, last: int, out: Array) -> int:
    """out[c, i] = the scaled column c of kernel p at sample first + i; return their number.

    This is computed in float64, so that a value of `out` is rounded only once.
    """
    columns, scales, _, _, shift = kernels
    own, scale, size = columns[p], scales[p], 0
    while size < own.shape[0] and own[size] >= 0:
        n, less = last - first, shift[own[size]]
        row, target = table[own[size], first:last], out[size, :n]
        for i in range(n):
            target[i] = scale * (row[i] - less)
        size += 1
    return size


@njit(**INSIDE, fastmath=NO_SPECIAL_VALUES)
def distances(size: int, A: Array, i: int, rows: int, B: Array, j: int, n: int, out: Array) -> None:
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


@njit(**INSIDE, fastmath=NO_SPECIAL_VALUES)
def values(z: Array, ratio: float, rows: int, n: int, out: Array) -> None:
    """out[r, c] = 2^(-ratio z[r, c]) for r < rows, c < n."""
    for r in range(rows):
        source, target = z[r, :n], out[r, :n]
        for c in range(n):
            target[c] = power_of_half(ratio * source[c])


@njit(**INSIDE, fastmath=NO_SPECIAL_VALUES)
def _add_values(z: Array, ratio: float, weight: float, rows: int, n: int, out: Array) -> None:
    """out[r, c] += weight 2^(-ratio z[r, c]) for r < rows, c < n."""
    for r in range(rows):
        source, target = z[r, :n], out[r, :n]
        for c in range(n):
            target[c] += weight * power_of_half(ratio * source[c])


@njit(**INSIDE, fastmath=True)
def _eight_rows(e: Array, V: Array, t: int, i: int, j: int, n: int) -> float:
    """Sum of V[t, i + r] e[r, c] V[t, j + c] over r < 8, c < n; that over r in the type of e."""
    x, kind = V[t, i : i + 8], e.dtype.type
    x0, x1, x2, x3 = kind(x[0]), kind(x[1]), kind(x[2]), kind(x[3])
    x4, x5, x6, x7 = kind(x[4]), kind(x[5]), kind(x[6]), kind(x[7])
    e0, e1, e2, e3 = e[0, :n], e[1, :n], e[2, :n], e[3, :n]
    e4, e5, e6, e7 = e[4, :n], e[5, :n], e[6, :n], e[7, :n]
    here, total = V[t, j : j + n], 0.0
    for c in range(n):
        four = (x0 * e0[c] + x1 * e1[c]) + (x2 * e2[c] + x3 * e3[c])
        total += here[c] * (four + ((x4 * e4[c] + x5 * e5[c]) + (x6 * e6[c] + x7 * e7[c])))
    return total


@njit(**INSIDE, fastmath=True)
def _dot(e: Array, r: int, V: Array, t: int, j: int, n: int) -> float:
    """Sum of e[r, c] V[t, j + c] over c < n, in float64."""
    x, y, total = e[r, :n], V[t, j : j + n], 0.0
    for c in range(n):
        total += x[c] * y[c]
    return total


@njit(**CALLED)
def add_products(
    left: Array,
    right: Array,
    kernels: Kernels,
    V: Array,
    some: Range,
    rows: Range,
    part: int,
    work: Array,
    out: Array,
) -> None:
    """out[p, t, i] += sum_j K_p(left i, right j) V[t, j]; or quadratic forms, for a `part` >= 0.

    These are out[p, 0, part] += what the rows contribute to sum_t V[t]'K_p V[t], where both sides
    are the same samples: of each block of eight rows the columns from its diagonal on. What is
    right of the diagonal block counts twice, and every value is computed once; V has zeros behind
    the last sample, up to a multiple of eight.
    """
    columns, _, ratios, ends, _ = kernels
    most, quad, n = columns.shape[1], part >= 0, right.shape[1]
    a, b = work[:most], work[most : 2 * most]
    z, e = work[2 * most : 2 * most + GAUSSIAN_ROWS], work[2 * most + GAUSSIAN_ROWS :]
    for top in range(rows[0], rows[1], GAUSSIAN_COLUMNS):
        bottom = top + GAUSSIAN_COLUMNS if top + GAUSSIAN_COLUMNS < rows[1] else rows[1]
        for j in range(top if quad else 0, n, GAUSSIAN_COLUMNS):
            end = j + GAUSSIAN_COLUMNS if j + GAUSSIAN_COLUMNS < n else n
            p = some[0]
            while p < some[1]:
                stop = ends[p] if ends[p] < some[1] else some[1]
                size = load(right, kernels, p, j, end, b)
                # The first run of a quadratic form has the rows among its columns.
                here = b if quad and j == top else a
                if not (quad and j == top):
                    load(left, kernels, p, top, bottom, a)
                for i in range(top, bottom, GAUSSIAN_ROWS):
                    count = GAUSSIAN_ROWS if i + GAUSSIAN_ROWS < bottom else bottom - i
                    start = i if quad and i > j else j
                    width = end - start
                    # Loops of whole SIMD vectors, with nothing left over.
                    wide = (width + GAUSSIAN_ROWS - 1) // GAUSSIAN_ROWS * GAUSSIAN_ROWS
                    distances(size, here, i - top, count, b, start - j, wide, z)
                    for k in range(p, stop):
                        values(z, work.dtype.type(ratios[k]), count, wide, e)
                        for t in range(V.shape[0]):
                            if quad:
                                out[k, 0, part] += 2.0 * _eight_rows(e, V, t, i, start, width)
                                if start == i:
                                    out[k, 0, part] -= _eight_rows(e, V, t, i, i, count)
                            else:
                                for r in range(count):
                                    out[k, t, i + r] += _dot(e, r, V, t, start, width)
                p = stop


@njit(**CALLED)
def write_sums(
    left: Array,
    right: Array,
    kernels: Kernels,
    weights: Array,
    some: Range,
    rows: Range,
    lower: bool,
    apart: bool,
    origin: int,
    work: Array,
    sums: Array,
    out: Array,
) -> None:
    """out[0, i - origin, j] = sum_p weights[p] K_p(left i, right j), or `apart` its terms out[p].

    With `lower` both sides are the same samples, and what is above the diagonal may be left out.
    Kernels run in order outside, so that every entry is one sum in fixed order, of few kernels at
    a time in the type of the values and of these in float64; as many rows at a time as `sums` has
    keep that in the cache.
    """
    columns, _, ratios, ends, _ = kernels
    most, height = columns.shape[1], sums.shape[0]
    a, b = work[:most], work[most : 2 * most]
    z, e = work[2 * most : 2 * most + GAUSSIAN_ROWS], work[2 * most + GAUSSIAN_ROWS :]
    for top in range(rows[0], rows[1], height):
        bottom = top + height if top + height < rows[1] else rows[1]
        n = bottom if lower else right.shape[1]
        for j in range(0, n, GAUSSIAN_COLUMNS):
            width = GAUSSIAN_COLUMNS if j + GAUSSIAN_COLUMNS < n else n - j
            wide = (width + GAUSSIAN_ROWS - 1) // GAUSSIAN_ROWS * GAUSSIAN_ROWS
            p = some[0]
            while p < some[1]:
                stop = ends[p] if ends[p] < some[1] else some[1]
                stop = stop if stop < p + GAUSSIAN_SHARED else p + GAUSSIAN_SHARED
                size = load(left, kernels, p, top, bottom, a)
                load(right, kernels, p, j, j + width, b)
                for i in range(top, bottom, GAUSSIAN_ROWS):
                    count = GAUSSIAN_ROWS if i + GAUSSIAN_ROWS < bottom else bottom - i
                    distances(size, a, i - top, count, b, ZERO, wide, z)
                    for r in range(count):
                        more = e[r]
                        for c in range(wide):
                            more[c] = 0.0
                    for k in range(p, stop):
                        ratio, weight = work.dtype.type(ratios[k]), work.dtype.type(weights[k])
                        if not apart:
                            _add_values(z, ratio, weight, count, wide, e)
                            continue
                        values(z, ratio, count, wide, e)
                        for r in range(count):
                            found, target = e[r], out[k, i + r - origin, j : j + width]
                            for c in range(width):
                                target[c] = found[c]
                    if not apart:
                        for r in range(count):
                            more, total = e[r], sums[i - top + r]
                            for c in range(width):
                                total[c] = more[c] + (total[c] if p > some[0] else 0.0)
                p = stop
            if not apart:
                for r in range(bottom - top):
                    total, target = sums[r], out[0, top + r - origin, j : j + width]
                    for c in range(width):
                        target[c] = total[c]
