"""SpicyMKL: proximal minimisation over the components, Newton's method on the smoothed dual."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from kernelweave.arrays import Array, Index
from kernelweave.errors import InvalidInputError
from kernelweave.problem import Problem
from kernelweave.regularizers.base import Regularizer
from kernelweave.solvers.base import Solver, State, integer, number, require_linear
from kernelweave.solvers.certificate import best_intercepts, certify, feasible_alpha
from kernelweave.solvers.inner import Evaluator, Point, drop_roundoff, spread_over, working_kernels
from kernelweave.solvers.kept import ABOVE_ZERO, Kept
from kernelweave.solvers.smoothed_dual import Components, SmoothedDual, SmoothedLoss
from kernelweave.validation import LARGEST

# Newton steps that an inner problem shall take. On a third of breast cancer (403 kernels, gap 1e-5;
# two losses, two regularizers and two C) aims of 1, 3 and 15 take 169, 157 and 217 Newton steps in
# 68, 49 and 37 outer ones, each of which is a pass over all kernels.
_AIM = 3
# The most that it may take. None of those fits takes more than 8 in one problem: this ends what
# does not converge.
_MOST = 40
# The duality gap of an inner problem, relative to that of the problem: a step gains no more than
# two orders of magnitude, as the penalty does, and loses none of them by this.
_INNER_SHARE = 1e-3
# Accuracy of the single-kernel problem at the first weights, which are rougher than that.
_FIRST_SOLVE = 1e-3
# Outer steps that do not halve the gap after which rounding is all that is left: the penalty has
# changed by half the digits of a number, those to which a gap can be told.
_PATIENCE = 8


@dataclass(frozen=True)
class _Memory:
    rho: Array
    dual: SmoothedDual  # of the next inner problem
    best_gap: float = np.inf
    waited: int = 0


def _with_penalties(dual: SmoothedDual, penalty: float, slack: float) -> SmoothedDual:
    """Take other penalties, no further than float64 can compute with their squares."""
    penalty, slack = (float(np.clip(p, 1.0 / LARGEST, LARGEST)) for p in (penalty, slack))
    # In units of decision values for each unit of alpha, as a weight times a kernel is.
    level = penalty * (dual.problem.kernel_size or 1.0)
    term = replace(dual.term, penalty=slack)
    return replace(dual, term=term, penalty=penalty, intercept_penalty=level)


@dataclass(frozen=True)
class Spicy(Solver):
    r"""SpicyMKL (Suzuki and Tomioka): proximal steps on the components, for thousands of kernels.

    An outer step (Table 1 of the paper) minimises the smoothed dual :math:`\varphi(\rho)` and moves
    every component to the prox of :math:`\alpha_k + \gamma \rho`, which leaves most of them at
    zero. Only kernels in use enter gradient and Hessian of the inner Newton method
    (:class:`~kernelweave.solvers.smoothed_dual.SmoothedDual`).

    The penalty :math:`\gamma` has the unit of a weight. It starts at `first_penalty` times the
    largest weight (from a good warm start: up to `growth` times that) and grows by `growth` after
    an inner problem of 3 Newton steps, by the power 3 / steps of `growth`, at most its square,
    after others. So the gap falls faster than linearly in the number of outer steps. After an inner
    problem that is not solved in 40 steps, or for rounding, the penalty falls by `growth`. The
    penalties of the intercept and of the slack variables change alike.

    With very many kernels an inner problem looks only at the kernels in use and those next in line.
    Then one pass over all m certifies the step, and names the kernels for the next one.

    Parameters
    ----------
    first_penalty : float, default=30.0
        First gamma in units of a typical weight.
    growth : float, default=10.0
        Factor by which gamma grows after an easy inner problem.
    working_set : int, default=64
        Kernels next in line that an inner problem looks at, beside those in use.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from kernelweave import MKLClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = MKLClassifier("simplemkl", loss="logistic", solver="spicy", tol=1e-6)
    >>> bool(model.fit(X[::4], y[::4]).gap_ <= 1e-6)
    True
    """

    first_penalty: float = field(default=30.0, metadata=number(above=0))
    growth: float = field(default=10.0, metadata=number(least=1))
    working_set: int = field(default=64, metadata=integer(1))

    name = "spicy"
    kept: ClassVar[Mapping[str, Kept]] = {
        "used": Kept(("used",), kernels=True),
        "fitted": Kept(("used", "T", "n")),
        "norms": Kept(("used",), low=0.0),
        "rho": Kept(("T", "n")),
        "intercept": Kept(("T",)),
        "penalty": Kept(low=ABOVE_ZERO),
        "kernels": Kept(("kernels",), kernels=True),
        # Missing in checkpoints of earlier versions for some losses.
        "slack.centre": Kept(("T", "n"), needed=False),
        "slack.penalty": Kept(low=ABOVE_ZERO, needed=False),
    }
    hands_over = True

    def prepare(self, problem: Problem) -> Problem:
        """Refuse what has no prox, or no dual."""
        require_linear(self.name, problem)
        if not problem.regularizer.proximal:
            names = [name for name, cls in Regularizer.registry.items() if cls.proximal]
            raise InvalidInputError(
                f"solver 'spicy' takes the regularizers {', '.join(map(repr, sorted(names)))}; got "
                f"{problem.regularizer!r}. Use solver='silp', 'spg' or 'auto'."
            )
        return problem

    def init(self, problem: Problem, start: Point | None) -> State:
        """Begin at `start`, or at the solution for equal weights on the most aligned kernels."""
        if start is not None and "slack.centre" in start.extra:
            return self._from_memory(problem, start)
        evaluator = Evaluator(problem)
        point = self._first_point(problem, start)
        d = drop_roundoff(problem.regularizer.project(point.d))
        alpha = feasible_alpha(problem, point.alpha)
        fitted, quad = evaluator.products(d, alpha)
        used = np.flatnonzero(d * quad)
        parts = d[used, None, None] * problem.bank.apply(alpha, used)
        components = Components(used, parts, d[used] * np.sqrt(quad[used]))
        gap = certify(problem, d, alpha, point.intercept, fitted, quad).gap
        # What the q_k are wrong by moves the components by gamma times as much: with a large gamma
        # a rough start would lose all kernels but one. A cold fit has come to this gap with a
        # penalty that grew by `growth` whenever the gap fell by as much.
        first = self.first_penalty * np.clip(1.0 / (self.growth * gap or 1e-300), 1.0, self.growth)
        # In units of decision values for each unit of alpha.
        size = float(np.mean(np.abs(alpha))) or float(np.mean(problem.C))
        slack = first * problem.decision_unit / size
        kernels = self._next_kernels(problem, components, quad, np.inf)
        term = SmoothedLoss(problem, fitted + point.intercept[:, None], slack)
        dual = SmoothedDual(problem, term, kernels, components, point.intercept.copy(), 0.0, 0.0)
        dual = _with_penalties(dual, first * float(d.max() or problem.start().max()), slack)
        # The alpha of another C may be far beyond the norm constraint.
        memory = _Memory(problem.regularizer.dual_scale(quad) * alpha, dual)
        return _state(evaluator, Point(d, alpha, fitted, point.intercept, np.inf), quad, memory)

    def _first_point(self, problem: Problem, start: Point | None) -> Point:
        """Solve the single-kernel problem at the first weights, unless alpha is known with them.

        Under losses with corners in any case: that tells which samples are in them.
        """
        if start is None:
            flat = np.zeros_like(problem.y)
            intercept = best_intercepts(problem, flat, flat[:, 0])
            slopes = problem.loss.gradient(problem.y, flat + intercept[:, None], problem.C)
            alpha = feasible_alpha(problem, -slopes)
            quad = problem.bank.quad(alpha)
            if problem.regularizer.entry_scale(quad) >= 1.0:
                # The best constant needs no kernel.
                return Point.start(np.zeros(problem.m), alpha, intercept)
            d = problem.start()
            if problem.regularizer.selective or not problem.loss.smooth:
                # Those that are likely to be in use, and few to add up for a solve.
                best = working_kernels(np.zeros(problem.m), -quad, self.working_set)
                d = spread_over(best, d)
        else:
            d = drop_roundoff(problem.regularizer.project(start.d))
            if (problem.loss.smooth and np.any(start.alpha)) or not np.any(d):
                return start
        # (The steps of this one are not Newton's, and not counted.)
        return Evaluator(problem, start).evaluate(d, _FIRST_SOLVE)

    def _from_memory(self, problem: Problem, start: Point) -> State:
        """Go on with the same problem."""
        known, evaluator = start.extra, Evaluator(problem)
        alpha = feasible_alpha(problem, start.alpha)
        components = Components(known["used"], known["fitted"], known["norms"])
        term = SmoothedLoss(problem, known["slack.centre"], float(known["slack.penalty"]))
        kernels, intercept = known["kernels"], known["intercept"]
        dual = SmoothedDual(problem, term, kernels, components, intercept, 0.0, 0.0)
        dual = _with_penalties(dual, float(known["penalty"]), term.penalty)
        fitted, quad = evaluator.products(start.d, alpha)
        point = replace(start, alpha=alpha, fitted=fitted)
        return _state(evaluator, point, quad, _Memory(known["rho"], dual))

    def remember(self, state: State) -> dict[str, Array]:
        """Return the components, rho and the penalties: all that the next outer step takes."""
        dual: SmoothedDual = state.memory.dual
        return {
            "used": dual.components.kernels,
            "fitted": dual.components.fitted,
            "norms": dual.components.norms,
            "rho": state.memory.rho,
            "intercept": dual.intercept,
            "penalty": np.asarray(dual.penalty),
            "kernels": dual.kernels,
            "slack.centre": dual.term.centre,
            "slack.penalty": np.asarray(dual.term.penalty),
        }

    def step(self, problem: Problem, state: State, gap: float, inner_gap: float) -> State:
        """One outer step: solve the inner problem, look at all kernels, move the components."""
        memory: _Memory = state.memory
        rho, dual, evaluator = memory.rho, memory.dual, state.evaluator
        # A rough alpha may have any value, but the optimum is no larger than a constant's.
        size = min(abs(state.point.value), problem.constant_value)
        missing = gap * problem.unit(size)
        here, steps, remaining = dual.minimise(rho, _INNER_SHARE * missing, _MOST)
        evaluator.n_solves += 1
        evaluator.n_steps += steps
        components, norms = here.components(), np.zeros(problem.m)
        norms[components.kernels] = components.norms
        d = problem.regularizer.weights_from_norms(norms)
        alpha = _feasible(problem, dual.term.alpha(here.rho, here.z))
        fitted, quad = evaluator.products(d, alpha)
        waited = 0 if gap < 0.5 * memory.best_gap else memory.waited + 1
        if remaining <= _INNER_SHARE * missing:
            growth = self.growth ** min(_AIM / max(steps, 1), 2.0)
        else:
            growth = 1.0 / self.growth
        # A step that is no more exact than the weights before would lead nowhere.
        if remaining <= missing:
            size = float(np.sum(alpha * fitted))
            change = np.sqrt(2.0 * missing / size) if size > 0 else np.inf
            rho = here.rho
            dual = replace(
                dual,
                term=replace(dual.term, centre=here.z),
                kernels=self._next_kernels(problem, components, quad, change),
                components=components,
                intercept=here.level,
            )
        dual = _with_penalties(dual, growth * dual.penalty, growth * dual.term.penalty)
        memory = _Memory(rho, dual, min(gap, memory.best_gap), waited)
        point = Point(d, alpha, fitted, here.level, np.inf)
        return _state(evaluator, point, quad, memory, stuck=waited >= _PATIENCE)

    def _next_kernels(
        self, problem: Problem, components: Components, quad: Array, change: float
    ) -> Index:
        """Kernels to look at: those in use, and those next in line.

        Roots of q change by about the part `change` of what they are: alpha is that far from the
        best one, in the norm of the kernels in use, because the dual is strongly concave in it.
        """
        if not problem.regularizer.selective:
            return np.arange(problem.m)
        used = np.zeros(problem.m)
        used[components.kernels] = 1.0
        chosen = working_kernels(used, -quad, self.working_set)
        if problem.m > self.working_set and len(components.kernels) and change < 1.0:
            floor = (1.0 - change) ** 2 * float(quad[components.kernels].min())
            chosen = chosen[(used[chosen] > 0) | (quad[chosen] >= floor)]
        return chosen


def _state(
    evaluator: Evaluator, point: Point, quad: Array, memory: _Memory, stuck: bool = False
) -> State:
    value = evaluator.problem.inner_value(point.d, point.alpha, point.fitted)
    return State(replace(point, value=value), quad, evaluator, stuck, memory)


def _feasible(problem: Problem, rho: Array) -> Array:
    """Move rho into its box and to the right sum, at the cost of those inside the box alone.

    So samples that are no support vectors stay at zero.
    """
    low, high = problem.loss.domain(problem.y, problem.C)
    alpha = np.clip(rho, low, high)
    inside = (alpha > low) & (alpha < high)
    excess = alpha.sum(axis=1) - problem.loss.alpha_sum
    share = excess / np.maximum(inside.sum(axis=1), 1)
    return feasible_alpha(problem, np.where(inside, alpha - share[:, None], alpha))
