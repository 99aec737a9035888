r"""The smoothed dual of one proximal step of SpicyMKL, and its minimisation by Newton's method.

.. math::

    \varphi(\rho) = \sum \ell^*(-\rho)
    + \max_p \Big( \tfrac1\gamma \big( p \cdot n(\rho) - \tfrac12 |p|^2 \big) - \Omega(p) \Big)
    + \frac{1}{2 \gamma_b} \big( b + \gamma_b (\textstyle\sum_i \rho_i - s) \big)^2, \qquad
    n_k(\rho) = |\alpha_k + \gamma \rho|_{K_k}

(eq. 7; for block l1 the middle term is the square of the soft threshold). The maximum is at
:math:`p = \mathrm{prox}_{\gamma \Omega}(n)`, the norms of the next components.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kernelweave.deadline import TimeUp
from kernelweave.problem import Array, Problem
from kernelweave.regularizers.norm_prox import NormProx
from kernelweave.root_search import zero_of_slope
from kernelweave.solvers.conjugate_terms import ConjugateTerm
from kernelweave.solvers.dual_model import STEEP_ENOUGH, DualModel, model_serves
from kernelweave.solvers.newton_system import ActiveKernels, newton_direction

__all__ = ["Components", "Minimum", "SmoothedDual"]

_ARMIJO = 1e-4
# What rounding leaves of phi, relative to its parts.
_ROUNDING = 1e-13


@dataclass(frozen=True, eq=False)
class Components:
    """The functions f_k of the kernels in use, by what the solver needs of them.

    Attributes
    ----------
    kernels : ndarray of shape (A,), int
    fitted : ndarray of shape (A, T, n)
        K_k alpha_k: the values of f_k on the samples.
    norms : ndarray of shape (A,)
    """

    kernels: NDArray[np.intp]
    fitted: Array
    norms: Array

    @classmethod
    def none(cls, problem: Problem) -> Components:
        """Return the zero function."""
        shape = (0, problem.n_tasks, problem.n)
        return cls(np.zeros(0, dtype=np.intp), np.zeros(shape), np.zeros(0))


@dataclass(frozen=True, eq=False)
class Minimum:
    """What a minimisation found.

    Attributes
    ----------
    rho : ndarray of shape (T, n)
    decision : ndarray of shape (T, n)
        The decision values that rho stands for.
    intercept : ndarray of shape (T,)
    components : Components
        The next components.
    norms_before : ndarray of shape (A,)
        Norms of alpha_k + gamma rho, from which the prox made those of the components.
    steps : int
        Newton steps taken.
    converged : bool
        Whether the accuracy asked for was reached.
    """

    rho: Array
    decision: Array
    intercept: Array
    components: Components
    norms_before: Array
    steps: int
    converged: bool


class SmoothedDual:
    """phi on some kernels: those that may be active near the current rho.

    Parameters
    ----------
    problem : Problem
    term : ConjugateTerm
        The loss.
    kernels : ndarray of int
        The kernels to look at, those of `components` among them.
    components : Components
        The alpha_k of the last outer step.
    intercept : ndarray of shape (T,)
    penalty, intercept_penalty : float
        gamma and gamma_b.
    """

    def __init__(
        self,
        problem: Problem,
        term: ConjugateTerm,
        kernels: NDArray[np.intp],
        components: Components,
        intercept: Array,
        penalty: float,
        intercept_penalty: float,
    ) -> None:
        self.problem, self.term, self.kernels = problem, term, kernels
        self.intercept = intercept
        self.penalty, self.intercept_penalty = penalty, intercept_penalty
        self._fitted = np.zeros((len(kernels), problem.n_tasks, problem.n))
        self._squares = np.zeros(len(kernels))
        places = np.searchsorted(kernels, components.kernels)
        self._fitted[places] = components.fitted
        self._squares[places] = components.norms**2

    def minimise(self, rho: Array, accuracy: float, most: int) -> Minimum:
        """Newton steps from rho until the duality gap of the inner problem is at most `accuracy`.

        Or `most` of them, or as many as the problem's deadline allows.
        """
        here = Place(self, rho, self.problem.bank.matvec(rho, self.kernels))
        for step in range(most + 1):
            gradient = here.gradient()
            gap = self.term.gap(here.rho, here.z + gradient)
            if gap <= accuracy:
                return self._found(here, step, True)
            if step == most or self.problem.deadline.passed():
                break
            try:
                direction = self._direction(here, gradient)
            except TimeUp:
                break
            there = self._search(here, gradient, direction, gap)
            if there is None:
                return self._found(here, step, False)
            here = there
        return self._found(here, step, False)

    def _found(self, here: Place, steps: int, converged: bool) -> Minimum:
        active = here.prox.active
        share = here.prox.norms[active] / here.norms[active]
        fitted = share[:, None, None] * here.normals[active]
        components = Components(self.kernels[active], fitted, here.prox.norms[active])
        before = here.norms[active]
        return Minimum(here.rho, here.z, here.level, components, before, steps, converged)

    def _direction(self, here: Place, gradient: Array) -> Array:
        """Direction in which phi falls: to the minimum of a model of it, or Newton's."""
        bank = self.problem.bank
        if model_serves(bank, self.problem.n_tasks, here.active().kernels):
            return DualModel(here).minimise(gradient)
        D = self.term.curvature(here.rho, here.z)
        delta = newton_direction(bank, D, here.active(), gradient, self.problem.deadline)
        bent = self.term.bent(here.rho, here.z, delta, D)
        # As steep as Newton's, or nearly so, and it cannot be cut short.
        good = np.sum(gradient * bent) <= STEEP_ENOUGH * np.sum(gradient * delta)
        return bent if good else delta

    def _search(self, here: Place, gradient: Array, delta: Array, gap: float) -> Place | None:
        """Go along delta to where phi is nearly least; None if it does not fall."""
        decrement = -float(np.sum(gradient * delta))
        if not decrement > 0:
            return None
        products = self.problem.bank.matvec(delta, self.kernels)
        longest = self.term.reach(here.rho, delta)
        noise = _ROUNDING * float(np.sum(np.abs(here.rho * here.z)))
        if decrement <= noise:
            # phi no longer tells, but the decision values do.
            there = Place(self, here.rho + longest * delta, here.products + longest * products)
            smaller = self.term.gap(there.rho, there.z + there.gradient()) <= 0.5 * gap
            return there if smaller else None
        segment = _Segment(here, delta, products)
        first = segment.value(0.0)

        def fallen(t: float) -> bool:
            """Armijo's rule, but for rounding."""
            return segment.value(t) <= first - _ARMIJO * t * decrement + noise

        t = zero_of_slope(segment.slope, -decrement, fallen, longest)
        if not t > 0 or not fallen(t):
            return None
        return Place(self, here.rho + t * delta, here.products + t * products)


