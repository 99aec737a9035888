"""K_k v of every kernel, for a v that changes at two samples at a time: the state of MWUMKL."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelweave.compiled.blocks import (
    CACHED_COLUMNS,
    STACK_ENTRIES,
    SUM_PARTS,
    gaussian_kernels,
    rows_of,
)
from kernelweave.compiled.dense_rows import add_rows, row_products
from kernelweave.compiled.gaussians import Batch, pair_values
from kernelweave.compiled.mwu import add_and_weigh, add_gaussians, factor_pair, row_pair
from kernelweave.compiled.threads import map_blocks
from kernelweave.memory import require_bytes
from kernelweave.operators.row_cache import RowCache, shared_cache

__all__ = [
    "BatchProducts",
    "FactorProducts",
    "MatrixProducts",
    "RowProducts",
    "RunningProducts",
    "StackedProducts",
    "StateProducts",
    "running_products",
]

Array = NDArray[Any]

# work(sum, range of the kernels followed, range of the columns)
Work = Callable[[Array, tuple[int, int], tuple[int, int]], None]

# Entries above which the state is kept in float32: from 0.8 GB on memory counts for more.
_LARGE_STATE = 100_000_000
# A pass over one block of columns is cut by kernels if there are so many that the sums of the parts
# cost at most a sixteenth of it.
_MANY_KERNELS = 16 * SUM_PARTS


class RunningProducts(ABC):
    """K_k v of every kernel, kept up to date while v changes at two samples at a time.

    This is the state ``G_k a`` of MWUMKL (algorithm 4). One move costs two rows of every kernel
    and one pass over the state, O(m n), and no matrix is formed. Kernels can be left frozen: moves
    then cost nothing for them until `synchronise` brings all of them up to date at once.

    Attributes
    ----------
    m, n : int
        Numbers of kernels and samples.
    followed : ndarray of int
        The kernels that follow the moves. `pair`, `move` and `weigh`, and the weights they are
        given, are about these, in this order.
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
    def pair(self, i: int, j: int) -> tuple[Array, Array]:
        """What moving i and j has to know of every kernel followed.

        (K_k v)_i and (K_k v)_j, shape (len(followed), 2), and K_k[i, i], K_k[j, j] and K_k[i, j],
        shape (len(followed), 3).
        """

    def _pair_memory(self) -> tuple[Array, Array]:
        return np.zeros((len(self.followed), 2)), np.zeros((len(self.followed), 3))

    @abstractmethod
    def move(self, idx: Array, delta: Array, d: Array) -> Array:
        """Add `delta` to v at two samples and return sum_k d_k K_k v, shape (n,)."""

    @abstractmethod
    def weigh(self, d: Array) -> Array:
        """sum_k d_k K_k v, shape (n,)."""


class StateProducts(RunningProducts):
    """Running products kept as one m x n array, float64 unless it is very large.

    Of the kernels, the `source`, it asks for `m`, `n` and `apply`.
    """

    def __init__(self, source: Any) -> None:
        self.source = source
        self.m, self.n = source.m, source.n
        dtype = np.dtype(np.float64 if self.m * self.n <= _LARGE_STATE else np.float32)
        require_bytes(
            float(self.m) * self.n * dtype.itemsize,
            f"the state of {self.m} kernels on {self.n} samples",
        )
        self.state = np.zeros((self.m, self.n), dtype)
        # What the kernels frozen have missed.
        self._missed = np.zeros(self.n)
        self.restrict(None)

    def reset(self, v: Array) -> None:
        self.state.fill(0.0)
        self._missed[:] = 0.0
        self.restrict(None)
        self._catch_up(self.followed, v)

    def _catch_up(self, kernels: Array, v: Array) -> None:
        """state[k] += K_k v for these kernels."""
        if not np.any(v):
            return
        size = rows_of(self.n, STACK_ENTRIES)
        for first in range(0, len(kernels), size):
            part = kernels[first : first + size]
            self.state[part] += self.source.apply(v, part)

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

    def move(self, idx: Array, delta: Array, d: Array) -> Array:
        if len(self.followed) < self.m:
            np.add.at(self._missed, idx, delta)
        return self.follow(idx, delta, d)

    def follow(self, idx: Array, delta: Array, d: Array) -> Array:
        """`move` for a caller who remembers on its own what the kernels frozen have missed."""
        if not len(self.followed):
            return np.zeros(self.n)
        work = self._adder(idx, float(delta[0]), float(delta[1]), np.ascontiguousarray(d))
        return self._passed(work, len(self.followed))

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
        return self.n <= CACHED_COLUMNS and count >= _MANY_KERNELS

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


