"""Weights of k-mers of several lengths in a trie: one walk meets all lengths.

Node 0 is the root. ``children[node, letter]`` is the node one letter on, 0 if there is none, and
``w[node]`` the weight of the k-mer that leads there. Nodes are numbered as they come, so a child's
number is above its parent's. Sequences, `pairs` and positions are those of
`kernelweave.compiled.kmers`. If both strands count as one, the trie holds both of them with the
same weight, and sequences are looked up as they are.
"""

from __future__ import annotations

import numpy as np
from numba import njit

__all__ = ["trie_add", "trie_jumps", "trie_lookup", "trie_sums"]

_AMBIGUOUS = 255


@njit(cache=True, nogil=True)
def _reach(row: np.ndarray, longest: int, out: np.ndarray) -> None:
    """How many letters can be read from every position, up to `longest`."""
    run = 0
    for at in range(row.size - 1, -1, -1):
        run = 0 if row[at] == _AMBIGUOUS else min(run + 1, longest)
        out[at] = run


@njit(cache=True, nogil=True)
def _add_path(
    row: np.ndarray,
    at: int,
    low: int,
    high: int,
    factor: float,
    weights: np.ndarray,
    bits: int,
    pairs: np.ndarray,
    children: np.ndarray,
    w: np.ndarray,
    used: int,
) -> int:
    """Add ``factor * weights[k]`` to the k-mers at one position, low <= k <= high.

    With `pairs` those that are their own reverse complement are left out.
    """
    node, code, back = 0, 0, 0
    for k in range(1, high + 1):
        letter = row[at + k - 1]
        child = children[node, letter]
        if child == 0:
            child = used
            children[node, letter] = child
            used += 1
        node = child
        if pairs.size > 0:
            code = (code << bits) | letter
            back |= pairs[letter] << (bits * (k - 1))
            if code == back:
                continue
        if k >= low:
            w[node] += factor * weights[k]
    return used


@njit(cache=True, nogil=True)
def trie_add(
    letters: np.ndarray,
    starts: np.ndarray,
    rows: np.ndarray,
    first: int,
    delta: np.ndarray,
    weights: np.ndarray,
    shortest: int,
    longest: int,
    bits: int,
    pairs: np.ndarray,
    start: int,
    stop: int,
    children: np.ndarray,
    w: np.ndarray,
    used: int,
) -> tuple[int, int]:
    """Add ``delta[r] * weights[k]`` to every k-mer of the sequences rows[r], r = first, ...

    Returns the r it came to before the arrays might be full, and the number of nodes.
    """
    no_pairs = pairs[:0]
    for r in range(first, rows.size):
        row = letters[starts[rows[r]] : starts[rows[r] + 1]]
        size = row.size
        strands = 2 if pairs.size > 0 else 1
        if used + strands * longest * min(size, stop - start + longest) > w.size:
            return r, used
        reach = np.empty(size, np.int64)
        _reach(row, longest, reach)
        for at in range(start, min(stop, size - shortest + 1)):
            if reach[at] >= shortest:
                used = _add_path(
                    row, at, shortest, reach[at], delta[r], weights, bits, no_pairs, children, w,
                    used,
                )  # fmt: skip
        if pairs.size == 0:
            continue
        other = np.empty(size, np.uint8)
        for at in range(size):
            letter = row[size - 1 - at]
            other[at] = pairs[letter] if letter != _AMBIGUOUS else _AMBIGUOUS
        _reach(other, longest, reach)
        for at in range(size - shortest + 1):
            # On this strand the k-mer at `at` stands for the one at size - k - at.
            low = max(shortest, size - at - stop + 1)
            high = min(reach[at], size - at - start)
            if low <= high:
                used = _add_path(
                    other, at, low, high, delta[r], weights, bits, pairs, children, w, used
                )
    return rows.size, used


@njit(cache=True, nogil=True)
def trie_sums(children: np.ndarray, w: np.ndarray, sums: np.ndarray) -> None:
    """Write the weight of every node and all nodes above it."""
    sums[0] = 0.0
    for node in range(w.size):
        for letter in range(children.shape[1]):
            child = children[node, letter]
            if child > 0:
                sums[child] = sums[node] + w[child]


@njit(cache=True, nogil=True)
def trie_jumps(children: np.ndarray, depth: int, bits: int, jumps: np.ndarray) -> None:
    """Write where the walk along `depth` letters leads, for all codes of that many letters.

    That is a node, or ``-1 - node`` if the walk ends there before its last letter.
    """
    digit = (1 << bits) - 1
    for code in range(jumps.size):
        node = 0
        for j in range(depth - 1, -1, -1):
            letter = (code >> (bits * j)) & digit
            child = children[node, letter] if letter < children.shape[1] else 0
            if child == 0:
                node = -1 - node
                break
            node = child
        jumps[code] = node


@njit(cache=True, nogil=True)
def _walk(row: np.ndarray, at: int, end: int, node: int, children: np.ndarray) -> int:
    """Return the last node on the way from `node` along row[at:end]."""
    for q in range(at, end):
        letter = row[q]
        child = children[node, letter] if letter != _AMBIGUOUS else 0
        if child == 0:
            break
        node = child
    return node


@njit(cache=True, nogil=True)
def trie_lookup(
    letters: np.ndarray,
    starts: np.ndarray,
    first: int,
    last: int,
    longest: int,
    bits: int,
    start: int,
    stop: int,
    depth: int,
    jumps: np.ndarray,
    children: np.ndarray,
    sums: np.ndarray,
    out: np.ndarray,
) -> None:
    """Add up the weights of the k-mers of sequences first ... last - 1, of all lengths.

    With `jumps` (of `trie_jumps`) a walk begins `depth` letters on, and with `sums` (of
    `trie_sums`) only its last node is read.
    """
    mask = (1 << (bits * depth)) - 1
    for i in range(first, last):
        row = letters[starts[i] : starts[i + 1]]
        size = row.size
        total, code, run = 0.0, 0, 0
        for q in range(start, min(size, start + depth - 1)):
            run = 0 if row[q] == _AMBIGUOUS else run + 1
            code = ((code << bits) | row[q]) & mask
        for at in range(start, min(stop, size)):
            q = at + depth - 1
            if q < size:
                run = 0 if row[q] == _AMBIGUOUS else run + 1
                code = ((code << bits) | row[q]) & mask
            if q < size and run >= depth:
                node = jumps[code]
                if node >= 0:
                    node = _walk(row, q + 1, min(at + longest, size), node, children)
                else:
                    node = -1 - node
            else:
                node = _walk(row, at, min(at + longest, size), 0, children)
            total += sums[node]
        out[i - first] = total
