"""The k-mers of sequences of any length as numbers: counted, listed, and looked up.

A sequence is an array of letters, each a small number; 255 stands for a letter that matches
nothing, and a k-mer that holds one is not counted. The code of a k-mer is its letters, `bits` bits
each, the first one highest, so that the k-mer one letter on takes a shift, and so does a shorter
one. Codes have at most 62 bits. Both strands count as one if `pairs` holds the letter that each
letter pairs with: a k-mer then stands under the lower of its own code and that of its reverse
complement. Empty `pairs` mean that there is one strand.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from kernelweave.arrays import Array
from kernelweave.compiled import CALLED

# Code of a letter that stands for several or for none: it matches nothing, not even itself.
AMBIGUOUS = 255
# Which k-mers of a sequence are read, (shortest, longest, bits, pairs, start, stop): those of these
# lengths that start at the positions ``start <= p < stop``.
Kmers = tuple[int, int, int, Array, int, int]

# Plain tuples, because Python code takes several times longer to hand over named ones.
# What is read at a position of some sequences: words, with the first letter in the highest bits,
# and how many letters of each are valid.
Words = tuple[Array, Array]
# K-mers as words, how many of the letters of each are valid, and what each adds.
Entries = tuple[Array, Array, Array]
# Bits of a letter, the longest k-mers, and `starts`: the values of prefixes of k letters are from
# starts[k] to starts[k + 1] - 1 of the table, for k up to its depth.
Layout = tuple[int, int, Array]


@njit(**CALLED)
def _kmer_codes(letters: Array, k: int, kmers: Kmers, out: Array) -> int:
    """Write the code of the k-mer at every position from `start` on, -1 where none counts.

    Returns the number of positions.
    """
    _, _, bits, pairs, start, stop = kmers
    stop = min(stop, letters.size - k + 1)
    if stop <= start:
        return 0
    mask, top = (1 << (bits * k)) - 1, bits * (k - 1)
    both = pairs.size > 0
    code, back, run = 0, 0, 0
    for at in range(start, stop + k - 1):
        letter = letters[at]
        # What is left of letters before an ambiguous one is shifted out before it counts.
        run = 0 if letter == AMBIGUOUS else run + 1
        code = ((code << bits) | letter) & mask
        if both:
            pair = pairs[letter] if letter != AMBIGUOUS else 0
            back = (back >> bits) | (pair << top)
        place = at - k + 1 - start
        if place >= 0:
            if run < k:
                out[place] = -1
            else:
                out[place] = min(code, back) if both else code
    return stop - start


@njit(**CALLED)
def longest_runs(letters: Array, starts: Array, out: Array) -> None:
    """Raise out[p] to the number of letters before the next ambiguous one, from position p on."""
    for i in range(starts.size - 1):
        run = 0
        for at in range(starts[i + 1] - 1, starts[i] - 1, -1):
            run = 0 if letters[at] == AMBIGUOUS else run + 1
            out[at - starts[i]] = max(out[at - starts[i]], run)


@njit(**CALLED)
def _sort_codes(codes: Array, width: int, out: Array) -> Array:
    """Return the codes (of `width` bits) that are not negative, ascending.

    Sorted by each byte in turn from the lowest one up, which is several times quicker than a
    general sort. `out` is scratch space for as many codes.
    """
    heads = np.empty(257, np.int64)
    known = 0
    for p in range(codes.size):
        if codes[p] >= 0:
            codes[known] = codes[p]
            known += 1
    codes, out = codes[:known], out[:known]
    for shift in range(0, width, 8):
        heads[:] = 0
        for code in codes:
            heads[((code >> shift) & 255) + 1] += 1
        for b in range(1, 256):
            heads[b] += heads[b - 1]
        for code in codes:
            byte = (code >> shift) & 255
            out[heads[byte]] = code
            heads[byte] += 1
        codes, out = out, codes
    return codes


@njit(**CALLED)
def count_kmers(
    letters: Array,
    starts: Array,
    first: int,
    last: int,
    kmers: Kmers,
    offsets: Array,
    columns: Array,
    counts: Array,
    sizes: Array,
) -> int:
    """Count the k-mers of sequences first ... last - 1, of all lengths.

    Sequence i gets the next ``sizes[i - first]`` entries of `columns` (ascending) and `counts`;
    k-mers of length ``shortest + j`` have the columns ``offsets[j] + code``. Returns the number of
    entries, at most one for each k-mer.
    """
    shortest, _, bits, _, _, _ = kmers
    longest_row = 0
    for i in range(first, last):
        longest_row = max(longest_row, starts[i + 1] - starts[i])
    codes = np.empty(longest_row, np.int64)
    ordered = np.empty(longest_row, np.int64)
    at = 0
    for i in range(first, last):
        row = letters[starts[i] : starts[i + 1]]
        begin = at
        for j in range(offsets.size):
            k = shortest + j
            n = _kmer_codes(row, k, kmers, codes)
            previous = -1
            for code in _sort_codes(codes[:n], bits * k, ordered):
                if code == previous:
                    counts[at - 1] += 1.0
                else:
                    previous = code
                    columns[at] = offsets[j] + code
                    counts[at] = 1.0
                    at += 1
        sizes[i - first] = at - begin
    return at


@njit(**CALLED)
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
                    if other and word >> np.uint64(64 - bits * k) == ending:
                        amount = 0.0
                    if amount != longer:
                        words[n], valids[n], amounts[n] = word, k, amount - longer
                        n += 1
                        longer = amount
    return words[:n], valids[:n], amounts[:n]


@njit(**CALLED)
def look_up_sequences(
    letters: Array,
    row_starts: Array,
    kmers: Kmers,
    layout: Layout,
    levels: Array,
    nodes: Array,
    out: Array,
) -> tuple[Words, Array]:
    """Write the sum of the table's values for each sequence, over k-mers of all lengths.

    Without `nodes` nothing goes on below the table. Returns the k-mers that do, and the sequence of
    each.
    """
    shortest, longest, bits, _, start, stop = kmers
    starts = layout[-1]
    depth, below = starts.size - 2, nodes.shape[0] > 0
    table, over = levels[starts[depth] :], np.uint64(64 - bits * depth)
    down, up = np.uint64(bits), np.uint64(64 - bits)
    room = row_starts[-1] - row_starts[0] if below else 0
    words, valids = np.empty(room, np.uint64), np.empty(room, np.uint8)
    rows = np.empty(room, np.int64)
    count = 0
    for i in range(out.size):
        row = letters[row_starts[i] : row_starts[i + 1]]
        word, valid, total = np.uint64(0), 0, 0.0
        for at in range(min(row.size, stop + longest - 1) - 1, start - 1, -1):
            word = (word >> down) | (np.uint64(row[at]) << up)
            valid = 0 if row[at] == AMBIGUOUS else min(valid + 1, longest)
            if valid < shortest or at >= stop:
                continue
            if valid < depth:
                total += levels[starts[valid] + np.int64(word >> np.uint64(64 - bits * valid))]
                continue
            u = word >> over
            total += table[u]
            if below and valid > depth and nodes[u, 0] != nodes[u, 1]:
                words[count], valids[count], rows[count] = word, valid, i
                count += 1
        out[i] = total
    return (words[:count], valids[:count]), rows[:count]
