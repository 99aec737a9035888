r"""Fast exponentials of whole arrays.

LLVM does not vectorise calls to ``exp``; a range reduction and a polynomial it does. A number is
split into an integer k and a rest :math:`|r| \le \tfrac12`; a polynomial gives :math:`2^r`, and the
factor :math:`2^k` is an integer addition to the exponent bits of that. On processors with AVX2 but
not AVX-512 NumPy takes almost four times as long in float64, and more than twice in float32
(``python -m benchmarks.limit.roofline`` on the processors of ``.ci/simulated_cpus.py``).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types
from numba.extending import overload

from kernelweave.arrays import Array
from kernelweave.compiled import CALLED
from kernelweave.compiled.blocks import FEW_ENTRIES, GAUSSIAN_WORK
from kernelweave.compiled.threads import map_blocks
from kernelweave.errors import InvalidInputError

# Compiler flags where neither NaN nor infinity can occur; sums keep their order.
NO_SPECIAL_VALUES = {"contract", "nnan", "ninf", "nsz"}

_LOG2E = 1.4426950408889634
# Coefficients of 2^r, highest first, which interpolate it at Chebyshev nodes of [-1/2, 1/2]: degree
# 6 in float32 and 11 in float64, where the errors are below those of rounding.
_POLYNOMIALS = {
    types.float32: (
        0.00015444966812315717,
        0.0013381398233604555,
        0.009618103149371587,
        0.05550380894081402,
        0.24022650695910072,
        0.6931471805599453,
        1.0,
    ),
    types.float64: (
        4.454120565395306e-10,
        7.071010049621724e-09,
        1.0178067192323587e-07,
        1.3215451492282766e-06,
        1.5252733820896517e-05,
        0.00015403530424965467,
        0.0013333558146423172,
        0.009618129107618587,
        0.05550410866482158,
        0.24022650695910075,
        0.6931471805599453,
        1.0,
    ),
}
# Adding 1.5 * 2^23 (2^52) rounds to an integer and leaves that integer in the low mantissa bits.
_MAGIC = {types.float32: 12582912.0, types.float64: 6755399441055744.0}
_KINDS: dict[Any, tuple[Any, Any, int]] = {
    types.float32: (np.float32, np.int32, 23),
    types.float64: (np.float64, np.int64, 52),
}
# ln 2 in two parts; the first has few enough bits for k * part to be exact.
_LN2 = {
    types.float32: (0.693115234375, 3.194618494530941723e-5),
    types.float64: (0.6931471803691238165, 1.908214929270587816e-10),
}
# Beyond these the result leaves the normal range: exactly 0 below, inf above.
_ENDS = {types.float32: (-87.33, 88.72283), types.float64: (-708.39, 709.782712893384)}
# The smallest normal number is two to the power of minus this.
_LAST = {types.float32: 126.0, types.float64: 1022.0}


def _compiled_only(*arguments: Any) -> Any:
    raise NotImplementedError("only compiled code calls this")


def _two_to(t: Any, r: Any) -> Any:
    """2^(t - magic) 2^r."""
    return _compiled_only(t, r)


@overload(_two_to, jit_options={"fastmath": {"contract"}})
def _two_to_of(t: Any, r: Any) -> Any:
    kind, integer, bits = _KINDS[t]
    top, *rest = (kind(c) for c in _POLYNOMIALS[t])
    others = tuple(rest)

    def two_to(t: Any, r: Any) -> Any:
        p = top
        for c in others:
            p = p * r + c
        return integer(integer(kind(t).view(integer) << bits) + kind(p).view(integer)).view(kind)

    return two_to


def power_of_half(z: Any) -> Any:
    """2^-z for z >= 0, at least the smallest normal number."""
    return _compiled_only(z)


@overload(power_of_half, jit_options={"fastmath": NO_SPECIAL_VALUES})
def _power_of_half_of(z: Any) -> Any:
    kind = _KINDS[z][0]
    last, magic = kind(_LAST[z]), kind(_MAGIC[z])

    def power_of_half(z: Any) -> Any:
        x = z if z < last else last
        t = magic - x
        return _two_to(t, (magic - t) - x)

    return power_of_half


def _exp(x: Any) -> Any:
    """exp; relative error below 2e-7 in float32 and 1e-15 in float64, NaN stays NaN."""
    return _compiled_only(x)


@overload(_exp, jit_options={"fastmath": {"contract"}})
def _exp_of(x: Any) -> Any:
    kind = _KINDS[x][0]
    magic, log2e = kind(_MAGIC[x]), kind(_LOG2E)
    (high, low), (lowest, highest) = map(kind, _LN2[x]), map(kind, _ENDS[x])
    zero, infinity = kind(0.0), kind(np.inf)

    def exp(x: Any) -> Any:
        t = x * log2e + magic
        k = t - magic
        out = _two_to(t, ((x - k * high) - k * low) * log2e)
        out = zero if x < lowest else out
        out = infinity if x > highest else out
        return x if x != x else out

    return exp


@njit(**CALLED, fastmath={"contract"})
def scaled(a: Array, scale: Any) -> None:
    """Replace a, of one dimension, by exp(scale a); both of one type."""
    for i in range(a.size):
        a[i] = _exp(scale * a[i])


def exp_inplace(A: Array, scale: float = 1.0) -> Array:
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
    if A.ndim != 2 or not A.flags.c_contiguous or A.dtype not in (np.float32, np.float64):
        raise InvalidInputError(
            f"A must be a C-contiguous 2-D array of float32 or float64 (it is changed in place); "
            f"got shape {A.shape}, dtype {A.dtype}, strides {A.strides}."
        )
    flat, factor = A.reshape(-1), A.dtype.type(scale)
    work = GAUSSIAN_WORK * flat.size
    map_blocks(lambda lo, hi: scaled(flat[lo:hi], factor), flat.size, FEW_ENTRIES, work)
    return A
