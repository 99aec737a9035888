r"""The single-kernel solver behind hinge, eps-insensitive and one-class problems.

One round solves the QP over some variables with the others fixed, by compiled SMO steps
(`kernelweave.compiled.smo`), and updates :math:`F = K \alpha` once. It needs a :math:`q \times q`
block and one product with :math:`q` rows of the kernel, so no Gram matrix has to exist. While many
variables can still move, a round takes those that violate the optimality conditions most, and keeps
some of the round before (decomposition). When few are left, it takes all of them (shrinking): the
rest sits strictly right at its bounds. Every round looks at all variables, so the result is optimal
over all of them; a small problem is one round on the matrix as it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import ArrayLike

from kernelweave.arrays import Array, Index
from kernelweave.combine.base import Gram
from kernelweave.compiled.smo import BIG, patience, slopes, smo_steps
from kernelweave.deadline import NEVER, Deadline
from kernelweave.errors import InvalidInputError
from kernelweave.losses.base import BoxQP
from kernelweave.solvers.certificate import centre

# Whether alpha, with K alpha and the intercept that belong to it, is good enough to stop.
GoodEnough = Callable[[Array, Array, float], bool]
# Slopes minus F, and their extremes: what one look at all variables gives.
Ends = tuple[Array, Array, float, float]

# Variables of a round while too many to take them all can still move, where it does not matter: a
# block of them in float32 fits into the cache of a core (1 MB).
_ROUND = 512
# From here down all variables that can still move are taken together (shrinking), in a block of at
# most 128 MB. A matrix in memory of up to twice that side is used as it is from the start.
_WHOLE, _DIRECT = 4096, 8192
# A local problem of some of the variables that can move is solved to this part of the global
# violation: more would be undone later. In rounds of 512 of 2,500 variables 0.02 takes 1.3 times
# the steps, 0.5 takes 1.5 times the rounds.
_LOCAL = 0.1
# A local problem ends early when this part of it, or less, moves, and all variables take part
# unless so few do. To copy an entry takes as long as a step on two variables; q variables take
# about q steps, so that a block of q of n pays for q < n / 3. With 2,500 variables 0.1 takes 1.2
# to 1.7 times as long, 0.6 takes 1.1 times.
_SHRINK = 0.3
# To compute an entry takes longer than a step on it: where there is no matrix, all take part only
# if nearly all can move. With 0.3 a fit of weighted degree kernels takes 1.3 times as long.
_NEARLY_ALL = 0.9
# Rounds without a better objective or a smaller violation after which rounding has won. In exact
# numbers every round lowers the objective: 10 and 250 give the same rounds on 2,500 samples.
_STALLED = 50
# Numbers that compiled steps read between two looks at the clock: a tenth of a second or so.
_READ = 1e8
# A step on few variables takes as long as reading so many numbers.
_LEAST_READ = 1000


@dataclass(frozen=True, eq=False)
class BoxQPResult:
    """Solution of a `BoxQP`: box variables, signed dual variables, ``K @ alpha``, and the work.

    The intercept is the mean over the free variables of what makes them exact, or the middle of the
    allowed range; `violation` the largest one of the KKT conditions, over all variables.
    """

    a: Array
    alpha: Array
    fitted: Array
    intercept: float
    violation: float
    n_steps: int
    n_rounds: int
    converged: bool


def solve_box_qp(
    qp: BoxQP,
    gram: Gram,
    *,
    tol: float = 1e-3,
    a: ArrayLike | None = None,
    fitted: ArrayLike | None = None,
    max_iter: int = 10_000_000,
    deadline: Deadline = NEVER,
    most: int | None = None,
    good_enough: GoodEnough | None = None,
) -> BoxQPResult:
    r"""Solve the dual of a piecewise-linear loss for one kernel.

    .. math::

        \min_a \; \tfrac12 \alpha^\top K \alpha + \mathrm{linear}^\top a
        \quad\text{s.t.}\quad \sum_t \mathrm{sign}_t\, a_t = \mathrm{total},\quad
        0 \le a_t \le \mathrm{upper}_t, \qquad
        \alpha_i = \sum_{t:\, \mathrm{sample}_t = i} \mathrm{sign}_t\, a_t .

    There is at most one variable of each sign a sample. `tol` is the largest KKT violation allowed
    at the end, as in LIBSVM. The solve starts from `a`, which is mended if it is not feasible, and
    from its ``K @ alpha``, `fitted`, if the caller has that. It ends early after `max_iter` SMO
    steps, at the deadline, or when ``good_enough(alpha, K alpha, intercept)``, which is asked
    between rounds, says so. A round has at most `most` variables.
    """
    if qp.sample.max(initial=-1) >= gram.n:
        raise InvalidInputError(
            f"BoxQP.sample must lie in 0..{gram.n - 1}, the samples of the Gram matrix; "
            f"got {qp.sample.min()}..{qp.sample.max()}."
        )
    # Samples beyond the last one with a variable have alpha = 0.
    missing = gram.n - len(qp.signed_form[0])
    pos, neg, lo, hi = (np.pad(x, (0, missing)) if missing else x for x in qp.signed_form)
    given = np.zeros(gram.n)
    if a is not None:
        weights = qp.sign * np.asarray(a, dtype=np.float64)
        given = np.bincount(qp.sample, weights=weights, minlength=gram.n).astype(np.float64)
    alpha = centre(given, lo, hi, qp.total)
    if fitted is None or not np.array_equal(alpha, given):
        used = np.flatnonzero(alpha)
        fitted = gram.product(used, alpha[used]) if used.size else np.zeros(gram.n)
    state = _SignedQP(pos, neg, lo, hi, alpha, np.array(fitted, dtype=np.float64))
    _run(state, gram, tol, max_iter, deadline, most, good_enough)
    ends = state.ends()
    violation = max(0.0, ends[2] - ends[3])
    state.mend_sum(qp.total)
    return BoxQPResult(
        a=qp.split(state.alpha),
        alpha=state.alpha,
        fitted=state.fitted,
        intercept=_intercept(ends),
        violation=violation,
        n_steps=state.n_steps,
        n_rounds=state.n_rounds,
        # A maximum does not see NaN: a broken kernel must not pass for a solution.
        converged=violation <= tol and bool(np.isfinite(state.fitted).all()),
    )


@dataclass
class _SignedQP:
    """The problem in signed variables (see `kernelweave.compiled.smo`) and where we are."""

    pos: Array
    neg: Array
    lo: Array
    hi: Array
    alpha: Array
    fitted: Array
    n_steps: int = 0
    n_rounds: int = 0

    def ends(self) -> Ends:
        """``up - F``, ``low - F`` (-BIG, BIG where blocked), their largest and smallest element."""
        up, low = np.empty_like(self.alpha), np.empty_like(self.alpha)
        top, bottom = slopes(self.alpha, self.fitted, self.pos, self.neg, self.lo, self.hi, up, low)
        up -= self.fitted
        low -= self.fitted
        return up, low, top, bottom

    def mend_sum(self, total: float) -> None:
        """Put the rounding left in the equality constraint on the variable with most room."""
        missing, alpha = total - math.fsum(self.alpha), self.alpha
        room = np.minimum(np.abs(alpha), np.where(alpha > 0, self.hi - alpha, alpha - self.lo))
        k = int(room.argmax())
        if room[k] > 4 * abs(missing):
            alpha[k] += missing


def _intercept(ends: Ends) -> float:
    """Mean slope of the variables inside a piece, or the middle of what the others allow."""
    up, low, top, bottom = ends
    free = up == low
    if free.any():
        return float(up[free].mean())
    sides = [end for end in (top, bottom) if abs(end) < 0.5 * BIG]
    return float(sum(sides) / len(sides)) if sides else 0.0


def _run(
    state: _SignedQP,
    gram: Gram,
    tol: float,
    max_iter: int,
    deadline: Deadline,
    most: int | None,
    good_enough: GoodEnough | None,
) -> None:
    """Solve local problems until no variable at all violates by more than `tol`."""
    matrix, n = gram.dense(), gram.n
    # A block, and a part of it when variables have settled.
    limit = gram.square_limit(most or _WHOLE, copies=2)
    if matrix is not None and n <= _DIRECT:
        limit = min(most or n, n)
    round_size = gram.square_limit(most or gram.round_size or _ROUND, copies=2)
    enough = (_NEARLY_ALL if matrix is None else _SHRINK) * n
    diag = np.asarray(gram.diagonal(), dtype=np.float64)
    chosen = np.empty(0, dtype=np.int64)
    best_value, best_violation, stalled = math.inf, math.inf, 0
    while state.n_steps < max_iter and stalled < _STALLED:
        ends = state.ends()
        up, low, top, bottom = ends
        violation = top - bottom
        if violation <= tol or deadline.passed():
            return
        if good_enough is not None and good_enough(state.alpha, state.fitted, _intercept(ends)):
            return
        active = np.flatnonzero((up >= bottom) | (low <= top))
        local_tol = 0.9 * tol
        if active.size > limit:
            chosen = _worst_violators(ends, chosen, round_size)
        elif active.size > enough and n <= limit:
            chosen, local_tol = np.arange(n), tol
        else:
            chosen = active
        if active.size > limit or good_enough is not None:
            # What is good enough may come long before `tol`, and is looked at in between.
            local_tol = max(local_tol, _LOCAL * violation)
        if not chosen.size:
            return  # NaN compares with nothing: a broken kernel has no variable to move.
        idx = np.sort(chosen)
        alpha, fitted = state.alpha[idx], state.fitted[idx]
        all_of_it = idx.size == n
        block = matrix if matrix is not None and all_of_it else gram.block(idx)
        local = partial(
            smo_steps,
            block,
            diag[idx],
            fitted,
            state.pos[idx],
            state.neg[idx],
            state.lo[idx],
            state.hi[idx],
            alpha,
            local_tol,
        )
        steps = _in_parts(local, idx.size, max_iter - state.n_steps, deadline)
        if steps == 0:
            return
        if all_of_it and (matrix is not None or block.dtype == np.float64):
            # Sums over the kernel itself, not over a rounded one.
            state.fitted = fitted
        else:
            moved = np.flatnonzero(alpha != state.alpha[idx])
            rows = idx[moved]
            state.fitted += gram.product(rows, alpha[moved] - state.alpha[rows])
        state.alpha[idx] = alpha
        state.n_steps += steps
        state.n_rounds += 1
        linear = np.where(state.alpha > 0, state.pos, state.neg)
        value = float(state.alpha @ (0.5 * state.fitted - linear))
        stalled = 0 if value < best_value or violation < best_violation else stalled + 1
        best_value, best_violation = min(best_value, value), min(best_violation, violation)


def _worst_violators(ends: Ends, previous: Index, count: int) -> Index:
    """Variables of the next round: half of the last one, and the worst of both ends.

    Variables zigzag that are left out while others move against them. In rounds of 512 of 2,500
    variables, to keep none of the last one takes twice as many rounds, as does to keep 90 %.
    """
    up, low, top, bottom = ends
    inside = up == low
    order = np.concatenate([previous[inside[previous]], previous[~inside[previous]]])
    kept = order[: (count - 2) // 2]
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


def _in_parts(
    local: Callable[[int, int], tuple[int, float]], size: int, max_steps: int, deadline: Deadline
) -> int:
    """Take SMO steps on a local problem, which also end once the deadline has passed.

    They are taken in parts, for Ctrl-C waits for the end of a compiled call. After a part the
    compiled code looks up as it would without it: the result has the same bits.
    """
    every = patience(size)
    part = every * max(1, int(_READ / (every * max(size, _LEAST_READ))))
    steps = 0
    while True:
        taken, _ = local(min(part, max_steps - steps), int(_SHRINK * size))
        steps += taken
        if taken < part or steps >= max_steps or deadline.passed():
            return steps
