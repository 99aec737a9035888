r"""The linear system of a Newton step of SpicyMKL (eq. 9), dense, by factors, or by products.

For one task it is

.. math:: H = D + \sum_{k \in A} \gamma w_k K_k + \gamma_b 1 1^\top + G^\top M G, \qquad
    M = \gamma (J - \operatorname{diag}(w)),

with :math:`D` the curvature of the conjugate loss, :math:`w_k = p_k / n_k` the part of component
k that the prox leaves, the rows :math:`g_k = K_k v_k / |v_k|` of G, and J the Jacobian of the prox
of the norms. (Block l1: J = 1, so that M is :math:`\gamma q_k` on its diagonal.) Several tasks
share all kernels, and meet in G alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from kernelweave.bank.factored import FactoredBank
from kernelweave.bank.protocol import KernelBank
from kernelweave.deadline import NEVER, Deadline
from kernelweave.linear_systems import (
    Solve,
    cholesky,
    conjugate_gradients,
    diagonal,
    with_low_rank,
)
from kernelweave.problem import Array
from kernelweave.regularizers.norm_prox import NormProx

__all__ = [
    "CHOLESKY_LIMIT",
    "FLOOR",
    "ActiveKernels",
    "newton_direction",
    "solve_by_products",
    "through_factors",
]

# Up to this many samples the matrix is formed and factorised.
CHOLESKY_LIMIT = 3000
# Factors serve where their rank is below this share of n.
_LOW_RANK = 0.3
# Conjugate gradients: accuracy of a direction, and most products for it.
_CG_TOL, _CG_STEPS = 1e-5, 500
# Least curvature of a sample where a system is solved by products, relative to the kernels'.
FLOOR = 1e-9


@dataclass(frozen=True, eq=False)
class ActiveKernels:
    r"""What the kernels in use contribute to a Newton step.

    Attributes
    ----------
    kernels : ndarray of shape (A,), int
        Their indices in the bank.
    shares : ndarray of shape (A,)
        The :math:`w_k = p_k / n_k`.
    normals : ndarray of shape (A, T, n)
        The :math:`g_k = K_k v_k / |v_k|`.
    prox : NormProx
        The Jacobian of the norms.
    penalty, intercept_penalty : float
        The :math:`\gamma` and :math:`\gamma_b`.
    """

    kernels: NDArray[np.intp]
    shares: Array
    normals: Array
    prox: NormProx
    penalty: float
    intercept_penalty: float

    def weights(self, m: int) -> Array:
        """Weights of the sum of kernels in the Hessian, for all m kernels."""
        d = np.zeros(m)
        d[self.kernels] = self.penalty * self.shares
        return d

    @property
    def diagonal(self) -> Array:
        """Diagonal part of M."""
        return self.penalty * (self.prox.slopes - self.shares)

    def bend(self, v: Array) -> Array:
        """G'M G v for v of shape (T, n)."""
        x = np.einsum("ktn,tn->k", self.normals, v)
        coupling = self.prox.coupling
        Mx = self.diagonal * x
        Mx += self.penalty * (coupling @ (self.prox.signs * (coupling.T @ x)))
        return np.tensordot(Mx, self.normals, axes=1)

    def low_rank(self, task: int) -> tuple[Array, Array]:
        """Rows V and numbers s with V'diag(s) V = 1 gamma_b 1' + G'M G, for a task on its own."""
        G = self.normals[:, task]
        coupled = self.prox.coupling.T @ G
        V = np.concatenate([np.ones((1, G.shape[1])), G, coupled])
        signs = self.penalty * self.prox.signs
        return V, np.concatenate([[self.intercept_penalty], self.diagonal, signs])


