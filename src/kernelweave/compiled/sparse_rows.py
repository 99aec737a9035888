"""Loops over sparse rows: sums of rows, products with them, inner products between them.

Pointers are uint64 and columns unsigned: compiled code looks at every signed index first, to see
whether it is negative, and rows may be as short as one entry.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from kernelweave.arrays import Array
from kernelweave.compiled import CALLED, INSIDE

# (indptr, indices, values): row i has the columns ``indices[indptr[i]:indptr[i + 1]]`` and the
# values at the same places. Empty values mean that all are one, which saves reading them.
SparseRows = tuple[Array, Array, Array]

# A sum of uint64 and a plain number would be a float.
_ONE, _TWO, _THREE, _FOUR = np.uint64(1), np.uint64(2), np.uint64(3), np.uint64(4)


@njit(**INSIDE)
def _value(values: Array, p: int) -> float:
    return values[p] if values.size else 1.0


@njit(**CALLED)
def add_rows(matrix: SparseRows, rows: Array, weights: Array, w: Array) -> None:
    """w += sum_r weights[r] row[rows[r]], one number for each column."""
    indptr, indices, values = matrix
    for r in range(rows.size):
        weight = weights[r]
        for p in range(indptr[rows[r]], indptr[rows[r] + 1]):
            w[indices[p]] += weight * _value(values, p)


@njit(**CALLED)
def dot_rows(matrix: SparseRows, rows: Array, w: Array, out: Array) -> None:
    """out[r] = row[rows[r]] . w, with four sums side by side: one alone would wait for itself."""
    indptr, indices, values = matrix
    for r in range(rows.size):
        p, stop = indptr[rows[r]], indptr[rows[r] + 1]
        a, b, c, d = 0.0, 0.0, 0.0, 0.0
        while p + _THREE < stop:
            a += _value(values, p) * w[indices[p]]
            b += _value(values, p + _ONE) * w[indices[p + _ONE]]
            c += _value(values, p + _TWO) * w[indices[p + _TWO]]
            d += _value(values, p + _THREE) * w[indices[p + _THREE]]
            p += _FOUR
        while p < stop:
            a += _value(values, p) * w[indices[p]]
            p += _ONE
        out[r] = (a + b) + (c + d)


@njit(**CALLED)
def turn_rows(matrix: SparseRows, rows: Array, weights: Array, turned: SparseRows) -> None:
    """Write the transpose of the matrix with rows weights[r] row[rows[r]] to `turned`.

    Its pointers come in as zeros (uint64), one more than there are columns.
    """
    indptr, indices, values = matrix
    starts, places, entries = turned
    for r in range(rows.size):
        for p in range(indptr[rows[r]], indptr[rows[r] + 1]):
            starts[indices[p] + _ONE] += _ONE
    for c in range(1, starts.size):
        starts[c] += starts[c - 1]
    for r in range(rows.size):
        for p in range(indptr[rows[r]], indptr[rows[r] + 1]):
            # `starts` moves ahead as columns fill, and is moved back below.
            at = starts[indices[p]]
            starts[indices[p]] = at + _ONE
            places[at] = r
            entries[at] = weights[r] * _value(values, p)
    for c in range(starts.size - 1, 0, -1):
        starts[c] = starts[c - 1]
    starts[0] = 0


@njit(**CALLED)
def add_inner(
    matrix: SparseRows, rows: Array, weights: Array, turned: SparseRows, width: int, out: Array
) -> None:
    """out[r, s] += weights[r] row[rows[r]] . (row s of what `turn_rows` wrote) for s < width.

    Costs one step for each pair of entries in the same column.
    """
    indptr, indices, values = matrix
    starts, places, entries = turned
    for r in range(rows.size):
        target = out[r]
        for p in range(indptr[rows[r]], indptr[rows[r] + 1]):
            factor = weights[r] * _value(values, p)
            for q in range(starts[indices[p]], starts[indices[p] + _ONE]):
                s = places[q]
                if s >= width:
                    break
                target[s] += factor * entries[q]
