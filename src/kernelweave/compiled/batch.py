r"""Passes over many Gaussian kernels on a few columns each, computed where they are used.

Kernel k is :math:`2^{-z}` with :math:`z = \sum_c (b_{ci} - b_{cj})^2` and the columns
:math:`b_c = \sqrt{\gamma_k \log_2 e}\; x_c` copied to a small buffer. All pairs of S samples are
visited by their offset: sample i with sample i + o (modulo S), o = 1..S/2. Every pair is met once,
both sides are read in order, and all inner loops have the same length, a multiple of the SIMD
width: nothing is left for scalar code. Two offsets at a time give the processor two independent
chains of arithmetic, which is what makes this faster than a bare exponential of an array.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types
from numba.extending import overload

__all__ = ["LANES", "combine_tile", "products", "quad", "quad_and_products"]

# Inner loops are cut to this length (both sides stay in the L1 cache) and padded to this multiple.
BLOCK = 512
LANES = 8
# So many float32 terms are added up before a float64 sum takes over.
_RUN = 8

_SCALAR = {"contract", "nnan", "ninf", "nsz"}
_F = np.float32
_MAGIC32, _MAGIC64 = _F(12582912.0), 6755399441055744.0
_ZERO32, _ONE32, _HALF32 = _F(0.0), _F(1.0), _F(0.5)
# 2^-x on [-1/2, 1/2]: the best polynomial of degree 5 with p(0) = 1, relative error 9.2e-8.
_P1, _P2, _P3, _P4, _P5 = (
    _F(-0.69314697759916533),
    _F(0.24022242085379458),
    _F(-0.055507337432455048),
    _F(0.0096715126394983919),
    _F(-0.001326472719986463),
)
_LAST32, _LAST64 = _F(126.0), 1022.0
_MINUS_LN2 = -0.6931471805599453


def _power(z: Any) -> Any:
    """2^-z for z >= 0, at least 2^-126 (float32) or 2^-1022 (float64)."""
    raise NotImplementedError("only compiled code calls this")


@overload(_power, jit_options={"fastmath": _SCALAR})
def _power_of(z: Any) -> Any:
    if z == types.float32:

        def power32(z: Any) -> Any:
            x = z if z < _LAST32 else _LAST32
            t = _MAGIC32 - x
            r = x + (t - _MAGIC32)
            p = _P5
            p = p * r + _P4
            p = p * r + _P3
            p = p * r + _P2
            p = p * r + _P1
            p = p * r + _ONE32
            bits = np.int32(np.float32(t).view(np.int32) << 23) + np.float32(p).view(np.int32)
            return np.int32(bits).view(np.float32)

        return power32

    def power64(z: Any) -> Any:
        x = z if z < _LAST64 else _LAST64
        t = _MAGIC64 - x
        r = (x + (t - _MAGIC64)) * _MINUS_LN2
        p = 2.5100472505694996e-8  # e^r as in exp.py
        p = p * r + 2.762020159103154879e-7
        p = p * r + 2.755726827690569619e-6
        p = p * r + 0.0000248015210578682052
        p = p * r + 0.0001984126986317155603
        p = p * r + 0.001388888891736708056
        p = p * r + 0.008333333333330038197
        p = p * r + 0.04166666666662382053
        p = p * r + 0.1666666666666666746
        p = p * r + 0.5000000000000001031
        p = p * r + 1.0
        p = p * r + 1.0
        bits = (np.float64(t).view(np.int64) << 52) + np.float64(p).view(np.int64)
        return np.int64(bits).view(np.float64)

    return power64


@njit(cache=True, nogil=True, fastmath=_SCALAR)
def pair_rows(
    size: int, A: np.ndarray, a: int, B: np.ndarray, b: int, c: int, n: int, out: np.ndarray
) -> None:
    """out[0, i], out[1, i] = 2^-|A[:, a+i] - B[:, b+i]|^2 and the same with c for b; i < n.

    Only the first `size` rows of A and B count. One loop for each small size: a loop over the
    columns inside would keep LLVM from using SIMD, and branches that share slices or return early
    make Numba count references, which costs more than a short row.
    """
    if size == 1:
        x0, y0, z0 = A[0, a : a + n], B[0, b : b + n], B[0, c : c + n]
        r, s = out[0, :n], out[1, :n]
        for i in range(n):
            p0, q0 = x0[i] - y0[i], x0[i] - z0[i]
            r[i] = _power(p0 * p0)
            s[i] = _power(q0 * q0)
    elif size == 2:
        x0, y0, z0 = A[0, a : a + n], B[0, b : b + n], B[0, c : c + n]
        x1, y1, z1 = A[1, a : a + n], B[1, b : b + n], B[1, c : c + n]
        r, s = out[0, :n], out[1, :n]
        for i in range(n):
            p0, q0 = x0[i] - y0[i], x0[i] - z0[i]
            p1, q1 = x1[i] - y1[i], x1[i] - z1[i]
            r[i] = _power(p0 * p0 + p1 * p1)
            s[i] = _power(q0 * q0 + q1 * q1)
    elif size == 3:
        x0, y0, z0 = A[0, a : a + n], B[0, b : b + n], B[0, c : c + n]
        x1, y1, z1 = A[1, a : a + n], B[1, b : b + n], B[1, c : c + n]
        x2, y2, z2 = A[2, a : a + n], B[2, b : b + n], B[2, c : c + n]
        r, s = out[0, :n], out[1, :n]
        for i in range(n):
            p0, q0 = x0[i] - y0[i], x0[i] - z0[i]
            p1, q1 = x1[i] - y1[i], x1[i] - z1[i]
            p2, q2 = x2[i] - y2[i], x2[i] - z2[i]
            r[i] = _power(p0 * p0 + p1 * p1 + p2 * p2)
            s[i] = _power(q0 * q0 + q1 * q1 + q2 * q2)
    elif size == 4:
        x0, y0, z0 = A[0, a : a + n], B[0, b : b + n], B[0, c : c + n]
        x1, y1, z1 = A[1, a : a + n], B[1, b : b + n], B[1, c : c + n]
        x2, y2, z2 = A[2, a : a + n], B[2, b : b + n], B[2, c : c + n]
        x3, y3, z3 = A[3, a : a + n], B[3, b : b + n], B[3, c : c + n]
        r, s = out[0, :n], out[1, :n]
        for i in range(n):
            p0, q0 = x0[i] - y0[i], x0[i] - z0[i]
            p1, q1 = x1[i] - y1[i], x1[i] - z1[i]
            p2, q2 = x2[i] - y2[i], x2[i] - z2[i]
            p3, q3 = x3[i] - y3[i], x3[i] - z3[i]
            r[i] = _power(p0 * p0 + p1 * p1 + p2 * p2 + p3 * p3)
            s[i] = _power(q0 * q0 + q1 * q1 + q2 * q2 + q3 * q3)
    elif size == 5:
        x0, y0, z0 = A[0, a : a + n], B[0, b : b + n], B[0, c : c + n]
        x1, y1, z1 = A[1, a : a + n], B[1, b : b + n], B[1, c : c + n]
        x2, y2, z2 = A[2, a : a + n], B[2, b : b + n], B[2, c : c + n]
        x3, y3, z3 = A[3, a : a + n], B[3, b : b + n], B[3, c : c + n]
        x4, y4, z4 = A[4, a : a + n], B[4, b : b + n], B[4, c : c + n]
        r, s = out[0, :n], out[1, :n]
        for i in range(n):
            p0, q0 = x0[i] - y0[i], x0[i] - z0[i]
            p1, q1 = x1[i] - y1[i], x1[i] - z1[i]
            p2, q2 = x2[i] - y2[i], x2[i] - z2[i]
            p3, q3 = x3[i] - y3[i], x3[i] - z3[i]
            p4, q4 = x4[i] - y4[i], x4[i] - z4[i]
            r[i] = _power(p0 * p0 + p1 * p1 + p2 * p2 + p3 * p3 + p4 * p4)
            s[i] = _power(q0 * q0 + q1 * q1 + q2 * q2 + q3 * q3 + q4 * q4)
    else:
        r, s = out[0, :n], out[1, :n]
        r[:] = 0.0
        s[:] = 0.0
        for column in range(size):
            x, y, z = A[column, a : a + n], B[column, b : b + n], B[column, c : c + n]
            for i in range(n):
                p, q = x[i] - y[i], x[i] - z[i]
                r[i] += p * p
                s[i] += q * q
        for i in range(n):
            r[i] = _power(r[i])
            s[i] = _power(s[i])


@njit(cache=True, nogil=True)
def load(
    table: np.ndarray, columns: np.ndarray, root: float, start: int, count: int, out: np.ndarray
) -> int:
    """out[c, i] = root * table[columns[c], start + i], going round at the end; return the size.

    The product is taken in float64, so that a value of `out` is rounded only once.
    """
    n = table.shape[1]
    size = 0
    for j in columns:
        if j < 0:
            break
        row = table[j]
        target = out[size]
        size += 1
        done = 0
        at = start % n
        while done < count:
            run = min(n - at, count - done)
            source, here = row[at : at + run], target[done : done + run]
            for i in range(run):
                here[i] = root * source[i]
            done += run
            at = 0
    return size


@njit(cache=True, nogil=True)
def padded(n: int) -> int:
    """The length of inner loops for n entries."""
    return -(-n // LANES) * LANES


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
def add_two(e: np.ndarray, w: np.ndarray, first: int, second: int, n: int, out: np.ndarray) -> None:
    """out[i] += e[0, i] w[first + i] + e[1, i] w[second + i], i < n."""
    # Slices of length n tell LLVM that nothing wraps around; open ones make the loop twice as slow.
    r, s, x, y = e[0, :n], e[1, :n], w[first : first + n], w[second : second + n]
    target = out[:n]
    for i in range(n):
        target[i] += r[i] * x[i] + s[i] * y[i]


@njit(cache=True, nogil=True, fastmath=_SCALAR)
def add_product(x: np.ndarray, y: np.ndarray, n: int, out: np.ndarray) -> None:
    """out[i] += x[i] y[i], i < n."""
    x, y, target = x[:n], y[:n], out[:n]
    for i in range(n):
        target[i] += x[i] * y[i]


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


@njit(cache=True, nogil=True, fastmath=True)
def dot(x: np.ndarray, y: np.ndarray, n: int) -> float:
    """Sum of x[i] y[i] for i < n, in float64 and in an order that does not change."""
    total = 0.0
    for i in range(n):
        total += x[i] * y[i]
    return total


@njit(cache=True, nogil=True)
def fill_points(
    table: np.ndarray, columns: np.ndarray, root: float, point: int, B: np.ndarray, n: int
) -> None:
    """B[c, :n] and B[c, n:2n] = the scaled values of one sample and of the next (if any)."""
    other = min(point + 1, table.shape[1] - 1)
    for c in range(columns.shape[0]):
        j = columns[c]
        if j < 0:
            break
        B[c, :n] = root * table[j, point]
        B[c, n : 2 * n] = root * table[j, other]


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
    for k in range(first, last):
        if d[k] == 0.0:
            chosen[0] = k
            quad(table, columns, roots, chosen, V, like, quads[k : k + 1], 0, 1)
            continue
        chosen[0] = k
        products(table, rest, columns, roots, chosen, V, like, one, 0, 1)
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
