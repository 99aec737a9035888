"""Weights of k-mers in an array of all codes or in sorted arrays: add sequences, look them up.

Sequences, codes, `pairs` and positions are those of `kernelweave.compiled.kmers`.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from kernelweave.compiled.kmers import kmer_codes

__all__ = ["array_add", "array_lookup", "sorted_lookup"]

_AMBIGUOUS = 255


@njit(cache=True, nogil=True)
def array_add(
    letters: np.ndarray,
    starts: np.ndarray,
    rows: np.ndarray,
    delta: np.ndarray,
    k: int,
    bits: int,
    pairs: np.ndarray,
    start: int,
    stop: int,
    w: np.ndarray,
) -> None:
    """w[code] += delta[i] for every k-mer of the sequences rows[i]."""
    longest = 0
    for i in rows:
        longest = max(longest, starts[i + 1] - starts[i])
    codes = np.empty(longest, np.int64)
    for r in range(rows.size):
        row = letters[starts[rows[r]] : starts[rows[r] + 1]]
        n = kmer_codes(row, k, bits, pairs, start, stop, codes)
        for p in range(n):
            if codes[p] >= 0:
                w[codes[p]] += delta[r]


@njit(cache=True, nogil=True)
def array_lookup(
    letters: np.ndarray,
    starts: np.ndarray,
    first: int,
    last: int,
    shortest: int,
    longest: int,
    bits: int,
    start: int,
    stop: int,
    offsets: np.ndarray,
    sums: np.ndarray,
    out: np.ndarray,
) -> None:
    """Add up the weights of the k-mers of sequences first ... last - 1, of all lengths.

    ``sums[offsets[k - shortest] + code]`` is the weight of a k-mer and all its prefixes, so only
    the longest k-mer at every position is looked up.
    """
    mask, top = (1 << (bits * longest)) - 1, offsets[longest - shortest]
    for i in range(first, last):
        row = letters[starts[i] : starts[i + 1]]
        end = min(row.size, stop + longest - 1)
        total, code, run = 0.0, 0, 0
        # One step beyond the end, as if an ambiguous letter stood there.
        for at in range(start, end + 1):
            letter = row[at] if at < end else _AMBIGUOUS
            if letter != _AMBIGUOUS:
                code = ((code << bits) | letter) & mask
                run += 1
                if run >= longest:
                    total += sums[top + code]
                continue
            for k in range(shortest, min(longest - 1, run) + 1):
                if at - k < stop:
                    total += sums[offsets[k - shortest] + (code & ((1 << (bits * k)) - 1))]
            run = 0
        out[i - first] = total


@njit(cache=True, nogil=True)
def _find(keys: np.ndarray, low: int, high: int, key: int) -> int:
    """Return where `key` is in keys[low:high], or -1."""
    while low < high:
        middle = (low + high) >> 1
        if keys[middle] < key:
            low = middle + 1
        else:
            high = middle
    return low if low < keys.size and keys[low] == key else -1


@njit(cache=True, nogil=True)
def sorted_lookup(
    letters: np.ndarray,
    starts: np.ndarray,
    first: int,
    last: int,
    shortest: int,
    bits: int,
    pairs: np.ndarray,
    start: int,
    stop: int,
    offsets: np.ndarray,
    keys: np.ndarray,
    values: np.ndarray,
    heads: np.ndarray,
    shift: int,
    out: np.ndarray,
) -> None:
    """Add up the weights of the k-mers of sequences first ... last - 1, of all lengths.

    `keys` are ``offsets[k - shortest] + code``, ascending. Those with the highest bits b start at
    ``heads[b]``, so that a binary search has few steps left.
    """
    longest_row = 0
    for i in range(first, last):
        longest_row = max(longest_row, starts[i + 1] - starts[i])
    codes = np.empty(longest_row, np.int64)
    for i in range(first, last):
        row = letters[starts[i] : starts[i + 1]]
        total = 0.0
        for j in range(offsets.size):
            n = kmer_codes(row, shortest + j, bits, pairs, start, stop, codes)
            for p in range(n):
                if codes[p] < 0:
                    continue
                key = offsets[j] + codes[p]
                bucket = key >> shift
                place = _find(keys, heads[bucket], heads[bucket + 1], key)
                if place >= 0:
                    total += values[place]
        out[i - first] = total
