r"""The loss in the smoothed dual of SpicyMKL: as it is, or smoothed by slack variables."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from kernelweave.problem import Array, Problem
from kernelweave.validation import LARGEST

__all__ = ["ConjugateTerm", "DirectTerm", "SlackTerm", "conjugate_term", "penalty_in_range"]

# Room that is left to the ends of a domain at which the conjugate is steep, relative to its width:
# at an end that is zero numbers can be as small as they like.
_INSIDE, _INSIDE_AT_ZERO = 1e-13, 1e-100
_SHORT_OF_THE_END = 0.99
_MOST_OF_THE_ROOM = 0.9
# First penalty of the slack variables, in units of decision values for each unit of alpha.
_FIRST_SLACK = 10.0


def penalty_in_range(penalty: float) -> float:
    """The nearest penalty with which float64 can compute: squares of it, and one over it."""
    return min(max(penalty, 1.0 / LARGEST), LARGEST)


class ConjugateTerm(ABC):
    r"""A smooth function of :math:`\rho` in place of :math:`\sum \ell^*(-\rho)`.

    Its gradient is minus the decision values z that :math:`\rho` stands for.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    @abstractmethod
    def value(self, rho: Array) -> float:
        """Value at rho, (T, n)."""

    @abstractmethod
    def decision(self, rho: Array) -> Array:
        """Minus the gradient: decision values z, (T, n)."""

    @abstractmethod
    def curvature(self, rho: Array, z: Array) -> Array:
        """Second derivatives, (T, n), z being `decision(rho)`."""

    @abstractmethod
    def primal(self, z: Array) -> float:
        """The function of decision values z of which `value` is the conjugate at -rho."""

    def gap(self, rho: Array, z: Array) -> float:
        """Duality gap of an inner problem whose components give the decision values z."""
        return self.primal(z) + self.value(rho) + float(np.sum(rho * z))

    def alpha(self, rho: Array, z: Array) -> Array:
        """Dual variables that rho and its decision values z stand for."""
        return rho

    def reach(self, rho: Array, delta: Array) -> float:
        """Longest step t <= 1 for which rho + t delta stays where the term is finite."""
        return 1.0

    def bent(self, rho: Array, z: Array, delta: Array, curvature: Array) -> Array:
        """Return a step like delta that goes less far where the term is steep."""
        return delta

    def inside(self, rho: Array) -> Array:
        """Nearest rho at which the term is finite."""
        return rho

    @abstractmethod
    def after(self, z: Array, growth: float) -> ConjugateTerm:
        """Return the term of the next outer step, from decision values z, its penalty grown."""


class DirectTerm(ConjugateTerm):
    """The conjugate itself, for losses that are `steep` (logistic, smooth hinge, squared).

    Their minimum is never at an end of the domain, so it is enough that line searches stay
    inside (SpicyMKL, section 3.2).
    """

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        low, high = self._low, self._high = problem.loss.domain(problem.y, problem.C)
        with np.errstate(invalid="ignore"):
            width = np.where(np.isfinite(high - low), high - low, 0.0)
        self._first = low + np.where(low == 0, _INSIDE_AT_ZERO, _INSIDE) * width
        self._last = high - np.where(high == 0, _INSIDE_AT_ZERO, _INSIDE) * width

    def value(self, rho: Array) -> float:
        return self.problem.dual_loss(rho)

    def primal(self, z: Array) -> float:
        problem = self.problem
        return float(np.sum(problem.loss.value(problem.y, z, problem.C)))

    def decision(self, rho: Array) -> Array:
        problem = self.problem
        z = -problem.loss.conjugate_gradient(problem.y, self.inside(rho), problem.C)
        # Samples of weight zero have no decision value to ask for.
        return np.where(self._low < self._high, z, 0.0)

    def curvature(self, rho: Array, z: Array) -> Array:
        problem = self.problem
        with np.errstate(divide="ignore"):
            return 1.0 / problem.loss.curvature(problem.y, z, problem.C)

    def reach(self, rho: Array, delta: Array) -> float:
        end = np.where(delta > 0, self._high, self._low)
        with np.errstate(divide="ignore", invalid="ignore"):
            room = np.where(delta != 0, (end - rho) / delta, np.inf)
        return min(1.0, _SHORT_OF_THE_END * float(np.min(room)))

    def bent(self, rho: Array, z: Array, delta: Array, curvature: Array) -> Array:
        """Where delta goes beyond an end, or nearly, take the same step in terms of z.

        Near an end alpha changes by factors, not by amounts.
        """
        room = np.where(delta > 0, self._high - rho, rho - self._low)
        beyond = np.abs(delta) > _MOST_OF_THE_ROOM * room
        if not np.any(beyond):
            return delta
        with np.errstate(invalid="ignore", over="ignore"):
            change = np.where(beyond, curvature * delta, 0.0)
            problem = self.problem
            there = -problem.loss.gradient(problem.y, z - change, problem.C)
        there = self.inside(np.where(np.isfinite(there), there, rho))
        return np.where(beyond, there - rho, delta)

    def inside(self, rho: Array) -> Array:
        return np.clip(rho, self._first, self._last)

    def after(self, z: Array, growth: float) -> DirectTerm:
        return self


