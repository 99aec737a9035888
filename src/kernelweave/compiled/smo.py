r"""Sequential minimal optimisation of a box QP with one equality constraint.

The problem, in signed variables (one a sample, ``F = K alpha``):

.. math::

    \min_\alpha \; \tfrac12 \alpha^\top K \alpha + \sum_i h_i(\alpha_i)
    \quad\text{s.t.}\quad \sum_i \alpha_i = \text{total}, \quad lo_i \le \alpha_i \le hi_i,
    \qquad h_i(\alpha) = -pos_i \max(\alpha, 0) - neg_i \min(\alpha, 0),

with :math:`lo_i \le 0 \le hi_i` and :math:`pos_i \le neg_i`: the hinge has ``lo`` or ``hi`` zero,
the eps-insensitive loss has both sides and a kink at 0. With

* ``up[i]``: slope of :math:`-h_i` for a growing :math:`\alpha_i`, ``-BIG`` if it cannot grow,
* ``low[i]``: slope of :math:`-h_i` for a falling :math:`\alpha_i`, ``+BIG`` if it cannot fall,

a point is optimal when :math:`\max_i (up_i - F_i) \le \min_j (low_j - F_j)`; the difference is the
KKT violation (LIBSVM's stopping rule). A step moves the pair chosen by second-order information
(Fan, Chen and Lin, 2005, Working set selection using second order information, WSS 2).
"""

from __future__ import annotations

import numpy as np
from numba import njit

from kernelweave.arrays import Array
from kernelweave.compiled import CALLED, INSIDE, ZERO
from kernelweave.compiled.intrinsics import fmax

# Stands for infinity, which would make NaN of a difference.
BIG = 1e300
# Smallest curvature of a pair, in parts of the largest diagonal entry (LIBSVM has it without a
# unit): duplicate rows get a long step that the box ends. The kernel zero gets the last number.
TAU = 1e-12
_NO_CURVATURE = 1e-250
# Place of the index inside a tagged float; at most 65,536 variables at a time.
_TAG = np.int64(0xFFFF)
_CLEAR = np.int64(~0xFFFF)
# Nothing is promised about NaN and infinity: kernels are finite, but sums of them times alpha may
# overflow. Sums keep their order: a slack of 0 must stay exactly 0.
_FAST = {"contract", "nsz", "arcp"}


@njit(**INSIDE)
def _rise(a: float, pos: float, neg: float, hi: float) -> float:
    """Slope of -h for a growing variable."""
    return neg if a < 0.0 else (pos if a < hi else -BIG)


@njit(**INSIDE)
def _fall(a: float, pos: float, neg: float, lo: float) -> float:
    """Slope of -h for a falling variable."""
    return pos if a > 0.0 else (neg if a > lo else BIG)


@njit(**CALLED, fastmath=_FAST)
def slopes(
    alpha: Array, fitted: Array, pos: Array, neg: Array, lo: Array, hi: Array, up: Array, low: Array
) -> tuple[float, float]:
    """Fill `up`, `low` and return max(up - F), min(low - F): the two ends of the KKT condition."""
    top, neg_bottom = -BIG, -BIG
    for k in range(alpha.size):
        up[k] = _rise(alpha[k], pos[k], neg[k], hi[k])
        low[k] = _fall(alpha[k], pos[k], neg[k], lo[k])
        top = fmax(top, up[k] - fitted[k])
        neg_bottom = fmax(neg_bottom, fitted[k] - low[k])
    return top, -neg_bottom


@njit(**CALLED, fastmath=_FAST, inline="always")
def _tagged(value: float, k: int) -> float:
    """`value` with `k` in its last 16 bits: a maximum of such numbers also says where it is.

    LLVM vectorises a running maximum but not the place of it; the 2e-11 of relative accuracy this
    costs only matters for the choice between variables that are as good as equal.
    """
    bits = (np.float64(value).view(np.int64) & _CLEAR) | np.int64(k)
    return np.int64(bits).view(np.float64)


@njit(**INSIDE)
def _place(tagged: float, size: int) -> int:
    """The index inside a tagged float: below `size`, whatever the float is.

    A maximum returns one of its arguments, all of them tagged with an index in range. That holds
    for NaN on the processors we know of, but nothing promises it.
    """
    place = int(np.float64(tagged).view(np.int64) & _TAG)
    return place if place < size else size - 1


@njit(**INSIDE, fastmath=_FAST, error_model="numpy")
def _partner(
    top: float, own: float, row: Array, diag: Array, low: Array, fitted: Array, tau: float
) -> tuple[int, float]:
    """Second index of the pair, and the violation: argmax of (top - E_k)^2 / curvature."""
    best, gap = 0.0, 0.0
    for k in range(fitted.size):
        slack = fmax(top - (low[k] - fitted[k]), 0.0)  # exactly 0 for the first index itself
        curvature = fmax((own + diag[k]) - 2.0 * row[k], tau)
        best = fmax(best, _tagged(slack * slack / curvature, k))
        gap = fmax(gap, slack)
    return _place(best, fitted.size), gap


