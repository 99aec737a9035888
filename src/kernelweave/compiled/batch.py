"""Passes over many Gaussian kernels on a few columns each, computed where they are used.

All pairs of S samples are visited by their offset: sample i with sample i + o (modulo S),
o = 1..S/2. Every pair is met once, both sides are read in order, and all inner loops have the same
length. Arguments that several passes share:

table : (p, S)
    The samples, one row a column of the data.
columns : (m, max_size), roots : (m,)
    Kernel k reads these rows of `table`, filled up with -1, times ``roots[k]``.
like
    An array of the type to compute in; sums are float64.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from kernelweave.compiled.batch_rows import (
    BLOCK,
    add_product,
    add_two,
    dot,
    fill_points,
    load,
    padded,
    pair_rows,
)

__all__ = ["combine_tile", "products", "quad", "quad_and_products"]

# So many float32 terms are added up before a float64 sum takes over.
_RUN = 8

_SCALAR = {"contract", "nnan", "ninf", "nsz"}


@njit(cache=True, nogil=True, fastmath=_SCALAR)
def _offsets(
    size: int, b: np.ndarray, i: int, offset: int, n: int, samples: int, e: np.ndarray
) -> None:
    """Rows for `offset` and the next one, weighted so that every pair counts once."""
    pair_rows(size, b, i, b, i + offset, i + offset + 1, n, e)
    if 2 * (offset + 1) < samples:
        return
    # With an even number of samples the last offset meets each pair from both ends; with an odd
    # number of offsets the second of the last two does not exist.
    if 2 * offset == samples:
        e[0] *= e.dtype.type(0.5)
    if 2 * (offset + 1) == samples:
        e[1] *= e.dtype.type(0.5)
    elif 2 * (offset + 1) > samples:
        e[1] = e.dtype.type(0.0)


@njit(cache=True, nogil=True, fastmath=_SCALAR)
def quad(
    table: np.ndarray,
    columns: np.ndarray,
    roots: np.ndarray,
    kernels: np.ndarray,
    V: np.ndarray,
    like: np.ndarray,
    out: np.ndarray,
    first: int,
    last: int,
) -> None:
    """out[p] = sum_t V[t]'K V[t] for kernels[p], p in first..last.

    `table` (features, S) holds the samples where V (T, S) is not zero; `like` tells the type to
    compute in.
    """
    samples, tasks = table.shape[1], V.shape[0]
    half, length = samples // 2, padded(samples)
    whole = padded(length + half + 2)
    b = np.empty((columns.shape[1], whole), like.dtype)
    w = np.empty((tasks, whole), like.dtype)
    for t in range(tasks):
        for i in range(whole):
            w[t, i] = V[t, i % samples]
    e = np.empty((2, BLOCK), like.dtype)
    run = np.empty((tasks, BLOCK), like.dtype)
    sums = np.empty((tasks, length))
    for position in range(first, last):
        k = kernels[position]
        size = load(table, columns[k], roots[k], 0, whole, b)
        sums[:] = 0.0
        for i in range(0, length, BLOCK):
            n = min(BLOCK, length - i)
            for start in range(1, half + 1, _RUN):
                run[:, :n] = 0.0
                for offset in range(start, min(start + _RUN, half + 1), 2):
                    _offsets(size, b, i, offset, n, samples, e)
                    r, s = e[0, :n], e[1, :n]
                    for t in range(tasks):
                        x = w[t, i + offset : i + offset + n]
                        y = w[t, i + offset + 1 : i + offset + 1 + n]
                        target = run[t, :n]
                        for j in range(n):
                            target[j] += r[j] * x[j] + s[j] * y[j]
                for t in range(tasks):
                    into, target = sums[t, i : i + n], run[t, :n]
                    for j in range(n):
                        into[j] += target[j]
        total = 0.0
        for t in range(tasks):
            for j in range(samples):
                total += V[t, j] * (V[t, j] + 2.0 * sums[t, j])
        out[position] = total


@njit(cache=True, nogil=True, fastmath=_SCALAR)
def _product(
    size: int, b: np.ndarray, w: np.ndarray, samples: int, e: np.ndarray, out: np.ndarray
) -> None:
    """out[t, i] = (K w[t])_i between the samples of b; b and w go round, out has room for it."""
    half, length, tasks = samples // 2, padded(samples), w.shape[0]
    out[:] = 0.0
    for i in range(0, length, BLOCK):
        n = min(BLOCK, length - i)
        real = min(n, samples - i)
        for offset in range(1, half + 1, 2):
            _offsets(size, b, i, offset, n, samples, e)
            for t in range(tasks):
                add_two(e, w[t], i + offset, i + offset + 1, n, out[t, i : i + n])
                # What sample i gives to sample i + offset; the places past the end are folded.
                first = length + i + offset
                add_product(e[0], w[t, i : i + n], real, out[t, first : first + n])
                add_product(e[1], w[t, i : i + n], real, out[t, first + 1 : first + 1 + n])
    for t in range(tasks):
        for i in range(samples + half + 1):
            out[t, i % samples] += out[t, length + i]
        for i in range(samples):
            out[t, i] += w[t, i]


@njit(cache=True, nogil=True, fastmath=_SCALAR)
def products(
    table: np.ndarray,
    rest: np.ndarray,
    columns: np.ndarray,
    roots: np.ndarray,
    kernels: np.ndarray,
    V: np.ndarray,
    like: np.ndarray,
    out: np.ndarray,
    first: int,
    last: int,
) -> None:
    """out[p, t] = (K V[t] at the samples of `table`, then at those of `rest`) for kernels[p].

    `table` (features, S) holds the samples where V (T, S) is not zero, `rest` the others.
    """
    samples, others, tasks = table.shape[1], rest.shape[1], V.shape[0]
    length = padded(samples)
    whole = padded(length + samples // 2 + 2)
    b = np.empty((columns.shape[1], whole), like.dtype)
    B = np.empty((columns.shape[1], 2 * BLOCK), like.dtype)
    w = np.empty((tasks, whole))
    for t in range(tasks):
        for i in range(whole):
            w[t, i] = V[t, i % samples]
    e = np.empty((2, BLOCK), like.dtype)
    both = np.empty((tasks, length + whole))
    for position in range(first, last):
        k = kernels[position]
        size = load(table, columns[k], roots[k], 0, whole, b)
        _product(size, b, w, samples, e, both)
        target = out[position]
        for t in range(tasks):
            target[t, :samples] = both[t, :samples]
            target[t, samples:] = 0.0
        for point in range(0, others, 2):
            fill_points(rest, columns[k], roots[k], point, B, BLOCK)
            for i in range(0, samples, BLOCK):
                n = min(BLOCK, samples - i)
                pair_rows(size, b, i, B, 0, BLOCK, padded(n), e)
                for t in range(tasks):
                    target[t, samples + point] += dot(e[0], V[t, i:], n)
                    if point + 1 < others:
                        target[t, samples + point + 1] += dot(e[1], V[t, i:], n)


@njit(cache=True, nogil=True, fastmath=_SCALAR)
def quad_and_products(
    table: np.ndarray,
    rest: np.ndarray,
    columns: np.ndarray,
    roots: np.ndarray,
    V: np.ndarray,
    d: np.ndarray,
    like: np.ndarray,
    quads: np.ndarray,
    total: np.ndarray,
    first: int,
    last: int,
) -> None:
    """quads[k] = sum_t V[t]'K_k V[t] and total += sum_k d_k K_k V, for k in first..last."""
    one = np.empty((1, V.shape[0], table.shape[1] + rest.shape[1]))
    chosen = np.empty(1, np.int64)
    # Not literals 0 and 1, for which Numba would compile `quad` and `products` once more.
    ends = np.arange(2)
    for k in range(first, last):
        chosen[0] = k
        if d[k] == 0.0:
            quad(table, columns, roots, chosen, V, like, quads[k : k + 1], ends[0], ends[1])
            continue
        products(table, rest, columns, roots, chosen, V, like, one, ends[0], ends[1])
        value = 0.0
        for t in range(V.shape[0]):
            value += dot(one[0, t], V[t], table.shape[1])
            into, add = total[t], one[0, t]
            for i in range(into.shape[0]):
                into[i] += d[k] * add[i]
        quads[k] = value


