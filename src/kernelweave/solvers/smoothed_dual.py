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

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kernelweave.deadline import TimeUp
from kernelweave.problem import Array, Problem
from kernelweave.regularizers.norm_prox import NormProx
from kernelweave.root_search import zero_of_slope
from kernelweave.solvers.dual_model import DualModel
from kernelweave.solvers.smoothed_loss import SmoothedLoss

__all__ = ["Components", "Minimum", "SmoothedDual"]

# What rounding leaves of a duality gap, relative to its parts: sums of thousands of terms.
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
    steps : int
        Newton steps taken.
    gap : float
        Duality gap of the inner problem.
    """

    rho: Array
    decision: Array
    intercept: Array
    components: Components
    steps: int
    gap: float


class SmoothedDual:
    """phi on some kernels: those that may be active near the current rho.

    Parameters
    ----------
    problem : Problem
    term : SmoothedLoss
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
        term: SmoothedLoss,
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

        Or `most` of them, or as many as rounding or the problem's deadline allow.
        """
        here = Place(self, rho, self.problem.bank.matvec(rho, self.kernels))
        gap = decrement = np.inf
        for step in range(most + 1):
            gradient = here.gradient()
            before, gap = gap, self.term.gap(here.rho, here.z + gradient)
            # Where rounding is all that was left of the last step, the decision values tell.
            noise = _ROUNDING * float(np.sum(np.abs(here.rho * here.z)))
            lost = decrement <= noise and not gap <= 0.5 * before
            if gap <= accuracy or lost or step == most or self.problem.deadline.passed():
                break
            try:
                delta = DualModel(here).minimise(gradient)
            except TimeUp:
                break
            decrement = -float(np.sum(gradient * delta))
            if not decrement > 0:
                break
            products = self.problem.bank.matvec(delta, self.kernels)
            t = zero_of_slope(here.slope_along(delta, products), -decrement)
            here = Place(self, here.rho + t * delta, here.products + t * products)
        active = here.prox.active
        share = here.prox.norms[active] / here.norms[active]
        fitted = share[:, None, None] * here.normals[active]
        components = Components(self.kernels[active], fitted, here.prox.norms[active])
        return Minimum(here.rho, here.z, here.level, components, step, gap)


class Place:
    """phi and its derivatives at one rho."""

    def __init__(self, dual: SmoothedDual, rho: Array, products: Array) -> None:
        self.dual, self.rho, self.products = dual, rho, products
        gamma = dual.penalty
        # K_k v_k with v_k = alpha_k + gamma rho.
        self.normals = dual._fitted + gamma * products
        cross = np.einsum("ktn,tn->k", dual._fitted, rho)
        quad = np.einsum("ktn,tn->k", products, rho)
        squares = dual._squares + 2.0 * gamma * cross + gamma**2 * quad
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

    def slope_along(self, delta: Array, products: Array) -> Callable[[float], float]:
        """Derivative of phi at rho + t delta in t; `products` are the K_k delta.

        Squared norms are parabolas in t with coefficients known beforehand, so a trial touches no
        kernel at all. (The paper's section 3.4 saves trials on kernels that are inactive at both
        ends, by convexity; here no kernel costs more than a few multiplications.)
        """
        dual, gamma = self.dual, self.dual.penalty
        linear = 2.0 * gamma * np.einsum("ktn,tn->k", self.normals, delta)
        square = gamma**2 * np.einsum("ktn,tn->k", products, delta)
        sums = delta.sum(axis=1)

        def slope(t: float) -> float:
            norms = np.sqrt(np.maximum(self.squares + t * (linear + t * square), 0.0))
            p = dual.problem.regularizer.norm_prox(norms, gamma).norms
            used = p > 0
            kernels = (p[used] / norms[used]) @ (0.5 * linear[used] + t * square[used]) / gamma
            level = self.level + t * dual.intercept_penalty * sums
            z = dual.term.decision(self.rho + t * delta)
            return float(kernels) - float(np.sum(z * delta)) + float(level @ sums)

        return slope
