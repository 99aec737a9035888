"""What a worker does for kernels that are cut by points: all kernels, against its own samples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kernelweave.operators.base import Array, KernelOperator, Which, kernel_runs
from kernelweave.operators.gaussians import GaussianOperator
from kernelweave.operators.rounds import BoxConstraints, Rounds
from kernelweave.operators.row_cache import RowCache, shared_cache
from kernelweave.operators.running import BatchProducts, RowProducts, SumOfKernels

__all__ = ["PointShard", "quads_and_sum", "traces"]


class PointShard:
    """Some of the samples, on a worker: from sample `first` on, of `n_all`.

    Questions come with the other samples they are about, as the operator's `pack` leaves them. The
    kernels here have no samples of their own.
    """

    def __init__(self, kernels: Any, packed: Any, first: int, n_all: int, cache_mb: float) -> None:
        self.kernels, self.own = kernels, kernels.open(packed)
        self.first, self.n_all, self.cache_bytes = first, n_all, 1e6 * cache_mb
        # The two samples of the move that is being made, and which ones they are.
        self.sent: Any = None
        self.sent_ids: list[int] = []

    def ask(
        self,
        chosen: Array,
        call: Callable[[Any], Any],
        packed: Any = None,
        here: Which = None,
        sent_first: bool = False,
    ) -> Any:
        """Ask the kernels chosen between those here (None: all) and those sent (None: these)."""
        mine = self.own if here is None else self.own.take(here)
        sent = mine if packed is None else self.kernels.open(packed)
        return call(self.between(chosen, *((sent, mine) if sent_first else (mine, sent))))

    def between(self, chosen: Array, left: Any, right: Any) -> Any:
        operator = self.kernels.of_rows(left, right)
        whole = np.array_equal(chosen, np.arange(operator.m))
        return operator if whole else operator.select(chosen)

    def new_state(self, rules: BoxConstraints, chosen: Array, weights: Array | None) -> _PointState:
        return _PointState(self, rules, chosen, weights)


def quads_and_sum(
    V: Array, V_here: Array, d: Array | None, operator: KernelOperator
) -> tuple[Array, Array | None]:
    """(v'K_k v, summed over the samples here on one side, and sum_k d_k K_k v at these)."""
    quad, product = np.zeros(operator.m), None if d is None else np.zeros(V_here.shape)
    for part in kernel_runs(operator.m, V_here.size):
        products = operator.apply(V, part)
        quad[part] = np.einsum("ktn,tn->k", products, V_here)
        if d is not None:
            product += np.tensordot(d[part], products, axes=1)
    return quad, product


def traces(operator: KernelOperator) -> Array:
    """Sum of K_k(x, x) over the samples."""
    parts = kernel_runs(operator.m, operator.n)
    return np.concatenate([operator.diagonal(part).sum(axis=1) for part in parts])


class _PointState(Rounds):
    """The rounds of the samples here, as far as these know of them; `_choose` returns no pair.

    The samples of a move need not be among those here, and are sent along. What kernels frozen
    have missed is known to the one who sends, too. With weights the state is that of one kernel,
    sum_k weights_k K_k.
    """

    _products: RowProducts

    def __init__(
        self, shard: PointShard, rules: BoxConstraints, chosen: Array, weights: Array | None
    ) -> None:
        self._shard, self._chosen, self._weights = shard, chosen, weights
        operator = self._between(shard.own, shard.own)
        self.m, self.n = operator.m, shard.own.n
        if isinstance(operator, GaussianOperator):
            # Rows are computed as fast as they could be read, and none are kept.
            products: RowProducts = BatchProducts(operator, lambda _: shard.sent.values)
        else:
            products = RowProducts(self)
        super().__init__(products, rules)

    def _between(self, left: Any, right: Any) -> KernelOperator:
        operator = self._shard.between(self._chosen, left, right)
        return operator if self._weights is None else SumOfKernels(operator, self._weights)

    def row_cache(self, kernels: Array) -> RowCache:
        """Return a cache of rows against the samples here, which all tasks share."""
        shard = self._shard

        def rows(idx: Array) -> Array:
            sent = shard.sent.take(np.array([shard.sent_ids.index(i) for i in idx]))
            return np.array(self._between(sent, shard.own).block(kernels=kernels))

        def make() -> RowCache:
            count, dtype = len(kernels), np.dtype(np.float64)
            return RowCache(rows, count, shard.own.n, shard.cache_bytes, dtype, shard.n_all)

        weights = b"" if self._weights is None else b"sum" + self._weights.tobytes()
        return shared_cache(shard, self._chosen[kernels].tobytes() + weights, make)

    def add(self, packed: Any, values: Array, kernels: Array | None) -> None:
        """Add the products of these kernels (None: all) with those values at the samples sent."""
        operator = self._between(self._shard.own, self._shard.kernels.open(packed))
        kernels = np.arange(self.m) if kernels is None else kernels
        for some in kernel_runs(len(kernels), self.n):
            self._products.state[kernels[some]] += operator.apply(values, kernels[some])

    def place(self, v: Array, followed: Array | None, d: Array) -> Any:
        """Set v, whose products have been added, and the kernels followed; choose by weights d."""
        self._v[:] = v
        self.restrict(followed)
        return self.reweigh(d)

    def synchronise(self) -> Array:
        """Follow all kernels; returns v'K_k v, as far as v lives here on one side."""
        self.restrict(None)
        return self._products.quads(self._v)

    def move(self, packed: Any, idx: Array, delta: Array, d: Array) -> Any:
        """Move two samples, wherever they live, and choose by weights d."""
        self._shard.sent, self._shard.sent_ids = self._shard.kernels.open(packed), idx.tolist()
        self._fitted = self._products.move(idx, delta, d)
        places = idx - self._shard.first
        here = (places >= 0) & (places < self.n)
        np.add.at(self._v, places[here], delta[here])
        return self._choose()

    def _choose(self) -> Any:
        """The best to rise and the best to fall: (index, score, v, K_k v of those followed)."""
        i, high, j, low = self._rules.best_pair(self._fitted, self._v)
        followed = self._products.followed
        out = np.full((2, 3 + len(followed)), -1.0)
        for row, best, score in ((0, i, high), (1, j, low)):
            if best >= 0:
                out[row, :3] = best + self._shard.first, score, self._v[best]
                out[row, 3:] = self._products.state[followed, best]
        return out
