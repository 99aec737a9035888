"""K_k v of every kernel, for a v that changes at two samples at a time: the state of MWUMKL."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

import numpy as np

from kernelweave.arrays import Array
from kernelweave.compiled.blocks import (
    CACHED_COLUMNS,
    STACK_ENTRIES,
    SUM_PARTS,
)
from kernelweave.compiled.dense_rows import add_rows, row_products
from kernelweave.compiled.mwu import add_and_weigh, add_gaussians, factor_pair, row_pair
from kernelweave.compiled.threads import map_blocks, rows_of
from kernelweave.memory import require_bytes
from kernelweave.operators.base import KernelOperator
from kernelweave.operators.gaussians import GaussianOperator, Table
from kernelweave.operators.row_cache import RowCache
from kernelweave.operators.stacked import StackedOperator

# work(sum, range of the kernels followed, range of the columns)
Work = Callable[[Array, tuple[int, int], tuple[int, int]], None]

# Entries above which the state is kept in float32: from 0.8 GB on memory counts for more. Rounding
# adds up to sqrt(rounds) 2^-24 of its largest numbers, 6e-6 after 10,000 rounds.
_LARGE_STATE = 100_000_000
# A pass over one block of columns is cut by kernels if there are so many that the sums of the parts
# cost at most a sixteenth of it.
_MANY_KERNELS = 16 * SUM_PARTS
# Going through a factor reads all of it, a round of the others two rows and the state. Factors of
# rank 1, 2, 4, 8, 16 make 2.7, 2.3, 1.5, 1.0, 0.7 times as many rounds a second as rows (100
# kernels on 1,000 samples), and 1.4, 1.2, 1.1, 0.9, 0.6 times as many for 40 kernels on 300.
_THIN = 4


def running_products(operator: KernelOperator) -> RunningProducts:
    """Return the running products of an operator."""
    if isinstance(operator, StackedOperator):
        parts = [running_products(part) for part in operator.parts]
        return StackedProducts(parts, operator.members, operator.n)
    if isinstance(operator, GaussianOperator):
        # Rows that are all kept are read two to four times as fast as they are computed.
        kept = 8.0 * operator.m * operator.n**2 <= operator.kept_bytes
        return RowProducts(operator) if kept else BatchProducts(operator)
    if operator.ranks is None or operator.ranks.min() > _THIN:
        return RowProducts(operator)
    thin = np.flatnonzero(operator.ranks <= _THIN)
    wide = np.flatnonzero(operator.ranks > _THIN)
    products = FactorProducts(*operator.factor_of(thin), len(thin))
    if not len(wide):
        return products
    # The wide factors are read where they are: selecting them would copy them.
    rows = RowProducts(KernelOperator.select(operator, wide))
    return StackedProducts([products, rows], [thin, wide], operator.n)


# Tasks on one operator follow the same kernels, and share their rows.
_SHARED: WeakKeyDictionary[Any, WeakValueDictionary[bytes, RowCache]] = WeakKeyDictionary()


def shared_cache(owner: Any, kernels: Array, make: Callable[[], RowCache]) -> RowCache:
    """Return the cache of these kernels that others who ask the same owner use, or a new one."""
    known = _SHARED.setdefault(owner, WeakValueDictionary())
    key = kernels.tobytes()
    cache = known.get(key)
    if cache is None:
        cache = known[key] = make()
    return cache


def rows_of_kernels(operator: KernelOperator, kernels: Array) -> RowCache:
    """Return a cache of rows of these kernels, shared by all who ask for the same ones."""

    def make() -> RowCache:
        dtype = operator.block(np.array([0]), np.array([0]), kernels).dtype
        # Half of the room: while tasks go over to other kernels, there are two caches.
        budget = 0.5 * operator.kept_bytes
        compute = partial(operator.block, kernels=kernels)
        return RowCache(compute, len(kernels), operator.n, budget, dtype)

    return shared_cache(operator, kernels, make)


class RunningProducts(ABC):
    """K_k v of every kernel, kept up to date while v changes at two samples at a time.

    This is the state ``G_k a`` of MWUMKL (algorithm 4). One move costs two rows of every kernel
    and one pass over the state, O(m n), and no matrix is formed. Kernels can be left frozen: moves
    then cost nothing for them until `synchronise` brings all of them up to date at once. `pair`,
    `move` and `weigh`, and the weights they are given, are about the kernels `followed`, in this
    order.
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

    def pair(self, i: int, j: int) -> tuple[Array, Array]:
        """What moving i and j has to know of every kernel followed.

        (K_k v)_i and (K_k v)_j, shape (len(followed), 2), and K_k[i, i], K_k[j, j] and K_k[i, j],
        shape (len(followed), 3).
        """
        at, block = np.zeros((len(self.followed), 2)), np.zeros((len(self.followed), 3))
        if len(self.followed):
            self._fill_pair(i, j, at, block)
        return at, block

    @abstractmethod
    def _fill_pair(self, i: int, j: int, at: Array, block: Array) -> None: ...

    @abstractmethod
    def move(self, idx: Array, delta: Array, d: Array) -> Array:
        """Add `delta` to v at two samples and return sum_k d_k K_k v, shape (n,)."""

    @abstractmethod
    def weigh(self, d: Array) -> Array:
        """sum_k d_k K_k v, shape (n,)."""


