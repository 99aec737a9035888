"""Equal weights: the baseline every learnt combination has to beat."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from kernelweave.problem import Array, Problem
from kernelweave.regularizers.fixed import Fixed
from kernelweave.solvers.base import Solver, State
from kernelweave.solvers.inner import Evaluator, Point
from kernelweave.solvers.kept import ABOVE_ZERO, Kept

__all__ = ["Uniform"]


@dataclass(frozen=True)
class Uniform(Solver):
    """Solve with equal weights, those the regularizer starts from (1/m on the simplex).

    The certificate is that of the problem with these weights held fixed.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave import MKLClassifier
    >>> X = np.array([[0.0], [1.0], [2.0], [3.0]])
    >>> model = MKLClassifier("linear", solver=Uniform()).fit(X, [0, 0, 1, 1])
    >>> model.weights_
    array([1.])
    """

    name = "uniform"
    kept: ClassVar[Mapping[str, Kept]] = {"inner_tol": Kept(low=ABOVE_ZERO)}
    tries_weights = False

    def prepare(self, problem: Problem) -> Problem:
        """Hold the weights fixed."""
        return problem.with_regularizer(Fixed(problem.regularizer.start(problem.m)))

    def init(self, problem: Problem, start: Point | None) -> State:
        """Solve once, roughly."""
        tol = 1e-2 if start is None else float(start.extra.get("inner_tol", 1e-2))
        return self._state(problem, Evaluator(problem, start), tol)

    def _state(self, problem: Problem, evaluator: Evaluator, tol: float) -> State:
        point = evaluator.evaluate(problem.regularizer.start(problem.m), tol)
        return State(point, evaluator.quad(point), evaluator, tol < 1e-12, tol)

    def step(self, problem: Problem, state: State, gap: float, inner_gap: float) -> State:
        """Solve again, ten times as exactly."""
        return self._state(problem, state.evaluator, state.memory / 10)

    def remember(self, state: State) -> dict[str, Array]:
        """Return how exact alpha is."""
        return {"inner_tol": np.asarray(state.memory)}
