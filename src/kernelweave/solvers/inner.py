"""Single-kernel problems with the weights held fixed, warm-started, for every task."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

import numpy as np

from kernelweave.arrays import Array, Index
from kernelweave.combine import Gram
from kernelweave.compiled.blocks import CACHED_ENTRIES
from kernelweave.compiled.dense_rows import fits_float32, rectangle
from kernelweave.operators.bounds import semi_definite
from kernelweave.problem import Problem
from kernelweave.solvers.box_qp import solve_box_qp
from kernelweave.solvers.certificate import (
    best_intercepts,
    feasible_alpha,
    weighted_objective,
)
from kernelweave.solvers.kept import Numbers, Progress
from kernelweave.solvers.newton import solve_smooth

# Smallest tolerance of a single-kernel solve: float64 resolves no more.
INNER_FLOOR = 1e-14
# Range of the factor by which a tolerance that was not enough is made smaller.
_TIGHTEST, _TIGHTER = 1e-3, 0.1
# Decision values differ by no less than this part of their unit.
_VIOLATION_FLOOR = 1e-13
# Beyond this many bytes for all kernels their products are not kept: twice what banks keep of rows
# unless they are told otherwise.
_MOST_BYTES = 2e9
# SMO creeps on singular kernels: what it has not reached by then, other weights may spare it.
_MOST_STEPS = 3_000_000


@dataclass
class Point:
    """Weights and the dual solution that belongs to them.

    `alpha`, of shape (T, n), is feasible, and `fitted` is K(d) alpha; `value` is T(d) as far as
    alpha shows it (:meth:`Problem.inner_value`). A point to start from also has what the same
    solver remembered there (:meth:`~kernelweave.solvers.Solver.remember`), `extra`, and how far the
    fit had come that is taken up.
    """

    d: Array
    alpha: Array
    fitted: Array
    intercept: Array
    value: float
    extra: Numbers = field(default_factory=dict)
    progress: Progress | None = None

    @classmethod
    def start(
        cls,
        d: Array,
        alpha: Array,
        intercept: Array,
        extra: Numbers | None = None,
        progress: Progress | None = None,
    ) -> Point:
        """Return a point for solvers to start from, at which nothing has been computed yet."""
        return cls(d, alpha, np.zeros_like(alpha), intercept, np.inf, extra or {}, progress)


def drop_roundoff(d: Array) -> Array:
    """Remove the rounding that a step to the border of the allowed set leaves behind."""
    return np.where(d > 1e-12 * d.max(), d, 0.0)


def spread_over(kernels: Index, d: Array) -> Array:
    """Equal weights on some kernels, with the sum of d."""
    out = np.zeros_like(d)
    out[kernels] = d.sum() / len(kernels)
    return out


def working_kernels(d: Array, gradient: Array, most: int) -> Index:
    """Kernels in use, and at most so many of the others: those whose gradient is lowest.

    In order; of equal ones the first.
    """
    outside = np.flatnonzero(d == 0)
    best = outside[np.argsort(gradient[outside], kind="stable")[:most]]
    return np.sort(np.concatenate([np.flatnonzero(d), best]))


def owed_by_alpha(problem: Problem, point: Point, intercept: Array) -> float:
    """How far T(d) may be above the value of the point: the duality gap at its own weights."""
    above = weighted_objective(problem, point.d, point.alpha, point.fitted, intercept)
    return max(0.0, above - point.value)


class KernelProducts:
    """Products K_k alpha of a weighted sum of kernels, at the alpha solved last."""

    def __init__(self, problem: Problem, alpha: Array) -> None:
        self._bank = problem.bank
        self._alpha = alpha.copy()
        self._products = np.zeros((problem.m, *alpha.shape))
        self._fresh = np.full(problem.m, not alpha.any())

    @classmethod
    def for_problem(cls, problem: Problem, alpha: Array) -> KernelProducts | None:
        """Return the store, or None where K(d) or rows of it are kept, or products are too many."""
        bank = problem.bank
        small = 8.0 * problem.m * alpha.size <= _MOST_BYTES
        by_kernel = problem.combination.is_sum and not (bank.forms_matrix or bank.computes_rows)
        return cls(problem, alpha) if by_kernel and small else None

    def move_to(self, alpha: Array) -> None:
        """Take another alpha, of which no product is known."""
        if not self.belong_to(alpha):
            self._fresh[:] = False
            self._alpha = alpha.copy()

    def fitted(self, gram: Gram, alpha: Array) -> Array:
        """K(d) alpha, with a pass over those kernels of weight not zero that are not known yet."""
        self.move_to(alpha)
        stale = gram.active[~self._fresh[gram.active]]
        if len(stale):
            self._products[stale] = self._bank.apply(self._alpha, stale)
            self._fresh[stale] = True
        return np.tensordot(gram.d[gram.active], self._products[gram.active], axes=1)

    def add(self, gram: Gram, task: int) -> None:
        """Take over what the solve of one task has added to the products."""
        if gram.parts is not None:
            self._products[gram.active, task] += gram.parts

    def settle(self, gram: Gram, alpha: Array, fitted: Array) -> None:
        """Note the alpha of a finished solve; the products of kernels not in use are now stale.

        Those in use are known if every product taken was a change of alpha, as in SMO; Newton's
        method also takes products with search directions.
        """
        self.move_to(alpha)
        # Also where alpha stayed: Newton's method takes a product to find that out.
        products = self._products[gram.active]
        total = np.tensordot(gram.d[gram.active], products, axes=1)
        size = np.abs(fitted).max()
        self._fresh[gram.active] = np.allclose(total, fitted, rtol=1e-9, atol=1e-9 * size)

    def belong_to(self, alpha: Array) -> bool:
        """Whether these are the products of that alpha."""
        return np.array_equal(alpha, self._alpha)

    def quad(self, kernels: Index | None) -> Array:
        """q_k(alpha) for those kernels (None: all), zero for the others."""
        wanted = np.arange(len(self._fresh)) if kernels is None else kernels
        quad = np.zeros(len(self._fresh))
        fresh, stale = wanted[self._fresh[wanted]], wanted[~self._fresh[wanted]]
        quad[fresh] = np.einsum("ktn,tn->k", self._products[fresh], self._alpha)
        if len(stale):
            quad[stale] = self._bank.quad(self._alpha, stale)
        return semi_definite(quad, self._alpha, self._bank, np.arange(len(quad)))


@dataclass
class InnerWork:
    """Counts the single-kernel problems solved so far, and the steps or rounds that took."""

    n_solves: int = 0
    n_steps: int = 0


class Evaluator(InnerWork):
    """Evaluates T(d) again and again at nearby weights.

    Keeps the last alpha as the warm start of the next solve, and counts the work. For sums too
    large for a combined matrix it also keeps K_k alpha of the kernels in use
    (:class:`KernelProducts`). With `chunk` a solve moves at most so many variables at a time, and
    tolerances are relative gaps. The next solve starts at `alpha` and `intercept`.
    """

    def __init__(
        self, problem: Problem, start: Point | None = None, chunk: int | None = None
    ) -> None:
        super().__init__()
        self.problem = problem
        self._chunk = chunk
        self._most_steps = max(_MOST_STEPS, 100 * problem.n)
        self.cut_short = False  # one of those solved last ended for want of steps
        self.tol = np.inf  # of the last solve
        self._last: Point
        self._owed: tuple[Point | None, float] = None, np.inf  # by the point asked about last
        self._has_state = False
        given = np.zeros((problem.n_tasks, problem.n)) if start is None else start.alpha
        self.alpha = feasible_alpha(problem, given)
        self.intercept = np.zeros(problem.n_tasks) if start is None else start.intercept.copy()
        self._gram: Gram | None = None
        self._kept: Array | None = None
        self._products = KernelProducts.for_problem(problem, self.alpha)
        rows, loss = zip(problem.y, problem.C, strict=True), problem.loss
        self._qps = [None if loss.smooth else loss.box_qp(*row) for row in rows]

    def keep_only(self, kernels: Array) -> None:
        """Leave the other kernels out of `quad`: their weight is zero at every optimum."""
        self._kept = kernels

    def evaluate(self, d: Array, tol: float) -> Point:
        """Solve the single-kernel problems at weights d.

        A solve during which the problem's deadline passes returns what it has. After that, no other
        is begun: `TimeUp` ends the step, once there is a first state to go back to.
        """
        problem, self.tol = self.problem, tol
        if self._has_state:
            problem.deadline.check()
        # A rough alpha needs no more than float32, which is faster where float64 would not stay in
        # the cache; the last certificate is taken from the bank.
        large = problem.n**2 > CACHED_ENTRIES
        rough = large and tol >= 1e-4 and not problem.loss.smooth
        dtype = np.float32 if rough else np.float64
        gram = problem.combination.gram(problem.bank, d, dtype, self._gram)
        formed = gram.dense()
        if rough and formed is not None and not fits_float32(formed.diagonal()):
            gram = problem.combination.gram(problem.bank, d, np.float64, gram)
        self._gram = gram
        fitted = self._fitted(gram)
        alpha = np.empty_like(self.alpha)
        self.cut_short = False
        for t in range(problem.n_tasks):
            gram.parts = None
            at = self.alpha[t], fitted[t], self.intercept[t]
            alpha[t], fitted[t], self.intercept[t], steps = self._solve_task(t, gram, tol, *at)
            self.n_steps += steps
            self.cut_short |= steps >= self._most_steps
            if self._products is not None:
                self._products.add(gram, t)
        self.n_solves += problem.n_tasks
        if self._products is not None:
            self._products.settle(gram, alpha, fitted)
        self.alpha = alpha
        if problem.loss.smooth and gram.dense() is not None:
            # Newton's steps add up to K(d) alpha with an error that a large C multiplies.
            fitted = self._fitted(gram)
        value = problem.inner_value(d, alpha, fitted)
        self._last = Point(d, alpha.copy(), fitted, self.intercept.copy(), value)
        return self._last

    def _solve_task(
        self, task: int, gram: Gram, tol: float, alpha: Array, fitted: Array, b: float
    ) -> tuple[Array, Array, float, int]:
        """Solve one single-kernel problem from a warm start: (alpha, K alpha, intercept, steps).

        Piecewise-linear losses go to the SMO solver, where `tol` is the KKT violation in units of
        decision values, smooth ones to Newton's method, where it is the relative gap. In chunks it
        is the relative gap for the SMO solver too. The alpha returned is feasible.
        """
        problem, qp = self.problem, self._qps[task]
        y, C, loss, deadline = problem.y[task], problem.C[task], problem.loss, problem.deadline
        if qp is None:
            smooth = partial(solve_smooth, loss, y, C, gram, tol=tol, deadline=deadline)
            newton = smooth(alpha=alpha, fitted=fitted, intercept=b)
            return newton.alpha, newton.fitted, newton.intercept, newton.n_steps

        def owes_little(alpha: Array, fitted: Array, b: float) -> bool:
            above = float(np.sum(loss.value(y, fitted + b, C))) + loss.alpha_sum * b
            below = -float(np.sum(loss.conjugate(y, alpha, C)))
            quadratic = 0.5 * float(alpha @ fitted)
            above, below = above + quadratic, below - quadratic
            return above - below <= tol * problem.unit(above, below)

        chunked = self._chunk is not None
        box = solve_box_qp(
            qp,
            gram,
            tol=problem.decision_unit * (_VIOLATION_FLOOR if chunked else tol),
            a=qp.split(alpha),
            fitted=fitted,
            max_iter=self._most_steps,
            deadline=deadline,
            most=self._chunk,
            good_enough=owes_little if chunked else None,
        )
        return box.alpha, box.fitted, box.intercept, box.n_steps

    def evaluate_until(
        self, d: Array, allowed: float, coarsest: float, enough: float = np.inf
    ) -> tuple[Point, float]:
        """Solve at d until alpha owes no more than allowed, or T(d) is known to be above `enough`.

        What alpha owes falls about as its tolerance does, so that the solve before, of which there
        has to be one, tells which tolerance will do. Returns the point and what its alpha owes.
        """
        tol, most = self.tol, coarsest / self.tol
        if self._chunk is not None or self.problem.loss.smooth:
            # These tolerances are relative gaps.
            owed = tol * self.problem.unit(self._last.value)
        else:
            owed = self.owed(self._last)
        while True:
            part = 0.5 * allowed / owed if owed > 0 else np.inf
            tol = max(tol * min(max(part, _TIGHTEST), most), INNER_FLOOR)
            point = self.evaluate(d, tol)
            owed, most = self.owed(point), _TIGHTER
            if owed <= allowed or point.value > enough or tol <= INNER_FLOOR:
                return point, owed

    def owed(self, point: Point) -> float:
        """How far T(d) may be above the value of the point."""
        if self._owed[0] is not point:
            best = best_intercepts(self.problem, point.fitted, point.intercept)
            self._owed = point, owed_by_alpha(self.problem, point, best)
        return self._owed[1]

    def _fitted(self, gram: Gram) -> Array:
        """K(d) alpha at the alpha to start from."""
        if self._products is not None:
            return self._products.fitted(gram, self.alpha)
        used = [np.flatnonzero(row) for row in self.alpha]
        rows = zip(used, self.alpha, strict=True)
        return np.array([gram.product(idx, row[idx]) for idx, row in rows])

    def block(self, d: Array, idx: Index, dtype: type) -> Array:
        """K(d)[idx][:, idx], from the matrix formed last if that is K(d)."""
        matrix = None if self._gram is None else self._gram.dense()
        if matrix is not None and self._gram is not None and self._gram.d is d:
            return rectangle(matrix, idx, idx, dtype)
        return self.problem.bank.weighted(d, idx, idx).astype(dtype)

    def _wanted(self, d: Array) -> Index | None:
        """Kernels that may matter, if some do not."""
        return None if self._kept is None else np.union1d(self._kept, np.flatnonzero(d))

    def quad(self, point: Point) -> Array:
        """alpha'(dK/dd_k) alpha for all kernels that may matter; zero for those dropped."""
        self._has_state = True
        kernels = self._wanted(point.d)
        if self._products is not None and self._products.belong_to(point.alpha):
            return self._products.quad(kernels)
        return self.problem.combination.derivative_quad(
            self.problem.bank, point.d, point.alpha, kernels
        )

    def products(self, d: Array, alpha: Array) -> tuple[Array, Array]:
        """Return K(d) alpha and alpha'K_k alpha in one pass; zero for kernels dropped."""
        bank, evaluate = self.problem.bank, self.problem.combination.evaluate
        kernels = self._wanted(d)
        if kernels is None:
            return evaluate(bank, d, alpha)
        fitted, quad = np.zeros_like(alpha), np.zeros(bank.m)
        if len(kernels):
            fitted, quad[kernels] = evaluate(bank.select(kernels), d[kernels], alpha)
        return fitted, quad
