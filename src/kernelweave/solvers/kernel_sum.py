r"""The sum of the kernels in use in a Newton step of SpicyMKL: products, and systems with it.

A system is :math:`(K + \operatorname{diag}(D) + V^\top \operatorname{diag}(s) V)\, x = -g`, all
tasks in one vector, with K the same for each of them. The curvature D of the samples is of very
different size: nothing for those in a corner of the loss (support vectors between the bounds), and
far above the kernels' for most others. The first are hard, and few: they are solved by a Cholesky
factor. The others are easy: beside D, what the kernels add is next to nothing once the hard ones
have answered.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from kernelweave.bank.factored import FactoredBank
from kernelweave.bank.protocol import KernelBank
from kernelweave.bank.stacked import StackedBank
from kernelweave.deadline import NEVER, Deadline
from kernelweave.linear_systems import Solve, cholesky, conjugate_gradients, with_low_rank
from kernelweave.problem import Array

__all__ = ["FactorSum", "FormedSum", "KernelSum", "ProductSum", "kernel_sum"]

# Up to this many samples a sum is formed whatever the bank; beyond, if the bank works with rows.
ANY_BANK, MOST_SAMPLES = 3000, 20_000
# Factors serve where their rank is below this share of n: with n r^2 operations for a system and
# n r for a product they are then quicker than a matrix.
_LOW_RANK = 0.3
# Least curvature of a sample, relative to the kernels'.
_FLOOR = 1e-9
# From this share of hard samples on all of them go into the factor: it was to cost half as much.
_NEARLY_ALL = 0.8
# Most samples of a factor, which take as long as a thousand products with the matrix; beyond, those
# with the least curvature.
_MOST_HARD = 10_000
# A solver made for other curvatures serves on while none has changed by more than this factor. The
# condition number is then at most its square, c = 9, so that sqrt(c) / 2 log(2 / _TOL) = 11
# products suffice.
_SIMILAR, _FEW_STEPS = 3.0, 15
# Most products for a system.
_STEPS = 500
# Residual that is small enough beside the gradient: the next direction makes up for it.
_TOL = 1e-3


class KernelSum(ABC):
    """The K of a Newton step, for vectors of length N = T n.

    Parameters
    ----------
    diagonal : ndarray of shape (n,)
        That of the sum for one task.
    n_tasks : int
    deadline : Deadline
        When to give up, by `TimeUp`.
    """

    # Whether a product costs little beside a pass over the kernels.
    quick = False

    def __init__(self, diagonal: Array, n_tasks: int, deadline: Deadline = NEVER) -> None:
        self._shape, self._deadline = (n_tasks, len(diagonal)), deadline
        self._own = np.tile(np.maximum(diagonal, 0.0), n_tasks)
        self._floor = _FLOOR * float(self._own.mean())
        self._known: tuple[Array, Solve] | None = None

    @abstractmethod
    def product(self, v: Array) -> Array:
        """K v."""

    @abstractmethod
    def _nearly(self, D: Array) -> Solve:
        """Solve with K + diag(D) for one task, nearly; takes columns too."""

    def solve(self, D: Array, V: Array, s: Array, g: Array) -> Array:
        """Return the x of the system, by preconditioned conjugate gradients."""
        # Where no kernel is in use the samples themselves are the measure.
        D = np.maximum(D, self._floor or _FLOOR * float(D.max()) or 1.0)
        if self._known is not None and self._similar(D, self._known[0]):
            x, enough = self._iterate(D, V, s, g, self._known[1], _FEW_STEPS)
            if enough:
                return x
        tasks = [self._nearly(row) for row in D.reshape(self._shape)]
        self._known = D, tasks[0] if len(tasks) == 1 else _each(tasks)
        return self._iterate(D, V, s, g, self._known[1], _STEPS)[0]

    def _similar(self, D: Array, known: Array) -> bool:
        """Whether a solver made for the curvatures `known` serves for D."""
        base = 0.1 * self._own + self._floor
        ratio = (D + base) / (known + base)
        return bool(np.all((ratio < _SIMILAR) & (ratio > 1.0 / _SIMILAR)))

    def _iterate(
        self, D: Array, V: Array, s: Array, g: Array, nearly: Solve, most: int
    ) -> tuple[Array, bool]:
        """Return x, and whether `most` products sufficed for it."""

        def product(v: Array) -> Array:
            self._deadline.check()
            return D * v + self.product(v) + (s * (V @ v)) @ V

        x, enough = np.zeros_like(g), _TOL * float(np.linalg.norm(g))
        for length, way, left in islice(
            conjugate_gradients(product, with_low_rank(nearly, V, s), -g), most
        ):
            x += length * way
            if float(np.linalg.norm(left)) <= enough:
                return x, True
        return x, not np.any(g)


def _each(tasks: list[Solve]) -> Solve:
    def solve(v: Array) -> Array:
        parts = np.split(v, len(tasks))
        return np.concatenate([one(part) for one, part in zip(tasks, parts, strict=True)])

    return solve


class FormedSum(KernelSum):
    """A matrix, factorised on the hard samples."""

    quick = True

    def __init__(self, matrix: Array, n_tasks: int, deadline: Deadline = NEVER) -> None:
        super().__init__(matrix.diagonal(), n_tasks, deadline)
        self.matrix = matrix

    def product(self, v: Array) -> Array:
        return (v.reshape(self._shape) @ self.matrix).ravel()

    def exact(self, D: Array, V: Array, s: Array, g: Array) -> Array:
        """Return the x of the system from a factor of its whole matrix."""
        T = self._shape[0]
        whole = self.matrix if T == 1 else np.kron(np.eye(T), self.matrix)
        return -cholesky(whole + (V.T * s) @ V, D)(g)

    def _nearly(self, D: Array) -> Solve:
        K, own = self.matrix, self._own[: len(D)]
        hard = own > D
        if hard.sum() > _NEARLY_ALL * len(D):
            hard[:] = True
        if hard.sum() > _MOST_HARD:
            hard[:] = False
            hard[np.argpartition(D, _MOST_HARD)[:_MOST_HARD]] = True
        F, easy = np.flatnonzero(hard), np.flatnonzero(~hard)
        diagonal = D[easy] + own[easy]
        inner, cross = cholesky(K[np.ix_(F, F)], D[F]), K[np.ix_(easy, F)]

        def solve(v: Array) -> Array:
            x, known = np.zeros_like(v), inner(v[F])
            x[easy] = ((v[easy] - cross @ known).T / diagonal).T
            x[F] = known - inner(cross.T @ x[easy])
            return x

        return solve


class FactorSum(KernelSum):
    """Factors F of low rank, K = F'diag(scale) F: n r^2 operations in place of n^3."""

    def __init__(self, F: Array, scale: Array, n_tasks: int, deadline: Deadline = NEVER) -> None:
        super().__init__(scale @ (F * F), n_tasks, deadline)
        self._F, self._scale = F, scale

    def product(self, v: Array) -> Array:
        v = v.reshape(self._shape)
        return (((v @ self._F.T) * self._scale) @ self._F).ravel()

    def _nearly(self, D: Array) -> Solve:
        return with_low_rank(lambda v: (v.T / D).T, self._F, self._scale)


