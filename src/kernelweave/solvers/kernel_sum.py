r"""The sum of the kernels in use in a Newton step of SpicyMKL: products, and systems with it.

A system is :math:`(K + \operatorname{diag}(D) + V^\top \operatorname{diag}(s) V)\, x = -g`, all
tasks in one vector, with K the same for each of them. The curvature D of the samples is of very
different size: nothing for those in a corner of the loss (support vectors between the bounds), and
far above the kernels' for most others. The first are hard, and few: they are solved by a Cholesky
factor. The others are easy: beside D, what the kernels add is next to nothing once the hard ones
have answered.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice

import numpy as np

from kernelweave.arrays import Array, Index
from kernelweave.deadline import NEVER, Deadline
from kernelweave.linear_systems import (
    Solve,
    cholesky,
    conjugate_gradients,
    diagonal,
    with_low_rank,
)
from kernelweave.operators.base import KernelOperator

# Up to this many samples a sum is formed whatever the bank: that costs as much as one product for
# each sample, and the systems of an inner problem take thousands. Beyond, it is if the bank works
# with rows, up to a matrix of 3.2 GB.
_ANY_BANK, _MOST_SAMPLES = 3000, 20_000
# Most samples of a factor, which take as long as a thousand products with the matrix; beyond, those
# with the least curvature.
_MOST_HARD = 10_000
# Residual that is small enough beside the gradient: the next direction makes up for it.
_ENOUGH = 1e-3
# Factors serve where their rank is below this share of n: with n r^2 operations for a system and
# n r for a product they are then quicker than a matrix.
_LOW_RANK = 0.3
# Least curvature of a sample, relative to the kernels': a factor then loses half of its digits at
# most, and conjugate gradients restore them.
_FLOOR = 1e-9
# Most products for a system: enough for condition numbers of 17,000. Beyond, what they have come to
# is a direction of descent all the same.
_STEPS = 500


@dataclass(eq=False)
class KernelSum:
    """The K of a Newton step, for vectors of length N = T n.

    `own` is the diagonal of K for one task; `times` gives K v for every row of v, shape (T, n);
    `nearly`, of the curvatures D of one task, how to solve with K + diag(D), nearly, columns too.
    Where K is formed it is the `matrix`: a product then costs little beside a pass over the
    kernels.
    """

    own: Array
    times: Callable[[Array], Array]
    nearly: Callable[[Array], Solve]
    matrix: Array | None = None

    def product(self, v: Array) -> Array:
        """K v."""
        return self.times(v.reshape(-1, len(self.own))).ravel()

    def solve(
        self,
        D: Array,
        V: Array,
        s: Array,
        g: Array,
        enough: float = _ENOUGH,
        deadline: Deadline = NEVER,
    ) -> Array:
        """Return the x of the system, by conjugate gradients preconditioned by `nearly`.

        These end where the residual is `enough` beside g. When the deadline passes, `TimeUp` is
        raised.
        """
        # Where no kernel is in use the samples themselves are the measure.
        D = np.maximum(D, _FLOOR * (float(self.own.mean()) or float(D.max())) or 1.0)
        tasks = [self.nearly(row) for row in D.reshape(-1, len(self.own))]

        def each(v: Array) -> Array:
            parts = np.split(v, len(tasks))
            return np.concatenate([one(part) for one, part in zip(tasks, parts, strict=True)])

        def product(v: Array) -> Array:
            deadline.check()
            return D * v + self.product(v) + (s * (V @ v)) @ V

        nearly = with_low_rank(each, V, s)
        x, small = np.zeros_like(g), enough * float(np.linalg.norm(g))
        for length, way, left in islice(conjugate_gradients(product, nearly, -g), _STEPS):
            x += length * way
            if float(np.linalg.norm(left)) <= small:
                break
        return x


def formed_sum(K: Array, most_hard: int = _MOST_HARD) -> KernelSum:
    """Return a sum that is a matrix, factorised on the hard samples, at most so many of them."""
    own = np.maximum(K.diagonal(), 0.0)

    def nearly(D: Array) -> Solve:
        hard = own > D
        if hard.sum() > most_hard:
            hard[:] = False
            hard[np.argpartition(D, most_hard)[:most_hard]] = True
        F, easy = np.flatnonzero(hard), np.flatnonzero(~hard)
        total = D[easy] + own[easy]
        inner, cross = cholesky(K[np.ix_(F, F)], D[F]), K[np.ix_(easy, F)]

        def solve(v: Array) -> Array:
            x, known = np.zeros_like(v), inner(v[F])
            x[easy] = ((v[easy] - cross @ known).T / total).T
            x[F] = known - inner(cross.T @ x[easy])
            return x

        return solve

    return KernelSum(own, lambda v: v @ K, nearly, K)


def factor_sum(F: Array, scale: Array) -> KernelSum:
    """Return the sum F'diag(scale) F of low rank: n r^2 operations in place of n^3."""
    own = np.maximum(scale @ (F * F), 0.0)
    return KernelSum(
        own,
        lambda v: ((v @ F.T) * scale) @ F,
        lambda D: with_low_rank(diagonal(D), F, scale),
    )


def product_sum(bank: KernelOperator, kernels: Index, weights: Array) -> KernelSum:
    """Return a sum that is known by products with the kernels themselves, and their diagonal."""
    own = np.maximum(weights @ bank.diagonal(kernels), 0.0)

    def times(v: Array) -> Array:
        return np.tensordot(weights, bank.apply(v, kernels), axes=1)

    return KernelSum(own, times, lambda D: diagonal(D + own))


def kernel_sum(bank: KernelOperator, kernels: Index, weights: Array, n_tasks: int = 1) -> KernelSum:
    """Return the sum of these kernels with these weights, in the form that is quickest.

    Those are factors where the kernels have some of low rank. Else it is a matrix, if there is room
    for it, for its part and its factor for each task. With many samples banks whose products take
    no rows are quicker by products.
    """
    if bank.ranks is not None and bank.ranks[kernels].sum() < _LOW_RANK * bank.n:
        F, owner = bank.factor_of(kernels)
        return factor_sum(F, weights[owner])
    most = _MOST_SAMPLES if bank.quick_sums else _ANY_BANK
    if bank.n > bank.square_limit(most, copies=2 + n_tasks):
        return product_sum(bank, kernels, weights)
    d = np.zeros(bank.m)
    d[kernels] = weights
    return formed_sum(bank.weighted(d))
