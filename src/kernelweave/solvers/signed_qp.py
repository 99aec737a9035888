"""A box QP in signed variables, one a sample: where one stands, and who violates optimality."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kernelweave.compiled.smo import BIG, patience, slopes, smo_steps
from kernelweave.deadline import Deadline
from kernelweave.errors import InvalidInputError
from kernelweave.losses.base import BoxQP

__all__ = [
    "Ends",
    "SignedQP",
    "intercept_of",
    "mend_sum",
    "nearest_feasible",
    "signed_form",
    "smo_until",
    "worst_violators",
]

Vector = NDArray[np.float64]
Index = NDArray[np.int64]
# slopes minus F, and their extremes: what one look at all variables gives
Ends = tuple[Vector, Vector, float, float]

# Part of a round's variables kept from the round before.
_KEEP = 0.5
# Numbers that compiled steps read between two looks at the clock: a tenth of a second or so.
_READ = 1e8
# A step on few variables takes as long as reading so many numbers.
_LEAST_READ = 1000


@dataclass
class SignedQP:
    """The problem in signed variables (see `kernelweave.compiled.smo`) and where we are."""

    pos: Vector
    neg: Vector
    lo: Vector
    hi: Vector
    alpha: Vector
    fitted: Vector
    n_steps: int = 0
    n_rounds: int = 0

    def ends(self) -> Ends:
        """``up - F``, ``low - F`` (-BIG, BIG where blocked), their largest and smallest element."""
        up, low = np.empty_like(self.alpha), np.empty_like(self.alpha)
        top, bottom = slopes(self.alpha, self.fitted, self.pos, self.neg, self.lo, self.hi, up, low)
        up -= self.fitted
        low -= self.fitted
        return up, low, top, bottom


def signed_form(qp: BoxQP, n: int) -> tuple[Vector, Vector, Vector, Vector]:
    """Slopes and bounds for one signed variable a sample."""
    pos, neg, lo, hi = np.zeros(n), np.zeros(n), np.zeros(n), np.zeros(n)
    plus, minus = qp.sign > 0, qp.sign < 0
    if qp.sample.size and (qp.sample.min() < 0 or qp.sample.max() >= n):
        raise InvalidInputError(
            f"BoxQP.sample must lie in 0..{n - 1}, the samples of the Gram matrix; "
            f"got {qp.sample.min()}..{qp.sample.max()}."
        )
    for side in (plus, minus):
        if np.bincount(qp.sample[side], minlength=1).max() > 1:
            raise InvalidInputError("BoxQP may have one variable of each sign a sample; got more.")
    if not np.isfinite(qp.upper).all() or (qp.upper < 0).any():
        raise InvalidInputError("BoxQP.upper must be finite and >= 0.")
    pos[qp.sample[plus]], hi[qp.sample[plus]] = -qp.linear[plus], qp.upper[plus]
    neg[qp.sample[minus]], lo[qp.sample[minus]] = qp.linear[minus], -qp.upper[minus]
    if np.any((pos > neg) & (hi > 0) & (lo < 0)):
        raise InvalidInputError(
            "the two variables of a sample must have linear terms with a sum >= 0 "
            "(epsilon >= 0); got a negative sum."
        )
    return pos, neg, lo, hi


def nearest_feasible(alpha: Vector, lo: Vector, hi: Vector, total: float) -> Vector:
    """Feasible point near `alpha`: clipped into the box, the sum mended where there is room."""
    alpha = np.clip(alpha, lo, hi)
    missing = total - math.fsum(alpha)
    scale = max(abs(total), float(np.abs(alpha).max(initial=0.0)), 1e-300)
    if abs(missing) <= 1e-12 * scale:
        return alpha
    room = hi - alpha if missing > 0 else alpha - lo
    space = float(room.sum())
    if space < abs(missing) * (1 - 1e-12):
        raise InvalidInputError(
            f"no feasible point: the variables must sum to {total}, but the bounds allow "
            f"{lo.sum()} to {hi.sum()}."
        )
    return np.clip(alpha + room * min(1.0, abs(missing) / space) * np.sign(missing), lo, hi)


def mend_sum(state: SignedQP, total: float) -> None:
    """Put the rounding left in the equality constraint on the variable with most room."""
    missing = total - math.fsum(state.alpha)
    alpha = state.alpha
    to_bound = np.where(alpha > 0, state.hi - alpha, alpha - state.lo)
    room = np.minimum(np.abs(alpha), to_bound)
    k = int(room.argmax())
    if room[k] > 4 * abs(missing):
        alpha[k] += missing


def worst_violators(ends: Ends, previous: Index, count: int) -> Index:
    """Variables of the next round: some of the last one, and the worst of both ends."""
    up, low, top, bottom = ends
    inside = up == low
    order = np.concatenate([previous[inside[previous]], previous[~inside[previous]]])
    kept = order[: int(count * _KEEP)]
    taken = np.zeros(up.size, dtype=bool)
    taken[kept] = True
    chosen = []
    half = (count - kept.size) // 2
    for score, limit in ((up, bottom), (-low, -top)):
        candidates = np.flatnonzero((score > limit) & ~taken)
        if candidates.size > half:
            worst = np.argpartition(-score[candidates], half - 1)[:half]
            candidates = candidates[worst]
        taken[candidates] = True
        chosen.append(candidates)
    # The newest come first, so that they are kept before those that have stayed long.
    return np.concatenate([*chosen, kept])


def smo_until(
    deadline: Deadline,
    K: NDArray,
    diag: Vector,
    fitted: Vector,
    pos: Vector,
    neg: Vector,
    lo: Vector,
    hi: Vector,
    alpha: Vector,
    tol: float,
    max_steps: int,
    enough: int,
) -> tuple[int, float]:
    """:func:`~kernelweave.compiled.smo.smo_steps`, which also ends once the deadline has passed.

    Steps are taken in blocks, for Ctrl-C waits for the end of a compiled call. After a block the
    compiled code looks up as it would without it: the result has the same bits.
    """
    problem = (K, diag, fitted, pos, neg, lo, hi, alpha, tol)
    every = patience(alpha.size)
    block = every * max(1, int(_READ / (every * max(alpha.size, _LEAST_READ))))
    steps, gap = 0, math.inf
    while True:
        most = min(block, max_steps - steps)
        taken, gap = smo_steps(*problem, most, enough)
        steps += taken
        if taken < block or steps >= max_steps or deadline.passed():
            return steps, gap


def intercept_of(ends: Ends) -> float:
    """Mean slope of the variables inside a piece, or the middle of what the others allow."""
    up, low, top, bottom = ends
    free = up == low
    if free.any():
        return float(up[free].mean())
    sides = [end for end in (top, bottom) if abs(end) < 0.5 * BIG]
    return float(sum(sides) / len(sides)) if sides else 0.0
