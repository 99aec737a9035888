"""Second-order steps over the kernel weights, on a working set of kernels."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import LinAlgError, cholesky, solve_triangular

from kernelweave.combine.weighted_sum import WeightedSum
from kernelweave.errors import InvalidInputError
from kernelweave.losses.box_qp import BoxQP
from kernelweave.problem import Array, Problem
from kernelweave.regularizers.l1 import L1
from kernelweave.regularizers.simplex import Simplex
from kernelweave.solvers.base import Solver, State
from kernelweave.solvers.box_solver import DenseGram, solve_box_qp
from kernelweave.solvers.inner import Evaluator, Point, without_dust
from kernelweave.solvers.loop import Limits, run

__all__ = ["ActiveSet"]

_SUFFICIENT = 1e-4
_SMALLEST_STEP = 1e-6
_INNER_FLOOR = 1e-14
# Most samples that enter the curvature: beyond, a part of them still gives a descent direction.
_MOST_CURVED = 3000
_SINGLE_FROM = 1000
# With more kernels than this for each one of the working set, a step solves on the working set to
# the end before it looks at all of them again.
_MANY = 32
_RESTRICTED = 8
_RESTRICTED_SHARE = 0.1
_RESTRICTED_STEPS = 100
_FIRST_GAP = 0.1
# From this many samples on a Hessian is kept for as long as it brings the gap down fivefold.
_KEEP_FROM = 2000


@dataclass
class _Model:
    """The Hessian of T over some kernels, as R with R'R = H."""

    kernels: Array
    root: Array
    gap: float  # when it was computed


@dataclass
class _Memory:
    gradient: Array
    inner_tol: float
    model: _Model | None = None


