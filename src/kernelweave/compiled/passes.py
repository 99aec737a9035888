"""Passes over dense kernel matrices, and over factors of kernels: K v and v'K v.

Of a matrix only the rows where v is not zero are touched.

The sums run in an order fixed by the arguments, so a pass gives the same bits on any number of
threads. Matrices may be float32; the sums are float64.
"""

from __future__ import annotations

import numpy as np
from numba import njit

__all__ = [
    "add_row_products",
    "add_rows",
    "add_rows_of_four",
    "add_some_rows",
    "factor_products",
    "factor_rows",
    "factor_sums",
    "quad_block",
    "row_products",
    "sum_of_squares",
]


@njit(cache=True, nogil=True, fastmath=True)
def add_rows(
    K: np.ndarray, support: np.ndarray, values: np.ndarray, out: np.ndarray, start: int, stop: int
) -> None:
    """out[j] += sum_i values[i] K[support[i], j] for j in start..stop.

    Four rows at a time, so that `out` travels through the cache a quarter as often.
    """
    n_support = support.shape[0]
    last = n_support - n_support % 4
    for first in range(0, last, 4):
        v0, v1, v2, v3 = values[first], values[first + 1], values[first + 2], values[first + 3]
        r0, r1 = K[support[first]], K[support[first + 1]]
        r2, r3 = K[support[first + 2]], K[support[first + 3]]
        for j in range(start, stop):
            out[j] += (v0 * r0[j] + v1 * r1[j]) + (v2 * r2[j] + v3 * r3[j])
    for i in range(last, n_support):
        v0 = values[i]
        r0 = K[support[i]]
        for j in range(start, stop):
            out[j] += v0 * r0[j]


@njit(cache=True, nogil=True, fastmath=True)
def add_some_rows(K: np.ndarray, idx: np.ndarray, weight: float, out: np.ndarray) -> None:
    """out[r] += weight K[idx[r]], whatever the two types."""
    for r in range(idx.shape[0]):
        row = K[idx[r]]
        target = out[r]
        for j in range(row.shape[0]):
            target[j] += weight * row[j]


@njit(cache=True, nogil=True, fastmath=True)
def add_rows_of_four(
    K0: np.ndarray,
    K1: np.ndarray,
    K2: np.ndarray,
    K3: np.ndarray,
    weights: np.ndarray,
    idx: np.ndarray,
    out: np.ndarray,
) -> None:
    """out[r] += sum_k weights[k] K_k[idx[r]]; `out` passes through the cache a quarter as often."""
    w0, w1, w2, w3 = weights[0], weights[1], weights[2], weights[3]
    for r in range(idx.shape[0]):
        i = idx[r]
        r0, r1, r2, r3 = K0[i], K1[i], K2[i], K3[i]
        target = out[r]
        for j in range(r0.shape[0]):
            target[j] += (w0 * r0[j] + w1 * r1[j]) + (w2 * r2[j] + w3 * r3[j])


@njit(cache=True, nogil=True, fastmath=True)
def row_products(K: np.ndarray, idx: np.ndarray, v: np.ndarray, out: np.ndarray) -> None:
    """out[r] = sum_j K[idx[r], j] v[j]."""
    for r in range(idx.shape[0]):
        row = K[idx[r]]
        total = 0.0
        for j in range(row.shape[0]):
            total += row[j] * v[j]
        out[r] = total


@njit(cache=True, nogil=True, fastmath=True)
def _dot(row: np.ndarray, v: np.ndarray, first: int, last: int) -> float:
    total = 0.0
    for j in range(first, last):
        total += row[j] * v[j]
    return total


@njit(cache=True, nogil=True, fastmath=True)
def quad_block(
    K: np.ndarray, support: np.ndarray, v: np.ndarray, first: int, last: int, dense_rows: bool
) -> float:
    """sum over i in support[first:last] of v_i (K_ii v_i + 2 sum_{j > i} K_ij v_j).

    K is symmetric, so that half of it tells all; `support` is sorted. With `dense_rows` the right
    part of every row is read in order, four rows at a time; otherwise only the columns in
    `support`.
    """
    total = 0.0
    n = v.shape[0]
    n_support = support.shape[0]
    last = max(first, last)
    whole = last - (last - first) % 4 if dense_rows else first
    for position in range(first, whole, 4):
        i0, i1, i2, i3 = support[position : position + 4]
        r0, r1, r2, r3 = K[i0], K[i1], K[i2], K[i3]
        s0 = _dot(r0, v, i0 + 1, i3 + 1)
        s1 = _dot(r1, v, i1 + 1, i3 + 1)
        s2 = _dot(r2, v, i2 + 1, i3 + 1)
        s3 = 0.0
        for j in range(i3 + 1, n):
            s0 += r0[j] * v[j]
            s1 += r1[j] * v[j]
            s2 += r2[j] * v[j]
            s3 += r3[j] * v[j]
        total += v[i0] * (r0[i0] * v[i0] + 2.0 * s0) + v[i1] * (r1[i1] * v[i1] + 2.0 * s1)
        total += v[i2] * (r2[i2] * v[i2] + 2.0 * s2) + v[i3] * (r3[i3] * v[i3] + 2.0 * s3)
    for position in range(whole, last):
        i = support[position]
        row = K[i]
        part = 0.0
        if dense_rows:
            part = _dot(row, v, i + 1, n)
        else:
            for q in range(position + 1, n_support):
                j = support[q]
                part += row[j] * v[j]
        total += v[i] * (row[i] * v[i] + 2.0 * part)
    return total


