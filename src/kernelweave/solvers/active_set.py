"""Second-order steps over the kernel weights, on a working set of kernels."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace

import numpy as np

from kernelweave.arrays import Array, Index
from kernelweave.errors import InvalidInputError
from kernelweave.problem import Problem
from kernelweave.solvers.base import State, integer, number
from kernelweave.solvers.bundle import CuttingPlanes
from kernelweave.solvers.inner import Evaluator, Point
from kernelweave.solvers.loop import Limits, run
from kernelweave.solvers.screening import weights_to_start_from
from kernelweave.solvers.silp import BundleSolver

__all__ = ["ActiveSet"]

# With more kernels than this for each one of the working set, a pass over all of them costs more
# than the solves between two passes: a step then solves on a working set _RESTRICTED times as large
# to the end, to _RESTRICTED_SHARE of the gap, before it looks at all of them again.
_MANY, _RESTRICTED, _RESTRICTED_SHARE = 32, 8, 0.1
# A limit for such solves that do not come to that accuracy.
_RESTRICTED_STEPS = 100
# The gap that the first of them takes for granted.
_FIRST_GAP = 0.1


@dataclass(frozen=True)
class ActiveSet(BundleSolver):
    r"""Sequential quadratic programming on T(d), for weights on the simplex or under L1.

    T has the gradient :math:`-\frac12 q_k(\alpha)`, and its Hessian tells how alpha answers to a
    change of the kernel (:func:`~kernelweave.solvers.bundle.curvature_root`). Each step
    minimises this model over a working set of kernels (those in use, and those that violate
    optimality most), and then looks at all m kernels again. Where T has no gradient, cutting planes
    lead on (:class:`~kernelweave.solvers.bundle.CuttingPlanes`). With very many kernels a pass over
    all of them is expensive: there a step solves the problem restricted to a larger working set to
    a tenth of the gap first.

    Parameters
    ----------
    working_set : int, default=64
        Most kernels that may enter in one step, beside those in use.
    inner_tol : float, default=1e-3
        Tolerance of the first single-kernel solves. Each later one is solved until what it owes is
        a tenth of what its step promises.

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

    def prepare(self, problem: Problem) -> Problem:
        """Refuse regularizers whose weights do not live in a polyhedron."""
        regularizer = problem.regularizer
        if not (regularizer.polyhedral and regularizer.sparse):
            raise InvalidInputError(
                f"solver 'active-set' takes the regularizers 'simplex' and 'l1'; got "
                f"{problem.regularizer!r}. Use solver='spg' or 'auto'."
            )
        return super().prepare(problem)

    def _many(self, problem: Problem) -> bool:
        return problem.m > _MANY * self.working_set

    def _first_weights(self, evaluator: Evaluator, start: Point | None) -> Array:
        problem = evaluator.problem
        if start is not None or not self._many(problem):
            return super()._first_weights(evaluator, start)
        d = weights_to_start_from(problem, None, _RESTRICTED * self.working_set)
        return self._restricted(evaluator, d, np.flatnonzero(d), _FIRST_GAP)

    def _restricted(self, evaluator: Evaluator, d: Array, kernels: Index, gap: float) -> Array:
        """Solve with these kernels alone, from d; leaves the evaluator at the alpha found."""
        few = replace(evaluator.problem, bank=evaluator.problem.bank.select(kernels))
        start = Point.start(d[kernels], *evaluator.where)
        limits = Limits(tol=_RESTRICTED_SHARE * gap, max_iter=_RESTRICTED_STEPS)
        # All of them are its working set: it is not restricted once more.
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
        planes: CuttingPlanes = state.memory
        here, evaluator = planes.centre, state.evaluator
        if self._many(problem):
            kernels = planes.working_kernels(_RESTRICTED * self.working_set)
            d = self._restricted(evaluator, here.d, kernels, gap)
            allowed = _RESTRICTED_SHARE * gap * planes.unit
            point, owed = evaluator.evaluate_until(d, allowed, self.inner_tol)
            if point.value + owed < here.value:
                planes.put_centre(point, evaluator.quad(point))
                planes.sharpest = False
                return replace(state, point=point, quad=planes.quad)
        return super().step(problem, state, gap, inner_gap)
