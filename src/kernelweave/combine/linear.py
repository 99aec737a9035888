"""The kernels of a combination that is linear in the weights, as a bank of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kernelweave.bank.protocol import (
    Array,
    ErrorBound,
    KernelBank,
    MatrixBank,
    kernel_indices,
    semi_definite,
)
from kernelweave.combine.tiles import fill_symmetric, row_step
from kernelweave.compiled.blocks import STACK_ENTRIES, rows_of
from kernelweave.compiled.threads import map_blocks
from kernelweave.errors import InvalidInputError

if TYPE_CHECKING:
    from kernelweave.combine.base import Combination

__all__ = ["LinearBank"]

# Samples whose diagonal entries are taken from one square tile.
_SQUARE = 64
# What a bank may leave out, relative to the trace: factors are refined down to 1e-12 of it.
_EXACT = 1e-11


class LinearBank(KernelBank):
    r"""The kernels :math:`G_k = K(e_k)` of a linear combination, for which it is a weighted sum.

    Where :math:`K(d)` is linear it is :math:`\sum_k d_k G_k`, whatever each :math:`G_k` is made of.
    On this bank such a problem is one that every solver knows.

    Parameters
    ----------
    combination : Combination
        One with ``linear = True``.
    base : MatrixBank
        Its base matrices.
    members : array of int, optional
        The weights whose kernels these are, by default all.

    Examples
    --------
    >>> from kernelweave.bank import DenseBank
    >>> from kernelweave.combine import WeightedSum
    >>> base = DenseBank().from_matrices([np.eye(2), np.ones((2, 2))])
    >>> LinearBank(WeightedSum(), base).quad(np.array([1.0, 2.0]))
    array([5., 9.])
    """

    keeps_rows = True

    def __init__(
        self, combination: Combination, base: MatrixBank, members: Array | None = None
    ) -> None:
        self._combination, self._base = combination, base
        self._members = kernel_indices(members, base.m)
        self.n, self.m = base.n, len(self._members)
        self.names = [base.names[k] for k in self._members]
        self.matrix_limit, self.cache_mb = base.matrix_limit, base.cache_mb

    @classmethod
    def of(cls, combination: Combination, bank: MatrixBank) -> LinearBank:
        """Return the kernels of a combination on a bank, or on the most exact one it leads to.

        What an inexact bank leaves open is known of its own matrices, not of what a combination
        makes of them.
        """
        while isinstance(bank, KernelBank) and (finer := bank.refined()) is not None:
            bank = finer
        if isinstance(bank, KernelBank):
            missing = bank.error(np.ones(bank.n), np.ones(bank.m)).quad_missing
            # The sum of all entries is at most n times the trace.
            if np.any(missing > _EXACT * bank.n * bank.diag().sum(axis=1)):
                raise InvalidInputError(
                    f"the combination {combination!r} needs exact matrices, and those of "
                    f"{type(bank).__name__} are approximate; use bank='lazy' or 'dense'."
                )
        out = cls(combination, bank)
        # A kernel with a diagonal of zeros is zero everywhere.
        if np.any(out._diagonal(np.zeros(bank.m))):
            raise InvalidInputError(
                f"the combination {combination!r} declares linear = True, but K(0) is not zero; "
                "K(d) must be a sum of d_k times kernels. Declare linear = False."
            )
        return out

    def _weights(self, d: Array) -> Array:
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

    def rows(self, idx: Array, kernels: Array | None = None, columns: Array | None = None) -> Array:
        tile = self._base.tile(np.asarray(idx), columns)
        chosen = kernel_indices(kernels, self.m)
        out = np.empty((len(chosen), *tile.shape))
        for place, k in enumerate(chosen):
            out[place] = self._combination.values(tile, self._unit(k))
        return out

    def matvec(self, v: Array, kernels: Array | None = None) -> Array:
        return self.products_at(v, np.arange(self.n), kernels)

    def products_at(self, v: Array, idx: Array, kernels: Array | None = None) -> Array:
        v, idx = np.asarray(v, dtype=np.float64), np.asarray(idx)
        chosen = kernel_indices(kernels, self.m)
        used = np.flatnonzero(np.atleast_2d(v).any(axis=0))
        out = np.zeros((len(chosen), *v.shape[:-1], len(idx)))
        if not len(used) or not len(chosen):
            return out
        turned = v[..., used].T

        def work(first: int, last: int) -> None:
            # (m, q, s) @ (s, T) and its last two axes exchanged.
            products = self.rows(idx[first:last], chosen, used) @ turned
            out[..., first:last] = products if v.ndim == 1 else products.transpose(0, 2, 1)

        map_blocks(work, len(idx), rows_of(len(chosen) * len(used), STACK_ENTRIES))
        return out

    def quad(self, v: Array, kernels: Array | None = None) -> Array:
        """See :class:`KernelBank`; the derivative of a linear K is the same for all weights."""
        chosen = kernel_indices(kernels, self.m)
        nowhere = np.zeros(self._base.m)
        quad = self._combination.derivative_quad(self._base, nowhere, v)
        return semi_definite(quad[self._members[chosen]], v, self, chosen)

    def combine(self, d: Array, out: Array | None = None) -> Array:
        out = np.empty((self.n, self.n)) if out is None else out
        weights = self._weights(d)
        fill_symmetric(self._base, lambda tile: self._combination.values(tile, weights), out)
        return out

    def combine_rows(self, d: Array, idx: Array, out: Array) -> Array:
        weights = self._weights(d)

        def work(first: int, last: int) -> None:
            tile = self._base.tile(idx[first:last], None, out.dtype)
            out[first:last] = self._combination.values(tile, weights)

        map_blocks(work, len(idx), row_step(self.n))
        return out

    def combine_block(self, d: Array, idx: Array) -> Array:
        return self._combination.values(self._base.tile(idx, idx), self._weights(d))

    def _diagonal(self, weights: Array) -> Array:
        out = np.empty(self.n)
        for first in range(0, self.n, _SQUARE):
            part = np.arange(first, min(first + _SQUARE, self.n))
            out[part] = self._combination.values(self._base.tile(part, part), weights).diagonal()
        return out

    def diag(self, kernels: Array | None = None) -> Array:
        chosen = kernel_indices(kernels, self.m)
        return np.array([self._diagonal(self._unit(k)) for k in chosen]).reshape(-1, self.n)

    def error(self, v: Array, d: Array) -> ErrorBound:
        return ErrorBound.none(self.m)

    def take(self, idx: Array) -> LinearBank:
        return LinearBank(self._combination, self._base.take(idx), self._members)

    def select(self, kernels: Array) -> LinearBank:
        return LinearBank(self._combination, self._base, self._members[kernels])
