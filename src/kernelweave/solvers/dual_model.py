r"""A model of the smoothed dual that keeps its corners, minimised without touching a kernel.

Around :math:`\rho`, with norms :math:`n_k` and their gradients :math:`\gamma g_k`,

.. math::

    \varphi(\rho + \delta) \approx \sum \ell^*(-\rho - \delta)
    + E\big(n + \gamma G \delta\big) + \tfrac12 \delta^\top B\, \delta
    + \frac{1}{2 \gamma_b} \big( b' + \gamma_b 1^\top \delta \big)^2, \qquad
    B = \gamma \sum_{k \in A} w_k (K_k - g_k g_k^\top),

where E is the term of eq. 7 as a function of the norms. To second order this is phi itself, so its
minimum is as good a step as Newton's (eq. 9). But it knows which kernels come into use along the
way and which samples leave a corner of the loss, where Newton's own model is blind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kernelweave.problem import Array
from kernelweave.regularizers.norm_prox import NormProx
from kernelweave.root_search import zero_of_slope
from kernelweave.solvers.kernel_sum import FormedSum, kernel_sum

if TYPE_CHECKING:
    from kernelweave.solvers.smoothed_dual import Place

__all__ = ["DualModel"]

# Newton steps on a model, and the part of its first decrement at which it is solved well enough.
_MOST, _ENOUGH = 12, 1e-3
# Up to this many samples a factor of the whole matrix is quicker than conjugate gradients.
WHOLE_LIMIT = 1000


class DualModel:
    """The model at one place, all tasks in one vector.

    Parameters
    ----------
    place : Place
        Where phi and its gradient are known.
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
        problem = dual.problem
        self.K = kernel_sum(problem.bank, dual.kernels[prox.active], weights, T, problem.deadline)
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
            if not self.K.quick:
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
        if isinstance(self.K, FormedSum) and len(D) <= WHOLE_LIMIT:
            return self.K.exact(D, V, s, g)
        return self.K.solve(D, V, s, g)

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
