"""Is a matrix finite, within float32? And one side of the diagonal copied to the other."""

from __future__ import annotations

import numpy as np
from numba import njit

from kernelweave.arrays import AnyArray as Array
from kernelweave.compiled.blocks import TILE

# Beyond these float32 overflows in sums, or loses digits that it has elsewhere.
_SMALLEST, _LARGEST = 1e-36, 1e36


def fits_float32(diagonal: Array) -> bool:
    """Whether a kernel matrix with such a diagonal can be kept in float32.

    A kernel is positive semi-definite, |K_ij| <= sqrt(K_ii K_jj): its diagonal bounds all values,
    and their rounding relative to that is 2^-24 as long as the diagonal is zero or in this range.
    """
    sizes = np.abs(diagonal[diagonal != 0])
    return bool(sizes.size == 0 or (sizes.min() >= _SMALLEST and sizes.max() <= _LARGEST))


# No flag may promise that NaN and infinity do not occur: they are what is looked for.
@njit(cache=True, nogil=True, fastmath={"reassoc", "nsz"})
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


@njit(cache=True, nogil=True)
def mirror_rows(A: Array, start: int, stop: int) -> None:
    """Copy the entries of some columns below the diagonal to the rows above it, tile by tile."""
    for first in range(start, A.shape[0], TILE):
        last = min(first + TILE, A.shape[0])
        for j in range(start, stop):
            for i in range(max(first, j + 1), last):
                A[j, i] = A[i, j]
