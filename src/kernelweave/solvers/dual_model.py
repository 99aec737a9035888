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
from numpy.typing import NDArray

from kernelweave.bank.protocol import KernelBank
from kernelweave.bank.stacked import StackedBank
from kernelweave.linear_systems import cholesky
from kernelweave.memory import FEW_SAMPLES, square_side
from kernelweave.problem import Array
from kernelweave.regularizers.norm_prox import NormProx
from kernelweave.root_search import zero_of_slope
from kernelweave.solvers.newton_system import (
    CHOLESKY_LIMIT,
    ActiveKernels,
    through_factors,
)
from kernelweave.solvers.split_system import SplitSystem

if TYPE_CHECKING:
    from kernelweave.solvers.smoothed_dual import Place

__all__ = ["STEEP_ENOUGH", "DualModel", "model_serves"]

# Newton steps on a model, and the part of its first decrement at which it is solved well enough.
_MOST, _ENOUGH = 12, 1e-3
# Part of the slope of Newton's direction that a bent one must have.
STEEP_ENOUGH = 0.1
# Up to this many samples a factor of the whole matrix is quicker than one of its hard part.
WHOLE_LIMIT = 1000
# Most samples of a model, and the matrices of that size that it takes.
MODEL_LIMIT, _MATRICES = 20_000, 3


def model_serves(bank: KernelBank, n_tasks: int, kernels: NDArray[np.intp]) -> bool:
    """Whether a model can be formed: there is room for its matrix, and no quicker way.

    Quicker are factors of low rank and, with many samples, banks whose products take no rows.
    """
    size = n_tasks * bank.n
    if size > MODEL_LIMIT or through_factors(bank, kernels):
        return False
    if size > CHOLESKY_LIMIT and not _works_with_rows(bank):
        return False
    return size <= FEW_SAMPLES or size <= square_side(bank.work_bytes, _MATRICES)


def _works_with_rows(bank: KernelBank) -> bool:
    parts = bank.parts if isinstance(bank, StackedBank) else (bank,)
    return any(part.keeps_rows or part.forms_matrix for part in parts)


class DualModel:
    """The model at one place, all tasks in one vector.

    Parameters
    ----------
    place : Place
        Where phi and its gradient are known.
    """

    def __init__(self, place: Place) -> None:
        self.place = place
        dual = place.dual
        self.term, self.regularizer = dual.term, dual.problem.regularizer
        self.gamma = dual.penalty
        self.shape = place.rho.shape
        self.some = np.flatnonzero(place.norms > 0)
        self.norms = place.norms[self.some]
        self.G = (
            place.normals[self.some].reshape(len(self.some), place.rho.size) / self.norms[:, None]
        )
        self.level = np.repeat(place.level, self.shape[1])
        self.B = self._curved_part(place.active())
        self._tasks = np.repeat(np.eye(self.shape[0]), self.shape[1], axis=1)
        self._split = SplitSystem(self.B, dual.problem.deadline)

    def _curved_part(self, active: ActiveKernels) -> Array:
        """B."""
        dual, (T, n) = self.place.dual, self.shape
        B = K = dual.problem.bank.combine(active.weights(dual.problem.m))
        if T > 1:
            B = np.zeros((T * n, T * n))
            for t in range(T):
                B[t * n : (t + 1) * n, t * n : (t + 1) * n] = K
        G = active.normals.reshape(len(active.kernels), T * n)
        B -= (G.T * (self.gamma * active.shares)) @ G
        return B

    def _bend(self, delta: Array) -> Array:
        """B delta, and what the intercepts add, which is as straightforward."""
        sums = self.place.dual.intercept_penalty * (self._tasks @ delta)
        return self.B @ delta + sums @ self._tasks

    def minimise(self, gradient: Array) -> Array:
        """Return the step to the minimum, nearly; `gradient` is that of phi, (T, n).

        A deadline that passes on the way raises `TimeUp`.
        """
        delta, first = np.zeros(gradient.size), 0.0
        g, prox, z = gradient.ravel(), self.place.prox, self.place.z
        deadline = self.place.dual.problem.deadline
        for _ in range(_MOST):
            deadline.check()
            rho = self.place.rho + delta.reshape(self.shape)
            D = self.term.curvature(rho, z)
            direction = self._newton(D.ravel(), prox, g)
            bent = self.term.bent(rho, z, direction.reshape(self.shape), D).ravel()
            direction = bent if g @ bent <= STEEP_ENOUGH * (g @ direction) else direction
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
        """Newton's direction on the model."""
        G = self.G[np.searchsorted(self.some, prox.active)]
        V = np.concatenate([G, prox.coupling.T @ G, self._tasks])
        s = self.gamma * np.concatenate([prox.slopes, prox.signs])
        s = np.append(s, np.full(len(self._tasks), self.place.dual.intercept_penalty))
        if len(D) > WHOLE_LIMIT:
            return self._split.solve(D, V, s, g)
        return -cholesky(self.B + (V.T * s) @ V, D)(g)

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

        longest = self.term.reach(rho, step)
        return zero_of_slope(slope, -decrement, lambda t: True, longest)
