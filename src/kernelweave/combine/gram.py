"""K(d) as the single-kernel solvers see it, and kernels that a combination makes of others."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from kernelweave.compiled.blocks import CACHED_COLUMNS
from kernelweave.compiled.dense_rows import add_rows, rows_product, square_block
from kernelweave.compiled.threads import map_blocks
from kernelweave.errors import InvalidInputError
from kernelweave.memory import rows_and_work
from kernelweave.operators.base import (
    Array,
    KernelOperator,
    Kind,
    Which,
    kernel_indices,
    row_step,
    semi_definite,
)
from kernelweave.operators.row_cache import RowCache

if TYPE_CHECKING:
    from kernelweave.combine.base import Combination

__all__ = ["CombinedOperator", "Gram"]

# Samples whose diagonal entries are taken from one square part, of which the rest is wasted.
_SQUARE = 64
# What an operator may leave out, relative to the trace: factors are refined down to 1e-12 of it.
_EXACT = 1e-11


class Gram:
    """One combined kernel matrix sum_k d_k K_k, as the single-kernel solvers see it.

    Where the operator finds it cheaper (moderate n, matrices in memory) the matrix is formed once.
    Elsewhere it never is. A product is then taken kernel by kernel and remembered in `parts`, so
    that K_k alpha stays known for every active kernel and the next weights need no pass of their
    own; or, with `keep_rows`, from rows of the sum that are kept.

    Parameters
    ----------
    bank : KernelOperator
        The kernels.
    d : ndarray of shape (m,)
        Their weights.
    dtype : numpy dtype
        Storage of the matrix, if it is formed, or of the rows; sums are float64.
    reuse : Gram, optional
        Its memory is taken over, and what it holds if it is of the same weights.
    keep_rows : bool, default=False
        Whether rows of the sum are kept where the matrix is not formed.

    Attributes
    ----------
    active : ndarray of int
        The kernels of weight not zero.
    parts : ndarray of shape (len(active), n) or None
        Sum of all products taken so far, kernel by kernel, where they are taken so.
    round_size : int or None
        Variables that a decomposition solver should move at a time; None if it does not matter.

    Examples
    --------
    >>> from kernelweave.operators import DenseOperator
    >>> bank = DenseOperator([np.eye(2), np.ones((2, 2))])
    >>> Gram(bank, np.array([0.5, 0.5])).product(np.array([0]), np.array([2.0]))
    array([2., 1.])
    """

    def __init__(
        self,
        bank: KernelOperator,
        d: Array,
        dtype: DTypeLike = np.float64,
        reuse: Gram | None = None,
        keep_rows: bool = False,
    ) -> None:
        self.n, self.bank, self.d = bank.n, bank, d
        self.active = np.flatnonzero(d)
        self.round_size = bank.round_size
        self.parts: Array | None = None
        self._matrix: Array | None = None
        self._rows: RowCache | None = None
        # The block asked for last, and its samples.
        self._known: tuple[Array, Array] | None = None
        kind = np.dtype(dtype)
        old = None if reuse is None else reuse._matrix
        if reuse is not None and reuse.bank is bank and np.array_equal(reuse.d, d):
            self._known = reuse._known
            self._matrix = old if old is not None and old.dtype == kind else None
        if self._matrix is None and bank.forms_matrix:
            fits = old is not None and old.shape == (self.n, self.n) and old.dtype == kind
            self._matrix = bank.weighted(d, out=old if fits else np.empty((self.n, self.n), kind))
        elif self._matrix is None and keep_rows:
            wanted = kind.itemsize * float(self.n) ** 2
            budget, bank.work_bytes = rows_and_work(bank.kept_bytes, wanted)
            known = None if reuse is None else reuse._rows
            if known is not None and known.dtype == kind:
                known.clear(self._compute_rows)
                self._rows = known
            else:
                if known is not None:
                    known.release()
                self._rows = RowCache(self._compute_rows, 1, self.n, budget, kind)

    def _compute_rows(self, idx: Array) -> Array:
        return self.bank.weighted(self.d, idx)[None]

    def square_limit(self, most: int, copies: float) -> int:
        """See :class:`KernelOperator`; beside the rows."""
        return self.bank.square_limit(most, copies)

    def dense(self) -> Array | None:
        """The matrix, if it has been formed."""
        return self._matrix

    def diagonal(self) -> Array:
        """Diagonal of K(d)."""
        if self._matrix is not None:
            return self._matrix.diagonal().astype(np.float64)
        return self.d[self.active] @ self.bank.diagonal(self.active)

    def block(self, idx: Array) -> Array:
        """K(d)[idx][:, idx]."""
        idx = np.asarray(idx, dtype=np.int64)
        if self._matrix is not None:
            return square_block(self._matrix, idx)
        # A solver that narrows down its variables asks for parts of what it had before.
        if self._known is not None:
            known, block = self._known
            places = np.searchsorted(known, idx)
            if places[-1] < len(known) and np.array_equal(known[places], idx):
                return block if len(idx) == len(known) else square_block(block, places)
        block = self.bank.weighted(self.d, idx, idx)
        self._known = (idx, block)
        return block

    def product(self, idx: Array, delta: Array) -> Array:
        """K(d)[:, idx] @ delta."""
        idx = np.asarray(idx, dtype=np.int64)
        if self._matrix is not None:
            return rows_product(self._matrix, idx, delta)
        if self._rows is not None:
            return self._sum_of_rows(self._rows, idx, np.asarray(delta, dtype=np.float64))
        v = np.zeros(self.n)
        v[idx] = delta
        parts = self.bank.apply(v, self.active)
        self.parts = parts if self.parts is None else self.parts + parts
        return self.d[self.active] @ parts

    def _sum_of_rows(self, rows: RowCache, idx: Array, delta: Array) -> Array:
        out = np.zeros(self.n)
        for first in range(0, len(idx), rows.capacity):
            slab, slots = rows.slots(idx[first : first + rows.capacity])
            values = delta[first : first + rows.capacity]

            def work(
                start: int, stop: int, slab: Array = slab, slots: Array = slots, v: Array = values
            ) -> None:
                add_rows(slab[:, 0], slots, v, out, start, stop)

            map_blocks(work, self.n, CACHED_COLUMNS, float(self.n) * len(values))
        return out


class CombinedOperator(KernelOperator):
    r"""The kernels :math:`K(w_1), K(w_2), \dots` that a combination makes of its base matrices.

    With one w it is :math:`K(d)` itself. Where :math:`K(d)` is linear in d it is
    :math:`\sum_k d_k G_k` with :math:`G_k = K(e_k)`, whatever each :math:`G_k` is made of, and on
    this operator of the :math:`G_k` such a problem is one that every solver knows
    (:meth:`of_linear`).

    Parameters
    ----------
    combination : Combination
        What makes a kernel of weights.
    base : KernelOperator
        Its base matrices.
    weights : ndarray of shape (m, base.m)
        The weights of each kernel.
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

    keeps_rows = True

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
        """Bytes that the base matrices leave to solvers."""
        return self._base.work_bytes

    def block(
        self, rows: Which = None, columns: Which = None, kernels: Which = None, dtype: Kind = None
    ) -> Array:
        kind = self._dtype if dtype is None else np.dtype(dtype)
        part = self._base.part(rows, columns, kind)
        chosen = kernel_indices(kernels, self.m)
        out = np.empty((len(chosen), *part.shape), kind)
        for place, k in enumerate(chosen):
            out[place] = self._combination.values(part, self._weights[k])
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
        # Of a linear K the sum is one of its values.
        if self._combination.linear:
            terms = [(1.0, d @ self._weights)]
        else:
            terms = [(d[k], self._weights[k]) for k in np.flatnonzero(d)]
        idx = np.arange(self.n) if rows is None else np.asarray(rows)
        width = self.n if columns is None else len(columns)
        total = np.empty((len(idx), width), self._dtype) if out is None else out
        whole = rows is None and columns is None

        def values(rows: Array, columns: Which) -> Array:
            tile, found = self._base.part(rows, columns, total.dtype), None
            for factor, weights in terms:
                K = self._combination.values(tile, weights)
                K = K if factor == 1.0 else factor * K
                found = K if found is None else found + K
            return np.zeros(tile.shape) if found is None else found

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
