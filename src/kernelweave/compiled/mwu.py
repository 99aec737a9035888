"""Rounds of MWUMKL: one pass over the m x n state, the pair to move next, the step along it.

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
    "exponentiate",
    "factor_at",
    "factor_block",
    "gather",
    "pair_quads",
    "soft_step",
    "state_quads",
    "weigh_factors",
    "weigh_state",
]

_SCALAR = {"contract", "nnan", "ninf", "nsz"}
# Line searches end where the slope has fallen to this part of the first one.
_SLOPE_LEFT = 0.05
_MOST_TRIALS = 60
# Beyond this, cosh and sinh are exp / 2 to the last digit (the paper's "q = 20").
_LARGE = 20.0


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


@njit(cache=True, nogil=True)
def pair_quads(quad: np.ndarray, products: np.ndarray, block: np.ndarray, step: float) -> None:
    """v'K_k v after v_i += step, v_j -= step, in place.

    `products` and `block` are those of a :class:`~kernelweave.bank.rounds.Choice`.
    """
    for k in range(quad.shape[0]):
        eta = block[k, 0] + block[k, 1] - 2.0 * block[k, 2]
        moved = quad[k] + 2.0 * step * (products[k, 0] - products[k, 1]) + step * step * eta
        quad[k] = max(moved, 0.0)


@njit(cache=True, nogil=True)
def exponentiate(
    quad: np.ndarray, scale: np.ndarray, ridge: float, rate: float, out: np.ndarray
) -> None:
    """EXPONENTIATE-M (MWUMKL algorithm 2): weights of the kernels in g, up to a common factor.

    With norms u_k = sqrt(scale_k quad_k + ridge) they are scale_k sinh(rate u_k) / u_k, by lemma
    4.1; where the sinh would overflow, everything is divided by the largest exponential. They are
    divided so that the weights of the unit-trace kernels, without their scales, sum to one: that
    is the weight of the ridge. (The trace S divides out.)
    """
    m = quad.shape[0]
    top = 0.0
    for k in range(m):
        out[k] = np.sqrt(scale[k] * quad[k] + ridge)
        top = max(top, rate * out[k])
    total = 0.0
    for k in range(m):
        norm = out[k]
        if top < _LARGE:
            out[k] = np.sinh(rate * norm) / norm if norm > 0.0 else rate
        else:
            out[k] = np.exp(rate * norm - top) / norm if norm > 0.0 else rate * np.exp(-top)
        total += out[k]
    for k in range(m):
        out[k] *= scale[k] / total if top > 0.0 else 0.0


@njit(cache=True, nogil=True, fastmath=_SCALAR)
def _slope(
    t: float,
    beta: float,
    prior: np.ndarray,
    q: np.ndarray,
    p: np.ndarray,
    eta: np.ndarray,
    moved: np.ndarray,
    d: np.ndarray,
) -> tuple[float, float]:
    """Half the slope of the soft maximum of q at step t, and half its curvature; fills q(t), d."""
    m = q.shape[0]
    top = -np.inf
    for k in range(m):
        moved[k] = max(q[k] + t * (2.0 * p[k] + t * eta[k]), 0.0)
        d[k] = prior[k] + beta * moved[k]
        top = max(top, d[k])
    total = 0.0
    for k in range(m):
        # Quashed by the largest, as in EXPONENTIATE-M: nothing can overflow.
        d[k] = np.exp(d[k] - top)
        total += d[k]
    mean, square, bend = 0.0, 0.0, 0.0
    for k in range(m):
        d[k] /= total
        half = p[k] + t * eta[k]
        mean += d[k] * half
        square += d[k] * half * half
        bend += d[k] * eta[k]
    return mean, bend + 2.0 * beta * max(square - mean * mean, 0.0)


@njit(cache=True, nogil=True)
def soft_step(
    gain: float,
    ridge: float,
    most: float,
    beta: float,
    prior: np.ndarray,
    q: np.ndarray,
    p: np.ndarray,
    eta: np.ndarray,
    moved: np.ndarray,
    d: np.ndarray,
) -> float:
    """Step t in (0, most] along a pair, near the top of the smoothed dual; fills q(t) and d(t).

    The dual rises along the pair at the rate gain - ridge t - sum_k d_k(t) (p_k + t eta_k), where
    d_k(t) is proportional to exp(prior_k + beta q_k(t)), q_k(t) = q_k + 2 t p_k + t^2 eta_k. It is
    concave: Newton's steps, kept inside a bracket.
    """
    mean, bend = _slope(0.0, beta, prior, q, p, eta, moved, d)
    first = gain - mean
    low, high = 0.0, most
    t = 0.0
    slope, curve = first, ridge + bend
    for _ in range(_MOST_TRIALS):
        step = slope / curve if curve > 0.0 else np.inf
        t = t + step
        if not low < t < high:
            if high == np.inf:
                t = 2.0 * max(low, 1e-300) if step == np.inf else t
            elif t >= high and low == 0.0 and high == most:
                t = most
            else:
                t = 0.5 * (low + high)
        mean, bend = _slope(t, beta, prior, q, p, eta, moved, d)
        slope, curve = gain - ridge * t - mean, ridge + bend
        if abs(slope) <= _SLOPE_LEFT * first or (t == most and slope > 0.0):
            break
        if slope > 0.0:
            low = t
        else:
            high = t
    return t