@dataclass(frozen=True)
class ActiveSet(Solver):
    r"""Sequential quadratic programming on T(d), for weights on the simplex or under L1.

    T is smooth wherever the set of free support vectors F is, with gradient
    :math:`-\frac12 q_k(\alpha)` and Hessian

    .. math:: H_{kl} = (K_k\alpha)_F'\, M\, (K_l\alpha)_F,

    M being the inverse of :math:`K(d)_{FF} + \mathrm{diag}(1/\ell'')` on the vectors of sum zero:
    how alpha answers to a change of the kernel. Each step minimises this model over a working set
    of kernels (those in use, and those that violate optimality most), follows the segment to its
    minimiser by an Armijo search, and then looks at all m kernels again. With very many kernels a
    pass over all of them is dear: there a step solves the problem restricted to a larger working
    set to a tenth of the gap first.

    Parameters
    ----------
    working_set : int, default=64
        Most kernels that may enter in one step, beside those in use.
    inner_tol : float, default=1e-3
        Tolerance of the first single-kernel solves. It only falls from there.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from kernelweave import MKLClassifier
    >>> X, y = load_wine(return_X_y=True)
    >>> model = MKLClassifier("simplemkl", solver=ActiveSet()).fit(X, y)
    >>> bool(model.gap_ <= 1e-3)
    True
    """

    working_set: int = 64
    inner_tol: float = 1e-3

    name = "active-set"

    def prepare(self, problem: Problem) -> Problem:
        """Refuse regularizers whose weights do not live in a polyhedron."""
        if not isinstance(problem.regularizer, Simplex | L1):
            raise InvalidInputError(
                f"solver 'active-set' takes the regularizers 'simplex' and 'l1'; got "
                f"{problem.regularizer!r}. Use solver='spg' or 'auto'."
            )
        if not isinstance(problem.combination, WeightedSum):
            raise InvalidInputError(
                f"solver 'active-set' takes sums of kernels; got the combination "
                f"{problem.combination!r}. Use solver='spg' or 'auto'."
            )
        return problem

    def init(self, problem: Problem, start: Point | None) -> State:
        """Solve at the given weights, or at equal weights on the kernels most aligned with y."""
        evaluator = Evaluator(problem, start)
        d = problem.regularizer.start(problem.m)
        if start is not None:
            d = problem.regularizer.project(start.d)
        if start is None and problem.m > self.working_set:
            many = problem.m > _MANY * self.working_set
            count = _RESTRICTED * self.working_set if many else self.working_set
            best = _lowest(-self._alignment(problem), count)
            d = _spread_over(best, d)
            if many:
                d = self._restricted(problem, evaluator, d, best, _FIRST_GAP)
        point = evaluator.evaluate(d, self.inner_tol)
        quad = evaluator.quad(point)
        gradient = problem.regularizer.gradient(d) - 0.5 * quad
        return State(point, quad, evaluator, False, _Memory(gradient, self.inner_tol))

    def _alignment(self, problem: Problem) -> Array:
        """q_k at the alpha that the loss asks for where nothing is known yet."""
        alpha = -problem.loss.gradient(problem.y, np.zeros_like(problem.y), problem.C)
        alpha -= alpha.mean(axis=1, keepdims=True)
        return problem.bank.quad(alpha)

    def _restricted(
        self, problem: Problem, evaluator: Evaluator, d: Array, kernels: Array, gap: float
    ) -> Array:
        """Solve with these kernels alone, from d; leaves the evaluator at the alpha found."""
        few = replace(problem, bank=problem.bank.select(kernels))
        start = Point.start(d[kernels], *evaluator.where)
        limits = Limits(tol=_RESTRICTED_SHARE * gap, max_iter=_RESTRICTED_STEPS)
        solver = replace(self, working_set=len(kernels))
        result = run(few, solver, limits, start, [], time.perf_counter())
        evaluator.go_to(result.alpha, result.intercept)
        evaluator.n_solves += result.history[-1].inner_solves
        evaluator.n_steps += result.history[-1].inner_iterations
        out = np.zeros_like(d)
        out[kernels] = result.d
        return out

    def step(self, problem: Problem, state: State, gap: float, inner_gap: float) -> State:
        """Minimise over a working set of kernels, then look at all of them."""
        if problem.m <= _MANY * self.working_set:
            return self._model_step(problem, state, gap, inner_gap)
        memory: _Memory = state.memory
        point = state.point
        kernels = self._working_kernels(point.d, memory.gradient, _RESTRICTED * self.working_set)
        d = self._restricted(problem, state.evaluator, point.d, kernels, gap)
        there = state.evaluator.evaluate(d, memory.inner_tol)
        return self._arrived(problem, state, there, memory.inner_tol)

    def _model_step(self, problem: Problem, state: State, gap: float, inner_gap: float) -> State:
        """Minimise the quadratic model and search along the segment to its minimiser."""
        memory: _Memory = state.memory
        point = state.point
        unit = max(1.0, abs(point.value))
        target = self._target(problem, state, gap)
        direction = target - point.d
        slope = float(memory.gradient @ direction)
        moved, scale = False, 1.0
        # Decreases below what a rough alpha leaves open cannot be told from noise.
        while -scale * slope > inner_gap * unit and scale >= _SMALLEST_STEP:
            d = point.d + scale * direction
            trial = state.evaluator.evaluate(without_dust(d), memory.inner_tol)
            if trial.value <= point.value + _SUFFICIENT * scale * slope:
                return self._arrived(problem, state, trial, memory.inner_tol)
            moved = True
            scale *= 0.5
        return self._sharpen(problem, state, point.d if moved else target, inner_gap)

    def _target(self, problem: Problem, state: State, gap: float) -> Array:
        """Minimiser of the quadratic model over the working set; zero elsewhere."""
        memory: _Memory = state.memory
        d, gradient = state.point.d, memory.gradient
        chosen = self._working_kernels(d, gradient, self.working_set)
        root = self._model(problem, state, chosen, gap).root
        accuracy = 0.01 * gap * max(1.0, abs(state.point.value))
        slack = isinstance(problem.regularizer, L1)
        H = root.T @ root
        H[np.diag_indices_from(H)] += 1e-10 * max(H.trace() / len(H), 1e-300)
        linear = gradient[chosen] - H @ d[chosen]
        total = float(d.sum())
        if slack:
            # One more variable takes up the sum that L1 leaves free, up to a trust region.
            total = 2.0 * total + 1.0
            H = np.pad(H, ((0, 1), (0, 1)))
            linear = np.append(linear, 0.0)
        size = len(linear)
        qp = BoxQP(
            np.ones(size), linear, np.full(size, total), np.arange(size, dtype=np.int64), total
        )
        at = np.append(d[chosen], total - d.sum()) if slack else d[chosen]
        tol = accuracy / max(total, 1e-12)
        a = solve_box_qp(qp, DenseGram(H), tol=tol, a=at, max_iter=100 * size + 10_000).a
        target = np.zeros_like(d)
        target[chosen] = a[: len(chosen)]
        return target

    def _model(self, problem: Problem, state: State, kernels: Array, gap: float) -> _Model:
        """Return the Hessian here, or the last one while it serves well and is dear to compute."""
        memory: _Memory = state.memory
        last = memory.model
        keeps = last is not None and problem.n > _KEEP_FROM and gap < 0.2 * last.gap
        if last is None or not keeps or not np.array_equal(last.kernels, kernels):
            root = _curvature_root(state.evaluator, state.point, kernels)
            last = memory.model = _Model(kernels, root, gap)
        return last

    def _working_kernels(self, d: Array, gradient: Array, most: int) -> Array:
        """Kernels in use, and those outside whose gradient is lowest."""
        used = np.flatnonzero(d)
        outside = np.flatnonzero(d == 0)
        best = outside[_lowest(gradient[outside], most)]
        return np.sort(np.concatenate([used, best]))

    def _arrived(self, problem: Problem, state: State, point: Point, tol: float) -> State:
        quad = state.evaluator.quad(point)
        gradient = problem.regularizer.gradient(point.d) - 0.5 * quad
        new = _Memory(gradient, tol, state.memory.model)
        return State(point, quad, state.evaluator, False, new)

    def _sharpen(self, problem: Problem, state: State, d: Array, inner_gap: float) -> State:
        """Go to d with an alpha ten times as exact; stay if d turns out to be worse for sure."""
        memory: _Memory = state.memory
        here = state.point
        tol = memory.inner_tol / 10
        if tol < _INNER_FLOOR:
            state.stuck = True
            return state
        there = state.evaluator.evaluate(without_dust(d), tol)
        # T(d) >= there.value, while T here is at most what the inner gap leaves open.
        if there.value > here.value + inner_gap * max(1.0, abs(here.value)):
            there = state.evaluator.evaluate(here.d, tol)
        return self._arrived(problem, state, there, tol)


