"""What a worker does for kernels that are cut by points: all kernels, against its own samples."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernelweave.operators.base import Array, Which, kernel_runs
from kernelweave.operators.rounds import BoxConstraints
from kernelweave.operators.row_cache import RowCache, shared_cache
from kernelweave.operators.running import BatchProducts, RowProducts, StateProducts

__all__ = ["PointShard"]


class PointShard:
    """Some of the samples, on a worker: from sample `first` on, of `n_all`.

    Questions come with the other samples they are about, as the operator's `pack` leaves them. The
    kernels here have no samples of their own.
    """

    def __init__(self, kernels: Any, packed: Any, first: int, n_all: int, cache_mb: float) -> None:
        self.kernels, self.own = kernels, kernels.open(packed)
        self.first, self.n_all, self.cache_bytes = first, n_all, 1e6 * cache_mb
        self._states: dict[int, _PointState] = {}
        # The two samples of the move that is being made, and which ones they are.
        self.sent: Any = None
        self.sent_ids: list[int] = []

    # Passes

    def _between(self, packed: Any, here: Which, sent_first: bool) -> Any:
        """The kernels of the samples sent and those here (None: all of them), or the other way."""
        mine = self.own if here is None else self.own.take(here)
        sent = self.kernels.open(packed)
        return self.kernels.of_rows(*((sent, mine) if sent_first else (mine, sent)))

    def ask(self, packed: Any, here: Which, sent_first: bool, name: str, *args: Any) -> Array:
        """Ask the operator between the samples sent and those here."""
        return np.array(getattr(self._between(packed, here, sent_first), name)(*args))

    def quad_and_product(
        self, packed: Any, V: Array, here: Which, V_here: Array, d: Array | None, kernels: Array
    ) -> tuple[Array, Array | None]:
        """(v'K_k v, summed over the samples here on one side, and sum_k d_k K_k v at these)."""
        operator, quad = self._between(packed, here, False), np.zeros(len(kernels))
        product = None if d is None else np.zeros(V_here.shape)
        for part in kernel_runs(len(kernels), V_here.size):
            products = operator.apply(V, kernels[part])
            quad[part] = np.einsum("ktn,tn->k", products, V_here)
            if d is not None:
                product += np.tensordot(d[part], products, axes=1)
        return quad, product

    def diagonal(self, kernels: Array) -> Array:
        """K_k(x, x) of the samples here."""
        return np.array(self.kernels.of_rows(self.own, self.own).diagonal(kernels))

    def diagonal_sum(self, kernels: Array) -> Array:
        """Sum of K_k(x, x) over the samples here."""
        parts = kernel_runs(len(kernels), self.own.n)
        return np.concatenate([self.diagonal(kernels[part]).sum(axis=1) for part in parts])

    def sum_products(self, packed: Any, V: Array, kernels: Array) -> Array:
        """sum_k K_k V[k] at the samples here, from all samples."""
        found: Array = self._between(packed, None, False).select(kernels).sum_products(V)
        return found

    def squares(self, packed: Any, kernels: Array) -> Array:
        """sum_k K_k[here]' K_k[here], from all samples."""
        found: Array = self._between(packed, None, False).select(kernels).square_sum()
        return found

    # Rounds

    def begin(self, key: int, rules: BoxConstraints, kernels: Array, weights: Array | None) -> None:
        """Keep K_k v at the samples here from now on, for v = 0 and under this key."""
        self._states[key] = _PointState(self, rules, kernels, weights)

    def forget(self, key: int) -> None:
        """Drop that state."""
        self._states.pop(key, None)

    def state(self, key: int, name: str, *args: Any) -> Any:
        """Call a method of the state of this key."""
        return getattr(self._states[key], name)(*args)


class _PointState:
    """v, the columns of the m x n state that belong to the samples here, and their best pair.

    The samples of a move need not be among those here, and are sent along. What kernels frozen
    have missed is known to the one who sends, too. With weights the state is that of one kernel,
    sum_k weights_k K_k.
    """

    def __init__(
        self, shard: PointShard, rules: BoxConstraints, kernels: Array, weights: Array | None
    ) -> None:
        self._shard, self._rules, self._kernels, self._weights = shard, rules, kernels, weights
        self.m, self.n = len(kernels) if weights is None else 1, shard.own.n
        self.v, self._fitted = np.zeros(self.n), np.zeros(self.n)
        batch = shard.kernels.of_rows(shard.own, shard.own).select(kernels).compiled
        self._products: StateProducts
        if batch is not None and weights is None:
            # Rows are computed as fast as they could be read, and none are kept.
            table = shard.own.values
            self._products = BatchProducts(self, table, batch, lambda idx: shard.sent.values)
        else:
            self._products = RowProducts(self)

    def row_cache(self, kernels: Array) -> RowCache:
        """Return a cache of rows against the samples here, which all tasks share."""
        shard, weights = self._shard, self._weights
        chosen = self._kernels[kernels] if weights is None else self._kernels

        def rows(idx: Array) -> Array:
            sent = shard.sent.take(np.array([shard.sent_ids.index(i) for i in idx]))
            operator = shard.kernels.of_rows(sent, shard.own)
            if weights is None:
                return np.array(operator.block(kernels=chosen))
            return np.array(operator.select(chosen).weighted(weights))[None]

        def make() -> RowCache:
            count, dtype = len(kernels), np.dtype(np.float64)
            return RowCache(rows, count, shard.own.n, shard.cache_bytes, dtype, shard.n_all)

        key = chosen.tobytes() + (b"" if weights is None else b"sum" + weights.tobytes())
        return shared_cache(shard, key, make)

    def add(self, packed: Any, values: Array, kernels: Array | None) -> None:
        """Add the products of these kernels (None: all) with those values at the samples sent."""
        state, shard = self._products.state, self._shard
        here = shard.kernels.of_rows(shard.own, shard.kernels.open(packed))
        if self._weights is not None:
            state[0] += here.select(self._kernels).weighted(self._weights) @ values
            return
        kernels = np.arange(self.m) if kernels is None else kernels
        for some in kernel_runs(len(kernels), self.n):
            part = kernels[some]
            state[part] += here.apply(values, self._kernels[part])

    def place(self, v: Array, followed: Array | None, d: Array) -> Array:
        """Set v, whose products have been added, and the kernels followed; choose by weights d."""
        self.v[:] = v
        self.restrict(followed)
        return self.weigh(d)

    def restrict(self, kernels: Array | None) -> None:
        """Let only these kernels (None: all) follow the moves."""
        self._products.restrict(kernels)

    def synchronise(self) -> Array:
        """Follow all kernels; returns v'K_k v, as far as v lives here on one side."""
        self._products.restrict(None)
        return self._products.quads(self.v)

    def weigh(self, d: Array) -> Array:
        """Choose by weights d."""
        self._fitted = self._products.weigh(d)
        return self._choose()

    def move(self, packed: Any, idx: Array, delta: Array, d: Array) -> Array:
        """Move two samples, wherever they live, and choose by weights d."""
        self._shard.sent, self._shard.sent_ids = self._shard.kernels.open(packed), idx.tolist()
        self._fitted = self._products.follow(idx, delta, d)
        places = idx - self._shard.first
        here = (places >= 0) & (places < self.n)
        np.add.at(self.v, places[here], delta[here])
        return self._choose()

    def last_fitted(self) -> Array:
        """sum_k d_k K_k v at the samples here, by the last weights."""
        return self._fitted

    def _choose(self) -> Array:
        """The best to rise and the best to fall: (index, score, v, K_k v of those followed)."""
        i, high, j, low = self._rules.best_pair(self._fitted, self.v)
        followed = self._products.followed
        out = np.full((2, 3 + len(followed)), -1.0)
        for row, best, score in ((0, i, high), (1, j, low)):
            if best >= 0:
                out[row, :3] = best + self._shard.first, score, self.v[best]
                out[row, 3:] = self._products.state[followed, best]
        return out