@njit(cache=True, nogil=True, fastmath=True)
def add_row_products(
    K: np.ndarray, weight: float, V: np.ndarray, out: np.ndarray, first: int, last: int
) -> None:
    """out[t, i] += weight sum_j K[i, j] V[t, j] for i in first..last.

    Four rows at a time, so that `V` travels through the cache a quarter as often.
    """
    n = V.shape[1]
    whole = last - (last - first) % 4
    for i in range(first, whole, 4):
        r0, r1, r2, r3 = K[i], K[i + 1], K[i + 2], K[i + 3]
        for t in range(V.shape[0]):
            v = V[t]
            s0, s1, s2, s3 = 0.0, 0.0, 0.0, 0.0
            for j in range(n):
                s0 += r0[j] * v[j]
                s1 += r1[j] * v[j]
                s2 += r2[j] * v[j]
                s3 += r3[j] * v[j]
            out[t, i] += weight * s0
            out[t, i + 1] += weight * s1
            out[t, i + 2] += weight * s2
            out[t, i + 3] += weight * s3
    for i in range(whole, last):
        row = K[i]
        for t in range(V.shape[0]):
            v = V[t]
            s0 = 0.0
            for j in range(n):
                s0 += row[j] * v[j]
            out[t, i] += weight * s0


@njit(cache=True, nogil=True, fastmath=True)
def _project(F: np.ndarray, v: np.ndarray, c: np.ndarray) -> None:
    """c[r] = F[r] . v, four rows at a time."""
    n = v.shape[0]
    whole = F.shape[0] - F.shape[0] % 4
    for r in range(0, whole, 4):
        f0, f1, f2, f3 = F[r], F[r + 1], F[r + 2], F[r + 3]
        s0, s1, s2, s3 = 0.0, 0.0, 0.0, 0.0
        for j in range(n):
            s0 += f0[j] * v[j]
            s1 += f1[j] * v[j]
            s2 += f2[j] * v[j]
            s3 += f3[j] * v[j]
        c[r], c[r + 1], c[r + 2], c[r + 3] = s0, s1, s2, s3
    for r in range(whole, F.shape[0]):
        f0 = F[r]
        s0 = 0.0
        for j in range(n):
            s0 += f0[j] * v[j]
        c[r] = s0


@njit(cache=True, nogil=True, fastmath=True)
def _expand(F: np.ndarray, c: np.ndarray, out: np.ndarray) -> None:
    """out += sum_r c[r] F[r], four rows at a time."""
    n = out.shape[0]
    whole = F.shape[0] - F.shape[0] % 4
    for r in range(0, whole, 4):
        f0, f1, f2, f3 = F[r], F[r + 1], F[r + 2], F[r + 3]
        c0, c1, c2, c3 = c[r], c[r + 1], c[r + 2], c[r + 3]
        for j in range(n):
            out[j] += (c0 * f0[j] + c1 * f1[j]) + (c2 * f2[j] + c3 * f3[j])
    for r in range(whole, F.shape[0]):
        f0 = F[r]
        c0 = c[r]
        for j in range(n):
            out[j] += c0 * f0[j]


@njit(cache=True, nogil=True, fastmath=True)
def factor_products(
    factors: np.ndarray,
    offsets: np.ndarray,
    kernels: np.ndarray,
    V: np.ndarray,
    out: np.ndarray,
    first: int,
    last: int,
) -> None:
    """out[p, t] = F'F V[t] for the factor F of kernel kernels[p], for p in first..last.

    A factor is read from memory once: it is still in the cache for the second product.
    """
    c = np.empty(factors.shape[0])
    for p in range(first, last):
        F = factors[offsets[kernels[p]] : offsets[kernels[p] + 1]]
        for t in range(V.shape[0]):
            _project(F, V[t], c)
            out[p, t] = 0.0
            _expand(F, c, out[p, t])


@njit(cache=True, nogil=True, fastmath=True)
def factor_rows(
    factors: np.ndarray,
    offsets: np.ndarray,
    kernels: np.ndarray,
    idx: np.ndarray,
    out: np.ndarray,
    first: int,
    last: int,
) -> None:
    """out[p, s] = row idx[s] of F'F for the factor F of kernel kernels[p], for p in first..last."""
    c = np.empty(factors.shape[0])
    for p in range(first, last):
        F = factors[offsets[kernels[p]] : offsets[kernels[p] + 1]]
        for s in range(idx.shape[0]):
            for r in range(F.shape[0]):
                c[r] = F[r, idx[s]]
            out[p, s] = 0.0
            _expand(F, c, out[p, s])


@njit(cache=True, nogil=True, fastmath=True)
def factor_sums(
    factors: np.ndarray,
    offsets: np.ndarray,
    V: np.ndarray,
    out: np.ndarray,
    first: int,
    last: int,
) -> None:
    """out[t] += sum over the kernels k in first..last of F_k'F_k V[k, t], each factor read once."""
    c = np.empty(factors.shape[0])
    for k in range(first, last):
        F = factors[offsets[k] : offsets[k + 1]]
        for t in range(V.shape[1]):
            _project(F, V[k, t], c)
            _expand(F, c, out[t])


@njit(cache=True, nogil=True, fastmath=True)
def sum_of_squares(K: np.ndarray) -> float:
    """sum_ij K_ij^2."""
    total = 0.0
    for i in range(K.shape[0]):
        row = K[i]
        part = 0.0
        for j in range(row.shape[0]):
            part += float(row[j]) * float(row[j])
        total += part
    return total