class RowProducts(StateProducts):
    """Running products that take the two rows of a move from the `row_cache` of their source.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.operators import DenseOperator
    >>> products = RowProducts(DenseOperator([np.eye(3), np.ones((3, 3))]))
    >>> products.move(np.array([0, 2]), np.array([1.0, 2.0]), np.array([1.0, 10.0]))
    array([31., 30., 32.])
    """

    def __init__(self, source: Any) -> None:
        self._cache: RowCache | None = None
        # The kernels in the cache, and where among them those followed are.
        self._cached = np.empty(0, np.int64)
        self._places = self._cached
        super().__init__(source)

    def restrict(self, kernels: Array | None) -> None:
        """See :class:`RunningProducts`; rows that hold much more than the kernels followed go."""
        super().restrict(kernels)
        inside = np.isin(self.followed, self._cached, assume_unique=True)
        if not inside.all() or 2 * len(self.followed) < len(self._cached):
            self._cache = None
            self._cached = np.sort(self.followed)
        self._places = np.searchsorted(self._cached, self.followed)

    def _rows(self, idx: Array) -> tuple[Array, Array]:
        """Rows of length n, and the places among them of rows `idx` of the kernels followed.

        The places have shape (len(idx), len(followed)).
        """
        if self._cache is None:
            self._cache = self.source.row_cache(self._cached)
        slab, slots = self._cache.slots(idx)
        return slab.reshape(-1, self.n), slots[:, None] * len(self._cached) + self._places

    def pair(self, i: int, j: int) -> tuple[Array, Array]:
        at, block = self._pair_memory()
        if len(self.followed):
            row_pair(*self._rows(np.array([i, j])), self.state, self.followed, i, j, at, block)
        return at, block

    def _adder(self, idx: Array, a: float, b: float, d: Array) -> Work:
        rows, places = self._rows(idx)
        state, followed = self.state, self.followed

        def work(out: Array, part: tuple[int, int], columns: tuple[int, int]) -> None:
            add_and_weigh(rows, places, a, b, state, followed, d, out, part, columns)

        return work


def running_products(operator: Any, weights: Array | None = None) -> RunningProducts:
    """Return the running products of an operator, or of the one kernel sum_k weights_k K_k."""
    return operator.running() if weights is None else RowProducts(_SumOfKernels(operator, weights))


class _SumOfKernels:
    """One kernel, as far as :class:`RowProducts` ask for it."""

    m = 1

    def __init__(self, operator: Any, weights: Array) -> None:
        self.operator, self.weights, self.n = operator, weights, operator.n

    def apply(self, v: Array, kernels: Array) -> Array:
        """K v, shape (1, n)."""
        return np.asarray(self.operator.quad_and_product(v, self.weights)[1])

    def row_cache(self, kernels: Array) -> RowCache:
        """Return a cache of rows, shared with others of the same weights."""
        operator, weights = self.operator, self.weights

        def rows(idx: Array) -> Array:
            return np.asarray(operator.weighted(weights, idx)[None])

        def make() -> RowCache:
            return RowCache(rows, 1, self.n, operator.kept_bytes, np.dtype(np.float64))

        return shared_cache(operator, b"sum" + weights.tobytes(), make)


class MatrixProducts(RowProducts):
    """Running products with matrices that lie one behind the other in memory, (m, n, n)."""

    def __init__(self, source: Any, stack: Array) -> None:
        super().__init__(source)
        self._all_rows = stack.reshape(-1, self.n)

    def restrict(self, kernels: Array | None) -> None:
        """See :class:`RunningProducts`; there is no cache to look after."""
        StateProducts.restrict(self, kernels)
        self._first = self.followed * self.n

    def _rows(self, idx: Array) -> tuple[Array, Array]:
        return self._all_rows, self._first + idx[:, None]


