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

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kernelweave.compiled.dense_rows import square_block
from kernelweave.compiled.matrix_checks import fits_float32
from kernelweave.compiled.smo import objective
from kernelweave.deadline import NEVER, Deadline
from kernelweave.losses.base import BoxQP
from kernelweave.solvers.gram_source import DenseGram, GramSource
from kernelweave.solvers.signed_qp import (
    Ends,
    SignedQP,
    intercept_of,
    mend_sum,
    nearest_feasible,
    signed_form,
    smo_until,
    worst_violators,
)

__all__ = ["BoxQPResult", "DenseGram", "GramSource", "solve_box_qp"]

Vector = NDArray[np.float64]
Index = NDArray[np.int64]
# Whether alpha, with K alpha and the intercept that belong to it, is good enough to stop.
GoodEnough = Callable[[Vector, Vector, float], bool]

# Variables of a round while too many to take them all can still move, where it does not matter.
_ROUND = 512
# From here down all variables that can still move are taken together (shrinking).
_WHOLE = 4096
# A matrix in memory of up to this size is used as it is from the start.
_DIRECT = 8192
# A local problem is solved to this part of the global violation: more would be undone later.
_LOCAL, _LOCAL_WHOLE = 0.1, 0.02
# A local problem of at least _COMPACT variables ends early when this part of it, or less, moves.
_SHRINK, _COMPACT = 0.5, 1000
# Below this tolerance, relative to the linear term, blocks are copied in float64 from the start.
_FLOAT32_TOL = 1e-5
# Rounds without a better objective or a smaller violation after which rounding has won.
_STALLED = 50


@dataclass(frozen=True, eq=False)
class BoxQPResult:
    """Solution of a `BoxQP`.

    Attributes
    ----------
    a : ndarray of shape (N,)
        Box variables; feasible.
    alpha : ndarray of shape (n,)
        Signed dual variables.
    fitted : ndarray of shape (n,)
        ``K @ alpha``.
    intercept : float
        Mean over the free variables of what makes them exact, or the middle of the allowed range.
    violation : float
        Largest violation of the KKT conditions (LIBSVM's measure), over all variables.
    n_steps, n_rounds : int
        SMO steps in all, and rounds of local problems they were taken in.
    converged : bool
        Whether ``violation <= tol``.
    """

    a: Vector
    alpha: Vector
    fitted: Vector
    intercept: float
    violation: float
    n_steps: int
    n_rounds: int
    converged: bool


def _fill(room: Vector, amount: float) -> Vector:
    """Fill the room of the first samples, in order, until `amount` is spent (as LIBSVM starts)."""
    before = np.concatenate([[0.0], np.cumsum(room)[:-1]])
    return np.clip(amount - before, 0.0, room)


class _Blocks:
    """Local matrices: the whole one where there is one, float32 copies while they are enough."""

    def __init__(self, gram: GramSource, state: SignedQP, tol: float, most: int | None) -> None:
        self._gram = gram
        self._matrix = gram.dense()
        direct = self._matrix is not None and gram.n <= _DIRECT
        # A block, and a part of it when variables have settled.
        whole, some = most or _WHOLE, most or gram.round_size or _ROUND
        self.limit = gram.square_limit(whole, copies=2)
        if direct:
            self.limit = gram.n if most is None else min(most, gram.n)
        self.round_size = gram.square_limit(some, copies=2)
        self.diag = np.asarray(gram.diagonal(), dtype=np.float64)
        # Of one class the linear terms are zero, and the violation is compared with K alpha.
        linear = max(np.abs(state.pos).max(initial=0.0), np.abs(state.neg).max(initial=0.0))
        scale = linear or float(np.abs(state.fitted).max(initial=0.0))
        single = tol > _FLOAT32_TOL * scale and fits_float32(self.diag)
        self._dtype = np.float32 if single else np.float64

    def get(self, idx: Index) -> NDArray:
        """Return the block of the variables `idx`."""
        if self._matrix is None:
            return np.ascontiguousarray(self._gram.block(idx))
        if idx.size == self._gram.n:
            return self._matrix
        return square_block(self._matrix, idx, self._dtype)

    def exact(self, block: NDArray) -> bool:
        """Whether sums over this block are sums over the kernel itself, not over a rounded one."""
        return block is self._matrix or block.dtype == np.float64

    def check(self, promised: float, found: float) -> None:
        """Go to float64 when the local violation is not what the float32 block promised."""
        if found > 2.0 * promised:
            self._dtype = np.float64


def _choose(
    ends: Ends, previous: Index, blocks: _Blocks, tol: float, early: bool
) -> tuple[Index, float]:
    """Variables of the next local problem, newest first, and the tolerance to solve it to.

    With `early` the answer may be good enough long before `tol`, which is looked at in between.
    """
    up, low, top, bottom = ends
    active = np.flatnonzero((up >= bottom) | (low <= top))
    rough = max(0.9 * tol, _LOCAL * (top - bottom))
    if active.size > blocks.limit:
        # A pair has no room for old ones.
        kept = previous if blocks.round_size > 2 else previous[:0]
        return worst_violators(ends, kept, blocks.round_size), rough
    whole = active.size > 0.9 * up.size and up.size <= blocks.limit
    chosen = np.arange(up.size) if whole else active
    if early:
        return chosen, rough
    return chosen, tol if whole else max(0.9 * tol, _LOCAL_WHOLE * (top - bottom))


