"""Is a matrix finite, symmetric, within float32? Passes that tell, and one that makes it so."""

from __future__ import annotations

import numpy as np
from numba import njit

from kernelweave.compiled.blocks import TILE
from kernelweave.compiled.intrinsics import fmax

__all__ = ["all_finite", "fits_float32", "mirror_rows", "scan_rows"]

# Beyond these float32 overflows in sums, or loses digits that it has elsewhere.
_SMALLEST, _LARGEST = 1e-36, 1e36


def fits_float32(diagonal: np.ndarray) -> bool:
    """Whether a kernel matrix with such a diagonal can be kept in float32.

    A kernel is positive semi-definite, |K_ij| <= sqrt(K_ii K_jj): its diagonal bounds all values,
    and their rounding relative to that is 2^-24 as long as the diagonal is zero or in this range.
    """
    sizes = np.abs(diagonal[diagonal != 0])
    return bool(sizes.size == 0 or (sizes.min() >= _SMALLEST and sizes.max() <= _LARGEST))


# No flag may promise that NaN and infinity do not occur: they are what is looked for.
@njit(cache=True, nogil=True, fastmath={"reassoc", "nsz"})
def all_finite(values: np.ndarray) -> bool:
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


@njit(cache=True, nogil=True, fastmath={"reassoc", "nsz"})
def scan_rows(K: np.ndarray, first: int, last: int) -> tuple[float, float]:
    """Look at rows first..last (at most TILE of them) up to the diagonal, and at their images.

    Returns the largest |K_ij - K_ji|, and a number that is zero unless something is not finite.
    Tiles are turned over in a small buffer, so that both sides are read in order, once.
    """
    worst = 0.0
    trouble = 0.0
    image = np.zeros((TILE, TILE), K.dtype)
    for j0 in range(0, last, TILE):
        j1 = min(j0 + TILE, last)
        for j in range(j0, j1):
            row = K[j, first:last]
            for i in range(last - first):
                image[i, j - j0] = row[i]
        for i in range(first, last):
            here, there = K[i, j0:j1], image[i - first]
            for j in range(j1 - j0):
                # As in `all_finite`.
                trouble += 0.0 * here[j] + 0.0 * there[j]
                worst = fmax(worst, abs(np.float64(here[j]) - np.float64(there[j])))
    return worst, trouble


@njit(cache=True, nogil=True)
def mirror_rows(A: np.ndarray, start: int, stop: int) -> None:
    """Copy the entries of some columns below the diagonal to the rows above it, tile by tile."""
    for first in range(start, A.shape[0], TILE):
        last = min(first + TILE, A.shape[0])
        for j in range(start, stop):
            for i in range(max(first, j + 1), last):
                A[j, i] = A[i, j]
