"""Spectral projected gradient over the kernel weights (SPG-GMKL, Jain et al. 2012, Algorithm 1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from kernelweave.arrays import Array
from kernelweave.problem import Problem
from kernelweave.solvers.base import Solver, State, flag, number
from kernelweave.solvers.certificate import projected_gradient, smooth_gradient
from kernelweave.solvers.inner import INNER_FLOOR, Evaluator, Point, drop_roundoff
from kernelweave.solvers.kept import ABOVE_ZERO, Kept

# The usual part of the slope that a step has to bring (Nocedal and Wright 2006, section 3.1).
_SUFFICIENT = 1e-4
# The root of what float64 resolves: a shorter part of a step changes T by rounding alone.
_SMALLEST_STEP = 1e-8
# The paper clips steps to at most 10, and starts at 1, for objectives of about a hundred and
# weights of about one; a step has the unit of a squared weight over an objective.
_FIRST, _LONGEST = 100.0, 1000.0
# Keeps steps above zero, and cuts none that a fit could want.
_SHORTEST = 1e-30
# In products, scaled steps in a row before the first plain ones; every pair of turns is twice as
# long as the one before. Scaled steps alone do not end where thousands of small weights have to go,
# plain ones alone not where widths differ. As far as neither kind undoes what the other has done,
# turns take at most three times the steps of the better kind, whatever their number, and one first
# turn. Its length matters little: 1, 4, 8, 16 and 32 steps take 1.3, 1.1, 1.2, 1.3 and 1.1 times
# the single-kernel solves of 64 in the geometric mean over five sets under two penalties
# (benchmarks/papers/tuned_constants.py --constants spg._FIRST_TURN).
_FIRST_TURN = 64
# Tolerance of the single-kernel solves when it is not tuned (the paper's plain descent).
_UNTUNED = 1e-6


@dataclass(frozen=True)
class _Memory:
    gradient: Array  # of the smooth part of T
    step: float  # lambda: the spectral step length
    reference: float  # Cbar: running average of past objectives
    mass: float  # Q: how many of them it stands for
    eta: float  # how slowly the past is forgotten
    inner_tol: float
    taken: float  # steps so far


@dataclass(frozen=True)
class SPG(Solver):
    r"""Spectral projected gradient descent on T(d), for every combination and regularizer.

    Minimises :math:`T(d) = r(d) + \max_\alpha -\sum \ell^*(-\alpha) - \frac12 \alpha'K(d)\alpha`
    over the weights the regularizer allows, with gradient
    :math:`\partial r/\partial d_k - \frac12 \alpha' (\partial K/\partial d_k) \alpha` (eq. 4).
    Three components make it fast, and each can be switched off to measure what it is worth; with
    all three off it is projected gradient descent with an Armijo search (:class:`PGD`).

    Parameters
    ----------
    spectral : bool, default=True
        Choose the step length by the last change of the gradient (Barzilai and Borwein). Off: every
        search starts from the same step length.
    nonmonotone : bool, default=True
        Compare with a running average of past objectives, so that a good long step is not cut for
        a small rise. Off: every step must lower the objective.
    tune_precision : bool, default=True
        Solve the single-kernel problems roughly at first. Their tolerance falls tenfold whenever
        more than a third of the gap, or the whole decrease in sight, is owed to a rough alpha
        (where the paper goes by fixed levels of the gap), and never rises. Off: 1e-6 throughout,
        unless even that hides the decrease.
    scaled : bool, default=True
        Take larger spectral steps in larger weights, if all d >= 0 are allowed. Not in the paper.
        In combinations that are not sums, steps grow with the square of a weight, as descent in
        log(d) would have it: weights of a product are inverse squared widths and differ by orders
        of magnitude. In sums under l1 they grow with the weight: the curvature of T in d_k is at
        most q_k / d_k, and all q_k of weights above zero are equal in the end. In products such
        steps and those of equal length take turns, ever longer ones: the latter rid a fit of
        thousands of small weights sooner.
    inner_tol : float, default=1e-2
        Tolerance of the first single-kernel solve, if it is tuned.

    Notes
    -----
    A regularizer that is not smooth (`BlockNorm`, `SquaredLp` for 1 < p < 2) is taken by its
    proximal map in place of gradient and projection, and by its value in the line search.

    The paper's longest step is 10. In sums of kernels it is 10 times the square of the largest
    weight, if that is above what the problem lets expect: under a small price weights can be in the
    thousands.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from kernelweave import MKLClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = MKLClassifier(solver=SPG()).fit(X, y)
    >>> bool(model.gap_ <= 1e-3)
    True
    """

    spectral: bool = field(default=True, metadata=flag())
    nonmonotone: bool = field(default=True, metadata=flag())
    tune_precision: bool = field(default=True, metadata=flag())
    scaled: bool = field(default=True, metadata=flag())
    inner_tol: float = field(default=1e-2, metadata=number(above=0, most=1))

    name = "spg"
    kept: ClassVar[Mapping[str, Kept]] = {
        "step": Kept(low=ABOVE_ZERO),
        "reference": Kept(),
        "mass": Kept(low=0.0),
        "eta": Kept(low=0.0),
        "inner_tol": Kept(low=ABOVE_ZERO),
        "taken": Kept(low=0.0),
    }
    hands_over = True

    def init(self, problem: Problem, start: Point | None) -> State:
        """Evaluate the starting weights."""
        evaluator = Evaluator(problem, start)
        d = problem.start() if start is None else start.d
        known = {} if start is None else start.extra
        tol = self.inner_tol if self.tune_precision else _UNTUNED
        tol = float(known.get("inner_tol", tol))
        point = evaluator.evaluate(problem.regularizer.project(d), tol)
        quad = evaluator.quad(point)
        gradient = smooth_gradient(problem, point.d, quad)
        bounded = self.spectral and not problem.regularizer.orthant
        step = _FIRST * _step_unit(problem, point)
        if bounded:
            step = min(_first_step(point.d, gradient), _LONGEST / _FIRST * step)
        memory = _Memory(gradient, step, point.value, 1.0, 0.85, tol, 0.0)
        if known:
            numbers: dict[str, Any] = {name: float(known[name]) for name in self.kept}
            memory = replace(memory, **numbers)
        return State(point, quad, evaluator, False, memory)

    def step(self, problem: Problem, state: State, gap: float, inner_gap: float) -> State:
        """One line search along the projected direction, or a sharper solve where we stand."""
        memory: _Memory = state.memory
        if inner_gap > 0.3 * gap:
            # Moving the weights cannot close this part of the gap: only exactness can.
            return self._sharpen(problem, state)
        point = state.point
        steps = memory.step * self._metric(problem, point.d, memory.taken)
        direction = projected_gradient(problem, point.d, state.quad, steps)
        slope = float(memory.gradient @ direction)
        if not problem.regularizer.smooth:
            value = problem.regularizer.value
            slope += float(value(point.d) - value(point.d - direction))
        scale = 1.0
        noise = inner_gap * problem.unit(point.value)
        while scale * slope > noise and scale >= _SMALLEST_STEP:
            d = drop_roundoff(point.d - scale * direction)
            trial = state.evaluator.evaluate(d, memory.inner_tol)
            if trial.value <= memory.reference - _SUFFICIENT * scale * slope:
                predicted = scale * slope - 0.5 * scale**2 * (direction @ (direction / steps))
                return self._accept(problem, state, trial, float(predicted))
            scale *= 0.5
        # What is left to gain cannot be told from the noise of a rough alpha.
        return self._sharpen(problem, state)

    def remember(self, state: State) -> dict[str, Array]:
        """Return step length, running average, how exact alpha is, and the number of steps."""
        return {name: np.asarray(getattr(state.memory, name)) for name in self.kept}

    def _accept(self, problem: Problem, state: State, trial: Point, predicted: float) -> State:
        memory: _Memory = state.memory
        quad = state.evaluator.quad(trial)
        gradient = smooth_gradient(problem, trial.d, quad)
        step, reference, mass, eta = memory.step, trial.value, 1.0, memory.eta
        taken = memory.taken + 1.0
        if self.spectral:
            moved = trial.d - state.point.d
            change = float(moved @ (gradient - memory.gradient))
            unit = _step_unit(problem, trial)
            low, high = _SHORTEST * unit, _LONGEST * unit
            size = float(moved @ (moved / self._metric(problem, trial.d, taken)))
            step = high if change <= 0 else float(np.clip(size / change, low, high))
        if self.nonmonotone:
            eta = _adapt_eta(memory.eta, state.point.value - trial.value, predicted)
            mass = eta * memory.mass + 1.0
            reference = (eta * memory.mass * memory.reference + trial.value) / mass
        new = _Memory(gradient, step, reference, mass, eta, memory.inner_tol, taken)
        return State(trial, quad, state.evaluator, False, new)

    def _metric(self, problem: Problem, d: Array, taken: float) -> Array | float:
        """Factor on the step of every weight: a power of its part of the largest, or one."""
        regularizer, linear = problem.regularizer, problem.combination.linear
        scaled = self.scaled and self.spectral and (regularizer.polyhedral or not linear)
        if not scaled or not regularizer.orthant or (not linear and _plain_turn(int(taken))):
            return 1.0
        size = np.maximum(d, d.mean())
        top = float(size.max())
        return (size / top) ** (1 if linear else 2) if top > 0 else 1.0

    def _sharpen(self, problem: Problem, state: State) -> State:
        """Solve again at the same weights, ten times as exactly, and start the averages anew."""
        memory: _Memory = state.memory
        tol = memory.inner_tol / 10
        if tol < INNER_FLOOR:
            return replace(state, stuck=True)
        point = state.evaluator.evaluate(state.point.d, tol)
        quad = state.evaluator.quad(point)
        gradient = smooth_gradient(problem, point.d, quad)
        new = replace(memory, gradient=gradient, reference=point.value, mass=1.0, inner_tol=tol)
        return State(point, quad, state.evaluator, False, new)


@dataclass(frozen=True)
class PGD(SPG):
    """Projected gradient descent with an Armijo search: the baseline of the SPG-GMKL paper.

    It is :class:`SPG` with all three components off.

    Examples
    --------
    >>> PGD() == SPG(spectral=False, nonmonotone=False, tune_precision=False)
    False
    >>> PGD().spectral, PGD().nonmonotone, PGD().tune_precision
    (False, False, False)
    """

    spectral: bool = field(default=False, metadata=flag())
    nonmonotone: bool = field(default=False, metadata=flag())
    tune_precision: bool = field(default=False, metadata=flag())

    name = "pgd"
    hands_over = False  # It is a baseline.


def _plain_turn(taken: int) -> bool:
    """Whether the next step of a product, after so many, is one of equal length in all weights.

    Turns have 64, 64, 128, 128, 256, ... steps; the first of each pair is scaled, the second plain.
    """
    pairs = taken // (2 * _FIRST_TURN) + 1
    length = _FIRST_TURN * 2 ** (pairs.bit_length() - 1)
    return taken - 2 * (length - _FIRST_TURN) >= length


def _step_unit(problem: Problem, point: Point) -> float:
    """Unit of step lengths: a squared weight over an objective.

    In a product the weights of normalised distances are compared with one.
    """
    linear = problem.combination.linear
    weight = max(problem.weight_unit, float(point.d.max())) if linear else 1.0
    return weight**2 / problem.unit(point.value)


def _first_step(d: Array, gradient: Array) -> float:
    """A first step length that moves weights of bounded size by about that size."""
    span = float(np.ptp(gradient)) or float(np.abs(gradient).max())
    return float(d.max() / span) if span > 0 else np.inf


def _adapt_eta(eta: float, decrease: float, predicted: float) -> float:
    """Look further back while the quadratic model is good, less far when it is bad."""
    if predicted <= 0:
        return eta
    ratio = decrease / predicted
    if 0.5 <= ratio <= 1.5:
        return min(1.0, eta + 0.025)
    return max(0.1, eta - 0.025)
