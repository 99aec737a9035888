r"""The loss in the smoothed dual of SpicyMKL: its conjugate, smoothed by slack variables."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernelweave.problem import Array, Problem

__all__ = ["SmoothedLoss"]


@dataclass(frozen=True, eq=False)
class SmoothedLoss:
    r"""A smooth function of :math:`\rho` in place of :math:`\sum \ell^*(-\rho)`.

    The decision values become variables with a proximal term of their own (SpicyMKL, section 3.3,
    eqs. 10 to 12),

    .. math:: \max_z\; -\rho z - \ell(y, z) - \frac{(z - z^{(t)})^2}{2 \gamma_z}, \qquad
        z^{(t+1)} = \mathrm{prox}_{\gamma_z \ell}(z^{(t)} - \gamma_z \rho) .

    For the hinge :math:`1 - y z = \xi - \zeta`: of the two slacks of eq. 11 at most one is positive
    at a solution, and one variable carries both.

    The paper takes smooth losses as they are (section 3.2). Here they have slack variables too:
    :math:`\rho` then may be any number, where a conjugate ends or rises infinitely steeply, and z
    keeps the digits that :math:`\rho` loses next to the ends of its domain. As :math:`\gamma_z`
    grows this becomes the conjugate itself.

    Parameters
    ----------
    problem : Problem
    centre : ndarray of shape (T, n)
        The :math:`z^{(t)}`.
    penalty : float
        The :math:`\gamma_z`.
    """

    problem: Problem
    centre: Array
    penalty: float

    def decision(self, rho: Array) -> Array:
        """Minus the gradient: the decision values z that rho stands for, (T, n)."""
        problem = self.problem
        v = self.centre - self.penalty * rho
        return problem.loss.prox(problem.y, v, problem.C, self.penalty)

    def curvature(self, rho: Array, z: Array) -> Array:
        """Second derivatives, (T, n), z being `decision(rho)`."""
        problem = self.problem
        v = self.centre - self.penalty * rho
        slope = problem.loss.prox_slope(problem.y, v, z, problem.C, self.penalty)
        return self.penalty * slope

    def primal(self, z: Array) -> float:
        """The function of decision values z of which `value` is the conjugate at -rho."""
        problem = self.problem
        moved = z - self.centre
        loss = float(np.sum(problem.loss.value(problem.y, z, problem.C)))
        return loss + float(np.sum(moved * moved)) / (2.0 * self.penalty)

    def value(self, rho: Array) -> float:
        """Value at rho."""
        z = self.decision(rho)
        return -float(np.sum(rho * z)) - self.primal(z)

    def gap(self, rho: Array, z: Array) -> float:
        """Duality gap of an inner problem whose components give the decision values z."""
        return self.primal(z) + self.value(rho) + float(np.sum(rho * z))

    def alpha(self, rho: Array, z: Array) -> Array:
        """Dual variables that rho and its decision values z stand for.

        Outside corners the loss says it exactly: zero for samples that are well predicted.
        """
        problem = self.problem
        outside = self.curvature(rho, z) > 0
        return np.where(outside, -problem.loss.gradient(problem.y, z, problem.C), rho)
