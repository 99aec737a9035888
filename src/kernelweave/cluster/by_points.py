"""Kernels on a cluster, cut by points: every worker computes all kernels of its samples."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from operator import methodcaller
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from kernelweave.cluster.team import Team, pickled_bytes
from kernelweave.memory import require_bytes
from kernelweave.operators.base import (
    Array,
    KernelOperator,
    Which,
    as_tasks,
    kernel_indices,
    kernel_runs,
    round_size_of,
    semi_definite,
)
from kernelweave.operators.gaussians import GaussianOperator
from kernelweave.operators.rounds import BoxConstraints, PairStep, Rounds, rounds_of
from kernelweave.operators.row_cache import RowCache, shared_cache
from kernelweave.operators.running import BatchProducts, RowProducts, SumOfKernels

# A worker holds the rows it was sent and the copies that kernels make of them.
_COPIES = 3


class PointShards(KernelOperator):
    """All kernels on every worker, each against samples of its own.

    The samples where v is not zero are sent to every worker; K_k v comes back from those that hold
    it. See :class:`~kernelweave.cluster.DaskBank`.
    """

    # Samples that are sent to all workers travel in messages of about this size: large beside what
    # a message costs in itself, small beside the memory of a worker.
    message_bytes = 32e6
    keeps_rows = True

    def __init__(self, client: Any, kernels: Any, cache_mb: float, patience: float) -> None:
        # All kernels on all samples, here, and which of them this operator has.
        self.kernels, self.members, self.cache_mb = kernels, np.arange(kernels.m), cache_mb
        self.n, self.m, self.names = kernels.n, kernels.m, kernels.names
        self.round_size = round_size_of(self.n)
        count = min(len(Team.addresses(client)), self.n)
        # Where the samples of each shard begin.
        self.starts = starts = np.linspace(0, self.n, count + 1).astype(np.int64)
        recipe, n = kernels.without_samples(), self.n
        self.row_bytes = pickled_bytes(kernels.pack(np.array([0])))
        each = _COPIES * self.row_bytes * np.diff(starts)

        def ingredients(w: int) -> tuple[Any, ...]:
            own = np.arange(starts[w], starts[w + 1])
            return recipe, kernels.pack(own), int(starts[w]), n, cache_mb

        needed = (pickled_bytes(recipe) + each).tolist()
        self.team = Team(client, PointShard, ingredients, needed, patience)

    def chosen(self, kernels: Which) -> Array:
        """Return those kernels as the shards count them."""
        return self.members[kernel_indices(kernels, self.m)]

    def take(self, idx: Array) -> KernelOperator:
        few: KernelOperator = self.kernels.take(np.asarray(idx)).select(self.members)
        return few

    def select(self, kernels: Array) -> PointShards:
        chosen = self.chosen(kernels)
        names = [self.kernels.names[k] for k in chosen]
        return self._but(members=chosen, m=len(chosen), names=names)

    def own(self, w: int) -> slice:
        return slice(int(self.starts[w]), int(self.starts[w + 1]))

    def messages(self, idx: Array, copies: float = 1.0) -> Iterator[tuple[Array, Any]]:
        """Yield samples as they travel, a bounded number at a time."""
        size = max(1, int(self.message_bytes // (copies * self.row_bytes)))
        for first in range(0, len(idx), size):
            part = idx[first : first + size]
            yield part, self.kernels.pack(part)

    def _held(self, idx: Which) -> dict[int, tuple[Which, Any]]:
        """For every shard that holds some of these samples (None: all): where, and which of them.

        The places there are None for all that it holds.
        """
        if idx is None:
            return {w: (None, self.own(w)) for w in range(len(self.team))}
        holder = np.searchsorted(self.starts, idx, side="right") - 1
        found = ((int(w), np.flatnonzero(holder == w)) for w in np.unique(holder))
        return {w: (idx[which] - self.starts[w], which) for w, which in found}

    def _ask(
        self,
        chosen: Array,
        call_of: Callable[[int, slice], Callable[[Any], Any]],
        sent: Array,
        held: dict[int, tuple[Which, Any]],
        sent_first: bool = False,
        copies: float = 1.0,
    ) -> Iterator[tuple[slice, int, Any]]:
        """Ask shards for kernels between samples that are sent to them and some that they hold.

        Yields (which of those sent, shard, what its `call_of` returned), a message at a time.
        """
        first = 0
        for part, packed in self.messages(sent, copies):
            some = slice(first, first + len(part))
            asked = {
                w: (chosen, call_of(w, some), packed, here, sent_first)
                for w, (here, _) in held.items()
            }
            for w, answer in zip(held, self.team.ask("ask", asked), strict=True):
                yield some, w, answer
            first = some.stop

    # Values

    def _fill(self, out: Array, idx: Array, columns: Which, chosen: Array, call: Any) -> None:
        """Put what the shards answer for rows `idx` into the last two axes of `out`."""
        held = self._held(None if columns is None else np.asarray(columns))
        for some, w, answer in self._ask(chosen, lambda *_: call, idx, held, sent_first=True):
            out[..., some, held[w][1]] = answer

    def block(self, rows: Which = None, columns: Which = None, kernels: Which = None) -> Array:
        chosen, idx = self.chosen(kernels), np.arange(self.n) if rows is None else np.asarray(rows)
        width = self.n if columns is None else len(columns)
        require_bytes(8.0 * len(chosen) * len(idx) * width, f"{len(idx)} rows of the kernels")
        out = np.empty((len(chosen), len(idx), width))
        self._fill(out, idx, columns, chosen, methodcaller("block"))
        return out

    def weighted(
        self, d: ArrayLike, rows: Which = None, columns: Which = None, out: Array | None = None
    ) -> Array:
        idx = np.arange(self.n) if rows is None else np.asarray(rows)
        width = self.n if columns is None else len(columns)
        out = self._sum_memory(len(idx), width) if out is None else out
        self._fill(out, idx, columns, self.members, methodcaller("weighted", np.asarray(d)))
        return out

    def diagonal(self, kernels: Which = None) -> Array:
        call = methodcaller("diagonal")
        return np.concatenate(self.team.ask_all("ask", self.chosen(kernels), call), axis=1)

    # Products

    def _apply(self, tasks: Array, chosen: Array, rows: Which) -> Array:
        """Of the samples of some rows only these are sent."""
        members = self.members[chosen]
        support = np.flatnonzero(tasks.any(axis=0))
        values = tasks[:, support]
        sent, held = (support, None) if rows is None else (np.asarray(rows), support)
        shards = self._held(held)

        def call_of(w: int, some: slice) -> Any:
            return methodcaller("apply", values[:, some if rows is None else shards[w][1]])

        out = np.zeros((len(chosen), len(tasks), self.n if rows is None else len(sent)))
        for some, w, answer in self._ask(members, call_of, sent, shards, rows is not None):
            out[:, :, shards[w][1] if rows is None else some] += answer
        return out

    def _quads(self, tasks: Array, chosen: Array, d: Array | None) -> tuple[Array, Array]:
        """v'K_k v, and with weights sum_k d_k K_k v; without them few samples are asked for."""
        support = np.flatnonzero(tasks.any(axis=0))
        sent = tasks[:, support]
        shards, here = self._held(support if d is None else None), sent if d is None else tasks

        def call_of(w: int, some: slice) -> Any:
            return partial(quads_and_sum, sent[:, some], here[:, shards[w][1]], d)

        quad, product = np.zeros(len(chosen)), np.zeros_like(tasks)
        for _, w, (found, added) in self._ask(chosen, call_of, support, shards):
            quad += found
            if d is not None:
                product[:, shards[w][1]] += added
        return quad, product

    def quad(self, v: Array, kernels: Which = None) -> Array:
        quad, _ = self._quads(as_tasks(v), self.chosen(kernels), None)
        return semi_definite(quad, v, self, kernel_indices(kernels, self.m))

    def quad_and_product(self, v: Array, d: Array) -> tuple[Array, Array]:
        tasks, active, rest = as_tasks(v), np.flatnonzero(d), np.flatnonzero(d == 0)
        quad, weights = np.zeros(self.m), np.asarray(d, dtype=float)[active]
        quad[active], product = self._quads(tasks, self.members[active], weights)
        if len(rest):
            quad[rest] = self.quad(tasks, rest)
        return semi_definite(quad, tasks, self, np.arange(self.m)), product

    def sum_products(self, V: Array) -> Array:
        out, shards = np.zeros(V.shape[1:]), self._held(None)
        copies = 1.0 + 8.0 * V.shape[0] * V.shape[1] / self.row_bytes

        def call_of(w: int, some: slice) -> Any:
            return methodcaller("sum_products", np.ascontiguousarray(V[:, :, some]))

        for _, w, answer in self._ask(
            self.members, call_of, np.arange(self.n), shards, copies=copies
        ):
            out[:, self.own(w)] += answer
        return out

    def square_sum(self) -> Array:
        packed = self.kernels.pack(np.arange(self.n))
        call = methodcaller("square_sum")
        return np.sum(self.team.ask_all("ask", self.members, call, packed), axis=0)