class RowProducts(RunningProducts):
    """Running products kept as one m x n array, float64 unless it is very large.

    The rows of a move come from the cache that ``cache_of(kernels)`` returns, by default one of the
    rows of the operator. (Where all matrices lie one behind the other, reading them there is no
    faster.)

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.operators import DenseOperator
    >>> products = RowProducts(DenseOperator([np.eye(3), np.ones((3, 3))]))
    >>> products.move(np.array([0, 2]), np.array([1.0, 2.0]), np.array([1.0, 10.0]))
    array([31., 30., 32.])
    """

    # Whether every pass is cut by kernels, not by columns.
    _by_kernels = False

    def __init__(
        self,
        operator: KernelOperator,
        cache_of: Callable[[Array], RowCache] | None = None,
    ) -> None:
        self.m, self.n = operator.m, operator.shape[0]
        self.source = operator
        self._cache_of = cache_of or partial(rows_of_kernels, operator)
        dtype = np.dtype(np.float64 if self.m * self.n <= _LARGE_STATE else np.float32)
        require_bytes(
            float(self.m) * self.n * dtype.itemsize,
            f"the state of {self.m} kernels on {self.n} samples",
        )
        self.state = np.zeros((self.m, self.n), dtype)
        # The v that all kernels have seen; those frozen have missed what came after.
        self._seen = np.zeros(self.n)
        self._cache: RowCache | None = None
        # The kernels in the cache, and where among them those followed are.
        self._cached = self._places = np.empty(0, np.int64)
        self.restrict(None)

    def reset(self, v: Array) -> None:
        self.state.fill(0.0)
        self._seen[:] = 0.0
        self._catch_up(np.arange(self.m), v)

    def _catch_up(self, kernels: Array, v: Array) -> None:
        """Let these kernels see v, and follow all."""
        missed, size = v - self._seen, rows_of(self.n, STACK_ENTRIES)
        for first in range(0, len(kernels) if missed.any() else 0, size):
            part = kernels[first : first + size]
            self.state[part] += self.source.apply(missed, part)
        self._seen[:] = v
        self.restrict(None)

    def synchronise(self, v: Array) -> Array:
        self._catch_up(np.setdiff1d(np.arange(self.m), self.followed), v)
        return np.maximum(self.quads(v), 0.0)

    def quads(self, v: Array) -> Array:
        """v . state[k] of every kernel: v'K_k v, as good as the state is."""
        out, everyone = np.empty(self.m), np.arange(self.m)

        def work(start: int, stop: int) -> None:
            row_products(self.state, everyone[start:stop], v, out[start:stop])

        map_blocks(work, self.m, rows_of(self.n), 2.0 * self.m * self.n)
        return out

    def restrict(self, kernels: Array | None) -> None:
        """Rows that hold much more than the kernels followed go."""
        super().restrict(kernels)
        inside = np.isin(self.followed, self._cached, assume_unique=True)
        if not inside.all() or 2 * len(self.followed) < len(self._cached):
            self._cache = None
            self._cached = np.sort(self.followed)
        self._places = np.searchsorted(self._cached, self.followed)

    def _rows(self, idx: Array) -> tuple[Array, Array]:
        """Rows of length n, and where `idx` of those followed are: (len(idx), len(followed))."""
        if self._cache is None:
            self._cache = self._cache_of(self._cached)
        slab, slots = self._cache.slots(idx)
        return slab.reshape(-1, self.n), slots[:, None] * len(self._cached) + self._places

    def _fill_pair(self, i: int, j: int, at: Array, block: Array) -> None:
        row_pair(*self._rows(np.array([i, j])), self.state, self.followed, i, j, at, block)

    def move(self, idx: Array, delta: Array, d: Array) -> Array:
        if not len(self.followed):
            return np.zeros(self.n)
        work = self._adder(idx, float(delta[0]), float(delta[1]), np.ascontiguousarray(d))
        return self._passed(work, len(self.followed))

    def _adder(self, idx: Array, a: float, b: float, d: Array) -> Work:
        """Return what adds two rows to a part of the state, and that part to the sum."""
        rows, places = self._rows(idx)
        state, followed = self.state, self.followed

        def work(out: Array, part: tuple[int, int], columns: tuple[int, int]) -> None:
            add_and_weigh(rows, places, a, b, state, followed, d, out, part, columns)

        return work

    def weigh(self, d: Array) -> Array:
        used = np.flatnonzero(d)
        kernels, weights = self.followed[used], d[used]

        def work(out: Array, part: tuple[int, int], columns: tuple[int, int]) -> None:
            own = slice(*part)
            add_rows(self.state, kernels[own], weights[own], out, *columns)

        return self._passed(work, len(used))

    def _passed(self, work: Work, count: int) -> Array:
        """Run `work` over so many kernels, in blocks; returns the sum."""
        n = self.n
        if self._by_kernels or (n <= CACHED_COLUMNS and count >= _MANY_KERNELS):
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


