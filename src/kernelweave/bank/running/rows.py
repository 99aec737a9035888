"""Running products that read the two rows of a move from matrices or from a cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

import numpy as np

from kernelweave.bank.row_cache import RowCache
from kernelweave.bank.running.base import Array
from kernelweave.bank.running.state import StateProducts, Work
from kernelweave.compiled.mwu import add_and_weigh, add_stack, matrix_pair, row_pair

__all__ = ["MatrixProducts", "RowProducts", "SumProducts"]

# Several tasks on one bank have the same kernels awake, and share their rows.
_CACHES: WeakKeyDictionary[Any, WeakValueDictionary[tuple[str, bytes], RowCache]] = (
    WeakKeyDictionary()
)
# Part of the bank's `cache_mb` for rows of a part of the kernels: the bank may keep whole ones.
_SHARE = 0.5


def _shared_cache(bank: Any, kind: str, of: Array, make: Callable[[], RowCache]) -> RowCache:
    """Return the cache of this kind that others on the bank use, or a new one."""
    known = _CACHES.setdefault(bank, WeakValueDictionary())
    cache = known.get((kind, of.tobytes()))
    if cache is None:
        cache = known[kind, of.tobytes()] = make()
    return cache


class RowProducts(StateProducts):
    """Running products that take the two rows of a move from a cache of rows.

    Parameters
    ----------
    bank : KernelBank
    cache : RowCache, optional
        Where rows of all kernels come from, if the bank has such a cache; without it the bank is
        asked, and rows are kept within the bank's `cache_mb`.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.bank import DenseBank
    >>> products = RowProducts(DenseBank().from_matrices([np.eye(3), np.ones((3, 3))]))
    >>> products.move(np.array([0, 2]), np.array([1.0, 2.0]), np.array([1.0, 10.0]))
    array([31., 30., 32.])
    """

    def __init__(self, bank: Any, cache: RowCache | None = None) -> None:
        self._of_all = cache
        self._cache: RowCache | None = None
        # The kernels in the cache, and where among them those awake are.
        self._cached = np.empty(0, np.int64)
        self._places = self._cached
        super().__init__(bank, bank.m, bank.n)

    def wake(self, kernels: Array | None) -> None:
        """See :class:`RunningProducts`; rows that hold much more than the kernels awake go."""
        super().wake(kernels)
        inside = np.isin(self.awake, self._cached, assume_unique=True)
        if not inside.all() or 2 * len(self.awake) < len(self._cached):
            self._cache = None
            self._cached = np.sort(self.awake)
        self._places = np.searchsorted(self._cached, self.awake)

    def _rows(self, idx: Array) -> tuple[Array, Array]:
        """Return a slab and the slots in it of these rows of the kernels in the cache."""
        if self._cache is None:
            whole = self._of_all if len(self._cached) == self.m else None
            self._cache = whole or _shared_cache(self.bank, "rows", self._cached, self._new_cache)
        return self._cache.slots(idx)

    def _new_cache(self) -> RowCache:
        kernels, bank = self._cached, self.bank
        dtype = bank.fresh_rows(np.array([0]), kernels[:1]).dtype
        share = 1.0 if len(kernels) == self.m else _SHARE

        def compute(idx: Array) -> Array:
            return np.asarray(bank.fresh_rows(idx, kernels))

        budget = min(1e6 * share * bank.cache_mb, bank.kept_bytes)
        return RowCache(compute, len(kernels), self.n, budget, dtype)

    def block(self, idx: Array) -> Array:
        """See :class:`RunningProducts`; the next move will ask for these rows anyway."""
        if not len(self.awake):
            return np.zeros((0, len(idx), len(idx)))
        slab, slots = self._rows(idx)
        pick = np.ix_(self._places, idx)
        return np.stack([slab[slot][pick] for slot in slots], axis=1).astype(np.float64)

    def pair(self, i: int, j: int) -> tuple[Array, Array]:
        """See :class:`RunningProducts`."""
        at, block = self._empty_pair()
        if len(self.awake):
            slab, slots = self._rows(np.array([i, j]))
            rows, others = slab[slots[0]], slab[slots[1]]
            row_pair(rows, others, self._places, self.state, self.awake, i, j, at, block)
        return at, block

    def _adder(self, idx: Array, delta: Array, d: Array) -> Work:
        slab, slots = self._rows(idx)
        rows, others = slab[slots[0]], slab[slots[-1]]
        a, b = float(delta[0]), float(delta[1]) if len(delta) > 1 else 0.0
        state, places, awake = self.state, self._places, self.awake

        def work(out: Array, part: tuple[int, int], columns: tuple[int, int]) -> None:
            add_and_weigh(rows, others, places, a, b, state, awake, d, out, part, columns)

        return work


class SumProducts(RowProducts):
    """Running products of the one kernel sum_k w_k K_k.

    Parameters
    ----------
    bank : KernelBank
    weights : ndarray of shape (m,)
    """

    def __init__(self, bank: Any, weights: Array) -> None:
        n = bank.n

        def rows(idx: Array) -> Array:
            return bank.combine_rows(weights, np.asarray(idx), np.empty((len(idx), n)))[None]

        def new_cache() -> RowCache:
            return RowCache(rows, 1, n, bank.kept_bytes, np.dtype(np.float64))

        self._weights = weights
        self._of_all = _shared_cache(bank, "sum", weights, new_cache)
        self._cache, self._cached = None, np.empty(0, np.int64)
        StateProducts.__init__(self, bank, 1, n)

    def _catch_up(self, kernels: Array, v: Array) -> None:
        if np.any(v):
            self.state += self.bank.quad_and_product(v, self._weights)[1]


class MatrixProducts(StateProducts):
    """Running products with matrices that lie one behind the other in memory.

    Parameters
    ----------
    bank : DenseBank
    stack : ndarray of shape (m, n, n)
    """

    def __init__(self, bank: Any, stack: Array) -> None:
        super().__init__(bank, *stack.shape[:2])
        self._stack = stack

    def block(self, idx: Array) -> Array:
        """See :class:`RunningProducts`."""
        return self._stack[np.ix_(self.awake, idx, idx)].astype(np.float64)

    def pair(self, i: int, j: int) -> tuple[Array, Array]:
        """See :class:`RunningProducts`."""
        at, block = self._empty_pair()
        matrix_pair(self._stack, self.state, self.awake, i, j, at, block)
        return at, block

    def _adder(self, idx: Array, delta: Array, d: Array) -> Work:
        pair = (int(idx[0]), int(idx[-1]))
        a, b = float(delta[0]), float(delta[1]) if len(delta) > 1 else 0.0

        def work(out: Array, part: tuple[int, int], columns: tuple[int, int]) -> None:
            add_stack(self._stack, pair, a, b, self.state, self.awake, d, out, part, columns)

        return work
