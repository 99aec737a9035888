r"""Sparse weights over k-mers at positions: one trie for each position, in flat arrays.

The weighted degree kernel has one feature for every position, length and k-mer. A weight vector
over them is kept as one trie for each position l. The first `depth` letters of a sequence from l on
are the index of a table; below it, an inner node has one child for each letter, and a leaf holds
the few sequences that went there, to be compared as 64-bit words: the number of equal leading bits
says how many letters agree. The value of a prefix is the sum over the lengths 1 ... its own, so a
walk adds up all lengths by reading one number, and one more for each sequence of the leaf. Most
walks end at the table: those that go on are noted first and done afterwards, so that the loop over
all sequences has nothing to branch on.

Letters are read from the last position to the first. A word holds the letters from l on, the first
of them in the highest bits, so that the word of position l is that of l + 1 moved by one letter.
`valid` is the number of letters from l on until the first that matches nothing, at most the degree.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from kernelweave.compiled.bits import leading_zeros

__all__ = [
    "build_tables",
    "empty_tables",
    "look_up",
    "look_up_lengths",
    "node_room",
    "roll_letter",
    "table_starts",
]

# What `build_tables` writes.
Tables = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]

_AMBIGUOUS = 255
_WORD = np.uint64(64)
_ONE = np.int64(1)
# A node with more sequences than this becomes an inner one.
_LEAF = 8


@njit(cache=True, nogil=True)
def table_starts(bits: int, depth: int) -> np.ndarray:
    """Where the values of the prefixes of 0, 1, ..., `depth` letters begin, and where they end."""
    starts = np.zeros(depth + 2, np.int64)
    for k in range(depth + 1):
        starts[k + 1] = starts[k] + (_ONE << (bits * k))
    return starts


@njit(cache=True, nogil=True)
def node_room(bits: int, depth: int, degree: int, count: int) -> int:
    """Most nodes that the trie of so many sequences can have."""
    split = count // (_LEAF + 1) * (degree - depth)
    return (1 << (bits * depth)) + (split << bits)


@njit(cache=True, nogil=True)
def empty_tables(bits: int, degree: int, starts: np.ndarray, count: int) -> Tables:
    """Room for what `build_tables` writes for so many sequences."""
    room = node_room(bits, starts.size - 2, degree, count)
    return (
        np.empty(starts[-1]),
        np.empty(room, np.int32),
        np.empty((room, 2), np.int32),
        np.empty(room),
        np.empty(count, np.uint64),
        np.empty(count, np.uint8),
        np.empty(count),
    )


@njit(cache=True, nogil=True)
def roll_letter(
    letters: np.ndarray, bits: int, degree: int, words: np.ndarray, valids: np.ndarray
) -> None:
    """Put one more letter in front of the words of some sequences."""
    down, up = np.uint64(bits), np.uint64(64 - bits)
    for i in range(words.size):
        # An ambiguous letter fills all bits; `valid` keeps it from ever being compared.
        words[i] = (words[i] >> down) | (np.uint64(letters[i]) << up)
    for i in range(words.size):
        longer = min(valids[i] + 1, degree)
        valids[i] = 0 if letters[i] == _AMBIGUOUS else longer


@njit(cache=True, nogil=True)
def _prefix(word: np.uint64, bits: int, length: int) -> int:
    """The first letters of a word (at least one) as a number."""
    return np.int64(word >> np.uint64(64 - bits * length))  # type: ignore[return-value]


@njit(cache=True, nogil=True)
def _fill_levels(
    words: np.ndarray,
    valids: np.ndarray,
    amounts: np.ndarray,
    bits: int,
    starts: np.ndarray,
    steps: np.ndarray,
    levels: np.ndarray,
) -> None:
    """Write the value of every prefix that has a place in the table.

    With `steps` (the weight of each length) it is the sum over the lengths up to its own;
    without, the sum of the amounts of the sequences that have it.
    """
    levels[:] = 0.0
    depth = starts.size - 2
    for e in range(words.size):
        k = min(valids[e], depth)
        if k > 0:
            levels[starts[k] + _prefix(words[e], bits, k)] += amounts[e]
    for k in range(depth, 1, -1):
        here, below = levels[starts[k] : starts[k + 1]], levels[starts[k - 1] : starts[k]]
        for u in range(here.size):
            below[u >> bits] += here[u]
    if steps.size:
        for k in range(1, depth + 1):
            here, below = levels[starts[k] : starts[k + 1]], levels[starts[k - 1] : starts[k]]
            for u in range(here.size):
                here[u] = below[u >> bits] + steps[k - 1] * here[u]


@njit(cache=True, nogil=True)
def build_tables(
    words: np.ndarray,
    valids: np.ndarray,
    amounts: np.ndarray,
    bits: int,
    degree: int,
    starts: np.ndarray,
    steps: np.ndarray,
    tables: Tables,
) -> int:
    """Write the trie of one position and return the number of its nodes.

    `tables` is (levels, kids, ranges, values, leaf_words, leaf_valids, leaf_amounts): the values
    of all prefixes that have a place in the table, the nodes (`node_room` of them), and as many
    leaf entries as there are sequences. The first nodes are the longest prefixes of the table. Node
    v has the children kids[v], kids[v] + 1, ... (one for each letter; -1: it is a leaf) and the
    sequences ranges[v, 0] ... ranges[v, 1] - 1 of the leaf arrays: those that go on.
    """
    levels, kids, ranges, values, leaf_words, leaf_valids, leaf_amounts = tables
    _fill_levels(words, valids, amounts, bits, starts, steps, levels)
    depth = starts.size - 2
    top = starts[depth + 1] - starts[depth]
    kids[:top] = -1
    values[:top] = levels[starts[depth] : starts[depth + 1]]
    ranges[:top, :] = 0
    for e in range(words.size):
        if valids[e] > depth:
            ranges[_prefix(words[e], bits, depth), 1] += 1
    at = 0
    for u in range(top):
        ranges[u, 0] = at
        at += ranges[u, 1]
        ranges[u, 1] = ranges[u, 0]
    for e in range(words.size):
        if valids[e] > depth:
            u = _prefix(words[e], bits, depth)
            at = ranges[u, 1]
            ranges[u, 1] += 1
            leaf_words[at], leaf_valids[at], leaf_amounts[at] = words[e], valids[e], amounts[e]
    _tag(levels[starts[depth] :], ranges)
    return _split_nodes(bits, degree, depth, steps, top, tables)


@njit(cache=True, nogil=True)
def _tag(table: np.ndarray, ranges: np.ndarray) -> None:
    """Say in the last bit of a value whether sequences go on from there.

    One number read instead of two; what it costs is the last bit of a sum.
    """
    tagged = table.view(np.int64)
    for u in range(table.size):
        tagged[u] = (tagged[u] & ~_ONE) | np.int64(ranges[u, 0] != ranges[u, 1])


@njit(cache=True, nogil=True)
def _note(
    words: np.ndarray,
    valids: np.ndarray,
    depth: int,
    up: np.uint64,
    table: np.ndarray,
    noted: np.ndarray,
    out: np.ndarray,
) -> int:
    """Add the table's value to `out`, list the sequences that go on, and return how many."""
    tagged = table.view(np.int64)
    count = np.int64(0)
    for i in range(words.size):
        u = words[i] >> up
        out[i] += table[u]
        noted[count] = i
        count += (tagged[u] & _ONE) & np.int64(valids[i] > depth)
    return int(count)