# Sizes at the ends of float64 may overflow on the way; a direction that is no number is turned down
# by the search along it.
@np.errstate(over="ignore", invalid="ignore", divide="ignore")
def newton_direction(
    bank: KernelBank,
    D: Array,
    active: ActiveKernels,
    gradient: Array,
    deadline: Deadline = NEVER,
) -> Array:
    r"""Solve :math:`H \delta = -\nabla\varphi`.

    Where the kernels in use have factors of low rank, the system is solved through them. Up to
    3,000 samples it is formed and factorised, if the bank leaves room for that. Beyond, and where
    several tasks meet, conjugate gradients work on products, preconditioned by what is known: each
    task's own matrix, or the diagonal and all parts of rank one.

    Parameters
    ----------
    bank : KernelBank
    D : ndarray of shape (T, n)
        Curvature of the conjugate loss, >= 0; infinite for samples that cannot move.
    active : ActiveKernels
    gradient : ndarray of shape (T, n)
    deadline : Deadline
        When to give up, by `TimeUp`.

    Returns
    -------
    ndarray of shape (T, n)
        The direction.
    """
    T, n = D.shape
    weights = active.weights(bank.m)
    if isinstance(bank, FactoredBank) and through_factors(bank, active.kernels):
        return _by_factors(bank, D, active, gradient, deadline)
    if n <= bank.square_limit(CHOLESKY_LIMIT, copies=2 + T):
        K = bank.combine(weights)
        if T == 1:
            V, s = active.low_rank(0)
            K += (V.T * s) @ V
            return -cholesky(K, D[0])(gradient[0])[None]
        K += active.intercept_penalty
        floor = FLOOR * float(K.diagonal().mean())
        solves = [cholesky(K.copy(), np.maximum(row, floor)) for row in D]

        def whole(v: Array) -> Array:
            return v @ K + active.bend(v)

        return solve_by_products(whole, D, gradient, solves, floor, deadline=deadline)[0]
    own = weights[active.kernels] @ bank.diag(active.kernels)
    solves = []
    for task in range(T):
        alone = D[task] + own
        solves.append(
            with_low_rank(diagonal(alone), *active.low_rank(task)) if T == 1 else diagonal(alone)
        )
    product = _products(bank, weights, active)
    floor = FLOOR * float(own.mean())
    return solve_by_products(product, D, gradient, solves, floor, deadline=deadline)[0]


def through_factors(bank: KernelBank, kernels: NDArray[np.intp]) -> bool:
    """Whether these kernels have factors of a rank low enough to solve through them."""
    return isinstance(bank, FactoredBank) and bank.ranks[kernels].sum() < _LOW_RANK * bank.n


def _products(bank: KernelBank, weights: Array, active: ActiveKernels) -> Callable[[Array], Array]:
    """Products with H but for D, from the combined matrix if the bank finds that cheaper."""
    if bank.forms_matrix:
        K = bank.combine(weights)

        def kernel_product(v: Array) -> Array:
            return v @ K
    else:
        used = weights[active.kernels]

        def kernel_product(v: Array) -> Array:
            return np.tensordot(used, bank.matvec(v, active.kernels), axes=1)

    def product(v: Array) -> Array:
        level = active.intercept_penalty * v.sum(axis=1, keepdims=True)
        return kernel_product(v) + level + active.bend(v)

    return product


def _by_factors(
    bank: FactoredBank, D: Array, active: ActiveKernels, gradient: Array, deadline: Deadline
) -> Array:
    """Solve through the factors F of the kernels in use: n r^2 instead of n^3."""
    F, owner = bank.factor_of(active.kernels)
    scale = (active.penalty * active.shares)[owner]
    floor = FLOOR * (float((scale @ (F * F)).mean()) + active.intercept_penalty)
    base = np.maximum(D, floor)
    T = len(D)
    solves = []
    for task in range(T):
        V, s = active.low_rank(task) if T == 1 else (np.ones((1, F.shape[1])), None)
        s = np.array([active.intercept_penalty]) if s is None else s
        both = np.concatenate([F, V]), np.concatenate([scale, s])
        solves.append(with_low_rank(diagonal(base[task]), *both))

    def product(v: Array) -> Array:
        level = active.intercept_penalty * v.sum(axis=1, keepdims=True)
        return ((v @ F.T) * scale) @ F + level + active.bend(v)

    return solve_by_products(product, D, gradient, solves, floor, deadline=deadline)[0]


def solve_by_products(
    product: Callable[[Array], Array],
    D: Array,
    gradient: Array,
    solves: list[Solve],
    floor: float,
    most: int = _CG_STEPS,
    tol: float = _CG_TOL,
    deadline: Deadline = NEVER,
) -> tuple[Array, bool]:
    """Solve (D + product) x = -gradient, preconditioned task by task; whether `most` steps did.

    A deadline that passes on the way raises `TimeUp`.
    """
    T, n = gradient.shape
    # A sample that cannot move would only make numbers infinite.
    moving = np.isfinite(D)
    # Samples in a corner of the loss have no curvature of their own.
    D = np.where(moving, np.maximum(D, floor), 0.0)

    def matvec(v: Array) -> Array:
        deadline.check()
        v = v.reshape(T, n)
        return ((D * v + product(v)) * moving).ravel()

    def precondition(v: Array) -> Array:
        rows = v.reshape(T, n)
        solved = [solve(row) for solve, row in zip(solves, rows, strict=True)]
        return (np.array(solved) * moving).ravel()

    right = -(gradient * moving).ravel()
    x, enough = np.zeros(T * n), tol * float(np.linalg.norm(right))
    steps = conjugate_gradients(matvec, precondition, right)
    for length, direction, left in islice(steps, most):
        x += length * direction
        if float(np.linalg.norm(left)) <= enough:
            return x.reshape(T, n), True
    return x.reshape(T, n), not np.any(right)