def _lowest(score: Array, count: int) -> Array:
    """Positions of the `count` lowest scores, in order of position; ties go to the first."""
    if len(score) > count:
        bar = np.partition(score, count - 1)[count - 1]
        below, equal = np.flatnonzero(score < bar), np.flatnonzero(score == bar)
        return np.sort(np.concatenate([below, equal[: count - len(below)]]))
    return np.arange(len(score))


def _spread_over(kernels: Array, d: Array) -> Array:
    """Equal weights on some kernels, with the sum of d."""
    out = np.zeros_like(d)
    out[kernels] = d.sum() / len(kernels)
    return out


def _curvature_root(evaluator: Evaluator, point: Point, kernels: Array) -> Array:
    """R with R'R = H, the Hessian of T over `kernels`, summed over tasks."""
    problem = evaluator.problem
    roots = []
    for t in range(problem.n_tasks):
        free, stiffness = _free_samples(problem, point, t)
        if not len(free):
            continue
        # The model need not be exact, and float32 halves its cost.
        dtype = np.float32 if len(free) > _SINGLE_FROM else np.float64
        products = problem.bank.products_at(point.alpha[t], free, kernels)
        block = evaluator.block(point.d, free, dtype)
        block[np.diag_indices_from(block)] += stiffness.astype(dtype)
        factor = _safe_cholesky(block)
        right = np.column_stack([products.T, np.ones(len(free))]).astype(factor.dtype)
        white = solve_triangular(factor, right, lower=True, check_finite=False)
        white, ones = white[:, :-1].astype(np.float64), white[:, -1].astype(np.float64)
        # Changes of alpha sum to zero: take out the direction that the intercept absorbs.
        ones = ones / np.linalg.norm(ones)
        roots.append(white - np.outer(ones, ones @ white))
    return np.concatenate(roots) if roots else np.zeros((1, len(kernels)))


def _safe_cholesky(block: Array) -> Array:
    """Lower Cholesky factor of a semi-definite matrix with as little as needed on its diagonal."""
    scale = float(block.diagonal().mean())
    if scale <= 0:
        return np.eye(len(block))
    diagonal = np.diag_indices_from(block)
    share = 1e-5 if block.dtype == np.float32 else 1e-6
    while True:
        raised = block.copy()
        raised[diagonal] += block.dtype.type(share * scale)
        try:
            return cholesky(raised, lower=True, overwrite_a=True, check_finite=False)
        except LinAlgError:
            share *= 100


def _free_samples(problem: Problem, point: Point, task: int) -> tuple[Array, Array]:
    """Samples whose alpha can move, and how stiffly: the second derivative of loss*."""
    loss, y, C = problem.loss, problem.y[task], problem.C[task]
    alpha = point.alpha[task]
    if loss.smooth:
        curvature = loss.curvature(y, point.fitted[task] + point.intercept[task], C)
        free = np.flatnonzero(curvature > 1e-10 * C)
        stiffness = 1.0 / curvature[free]
    else:
        lo, hi = loss.domain(y, C)
        room = 1e-9 * np.maximum(C, 1e-300)
        free = np.flatnonzero((alpha > lo + room) & (alpha < hi - room) & (alpha != 0))
        stiffness = np.zeros(len(free))
    if len(free) > _MOST_CURVED:
        pick = np.linspace(0, len(free) - 1, _MOST_CURVED).astype(np.int64)
        free, stiffness = free[pick], stiffness[pick]
    return free, stiffness