class BatchProducts(RowProducts):
    """The m x n state of a batch: a move evaluates two rows of every kernel and keeps none of them.

    ``columns(idx)`` returns samples as columns, where they are not those of the operator.
    """

    source: GaussianOperator
    # A kernel's columns are loaded once for all samples.
    _by_kernels = True

    def __init__(
        self, operator: GaussianOperator, columns: Callable[[Array], Array] | None = None
    ) -> None:
        super().__init__(operator)
        self._table = operator.sample_columns
        self._kernels = operator.compiled(np.arange(operator.m))
        self._columns = columns or (lambda idx: Table(self._table[:, idx]).values)

    def _fill_pair(self, i: int, j: int, at: Array, block: Array) -> None:
        at[:, 0], at[:, 1] = self.state[self.followed, i], self.state[self.followed, j]
        # The diagonal is one, and a column that is not there has no difference.
        block[:, :2] = 1.0
        columns, operator = self._columns(np.array([i, j])), self.source
        with np.errstate(over="ignore"):
            squares = np.append((columns[:, 0] - columns[:, 1]) ** 2, 0.0)
            exponents = squares[operator.columns[self.followed]].sum(axis=1)
            block[:, 2] = np.exp(-operator.gamma[self.followed] * exponents)

    def _adder(self, idx: Array, a: float, b: float, d: Array) -> Work:
        pair, table, kernels = self._columns(idx), self._table, self._kernels
        state, followed, operator = self.state, self.followed, self.source

        def work(out: Array, part: tuple[int, int], columns: tuple[int, int]) -> None:
            memory = operator.workspace()
            add_gaussians(pair, table, kernels, a, b, state, followed, d, part, memory, out)

        return work


class FactorProducts(RunningProducts):
    """Running products of factored kernels: only z_k = F_k v is kept, K_k v = F_k'z_k follows.

    The factors of all m kernels lie one below the other, (R, n), and `owner` has the kernel of
    each of their rows.
    """

    def __init__(self, factors: Array, owner: Array, m: int) -> None:
        self._factors, self._owner = factors, owner
        self._offsets = np.searchsorted(owner, np.arange(m + 1))
        self.m, self.n = m, factors.shape[1]
        self._z = np.zeros(len(factors))
        self.restrict(None)

    def reset(self, v: Array) -> None:
        self.restrict(None)
        self._z[:] = self._factors @ v if np.any(v) else 0.0

    def synchronise(self, v: Array) -> Array:
        self.reset(v)
        return np.bincount(self._owner, weights=self._z**2, minlength=self.m)

    def _fill_pair(self, i: int, j: int, at: Array, block: Array) -> None:
        factor_pair(self._factors, self._offsets, self.followed, self._z, i, j, at, block)

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

    `members` holds which kernels of the whole each part has, in the part's order. A kernel that
    several parts have is the sum of what they have of it.
    """

    def __init__(self, parts: Sequence[Any], members: Sequence[Any], n: int) -> None:
        self._parts, self._members = parts, members
        self.m, self.n = 1 + max(int(np.max(own)) for own in members), n
        self._locate(None)

    def _ask(self, name: str, args: dict[int, tuple[Any, ...]]) -> list[Any]:
        """Call a method of several parts, each with its arguments."""
        return [getattr(self._parts[p], name)(*own) for p, own in args.items()]

    def _ask_all(self, name: str, *args: Any) -> list[Any]:
        return self._ask(name, dict.fromkeys(range(len(self._members)), args))

    def _locate(self, kernels: Array | None) -> None:
        """Set which kernels are followed, and for each part where its own are among them."""
        super().restrict(kernels)
        place = np.full(self.m, -1)
        place[self.followed] = np.arange(len(self.followed))
        places = [place[own] for own in self._members]
        self._here = [np.flatnonzero(own >= 0) for own in places]
        # Parts that follow no kernel are not asked.
        self._own = {p: own[own >= 0] for p, own in enumerate(places) if own.max() >= 0}

    def restrict(self, kernels: Array | None) -> None:
        self._locate(kernels)
        self._ask("restrict", {p: (here,) for p, here in enumerate(self._here)})

    def reset(self, v: Array) -> None:
        self._ask_all("reset", v)
        self._locate(None)

    def synchronise(self, v: Array) -> Array:
        out = np.zeros(self.m)
        for own, quad in zip(self._members, self._ask_all("synchronise", v), strict=True):
            out[own] += quad
        self._locate(None)
        return out

    def _fill_pair(self, i: int, j: int, at: Array, block: Array) -> None:
        asked = dict.fromkeys(self._own, (i, j))
        for own, (some, between) in zip(self._own.values(), self._ask("pair", asked), strict=True):
            at[own] += some
            block[own] += between

    def move(self, idx: Array, delta: Array, d: Array) -> Array:
        asked = {p: (idx, delta, d[own]) for p, own in self._own.items()}
        return sum(self._ask("move", asked), start=np.zeros(self.n))

    def weigh(self, d: Array) -> Array:
        asked = {p: (d[own],) for p, own in self._own.items()}
        return sum(self._ask("weigh", asked), start=np.zeros(self.n))
