r"""Rows of Gaussian kernels on a few columns: the innermost loops of batches of kernels.

A kernel is :math:`2^{-z}` with :math:`z = \sum_c (b_{ci} - b_{cj})^2` and scaled columns
:math:`b_c = \sqrt{\gamma_k \log_2 e}\; x_c` in a small buffer. Two rows at a time give the
processor two independent chains of arithmetic; with the distance they cost less than a bare
exponential of an array (:mod:`kernelweave.compiled.exp`) does, because no exponent is above zero.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types
from numba.extending import overload

__all__ = [
    "BLOCK",
    "add_product",
    "add_two",
    "dot",
    "fill_points",
    "load",
    "padded",
    "pair_rows",
]

# Inner loops are cut to this length (both sides stay in the L1 cache) and padded to a multiple of
# the SIMD width: nothing is left for scalar code.
BLOCK = 512
_LANES = 8

_SCALAR = {"contract", "nnan", "ninf", "nsz"}
_F = np.float32
_MAGIC32, _MAGIC64 = _F(12582912.0), 6755399441055744.0
_ONE32 = _F(1.0)
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
    return -(-n // _LANES) * _LANES


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
