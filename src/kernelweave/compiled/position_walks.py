"""From sequences and their coefficients to K v, position by position."""

from __future__ import annotations

import numpy as np
from numba import njit

from kernelweave.compiled.position_tables import (
    build_tables,
    empty_tables,
    look_up,
    look_up_lengths,
    roll_letter,
    table_starts,
)

__all__ = ["walk"]


@njit(cache=True, nogil=True)
def walk(
    letters: np.ndarray,
    known: np.ndarray,
    amounts: np.ndarray,
    bits: int,
    depth: int,
    factors: np.ndarray,
    window_of: np.ndarray,
    row_of: np.ndarray,
    steps: np.ndarray,
    by_length: bool,
    bottom: int,
    top: int,
    place: int,
    out: np.ndarray,
) -> None:
    """Add to `out` what positions bottom ... top - 1 contribute to K v, for all sequences.

    Parameters
    ----------
    letters : ndarray of uint8, shape (L, n)
        The sequences looked up, from column `place` of `out` on.
    known, amounts : ndarrays of shape (L, q) and (q,)
        The sequences that v belongs to, and v.
    bits, depth : int
        Bits of a letter; letters that index the tables.
    factors : ndarray of shape (shift + 1,)
        What k-mers count that are 0, 1, ..., shift positions apart, within one window.
    window_of, row_of : ndarrays of int, shape (L,)
        The window of each position, and its row of `out`; -1 leaves it out.
    steps : ndarray of shape (L, degree)
        Weight of each length at each position.
    by_length : bool
        Whether `out` has one row for each length (unweighted: `steps` only gives the degree).
    out : ndarray of shape (rows, degree or 1, at least place + n)
        The sums.
    """
    length, degree = steps.shape
    n, size = letters.shape[1], amounts.size
    words, valids = np.zeros(n, np.uint64), np.zeros(n, np.uint8)
    noted = np.empty(n + 1, np.int32)
    own_words, own_valids = np.zeros(size, np.uint64), np.zeros(size, np.uint8)
    shift = factors.size - 1
    ring = 2 * shift + 1
    ring_words, ring_valids = np.zeros((ring, size), np.uint64), np.zeros((ring, size), np.uint8)
    many = size * ring
    in_words, in_valids = np.empty(many, np.uint64), np.empty(many, np.uint8)
    in_amounts = np.empty(many)
    starts = table_starts(bits, depth, 1)
    tables = empty_tables(np.zeros(starts[-1]), starts, degree, many)
    weights, sums = np.empty(0), np.zeros(degree + 1)
    # A word needs the letters after its position: rolling begins where the first one ends.
    entered = min(top + shift + degree - 1, length)
    for at in range(min(top + degree - 1, length) - 1, bottom - 1, -1):
        roll_letter(letters[at], bits, degree, words, valids)
        if at >= top or row_of[at] < 0:
            continue
        while entered > max(at - shift, 0):
            entered -= 1
            roll_letter(known[entered], bits, degree, own_words, own_valids)
            turn = entered % ring
            for e in range(size):
                ring_words[turn, e], ring_valids[turn, e] = own_words[e], own_valids[e]
        # What goes into the table: the k-mers of this position and those shifted to it.
        used = 0
        for there in range(max(at - shift, 0), min(at + shift + 1, length)):
            if window_of[there] != window_of[at]:
                continue
            turn, factor = there % ring, factors[abs(at - there)]
            # In a loop: to assign slices takes seconds to compile.
            for e in range(size):
                in_words[used + e], in_valids[used + e] = ring_words[turn, e], ring_valids[turn, e]
                in_amounts[used + e] = factor * amounts[e]
            used += size
        if not by_length:
            weights = steps[at]
            for k in range(degree):
                sums[k + 1] = sums[k] + weights[k]
        entries = in_words[:used], in_valids[:used], in_amounts[:used]
        _, tables = build_tables(*entries, bits, degree, starts, weights, tables)
        look = words, valids, length - at, bits, starts
        if by_length:
            look_up_lengths(*look, tables, noted, out[row_of[at], :, place : place + n])
        else:
            look_up(*look, sums, tables, noted, out[row_of[at], 0, place : place + n])
