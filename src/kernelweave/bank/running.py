"""K_k v of every kernel, for a v that changes at few samples at a time: the state of MWUMKL."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelweave.bank.memory import require_bytes
from kernelweave.bank.row_cache import RowCache
from kernelweave.compiled.mwu import (
    add_and_weigh,
    factor_at,
    factor_block,
    gather,
    state_quads,
    weigh_factors,
    weigh_state,
)
from kernelweave.compiled.threads import map_blocks
from kernelweave.kernels.composite_set import whereabouts

__all__ = [
    "FactorProducts",
    "RowProducts",
    "RunningProducts",
    "StackedProducts",
    "StateProducts",
    "SumProducts",
]

Array = NDArray[Any]
# work(sum, range of the kernels awake, range of the columns)
Work = Callable[[Array, tuple[int, int], tuple[int, int]], None]

# Columns of a block of the pass: its part of the sum stays in the cache of a core.
_COLUMN_BLOCK = 2048
# Kernels are cut instead of columns where there are this many times more of them.
_MANY_KERNELS = 16
# Sums over kernels are then cut into this many parts, whatever the number of threads.
_SUM_PARTS = 64
# Entries above which the state is kept in float32.
_LARGE_STATE = 100_000_000
# Kernels whose missed products are computed at a time (entries).
_RESET_ENTRIES = 2**22


class RunningProducts(ABC):
    """K_k v of every kernel, kept up to date while v changes at few samples at a time.

    This is the state ``G_k a`` of MWUMKL (algorithm 4). One move costs two rows of every kernel
    and one pass over the state, O(m n), and no matrix is formed. Kernels can be left asleep: moves
    then cost nothing for them until `settle` brings all of them up to date at once.

    Attributes
    ----------
    m, n : int
        Numbers of kernels and samples.
    awake : ndarray of int
        The kernels that follow the moves. `at`, `block`, `move` and `weigh`, and the weights they
        are given, are about these, in this order.
    """

    m: int
    n: int
    awake: Array

    @abstractmethod
    def reset(self, v: Array) -> None:
        """Start from this v, of shape (n,), with all kernels awake; zeros cost nothing."""

    def wake(self, kernels: Array | None) -> None:
        """Let only these kernels (None: all) follow the moves from now on, until `settle`.

        All kernels must be awake before.
        """
        self.awake = np.arange(self.m) if kernels is None else np.asarray(kernels, dtype=np.int64)

    @abstractmethod
    def settle(self, v: Array) -> Array:
        """Bring all kernels up to date, wake them, and return v'K_k v of each, shape (m,)."""

    @abstractmethod
    def at(self, idx: Array) -> Array:
        """(K_k v)[idx] of every kernel awake, shape (len(awake), len(idx))."""

    @abstractmethod
    def block(self, idx: Array) -> Array:
        """K_k[idx][:, idx] of every kernel awake, shape (len(awake), len(idx), len(idx))."""

    @abstractmethod
    def move(self, idx: Array, delta: Array, d: Array) -> Array:
        """Add `delta` to v at two samples and return sum_k d_k K_k v, shape (n,)."""

    @abstractmethod
    def weigh(self, d: Array) -> Array:
        """sum_k d_k K_k v, shape (n,)."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes of the state, without what the bank holds."""