class Place:
    """phi and its derivatives at one rho."""

    def __init__(self, dual: SmoothedDual, rho: Array, products: Array) -> None:
        self.dual, self.rho, self.products = dual, rho, products
        gamma = dual.penalty
        # K_k v_k with v_k = alpha_k + gamma rho.
        self.normals = dual._fitted + gamma * products
        self.cross = np.einsum("ktn,tn->k", dual._fitted, rho)
        self.quad = np.einsum("ktn,tn->k", products, rho)
        squares = dual._squares + 2.0 * gamma * self.cross + gamma**2 * self.quad
        self.squares = np.maximum(squares, 0.0)
        self.norms = np.sqrt(self.squares)
        self.prox: NormProx = dual.problem.regularizer.norm_prox(self.norms, gamma)
        self.z = dual.term.decision(rho)
        excess = rho.sum(axis=1) - dual.problem.loss.alpha_sum
        self.level = dual.intercept + dual.intercept_penalty * excess

    def gradient(self) -> Array:
        """Gradient of phi (eq. 8): f + b at the next components, minus z."""
        active = self.prox.active
        share = self.prox.norms[active] / self.norms[active]
        f = np.tensordot(share, self.normals[active], axes=1)
        return f + self.level[:, None] - self.z

    def active(self) -> ActiveKernels:
        """The kernels in use, as the Hessian (eq. 9) needs them."""
        dual, chosen = self.dual, self.prox.active
        norms = self.norms[chosen]
        return ActiveKernels(
            dual.kernels[chosen],
            self.prox.norms[chosen] / norms,
            self.normals[chosen] / norms[:, None, None],
            self.prox,
            dual.penalty,
            dual.intercept_penalty,
        )


class _Segment:
    """phi along rho + t delta.

    Squared norms are parabolas in t with coefficients known beforehand, so a trial touches no
    kernel at all. (The paper's section 3.4 saves trials on kernels that are inactive at both ends,
    by convexity; here no kernel costs more than a few multiplications.)
    """

    def __init__(self, here: Place, delta: Array, products: Array) -> None:
        self.here, self.delta = here, delta
        dual = here.dual
        gamma = dual.penalty
        self._linear = 2.0 * gamma * np.einsum("ktn,tn->k", here.normals, delta)
        self._square = gamma**2 * np.einsum("ktn,tn->k", products, delta)
        self._sums = delta.sum(axis=1)

    def _norms(self, t: float) -> Array:
        squares = self.here.squares + t * (self._linear + t * self._square)
        return np.sqrt(np.maximum(squares, 0.0))

    def _level(self, t: float) -> Array:
        return self.here.level + t * self.here.dual.intercept_penalty * self._sums

    def value(self, t: float) -> float:
        """phi."""
        dual = self.here.dual
        norms = self._norms(t)
        p = dual.problem.regularizer.norm_prox(norms, dual.penalty).norms
        loss = dual.term.value(self.here.rho + t * self.delta)
        kernels = float(p @ norms - 0.5 * (p @ p)) / dual.penalty
        level = self._level(t)
        intercepts = float(level @ level) / (2.0 * dual.intercept_penalty)
        return loss + kernels - float(dual.problem.regularizer.omega(p)) + intercepts

    def slope(self, t: float) -> float:
        """Derivative of phi in t."""
        dual = self.here.dual
        norms = self._norms(t)
        p = dual.problem.regularizer.norm_prox(norms, dual.penalty).norms
        z = dual.term.decision(self.here.rho + t * self.delta)
        used = p > 0
        rise = 0.5 * self._linear[used] + t * self._square[used]
        kernels = float((p[used] / norms[used]) @ rise) / dual.penalty
        return kernels - float(np.sum(z * self.delta)) + float(self._level(t) @ self._sums)