@njit(**INSIDE, fastmath=_FAST)
def _move(step: float, row_i: Array, row_j: Array, up: Array, fitted: Array) -> int:
    """Add ``step * (K_i - K_j)`` to F and, in the same pass, return argmax of ``up - F``."""
    best = _tagged(-2.0 * BIG, ZERO)  # NaN is never larger: then the first one is returned
    for k in range(fitted.size):
        # Two products: a difference of float32 rows would be rounded to float32.
        value = (fitted[k] + step * row_i[k]) - step * row_j[k]
        fitted[k] = value
        best = fmax(best, _tagged(up[k] - value, k))
    return _place(best, fitted.size)


@njit(**INSIDE)
def _step_pair(i: int, j: int, step: float, alpha: Array, lo: Array, hi: Array) -> float:
    """Move alpha_i up and alpha_j down by at most `step`; ends of pieces are met exactly.

    Returns how far both have moved. Away from the ends the step is first rounded to the spacing of
    floats at the larger one: were each sum rounded by itself, the sum of all variables and the
    difference between F and K alpha would grow with every step.
    """
    room_i = -alpha[i] if alpha[i] < 0.0 else hi[i] - alpha[i]
    room_j = alpha[j] if alpha[j] > 0.0 else alpha[j] - lo[j]
    end_i = 0.0 if alpha[i] < 0.0 else hi[i]
    end_j = 0.0 if alpha[j] > 0.0 else lo[j]
    if step < min(room_i, room_j):
        larger = max(abs(alpha[i]), abs(alpha[j]))
        step = (larger + step) - larger
    step = min(step, room_i, room_j)
    # Rounding must not leave a variable an ulp from its end, nor beyond it.
    alpha[i] = end_i if step >= room_i else min(alpha[i] + step, end_i)
    alpha[j] = end_j if step >= room_j else max(alpha[j] - step, end_j)
    return step


@njit(**INSIDE, fastmath=_FAST)
def _count_active(top: float, bottom: float, up: Array, low: Array, fitted: Array) -> int:
    """How many variables are not strictly on the right side of the KKT condition."""
    count = 0
    for k in range(fitted.size):
        inside = (up[k] - fitted[k] >= bottom) | (low[k] - fitted[k] <= top)
        count += int(inside)
    return count


@njit(**CALLED)
def patience(size: int) -> int:
    """Steps between two looks at how many of so many variables can still move."""
    return max(100, size // 4)


@njit(**CALLED)
def smo_steps(
    K: Array,
    diag: Array,
    fitted: Array,
    pos: Array,
    neg: Array,
    lo: Array,
    hi: Array,
    alpha: Array,
    tol: float,
    max_steps: int,
    enough: int,
) -> tuple[int, float]:
    """Take SMO steps until the violation is at most `tol`.

    `alpha` and `fitted` (float64) are changed in place; `K` is symmetric, float32 or float64, of
    at most 65,536 rows. Also stops when no more than `enough` variables can still move (the rest
    is strictly optimal where it is): the caller then goes on with a smaller problem. Returns the
    number of steps and the last violation.
    """
    size = alpha.size
    up, low = np.empty(size, np.float64), np.empty(size, np.float64)
    slopes(alpha, fitted, pos, neg, lo, hi, up, low)
    i = _move(0.0, K[0], K[0], up, fitted)
    every = patience(size)
    tau = _NO_CURVATURE
    for k in range(size):
        if TAU * diag[k] > tau:  # (said so that NaN is not taken)
            tau = TAU * diag[k]
    steps = 0
    while True:
        if up[i] == -BIG:
            return steps, 0.0
        top = up[i] - fitted[i]
        row = K[i]
        j, gap = _partner(top, diag[i], row, diag, low, fitted, tau)
        if gap <= tol:
            # The tag may have hidden a slightly larger one.
            first = i
            for k in range(size):
                if up[k] - fitted[k] > up[first] - fitted[first]:
                    first = k
            if not up[first] - fitted[first] > top:  # (said so that NaN ends the loop, too)
                return steps, gap
            i = first
            continue
        if steps >= max_steps:
            return steps, gap
        look = enough > 0 and steps % every == every - 1
        if look and _count_active(top, top - gap, up, low, fitted) <= enough:
            return steps, gap
        curvature = max(diag[i] + diag[j] - 2.0 * row[j], tau)
        before_i, before_j = alpha[i], alpha[j]
        step = _step_pair(i, j, (top - (low[j] - fitted[j])) / curvature, alpha, lo, hi)
        if alpha[i] == before_i and alpha[j] == before_j:
            return steps, gap  # the step is below the spacing of floats: nothing more to gain
        for k in (i, j):
            up[k] = _rise(alpha[k], pos[k], neg[k], hi[k])
            low[k] = _fall(alpha[k], pos[k], neg[k], lo[k])
        i = _move(step, row, K[j], up, fitted)
        steps += 1
