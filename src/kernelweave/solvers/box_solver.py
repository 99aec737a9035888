r"""The single-kernel solver behind hinge, eps-insensitive and one-class problems.

Small problems go to the compiled SMO (`kernelweave.compiled.smo`) as they are. Larger ones are
decomposed: each round takes the variables that violate the optimality conditions most, solves the
QP over them with the others fixed, and updates :math:`F = K \alpha` once. A round needs a
:math:`q \times q` block and one product with :math:`q` rows of the kernel, so no Gram matrix has
to exist.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kernelweave.compiled.dense_rows import rows_product, square_block
from kernelweave.compiled.smo import BIG, slopes, smo_shrinking
from kernelweave.errors import InvalidInputError
from kernelweave.losses.box_qp import BoxQP

__all__ = ["BoxQPResult", "DenseGram", "GramSource", "solve_box_qp"]

Vector = NDArray[np.float64]
Index = NDArray[np.int64]

# Up to this size SMO on the whole matrix needs less time than rounds (benchmarks/inner_svm.py).
_DIRECT = 1000
# Part of the working set kept from the round before.
_KEEP = 0.5
# A local problem is solved to this part of the global violation: more would be undone next round.
_LOCAL = 0.1
# Rounds without a better objective or a smaller violation after which rounding has won.
_STALLED = 50


class GramSource(Protocol):
    """One (combined) kernel on the training samples, however it is stored."""

    @property
    def n(self) -> int:
        """Number of samples."""

    def diag(self) -> Vector:
        """Return the diagonal of K, shape (n,)."""

    def block(self, idx: Index) -> Vector:
        """Return ``K[idx][:, idx]``, shape (q, q)."""

    def product(self, idx: Index, delta: Vector) -> Vector:
        """Return ``K[:, idx] @ delta``, shape (n,)."""

    def dense(self) -> NDArray | None:
        """Return the whole matrix if there is one at no cost, else None."""


class DenseGram:
    """A Gram matrix in memory.

    Parameters
    ----------
    K : ndarray of shape (n, n), float32 or float64
        Symmetric; rows are read where they are, sums are in float64.

    Examples
    --------
    >>> import numpy as np
    >>> gram = DenseGram(np.eye(3, dtype=np.float32))
    >>> gram.product(np.array([1]), np.array([2.0]))
    array([0., 2., 0.])
    """

    def __init__(self, K: ArrayLike) -> None:
        matrix = np.asarray(K)
        if matrix.dtype not in (np.float32, np.float64):
            matrix = matrix.astype(np.float64)
        if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
            raise InvalidInputError(f"K must be a square matrix; got shape {matrix.shape}.")
        self._K = np.ascontiguousarray(matrix)

    @property
    def n(self) -> int:
        """Number of samples."""
        return int(self._K.shape[0])

    def diag(self) -> Vector:
        """Return the diagonal of K."""
        return np.diagonal(self._K).astype(np.float64)

    def block(self, idx: Index) -> Vector:
        """Return ``K[idx][:, idx]`` in float64."""
        return square_block(self._K, idx)

    def product(self, idx: Index, delta: Vector) -> Vector:
        """Return ``K[:, idx] @ delta``."""
        return rows_product(self._K, idx, delta)

    def dense(self) -> NDArray:
        """Return the matrix itself."""
        return self._K


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
        SMO steps in all, and rounds of the decomposition (0 when solved as a whole).
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


@dataclass
class _State:
    """The problem in signed variables (see `kernelweave.compiled.smo`) and where we are."""

    pos: Vector
    neg: Vector
    lo: Vector
    hi: Vector
    alpha: Vector
    fitted: Vector
    n_steps: int = 0
    n_rounds: int = 0

    def slopes(self) -> tuple[Vector, Vector, float, float]:
        """``up - F`` and ``low - F`` (-+BIG where blocked), their largest and smallest element."""
        up, low = np.empty_like(self.alpha), np.empty_like(self.alpha)
        ends = slopes(
            self.alpha, self.fitted, self.pos, self.neg, self.lo, self.hi, up, low
        )
        up -= self.fitted
        low -= self.fitted
        return up, low, *ends

    def objective(self) -> float:
        """Value of the QP."""
        linear = self.pos * np.maximum(self.alpha, 0.0) + self.neg * np.minimum(self.alpha, 0.0)
        return float(0.5 * self.alpha @ self.fitted - linear.sum())


def _signed_form(qp: BoxQP, n: int) -> tuple[Vector, Vector, Vector, Vector]:
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


def _fill(room: Vector, amount: float) -> Vector:
    """Fill the room of the first samples, in order, until `amount` is spent (as LIBSVM starts)."""
    before = np.concatenate([[0.0], np.cumsum(room)[:-1]])
    return np.clip(amount - before, 0.0, room)


def _feasible(alpha: Vector, lo: Vector, hi: Vector, total: float) -> Vector:
    """Nearest-in-spirit feasible point: clipped into the box, the sum mended where there is room."""
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


def _mend_sum(state: _State, total: float) -> None:
    """Put the rounding left in the equality constraint on the variable with most room."""
    missing = total - math.fsum(state.alpha)
    alpha = state.alpha
    to_bound = np.where(alpha > 0, state.hi - alpha, alpha - state.lo)
    room = np.minimum(np.abs(alpha), to_bound)
    k = int(room.argmax())
    if room[k] > 4 * abs(missing):
        alpha[k] += missing


def _working_set(
    state: _State, ends: tuple[Vector, Vector, float, float], previous: Index, size: int
) -> Index:
    """Variables of the next round: some of the last, and the worst violators of both ends."""
    up, low, top, bottom = ends
    inside = up == low
    order = np.concatenate([previous[inside[previous]], previous[~inside[previous]]])
    kept = order[: int(size * _KEEP)]
    taken = np.zeros(up.size, dtype=bool)
    taken[kept] = True
    chosen = [kept]
    half = max(1, (size - kept.size) // 2)
    for score, limit in ((up, bottom), (-low, -top)):
        candidates = np.flatnonzero((score > limit) & ~taken)
        if candidates.size > half:
            worst = np.argpartition(-score[candidates], half - 1)[:half]
            candidates = candidates[worst]
        taken[candidates] = True
        chosen.append(candidates)
    # The newest come first, so that they are kept before those that have stayed long.
    return np.concatenate([chosen[1], chosen[2], chosen[0]])


def _solve_local(
    state: _State, K: NDArray, diag: Vector, idx: Index, tol: float, max_steps: int
) -> tuple[Vector, int]:
    """Solve over the variables `idx` with the others fixed; return their change and the steps."""
    alpha = state.alpha[idx]
    steps, _ = smo_shrinking(
        K,
        diag[idx],
        state.fitted[idx],
        state.pos[idx],
        state.neg[idx],
        state.lo[idx],
        state.hi[idx],
        alpha,
        tol,
        max_steps,
    )
    return alpha, steps


def _decompose(state: _State, gram: GramSource, tol: float, max_iter: int) -> None:
    """Rounds of local problems until no variable violates by more than `tol`."""
    diag = np.asarray(gram.diag(), dtype=np.float64)
    size = _working_set_size(gram.n)
    previous = np.empty(0, dtype=np.int64)
    best_value, best_violation, stalled = math.inf, math.inf, 0
    while state.n_steps < max_iter and stalled < _STALLED:
        ends = state.slopes()
        violation = ends[2] - ends[3]
        if violation <= tol:
            return
        previous = _working_set(state, ends, previous, size)
        idx = np.sort(previous)
        local_tol = max(0.5 * tol, _LOCAL * violation)
        alpha, steps = _solve_local(
            state, gram.block(idx), diag, idx, local_tol, min(10 * size, max_iter - state.n_steps)
        )
        moved = np.flatnonzero(alpha != state.alpha[idx])
        if moved.size == 0:
            return
        rows = idx[moved]
        state.fitted += gram.product(rows, alpha[moved] - state.alpha[rows])
        state.alpha[rows] = alpha[moved]
        state.n_steps += steps
        state.n_rounds += 1
        value = state.objective()
        stalled = 0 if value < best_value or violation < best_violation else stalled + 1
        best_value, best_violation = min(best_value, value), min(best_violation, violation)


def _working_set_size(n: int) -> int:
    return 512 if n < 10_000 else 1024


def _intercept(state: _State, ends: tuple[Vector, Vector, float, float]) -> float:
    """Mean slope of the variables inside a piece, or the middle of what the others allow."""
    up, low, top, bottom = ends
    free = up == low
    if free.any():
        return float(up[free].mean())
    sides = [end for end in (top, bottom) if abs(end) < BIG]
    return float(sum(sides) / len(sides)) if sides else 0.0


def solve_box_qp(
    qp: BoxQP,
    gram: GramSource,
    *,
    tol: float = 1e-3,
    a: Vector | None = None,
    fitted: Vector | None = None,
    max_iter: int = 10_000_000,
) -> BoxQPResult:
    """ Solve.
    """
    pos, neg, lo, hi = _signed_form(qp, gram.n)
    if a is None:
        given = _fill(hi, qp.total) - _fill(-lo, -qp.total)
    else:
        given = np.bincount(qp.sample, weights=qp.sign * np.asarray(a), minlength=gram.n)
    alpha = _feasible(given, lo, hi, qp.total)
    if a is None or fitted is None or not np.array_equal(alpha, given):
        used = np.flatnonzero(alpha)
        fitted = gram.product(used, alpha[used]) if used.size else np.zeros(gram.n)
    state = _State(pos, neg, lo, hi, alpha, np.array(fitted, dtype=np.float64))
    matrix = gram.dense() if gram.n <= _DIRECT else None
    if gram.n <= _DIRECT:
        everything = np.arange(gram.n)
        matrix = gram.block(everything) if matrix is None else matrix
        diag = np.asarray(gram.diag(), dtype=np.float64)
        state.n_steps, _ = smo_shrinking(matrix, diag, state.fitted, pos, neg, lo, hi, alpha, tol, max_iter)
    else:
        _decompose(state, gram, tol, max_iter)
    ends = state.slopes()
    violation = max(0.0, ends[2] - ends[3])
    _mend_sum(state, qp.total)
    return BoxQPResult(
        a=qp.split(state.alpha),
        alpha=state.alpha,
        fitted=state.fitted,
        intercept=_intercept(state, ends),
        violation=violation,
        n_steps=state.n_steps,
        n_rounds=state.n_rounds,
        converged=violation <= tol,
    )