class StateProducts(RunningProducts):
    """Running products kept as one m x n array.

    It is float64, or float32 from 10^8 entries on, where memory counts for more.
    """

    def __init__(self, bank: Any, m: int, n: int) -> None:
        self.bank = bank
        self.m, self.n = m, n
        dtype = np.dtype(np.float64 if m * n <= _LARGE_STATE else np.float32)
        require_bytes(float(m) * n * dtype.itemsize, f"the state of {m} kernels on {n} samples")
        self.state = np.zeros((m, n), dtype)
        # What the kernels asleep have missed.
        self._missed = np.zeros(n)
        self.wake(None)

    @property
    def nbytes(self) -> int:
        """See :class:`RunningProducts`."""
        return int(self.state.nbytes)

    def reset(self, v: Array) -> None:
        """See :class:`RunningProducts`."""
        self.state.fill(0.0)
        self._missed[:] = 0.0
        self.wake(None)
        self._catch_up(np.arange(self.m), v)

    def _catch_up(self, kernels: Array, v: Array) -> None:
        """state[k] += K_k v for these kernels."""
        if not np.any(v):
            return
        size = max(1, _RESET_ENTRIES // self.n)
        for first in range(0, len(kernels), size):
            part = kernels[first : first + size]
            self.state[part] += self.bank.matvec(v, part)

    def settle(self, v: Array) -> Array:
        """See :class:`RunningProducts`."""
        if len(self.awake) < self.m:
            self._catch_up(np.setdiff1d(np.arange(self.m), self.awake), self._missed)
            self._missed[:] = 0.0
            self.wake(None)
        out = np.empty(self.m)

        def work(start: int, stop: int) -> None:
            state_quads(self.state, v, out, start, stop)

        map_blocks(work, self.m, max(1, 2**18 // self.n), 2.0 * self.m * self.n)
        return np.maximum(out, 0.0)

    def at(self, idx: Array) -> Array:
        """See :class:`RunningProducts`."""
        out = np.empty((len(self.awake), len(idx)))
        gather(self.state, self.awake, np.asarray(idx), out)
        return out

    def block(self, idx: Array) -> Array:
        """See :class:`RunningProducts`."""
        return self.bank.rows(idx, self.awake, idx).astype(np.float64, copy=False)

    def move(self, idx: Array, delta: Array, d: Array) -> Array:
        """See :class:`RunningProducts`."""
        if len(self.awake) < self.m:
            for i, step in zip(idx, delta, strict=True):
                self._missed[i] += step
        if not len(self.awake):
            return np.zeros(self.n)
        return self._passed(self._adder(idx, delta, np.ascontiguousarray(d)))

    @abstractmethod
    def _adder(self, idx: Array, delta: Array, d: Array) -> Work:
        """Return what adds two rows to a part of the state, and that part to the sum."""

    def weigh(self, d: Array) -> Array:
        """See :class:`RunningProducts`."""
        weights = np.ascontiguousarray(d)

        def work(out: Array, part: tuple[int, int], columns: tuple[int, int]) -> None:
            weigh_state(self.state, self.awake, weights, out, part, columns)

        return self._passed(work)

    def _by_kernels(self, count: int) -> bool:
        """Whether a pass over so many kernels is cut by kernels, not by columns."""
        return count > _MANY_KERNELS * self.n

    def _passed(self, work: Work) -> Array:
        """Run `work` over the kernels awake, in blocks; returns the sum."""
        count, n = len(self.awake), self.n
        if self._by_kernels(count):
            size = -(-count // _SUM_PARTS)
            parts = np.zeros((_SUM_PARTS, n))

            def some_kernels(start: int, stop: int) -> None:
                work(parts[start // size], (start, stop), (0, n))

            map_blocks(some_kernels, count, size, 2.0 * count * n)
            return parts.sum(axis=0)
        out = np.zeros(n)

        def some_columns(start: int, stop: int) -> None:
            work(out, (0, count), (start, stop))

        map_blocks(some_columns, n, _COLUMN_BLOCK, 2.0 * count * n)
        return out


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
            everything = len(self._cached) == self.m
            self._cache = self._of_all if everything and self._of_all else self._new_cache()
        return self._cache.slots(idx)

    def _new_cache(self) -> RowCache:
        kernels, bank = self._cached, self.bank
        dtype = bank.rows(np.array([0]), kernels[:1]).dtype

        def compute(idx: Array) -> Array:
            return np.asarray(bank.rows(idx, kernels))

        return RowCache(compute, len(kernels), self.n, 1e6 * bank.cache_mb, dtype)

    def block(self, idx: Array) -> Array:
        """See :class:`RunningProducts`; the next move will ask for these rows anyway."""
        if not len(self.awake):
            return np.zeros((0, len(idx), len(idx)))
        slab, slots = self._rows(idx)
        pick = np.ix_(self._places, idx)
        return np.stack([slab[slot][pick] for slot in slots], axis=1).astype(np.float64)

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

        self._weights = weights
        self._of_all = RowCache(rows, 1, n, 1e6 * bank.cache_mb, np.dtype(np.float64))
        self._cache, self._cached = None, np.empty(0, np.int64)
        StateProducts.__init__(self, bank, 1, n)

    def _catch_up(self, kernels: Array, v: Array) -> None:
        if np.any(v):
            self.state += self.bank.quad_and_product(v, self._weights)[1]


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
        self.wake(None)

    @property
    def nbytes(self) -> int:
        """See :class:`RunningProducts`."""
        return int(self._z.nbytes)

    def reset(self, v: Array) -> None:
        """See :class:`RunningProducts`."""
        self.wake(None)
        self._z[:] = self._factors @ v if np.any(v) else 0.0

    def settle(self, v: Array) -> Array:
        """See :class:`RunningProducts`; z follows every move, so nobody ever sleeps."""
        self.wake(None)
        return np.bincount(self._owner, weights=self._z**2, minlength=self.m)

    def at(self, idx: Array) -> Array:
        """See :class:`RunningProducts`."""
        out = np.empty((len(self.awake), len(idx)))
        factor_at(self._factors, self._offsets, self.awake, self._z, np.asarray(idx), out)
        return out

    def block(self, idx: Array) -> Array:
        """See :class:`RunningProducts`."""
        out = np.empty((len(self.awake), len(idx), len(idx)))
        factor_block(self._factors, self._offsets, self.awake, np.asarray(idx), out)
        return out

    def move(self, idx: Array, delta: Array, d: Array) -> Array:
        """See :class:`RunningProducts`."""
        for i, step in zip(idx, delta, strict=True):
            self._z += step * self._factors[:, i]
        return self.weigh(d)

    def weigh(self, d: Array) -> Array:
        """See :class:`RunningProducts`."""
        weights = np.zeros(self.m)
        weights[self.awake] = d
        coefficients = self._z * weights[self._owner]
        used = np.flatnonzero(coefficients)
        out = np.zeros(self.n)

        def work(start: int, stop: int) -> None:
            weigh_factors(self._factors, used, coefficients, out, (start, stop))

        map_blocks(work, self.n, _COLUMN_BLOCK, float(len(used)) * self.n)
        return out


class StackedProducts(RunningProducts):
    """Running products of several banks side by side.

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
        self.wake(None)

    @property
    def nbytes(self) -> int:
        """See :class:`RunningProducts`."""
        return sum(part.nbytes for part in self._parts)

    def wake(self, kernels: Array | None) -> None:
        """See :class:`RunningProducts`."""
        super().wake(kernels)
        # Where the kernels awake of each part are among all those awake.
        self._own = [np.flatnonzero(self._part[self.awake] == p) for p in range(len(self._parts))]
        for part, own in zip(self._parts, self._own, strict=True):
            part.wake(self._place[self.awake[own]])

    def _gather(self, shape: tuple[int, ...], name: str, idx: Array) -> Array:
        out = np.empty((len(self.awake), *shape))
        for part, own in zip(self._parts, self._own, strict=True):
            if len(own):
                out[own] = getattr(part, name)(idx)
        return out

    def reset(self, v: Array) -> None:
        """See :class:`RunningProducts`."""
        for part in self._parts:
            part.reset(v)
        self.wake(None)

    def settle(self, v: Array) -> Array:
        """See :class:`RunningProducts`."""
        out = np.empty(self.m)
        for part, own in zip(self._parts, self._members, strict=True):
            out[own] = part.settle(v)
        self.wake(None)
        return out

    def at(self, idx: Array) -> Array:
        """See :class:`RunningProducts`."""
        return self._gather((len(idx),), "at", idx)

    def block(self, idx: Array) -> Array:
        """See :class:`RunningProducts`."""
        return self._gather((len(idx), len(idx)), "block", idx)

    def move(self, idx: Array, delta: Array, d: Array) -> Array:
        """See :class:`RunningProducts`."""
        pairs = zip(self._parts, self._own, strict=True)
        return np.sum([part.move(idx, delta, d[own]) for part, own in pairs], axis=0)

    def weigh(self, d: Array) -> Array:
        """See :class:`RunningProducts`."""
        pairs = zip(self._parts, self._own, strict=True)
        return np.sum([part.weigh(d[own]) for part, own in pairs], axis=0)