class ProductSum(KernelSum):
    """Products with the kernels themselves, and their diagonal."""

    def __init__(
        self,
        bank: KernelBank,
        kernels: NDArray[np.intp],
        weights: Array,
        n_tasks: int,
        deadline: Deadline = NEVER,
    ) -> None:
        super().__init__(weights @ bank.diag(kernels), n_tasks, deadline)
        self._bank, self._kernels, self._weights = bank, kernels, weights

    def product(self, v: Array) -> Array:
        products = self._bank.matvec(v.reshape(self._shape), self._kernels)
        return np.tensordot(self._weights, products, axes=1).ravel()

    def _nearly(self, D: Array) -> Solve:
        total = D + self._own[: len(D)]
        return lambda v: (v.T / total).T


def kernel_sum(
    bank: KernelBank,
    kernels: NDArray[np.intp],
    weights: Array,
    n_tasks: int,
    deadline: Deadline = NEVER,
) -> KernelSum:
    """Return the sum of these kernels with these weights, in the form that is quickest.

    Those are factors where the kernels have some of low rank. Else it is a matrix, if there is room
    for it, for its part and its factor for each task. With many samples banks whose products take
    no rows are quicker by products.
    """
    if isinstance(bank, FactoredBank) and bank.ranks[kernels].sum() < _LOW_RANK * bank.n:
        F, owner = bank.factor_of(kernels)
        return FactorSum(F, weights[owner], n_tasks, deadline)
    parts = bank.parts if isinstance(bank, StackedBank) else (bank,)
    rows = any(part.keeps_rows or part.forms_matrix for part in parts)
    most = MOST_SAMPLES if rows else ANY_BANK
    if bank.n > bank.square_limit(most, copies=2 + n_tasks):
        return ProductSum(bank, kernels, weights, n_tasks, deadline)
    d = np.zeros(bank.m)
    d[kernels] = weights
    return FormedSum(bank.combine(d), n_tasks, deadline)