@njit(cache=True, nogil=True, fastmath=_SCALAR)
def combine_tile(
    table: np.ndarray,
    columns: np.ndarray,
    roots: np.ndarray,
    kernels: np.ndarray,
    weights: np.ndarray,
    like: np.ndarray,
    i: int,
    offset: int,
    offsets: int,
    out: np.ndarray,
) -> None:
    """out[i', i'+o] and its mirror image = sum_k weights[k] K_k for a run of samples and offsets.

    Samples i..i+BLOCK (at most), offsets offset..offset+offsets. Kernels run in order inside, so
    that every entry is one float64 sum in fixed order, and the tile stays in the cache.
    """
    samples = table.shape[1]
    real = min(BLOCK, samples - i)
    n = padded(real)
    A = np.empty((columns.shape[1], n), like.dtype)
    B = np.empty((columns.shape[1], n + offsets + 1), like.dtype)
    e = np.empty((2, n), like.dtype)
    tile = np.zeros((offsets + 1, n))
    for position in range(kernels.shape[0]):
        k = kernels[position]
        size = load(table, columns[k], roots[k], i, n, A)
        load(table, columns[k], roots[k], i + offset, n + offsets + 1, B)
        weight = weights[position]
        for o in range(0, offsets, 2):
            pair_rows(size, A, 0, B, o, o + 1, n, e)
            r, s, x, y = e[0], e[1], tile[o], tile[o + 1]
            for j in range(n):
                x[j] += weight * r[j]
                y[j] += weight * s[j]
    for o in range(offsets):
        for j in range(real):
            row, column = i + j, (i + j + offset + o) % samples
            out[row, column] = tile[o, j]
            out[column, row] = tile[o, j]
