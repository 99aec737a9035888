"""Running products that read the two rows of a move from matrices or from a cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

import numpy as np

from kernelweave.bank.row_cache import RowCache
from kernelweave.bank.running.base import Array
from kernelweave.bank.running.state import RowState

__all__ = ["MatrixProducts", "RowProducts", "SumProducts"]

# Several tasks on one bank have the same kernels followed, and share their rows.
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


class RowProducts(RowState):
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
        # The kernels in the cache, and where among them those followed are.
        self._cached = np.empty(0, np.int64)
        self._places = self._cached
        super().__init__(bank, bank.m, bank.n)

    def restrict(self, kernels: Array | None) -> None:
        """See :class:`RunningProducts`; rows that hold much more than the kernels followed go."""
        super().restrict(kernels)
        inside = np.isin(self.followed, self._cached, assume_unique=True)
        if not inside.all() or 2 * len(self.followed) < len(self._cached):
            self._cache = None
            self._cached = np.sort(self.followed)
        self._places = np.searchsorted(self._cached, self.followed)

    def _rows(self, idx: Array) -> tuple[Array, Array]:
        if self._cache is None:
            whole = self._of_all if len(self._cached) == self.m else None
            self._cache = whole or _shared_cache(self.bank, "rows", self._cached, self._new_cache)
        slab, slots = self._cache.slots(idx)
        return slab.reshape(-1, self.n), slots[:, None] * len(self._cached) + self._places

    def _new_cache(self) -> RowCache:
        kernels, bank = self._cached, self.bank
        dtype = bank.fresh_rows(np.array([0]), kernels[:1]).dtype
        share = 1.0 if len(kernels) == self.m else _SHARE

        def compute(idx: Array) -> Array:
            return np.asarray(bank.fresh_rows(idx, kernels))

        budget = min(1e6 * share * bank.cache_mb, bank.kept_bytes)
        return RowCache(compute, len(kernels), self.n, budget, dtype)


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
        RowState.__init__(self, bank, 1, n)

    def _catch_up(self, kernels: Array, v: Array) -> None:
        if np.any(v):
            self.state += self.bank.quad_and_product(v, self._weights)[1]


class MatrixProducts(RowState):
    """Running products with matrices that lie one behind the other in memory.

    Parameters
    ----------
    bank : DenseBank
    stack : ndarray of shape (m, n, n)
    """

    def __init__(self, bank: Any, stack: Array) -> None:
        super().__init__(bank, *stack.shape[:2])
        self._all_rows = stack.reshape(-1, self.n)

    def restrict(self, kernels: Array | None) -> None:
        super().restrict(kernels)
        self._first = self.followed * self.n

    def _rows(self, idx: Array) -> tuple[Array, Array]:
        return self._all_rows, self._first + idx[:, None]
