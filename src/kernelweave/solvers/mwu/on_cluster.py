"""Rounds of MWUMKL on the workers of a cluster, which keep the state where the kernels are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from kernelweave.arrays import Array
from kernelweave.cluster.by_kernels import KernelShard, KernelShards
from kernelweave.cluster.by_points import PointShard, PointShards
from kernelweave.operators.base import KernelOperator, kernel_runs
from kernelweave.operators.gaussians import GaussianOperator
from kernelweave.operators.row_cache import RowCache
from kernelweave.solvers.mwu.rounds import BoxConstraints, PairStep, Rounds, rounds_of
from kernelweave.solvers.mwu.running import (
    BatchProducts,
    RowProducts,
    RunningProducts,
    StackedProducts,
    running_products,
    shared_cache,
)

# Cut by kernels


class _ShardProducts(StackedProducts):
    """Every worker keeps K_k v of its kernels; the sum over kernels is taken here.

    A round takes two supersteps, and n numbers come from every worker with kernels followed.
    """

    def __init__(self, operator: KernelShards) -> None:
        super().__init__((), operator.members, operator.n)
        self._v = np.zeros(self.n)
        sizes = {part.shard: part.m for part in operator.parts}
        self._shards = list(sizes)
        self._kept = operator.team.keep(
            self, {part.shard: (_products_of, part.chosen) for part in operator.parts}
        )
        operator.team.require(
            lambda w: 8.0 * sizes.get(w, 0) * self.n,
            f"the state of its {max(sizes.values())} kernels on {self.n} samples",
        )
        self._kept.begin()

    def _ask(self, name: str, args: dict[int, tuple[Any, ...]]) -> list[Any]:
        return self._kept.ask(name, {self._shards[p]: own for p, own in args.items()})

    def reset(self, v: Array) -> None:
        super().reset(v)
        self._v[:] = v

    def move(self, idx: Array, delta: Array, d: Array) -> Array:
        out = super().move(idx, delta, d)
        np.add.at(self._v, idx, delta)
        return out

    def past(self, w: int) -> Iterator[tuple[Any, ...]]:
        """Yield what shard w was told before this superstep."""
        yield "reset", self._v
        yield "restrict", self._here[self._shards.index(w)]


def _products_of(shard: KernelShard, chosen: Array | None) -> RunningProducts:
    return running_products(shard.of(chosen))


@rounds_of.register
def _(operator: KernelShards, rules: BoxConstraints) -> Rounds:
    return Rounds(_ShardProducts(operator), rules)


# Cut by points


class PointRounds(Rounds):
    """Rounds of one superstep each: every worker keeps the state and the rules of its samples.

    A round sends two samples, their steps and the weights, and gets back from every worker its
    best pair, O(m + n_features) numbers. v is kept here as well, so that the state of a worker that
    died can be made again.
    """

    def __init__(self, operator: PointShards, rules: BoxConstraints) -> None:
        self._operator, self._m = operator, operator.m
        # The kernels here, for the pairs that are chosen.
        self._kernels: KernelOperator = operator.kernels.select(operator.members)
        team, members = operator.team, operator.members
        beginnings = {w: (PointState, rules.of(operator.own(w)), members) for w in range(len(team))}
        self._kept = team.keep(self, beginnings)
        self._zero()
        sizes = np.diff(operator.starts)
        team.require(
            lambda w: 8.0 * self._m * sizes[w],
            f"the state of {self._m} kernels on its {sizes.max()} samples",
        )

    def _zero(self) -> None:
        # v, and as much of it as the kernels frozen have seen.
        self._v, self._seen = np.zeros(self._operator.n), np.zeros(self._operator.n)
        self._follow(None)

    def _follow(self, kernels: Array | None) -> None:
        self._followed = np.arange(self._m) if kernels is None else np.asarray(kernels)
        self._d = np.zeros(len(self._followed))

    def past(self, w: int) -> Iterator[tuple[Any, ...]]:
        """Yield what shard w was told before this superstep, in short."""
        for values, kernels in ((self._seen, None), (self._v - self._seen, self._followed)):
            for part, packed in self._operator.messages(np.flatnonzero(values)):
                yield "add", packed, values[part], kernels
        yield "place", self._v[self._operator.own(w)], self._followed, self._d

    def start(self, v: Array, d: Array) -> PairStep | None:
        self._zero()
        self._kept.begin()
        for part, packed in self._operator.messages(np.flatnonzero(v)):
            self._kept.ask_all("add", packed, v[part], None)
            self._v[part] = v[part]
        asked = {w: (v[self._operator.own(w)], None, d) for w in self._kept.beginnings}
        return self._best(self._kept.ask("place", asked), d)

    def advance(self, choice: PairStep, step_i: float, step_j: float, d: Array) -> PairStep | None:
        idx, delta = np.array([choice.i, choice.j]), np.array([step_i, step_j])
        packed = self._operator.kernels.pack(idx)
        found = self._kept.ask_all("move", packed, idx, delta, d)
        np.add.at(self._v, idx, delta)
        return self._best(found, d)

    def reweigh(self, d: Array) -> PairStep | None:
        return self._best(self._kept.ask_all("reweigh", d), d)

    def restrict(self, kernels: Array | None) -> None:
        self._kept.ask_all("restrict", kernels)
        self._seen[:] = self._v
        self._follow(kernels)

    def synchronise(self) -> Array:
        frozen = np.setdiff1d(np.arange(self._m), self._followed)
        missed = self._v - self._seen if len(frozen) else np.zeros(self._operator.n)
        for part, packed in self._operator.messages(np.flatnonzero(missed)):
            self._kept.ask_all("add", packed, missed[part], frozen)
            self._seen[part] = self._v[part]
        quads = self._kept.ask_all("synchronise")
        self._follow(None)
        return np.maximum(np.sum(quads, axis=0), 0.0)

    def fitted(self) -> Array:
        return np.concatenate(self._kept.ask_all("fitted"))

    def _best(self, found: list[Array], d: Array) -> PairStep | None:
        """The best pair of all; shards come in the order of their samples, and the first wins."""
        self._d = d
        up = [answer[0] for answer in found if answer[0, 0] >= 0]
        down = [answer[1] for answer in found if answer[1, 0] >= 0]
        if not up or not down:
            return None
        (i, score_i, v_i), at_i = np.split(max(up, key=lambda row: row[1]), [3])
        (j, score_j, v_j), at_j = np.split(min(down, key=lambda row: row[1]), [3])
        idx, at = np.array([i, j], dtype=np.int64), np.stack([at_i, at_j], axis=1)
        block = self._kernels.block(idx, idx, self._followed)[:, [0, 1, 0], [0, 1, 1]]
        numbers = float(score_i), float(score_j), float(v_i), float(v_j)
        return PairStep(int(i), int(j), *numbers, at, block)


rounds_of.register(PointShards, PointRounds)


class PointState(Rounds):
    """The rounds of the samples of a shard, as far as these know; `_choose` returns no pair.

    The samples of a move need not be among those here, and are sent along. What kernels frozen
    have missed is known to the one who sends, too.
    """

    _products: RowProducts

    def __init__(self, shard: PointShard, rules: BoxConstraints, chosen: Array) -> None:
        self._shard, self._chosen = shard, chosen
        operator = shard.between(chosen, shard.own, shard.own)
        if isinstance(operator, GaussianOperator):
            # Rows are computed as fast as they could be read, and none are kept.
            products: RowProducts = BatchProducts(operator, lambda _: shard.sent.values)
        else:
            products = RowProducts(operator, cache_of=self._cache_of)
        super().__init__(products, rules)

    def _cache_of(self, kernels: Array) -> RowCache:
        """Return a cache of rows against the samples here, which all tasks share."""
        shard, chosen = self._shard, self._chosen[kernels]

        def rows(idx: Array) -> Array:
            sent = shard.sent.take(np.array([shard.sent_ids.index(i) for i in idx]))
            return np.array(shard.between(chosen, sent, shard.own).block())

        def make() -> RowCache:
            count, dtype = len(chosen), np.dtype(np.float64)
            return RowCache(rows, count, shard.own.n, shard.cache_bytes, dtype, shard.n_all)

        return shared_cache(shard, chosen, make)

    def add(self, packed: Any, values: Array, kernels: Array | None) -> None:
        """Add the products of these kernels (None: all) with those values at the samples sent."""
        operator = self._shard.between(self._chosen, self._shard.own, packed)
        kernels = np.arange(operator.m) if kernels is None else kernels
        for some in kernel_runs(len(kernels), len(self._v)):
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
        self._shard.sent, self._shard.sent_ids = packed, idx.tolist()
        self._fitted = self._products.move(idx, delta, d)
        places = idx - self._shard.first
        here = (places >= 0) & (places < len(self._v))
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
