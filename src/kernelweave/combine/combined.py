"""Kernels that a combination makes of others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from kernelweave.arrays import Array
from kernelweave.cached import cached_property
from kernelweave.compiled.threads import map_blocks
from kernelweave.errors import InvalidInputError
from kernelweave.operators.base import KernelOperator, Which, kernel_indices, kernel_runs, row_step
from kernelweave.operators.bounds import semi_definite

if TYPE_CHECKING:
    from kernelweave.combine.base import Combination

# Samples whose diagonal entries are taken from one square part, of which the rest is wasted.
_SQUARE = 64
# What an operator may leave out, relative to the trace: factors are refined down to 1e-12 of it.
_EXACT = 1e-11


class CombinedOperator(KernelOperator):
    r"""The kernel :math:`K(w)` that a combination makes of its base matrices.

    Where :math:`K(d)` is linear in d it is :math:`\sum_k d_k G_k` with :math:`G_k = K(e_k)`,
    whatever each :math:`G_k` is made of, and on the operator of all :math:`G_k` such a problem is
    one that every solver knows (:meth:`of_linear`).

    Parameters
    ----------
    combination : Combination
        What makes a kernel of weights.
    base : KernelOperator
        Its base matrices.
    weights : ndarray of shape (m, base.m)
        The weights w of each kernel; one kernel unless the combination is linear.
    names : sequence of str
        Names of the kernels.
    dtype : numpy dtype
        Type of sums.

    Examples
    --------
    >>> from kernelweave.combine import WeightedSum
    >>> from kernelweave.operators import DenseOperator
    >>> base = DenseOperator([np.eye(2), np.ones((2, 2))])
    >>> CombinedOperator.of_linear(WeightedSum(), base).quad(np.array([1.0, 2.0]))
    array([5., 9.])
    """

    keeps_rows = computes_rows = True

    def __init__(
        self,
        combination: Combination,
        base: KernelOperator,
        weights: Array,
        names: list[str],
        dtype: DTypeLike = np.float64,
    ) -> None:
        self._combination, self._base, self._dtype = combination, base, np.dtype(dtype)
        self._weights, self.names = weights, names
        self.n, self.m = base.n, len(weights)
        self.matrix_limit, self.cache_mb = base.matrix_limit, base.cache_mb

    @classmethod
    def of_linear(cls, combination: Combination, base: KernelOperator) -> CombinedOperator:
        """Return the kernels of a combination, on the most exact operator that the base leads to.

        What an inexact operator leaves open is known of its own matrices, not of what a
        combination makes of them.
        """
        if combination.base == "kernels":
            while (finer := base.refined()) is not None:
                base = finer
            missing = base.error(np.ones(base.n), np.ones(base.m)).quad_missing
            # The sum of all entries is at most n times the trace.
            if np.any(missing > _EXACT * base.n * base.diagonal().sum(axis=1)):
                raise InvalidInputError(
                    f"the combination {combination!r} needs exact matrices, and those of "
                    f"{type(base).__name__} are approximate; use bank='lazy' or 'dense'."
                )
        nothing = cls(combination, base, np.zeros((1, base.m)), ["nothing"])
        # A kernel with a diagonal of zeros is zero everywhere.
        if np.any(nothing.diagonal()):
            raise InvalidInputError(
                f"the combination {combination!r} declares linear = True, but K(0) is not zero; "
                "K(d) must be a sum of d_k times kernels. Declare linear = False."
            )
        return cls(combination, base, np.eye(base.m), list(base.names))

    @cached_property
    def work_bytes(self) -> float:
        return self._base.work_bytes

    def block(self, rows: Which = None, columns: Which = None, kernels: Which = None) -> Array:
        part = self._base.part(rows, columns, self._dtype)
        chosen = kernel_indices(kernels, self.m)
        out = np.empty((len(chosen), *part.shape), self._dtype)
        for place, k in enumerate(chosen):
            out[place] = self._combination.values(part, self._weights[k])
        return out

    def _apply(self, tasks: Array, chosen: Array, rows: Which) -> Array:
        if not self._combination.is_sum:
            return super()._apply(tasks, chosen, rows)
        out = np.zeros((len(chosen), len(tasks), self.n if rows is None else len(rows)))
        active = np.flatnonzero(self._weights[chosen].any(axis=0))
        for run in kernel_runs(len(active), out[0].size):
            parts = self._base.apply(tasks, active[run], rows)
            out += np.tensordot(self._weights[np.ix_(chosen, active[run])], parts, axes=1)
        return out

    def quad(self, v: Array, kernels: Which = None) -> Array:
        if not self._combination.linear:
            return super().quad(v, kernels)
        # The derivative of a linear K is the same for all weights.
        chosen, nowhere = kernel_indices(kernels, self.m), np.zeros(self._base.m)
        slopes = self._combination.derivative_quad(self._base, nowhere, v)
        return semi_definite(self._weights[chosen] @ slopes, v, self, chosen)

    def weighted(
        self, d: ArrayLike, rows: Which = None, columns: Which = None, out: Array | None = None
    ) -> Array:
        d = np.asarray(d, dtype=np.float64)
        # Of a linear K the sum is one of its values; others have one kernel.
        linear = self._combination.linear
        factor, weights = (1.0, d @ self._weights) if linear else (d[0], self._weights[0])
        idx = np.arange(self.n) if rows is None else np.asarray(rows)
        width = self.n if columns is None else len(columns)
        total = np.empty((len(idx), width), self._dtype) if out is None else out
        whole = rows is None and columns is None

        def values(rows: Array, columns: Which) -> Array:
            K = self._combination.values(self._base.part(rows, columns, total.dtype), weights)
            return K if factor == 1.0 else factor * K

        def work(first: int, last: int) -> None:
            if not whole:
                total[first:last] = values(idx[first:last], columns)
                return
            # What is right of the square on the diagonal stands for its mirror image, too.
            found = values(idx[first:last], idx[first:])
            total[first:last, first:] = found
            total[last:, first:last] = found[:, last - first :].T

        map_blocks(work, len(idx), row_step(width))
        return total

    def diagonal(self, kernels: Which = None) -> Array:
        chosen = kernel_indices(kernels, self.m)
        out = np.empty((len(chosen), self.n))
        for first in range(0, self.n, _SQUARE):
            some = np.arange(first, min(first + _SQUARE, self.n))
            part = self._base.part(some, some)
            for place, k in enumerate(chosen):
                out[place, some] = self._combination.values(part, self._weights[k]).diagonal()
        return out

    def take(self, idx: Array) -> CombinedOperator:
        return self._but(_base=self._base.take(idx), n=len(idx))

    def select(self, kernels: Array) -> CombinedOperator:
        chosen = kernel_indices(kernels, self.m)
        names = [self.names[k] for k in chosen]
        return self._but(_weights=self._weights[chosen], names=names, m=len(chosen))
