"""One pass over a square matrix: is it finite, and how far is it from symmetric?"""

from __future__ import annotations

import numpy as np
from numba import njit

__all__ = ["scan_rows"]

_TILE = 64


@njit(cache=True, nogil=True)
def scan_rows(K: np.ndarray, first: int, last: int) -> tuple[float, float]:
    """Look at rows first..last left of the diagonal, and at their mirror images.

    Returns the largest |K_ij - K_ji|, and a number that is zero unless something is not finite.
    Square tiles keep both sides of the diagonal in the cache, so that the matrix travels once.
    """
    worst = 0.0
    trouble = 0.0
    for j0 in range(0, last, _TILE):
        j1 = min(j0 + _TILE, last)
        for i in range(max(first, j0), last):
            row = K[i]
            for j in range(j0, min(j1, i + 1)):
                here, there = row[j], K[j, i]
                # Zero times a finite number is zero; times anything else it is NaN.
                trouble += 0.0 * here + 0.0 * there
                worst = max(worst, abs(here - there))
    return worst, trouble
