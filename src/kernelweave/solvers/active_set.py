"""Second-order steps over the kernel weights, on a working set of kernels."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from kernelweave.arrays import Array, Index
from kernelweave.errors import InvalidInputError
from kernelweave.problem import Problem
from kernelweave.solvers.base import Solver, State, integer, number, require_linear
from kernelweave.solvers.bundle import Curvature
from kernelweave.solvers.cuts import minimise_model
from kernelweave.solvers.inner import INNER_FLOOR, Evaluator, Point, drop_roundoff
from kernelweave.solvers.kept import ABOVE_ZERO, Kept
from kernelweave.solvers.loop import Limits, run_to_the_end
from kernelweave.solvers.screening import weights_to_start_from, working_kernels

__all__ = ["ActiveSet"]

# Part of what the slope promises that a step has to bring (Armijo's rule, Nocedal and Wright 2006,
# chapter 3), and the shortest step that is tried: twenty halvings.
_SUFFICIENT, _SMALLEST_STEP = 1e-4, 1e-6
# With more kernels than this for each one of the working set, a pass over all of them costs more
# than the solves between two passes: a step then solves on a working set _RESTRICTED times as large
# to the end, to _RESTRICTED_SHARE of the gap, before it looks at all of them again.
_MANY, _RESTRICTED, _RESTRICTED_SHARE = 32, 8, 0.1
# A limit for such solves that do not come to that accuracy.
_RESTRICTED_STEPS = 100
# The gap that the first of them takes for granted.
_FIRST_GAP = 0.1
# Newton's method gets from a rough alpha to an exact one in a step or so, and a step over the
# weights is refused where a rough alpha hides what it gains.
_SMOOTH_TOL = 1e-5
# Steps that fail while alpha owes less than this part of the gap may have another cause: its root,
# 3%, is what the q_k are wrong by. Below a gap of _KINK_GAP the cause may be rounding: the q_k of
# float32 kernels are known to about 1e-7.
_KINK_SHARE, _KINK_GAP = 1e-3, 1e-6
# A tenth of what alpha owes is about a third of its error in the q_k, and so of the gap, if alpha
# is to blame for the gap; at a kink the gap stays.
_STAYED = 0.8


@dataclass
class _Memory:
    gradient: Array
    inner_tol: float
    curvature: Curvature
    before: float = np.inf  # the gap before alpha was last made more exact, in place of a step


@dataclass(frozen=True)
class ActiveSet(Solver):
    r"""Sequential quadratic programming on T(d), for weights on the simplex or under L1.

    T has the gradient :math:`-\frac12 q_k(\alpha)`, and its Hessian tells how alpha answers to a
    change of the kernel (:func:`~kernelweave.solvers.bundle.curvature_root`). Each step
    minimises this model over a working set of kernels (those in use, and those that violate
    optimality most), follows the segment to its minimiser by an Armijo search, and then looks at
    all m kernels again. With very many kernels a pass over all of them is expensive: there a step
    solves the problem restricted to a larger working set to a tenth of the gap first.

    Parameters
    ----------
    working_set : int, default=64
        Most kernels that may enter in one step, beside those in use.
    inner_tol : float, default=1e-3
        Tolerance of the first single-kernel solves, at most 1e-5 for smooth losses. It only falls
        from there.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from kernelweave import MKLClassifier
    >>> X, y = load_wine(return_X_y=True)
    >>> model = MKLClassifier("simplemkl", solver=ActiveSet()).fit(X, y)
    >>> bool(model.gap_ <= 1e-3)
    True
    """

    working_set: int = field(default=64, metadata=integer(1))
    inner_tol: float = field(default=1e-3, metadata=number(above=0, most=1))

    name = "active-set"
    kept: ClassVar[Mapping[str, Kept]] = {
        "inner_tol": Kept(low=ABOVE_ZERO, needed=False),
        "before": Kept(infinite=True, needed=False),
    }
    hands_over = True

    def prepare(self, problem: Problem) -> Problem:
        """Refuse regularizers whose weights do not live in a polyhedron."""
        regularizer = problem.regularizer
        if not (regularizer.polyhedral and regularizer.sparse):
            raise InvalidInputError(
                f"solver 'active-set' takes the regularizers 'simplex' and 'l1'; got "
                f"{problem.regularizer!r}. Use solver='spg' or 'auto'."
            )
        require_linear(self.name, problem)
        return problem

    def init(self, problem: Problem, start: Point | None) -> State:
        """Solve at the given weights, or at equal weights on the kernels most aligned with y."""
        known = {} if start is None else start.extra
        evaluator = Evaluator(problem, start)
        many = problem.m > _MANY * self.working_set
        d = weights_to_start_from(
            problem, start, _RESTRICTED * self.working_set if many else self.working_set
        )
        if many and start is None:
            d = self._restricted(problem, evaluator, d, np.flatnonzero(d), _FIRST_GAP)
        tol = min(self.inner_tol, _SMOOTH_TOL) if problem.loss.smooth else self.inner_tol
        tol = float(known.get("inner_tol", tol))
        before = float(known.get("before", np.inf))
        point = evaluator.evaluate(d, tol)
        return _arrived(evaluator, point, tol, Curvature(evaluator), before)

    def remember(self, state: State) -> dict[str, Array]:
        """Return how exact alpha is, and what that did to the gap."""
        memory: _Memory = state.memory
        return {"inner_tol": np.asarray(memory.inner_tol), "before": np.asarray(memory.before)}

    def _restricted(
        self, problem: Problem, evaluator: Evaluator, d: Array, kernels: Index, gap: float
    ) -> Array:
        """Solve with these kernels alone, from d; leaves the evaluator at the alpha found."""
        few = replace(problem, bank=problem.bank.select(kernels))
        start = Point.start(d[kernels], *evaluator.where)
        limits = Limits(tol=_RESTRICTED_SHARE * gap, max_iter=_RESTRICTED_STEPS)
        solver = replace(self, working_set=len(kernels))
        result, _ = run_to_the_end(few, solver, limits, start, [], time.perf_counter())
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
        kernels = working_kernels(point.d, memory.gradient, _RESTRICTED * self.working_set)
        d = self._restricted(problem, state.evaluator, point.d, kernels, gap)
        there = state.evaluator.evaluate(d, memory.inner_tol)
        return _arrived(state.evaluator, there, memory.inner_tol, memory.curvature)

    def _model_step(self, problem: Problem, state: State, gap: float, inner_gap: float) -> State:
        """Minimise the quadratic model and search along the segment to its minimiser."""
        memory: _Memory = state.memory
        point = state.point
        unit = problem.unit(point.value)
        target = self._target(problem, state, gap)
        direction = target - point.d
        slope = float(memory.gradient @ direction)
        moved, scale = False, 1.0
        # Decreases below what a rough alpha leaves open cannot be told from noise.
        while -scale * slope > inner_gap * unit and scale >= _SMALLEST_STEP:
            d = point.d + scale * direction
            trial = state.evaluator.evaluate(drop_roundoff(d), memory.inner_tol)
            if trial.value <= point.value + _SUFFICIENT * scale * slope:
                return _arrived(state.evaluator, trial, memory.inner_tol, memory.curvature)
            moved = True
            scale *= 0.5
        if _at_a_kink(problem, gap, inner_gap, memory.before):
            # A model of one slope leads nowhere.
            return replace(state, stuck=True)
        return self._sharpen(problem, state, point.d if moved else target, gap, inner_gap)

    def _target(self, problem: Problem, state: State, gap: float) -> Array:
        """Minimiser of the quadratic model over the working set; zero elsewhere."""
        memory: _Memory = state.memory
        d, gradient = state.point.d, memory.gradient
        chosen = working_kernels(d, gradient, self.working_set)
        root = memory.curvature.take(state.point, chosen, gap)
        accuracy = 0.01 * gap * problem.unit(state.point.value)
        most = None if problem.regularizer.bounded else problem.reach(d)
        target = np.zeros_like(d)
        target[chosen] = minimise_model(root.T @ root, gradient[chosen], d[chosen], accuracy, most)
        return target

    def _sharpen(
        self, problem: Problem, state: State, d: Array, gap: float, inner_gap: float
    ) -> State:
        """Go to d with an alpha ten times as exact; stay if d turns out to be worse for sure."""
        memory: _Memory = state.memory
        here = state.point
        tol = memory.inner_tol / 10
        if tol < INNER_FLOOR:
            return replace(state, stuck=True)
        there = state.evaluator.evaluate(drop_roundoff(d), tol)
        # T(d) >= there.value, while T here is at most what the inner gap leaves open.
        if there.value > here.value + inner_gap * problem.unit(here.value):
            there = state.evaluator.evaluate(here.d, tol)
        return _arrived(state.evaluator, there, tol, memory.curvature, before=gap)


def _arrived(
    evaluator: Evaluator, point: Point, tol: float, curvature: Curvature, before: float = np.inf
) -> State:
    """Return the state at a point, after a pass over all kernels."""
    quad = evaluator.quad(point)
    gradient = evaluator.problem.regularizer.gradient(point.d) - 0.5 * quad
    return State(point, quad, evaluator, False, _Memory(gradient, tol, curvature, before))


def _at_a_kink(problem: Problem, gap: float, inner_gap: float, before: float) -> bool:
    """Whether steps fail because T has no gradient here, not for want of a more exact alpha.

    Where K(d) is singular and the loss piecewise linear, alpha need not be unique; any one of them
    gives T(d), but the q_k of one alone need not tell where T falls, nor certify that it does not.

    What alpha owes does not decide it: its square root is what the q_k are wrong by. So alpha has
    been made more exact, from where the gap was `before` (infinite if it has not), and in vain.
    """
    exact = gap > _KINK_GAP and inner_gap < _KINK_SHARE * gap
    return not problem.loss.smooth and exact and gap > _STAYED * before
