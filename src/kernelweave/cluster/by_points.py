"""Kernels on a cluster, cut by points: every worker computes all kernels of its samples."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from operator import methodcaller
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from kernelweave.arrays import Array
from kernelweave.cluster.team import Team, pickled_bytes
from kernelweave.memory import require_bytes
from kernelweave.operators.base import (
    KernelOperator,
    Which,
    as_tasks,
    kernel_indices,
    kernel_runs,
    round_size_of,
)
from kernelweave.operators.bounds import semi_definite

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

    def held(self, idx: Which) -> dict[int, tuple[Which, Any]]:
        """For every shard that holds some of these samples (None: all): where, and which of them.

        The places there are None for all that it holds.
        """
        if idx is None:
            return {w: (None, self.own(w)) for w in range(len(self.team))}
        holder = np.searchsorted(self.starts, idx, side="right") - 1
        found = ((int(w), np.flatnonzero(holder == w)) for w in np.unique(holder))
        return {w: (idx[which] - self.starts[w], which) for w, which in found}

    def ask(
        self,
        chosen: Array,
        call_of: Callable[[int, slice], Callable[[Any], Any]],
        sent: Array,
        held: dict[int, tuple[Which, Any]],
        copies: float = 1.0,
    ) -> Iterator[tuple[slice, int, Any]]:
        """Ask shards for kernels between some samples that they hold and those sent to them.

        Yields (which of those sent, shard, what its `call_of` returned), a message at a time.
        """
        first = 0
        for part, packed in self.messages(sent, copies):
            some = slice(first, first + len(part))
            asked = {w: (chosen, call_of(w, some), packed, here) for w, (here, _) in held.items()}
            for w, answer in zip(held, self.team.ask("ask", asked), strict=True):
                yield some, w, answer
            first = some.stop

    # Values

    def _fill(self, out: Array, idx: Array, columns: Which, chosen: Array, call: Any) -> None:
        """Put what the shards answer for rows `idx` into the last two axes of `out`."""
        held = self.held(None if columns is None else np.asarray(columns))
        for some, w, answer in self.ask(chosen, lambda *_: call, idx, held):
            out[..., some, held[w][1]] = answer.swapaxes(-1, -2)

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
        support = np.flatnonzero(tasks.any(axis=0))
        values, shards = tasks[:, support], self.held(rows)

        def call_of(w: int, some: slice) -> Any:
            return methodcaller("apply", values[:, some])

        out = np.zeros((len(chosen), len(tasks), self.n if rows is None else len(rows)))
        for _, w, answer in self.ask(self.members[chosen], call_of, support, shards):
            out[:, :, shards[w][1]] += answer
        return out

    def _quads(self, tasks: Array, chosen: Array, d: Array | None) -> tuple[Array, Array]:
        """v'K_k v, and with weights sum_k d_k K_k v; without them few samples are asked for."""
        support = np.flatnonzero(tasks.any(axis=0))
        sent = tasks[:, support]
        shards, here = self.held(support if d is None else None), sent if d is None else tasks

        def call_of(w: int, some: slice) -> Any:
            return partial(quads_and_sum, sent[:, some], here[:, shards[w][1]], d)

        quad, product = np.zeros(len(chosen)), np.zeros_like(tasks)
        for _, w, (found, added) in self.ask(chosen, call_of, support, shards):
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
    ) -> Any:
        """Ask the kernels chosen between those here (None: all) and those sent (None: these)."""
        mine = self.own if here is None else self.own.take(here)
        return call(self.between(chosen, mine, mine if packed is None else packed))

    def between(self, chosen: Array, left: Any, right: Any) -> Any:
        operator = self.kernels.of_rows(left, right)
        whole = np.array_equal(chosen, np.arange(operator.m))
        return operator if whole else operator.select(chosen)


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
