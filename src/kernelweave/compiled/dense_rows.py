"""Passes over the rows of dense matrices: K v, v'K v, blocks and sums of K, checks of its values.

Of a matrix only the rows where v is not zero are touched. The sums run in an order fixed by the
arguments, so a pass gives the same bits on any number of threads. Matrices may be float32; the sums
are float64.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numba import njit
from numpy.typing import DTypeLike

from kernelweave.arrays import Array
from kernelweave.compiled import CALLED, INSIDE, ZERO
from kernelweave.compiled.blocks import CACHED_COLUMNS, GATHERED_ROWS, TILE
from kernelweave.compiled.threads import map_blocks

# A scattered read of a large matrix is a cache miss: it takes as long as this many products.
_MISS = 16
# Beyond these float32 overflows in sums, or loses digits that it has elsewhere.
_SMALLEST, _LARGEST = 1e-36, 1e36


@njit(**CALLED, fastmath=True)
def add_rows(K: Array, support: Array, values: Array, out: Array, start: int, stop: int) -> None:
    """out[j] += sum_i values[i] K[support[i], j] for j in start..stop.

    Four rows at a time, so that `out` travels through the cache a quarter as often.
    """
    n_support = support.shape[0]
    last = n_support - n_support % 4
    target = out[start:stop]
    for first in range(0, last, 4):
        v0, v1, v2, v3 = values[first], values[first + 1], values[first + 2], values[first + 3]
        r0, r1 = K[support[first], start:stop], K[support[first + 1], start:stop]
        r2, r3 = K[support[first + 2], start:stop], K[support[first + 3], start:stop]
        for j in range(stop - start):
            target[j] += (v0 * r0[j] + v1 * r1[j]) + (v2 * r2[j] + v3 * r3[j])
    for i in range(last, n_support):
        v0, r0 = values[i], K[support[i], start:stop]
        for j in range(stop - start):
            target[j] += v0 * r0[j]


@njit(**INSIDE)
def consecutive(first: int, last: int) -> Array:
    """Integers first..last, in a fraction of the time that compiling `np.arange` takes."""
    out = np.empty(last - first, np.int64)
    for i in range(last - first):
        out[i] = first + i
    return out


@njit(**CALLED, fastmath=True)
def add_rows_of_four(
    K0: Array, K1: Array, K2: Array, K3: Array, weights: Array, idx: Array, out: Array
) -> None:
    """out[r] += sum_k weights[k] K_k[idx[r]]; `out` passes through the cache a quarter as often."""
    w0, w1, w2, w3 = weights[0], weights[1], weights[2], weights[3]
    for r in range(idx.shape[0]):
        i = idx[r]
        r0, r1, r2, r3 = K0[i], K1[i], K2[i], K3[i]
        target = out[r]
        for j in range(r0.shape[0]):
            target[j] += (w0 * r0[j] + w1 * r1[j]) + (w2 * r2[j] + w3 * r3[j])


@njit(**INSIDE, fastmath=True)
def _dot(row: Array, v: Array, first: int, last: int) -> float:
    total = 0.0
    for j in range(first, last):
        total += row[j] * v[j]
    return total


@njit(**CALLED, fastmath=True)
def row_products(K: Array, idx: Array, v: Array, out: Array) -> None:
    """out[r] = sum_j K[idx[r], j] v[j].

    Four rows at a time, so that `v` travels through the cache a quarter as often.
    """
    n = v.shape[0]
    whole = idx.shape[0] - idx.shape[0] % 4
    for r in range(0, whole, 4):
        r0, r1, r2, r3 = K[idx[r]], K[idx[r + 1]], K[idx[r + 2]], K[idx[r + 3]]
        s0, s1, s2, s3 = 0.0, 0.0, 0.0, 0.0
        for j in range(n):
            s0 += r0[j] * v[j]
            s1 += r1[j] * v[j]
            s2 += r2[j] * v[j]
            s3 += r3[j] * v[j]
        out[r], out[r + 1], out[r + 2], out[r + 3] = s0, s1, s2, s3
    for r in range(whole, idx.shape[0]):
        out[r] = _dot(K[idx[r]], v, ZERO, n)


@njit(**CALLED)
def add_row_products(K: Array, weight: float, V: Array, out: Array, first: int, last: int) -> None:
    """out[t, i] += weight sum_j K[i, j] V[t, j] for i in first..last."""
    rows, some = consecutive(first, last), np.empty(4, np.float64)
    for i in range(first, last, 4):
        count = 4 if i + 4 < last else last - i
        for t in range(V.shape[0]):
            row_products(K, rows[i - first : i - first + count], V[t], some)
            for r in range(count):
                out[t, i + r] += weight * some[r]


@njit(**CALLED, fastmath=True)
def add_rectangle(K: Array, left: Array, right: Array, weight: float, out: Array) -> None:
    """out[r, c] += weight K[left[r], right[c]]."""
    for r in range(left.size):
        row = K[left[r]]
        target = out[r]
        for c in range(right.size):
            target[c] += weight * row[right[c]]


def rectangle(K: Array, left: Array, right: Array, dtype: DTypeLike = np.float64) -> Array:
    """Return ``K[left][:, right]`` in the given dtype."""
    if not K.flags.c_contiguous:
        return K[np.ix_(left, right)].astype(dtype, copy=False)
    # NumPy asks for huge pages, which Numba's own arrays do not get: fewer page faults.
    out = np.zeros((left.size, right.size), dtype=dtype)

    def work(start: int, stop: int) -> None:
        add_rectangle(K, left[start:stop], right, 1.0, out[start:stop])

    map_blocks(work, left.size, GATHERED_ROWS, _MISS * out.size)
    return out


def add_weighted_rows(matrices: Sequence[Array], weights: Array, idx: Array, out: Array) -> None:
    """Add sum_k weights[k] matrices[k][idx] to `out`, four matrices of a type at a time."""
    for kind in dict.fromkeys(K.dtype for K in matrices):
        alike = [k for k, K in enumerate(matrices) if K.dtype == kind]
        for first in range(0, len(alike), 4):
            some, own = alike[first : first + 4], np.zeros(4)
            own[: len(some)] = weights[some]
            K0, K1, K2, K3 = (matrices[k] for k in [*some, *some[-1:] * 3][:4])
            add_rows_of_four(K0, K1, K2, K3, own, idx, out)


def rows_product(K: Array, idx: Array, delta: Array) -> Array:
    r"""Return :math:`\sum_r \delta_r K_{idx_r, \cdot}`, accumulated in float64."""
    n = K.shape[1]
    out = np.zeros(n)
    weights = np.ascontiguousarray(delta, dtype=np.float64)
    map_blocks(
        lambda lo, hi: add_rows(K, idx, weights, out, lo, hi), n, CACHED_COLUMNS, n * idx.size
    )
    return out


def read_only(A: Array) -> Array:
    """Return A as an array that cannot be written to, whoever else may.

    Numba compiles a function once for these and once for others: what is never written comes in
    one kind.
    """
    view = A.view()
    view.flags.writeable = False
    return view


def fits_float32(diagonal: Array) -> bool:
    """Whether a kernel matrix with such a diagonal can be kept in float32.

    A kernel is positive semi-definite, |K_ij| <= sqrt(K_ii K_jj): its diagonal bounds all values,
    and their rounding relative to that is 2^-24 as long as the diagonal is zero or in this range.
    """
    sizes = np.abs(diagonal[diagonal != 0])
    return bool(sizes.size == 0 or (sizes.min() >= _SMALLEST and sizes.max() <= _LARGEST))


# No flag may promise that NaN and infinity do not occur: they are what is looked for.
@njit(**CALLED, fastmath={"reassoc", "nsz"})
def all_finite(values: Array) -> bool:
    """Whether a 2-D array holds neither NaN nor infinity.

    Zero times a finite number is zero, times anything else NaN: one sum tells, and LLVM turns it
    into SIMD instructions, which it does not for a comparison that may end the loop.
    """
    zero = values.dtype.type(0.0)
    total = zero
    for i in range(values.shape[0]):
        row = values[i]
        for j in range(row.shape[0]):
            total += zero * row[j]
    return total == zero


@njit(**CALLED)
def mirror_rows(A: Array, start: int, stop: int) -> None:
    """Copy the entries of some columns below the diagonal to the rows above it, tile by tile."""
    for first in range(start, A.shape[0], TILE):
        last = first + TILE if first + TILE < A.shape[0] else A.shape[0]
        for j in range(start, stop):
            for i in range(first if first > j else j + 1, last):
                A[j, i] = A[i, j]
