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

from kernelweave.arrays import Array, Index
from kernelweave.cached import cached_property
from kernelweave.deadline import TimeUp
from kernelweave.problem import Problem
from kernelweave.regularizers.base import NormProx
from kernelweave.root_search import zero_of_slope
from kernelweave.solvers.kernel_sum import kernel_sum

# What rounding leaves of a duality gap, relative to its parts: sums of thousands of terms.
_ROUNDING = 1e-13
# Newton steps on a model, and the part of its first decrement at which it is solved well enough.
# At most 3, 6, 12, 24, 48 steps take 8.3, 7.9, 7.9, 8.5, 9.1 seconds for MKLClassifier("simplemkl",
# solver="spicy", tol=1e-5) on a third of breast cancer, summed over three losses (hinge, squared
# hinge, logistic), the simplex and block norms, and C = 0.1, 1, 100. Parts from 0.1 to 1e-4 all
# take 7.9 to 8.2. (With one step on a model, which is Newton's on phi, there are 2.6 times as many
# models, in 1.2 times the time.)
_MOST, _ENOUGH = 12, 1e-3


@dataclass(frozen=True, eq=False)
class Components:
    """The functions f_k of the kernels in use: their values on the samples, and their norms."""

    kernels: Index
    fitted: Array  # (A, T, n)
    norms: Array


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
    grows this becomes the conjugate itself. `centre` is :math:`z^{(t)}`, `penalty` is
    :math:`\gamma_z`.
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


@dataclass(frozen=True, eq=False)
class SmoothedDual:
    """phi on some kernels: those that may be active near the current rho.

    `components` are the alpha_k of the last outer step, their kernels among those to look at;
    `penalty` and `intercept_penalty` are gamma and gamma_b.
    """

    problem: Problem
    term: SmoothedLoss
    kernels: Index
    components: Components
    intercept: Array
    penalty: float
    intercept_penalty: float

    @cached_property
    def last(self) -> tuple[Array, Array]:
        """K_k alpha_k and the squared norms of the alpha_k, of all these kernels."""
        fitted = np.zeros((len(self.kernels), self.problem.n_tasks, self.problem.n))
        squares = np.zeros(len(self.kernels))
        places = np.searchsorted(self.kernels, self.components.kernels)
        fitted[places] = self.components.fitted
        squares[places] = self.components.norms**2
        return fitted, squares

    def minimise(self, rho: Array, accuracy: float, most: int) -> tuple[Place, int, float]:
        """Newton steps from rho until the duality gap of the inner problem is at most `accuracy`.

        Or `most` of them, or as many as rounding or the problem's deadline allow. Returns the place
        where they end, their number and the gap there.
        """
        here = Place(self, rho, self.problem.bank.apply(rho, self.kernels))
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
            products = self.problem.bank.apply(delta, self.kernels)
            t = zero_of_slope(here.slope_along(delta, products), -decrement)
            here = Place(self, here.rho + t * delta, here.products + t * products)
        return here, step, gap


class Place:
    """phi and its derivatives at one rho.

    `z` are the decision values that rho stands for, `level` the next intercepts (eq. 6).
    """

    def __init__(self, dual: SmoothedDual, rho: Array, products: Array) -> None:
        self.dual, self.rho, self.products = dual, rho, products
        gamma, (fitted, squares) = dual.penalty, dual.last
        # K_k v_k with v_k = alpha_k + gamma rho.
        self.normals = fitted + gamma * products
        cross = np.einsum("ktn,tn->k", fitted, rho)
        quad = np.einsum("ktn,tn->k", products, rho)
        squares = squares + 2.0 * gamma * cross + gamma**2 * quad
        self.squares = np.maximum(squares, 0.0)
        self.norms = np.sqrt(self.squares)
        self.prox: NormProx = dual.problem.regularizer.norm_prox(self.norms, gamma)
        self.z = dual.term.decision(rho)
        excess = rho.sum(axis=1) - dual.problem.loss.alpha_sum
        self.level = dual.intercept + dual.intercept_penalty * excess

    @property
    def _shares(self) -> Array:
        """What the prox leaves of the kernels that it leaves in use."""
        return self.prox.norms[self.prox.active] / self.norms[self.prox.active]

    def gradient(self) -> Array:
        """Gradient of phi (eq. 8): f + b at the next components, minus z."""
        f = np.tensordot(self._shares, self.normals[self.prox.active], axes=1)
        return f + self.level[:, None] - self.z

    def components(self) -> Components:
        """The next components (eq. 5)."""
        active = self.prox.active
        fitted = self._shares[:, None, None] * self.normals[active]
        return Components(self.dual.kernels[active], fitted, self.prox.norms[active])

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


