"""SpicyMKL: proximal minimisation over the components, Newton's method on the smoothed dual."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from kernelweave.errors import InvalidInputError
from kernelweave.problem import Array, Problem
from kernelweave.regularizers.base import Regularizer
from kernelweave.solvers.base import Solver, State, require_linear
from kernelweave.solvers.certificate import certify, dual_value
from kernelweave.solvers.conjugate_terms import (
    ConjugateTerm,
    DirectTerm,
    SlackTerm,
    conjugate_term,
    penalty_in_range,
)
from kernelweave.solvers.feasible import feasible_alpha
from kernelweave.solvers.inner import Evaluator, Point, without_dust
from kernelweave.solvers.kept import ABOVE_ZERO, Kept
from kernelweave.solvers.settings import integer, number
from kernelweave.solvers.smoothed_dual import Components, Minimum, SmoothedDual
from kernelweave.solvers.working_set import aligned_kernels, spread_over

__all__ = ["Spicy"]

# Newton steps after which an inner problem counts as easy, hard, or too hard for its penalty.
_VERY_EASY, _EASY, _HARD, _MOST = 2, 8, 16, 40
_SLOW_GROWTH = 2.0
# The duality gap of an inner problem, relative to that of the problem.
_INNER_SHARE = 1e-3
# Kernels among which the first weights are thought to be spread.
_SPREAD = 10
_FIRST_SOLVE = 1e-3
# Relative gap below which a start lets the first penalty be larger.
_GOOD_START = 0.1
# Part of a norm beyond the threshold that is worth another step at the same penalty.
_NOTICED = 0.3
# Roots of q may change by this times the root of the relative gap.
_CHANGE = 3.0
# Outer steps without a better gap after which rounding is all that is left, at a small gap and a
# large one. They count from where the penalty is this large beside the weights.
_PATIENCE, _LONG_PATIENCE, _SMALL_GAP = 4, 15, 1e-4
_SETTLED = 1e4
# Inner problems that may fail.
_MOST_FAILURES = 20


class Passes:
    """Counts the work, and takes quadratic forms of the kernels that may matter."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.n_solves = 0
        self.n_steps = 0
        self._kept: Array | None = None

    def keep_only(self, kernels: Array) -> None:
        """Leave the other kernels out: their weight is zero at every optimum."""
        self._kept = kernels

    def evaluate(self, d: Array, alpha: Array) -> tuple[Array, Array]:
        """(K(d) alpha, q(alpha)); q is zero for kernels left out."""
        bank = self.problem.bank
        if self._kept is None:
            return self.problem.combination.evaluate(bank, d, alpha)
        kept = np.union1d(self._kept, np.flatnonzero(d))
        fitted, quad = np.zeros_like(alpha), np.zeros(bank.m)
        if len(kept):
            part = bank.select(kept)
            fitted, quad[kept] = self.problem.combination.evaluate(part, d[kept], alpha)
        return fitted, quad


@dataclass
class _Memory:
    rho: Array
    intercept: Array
    components: Components
    term: ConjugateTerm
    penalty: float
    kernels: NDArray[np.intp]  # to look at in the next inner problem
    best_gap: float = np.inf
    waited: int = 0
    failed: int = 0

    def __post_init__(self) -> None:
        self.penalty = penalty_in_range(self.penalty)


