"""The kernels of a combination that is linear in the weights, as an operator of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from kernelweave.combine.tiles import fill_symmetric
from kernelweave.compiled.threads import map_blocks
from kernelweave.errors import InvalidInputError
from kernelweave.operators.base import (
    Array,
    KernelOperator,
    Kind,
    Which,
    kernel_indices,
    row_step,
    semi_definite,
)

if TYPE_CHECKING:
    from kernelweave.combine.base import Combination

__all__ = ["LinearOperator"]

# Samples whose diagonal entries are taken from one square part.
_SQUARE = 64
# What an operator may leave out, relative to the trace: factors are refined down to 1e-12 of it.
_EXACT = 1e-11


class LinearOperator(KernelOperator):
    r"""The kernels :math:`G_k = K(e_k)` of a linear combination, for which it is a weighted sum.

    Where :math:`K(d)` is linear it is :math:`\sum_k d_k G_k`, whatever each :math:`G_k` is made of.
    On this operator such a problem is one that every solver knows.

    Parameters
    ----------
    combination : Combination
        One with ``linear = True``.
    base : KernelOperator
        Its base matrices.
    members : array of int, optional
        The weights whose kernels these are, by default all.

    Examples
    --------
    >>> from kernelweave.combine import WeightedSum
    >>> from kernelweave.operators import DenseOperator
    >>> base = DenseOperator([np.eye(2), np.ones((2, 2))])
    >>> LinearOperator(WeightedSum(), base).quad(np.array([1.0, 2.0]))
    array([5., 9.])
    """

    keeps_rows = True

    def __init__(
        self, combination: Combination, base: KernelOperator, members: Array | None = None
    ) -> None:
        self._combination, self._base = combination, base
        self._members = kernel_indices(members, base.m)
        self.n, self.m = base.n, len(self._members)
        self.names = [base.names[k] for k in self._members]
        self.matrix_limit, self.cache_mb = base.matrix_limit, base.cache_mb

    @classmethod
    def of(cls, combination: Combination, base: KernelOperator) -> LinearOperator:
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
        out = cls(combination, base)
        # A kernel with a diagonal of zeros is zero everywhere.
        if np.any(out._diagonal(np.zeros(base.m))):
            raise InvalidInputError(
                f"the combination {combination!r} declares linear = True, but K(0) is not zero; "
                "K(d) must be a sum of d_k times kernels. Declare linear = False."
            )
        return out

    def _weights(self, d: ArrayLike) -> Array:
        """Weights of all kernels of the combination: zero for those that are not here."""
        out = np.zeros(self._base.m)
        out[self._members] = d
        return out

    def _unit(self, k: int) -> Array:
        return np.eye(1, self._base.m, int(self._members[k]))[0]

    @property
    def nbytes(self) -> int:
        """Bytes of the base matrices."""
        return self._base.nbytes

    def block(
        self, rows: Which = None, columns: Which = None, kernels: Which = None, dtype: Kind = None
    ) -> Array:
        part = self._base.part(rows, columns)
        chosen = kernel_indices(kernels, self.m)
        out = np.empty((len(chosen), *part.shape), np.float64 if dtype is None else dtype)
        for place, k in enumerate(chosen):
            out[place] = self._combination.values(part, self._unit(k))
        return out

    def quad(self, v: Array, kernels: Which = None) -> Array:
        """See :class:`KernelOperator`; the derivative of a linear K is the same for all weights."""
        chosen = kernel_indices(kernels, self.m)
        nowhere = np.zeros(self._base.m)
        quad = self._combination.derivative_quad(self._base, nowhere, v)
        return semi_definite(quad[self._members[chosen]], v, self, chosen)

    def weighted(
        self, d: ArrayLike, rows: Which = None, columns: Which = None, out: Array | None = None
    ) -> Array:
        weights, values = self._weights(d), self._combination.values
        if rows is not None and columns is not None:
            found = values(self._base.part(rows, columns), weights)
            if out is None:
                return found
            out[...] = found
            return out
        if rows is None and columns is None:
            out = np.empty((self.n, self.n)) if out is None else out
            fill_symmetric(self._base, lambda part: values(part, weights), out)
            return out
        idx = np.arange(self.n) if rows is None else np.asarray(rows)
        width = self.n if columns is None else len(columns)
        total = np.empty((len(idx), width)) if out is None else out

        def work(first: int, last: int) -> None:
            total[first:last] = values(
                self._base.part(idx[first:last], columns, total.dtype), weights
            )

        map_blocks(work, len(idx), row_step(width))
        return total

    def _diagonal(self, weights: Array) -> Array:
        out = np.empty(self.n)
        for first in range(0, self.n, _SQUARE):
            part = np.arange(first, min(first + _SQUARE, self.n))
            out[part] = self._combination.values(self._base.part(part, part), weights).diagonal()
        return out

    def diagonal(self, kernels: Which = None) -> Array:
        chosen = kernel_indices(kernels, self.m)
        return np.array([self._diagonal(self._unit(k)) for k in chosen]).reshape(-1, self.n)

    def take(self, idx: Array) -> LinearOperator:
        return LinearOperator(self._combination, self._base.take(idx), self._members)

    def select(self, kernels: Array) -> LinearOperator:
        return LinearOperator(self._combination, self._base, self._members[kernels])
