r"""Sequences of equal length compared position by position, 64 positions at a time.

A sequence is stored as bit planes: word w of plane p holds bit p of the codes of letters
64 w ... 64 w + 63, and one more plane says which letters count at all. The positions at which two
sequences agree are then a few exclusive-ors. With :math:`M_1` the set of them,

.. math:: M_k = M_{k-1} \cap (M_{k-1} - 1)

is the set of positions at which a common k-mer starts, so the weighted degree kernel is
:math:`\sum_k w_k |M_k|`: the same number as the O(L) block form of Sonnenburg et al. (2006), which
adds a polynomial of the length of every run of matches.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from kernelweave.arrays import Array
from kernelweave.compiled import CALLED
from kernelweave.compiled.intrinsics import count_ones, leading_zeros
from kernelweave.compiled.kmers import AMBIGUOUS

_ONE = np.uint64(1)
_TOP = np.uint64(63)
_ZERO = np.uint64(0)
# Which sequences are compared with one: all, those up to it, or the one with the same number.
ALL, LOWER, SAME = 0, 1, 2
# Sequences compared at a time: loops over them become SIMD instructions.
_BLOCK = 64
# (allowed, read, weights, row_of): k-mers start where `allowed` (W,) has a bit; `read` has the bits
# of all their positions. Position `at` adds to the row row_of[at] of the result weights[at, t] of
# all lengths up to t. Empty `row_of` means that all positions add to row 0 and have the same
# weights, weights[0, k] for length k + 1.
Rules = tuple[Array, Array, Array, Array]


@njit(**CALLED)
def fill_planes(letters: Array, first: int, last: int, planes: Array) -> None:
    """Write the planes (P, W, n) of letters (L, n), for sequences first ... last - 1.

    The last plane says which letters count.
    """
    planes[:, :, first:last] = _ZERO
    bits = planes.shape[0] - 1
    for at in range(letters.shape[0]):
        w, b = at >> 6, np.uint64(at & 63)
        row = letters[at, first:last]
        for p in range(bits):
            target = planes[p, w, first:last]
            for i in range(row.size):
                target[i] |= ((np.uint64(row[i]) >> np.uint64(p)) & _ONE) << b
        target = planes[bits, w, first:last]
        for i in range(row.size):
            target[i] |= np.uint64(row[i] != AMBIGUOUS) << b


@njit(**CALLED)
def _shift_planes(planes: Array, i: int, shift: int, out: Array) -> None:
    """Move the letters of sequence i to positions lower by `shift` (or higher, if < 0): (P, W)."""
    width = planes.shape[1]
    for p in range(planes.shape[0]):
        for w in range(width):
            first = 64 * w + shift
            source, b = first >> 6, np.uint64(first & 63)
            word = planes[p, source, i] >> b if 0 <= source < width else _ZERO
            if b != _ZERO and 0 <= source + 1 < width:
                word |= planes[p, source + 1, i] << (np.uint64(64) - b)
            out[p, w] = word


@njit(**CALLED)
def _match(left: Array, right: Array, first: int, size: int, runs: Array) -> None:
    """Write M_1 of `left` and the sequences first ... first + size - 1 into runs (W, _BLOCK)."""
    last = left.shape[0] - 1
    for w in range(left.shape[1]):
        mine, theirs, target = left[last, w], right[last, w, first:], runs[w]
        for j in range(size):
            target[j] = mine & theirs[j]
        for p in range(last):
            mine, theirs = left[p, w], right[p, w, first:]
            for j in range(size):
                target[j] &= ~(mine ^ theirs[j])


@njit(**CALLED)
def _add_counts(size: int, runs: Array, allowed: Array, weights: Array, out: Array) -> None:
    """out[k, j] += weights[k] (number of common (k+1)-mers that start at an allowed position).

    For j < `size`; all lengths are added up in out[0] if there is no more. `runs` is M_1, and then
    M_2, M_3, ...
    """
    counts, last = np.empty(_BLOCK, np.int64), runs.shape[0] - 1
    for k in range(weights.size):
        some = _ZERO
        for j in range(size):
            counts[j] = 0
        for w in range(last + 1):
            here, mask = runs[w], allowed[w]
            for j in range(size):
                counts[j] += count_ones(here[j] & mask)
                some |= here[j]
            if w < last:
                after = runs[w + 1]
                for j in range(size):
                    here[j] &= (here[j] >> _ONE) | (after[j] << _TOP)
            else:
                for j in range(size):
                    here[j] &= here[j] >> _ONE
        if some == _ZERO:
            break
        target = out[k if out.shape[0] > 1 else 0]
        for j in range(size):
            target[j] += weights[k] * counts[j]


@njit(**CALLED)
def _add_places(
    size: int, runs: Array, rules: Rules, factor: float, out: Array, i: int, column: int
) -> None:
    """out[row_of[at], 0, i, column + j] += factor weights[at, t], t common letters from `at` on.

    If `out` has a row for each length, out[row_of[at], k, i, column + j] += factor for k < t.
    """
    allowed, read, weights, row_of = rules
    most, by_length = weights.shape[1] - 1, out.shape[1] > 1
    for j in range(size):
        after, length = -1, 0
        for w in range(runs.shape[0] - 1, -1, -1):
            word = runs[w, j] & read[w]
            while word != _ZERO:
                b = 63 - leading_zeros(word)
                word ^= _ONE << np.uint64(b)
                at = 64 * w + b
                length = min(length + 1, most) if at + 1 == after else 1
                after = at
                if (allowed[w] >> np.uint64(b)) & _ONE == _ZERO:
                    continue
                if by_length:
                    for k in range(length):
                        out[row_of[at], k, i, column + j] += factor
                else:
                    out[row_of[at], 0, i, column + j] += factor * weights[at, length]


@njit(**CALLED)
def add_common(
    left: Array,
    right: Array,
    rows: tuple[int, int],
    shift: int,
    rules: Rules,
    factor: float,
    columns: int,
    out: Array,
) -> None:
    """Add to `out` (rows, lengths or 1, q, n) what the k-mers count that two sequences share.

    i of `left`, from rows[0] to rows[1] - 1, its letters moved by `shift`; j of `right`: `ALL`,
    those up to i (`LOWER`), or i alone (`SAME`, written to column 0).
    """
    allowed, _, weights, row_of = rules
    moved = np.empty((left.shape[0], left.shape[1]), np.uint64)
    runs = np.empty((left.shape[1], _BLOCK), np.uint64)
    of_lengths = factor * weights[0]
    for i in range(rows[0], rows[1]):
        _shift_planes(left, i, shift, moved)
        begin = i if columns == SAME else 0
        upto = right.shape[2] if columns == ALL else i + 1
        for first in range(begin, upto, _BLOCK):
            size = min(_BLOCK, upto - first)
            _match(moved, right, first, size, runs)
            if row_of.size:
                _add_places(size, runs, rules, factor, out, i, first - begin)
            else:
                at = first - begin
                target = out[0, :, i, at : at + size]
                _add_counts(size, runs, allowed, of_lengths, target)
