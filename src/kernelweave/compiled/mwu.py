"""Rounds of MWUMKL: one pass over the m x n state, and the pair to move next.

No loop here adds up in an order that depends on how the work was cut: sums over kernels are taken
for each sample on its own, in the order of the kernels.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from kernelweave.compiled.batch_rows import BLOCK, fill_points, load, padded, pair_rows

__all__ = [
    "add_and_weigh",
    "add_batch",
    "add_stack",
    "batch_pair",
    "best_pair",
    "factor_at",
    "factor_block",
    "factor_pair",
    "gather",
    "matrix_pair",
    "row_pair",
    "state_quads",
    "weigh_factors",
    "weigh_state",
]

_SCALAR = {"contract", "nnan", "ninf", "nsz"}


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


@njit(cache=True, nogil=True, fastmath=_SCALAR)
def _weigh(d: float, state: np.ndarray, out: np.ndarray) -> None:
    for c in range(out.shape[0]):
        out[c] += d * state[c]


@njit(cache=True, nogil=True, fastmath=_SCALAR)
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
    others: np.ndarray,
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
    """state[k] += a rows[r] + b others[r]; out += d_p state[k], for k, r = kernels[p], places[p].

    p and the columns run over given ranges. The state is read and written once. A kernel of weight
    zero is moved but not added up.
    """
    first, last = columns
    target = out[first:last]
    for p in range(part[0], part[1]):
        x, y = rows[places[p], first:last], others[places[p], first:last]
        _add_two(x, y, a, b, d[p], state[kernels[p], first:last], target)


@njit(cache=True, nogil=True)
def add_stack(
    stack: np.ndarray,
    pair: tuple[int, int],
    a: float,
    b: float,
    state: np.ndarray,
    kernels: np.ndarray,
    d: np.ndarray,
    out: np.ndarray,
    part: tuple[int, int],
    columns: tuple[int, int],
) -> None:
    """`add_and_weigh` with rows `pair` of matrices that lie one behind the other."""
    first, last = columns
    target = out[first:last]
    for p in range(part[0], part[1]):
        k = kernels[p]
        x, y = stack[k, pair[0], first:last], stack[k, pair[1], first:last]
        _add_two(x, y, a, b, d[p], state[k, first:last], target)


@njit(cache=True, nogil=True)
def weigh_state(
    state: np.ndarray,
    kernels: np.ndarray,
    d: np.ndarray,
    out: np.ndarray,
    part: tuple[int, int],
    columns: tuple[int, int],
) -> None:
    """out += d_p state[kernels[p]] for ranges of p and of columns."""
    first, last = columns
    target = out[first:last]
    for p in range(part[0], part[1]):
        if d[p] != 0.0:
            _weigh(d[p], state[kernels[p], first:last], target)


@njit(cache=True, nogil=True, fastmath=True)
def state_quads(state: np.ndarray, v: np.ndarray, out: np.ndarray, first: int, last: int) -> None:
    """out[k] = v . state[k] for kernels first..last, in float64."""
    for k in range(first, last):
        total = 0.0
        row = state[k]
        for c in range(v.shape[0]):
            total += row[c] * v[c]
        out[k] = total


@njit(cache=True, nogil=True)
def add_batch(
    pair: np.ndarray,
    table: np.ndarray,
    columns: np.ndarray,
    roots: np.ndarray,
    weights: np.ndarray,
    like: np.ndarray,
    state: np.ndarray,
    kernels: np.ndarray,
    d: np.ndarray,
    out: np.ndarray,
    first: int,
    last: int,
) -> None:
    """`add_and_weigh` for Gaussian kernels whose two rows are computed on the way.

    `pair` holds the two samples, as columns of a table like `table`; see
    :mod:`kernelweave.compiled.batch` for the rest.
    """
    n = table.shape[1]
    b = np.empty((columns.shape[1], padded(n)), like.dtype)
    B = np.empty((columns.shape[1], 2 * BLOCK), like.dtype)
    e = np.empty((2, BLOCK), like.dtype)
    for p in range(first, last):
        k = kernels[p]
        size = load(table, columns[k], roots[k], 0, padded(n), b)
        fill_points(pair, columns[k], roots[k], 0, B, BLOCK)
        for c in range(0, n, BLOCK):
            run = min(BLOCK, n - c)
            pair_rows(size, b, c, B, 0, BLOCK, padded(run), e)
            here = state[k, c : c + run]
            _add_two(e[0, :run], e[1, :run], weights[0], weights[1], d[p], here, out[c : c + run])


@njit(cache=True, nogil=True)
def batch_pair(
    pair: np.ndarray,
    columns: np.ndarray,
    roots: np.ndarray,
    kernels: np.ndarray,
    out: np.ndarray,
    first: int,
    last: int,
) -> None:
    """out[p] = K(x, z) of the Gaussian kernels[p] between the two samples of `pair`."""
    for p in range(first, last):
        k = kernels[p]
        z = 0.0
        for j in columns[k]:
            if j < 0:
                break
            difference = roots[k] * (pair[j, 0] - pair[j, 1])
            z += difference * difference
        out[p] = 2.0**-z


@njit(cache=True, nogil=True)
def gather(state: np.ndarray, kernels: np.ndarray, idx: np.ndarray, out: np.ndarray) -> None:
    """out[p, s] = state[kernels[p], idx[s]]."""
    for p in range(kernels.shape[0]):
        row = state[kernels[p]]
        for s in range(idx.shape[0]):
            out[p, s] = row[idx[s]]


@njit(cache=True, nogil=True)
def matrix_pair(
    stack: np.ndarray,
    state: np.ndarray,
    kernels: np.ndarray,
    i: int,
    j: int,
    at: np.ndarray,
    block: np.ndarray,
) -> None:
    """What a :class:`~kernelweave.bank.rounds.Choice` of i and j knows, from matrices."""
    for p in range(kernels.shape[0]):
        k = kernels[p]
        at[p, 0], at[p, 1] = state[k, i], state[k, j]
        block[p, 0], block[p, 1], block[p, 2] = stack[k, i, i], stack[k, j, j], stack[k, i, j]


@njit(cache=True, nogil=True)
def row_pair(
    rows: np.ndarray,
    others: np.ndarray,
    places: np.ndarray,
    state: np.ndarray,
    kernels: np.ndarray,
    i: int,
    j: int,
    at: np.ndarray,
    block: np.ndarray,
) -> None:
    """`matrix_pair` from row i and row j of the kernels in a cache."""
    for p in range(kernels.shape[0]):
        k, r = kernels[p], places[p]
        at[p, 0], at[p, 1] = state[k, i], state[k, j]
        block[p, 0], block[p, 1], block[p, 2] = rows[r, i], others[r, j], rows[r, j]


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
    """`matrix_pair` from factors."""
    for p in range(kernels.shape[0]):
        k = kernels[p]
        at_i, at_j, ii, jj, ij = 0.0, 0.0, 0.0, 0.0, 0.0
        for r in range(offsets[k], offsets[k + 1]):
            x, y = factors[r, i], factors[r, j]
            at_i += x * z[r]
            at_j += y * z[r]
            ii += x * x
            jj += y * y
            ij += x * y
        at[p, 0], at[p, 1] = at_i, at_j
        block[p, 0], block[p, 1], block[p, 2] = ii, jj, ij


@njit(cache=True, nogil=True, fastmath=_SCALAR)
def weigh_factors(
    factors: np.ndarray,
    rows: np.ndarray,
    c: np.ndarray,
    out: np.ndarray,
    columns: tuple[int, int],
) -> None:
    """out += sum_r c[r] factors[r] over some rows, on a range of columns; four rows at a time."""
    first, last = columns
    target = out[first:last]
    whole = rows.shape[0] - rows.shape[0] % 4
    for p in range(0, whole, 4):
        r0, r1, r2, r3 = rows[p], rows[p + 1], rows[p + 2], rows[p + 3]
        f0, f1 = factors[r0, first:last], factors[r1, first:last]
        f2, f3 = factors[r2, first:last], factors[r3, first:last]
        c0, c1, c2, c3 = c[r0], c[r1], c[r2], c[r3]
        for s in range(target.shape[0]):
            target[s] += (c0 * f0[s] + c1 * f1[s]) + (c2 * f2[s] + c3 * f3[s])
    for p in range(whole, rows.shape[0]):
        _weigh(c[rows[p]], factors[rows[p], first:last], target)


@njit(cache=True, nogil=True)
def factor_at(
    factors: np.ndarray,
    offsets: np.ndarray,
    kernels: np.ndarray,
    z: np.ndarray,
    idx: np.ndarray,
    out: np.ndarray,
) -> None:
    """out[p, s] = sum over the rows r of kernels[p] of factors[r, idx[s]] z[r]."""
    for p in range(kernels.shape[0]):
        k = kernels[p]
        for s in range(idx.shape[0]):
            total = 0.0
            for r in range(offsets[k], offsets[k + 1]):
                total += factors[r, idx[s]] * z[r]
            out[p, s] = total


@njit(cache=True, nogil=True)
def factor_block(
    factors: np.ndarray, offsets: np.ndarray, kernels: np.ndarray, idx: np.ndarray, out: np.ndarray
) -> None:
    """out[p, s, t] = K[idx[s], idx[t]] of kernels[p]."""
    for p in range(kernels.shape[0]):
        k = kernels[p]
        out[p] = 0.0
        for r in range(offsets[k], offsets[k + 1]):
            row = factors[r]
            for s in range(idx.shape[0]):
                for t in range(idx.shape[0]):
                    out[p, s, t] += row[idx[s]] * row[idx[t]]