class PointRounds(Rounds):
    """Rounds of one superstep each: every worker keeps the state and the rules of its samples.

    A round sends two samples, their steps and the weights, and gets back from every worker its
    best pair, O(m + n_features) numbers. v is kept here as well, so that the state of a worker that
    died can be made again.
    """

    def __init__(self, operator: PointShards, rules: BoxConstraints, weights: Array | None) -> None:
        self._operator = operator
        # The kernels here, for the pairs that are chosen.
        few: KernelOperator = operator.kernels.select(operator.members)
        self._kernels = few if weights is None else SumOfKernels(few, weights)
        self._m = self._kernels.m
        team, members = operator.team, operator.members
        self._kept = team.keep(
            self, {w: (rules.of(operator.own(w)), members, weights) for w in range(len(team))}
        )
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


@rounds_of.register(PointShards)
def _(operator: PointShards, rules: BoxConstraints, weights: Array | None = None) -> Rounds:
    return PointRounds(operator, rules, weights)


# What a worker does: all kernels, against its own samples.


class PointShard:
    """Some of the samples, on a worker: from sample `first` on, of `n_all`.

    Questions come with the other samples they are about, `packed` by the operator. The kernels here
    have no samples of their own.
    """

    def __init__(self, kernels: Any, packed: Any, first: int, n_all: int, cache_mb: float) -> None:
        self.kernels, self.own = kernels, packed
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
        sent = mine if packed is None else packed
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
        operator = self._between(self._shard.own, packed)
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
        self._shard.sent, self._shard.sent_ids = packed, idx.tolist()
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