class BatchProducts(StateProducts):
    """The m x n state of a batch: a move evaluates two rows of every kernel and keeps none of them.

    For what `table` and `batch` hold see ``kernelweave.compiled.gaussians``. ``columns(idx)``
    returns samples as columns, where they are not those of the table.
    """

    def __init__(
        self,
        source: Any,
        table: Array,
        batch: Batch,
        columns: Callable[[Array], Array] | None = None,
    ) -> None:
        super().__init__(source)
        self._table, self._batch = table, batch
        self._columns = columns or (lambda idx: np.ascontiguousarray(table[:, idx]))

    def pair(self, i: int, j: int) -> tuple[Array, Array]:
        at, block = self._pair_memory()
        at[:, 0], at[:, 1] = self.state[self.followed, i], self.state[self.followed, j]
        # The diagonal is one.
        block[:, :2] = 1.0
        columns, kernels = self._columns(np.array([i, j])), self.followed
        values = np.empty(len(block))

        def work(start: int, stop: int) -> None:
            pair_values(columns, self._batch, kernels[start:stop], values[start:stop])

        map_blocks(work, len(values), *gaussian_kernels(len(values), 1))
        block[:, 2] = values
        return at, block

    def _by_kernels(self, count: int) -> bool:
        """Always: a kernel's columns are loaded once for all samples."""
        return True

    def _adder(self, idx: Array, a: float, b: float, d: Array) -> Work:
        pair, table, batch = self._columns(idx), self._table, self._batch
        state, followed = self.state, self.followed

        def work(out: Array, part: tuple[int, int], columns: tuple[int, int]) -> None:
            add_gaussians(pair, table, batch, a, b, state, followed, d, out, part)

        return work


class FactorProducts(RunningProducts):
    """Running products of factored kernels: only z_k = F_k v is kept, K_k v = F_k'z_k follows.

    The factors of all kernels lie one below the other, (R, n), and `offsets` is where each begins.
    """

    def __init__(self, factors: Array, offsets: Array) -> None:
        self._factors, self._offsets = factors, offsets
        self.m, self.n = len(offsets) - 1, factors.shape[1]
        self._owner = np.repeat(np.arange(self.m), np.diff(offsets))
        self._z = np.zeros(len(factors))
        self.restrict(None)

    def reset(self, v: Array) -> None:
        self.restrict(None)
        self._z[:] = self._factors @ v if np.any(v) else 0.0

    def synchronise(self, v: Array) -> Array:
        """See :class:`RunningProducts`; z follows every move, so none is ever frozen."""
        self.restrict(None)
        return np.bincount(self._owner, weights=self._z**2, minlength=self.m)

    def pair(self, i: int, j: int) -> tuple[Array, Array]:
        at, block = self._pair_memory()
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

    def _everybody(self, *args: Any) -> dict[int, tuple[Any, ...]]:
        return dict.fromkeys(range(len(self._members)), args)

    def _locate(self, kernels: Array | None) -> None:
        """Set which kernels are followed, and for each part where its own are among them."""
        super().restrict(kernels)
        place = np.full(self.m, -1)
        place[self.followed] = np.arange(len(self.followed))
        self._here = [np.flatnonzero(place[own] >= 0) for own in self._members]
        self._own = [
            place[np.asarray(own)[here]]
            for own, here in zip(self._members, self._here, strict=True)
        ]

    def restrict(self, kernels: Array | None) -> None:
        self._locate(kernels)
        self._ask("restrict", {p: (here,) for p, here in enumerate(self._here)})

    def reset(self, v: Array) -> None:
        self._ask("reset", self._everybody(v))
        self._locate(None)

    def synchronise(self, v: Array) -> Array:
        out = np.zeros(self.m)
        for own, quad in zip(
            self._members, self._ask("synchronise", self._everybody(v)), strict=True
        ):
            out[own] += quad
        self._locate(None)
        return out

    def pair(self, i: int, j: int) -> tuple[Array, Array]:
        at, block = self._pair_memory()
        asked = {p: (i, j) for p, own in enumerate(self._own) if len(own)}
        for p, (some, between) in zip(asked, self._ask("pair", asked), strict=True):
            at[self._own[p]] += some
            block[self._own[p]] += between
        return at, block

    def move(self, idx: Array, delta: Array, d: Array) -> Array:
        asked = {p: (idx, delta, d[own]) for p, own in enumerate(self._own)}
        return self._sum(self._ask("move", asked))

    def weigh(self, d: Array) -> Array:
        asked = {p: (d[own],) for p, own in enumerate(self._own) if len(own)}
        return self._sum(self._ask("weigh", asked))

    def _sum(self, parts: list[Any]) -> Array:
        out = np.zeros(self.n)
        for part in parts:
            out += part
        return out