class DualModel:
    r"""A model of the smoothed dual that keeps its corners, minimised without touching a kernel.

    Around :math:`\rho`, with norms :math:`n_k` and their gradients :math:`\gamma g_k`,

    .. math::

        \varphi(\rho + \delta) \approx \sum \ell^*(-\rho - \delta)
        + E\big(n + \gamma G \delta\big) + \tfrac12 \delta^\top B\, \delta
        + \frac{1}{2 \gamma_b} \big( b' + \gamma_b 1^\top \delta \big)^2, \qquad
        B = \gamma \sum_{k \in A} w_k (K_k - g_k g_k^\top),

    where E is the term of eq. 7 as a function of the norms, all tasks in one vector. To second
    order this is phi itself, so its minimum is as good a step as Newton's (eq. 9). But it knows
    which kernels come into use along the way and which samples leave a corner of the loss, where
    Newton's own model is blind.
    """

    def __init__(self, place: Place) -> None:
        self.place = place
        dual, prox = place.dual, place.prox
        self.term, self.regularizer = dual.term, dual.problem.regularizer
        self.gamma = dual.penalty
        self.shape = place.rho.shape
        T, n = self.shape
        self.some = np.flatnonzero(place.norms > 0)
        self.norms = place.norms[self.some]
        self.G = place.normals[self.some].reshape(len(self.some), T * n) / self.norms[:, None]
        self.level = np.repeat(place.level, n)
        # The w_k, and the kernels of the sum.
        self.shares = prox.norms[self.some] / self.norms
        weights = self.gamma * prox.norms[prox.active] / place.norms[prox.active]
        self.K = kernel_sum(dual.problem.bank, dual.kernels[prox.active], weights, T)
        self._tasks = np.repeat(np.eye(T), n, axis=1)

    def _bend(self, delta: Array) -> Array:
        """B delta, and what the intercepts add, which is as straightforward."""
        sums = self.place.dual.intercept_penalty * (self._tasks @ delta)
        held = self.gamma * self.shares * (self.G @ delta)
        return self.K.product(delta) - held @ self.G + sums @ self._tasks

    def minimise(self, gradient: Array) -> Array:
        """Return the step to the minimum, nearly; `gradient` is that of phi, (T, n).

        Where a product costs as much as a pass over the kernels, this is Newton's step: a second
        one is better taken on phi itself. A deadline that passes on the way raises `TimeUp`.
        """
        delta, first = np.zeros(gradient.size), 0.0
        g, prox, z = gradient.ravel(), self.place.prox, self.place.z
        deadline = self.place.dual.problem.deadline
        for _ in range(_MOST):
            deadline.check()
            D = self.term.curvature(self.place.rho + delta.reshape(self.shape), z)
            direction = self._newton(D.ravel(), prox, g)
            if self.K.matrix is None:
                return direction.reshape(self.shape)
            decrement = -float(g @ direction)
            first = first or decrement
            if not decrement > max(_ENOUGH * first, 0.0):
                break
            delta = delta + self._search(delta, direction, decrement) * direction
            z = self.term.decision(self.place.rho + delta.reshape(self.shape))
            prox = self._prox(self.G @ delta)
            f = prox.norms[self.some] @ self.G
            g = f + self._bend(delta) + self.level - z.ravel()
        return delta.reshape(self.shape)

    def _prox(self, change: Array) -> NormProx:
        """Prox of the norms after a step that changes them by gamma times `change`."""
        norms = np.zeros(len(self.place.norms))
        norms[self.some] = np.maximum(self.norms + self.gamma * change, 0.0)
        return self.regularizer.norm_prox(norms, self.gamma)

    def _newton(self, D: Array, prox: NormProx, g: Array) -> Array:
        """Newton's direction on the model: solve with diag(D) + K + G'M G + gamma_b 1 1' (eq. 9).

        M is gamma times the Jacobian of the prox less the w_k.
        """
        active = np.searchsorted(self.some, prox.active)
        slopes = -self.shares
        slopes[active] += prox.slopes
        V = np.concatenate([self.G, prox.coupling.T @ self.G[active], self._tasks])
        s = self.gamma * np.concatenate([slopes, prox.signs])
        s = np.append(s, np.full(len(self._tasks), self.place.dual.intercept_penalty))
        V, s = V[s != 0], s[s != 0]
        return self.K.solve(D, V, s, g, deadline=self.place.dual.problem.deadline)

    def _search(self, delta: Array, direction: Array, decrement: float) -> float:
        """Step length to where the model is nearly least."""
        rho, step = self.place.rho + delta.reshape(self.shape), direction.reshape(self.shape)
        G_delta, G_step, B_step = self.G @ delta, self.G @ direction, self._bend(direction)
        fixed = float(delta @ B_step + self.level @ direction)
        square = float(B_step @ direction)

        def slope(t: float) -> float:
            z = self.term.decision(rho + t * step)
            p = self._prox(G_delta + t * G_step).norms[self.some]
            return float(p @ G_step) + fixed + t * square - float(np.sum(z * step))

        return zero_of_slope(slope, -decrement)
