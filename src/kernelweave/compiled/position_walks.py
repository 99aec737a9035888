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
def _entries(
    at: int,
    factors: np.ndarray,
    window_of: np.ndarray,
    ring_words: np.ndarray,
    ring_valids: np.ndarray,
    amounts: np.ndarray,
    words: np.ndarray,
    valids: np.ndarray,
    weighed: np.ndarray,
) -> int:
    """Gather what goes into the table of a position: its own k-mers and those shifted to it."""
    size = amounts.size
    shift = factors.size - 1
    used = 0
    for there in range(max(at - shift, 0), min(at + shift + 1, window_of.size)):
        if window_of[there] != window_of[at]:
            continue
        factor = factors[abs(at - there)]
        turn = there % ring_words.shape[0]
        # In a loop: to assign slices takes seconds to compile.
        for e in range(size):
            words[used + e], valids[used + e] = ring_words[turn, e], ring_valids[turn, e]
            weighed[used + e] = factor * amounts[e]
        used += size
    return used


@njit(cache=True, nogil=True)
def walk(
    letters: np.ndarray,
    known: np.ndarray,
    amounts: np.ndarray,
    bits: int,
    depth: int,
    factors: np.ndarray,
    shared: np.ndarray,
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
        The sequences looked up.
    known : ndarray of uint8, shape (L, q)
        The sequences that v belongs to.
    amounts : ndarray of shape (q,)
        v.
    bits, depth : int
        Bits of a letter; letters that index the tables.
    factors : ndarray of shape (shift + 1,)
        What k-mers count that are 0, 1, ..., shift positions apart.
    shared : ndarray of shape (65,)
        Equal letters of two words by their number of equal leading bits.
    window_of : ndarray of int, shape (L,)
        k-mers at different positions only count within one window.
    row_of : ndarray of int, shape (L,)
        Row of `out` for each position; -1 leaves it out.
    steps : ndarray of shape (L, degree)
        Weight of each length at each position.
    by_length : bool
        Whether `out` has one row for each length (unweighted: `steps` only gives the degree).
    bottom, top : int
        The positions.
    place : int
        Where the sequences looked up begin in `out`.
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
    tables = empty_tables(starts, degree, many)
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
        used = _entries(
            at,
            factors,
            window_of,
            ring_words,
            ring_valids,
            amounts,
            in_words,
            in_valids,
            in_amounts,
        )
        if not by_length:
            weights = steps[at]
            for k in range(degree):
                sums[k + 1] = sums[k] + weights[k]
        entries = in_words[:used], in_valids[:used], in_amounts[:used]
        _, tables = build_tables(*entries, bits, degree, starts, weights, tables)
        look = words, valids, length - at, bits, shared, starts
        if by_length:
            look_up_lengths(*look, tables, noted, out[row_of[at], :, place : place + n])
        else:
            look_up(*look, sums, tables, noted, out[row_of[at], 0, place : place + n])
