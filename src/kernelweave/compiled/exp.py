"""Fast exponentials of whole arrays, and the Gaussian kernel fused with them.

LLVM does not vectorise calls to ``exp``; a range reduction and a polynomial it does. With
:math:`x = k \\ln 2 + r`, :math:`|r| \\le \\tfrac12 \\ln 2`, we have
:math:`e^x = 2^k p(r)` where `p` interpolates :math:`e^r` at Chebyshev nodes (degree 6 in float32,
11 in float64) and the factor :math:`2^k` is an integer addition to the exponent bits of `p`.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from kernelweave.compiled.threads import map_blocks
from kernelweave.errors import InvalidInputError

__all__ = ["exp_inplace", "rbf_from_inner"]

# Elements a thread takes at a time, and how many products the time of one exponential is.
_BLOCK = 1 << 16
_WORK = 8

_F = np.float32
# Adding 1.5 * 2^23 (2^52) rounds to an integer and leaves that integer in the low mantissa bits.
_MAGIC32, _MAGIC64 = _F(12582912.0), 6755399441055744.0
_LOG2E = 1.4426950408889634
# ln 2 in two parts; the first has few enough bits for k * part to be exact.
_LN2_HI32, _LN2_LO32 = _F(0.693115234375), _F(3.194618494530941723e-5)
_LN2_HI64, _LN2_LO64 = 0.6931471803691238165, 1.908214929270587816e-10
# Beyond these the result leaves the normal range: exactly 0 below, inf above.
_LOW32, _HIGH32 = _F(-87.33), _F(88.72283)
_LOW64, _HIGH64 = -708.39, 709.782712893384


@njit(cache=True, nogil=True, fastmath={"contract"}, inline="always")
def _exp32(x: np.float32) -> np.float32:
    """exp of a float32 scalar; relative error below 2e-7, NaN stays NaN."""
    t = x * _F(_LOG2E) + _MAGIC32
    k = t - _MAGIC32
    r = (x - k * _LN2_HI32) - k * _LN2_LO32
    p = _F(0.001392625083149761172)
    p = p * r + _F(0.008363232883682618204)
    p = p * r + _F(0.04166655421298415031)
    p = p * r + _F(0.1666657666611992831)
    p = p * r + _F(0.5)
    p = p * r + _F(1.0)
    p = p * r + _F(1.0)
    bits = np.int32(np.float32(t).view(np.int32) << 23) + np.float32(p).view(np.int32)
    out = np.int32(bits).view(np.float32)
    out = _F(0.0) if x < _LOW32 else out
    out = _F(np.inf) if x > _HIGH32 else out
    return x if x != x else out


@njit(cache=True, nogil=True, fastmath={"contract"}, inline="always")
def _exp64(x: float) -> float:
    """exp of a float64 scalar; relative error below 1e-15, NaN stays NaN."""
    t = x * _LOG2E + _MAGIC64
    k = t - _MAGIC64
    r = (x - k * _LN2_HI64) - k * _LN2_LO64
    p = 2.5100472505694996e-8
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
    out = np.int64(bits).view(np.float64)
    out = np.float64(0.0) if x < _LOW64 else out
    out = np.float64(np.inf) if x > _HIGH64 else out
    return x if x != x else out


@njit(cache=True, nogil=True, fastmath={"contract"})
def _scaled32(a: NDArray, scale: np.float32) -> None:
    for i in range(a.size):
        a[i] = _exp32(scale * a[i])


@njit(cache=True, nogil=True, fastmath={"contract"})
def _scaled64(a: NDArray, scale: float) -> None:
    for i in range(a.size):
        a[i] = _exp64(scale * a[i])


@njit(cache=True, nogil=True, fastmath={"contract"})
def _rbf32(inner: NDArray, left_sq: NDArray, right_sq: NDArray, gamma: np.float32) -> None:
    for i in range(inner.shape[0]):
        row = inner[i]
        square = left_sq[i]
        for j in range(row.size):
            dist = (square + right_sq[j]) - _F(2.0) * row[j]
            dist = _F(0.0) if dist < _F(0.0) else dist
            row[j] = _exp32(-gamma * dist)


@njit(cache=True, nogil=True, fastmath={"contract"})
def _rbf64(inner: NDArray, left_sq: NDArray, right_sq: NDArray, gamma: float) -> None:
    for i in range(inner.shape[0]):
        row = inner[i]
        square = left_sq[i]
        for j in range(row.size):
            dist = (square + right_sq[j]) - 2.0 * row[j]
            dist = 0.0 if dist < 0.0 else dist
            row[j] = _exp64(-gamma * dist)


def _checked(name: str, array: NDArray) -> None:
    if (
        array.ndim != 2
        or not array.flags.c_contiguous
        or array.dtype not in (np.float32, np.float64)
    ):
        raise InvalidInputError(
            f"{name} must be a C-contiguous 2-D array of float32 or float64 (it is changed in "
            f"place); got shape {array.shape}, dtype {array.dtype}, strides {array.strides}."
        )


def exp_inplace(A: NDArray, scale: float = 1.0) -> NDArray:
    """Replace `A` by :math:`\\exp(\\text{scale} \\cdot A)`, elementwise, and return it.

    Parameters
    ----------
    A : ndarray of shape (q, n), float32 or float64, C-contiguous
        Changed in place. Relative error at most 2e-7 (float32) or 1e-15 (float64) beyond the
        rounding of ``scale * A``; results below the smallest normal number are exactly 0.
    scale : float
        Factor of the exponent.

    Examples
    --------
    >>> import numpy as np
    >>> exp_inplace(np.array([[0.0, -2.0 * np.log(2.0), -1e9]]), 0.5)
    array([[1. , 0.5, 0. ]])
    """
    _checked("A", A)
    flat, work = A.reshape(-1), _WORK * A.size
    if A.dtype == np.float32:
        factor = np.float32(scale)
        map_blocks(lambda lo, hi: _scaled32(flat[lo:hi], factor), flat.size, _BLOCK, work)
    else:
        map_blocks(lambda lo, hi: _scaled64(flat[lo:hi], float(scale)), flat.size, _BLOCK, work)
    return A


def rbf_from_inner(P: NDArray, left_sq: NDArray, right_sq: NDArray, gamma: float) -> NDArray:
    """Turn inner products into Gaussian kernel values, in place, in one pass.

    .. math:: P_{ij} \\leftarrow \\exp(-\\gamma \\max(0,\\ |u_i|^2 + |v_j|^2 - 2 P_{ij}))

    Parameters
    ----------
    P : ndarray of shape (q, n), float32 or float64, C-contiguous
        Inner products of the left rows with the right rows; overwritten.
    left_sq, right_sq : ndarray of shape (q,) and (n,)
        Squared norms, used in the dtype of `P`.
    gamma : float
        Inverse squared width.

    Examples
    --------
    >>> import numpy as np
    >>> U, V = np.array([[0.0], [1.0]]), np.array([[1.0], [3.0]])
    >>> rbf_from_inner(U @ V.T, (U**2).sum(1), (V**2).sum(1), np.log(2.0))
    array([[0.5       , 0.00195312],
           [1.        , 0.0625    ]])
    """
    _checked("P", P)
    left = np.ascontiguousarray(left_sq, dtype=P.dtype)
    right = np.ascontiguousarray(right_sq, dtype=P.dtype)
    if left.shape != P.shape[:1] or right.shape != P.shape[1:]:
        raise InvalidInputError(
            f"left_sq and right_sq must have shapes {P.shape[:1]} and {P.shape[1:]} to match P; "
            f"got {left.shape} and {right.shape}."
        )
    kernel = _rbf32 if P.dtype == np.float32 else _rbf64
    factor = P.dtype.type(gamma)
    rows = max(1, _BLOCK // max(1, P.shape[1]))
    map_blocks(
        lambda lo, hi: kernel(P[lo:hi], left[lo:hi], right, factor),
        P.shape[0],
        rows,
        _WORK * P.size,
    )
    return P