@njit(cache=True, nogil=True)
def _split_nodes(
    bits: int,
    degree: int,
    depth: int,
    steps: np.ndarray,
    used: int,
    tables: Tables,
) -> int:
    """Give children to nodes of many sequences, level by level; return the number of nodes."""
    _, kids, ranges, values, leaf_words, leaf_valids, leaf_amounts = tables
    size = 1 << bits
    first, last = 0, used
    while depth < degree and first < last:
        for node in range(first, last):
            start, stop = ranges[node, 0], ranges[node, 1]
            if stop - start <= _LEAF:
                continue
            kids[node] = used
            old_words = leaf_words[start:stop].copy()
            old_valids = leaf_valids[start:stop].copy()
            old_amounts = leaf_amounts[start:stop].copy()
            at = start
            for letter in range(size):
                child = used + letter
                kids[child] = -1
                ranges[child, 0] = at
                total = 0.0
                for e in range(old_words.size):
                    if _prefix(old_words[e], bits, depth + 1) & (size - 1) != letter:
                        continue
                    total += old_amounts[e]
                    if old_valids[e] > depth + 1:
                        leaf_words[at] = old_words[e]
                        leaf_valids[at] = old_valids[e]
                        leaf_amounts[at] = old_amounts[e]
                        at += 1
                ranges[child, 1] = at
                values[child] = values[node] + steps[depth] * total if steps.size else total
            used += size
        first, last = last, used
        depth += 1
    return used