class SlackTerm(ConjugateTerm):
    r"""The conjugate smoothed by slack variables (SpicyMKL, section 3.3, eqs. 10 to 12).

    The decision values become variables with a proximal term of their own,

    .. math:: \max_z\; -\rho z - \ell(y, z) - \frac{(z - z^{(t)})^2}{2 \gamma_z}, \qquad
        z^{(t+1)} = \mathrm{prox}_{\gamma_z \ell}(z^{(t)} - \gamma_z \rho) .

    For the hinge :math:`1 - y z = \xi - \zeta`: of the two slacks of eq. 11 at most one is positive
    at a solution, and one variable carries both. So it is for every loss whose conjugate has
    corners or ends with a finite slope.
    """

    def __init__(self, problem: Problem, centre: Array, penalty: float) -> None:
        super().__init__(problem)
        self.centre = centre
        self.penalty = penalty_in_range(penalty)

    @classmethod
    def at(cls, problem: Problem, decision: Array, alpha: Array) -> SlackTerm:
        """Return the term at decision values and an alpha to start from."""
        size = float(np.mean(np.abs(alpha))) or float(np.mean(problem.C))
        return cls(problem, decision, _FIRST_SLACK * problem.decision_unit / size)

    def decision(self, rho: Array) -> Array:
        problem = self.problem
        v = self.centre - self.penalty * rho
        return problem.loss.prox(problem.y, v, problem.C, self.penalty)

    def primal(self, z: Array) -> float:
        problem = self.problem
        moved = z - self.centre
        loss = float(np.sum(problem.loss.value(problem.y, z, problem.C)))
        return loss + float(np.sum(moved * moved)) / (2.0 * self.penalty)

    def value(self, rho: Array) -> float:
        z = self.decision(rho)
        return -float(np.sum(rho * z)) - self.primal(z)

    def curvature(self, rho: Array, z: Array) -> Array:
        problem = self.problem
        v = self.centre - self.penalty * rho
        slope = problem.loss.prox_slope(problem.y, v, z, problem.C, self.penalty)
        return self.penalty * slope

    def alpha(self, rho: Array, z: Array) -> Array:
        """Outside corners the loss says it exactly: zero for samples that are well predicted."""
        problem = self.problem
        outside = self.curvature(rho, z) > 0
        return np.where(outside, -problem.loss.gradient(problem.y, z, problem.C), rho)

    def after(self, z: Array, growth: float) -> SlackTerm:
        return SlackTerm(self.problem, z, growth * self.penalty)


def conjugate_term(problem: Problem, decision: Array, alpha: Array) -> ConjugateTerm:
    """Return the term for the problem's loss, at decision values and an alpha to start from."""
    steep = problem.loss.steep
    return DirectTerm(problem) if steep else SlackTerm.at(problem, decision, alpha)
