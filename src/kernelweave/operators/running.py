"""K_k v of every kernel, for a v that changes at few samples at a time: the state of MWUMKL."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from itertools import combinations
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from kernelweave.compiled.blocks import (
    CACHED_COLUMNS,
    STACK_ENTRIES,
    SUM_PARTS,
    gaussian_kernels,
    rows_of,
)
from kernelweave.compiled.dense_rows import copy_rectangle
from kernelweave.compiled.gaussians import Batch, pair_values
from kernelweave.compiled.mwu import add_and_weigh, add_gaussians, factor_pair, row_pair
from kernelweave.compiled.passes import add_rows, row_products
from kernelweave.compiled.threads import map_blocks
from kernelweave.kernels.names import whereabouts
from kernelweave.operators.memory import require_bytes
from kernelweave.operators.row_cache import RowCache

__all__ = [
    "BatchProducts",
    "FactorProducts",
    "MatrixProducts",
    "RowProducts",
    "RowState",
    "RunningProducts",
    "StackedProducts",
    "StateProducts",
    "SumProducts",
    "Work",
]

Array = NDArray[Any]

# work(sum, range of the kernels followed, range of the columns)
Work = Callable[[Array, tuple[int, int], tuple[int, int]], None]

# Kernels are cut instead of columns where there are this many times more of them.
_MANY_KERNELS = 16
# Entries above which the state is kept in float32.
_LARGE_STATE = 100_000_000


# Several tasks on one operator have the same kernels followed, and share their rows.
_CACHES: WeakKeyDictionary[Any, WeakValueDictionary[tuple[str, bytes], RowCache]] = (
    WeakKeyDictionary()
)
# Part of the operator's `cache_mb` for rows of a part of the kernels: it may keep whole ones, too.
_SHARE = 0.5


class RunningProducts(ABC):
    """K_k v of every kernel, kept up to date while v changes at few samples at a time.

    This is the state ``G_k a`` of MWUMKL (algorithm 4). One move costs two rows of every kernel
    and one pass over the state, O(m n), and no matrix is formed. Kernels can be left frozen: moves
    then cost nothing for them until `synchronise` brings all of them up to date at once.

    Attributes
    ----------
    m, n : int
        Numbers of kernels and samples.
    followed : ndarray of int
        The kernels that follow the moves. `at`, `block`, `move` and `weigh`, and the weights they
        are given, are about these, in this order.
    """

    m: int
    n: int
    followed: Array

    @abstractmethod
    def reset(self, v: Array) -> None:
        """Start from this v, of shape (n,), with all kernels followed; zeros cost nothing."""

    def restrict(self, kernels: Array | None) -> None:
        """Let only these kernels (None: all) follow the moves from now on, until `synchronise`.

        All kernels must be followed before.
        """
        self.followed = (
            np.arange(self.m) if kernels is None else np.asarray(kernels, dtype=np.int64)
        )

    @abstractmethod
    def synchronise(self, v: Array) -> Array:
        """Bring all kernels up to date and follow them; returns v'K_k v of each, shape (m,)."""

    @abstractmethod
    def at(self, idx: Array) -> Array:
        """(K_k v)[idx] of every kernel followed, shape (len(followed), len(idx))."""

    @abstractmethod
    def block(self, idx: Array) -> Array:
        """K_k[idx][:, idx] of every kernel followed, shape (len(followed), len(idx), len(idx))."""

    def pair(self, i: int, j: int) -> tuple[Array, Array]:
        """What moving i and j has to know of every kernel followed.

        (K_k v)_i and (K_k v)_j, shape (len(followed), 2), and K_k[i, i], K_k[j, j] and K_k[i, j],
        shape (len(followed), 3).
        """
        idx = np.array([i, j])
        block = self.block(idx)
        return self.at(idx), np.stack([block[:, 0, 0], block[:, 1, 1], block[:, 0, 1]], axis=1)

    @abstractmethod
    def move(self, idx: Array, delta: Array, d: Array) -> Array:
        """Add `delta` to v at two samples and return sum_k d_k K_k v, shape (n,)."""

    @abstractmethod
    def weigh(self, d: Array) -> Array:
        """sum_k d_k K_k v, shape (n,)."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes of the state, without what the operator holds."""