@njit(cache=True, nogil=True)
def _short_ones(valids: np.ndarray, depth: int, found: np.ndarray) -> int:
    """List the sequences with fewer than `depth` valid letters, and return how many."""
    count = np.int64(0)
    for i in range(valids.size):
        found[count] = i
        count += np.int64(valids[i] < depth)
    return int(count)


@njit(cache=True, nogil=True)
def look_up(
    words: np.ndarray,
    valids: np.ndarray,
    letters_left: int,
    bits: int,
    shared: np.ndarray,
    starts: np.ndarray,
    sums: np.ndarray,
    tables: Tables,
    noted: np.ndarray,
    out: np.ndarray,
) -> None:
    """out[i] += the value of sequence i at one position, all lengths added up.

    letters_left is the number of letters from the position to the end; shared[z] the number of
    equal letters of two words with z equal leading bits; sums[t] the sum of the weights of lengths
    1 ... t. `noted` has room for one number a sequence.
    """
    levels, kids, ranges, values, leaf_words, leaf_valids, leaf_amounts = tables
    depth = min(starts.size - 2, letters_left)
    table, up = levels[starts[depth] :], np.uint64(64 - bits * depth)
    short = _short_ones(valids, depth, noted)
    for s in range(short):
        # What the loop below is going to add is taken off first.
        i, far = noted[s], valids[noted[s]]
        if far > 0:
            out[i] += levels[starts[far] + _prefix(words[i], bits, far)]
        out[i] -= table[words[i] >> up]
    count = _note(words, valids, depth, up, table, noted, out)
    mask = (1 << bits) - 1
    for s in range(count):
        i = noted[s]
        mine, far = words[i], valids[i]
        node, deep = _prefix(mine, bits, depth), depth
        found = 0.0
        while kids[node] >= 0 and far > deep:
            deep += 1
            node = kids[node] + (_prefix(mine, bits, deep) & mask)
        if deep > depth:
            found = values[node] - table[mine >> up]
        if far > deep:
            for e in range(ranges[node, 0], ranges[node, 1]):
                t = min(shared[leading_zeros(leaf_words[e] ^ mine)], far, leaf_valids[e])
                if t > deep:
                    found += leaf_amounts[e] * (sums[t] - sums[deep])
        out[i] += found


@njit(cache=True, nogil=True)
def look_up_lengths(
    words: np.ndarray,
    valids: np.ndarray,
    letters_left: int,
    bits: int,
    shared: np.ndarray,
    starts: np.ndarray,
    tables: Tables,
    noted: np.ndarray,
    out: np.ndarray,
) -> None:
    """out[k, i] += the value of sequence i at one position, length k + 1 alone.

    The tables are those of `build_tables` without steps. Otherwise as `look_up`.
    """
    levels, kids, ranges, values, leaf_words, leaf_valids, leaf_amounts = tables
    depth = min(starts.size - 2, letters_left)
    for k in range(1, depth):
        table, up, row = levels[starts[k] :], np.uint64(64 - bits * k), out[k - 1]
        for i in range(words.size):
            row[i] += table[words[i] >> up] if valids[i] >= k else 0.0
    table, up, row = levels[starts[depth] :], np.uint64(64 - bits * depth), out[depth - 1]
    for s in range(_short_ones(valids, depth, noted)):
        row[noted[s]] -= table[words[noted[s]] >> up]
    count = _note(words, valids, depth, up, table, noted, row)
    mask = (1 << bits) - 1
    for s in range(count):
        i = noted[s]
        mine, far = words[i], valids[i]
        node, deep = _prefix(mine, bits, depth), depth
        while kids[node] >= 0 and far > deep:
            deep += 1
            node = kids[node] + (_prefix(mine, bits, deep) & mask)
            out[deep - 1, i] += values[node]
        if far > deep:
            for e in range(ranges[node, 0], ranges[node, 1]):
                t = min(shared[leading_zeros(leaf_words[e] ^ mine)], far, leaf_valids[e])
                for k in range(deep, t):
                    out[k, i] += leaf_amounts[e]