@dataclass(frozen=True)
class Spicy(Solver):
    r"""SpicyMKL (Suzuki and Tomioka): proximal steps on the components, for thousands of kernels.

    An outer step (Table 1 of the paper) minimises the smoothed dual :math:`\varphi(\rho)` and moves
    every component to the prox of :math:`\alpha_k + \gamma \rho`, which leaves most of them at
    zero. Only kernels in use enter gradient and Hessian of the inner Newton method
    (:class:`~kernelweave.solvers.smoothed_dual.SmoothedDual`).

    The penalty :math:`\gamma` has the unit of a weight. It starts at `first_penalty` times a
    typical weight (from a good warm start: up to ten times that) and grows by `growth` after an
    inner problem that took at most 8 Newton steps, by 2 up to 16 steps, and not at all beyond, nor
    while kernels that should be in use were not looked at. After at most 2 steps, or at most 8 that
    did not halve the gap, it grows by the square of `growth`. An inner problem that is not solved
    after 40 steps is tried again: with slack variables if it had none, else with a smaller penalty.
    So the gap falls faster than linearly in the number of outer steps. The penalties of the
    intercept and of the slack variables grow alike.

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
        "best_gap": Kept(low=0.0, infinite=True),
        "waited": Kept(low=0.0),
        "failed": Kept(low=0.0),
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
        """Begin at `start`, or at the best constant, where alpha is minus the loss gradient."""
        passes = Passes(problem)
        if start is not None and start.extra:
            return self._from_memory(problem, passes, start)
        better = self._better_start(problem, start)
        if better is None or not np.any(better.alpha) or not np.any(better.d):
            return self._from_nothing(problem, passes)
        return self._from_point(problem, passes, better)

    def _better_start(self, problem: Problem, start: Point | None) -> Point | None:
        """Solve the single-kernel problem at the first weights, where that is worth it.

        So it is if weights are all that is known, as from a part of the samples. And it is where
        the loss has corners: that tells which samples are in them.
        """
        if start is None and problem.loss.steep:
            return None
        if start is None:
            best = aligned_kernels(problem, self.working_set)
            d = spread_over(best, problem.start())
        else:
            d = without_dust(problem.regularizer.project(start.d))
        if (start is not None and problem.loss.steep and np.any(start.alpha)) or not np.any(d):
            return start
        return Evaluator(problem, start).evaluate(d, _FIRST_SOLVE)

    def _from_nothing(self, problem: Problem, passes: Passes) -> State:
        y, C, loss = problem.y, problem.C, problem.loss
        flat = np.zeros_like(y)
        intercept = np.array(
            [loss.best_intercept(y[t], flat[t], C[t]) for t in range(problem.n_tasks)]
        )
        level = flat + intercept[:, None]
        alpha = feasible_alpha(problem, -loss.gradient(y, level, C))
        quad = problem.bank.quad(alpha)
        scale, bound = _best_scale(problem, alpha, quad)
        alpha, quad = scale * alpha, scale**2 * quad
        objective = float(np.sum(loss.value(y, level, C)) + loss.alpha_sum * np.sum(intercept))
        aligned = np.argsort(-quad, kind="stable")[:_SPREAD]
        typical = problem.typical_weights(aligned, min(0.5 * objective, 2.0 * bound))
        d, fitted = np.zeros(problem.m), flat
        if problem.regularizer.bounded:
            # Some kernel must have weight.
            top = np.array([np.argmax(quad)])
            norms = np.zeros(problem.m)
            norms[top] = 1.0
            d = problem.regularizer.weights_from_norms(norms)
            fitted = d[top[0]] * problem.bank.matvec(alpha, top)[0]
        term = conjugate_term(problem, level, alpha)
        memory = _Memory(
            term.inside(alpha),
            intercept,
            Components.none(problem),
            term,
            self.first_penalty * (float(typical.max()) or 1.0),
            self._next_kernels(problem, Components.none(problem), quad, 1.0),
        )
        return self._state(problem, passes, d, alpha, intercept, memory, (fitted, quad))

    def _from_point(self, problem: Problem, passes: Passes, start: Point) -> State:
        d = without_dust(problem.regularizer.project(start.d))
        alpha = feasible_alpha(problem, start.alpha)
        fitted, quad = passes.evaluate(d, alpha)
        used = np.flatnonzero(d * quad)
        parts = d[used, None, None] * problem.bank.matvec(alpha, used)
        components = Components(used, parts, d[used] * np.sqrt(quad[used]))
        # The alpha of another C may be far beyond the norm constraint.
        scale, _ = _best_scale(problem, alpha, quad)
        term = conjugate_term(problem, fitted + start.intercept[:, None], alpha)
        gap = certify(problem, d, alpha, start.intercept, fitted, quad).gap
        memory = _Memory(
            term.inside(scale * alpha),
            start.intercept.copy(),
            components,
            term,
            self.first_penalty * self._trust(gap) * float(d.max()),
            self._next_kernels(problem, components, quad, 1.0),
        )
        return self._state(problem, passes, d, alpha, start.intercept, memory, (fitted, quad))

    def _trust(self, gap: float) -> float:
        """Factor of the first penalty at weights with this gap.

        What the q_k there are wrong by moves the components by gamma times as much: with a large
        gamma a rough start would lose all kernels but one.
        """
        return float(np.clip(_GOOD_START / max(gap, 1e-300), 1.0, self.growth))

    def _from_memory(self, problem: Problem, passes: Passes, start: Point) -> State:
        """Go on with the same problem."""
        known = start.extra
        alpha = feasible_alpha(problem, start.alpha)
        term: ConjugateTerm = DirectTerm(problem)
        if "slack.centre" in known:
            term = SlackTerm(problem, known["slack.centre"], float(known["slack.penalty"]))
        components = Components(known["used"], known["fitted"], known["norms"])
        memory = _Memory(
            known["rho"],
            known["intercept"],
            components,
            term,
            float(known["penalty"]),
            known["kernels"],
            float(known["best_gap"]),
            int(known["waited"]),
            int(known["failed"]),
        )
        both = passes.evaluate(start.d, alpha)
        return self._state(problem, passes, start.d, alpha, start.intercept, memory, both)

    def remember(self, state: State) -> dict[str, Array]:
        """Return the components, rho and the penalties: all that the next outer step takes."""
        memory: _Memory = state.memory
        known: dict[str, Any] = {
            "used": memory.components.kernels,
            "fitted": memory.components.fitted,
            "norms": memory.components.norms,
        }
        names = ("rho", "intercept", "penalty", "kernels", "best_gap", "waited", "failed")
        known |= {name: getattr(memory, name) for name in names}
        if isinstance(memory.term, SlackTerm):
            known |= {"slack.centre": memory.term.centre, "slack.penalty": memory.term.penalty}
        return {name: np.asarray(value) for name, value in known.items()}

    def step(self, problem: Problem, state: State, gap: float, inner_gap: float) -> State:
        """One outer step: solve the inner problem, look at all kernels, move the components."""
        memory: _Memory = state.memory
        passes: Passes = state.evaluator
        # A rough alpha may have any value, but the optimum is no larger than a constant's.
        size = min(abs(state.point.value), problem.constant_value)
        accuracy = _INNER_SHARE * gap * problem.unit(size)
        found = self._inner(problem, memory, accuracy)
        passes.n_solves += 1
        passes.n_steps += found.steps
        norms = np.zeros(problem.m)
        norms[found.components.kernels] = found.components.norms
        d = problem.regularizer.weights_from_norms(norms)
        alpha = _feasible(problem, memory.term.alpha(found.rho, found.decision))
        fitted, quad = passes.evaluate(d, alpha)
        memory = self._moved(problem, memory, found, d, quad, gap)
        intercept = found.intercept
        new = self._state(problem, passes, d, alpha, intercept, memory, (fitted, quad))
        patience = _PATIENCE if memory.best_gap < _SMALL_GAP else _LONG_PATIENCE
        new.stuck = memory.waited >= patience or memory.failed >= _MOST_FAILURES
        return new

    def _inner(self, problem: Problem, memory: _Memory, accuracy: float) -> Minimum:
        dual = SmoothedDual(
            problem,
            memory.term,
            memory.kernels,
            memory.components,
            memory.intercept,
            memory.penalty,
            # In units of decision values for each unit of alpha, as a weight times a kernel is.
            memory.penalty * (problem.kernel_size or 1.0),
        )
        return dual.minimise(memory.rho, accuracy, _MOST)

    def _moved(
        self, problem: Problem, memory: _Memory, found: Minimum, d: Array, quad: Array, gap: float
    ) -> _Memory:
        """Take the outer step if the inner problem was solved, and choose the next penalty."""
        better = gap < 0.5 * memory.best_gap
        new = replace(memory, best_gap=min(gap, memory.best_gap))
        # While the penalty is on its way up a gap that stays says little.
        settled = not found.converged or memory.penalty >= _SETTLED * float(np.max(d))
        new.waited = 0 if better else memory.waited + settled
        if not found.converged and (found.steps >= _MOST or gap > _SMALL_GAP):
            new.failed = memory.failed + 1
            if isinstance(memory.term, SlackTerm):
                new.penalty = penalty_in_range(memory.penalty / self.growth)
            else:
                # At the ends of its domain alpha has too few digits to tell decision values.
                new.term = SlackTerm.at(problem, memory.term.decision(memory.rho), memory.rho)
            return new
        new.rho = found.rho
        growth = self.growth if found.steps <= _EASY else _SLOW_GROWTH
        if (
            found.steps > _HARD
            or not found.converged
            or self._missing(problem, memory, found, quad)
        ):
            growth = 1.0
        elif found.steps <= (_VERY_EASY if better else _EASY):
            growth = self.growth**2
        new.penalty = penalty_in_range(growth * memory.penalty)
        new.intercept = found.intercept
        new.components = found.components
        new.term = memory.term.after(found.decision, growth)
        new.kernels = self._next_kernels(problem, found.components, quad, gap)
        return new

    def _missing(self, problem: Problem, memory: _Memory, found: Minimum, quad: Array) -> bool:
        """Whether kernels that were not looked at would be active, and noticeably so."""
        if len(memory.kernels) == problem.m:
            return False
        # A kernel outside has no component yet: its norm is gamma sqrt(q). The threshold may depend
        # on all norms together (simplex), so those in use are there too.
        outside = quad.copy()
        outside[memory.kernels] = 0.0
        norm = memory.penalty * float(np.sqrt(outside.max()))
        norms = np.append(found.norms_before, norm)
        return problem.regularizer.norm_prox(norms, memory.penalty).norms[-1] > _NOTICED * norm

    def _next_kernels(
        self, problem: Problem, components: Components, quad: Array, gap: float
    ) -> NDArray[np.intp]:
        """Kernels to look at: those in use, and those next in line while q may still change."""
        if problem.m <= self.working_set or not problem.regularizer.selective:
            return np.arange(problem.m)
        most = min(self.working_set + len(components.kernels), problem.m - 1)
        top = np.argpartition(-quad, most)[:most]
        if len(components.kernels):
            floor = (1.0 - _CHANGE * np.sqrt(gap)) ** 2 * float(quad[components.kernels].min())
            top = top[quad[top] >= floor] if gap < _CHANGE**-2 else top
        return np.union1d(components.kernels, top)

    def _state(
        self,
        problem: Problem,
        passes: Passes,
        d: Array,
        alpha: Array,
        intercept: Array,
        memory: _Memory,
        known: tuple[Array, Array],
    ) -> State:
        fitted, quad = known
        value = problem.inner_value(d, alpha, fitted)
        return State(Point(d, alpha, fitted, intercept, value), quad, passes, False, memory)


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


def _best_scale(problem: Problem, alpha: Array, quad: Array) -> tuple[float, float]:
    """The t <= 1 for which t alpha has the largest dual value, nearly, and that value."""
    if problem.loss.alpha_sum:
        return 1.0, dual_value(problem, alpha, quad)
    scales = 0.8 ** np.arange(90)
    values = [dual_value(problem, t * alpha, t**2 * quad) for t in scales]
    best = int(np.argmax(values))
    return float(scales[best]), values[best]