def _run(
    state: SignedQP,
    gram: GramSource,
    tol: float,
    max_iter: int,
    deadline: Deadline,
    most: int | None,
    good_enough: GoodEnough | None,
) -> None:
    """Solve local problems until no variable at all violates by more than `tol`."""
    blocks = _Blocks(gram, state, tol, most)
    previous = np.empty(0, dtype=np.int64)
    best_value, best_violation, stalled, gap = math.inf, math.inf, 0, math.inf
    while state.n_steps < max_iter and stalled < _STALLED:
        ends = state.ends()
        up, low, top, bottom = ends
        violation = top - bottom
        if violation <= tol or deadline.passed():
            return
        if good_enough is not None and good_enough(state.alpha, state.fitted, intercept_of(ends)):
            return
        if previous.size:
            blocks.check(gap, up[previous].max() - low[previous].min())
        previous, local_tol = _choose(ends, previous, blocks, tol, good_enough is not None)
        if not previous.size:
            return  # NaN compares with nothing: a broken kernel has no variable to move.
        idx = np.sort(previous)
        alpha, fitted = state.alpha[idx], state.fitted[idx]
        block = blocks.get(idx)
        steps, gap = smo_until(
            deadline,
            block,
            blocks.diag[idx],
            fitted,
            state.pos[idx],
            state.neg[idx],
            state.lo[idx],
            state.hi[idx],
            alpha,
            local_tol,
            max_iter - state.n_steps,
            int(_SHRINK * idx.size) if idx.size >= _COMPACT else 0,
        )
        if steps == 0:
            return
        moved = np.flatnonzero(alpha != state.alpha[idx])
        rows = idx[moved]
        if idx.size == gram.n and blocks.exact(block):
            state.fitted = fitted
        else:
            state.fitted += gram.product(rows, alpha[moved] - state.alpha[rows])
        state.alpha[rows] = alpha[moved]
        state.n_steps += steps
        state.n_rounds += 1
        value = objective(state.alpha, state.fitted, state.pos, state.neg)
        stalled = 0 if value < best_value or violation < best_violation else stalled + 1
        best_value, best_violation = min(best_value, value), min(best_violation, violation)


def solve_box_qp(
    qp: BoxQP,
    gram: GramSource,
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

    Parameters
    ----------
    qp : BoxQP
        What `Loss.box_qp` gives; at most one variable of each sign a sample.
    gram : GramSource
        The kernel.
    tol : float
        Largest KKT violation allowed at the end, as in LIBSVM.
    a : array-like of shape (N,), optional
        Where to start; the nearer to the solution, the fewer steps. A point outside the box or
        with another sum is mended first.
    fitted : array-like of shape (n,), optional
        ``K @ alpha`` of the start, if the caller has it: saves one product.
    max_iter : int
        Largest number of SMO steps.
    deadline : Deadline
        When to return what there is.
    most : int, optional
        Most variables of a round; by default as many as is quickest.
    good_enough : callable, optional
        ``good_enough(alpha, K alpha, intercept)`` is asked between rounds; the first True ends the
        solve.

    Returns
    -------
    BoxQPResult

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.losses.base import BoxQP
    >>> x, y = np.array([[0.0], [1.0], [3.0]]), np.array([-1.0, -1.0, 1.0])
    >>> qp = BoxQP(
    ...     sign=y, linear=-np.ones(3), upper=np.full(3, 9.0), sample=np.arange(3), total=0.0
    ... )
    >>> result = solve_box_qp(qp, DenseGram(x @ x.T), tol=1e-9)
    >>> result.alpha, round(result.intercept, 6)
    (array([ 0. , -0.5,  0.5]), -2.0)
    """
    pos, neg, lo, hi = signed_form(qp, gram.n)
    if a is None:
        given = _fill(hi, qp.total) - _fill(-lo, -qp.total)
    else:
        weights = qp.sign * np.asarray(a, dtype=np.float64)
        given = np.bincount(qp.sample, weights=weights, minlength=gram.n).astype(np.float64)
    alpha = nearest_feasible(given, lo, hi, qp.total)
    if a is None or fitted is None or not np.array_equal(alpha, given):
        used = np.flatnonzero(alpha)
        fitted = gram.product(used, alpha[used]) if used.size else np.zeros(gram.n)
    state = SignedQP(pos, neg, lo, hi, alpha, np.array(fitted, dtype=np.float64))
    _run(state, gram, tol, max_iter, deadline, most, good_enough)
    ends = state.ends()
    violation = max(0.0, ends[2] - ends[3])
    mend_sum(state, qp.total)
    return BoxQPResult(
        a=qp.split(state.alpha),
        alpha=state.alpha,
        fitted=state.fitted,
        intercept=intercept_of(ends),
        violation=violation,
        n_steps=state.n_steps,
        n_rounds=state.n_rounds,
        # A maximum does not see NaN: a broken kernel must not pass for a solution.
        converged=violation <= tol and bool(np.isfinite(state.fitted).all()),
    )
