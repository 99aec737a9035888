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

from kernelweave.arrays import Array, Index
from kernelweave.deadline import NEVER, Deadline
from kernelweave.linear_systems import Solve, cholesky, conjugate_gradients, with_low_rank
from kernelweave.operators.base import KernelOperator

__all__ = ["FactorSum", "FormedSum", "KernelSum", "ProductSum", "kernel_sum"]

# Up to this many samples a sum is formed whatever the bank: that costs as much as one product for
# each sample, and the systems of an inner problem take thousands. Beyond, it is if the bank works
# with rows, up to a matrix of 3.2 GB.
ANY_BANK, MOST_SAMPLES = 3000, 20_000
# Factors serve where their rank is below this share of n: with n r^2 operations for a system and
# n r for a product they are then quicker than a matrix.
_LOW_RANK = 0.3
# Least curvature of a sample, relative to the kernels': a factor then loses half of its digits at
# most, and conjugate gradients restore them.
_FLOOR = 1e-9
# From this share of hard samples on all of them go into the factor: it was to cost half as much.
_NEARLY_ALL = 0.8
# A solver made for other curvatures serves on while none has changed by more than this factor. The
# condition number is then at most its square, c = 9, so that sqrt(c) / 2 log(2 / tolerance) = 11
# products suffice.
_SIMILAR, _FEW_STEPS = 3.0, 15
# Most products for a system: enough for condition numbers of 17,000. Beyond, what they have come to
# is a direction of descent all the same.
_STEPS = 500


class KernelSum(ABC):
    """The K of a Newton step, for vectors of length N = T n; `diagonal` is that of one task.

    A deadline that passes raises `TimeUp`.
    """

    # Whether a product costs little beside a pass over the kernels.
    quick = False
    # Residual that is small enough beside the gradient: the next direction makes up for it.
    tolerance = 1e-3

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

        x, enough = np.zeros_like(g), self.tolerance * float(np.linalg.norm(g))
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
    # Up to this many rows a factor of the whole system is quicker than conjugate gradients.
    most_whole = 1000
    # Most samples of a factor, which take as long as a thousand products with the matrix; beyond,
    # those with the least curvature.
    most_hard = 10_000

    def __init__(self, matrix: Array, n_tasks: int, deadline: Deadline = NEVER) -> None:
        super().__init__(matrix.diagonal(), n_tasks, deadline)
        self.matrix = matrix

    def product(self, v: Array) -> Array:
        return (v.reshape(self._shape) @ self.matrix).ravel()

    def solve(self, D: Array, V: Array, s: Array, g: Array) -> Array:
        T = self._shape[0]
        if len(D) > self.most_whole:
            return super().solve(D, V, s, g)
        whole = self.matrix if T == 1 else np.kron(np.eye(T), self.matrix)
        return -cholesky(whole + (V.T * s) @ V, D)(g)

    def _nearly(self, D: Array) -> Solve:
        K, own = self.matrix, self._own[: len(D)]
        hard = own > D
        if hard.sum() > _NEARLY_ALL * len(D):
            hard[:] = True
        if hard.sum() > self.most_hard:
            hard[:] = False
            hard[np.argpartition(D, self.most_hard)[: self.most_hard]] = True
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
        bank: KernelOperator,
        kernels: Index,
        weights: Array,
        n_tasks: int,
        deadline: Deadline = NEVER,
    ) -> None:
        super().__init__(weights @ bank.diagonal(kernels), n_tasks, deadline)
        self._bank, self._kernels, self._weights = bank, kernels, weights

    def product(self, v: Array) -> Array:
        products = self._bank.apply(v.reshape(self._shape), self._kernels)
        return np.tensordot(self._weights, products, axes=1).ravel()

    def _nearly(self, D: Array) -> Solve:
        total = D + self._own[: len(D)]
        return lambda v: (v.T / total).T


def kernel_sum(
    bank: KernelOperator,
    kernels: Index,
    weights: Array,
    n_tasks: int,
    deadline: Deadline = NEVER,
) -> KernelSum:
    """Return the sum of these kernels with these weights, in the form that is quickest.

    Those are factors where the kernels have some of low rank. Else it is a matrix, if there is room
    for it, for its part and its factor for each task. With many samples banks whose products take
    no rows are quicker by products.
    """
    if bank.ranks is not None and bank.ranks[kernels].sum() < _LOW_RANK * bank.n:
        F, owner = bank.factor_of(kernels)
        return FactorSum(F, weights[owner], n_tasks, deadline)
    most = MOST_SAMPLES if bank.quick_sums else ANY_BANK
    if bank.n > bank.square_limit(most, copies=2 + n_tasks):
        return ProductSum(bank, kernels, weights, n_tasks, deadline)
    d = np.zeros(bank.m)
    d[kernels] = weights
    return FormedSum(bank.weighted(d), n_tasks, deadline)
