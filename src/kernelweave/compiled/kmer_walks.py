"""From sequences and their coefficients to weights of k-mers, and to sums of these weights.

The weighted degree kernel walks along the positions of all sequences together. The spectrum kernel
reads one sequence after the other, in the form of `kernelweave.compiled.kmers`.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from kernelweave.arrays import AnyArray as Array
from kernelweave.compiled.kmer_tables import (
    Entries,
    Layout,
    Tables,
    build_tables,
    empty_tables,
    layout_of,
    look_below,
    look_up,
    look_up_lengths,
    prefix,
    roll_letter,
)
from kernelweave.compiled.kmers import AMBIGUOUS, Kmers

__all__ = ["list_kmers", "look_up_sequences", "walk"]

_ONE = np.int64(1)


@njit(cache=True, nogil=True)
def walk(
    letters: Array,
    known: Array,
    amounts: Array,
    bits: int,
    depth: int,
    factors: Array,
    window_of: Array,
    row_of: Array,
    steps: Array,
    by_length: bool,
    bottom: int,
    top: int,
    place: int,
    out: Array,
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
    layout = layout_of(bits, degree, depth, 1)
    tables = empty_tables(np.zeros(layout[-1][-1]), layout, many)
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
        _, tables = build_tables(entries, layout, weights, tables)
        look = words, valids, length - at, layout
        if by_length:
            look_up_lengths(*look, tables, noted, out[row_of[at], :, place : place + n])
        else:
            look_up(*look, sums, tables, noted, out[row_of[at], 0, place : place + n])


@njit(cache=True, nogil=True)
def list_kmers(letters: Array, row_starts: Array, delta: Array, kmers: Kmers) -> Entries:
    """Return all k-mers, with the amount delta[i] for those of sequence i.

    An entry counts for all lengths up to its own. If both strands count as one, the table holds
    both with the same weight, and sequences are looked up as they are; on the other strand a k-mer
    may count while its longer or shorter prefixes do not, which takes several entries.
    """
    shortest, longest, bits, pairs, start, stop = kmers
    down, up, one = np.uint64(bits), np.uint64(64 - bits), np.uint64(1)
    room = (row_starts[-1] - row_starts[0]) * (longest - shortest + 2 if pairs.size else 1)
    words, valids, amounts = np.empty(room, np.uint64), np.empty(room, np.uint8), np.empty(room)
    n = 0
    for i in range(delta.size):
        first = row_starts[i]
        end = min(row_starts[i + 1] - first, stop + longest - 1)
        for other in range(2 if pairs.size else 1):
            word, code, valid = np.uint64(0), np.uint64(0), 0
            for step in range(end - start):
                at = start + step if other else end - 1 - step
                letter = letters[first + at]
                valid = 0 if letter == AMBIGUOUS else min(valid + 1, longest)
                low, lowest = valid, valid
                if other:
                    # K-mers that end here; `code` has them as they are on the first strand.
                    code = (code << down) | np.uint64(letter)
                    letter = pairs[letter] if valid else letter
                    low, lowest = max(shortest, at - stop + 2), shortest
                word = (word >> down) | (np.uint64(letter) << up)
                if valid < shortest or (not other and at >= stop):
                    continue
                longer = 0.0
                for k in range(valid, lowest - 1, -1):
                    amount = delta[i] if k >= low else 0.0
                    # One that is its own reverse complement counts on the first strand alone.
                    ending = code & ((one << np.uint64(bits * k)) - one)
                    if other and np.uint64(prefix(word, bits, k)) == ending:
                        amount = 0.0
                    if amount != longer:
                        words[n], valids[n], amounts[n] = word, k, amount - longer
                        n += 1
                        longer = amount
    return words[:n], valids[:n], amounts[:n]


@njit(cache=True, nogil=True)
def look_up_sequences(
    letters: Array,
    row_starts: Array,
    first: int,
    last: int,
    kmers: Kmers,
    layout: Layout,
    sums: Array,
    tables: Tables,
    out: Array,
) -> None:
    """Add up the values of the k-mers of sequences first ... last - 1, of all lengths."""
    shortest, longest, bits, _, start, stop = kmers
    levels, starts = tables[0], layout[-1]
    depth = starts.size - 2
    table = levels[starts[depth] :]
    tagged = table.view(np.int64)
    down, up, over = np.uint64(bits), np.uint64(64 - bits), np.uint64(64 - bits * depth)
    longest_row = 0
    for i in range(first, last):
        longest_row = max(longest_row, row_starts[i + 1] - row_starts[i])
    words, valids = np.empty(longest_row, np.uint64), np.empty(longest_row, np.uint8)
    noted, found = np.arange(longest_row), np.empty(longest_row)
    for i in range(first, last):
        row = letters[row_starts[i] : row_starts[i + 1]]
        word, valid, total, count = np.uint64(0), 0, 0.0, 0
        for at in range(min(row.size, stop + longest - 1) - 1, start - 1, -1):
            word = (word >> down) | (np.uint64(row[at]) << up)
            valid = min(valid + 1, longest) if row[at] != AMBIGUOUS else 0
            if at >= stop:
                continue
            if valid >= depth:
                u = word >> over
                if depth >= shortest:
                    total += table[u]
                if valid > depth and tagged[u] & _ONE:
                    words[count], valids[count], found[count] = word, valid, 0.0
                    count += 1
            elif valid >= shortest:
                total += levels[starts[valid] + prefix(word, bits, valid)]
        if count:
            here = noted[:count]
            look_below(here, words, valids, layout, sums, tables, found)
            total += found[:count].sum()
        out[i - first] = total
