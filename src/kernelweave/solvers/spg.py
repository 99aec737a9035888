"""Spectral projected gradient over the kernel weights (SPG-GMKL, Jain et al. 2012, Algorithm 1)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernelweave.problem import Array, Problem
from kernelweave.solvers.base import Solver, State
from kernelweave.solvers.inner import Evaluator, Point, without_dust

__all__ = ["SPG"]

_SUFFICIENT = 1e-4
_SMALLEST_STEP = 1e-8
_SPECTRAL_RANGE = (1e-30, 10.0)
_INNER_FLOOR = 1e-14


@dataclass
class _Memory:
    evaluator: Evaluator
    gradient: Array
    spectral: float
    reference: float  # Cbar: running average of past objectives
    mass: float  # Q: how many of them it stands for
    eta: float  # how slowly the past is forgotten
    inner_tol: float


@dataclass(frozen=True)
class SPG(Solver):
    r"""Spectral projected gradient descent on T(d).

    Minimises :math:`T(d) = r(d) + \max_\alpha -\sum \ell^*(-\alpha) - \frac12 \alpha'K(d)\alpha`
    over the weights the regularizer allows, with gradient
    :math:`\partial r/\partial d_k - \frac12 q_k(\alpha)` (eq. 4). The step length is spectral
    (Barzilai and Borwein), the line search compares with a running average of past objectives,
    and the single-kernel solves start rough: their tolerance falls tenfold whenever more than a
    third of the gap, or the whole decrease in sight, is owed to a rough alpha (where the paper
    goes by fixed levels of the gap), and it never rises.

    Parameters
    ----------
    inner_tol : float, default=1e-2
        Tolerance of the first single-kernel solve. It only falls from there.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from kernelweave import MKLClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = MKLClassifier(solver=SPG()).fit(X, y)
    >>> bool(model.gap_ <= 1e-3)
    True
    """

    inner_tol: float = 1e-2

    name = "spg"

    def init(self, problem: Problem, start: Point | None) -> State:
        """Evaluate the starting weights."""
        evaluator = Evaluator(problem, start)
        d = problem.regularizer.start(problem.m) if start is None else start.d
        point = evaluator.evaluate(problem.regularizer.project(d), self.inner_tol)
        quad = evaluator.quad(point)
        gradient = problem.regularizer.gradient(point.d) - 0.5 * quad
        memory = _Memory(
            evaluator,
            gradient,
            _first_step(point.d, gradient),
            point.value,
            1.0,
            0.85,
            self.inner_tol,
        )
        return State(point, quad, point.n_steps, False, memory)

    def step(self, problem: Problem, state: State, gap: float, inner_gap: float) -> State:
        """One line search along the spectral direction, or a sharper solve where we stand."""
        memory: _Memory = state.memory
        if inner_gap > 0.3 * gap:
            # Moving the weights cannot close this part of the gap: only exactness can.
            return self._sharpen(problem, state)
        point, direction = state.point, self._direction(problem, state)
        slope = float(memory.gradient @ direction)
        n_steps, scale = 0, 1.0
        noise = inner_gap * max(1.0, abs(point.value))
        while scale * slope > noise and scale >= _SMALLEST_STEP:
            trial = memory.evaluator.evaluate(
                without_dust(point.d - scale * direction), memory.inner_tol
            )
            n_steps += trial.n_steps
            if trial.value <= memory.reference - _SUFFICIENT * scale * slope:
                return self._accept(problem, state, trial, scale, slope, direction, n_steps)
            scale *= 0.5
        # What is left to gain cannot be told from the noise of a rough alpha.
        state.inner_iterations += n_steps
        return self._sharpen(problem, state)

    def _direction(self, problem: Problem, state: State) -> Array:
        memory: _Memory = state.memory
        d = state.point.d
        return d - problem.regularizer.project(d - memory.spectral * memory.gradient)

    def _accept(
        self,
        problem: Problem,
        state: State,
        trial: Point,
        scale: float,
        slope: float,
        direction: Array,
        n_steps: int,
    ) -> State:
        memory: _Memory = state.memory
        quad = memory.evaluator.quad(trial)
        gradient = problem.regularizer.gradient(trial.d) - 0.5 * quad
        moved = trial.d - state.point.d
        change = float(moved @ (gradient - memory.gradient))
        predicted = scale * slope - 0.5 * scale**2 * float(direction @ direction) / memory.spectral
        eta = _adapt_eta(memory.eta, state.point.value - trial.value, predicted)
        mass = eta * memory.mass + 1.0
        reference = (eta * memory.mass * memory.reference + trial.value) / mass
        low, high = _SPECTRAL_RANGE
        spectral = high if change <= 0 else float(np.clip(moved @ moved / change, low, high))
        new = _Memory(memory.evaluator, gradient, spectral, reference, mass, eta, memory.inner_tol)
        return State(trial, quad, state.inner_iterations + n_steps, False, new)

    def _sharpen(self, problem: Problem, state: State) -> State:
        """Solve again at the same weights, ten times as exactly, and start the averages anew."""
        memory: _Memory = state.memory
        tol = memory.inner_tol / 10
        if tol < _INNER_FLOOR:
            state.stuck = True
            return state
        point = memory.evaluator.evaluate(state.point.d, tol)
        quad = memory.evaluator.quad(point)
        gradient = problem.regularizer.gradient(point.d) - 0.5 * quad
        new = _Memory(
            memory.evaluator, gradient, memory.spectral, point.value, 1.0, memory.eta, tol
        )
        return State(point, quad, state.inner_iterations + point.n_steps, False, new)


def _first_step(d: Array, gradient: Array) -> float:
    """A first spectral step that moves the weights by about their own size."""
    span = float(np.ptp(gradient)) or float(np.abs(gradient).max()) or 1.0
    return float(np.clip(d.max() / span, *_SPECTRAL_RANGE))


def _adapt_eta(eta: float, decrease: float, predicted: float) -> float:
    """Look further back while the quadratic model is good, less far when it is bad."""
    if predicted <= 0:
        return eta
    ratio = decrease / predicted
    if 0.5 <= ratio <= 1.5:
        return min(1.0, eta + 0.025)
    return max(0.1, eta - 0.025)
