"""Is a square matrix finite and symmetric? A fast probe, an exact scan; and making it so."""

from __future__ import annotations

import numpy as np
from numba import njit

from kernelweave.compiled.blocks import TILE
from kernelweave.compiled.intrinsics import fmax

__all__ = ["mirror_rows", "probe_rows", "scan_rows"]


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
                # Zero times a finite number is zero; times anything else it is NaN.
                trouble += 0.0 * here[j] + 0.0 * there[j]
                worst = fmax(worst, abs(np.float64(here[j]) - np.float64(there[j])))
    return worst, trouble


@njit(cache=True, nogil=True, fastmath={"reassoc", "nsz", "contract"})
def probe_rows(
    K: np.ndarray, v: np.ndarray, first: int, last: int, right: np.ndarray, left: np.ndarray
) -> None:
    """right[i] = (K v)_i for i in first..last, and left = their part of K'v, in one pass."""
    n = v.shape[0]
    for i in range(first, last):
        row = K[i]
        here = v[i]
        total = 0.0
        for j in range(n):
            total += row[j] * v[j]
            left[j] += here * row[j]
        right[i] = total


@njit(cache=True, nogil=True)
def mirror_rows(A: np.ndarray, start: int, stop: int) -> None:
    """Copy the entries of some columns below the diagonal to the rows above it, tile by tile."""
    for first in range(start, A.shape[0], TILE):
        last = min(first + TILE, A.shape[0])
        for j in range(start, stop):
            for i in range(max(first, j + 1), last):
                A[j, i] = A[i, j]
