"""How far a fit is from the optimum, recomputed at a feasible dual point, and what that proves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import ArrayLike

from kernelweave.arrays import Array
from kernelweave.errors import InvalidInputError
from kernelweave.operators.base import KernelOperator
from kernelweave.operators.bounds import ErrorBound
from kernelweave.problem import Problem
from kernelweave.root_search import rising_root

_EPS = float(np.finfo(np.float64).eps)
# Rounding is to blame for gaps of up to so many times what it can hide: steps are lost in the noise
# of objectives, which is larger than that of the certificate. It only decides what a warning says.
_NEAR = 100.0


@dataclass(frozen=True)
class Certificate:
    """Proof of how far a fit is from the optimum.

    Attributes
    ----------
    primal : float
        Objective of the fitted function: the optimum is at most this.
    dual : float
        Dual objective of a feasible alpha: the optimum is at least this. Of a problem that is not
        convex only the best objective at the same weights is at least this.
    gap : float
        Duality gap relative to the objective, (primal - dual) / max(abs(primal), abs(dual)), or how
        far from stationary the point is, see :func:`certify`. It is zero where neither can be told
        from zero (:attr:`~kernelweave.problem.Problem.floor`).
    kind : {"duality", "projected_gradient"}
        Which of the two `gap` is.
    approximation : float
        The part of `gap` owed to the bank (factors, float32) and to rounding rather than to the
        solver.
    rounding : float
        The part of `gap` owed to sums in float64, as far as it was counted.
    bank_primal : float
        The objective on the bank's own kernels, before its errors are counted against it.
    intercept : ndarray of shape (T,)
        The intercepts at which `primal` was taken.
    floor : float
        Objectives below this cannot be told from zero.
    """

    primal: float
    dual: float
    gap: float
    kind: str
    approximation: float
    rounding: float
    bank_primal: float
    intercept: Array
    floor: float

    @property
    def at_rounding(self) -> bool:
        """Whether the gap is near what sums in float64 can hide at this scale."""
        return self.gap <= _NEAR * self.rounding


@dataclass(frozen=True)
class Witness:
    """Feasible dual variables that bound the optimum from below; `quad` is q_k(alpha) or above."""

    alpha: Array
    quad: Array


def certify(
    problem: Problem,
    d: Array,
    alpha: Array,
    intercept: Array,
    fitted: Array,
    quad: Array,
    witness: Witness | None = None,
    rounding: bool = False,
) -> Certificate:
    r"""Bound the optimum from both sides at one point, or say how far from stationary it is.

    In a convex problem the primal value is that of f_k = d_k K_k alpha, the dual value that of
    alpha scaled into the norm constraint where there is one. What the bank cannot know exactly is
    counted against us: the quadratic forms of the dual are raised, the losses of the primal taken
    at the worst end.

    A problem that is not convex in d (products, log det) has no duality gap in d. At fixed weights
    it has one, in alpha; to that is added the projected gradient,

    .. math:: \max_k\; \big| d - P(d - \nabla T(d) / U) \big|_k \max(1, d_k), \qquad
              U = |T(d) - r(d)|,

    where P projects onto the allowed weights. (SPG-GMKL stops on the norm of the projected gradient
    itself, which depends on the units of the problem.) A weight above one counts by its own size:
    in a product it is an inverse squared width, and what matters is what a change by a factor would
    do. U is the part of T that the data decide, so that weights so large that they cost more than
    the data are not stationary.

    Parameters
    ----------
    problem : Problem
    d : ndarray of shape (m,)
    alpha : ndarray of shape (T, n)
        Feasible dual variables (:func:`~kernelweave.solvers.certificate.feasible_alpha`).
    intercept : ndarray of shape (T,)
        A first guess; better ones are searched for.
    fitted, quad : ndarray of shape (T, n) and (m,)
        K(d) alpha, and alpha'(dK/dd_k) alpha summed over tasks: q_k(alpha) for a sum.
    witness : Witness, optional
        Other dual variables; in a convex problem the dual value is the better of the two.
    rounding : bool
        Whether to count against us what sums in float64 can lose as well. That is little, unless C
        is so large that kernels times alpha are nothing but the difference of huge numbers.
    """
    best = best_intercepts(problem, fitted, intercept)
    if not problem.convex:
        return _stationarity(problem, d, alpha, fitted, best, quad)
    points = [Witness(alpha, quad)] if witness is None else [Witness(alpha, quad), witness]
    conjugates = [problem.dual_loss(at.alpha) for at in points]

    def bounds(
        *kinds: Sequence[ErrorBound], slack: Array | float = 0.0
    ) -> tuple[float, float, float]:
        """Upper and lower bound, and their gap; of each kind of error one for each point."""
        squares = quad + sum(kind[0].quad_missing for kind in kinds)
        slack = slack + sum(kind[0].product for kind in kinds)
        omega = float(problem.regularizer.omega(d * np.sqrt(squares)))
        upper = _loss(problem, fitted, best, slack) + omega
        lower = -np.inf
        for i, at in enumerate(points):
            raised = at.quad + sum(kind[i].quad_missing for kind in kinds)
            lower = max(lower, dual_value(problem, at.alpha, raised, conjugates[i]))
        return upper, lower, problem.relative_gap(upper, lower)

    primal, _, exact = bounds()
    stored = [problem.bank.error(at.alpha, d) for at in points]
    upper, lower, gap = bounds(stored)
    lost = _EPS
    if rounding:
        before, rounded = gap, [problem.bank.rounding(at.alpha, d) for at in points]
        slack = _EPS * np.abs(fitted + best[:, None])
        upper, lower, gap = bounds(stored, rounded, slack=slack)
        lost = max(lost, gap - before)
    more = max(0.0, gap - exact)
    return Certificate(upper, lower, gap, "duality", more, lost, primal, best, problem.floor)


def _stationarity(
    problem: Problem, d: Array, alpha: Array, fitted: Array, intercept: Array, quad: Array
) -> Certificate:
    upper = weighted_objective(problem, d, alpha, fitted, intercept)
    lower = problem.inner_value(d, alpha, fitted)
    residual = np.nan
    if np.isfinite(quad).all():
        unit = problem.unit(upper - float(problem.regularizer.value(d)))
        moves = np.abs(projected_gradient(problem, d, quad, 1.0 / unit))
        residual = float(np.max(moves * np.maximum(1.0, d)))
    gap = residual + max(0.0, problem.relative_gap(upper, lower))
    return Certificate(
        upper, lower, gap, "projected_gradient", 0.0, _EPS, upper, intercept, problem.floor
    )


def weighted_objective(
    problem: Problem, d: Array, alpha: Array, fitted: Array, intercept: Array
) -> float:
    """Objective of f = K(d) alpha with the weights d as they are: T(d) is at most this.

    One at the best weights for the norms of the components can be below T(d).
    """
    quadratic = 0.5 * float(np.sum(alpha * fitted))
    price = float(problem.regularizer.value(d))
    return _loss(problem, fitted, intercept, 0.0) + quadratic + price


def smooth_gradient(problem: Problem, d: Array, quad: Array) -> Array:
    """Gradient of the smooth part of T (SPG-GMKL eq. 4): all of it but a non-smooth r."""
    gradient = -0.5 * quad
    return gradient + problem.regularizer.gradient(d) if problem.regularizer.smooth else gradient


def projected_gradient(problem: Problem, d: Array, quad: Array, step: Array | float) -> Array:
    """d - P(d - step grad T(d)); where r is not smooth its prox takes the place of P.

    `step` may be one number for each weight under a regularizer that is an `orthant`.
    """
    target = d - step * smooth_gradient(problem, d, quad)
    if problem.regularizer.smooth:
        return d - problem.regularizer.project(target)
    return d - problem.regularizer.prox(target, step)


def recompute(
    problem: Problem,
    d: Array,
    alpha: Array,
    intercept: Array,
    witness: Array | None = None,
) -> tuple[Certificate, Array]:
    """Certify from nothing but the weights and the dual variables; returns the alpha it used.

    `witness` are other dual variables for the dual value, see :func:`certify`; with them alpha need
    not be feasible itself.
    """
    evaluate, other = problem.combination.evaluate, None
    if witness is None:
        alpha = feasible_alpha(problem, alpha)
    else:
        witness = feasible_alpha(problem, witness)
        other = Witness(witness, evaluate(problem.bank, np.zeros(problem.m), witness)[1])
    fitted, quad = evaluate(problem.bank, d, alpha)
    return certify(problem, d, alpha, intercept, fitted, quad, other, rounding=True), alpha


def best_intercepts(problem: Problem, fitted: Array, guess: Array) -> Array:
    """Intercepts of least loss beside these decision values."""
    rows = zip(problem.y, fitted, problem.C, guess, strict=True)
    return np.array([problem.loss.best_intercept(*row) for row in rows])


def _loss(problem: Problem, fitted: Array, intercept: Array, slack: Array | float) -> float:
    """Largest loss over decision values within `slack` of those given.

    Each sample's loss is convex in its decision value, so the worst is at one of two ends.
    """
    ends = (-slack, slack) if np.any(slack) else (0.0,)
    decision = fitted + intercept[:, None]
    losses = [problem.loss.value(problem.y, decision + way, problem.C) for way in ends]
    worst = float(np.sum(np.max(losses, axis=0)))
    return worst + problem.loss.alpha_sum * float(np.sum(intercept))


def dual_value(
    problem: Problem, alpha: Array, quad: Array, conjugate: float | None = None
) -> float:
    """Dual objective of alpha scaled into the norm constraint; `quad` is its q_k or above.

    Minus infinity for no alpha at all where a sum is asked for, as in a one-class problem.
    `conjugate` is the `dual_loss` of alpha, where that is known.
    """
    if problem.loss.alpha_sum and not alpha.any():
        return -np.inf
    scale = problem.regularizer.dual_scale(quad)
    if conjugate is None or scale != 1.0:
        conjugate = problem.dual_loss(scale * alpha)
    return float(-conjugate - problem.regularizer.dual_penalty(scale**2 * quad))


# The nearest feasible dual point: inside its box, with the right sum


def centre(alpha: ArrayLike, lo: ArrayLike, hi: ArrayLike, total: float = 0.0) -> Array:
    r"""Project onto :math:`\{lo \le \alpha \le hi,\ \sum_i \alpha_i = \mathrm{total}\}`.

    The nearest point is :math:`\mathrm{clip}(\alpha - \tau, lo, hi)` with the :math:`\tau` that
    gives the right sum. The sum is piecewise linear and falls with :math:`\tau`: Newton steps end
    in the right piece after finitely many of them. A point that is feasible to rounding is returned
    as it is. Ends of the box may be infinite; if no point of it has that sum, this raises.
    """
    start = np.asarray(alpha, dtype=np.float64)
    low, high = np.broadcast_to(lo, start.shape), np.broadcast_to(hi, start.shape)
    least, most = float(low.sum()), float(high.sum())
    slack = 1e-9 * (abs(total) or float(np.abs(start).max(initial=0.0)))
    if not least - slack <= total <= most + slack:
        raise InvalidInputError(
            f"no dual point has the sum {total:g}: with these bounds sums go from {least:g} to "
            f"{most:g}."
        )

    point = start

    def excess(tau: float) -> tuple[float, float, float]:
        nonlocal point
        moved = start - tau
        point = np.clip(moved, low, high)
        over = float(point.sum()) - total
        size = float(np.abs(point).sum()) + abs(total)
        # At an end of the box only the step back inside changes the sum.
        free = int(np.count_nonzero((moved > low) & (moved < high))) if over else 1
        return -over, size, tau + over / free if free else np.nan

    first, last = float(np.min(start - high, initial=0.0)), float(np.max(start - low, initial=0.0))
    rising_root(excess, 0.0, first, last)
    # Steps in tau smaller than its last digit cannot be taken when alpha is huge beside the total:
    # what is left of the sum, if it is more than rounding, goes to the entry with the most room.
    over = float(point.sum()) - total
    if abs(over) > 4.0 * _EPS * (float(np.abs(point).sum()) + abs(total)):
        room = point - low if over > 0 else high - point
        most = int(np.argmax(room))
        point[most] -= np.sign(over) * min(abs(over), float(room[most]))
    return point


def feasible_alpha(problem: Problem, alpha: Array) -> Array:
    """Return alpha moved to the nearest point of its box with the right sum."""
    lo, hi = problem.loss.domain(problem.y, problem.C)
    total = problem.loss.alpha_sum
    rows = [centre(*row, total) for row in zip(alpha, lo, hi, strict=True)]
    return np.array(rows)


# What a gap proves of the weights

# Computed once for a bank, however many fits share it: along a path, or one for each class.
_EIGENVALUE_BOUNDS: WeakKeyDictionary[KernelOperator, Array] = WeakKeyDictionary()


class Screening:
    r"""Finds kernels whose weight is zero at every optimum, from the duality gap.

    If the gradient of the loss is L-Lipschitz, the dual is 1/L-strongly concave, so that a feasible
    alpha with (absolute) duality gap g is within :math:`r = \sqrt{2 L g}` of the optimal one, and

    .. math:: \big| \sqrt{q_k(\alpha)} - \sqrt{q_k(\alpha^*)} \big| \le r \sqrt{\lambda_k},

    where :math:`\lambda_k` bounds the largest eigenvalue of :math:`K_k` on vectors of sum zero
    (both alphas have the same sum). A sparse regularizer turns these intervals into a verdict
    (:meth:`Regularizer.screened <kernelweave.regularizers.Regularizer.screened>`). The reduced
    problem has the same optimum, so its gap is one of the whole problem; the last certificate of a
    fit is taken over all m kernels all the same. Those that may still matter are `kept`.
    """

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._lipschitz = float(np.max(problem.loss.lipschitz(problem.C)))
        self._spread: Array | None = None
        self._radius = np.inf
        self.kept = np.arange(problem.m)

    @classmethod
    def for_problem(cls, problem: Problem) -> Screening | None:
        """Return a screening, or None where nothing can be proven."""
        provable = problem.convex and problem.loss.smooth and problem.regularizer.sparse
        # A loss that does not know its Lipschitz constant says it is infinite.
        provable = provable and bool(np.all(np.isfinite(problem.loss.lipschitz(problem.C))))
        return cls(problem) if provable else None

    def look(self, certificate: Certificate, d: Array, alpha: Array, quad: Array) -> bool:
        """Drop what the certificate of a point proves to be zero; returns whether that is any."""
        problem = self._problem
        missing = problem.bank.error(alpha, d).quad_missing
        missing = missing + problem.bank.rounding(alpha, d).quad_missing
        # Not certificate.dual, which may be that of a witness: the ball is around this alpha.
        dual = dual_value(problem, alpha, quad + missing)
        # The difference of two sums of n terms can be no closer than this to their own.
        rounding = problem.n * _EPS * (abs(certificate.primal) + abs(dual))
        gap = max(0.0, certificate.primal - dual) + rounding
        radius = np.sqrt(2.0 * self._lipschitz * gap)
        if not radius <= 0.7 * self._radius:
            return False  # Half the gap is the least that may tell something new.
        self._radius = radius
        if self._spread is None:
            bank = problem.bank
            if bank not in _EIGENVALUE_BOUNDS:
                _EIGENVALUE_BOUNDS[bank] = bank.eigenvalue_bound()
            self._spread = np.sqrt(_EIGENVALUE_BOUNDS[bank])
        # The dual value is that of alpha scaled into the norm constraint.
        scale = problem.regularizer.dual_scale(quad + missing)
        high = scale * np.sqrt(quad + missing) + radius * self._spread
        low = scale * np.sqrt(np.maximum(quad - missing, 0.0)) - radius * self._spread
        zero = problem.regularizer.screened(np.maximum(low, 0.0), high)
        before, self.kept = len(self.kept), self.kept[~zero[self.kept]]
        return len(self.kept) < before
