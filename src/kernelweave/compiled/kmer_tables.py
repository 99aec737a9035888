r"""Sparse weights over k-mers of several lengths: a table with a trie below it, in flat arrays.

The first `depth` letters of a k-mer are the index of a table; below it, an inner node has one child
for each letter, and a leaf holds the few k-mers that went there, to be compared as 64-bit words:
the number of equal leading bits says how many letters agree. The value of a prefix is the sum over
the lengths up to its own, so that all lengths are added up by reading one number, and one more for
each k-mer of the leaf. A table as deep as the k-mers are long is an array of all of them.

The spectrum kernel has one feature for every length and k-mer, and so one table. The weighted
degree kernel has one for every position, length and k-mer, and so one table for each position. It
walks along the positions of all sequences together; the spectrum kernel reads one sequence after
the other (`kernelweave.compiled.kmers`).

In a walk letters are read from the last position to the first. A word holds the letters from a
position on, the first of them in the highest bits, so that the word of position l is that of l + 1
moved by one letter. `valid` is the number of letters until the first that matches nothing, at most
the degree.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from kernelweave.arrays import Array
from kernelweave.compiled import CALLED
from kernelweave.compiled.intrinsics import leading_zeros
from kernelweave.compiled.kmers import AMBIGUOUS, Entries, Layout, Words

# A node with more sequences than this becomes an inner one.
_LEAF = 8

# (layout, sums, levels, nodes, values, leaves): sums[t] is the sum of the weights of lengths 1 to t
# (empty: the lengths are kept apart), `levels` the values of all prefixes that have a place in the
# table, then the nodes of the trie, the values of those below the table, and entries for as many
# k-mers as there are. The first `top` nodes are the longest prefixes of the table, and node v below
# has the value values[v - top]. A leaf v has the entries nodes[v, 0] ... nodes[v, 1] - 1: k-mers
# that go on from there. If nodes[v, 0] is negative, v has children, one for each letter, from
# -1 - nodes[v, 0] on.
Tables = tuple[Layout, Array, Array, Array, Array, Entries]
# What a walk along positions counts, (factors, window_of, sums): equal k-mers that are 0, 1, ...,
# shift positions apart count as `factors` say, if `window_of` is the same for both; and all lengths
# up to t at position l as sums[l, t]. If `sums` has no columns the lengths are kept apart.
Rules = tuple[Array, Array, Array]


def layout_of(bits: int, degree: int, depth: int, shortest: int) -> Layout:
    """Return the layout of a table of `depth` letters.

    Prefixes that are shorter than the shortest k-mers have no place.
    """
    starts = np.zeros(depth + 2, np.int64)
    for k in range(min(shortest, depth), depth + 1):
        starts[k + 1] = starts[k] + (1 << (bits * k))
    return bits, degree, starts


@njit(**CALLED)
def empty_tables(layout: Layout, sums: Array, levels: Array, count: int) -> Tables:
    """Room for what `build_tables` writes for so many k-mers; that for more nodes grows there."""
    _, degree, starts = layout
    top = starts[-1] - starts[-2] if starts.size - 2 < degree else 0
    leaves = np.empty(count, np.uint64), np.empty(count, np.uint8), np.empty(count)
    return layout, sums, levels, np.empty((top, 2), np.int32), np.empty(0), leaves


@njit(**CALLED)
def roll_letter(letters: Array, bits: int, degree: int, some: Words) -> None:
    """Put one more letter in front of the words of some sequences."""
    words, valids = some
    down, up = np.uint64(bits), np.uint64(64 - bits)
    for i in range(words.size):
        # An ambiguous letter fills all bits; `valid` keeps it from ever being compared.
        words[i] = (words[i] >> down) | (np.uint64(letters[i]) << up)
    for i in range(words.size):
        longer = min(valids[i] + 1, degree)
        valids[i] = 0 if letters[i] == AMBIGUOUS else longer


@njit(**CALLED)
def _prefix(word: np.uint64, bits: int, length: int) -> int:
    """The first letters of a word (at least one) as a number."""
    return np.int64(word >> np.uint64(64 - bits * length))  # type: ignore[return-value]


@njit(**CALLED)
def add_amounts(entries: Entries, layout: Layout, levels: Array) -> None:
    """Add the amount of every k-mer at its longest prefix that has a place in the table."""
    bits, _, starts = layout
    words, valids, amounts = entries
    depth = starts.size - 2
    for e in range(words.size):
        k = min(valids[e], depth)
        if k > 0:
            levels[starts[k] + _prefix(words[e], bits, k)] += amounts[e]


@njit(**CALLED)
def sum_levels(layout: Layout, sums: Array, levels: Array) -> None:
    """Turn the amounts of `add_amounts` into values.

    With `sums` the value of a prefix is the sum over the lengths up to its own; without, the sum
    of the amounts of the k-mers that have it.
    """
    bits, _, starts = layout
    depth, shortest = starts.size - 2, 1
    while starts[shortest + 1] == starts[shortest]:
        shortest += 1
    for k in range(depth, shortest, -1):
        here, below = levels[starts[k] : starts[k + 1]], levels[starts[k - 1] : starts[k]]
        for u in range(here.size):
            below[u >> bits] += here[u]
    if sums.size:
        for u in range(starts[shortest + 1]):
            levels[u] *= sums[shortest]
        for k in range(shortest + 1, depth + 1):
            here, below = levels[starts[k] : starts[k + 1]], levels[starts[k - 1] : starts[k]]
            step = sums[k] - sums[k - 1]
            for u in range(here.size):
                here[u] = below[u >> bits] + step * here[u]


@njit(**CALLED)
def build_tables(entries: Entries, tables: Tables) -> tuple[int, Tables]:
    """Write the table of these k-mers and return the number of its nodes, and the table."""
    layout, sums, levels, _, _, _ = tables
    levels[:] = 0.0
    add_amounts(entries, layout, levels)
    sum_levels(layout, sums, levels)
    return build_nodes(entries, tables)


@njit(**CALLED)
def build_nodes(entries: Entries, tables: Tables) -> tuple[int, Tables]:
    """Write the nodes of `build_tables`, after the levels."""
    words, valids, amounts = entries
    (bits, degree, starts), _, _, nodes, _, leaves = tables
    leaf_words, leaf_valids, leaf_amounts = leaves
    if starts.size - 2 == degree:
        return 0, tables
    depth = starts.size - 2
    top = starts[depth + 1] - starts[depth]
    nodes[:top] = 0
    for e in range(words.size):
        if valids[e] > depth:
            nodes[_prefix(words[e], bits, depth), 1] += 1
    at = 0
    for u in range(top):
        nodes[u, 0] = at
        at += nodes[u, 1]
        nodes[u, 1] = nodes[u, 0]
    for e in range(words.size):
        if valids[e] > depth:
            u = _prefix(words[e], bits, depth)
            at = nodes[u, 1]
            nodes[u, 1] += 1
            leaf_words[at], leaf_valids[at], leaf_amounts[at] = words[e], valids[e], amounts[e]
    return _split_nodes(tables)


def trimmed(used: int, tables: Tables) -> Tables:
    """Return what `build_tables` returns without the room for nodes that is not used."""
    layout, sums, levels, nodes, values, leaves = tables
    values = values[: used - len(nodes) + len(values)].copy()
    return layout, sums, levels, nodes[:used].copy(), values, leaves


@njit(**CALLED)
def _split_nodes(tables: Tables) -> tuple[int, Tables]:
    """Give children to nodes of many k-mers, level by level; return as `build_tables` does."""
    layout, sums, levels, nodes, values, leaves = tables
    bits, degree, starts = layout
    leaf_words, leaf_valids, leaf_amounts = leaves
    depth = starts.size - 2
    table, size = levels[starts[depth] :], 1 << bits
    top = table.size
    first, last, used = 0, top, top
    while depth < degree:
        room = used
        for node in range(first, last):
            if nodes[node, 1] - nodes[node, 0] > _LEAF:
                room += size
        if room == used:
            break
        if room > nodes.shape[0]:
            more_nodes, more_values = np.empty((2 * room, 2), np.int32), np.empty(2 * room - top)
            # In loops: to assign slices takes seconds to compile.
            for node in range(used):
                more_nodes[node, 0], more_nodes[node, 1] = nodes[node, 0], nodes[node, 1]
            for node in range(used - top):
                more_values[node] = values[node]
            nodes, values = more_nodes, more_values
        for node in range(first, last):
            start, stop = nodes[node, 0], nodes[node, 1]
            if stop - start <= _LEAF:
                continue
            nodes[node, 0] = -1 - used
            above = values[node - top] if node >= top else table[node]
            old_words = leaf_words[start:stop].copy()
            old_valids = leaf_valids[start:stop].copy()
            old_amounts = leaf_amounts[start:stop].copy()
            step = sums[depth + 1] - sums[depth] if sums.size else 1.0
            if not sums.size:
                above = 0.0
            at = start
            for letter in range(size):
                child = used + letter
                nodes[child, 0] = at
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
                nodes[child, 1] = at
                values[child - top] = above + step * total
            used += size
        first, last = last, used
        depth += 1
    return used, (layout, sums, levels, nodes, values, leaves)


@njit(**CALLED)
def look_below(some: Words, tables: Tables, out: Array) -> None:
    """Add what lengths beyond those of the table add to the values of `look_up`."""
    words, valids = some
    (bits, _, starts), sums, levels, nodes, values, leaves = tables
    leaf_words, leaf_valids, leaf_amounts = leaves
    depth, apart = starts.size - 2, sums.size == 0
    table = levels[starts[depth] :]
    # Equal bits to equal letters: rounded up, this factor is as good as a division, up to 64 bits.
    mask, part = (1 << bits) - 1, -(-4096 // bits)
    # Those that go on are noted first, by a loop with nothing to branch on.
    noted, count = np.empty(words.size + 1, np.int32), np.int64(0)
    for i in range(words.size):
        node = _prefix(words[i], bits, depth)
        noted[count] = i
        count += np.int64(nodes[node, 0] != nodes[node, 1]) & np.int64(valids[i] > depth)
    for s in range(count):
        i = noted[s]
        mine, far = words[i], int(valids[i])
        top = node = _prefix(mine, bits, depth)
        deep, found = depth, 0.0
        while nodes[node, 0] < 0 and far > deep:
            deep += 1
            node = (_prefix(mine, bits, deep) & mask) - 1 - nodes[node, 0]
            if apart:
                out[deep - 1, i] += values[node - table.size]
        if deep > depth and not apart:
            found = values[node - table.size] - table[top]
        if far > deep:
            for e in range(nodes[node, 0], nodes[node, 1]):
                t = (leading_zeros(leaf_words[e] ^ mine) * part) >> 12
                if t > deep:
                    t = min(t, far, int(leaf_valids[e]))
                    if apart:
                        for k in range(deep, t):
                            out[k, i] += leaf_amounts[e]
                    else:
                        found += leaf_amounts[e] * (sums[t] - sums[deep])
        if not apart:
            out[0, i] += found


@njit(**CALLED)
def look_up(some: Words, tables: Tables, out: Array) -> None:
    """out[0, i] += the value of sequence i at one position, all lengths added up.

    If the tables keep the lengths apart, out[k, i] += that of length k + 1 alone.
    """
    words, valids = some
    (bits, _, starts), sums, levels, nodes, _, _ = tables
    depth = starts.size - 2
    if sums.size:
        for i in range(words.size):
            far = min(valids[i], depth)
            if far > 0:
                out[0, i] += levels[starts[far] + _prefix(words[i], bits, far)]
    else:
        for k in range(1, depth + 1):
            table, row = levels[starts[k] :], out[k - 1]
            for i in range(words.size):
                if valids[i] >= k:
                    row[i] += table[_prefix(words[i], bits, k)]
    if nodes.shape[0] > 0:
        look_below(some, tables, out)


@njit(**CALLED)
def walk(
    letters: Array,
    known: tuple[Array, Array],
    layout: Layout,
    rules: Rules,
    row_of: Array,
    part: tuple[int, int],
    out: Array,
) -> None:
    """Add to `out` what some positions, the first and the one after the last, contribute to K v.

    `letters` (L, n) are looked up; `known` are the letters (L, q) and the v of the others. Position
    `at` adds to row row_of[at] of `out` (rows, degree or 1, n), none if that is -1.
    """
    bits, degree, starts = layout
    factors, window_of, sums = rules
    others, amounts = known
    length, n = letters.shape
    size, shift = amounts.size, factors.size - 1
    some = np.zeros(n, np.uint64), np.zeros(n, np.uint8)
    own = np.zeros(size, np.uint64), np.zeros(size, np.uint8)
    ring = 2 * shift + 1
    ring_words, ring_valids = np.zeros((ring, size), np.uint64), np.zeros((ring, size), np.uint8)
    many = size * ring
    words, valids, shares = np.empty(many, np.uint64), np.empty(many, np.uint8), np.empty(many)
    here = np.empty(sums.shape[1])
    tables = empty_tables(layout, here, np.zeros(starts[-1]), many)
    bottom, top = part
    # A word needs the letters after its position: rolling begins where the first one ends.
    entered = min(top + shift + degree - 1, length)
    for at in range(min(top + degree - 1, length) - 1, bottom - 1, -1):
        roll_letter(letters[at], bits, degree, some)
        if at >= top or row_of[at] < 0:
            continue
        while entered > max(at - shift, 0):
            entered -= 1
            roll_letter(others[entered], bits, degree, own)
            turn = entered % ring
            for e in range(size):
                ring_words[turn, e], ring_valids[turn, e] = own[0][e], own[1][e]
        # What goes into the table: the k-mers of this position and those shifted to it.
        used = 0
        for there in range(max(at - shift, 0), min(at + shift + 1, length)):
            if window_of[there] != window_of[at]:
                continue
            turn, factor = there % ring, factors[abs(at - there)]
            # In a loop: to assign slices takes seconds to compile.
            for e in range(size):
                words[used + e], valids[used + e] = ring_words[turn, e], ring_valids[turn, e]
                shares[used + e] = factor * amounts[e]
            used += size
        for k in range(here.size):
            here[k] = sums[at, k]
        _, tables = build_tables((words[:used], valids[:used], shares[:used]), tables)
        look_up(some, tables, out[row_of[at]])
