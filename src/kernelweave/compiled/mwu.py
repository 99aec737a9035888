"""Rounds of MWUMKL: the pair to move next, how far, and one pass over the m x n state.

No loop here adds up in an order that depends on how the work was cut: sums over kernels are taken
for each sample on its own, in the order of the kernels.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from kernelweave.arrays import Array
from kernelweave.compiled import CALLED, INSIDE, ZERO
from kernelweave.compiled.blocks import GAUSSIAN_COLUMNS, GAUSSIAN_ROWS
from kernelweave.compiled.exp import NO_SPECIAL_VALUES
from kernelweave.compiled.gaussians import Kernels, distances, load, values

# Line searches end where the slope has fallen to this part of the first one. To a gap of 1e-3 at
# C = 10 a fifth of it, it, and five times as much take 1011, 963 and 963 rounds (digits, hinge),
# 2420, 2305, 2420 (wine, hinge) and 1419, 1227, 1169 (wine, squared hinge).
_SLOPE_LEFT = 0.05
# Halving a bracket that often leaves less of it than float64 resolves.
_MOST_TRIALS = 60
# Beyond this, cosh and sinh are exp / 2 to the last digit (the paper's "q = 20").
_LARGE = 20.0
# Steps that end this near an end of the box, relative to their size, go to it.
_DUST = 1e-12


@njit(**CALLED)
def best_pair(
    fitted: Array, v: Array, linear: Array, ridge: Array, up: Array, down: Array
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


@njit(**INSIDE, fastmath=NO_SPECIAL_VALUES)
def _add_two(x: Array, y: Array, a: float, b: float, d: float, state: Array, out: Array) -> None:
    for c in range(out.shape[0]):
        moved = state[c] + (a * x[c] + b * y[c])
        state[c] = moved
        out[c] += d * moved


@njit(**CALLED)
def add_and_weigh(
    rows: Array,
    places: Array,
    a: float,
    b: float,
    state: Array,
    kernels: Array,
    d: Array,
    out: Array,
    part: tuple[int, int],
    columns: tuple[int, int],
) -> None:
    """state[k] += a rows[places[0, p]] + b rows[places[1, p]]; out += d_p state[k].

    Here k is kernels[p]; p and the columns run over given ranges. The state is read and written
    once.
    """
    first, last = columns
    target = out[first:last]
    for p in range(part[0], part[1]):
        x, y = rows[places[0, p], first:last], rows[places[1, p], first:last]
        _add_two(x, y, a, b, d[p], state[kernels[p], first:last], target)


@njit(**CALLED)
def add_gaussians(
    pair: Array,
    table: Array,
    gaussians: Kernels,
    a: float,
    b: float,
    state: Array,
    kernels: Array,
    d: Array,
    part: tuple[int, int],
    work: Array,
    out: Array,
) -> None:
    """`add_and_weigh` for Gaussian kernels whose two rows are computed on the way.

    `pair` holds the two samples, as columns of a table like `table`, and `work` is memory; see
    :mod:`kernelweave.compiled.gaussians`.
    """
    n, most = table.shape[1], gaussians[0].shape[1]
    two, run, z, e = work[:most], work[most : 2 * most], work[2 * most :], work[2 * most + 2 :]
    count = pair.shape[1]
    for p in range(part[0], part[1]):
        k = kernels[p]
        ratio = work.dtype.type(gaussians[2][k])
        size = load(pair, gaussians, k, ZERO, count, two)
        for c in range(0, n, GAUSSIAN_COLUMNS):
            stop = c + GAUSSIAN_COLUMNS if c + GAUSSIAN_COLUMNS < n else n
            wide = (stop - c + GAUSSIAN_ROWS - 1) // GAUSSIAN_ROWS * GAUSSIAN_ROWS
            load(table, gaussians, k, c, stop, run)
            distances(size, two, ZERO, count, run, ZERO, wide, z)
            values(z, ratio, count, wide, e)
            _add_two(e[0], e[1], a, b, d[p], state[k, c:stop], out[c:stop])


@njit(**CALLED)
def row_pair(
    rows: Array,
    places: Array,
    state: Array,
    kernels: Array,
    i: int,
    j: int,
    at: Array,
    block: Array,
) -> None:
    """What moving i and j has to know of kernels whose rows i and j are at ``places[:, p]``."""
    for p in range(kernels.shape[0]):
        k, x, y = kernels[p], rows[places[0, p]], rows[places[1, p]]
        at[p, 0], at[p, 1] = state[k, i], state[k, j]
        block[p, 0], block[p, 1], block[p, 2] = x[i], y[j], x[j]


@njit(**CALLED)
def factor_pair(
    factors: Array,
    offsets: Array,
    kernels: Array,
    z: Array,
    i: int,
    j: int,
    at: Array,
    block: Array,
) -> None:
    """`row_pair` from factors, and from z = F v of each; `at` and `block` are zero before."""
    for p in range(kernels.shape[0]):
        k = kernels[p]
        for r in range(offsets[k], offsets[k + 1]):
            x, y = factors[r, i], factors[r, j]
            at[p, 0] += x * z[r]
            at[p, 1] += y * z[r]
            block[p, 0] += x * x
            block[p, 1] += y * y
            block[p, 2] += x * y


@njit(**CALLED)
def pair_quads(quad: Array, products: Array, block: Array, step: float) -> None:
    """v'K_k v after v_i += step, v_j -= step, in place.

    `products` and `block` are those of a :class:`~kernelweave.solvers.mwu.rounds.PairStep`.
    """
    for k in range(quad.shape[0]):
        eta = block[k, 0] + block[k, 1] - 2.0 * block[k, 2]
        moved = quad[k] + 2.0 * step * (products[k, 0] - products[k, 1]) + step * step * eta
        quad[k] = max(moved, 0.0)


@njit(**CALLED)
def exponentiate(quad: Array, scale: Array, ridge: float, rate: float, out: Array) -> None:
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


@njit(**INSIDE, fastmath=NO_SPECIAL_VALUES)
def _slope(
    t: float, beta: float, prior: Array, q: Array, p: Array, eta: Array, moved: Array, d: Array
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


@njit(**CALLED)
def pair_step(
    rise: float,
    fall: float,
    products: Array,
    block: Array,
    size: float,
    gain: float,
    ridge: float,
    beta: float,
    prior: Array,
    quad: Array,
    d: Array,
) -> tuple[float, float]:
    """Return by how much v_i rises and v_j falls, near the top of the smoothed dual.

    Changes `quad` to what it becomes and fills d. The dual rises along the pair at the rate
    gain - ridge t - sum_k d_k(t) (p_k + t eta_k), where d_k(t) is proportional to
    exp(prior_k + beta q_k(t)), q_k(t) = q_k + 2 t p_k + t^2 eta_k, and p and eta come from the
    `products` and the `block` of a :class:`~kernelweave.solvers.mwu.rounds.PairStep`. It is
    concave: Newton's steps, kept inside a bracket. `rise` and `fall` are the most that the box
    allows, and `size` is the larger of v_i and v_j in absolute value.
    """
    m = quad.shape[0]
    p, eta, moved = np.empty(m), np.empty(m), np.empty(m)
    for k in range(m):
        p[k] = products[k, 0] - products[k, 1]
        eta[k] = max(block[k, 0] + block[k, 1] - 2.0 * block[k, 2], 0.0)
    most = min(rise, fall)
    mean, bend = _slope(0.0, beta, prior, quad, p, eta, moved, d)
    first = gain - mean
    low, high, t = 0.0, most, 0.0
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
        mean, bend = _slope(t, beta, prior, quad, p, eta, moved, d)
        slope, curve = gain - ridge * t - mean, ridge + bend
        if abs(slope) <= _SLOPE_LEFT * first or (t == most and slope > 0.0):
            break
        if slope > 0.0:
            low = t
        else:
            high = t
    quad[:] = moved
    # Exactly to the end of the box if near it, or dust at the ends would be moved for ever.
    dust = _DUST * max(t, size)
    return rise if rise - t <= dust else t, fall if fall - t <= dust else t