class StateProducts(RunningProducts):
    """Running products kept as one m x n array.

    It is float64, or float32 from 10^8 entries on, where memory counts for more.
    """

    def __init__(self, operator: Any, m: int, n: int) -> None:
        self.operator = operator
        self.m, self.n = m, n
        dtype = np.dtype(np.float64 if m * n <= _LARGE_STATE else np.float32)
        require_bytes(float(m) * n * dtype.itemsize, f"the state of {m} kernels on {n} samples")
        self.state = np.zeros((m, n), dtype)
        # What the kernels frozen have missed.
        self._missed = np.zeros(n)
        self.restrict(None)

    @property
    def nbytes(self) -> int:
        return int(self.state.nbytes)

    def reset(self, v: Array) -> None:
        self.state.fill(0.0)
        self._missed[:] = 0.0
        self.restrict(None)
        self._catch_up(np.arange(self.m), v)

    def _catch_up(self, kernels: Array, v: Array) -> None:
        """state[k] += K_k v for these kernels."""
        if not np.any(v):
            return
        size = rows_of(self.n, STACK_ENTRIES)
        for first in range(0, len(kernels), size):
            part = kernels[first : first + size]
            self.state[part] += self.operator.apply(v, part)

    def synchronise(self, v: Array) -> Array:
        if len(self.followed) < self.m:
            self._catch_up(np.setdiff1d(np.arange(self.m), self.followed), self._missed)
            self._missed[:] = 0.0
            self.restrict(None)
        return np.maximum(self.quads(v), 0.0)

    def quads(self, v: Array) -> Array:
        """v . state[k] of every kernel: v'K_k v, as good as the state is."""
        out, everyone = np.empty(self.m), np.arange(self.m)

        def work(start: int, stop: int) -> None:
            row_products(self.state, everyone[start:stop], v, out[start:stop])

        map_blocks(work, self.m, rows_of(self.n), 2.0 * self.m * self.n)
        return out

    def at(self, idx: Array) -> Array:
        out = np.empty((len(self.followed), len(idx)))
        copy_rectangle(self.state, self.followed, np.asarray(idx), 1.0, out, 0, len(out))
        return out

    def block(self, idx: Array) -> Array:
        return self.operator.block(idx, idx, self.followed).astype(np.float64, copy=False)

    def move(self, idx: Array, delta: Array, d: Array) -> Array:
        if len(self.followed) < self.m:
            for i, step in zip(idx, delta, strict=True):
                self._missed[i] += step
        return self._moved(idx, delta, d)

    def _moved(self, idx: Array, delta: Array, d: Array) -> Array:
        """`move`, of the kernels followed."""
        if not len(self.followed):
            return np.zeros(self.n)
        second = float(delta[1]) if len(delta) > 1 else 0.0
        pair, weights = idx if len(idx) == 2 else np.repeat(idx, 2), np.ascontiguousarray(d)
        return self._passed(self._adder(pair, float(delta[0]), second, weights), len(self.followed))

    @abstractmethod
    def _adder(self, idx: Array, a: float, b: float, d: Array) -> Work:
        """Return what adds two rows to a part of the state, and that part to the sum."""

    def weigh(self, d: Array) -> Array:
        used = np.flatnonzero(d)
        kernels, weights = self.followed[used], d[used]

        def work(out: Array, part: tuple[int, int], columns: tuple[int, int]) -> None:
            own = slice(*part)
            add_rows(self.state, kernels[own], weights[own], out, *columns)

        return self._passed(work, len(used))

    def _by_kernels(self, count: int) -> bool:
        """Whether a pass over so many kernels is cut by kernels, not by columns."""
        return count > _MANY_KERNELS * self.n

    def _passed(self, work: Work, count: int) -> Array:
        """Run `work` over so many kernels, in blocks; returns the sum."""
        n = self.n
        if self._by_kernels(count):
            size = max(1, -(-count // SUM_PARTS))
            parts = np.zeros((SUM_PARTS, n))

            def some_kernels(start: int, stop: int) -> None:
                work(parts[start // size], (start, stop), (0, n))

            map_blocks(some_kernels, count, size, 2.0 * count * n)
            return parts.sum(axis=0)
        out = np.zeros(n)

        def some_columns(start: int, stop: int) -> None:
            work(out, (0, count), (start, stop))

        map_blocks(some_columns, n, CACHED_COLUMNS, 2.0 * count * n)
        return out


class RowState(StateProducts):
    """Running products that read the two rows of a move, and know where to find them."""

    @abstractmethod
    def _rows(self, idx: Array) -> tuple[Array, Array]:
        """Rows of length n, and the places among them of rows `idx` of the kernels followed.

        The places have shape (len(idx), len(followed)).
        """

    def block(self, idx: Array) -> Array:
        """See :class:`RunningProducts`; the next move will ask for these rows anyway."""
        if not len(self.followed):
            return np.zeros((0, len(idx), len(idx)))
        rows, places = self._rows(np.asarray(idx))
        return np.swapaxes(rows[places[:, :, None], idx], 0, 1).astype(np.float64)

    def pair(self, i: int, j: int) -> tuple[Array, Array]:
        at, block = np.empty((len(self.followed), 2)), np.empty((len(self.followed), 3))
        if len(self.followed):
            row_pair(*self._rows(np.array([i, j])), self.state, self.followed, i, j, at, block)
        return at, block

    def _adder(self, idx: Array, a: float, b: float, d: Array) -> Work:
        rows, places = self._rows(idx)
        state, followed = self.state, self.followed

        def work(out: Array, part: tuple[int, int], columns: tuple[int, int]) -> None:
            add_and_weigh(rows, places, a, b, state, followed, d, out, part, columns)

        return work


def _shared_cache(operator: Any, kind: str, of: Array, make: Callable[[], RowCache]) -> RowCache:
    """Return the cache of this kind that others on the operator use, or a new one."""
    known = _CACHES.setdefault(operator, WeakValueDictionary())
    cache = known.get((kind, of.tobytes()))
    if cache is None:
        cache = known[kind, of.tobytes()] = make()
    return cache


class RowProducts(RowState):
    """Running products that take the two rows of a move from a cache of rows.

    Parameters
    ----------
    operator : KernelOperator
    cache : RowCache, optional
        Where rows of all kernels come from, if the operator has such a cache; without it the
        operator is asked, and rows are kept within its `cache_mb`.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.operators import DenseOperator
    >>> products = RowProducts(DenseOperator([np.eye(3), np.ones((3, 3))]))
    >>> products.move(np.array([0, 2]), np.array([1.0, 2.0]), np.array([1.0, 10.0]))
    array([31., 30., 32.])
    """

    def __init__(self, operator: Any, cache: RowCache | None = None) -> None:
        self._of_all = cache
        self._cache: RowCache | None = None
        # The kernels in the cache, and where among them those followed are.
        self._cached = np.empty(0, np.int64)
        self._places = self._cached
        super().__init__(operator, operator.m, operator.n)

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
            self._cache = whole or _shared_cache(
                self.operator, "rows", self._cached, self._new_cache
            )
        slab, slots = self._cache.slots(idx)
        return slab.reshape(-1, self.n), slots[:, None] * len(self._cached) + self._places

    def _new_cache(self) -> RowCache:
        kernels, operator = self._cached, self.operator
        dtype = operator.fresh_rows(np.array([0]), kernels[:1]).dtype
        share = 1.0 if len(kernels) == self.m else _SHARE

        def compute(idx: Array) -> Array:
            return np.asarray(operator.fresh_rows(idx, kernels))

        budget = min(1e6 * share * operator.cache_mb, operator.kept_bytes)
        return RowCache(compute, len(kernels), self.n, budget, dtype)


class SumProducts(RowProducts):
    """Running products of the one kernel sum_k w_k K_k.

    Parameters
    ----------
    operator : KernelOperator
    weights : ndarray of shape (m,)
    """

    def __init__(self, operator: Any, weights: Array) -> None:
        n = operator.n

        def rows(idx: Array) -> Array:
            return operator.weighted(weights, np.asarray(idx))[None]

        def new_cache() -> RowCache:
            return RowCache(rows, 1, n, operator.kept_bytes, np.dtype(np.float64))

        self._weights = weights
        self._of_all = _shared_cache(operator, "sum", weights, new_cache)
        self._cache, self._cached = None, np.empty(0, np.int64)
        RowState.__init__(self, operator, 1, n)

    def _catch_up(self, kernels: Array, v: Array) -> None:
        if np.any(v):
            self.state += self.operator.quad_and_product(v, self._weights)[1]


class MatrixProducts(RowState):
    """Running products with matrices that lie one behind the other in memory.

    Parameters
    ----------
    operator : DenseOperator
    stack : ndarray of shape (m, n, n)
    """

    def __init__(self, operator: Any, stack: Array) -> None:
        super().__init__(operator, *stack.shape[:2])
        self._all_rows = stack.reshape(-1, self.n)

    def restrict(self, kernels: Array | None) -> None:
        super().restrict(kernels)
        self._first = self.followed * self.n

    def _rows(self, idx: Array) -> tuple[Array, Array]:
        return self._all_rows, self._first + idx[:, None]


class BatchProducts(StateProducts):
    """The m x n state of a batch: a move evaluates two rows of every kernel and keeps none of them.

    Parameters
    ----------
    operator : GaussianOperator
    table : ndarray
    batch : tuple of ndarray
        What compiled code knows of the kernels, see ``kernelweave.compiled.gaussians``.
    """

    def __init__(self, operator: Any, table: Array, batch: Batch) -> None:
        super().__init__(operator, operator.m, operator.n)
        self._table, self._batch = table, batch

    def block(self, idx: Array) -> Array:
        """See :class:`RunningProducts`; the diagonal is one."""
        out = np.ones((len(self.followed), len(idx), len(idx)))
        for s, t in combinations(range(len(idx)), 2):
            pair = np.ascontiguousarray(self._table[:, [idx[s], idx[t]]])
            values = np.empty(len(self.followed))
            work = partial(pair_values, pair, self._batch, self.followed, values)
            map_blocks(work, len(values), *gaussian_kernels(len(values), 1))
            out[:, s, t] = out[:, t, s] = values
        return out

    def _by_kernels(self, count: int) -> bool:
        """Always: a kernel's columns are loaded once for all samples."""
        return True

    def _adder(self, idx: Array, a: float, b: float, d: Array) -> Work:
        pair, table, batch = np.ascontiguousarray(self._table[:, idx]), self._table, self._batch
        state, followed = self.state, self.followed

        def work(out: Array, part: tuple[int, int], columns: tuple[int, int]) -> None:
            add_gaussians(pair, table, batch, a, b, state, followed, d, out, part)

        return work


class FactorProducts(RunningProducts):
    """Running products of factored kernels: only z_k = F_k v is kept, K_k v = F_k'z_k follows.

    Parameters
    ----------
    factors : ndarray of shape (R, n)
        The factors of all kernels, one below the other.
    offsets : ndarray of shape (m + 1,)
        Where each begins.
    """

    def __init__(self, factors: Array, offsets: Array) -> None:
        self._factors, self._offsets = factors, offsets
        self.m, self.n = len(offsets) - 1, factors.shape[1]
        self._owner = np.repeat(np.arange(self.m), np.diff(offsets))
        self._z = np.zeros(len(factors))
        self.restrict(None)

    @property
    def nbytes(self) -> int:
        return int(self._z.nbytes)

    def reset(self, v: Array) -> None:
        self.restrict(None)
        self._z[:] = self._factors @ v if np.any(v) else 0.0

    def synchronise(self, v: Array) -> Array:
        """See :class:`RunningProducts`; z follows every move, so none is ever frozen."""
        self.restrict(None)
        return self._sums(self._z**2)

    def _sums(self, values: Array) -> Array:
        """Sums of one value for each row of the factors over the rows of every kernel followed."""
        return np.bincount(self._owner, weights=values, minlength=self.m)[self.followed]

    def at(self, idx: Array) -> Array:
        return np.stack([self._sums(self._factors[:, i] * self._z) for i in idx], axis=1)

    def block(self, idx: Array) -> Array:
        out = np.empty((len(self.followed), len(idx), len(idx)))
        columns = self._factors[:, idx].T
        for s, t in zip(*np.tril_indices(len(idx)), strict=True):
            out[:, s, t] = out[:, t, s] = self._sums(columns[s] * columns[t])
        return out

    def pair(self, i: int, j: int) -> tuple[Array, Array]:
        at, block = np.empty((len(self.followed), 2)), np.empty((len(self.followed), 3))
        factor_pair(self._factors, self._offsets, self.followed, self._z, i, j, at, block)
        return at, block

    def move(self, idx: Array, delta: Array, d: Array) -> Array:
        for i, step in zip(idx, delta, strict=True):
            self._z += step * self._factors[:, i]
        return self.weigh(d)

    def weigh(self, d: Array) -> Array:
        weights = np.zeros(self.m)
        weights[self.followed] = d
        coefficients = self._z * weights[self._owner]
        used = np.flatnonzero(coefficients)
        values, out = coefficients[used], np.zeros(self.n)

        def work(start: int, stop: int) -> None:
            add_rows(self._factors, used, values, out, start, stop)

        map_blocks(work, self.n, CACHED_COLUMNS, float(len(used)) * self.n)
        return out


class StackedProducts(RunningProducts):
    """Running products of several operators side by side.

    Parameters
    ----------
    parts : sequence of RunningProducts
    members : sequence of integer arrays
        Which kernels of the whole each part holds.
    """

    def __init__(self, parts: Sequence[RunningProducts], members: Sequence[Array]) -> None:
        self._parts, self._members = list(parts), list(members)
        self.m, self.n = sum(part.m for part in parts), parts[0].n
        self._part, self._place = whereabouts(members)
        self.restrict(None)

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in self._parts)

    def restrict(self, kernels: Array | None) -> None:
        super().restrict(kernels)
        # Where the kernels followed of each part are among all those followed.
        self._own = [
            np.flatnonzero(self._part[self.followed] == p) for p in range(len(self._parts))
        ]
        for part, own in zip(self._parts, self._own, strict=True):
            part.restrict(self._place[self.followed[own]])

    def _gather(self, shape: tuple[int, ...], name: str, idx: Array) -> Array:
        out = np.empty((len(self.followed), *shape))
        for part, own in zip(self._parts, self._own, strict=True):
            if len(own):
                out[own] = getattr(part, name)(idx)
        return out

    def reset(self, v: Array) -> None:
        for part in self._parts:
            part.reset(v)
        self.restrict(None)

    def synchronise(self, v: Array) -> Array:
        out = np.empty(self.m)
        for part, own in zip(self._parts, self._members, strict=True):
            out[own] = part.synchronise(v)
        self.restrict(None)
        return out

    def at(self, idx: Array) -> Array:
        return self._gather((len(idx),), "at", idx)

    def block(self, idx: Array) -> Array:
        return self._gather((len(idx), len(idx)), "block", idx)

    def pair(self, i: int, j: int) -> tuple[Array, Array]:
        at, block = np.empty((len(self.followed), 2)), np.empty((len(self.followed), 3))
        for part, own in zip(self._parts, self._own, strict=True):
            if len(own):
                at[own], block[own] = part.pair(i, j)
        return at, block

    def move(self, idx: Array, delta: Array, d: Array) -> Array:
        pairs = zip(self._parts, self._own, strict=True)
        return np.sum([part.move(idx, delta, d[own]) for part, own in pairs], axis=0)

    def weigh(self, d: Array) -> Array:
        pairs = zip(self._parts, self._own, strict=True)
        return np.sum([part.weigh(d[own]) for part, own in pairs], axis=0)
