"""Rounds of MWUMKL: one pass over the m x n state, and the pair to move next.

No loop here adds up in an order that depends on how the work was cut: sums over kernels are taken
for each sample on its own, in the order of the kernels.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from kernelweave.compiled.blocks import GAUSSIAN_COLUMNS
from kernelweave.compiled.exp import NO_SPECIAL_VALUES
from kernelweave.compiled.gaussians import Batch, buffers, kernel_values, load, padded

__all__ = ["add_and_weigh", "add_gaussians", "best_pair", "factor_pair", "row_pair"]


@njit(cache=True, nogil=True)
def best_pair(
    fitted: np.ndarray,
    v: np.ndarray,
    linear: np.ndarray,
    ridge: np.ndarray,
    up: np.ndarray,
    down: np.ndarray,
) -> tuple[int, float, int, float]:
    """FIND-alpha (MWUMKL algorithm 3): who may rise and should most, who may fall and should most.

    The score of sample i is linear_i - fitted_i - ridge_i v_i. Returns (i, score, j, score), the
    first of equals, and -1 where nobody may.
    """
    i, j = -1, -1
    high, low = -np.inf, np.inf
    for s in range(v.shape[0]):
        score = linear[s] - fitted[s] - ridge[s] * v[s]
        if v[s] < up[s] and (score > high or i < 0):
            i, high = s, score
        if v[s] > down[s] and (score < low or j < 0):
            j, low = s, score
    return i, high, j, low


@njit(cache=True, nogil=True, fastmath=NO_SPECIAL_VALUES)
def _add_two(
    x: np.ndarray, y: np.ndarray, a: float, b: float, d: float, state: np.ndarray, out: np.ndarray
) -> None:
    if d == 0.0:
        for c in range(out.shape[0]):
            state[c] += a * x[c] + b * y[c]
        return
    for c in range(out.shape[0]):
        moved = state[c] + (a * x[c] + b * y[c])
        state[c] = moved
        out[c] += d * moved


@njit(cache=True, nogil=True)
def add_and_weigh(
    rows: np.ndarray,
    places: np.ndarray,
    a: float,
    b: float,
    state: np.ndarray,
    kernels: np.ndarray,
    d: np.ndarray,
    out: np.ndarray,
    part: tuple[int, int],
    columns: tuple[int, int],
) -> None:
    """state[k] += a rows[places[0, p]] + b rows[places[1, p]]; out += d_p state[k].

    Here k is kernels[p]; p and the columns run over given ranges. The state is read and written
    once. A kernel of weight zero is moved but not added up.
    """
    first, last = columns
    target = out[first:last]
    for p in range(part[0], part[1]):
        x, y = rows[places[0, p], first:last], rows[places[1, p], first:last]
        _add_two(x, y, a, b, d[p], state[kernels[p], first:last], target)


@njit(cache=True, nogil=True)
def add_gaussians(
    pair: np.ndarray,
    table: np.ndarray,
    batch: Batch,
    a: float,
    b: float,
    state: np.ndarray,
    kernels: np.ndarray,
    d: np.ndarray,
    out: np.ndarray,
    part: tuple[int, int],
) -> None:
    """`add_and_weigh` for Gaussian kernels whose two rows are computed on the way.

    `pair` holds the two samples, as columns of a table like `table`; see
    :mod:`kernelweave.compiled.gaussians`.
    """
    n = table.shape[1]
    two, all_samples, e = buffers(batch, 2, n)
    for p in range(part[0], part[1]):
        k = kernels[p]
        size = load(pair, batch, k, two)
        load(table, batch, k, all_samples)
        for c in range(0, n, GAUSSIAN_COLUMNS):
            stop = min(c + GAUSSIAN_COLUMNS, n)
            kernel_values(size, two, 0, 2, all_samples, c, padded(stop - c), e)
            _add_two(e[0], e[1], a, b, d[p], state[k, c:stop], out[c:stop])


@njit(cache=True, nogil=True)
def row_pair(
    rows: np.ndarray,
    places: np.ndarray,
    state: np.ndarray,
    kernels: np.ndarray,
    i: int,
    j: int,
    at: np.ndarray,
    block: np.ndarray,
) -> None:
    """What moving i and j has to know of kernels whose rows i and j are at ``places[:, p]``."""
    for p in range(kernels.shape[0]):
        k, x, y = kernels[p], rows[places[0, p]], rows[places[1, p]]
        at[p, 0], at[p, 1] = state[k, i], state[k, j]
        block[p, 0], block[p, 1], block[p, 2] = x[i], y[j], x[j]


@njit(cache=True, nogil=True)
def factor_pair(
    factors: np.ndarray,
    offsets: np.ndarray,
    kernels: np.ndarray,
    z: np.ndarray,
    i: int,
    j: int,
    at: np.ndarray,
    block: np.ndarray,
) -> None:
    """`row_pair` from factors, and from z = F v of each."""
    for p in range(kernels.shape[0]):
        k = kernels[p]
        at[p], block[p] = 0.0, 0.0
        for r in range(offsets[k], offsets[k + 1]):
            x, y = factors[r, i], factors[r, j]
            at[p, 0] += x * z[r]
            at[p, 1] += y * z[r]
            block[p, 0] += x * x
            block[p, 1] += y * y
            block[p, 2] += x * y
