"""K(d) as the single-kernel solvers see it, for combinations computed from tiles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kernelweave.combine.tiles import fill_symmetric
from kernelweave.compiled.blocks import CACHED_COLUMNS
from kernelweave.compiled.dense_rows import add_rows, rows_product, square_block
from kernelweave.compiled.threads import map_blocks
from kernelweave.memory import square_side
from kernelweave.operators.base import Array, KernelOperator, row_step
from kernelweave.operators.memory import rows_and_work
from kernelweave.operators.row_cache import RowCache

__all__ = ["Gram", "TiledGram"]


class Gram:
    """One combined kernel matrix, formed or not: the base of what `Combination.gram` returns.

    Parameters
    ----------
    bank : KernelOperator
        The base matrices.
    d : ndarray of shape (m,)
        The weights.

    Attributes
    ----------
    active : ndarray of int
        The kernels of weight not zero.
    parts : ndarray of shape (len(active), n) or None
        Sum of all products taken so far, kernel by kernel, where they are taken so.
    round_size : int or None
        Variables that a decomposition solver should move at a time; None if it does not matter.
    """

    round_size: int | None = None

    def __init__(self, bank: KernelOperator, d: Array) -> None:
        self.n = bank.n
        self._bank = bank
        self.d = d
        self.active = np.flatnonzero(d)
        self.parts: Array | None = None
        self._matrix: Array | None = None

    def square_limit(self, most: int, copies: float) -> int:
        """See :class:`KernelOperator`."""
        return self._bank.square_limit(most, copies)

    def dense(self) -> Array | None:
        """The matrix, if it has been formed."""
        return self._matrix

    def diagonal(self) -> Array:
        """Diagonal of K(d)."""
        return self._formed().diagonal().astype(np.float64)

    def block(self, idx: Array) -> Array:
        """K(d)[idx][:, idx]."""
        return square_block(self._formed(), np.asarray(idx, dtype=np.int64))

    def product(self, idx: Array, delta: Array) -> Array:
        """K(d)[:, idx] @ delta."""
        return rows_product(self._formed(), np.asarray(idx, dtype=np.int64), delta)

    def _formed(self) -> Array:
        if self._matrix is None:
            raise RuntimeError("this Gram matrix was never formed; a subclass answers instead.")
        return self._matrix


def matrix_memory(n: int, dtype: np.dtype, reuse: Gram | None) -> Array:
    """Memory for an n x n matrix: that of `reuse` if it fits."""
    old = None if reuse is None else reuse.dense()
    if old is not None and old.shape == (n, n) and old.dtype == dtype:
        return old
    return np.empty((n, n), dtype)


class TiledGram(Gram):
    """K(d) from tiles: formed while that is cheap, otherwise its rows on demand and cached.

    Parameters
    ----------
    values : callable
        ``values(tile, d)``: K(d) on a tile.
    bank : KernelOperator
        The base matrices; its `cache_mb` bounds the cached rows.
    d : ndarray of shape (m,)
        The weights.
    dtype : numpy dtype
        Storage; sums are float64.
    reuse : Gram, optional
        Its memory is taken over.

    Examples
    --------
    >>> from kernelweave.operators import DenseOperator
    >>> from kernelweave.combine import PolynomialMixture
    >>> bank = DenseOperator([np.eye(2), np.ones((2, 2))])
    >>> gram = PolynomialMixture((0.0, 1.0)).gram(bank, np.array([1.0, 1.0]))
    >>> gram.product(np.array([0]), np.array([1.0]))
    array([4., 1.])
    """

    def __init__(
        self,
        values: Callable[[KernelOperator, Array], Array],
        bank: KernelOperator,
        d: Array,
        dtype: np.dtype,
        reuse: Gram | None = None,
    ) -> None:
        super().__init__(bank, d)
        self._values = values
        self._dtype = dtype
        self._cache: RowCache | None = None
        if bank.forms_matrix:
            self._matrix = matrix_memory(bank.n, dtype, reuse)
            fill_symmetric(bank, lambda tile: values(tile, d), self._matrix)
            return
        wanted = dtype.itemsize * float(bank.n) ** 2
        rows, self._work_bytes = rows_and_work(bank.kept_bytes, wanted)
        old = reuse._cache if isinstance(reuse, TiledGram) else None
        if old is not None and old.dtype == dtype:
            old.clear(self._rows)
            self._cache = old
        else:
            self._cache = RowCache(self._rows, 1, bank.n, rows, dtype, instead_of=old)

    def square_limit(self, most: int, copies: float) -> int:
        """See :class:`KernelOperator`; beside the rows."""
        if self._cache is None:
            return super().square_limit(most, copies)
        return min(most, square_side(self._work_bytes, copies))

    def _rows(self, idx: Array) -> Array:
        """K(d)[idx], shape (1, len(idx), n)."""
        out = np.empty((len(idx), self.n), self._dtype)
        step = row_step(self.n)

        def work(first: int, last: int) -> None:
            out[first:last] = self._values(
                self._bank.part(idx[first:last], None, self._dtype), self.d
            )

        map_blocks(work, len(idx), step)
        return out[None]

    def diagonal(self) -> Array:
        """Diagonal of K(d)."""
        if self._cache is None:
            return super().diagonal()
        step = 64  # A tile gives one diagonal entry a row: small squares waste least.
        out = np.empty(self.n)
        for first in range(0, self.n, step):
            part = np.arange(first, min(first + step, self.n))
            out[part] = self._values(self._bank.part(part, part), self.d).diagonal()
        return out

    def block(self, idx: Array) -> Array:
        """K(d)[idx][:, idx]."""
        if self._cache is None:
            return super().block(idx)
        idx = np.asarray(idx, dtype=np.int64)
        out = np.empty((len(idx), len(idx)), self._dtype)
        step = row_step(len(idx))

        def work(first: int, last: int) -> None:
            tile = self._bank.part(idx[first:last], idx, self._dtype)
            out[first:last] = self._values(tile, self.d)

        map_blocks(work, len(idx), step)
        return out

    def product(self, idx: Array, delta: Array) -> Array:
        """K(d)[:, idx] @ delta."""
        if self._cache is None:
            return super().product(idx, delta)
        cache: Any = self._cache
        out = np.zeros(self.n)
        idx, delta = np.asarray(idx), np.asarray(delta, dtype=np.float64)
        chunk = max(1, cache.capacity)
        for first in range(0, len(idx), chunk):
            slab, slots = cache.slots(idx[first : first + chunk])
            values = delta[first : first + chunk]

            def work(
                start: int, stop: int, slab: Array = slab, slots: Array = slots, v: Array = values
            ) -> None:
                add_rows(slab[:, 0], slots, v, out, start, stop)

            map_blocks(work, self.n, CACHED_COLUMNS, float(self.n) * len(values))
        return out
