"""Kernels on a cluster, cut by points: every worker computes all kernels of its samples."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from kernelweave.cluster.point_rounds import PointRounds
from kernelweave.cluster.point_shard import PointShard
from kernelweave.cluster.team import Team, pickled_bytes
from kernelweave.operators.base import (
    Array,
    KernelOperator,
    Kind,
    Which,
    as_tasks,
    kernel_indices,
    round_size_of,
    semi_definite,
)
from kernelweave.operators.memory import require_bytes
from kernelweave.operators.rounds import BoxConstraints

__all__ = ["PointShards"]

# Samples that are sent to all workers travel in messages of about this size.
_MESSAGE_BYTES = 32e6
# A worker holds the rows it was sent and the copies that kernels make of them.
_COPIES = 3


class PointShards(KernelOperator):
    """All kernels on every worker, each against samples of its own.

    The samples where v is not zero are sent to every worker; K_k v comes back from those that hold
    it. See :class:`~kernelweave.cluster.DaskBank`.
    """

    keeps_rows = True

    def __init__(
        self, team: Team, kernels: Any, starts: Array, members: Array, cache_mb: float
    ) -> None:
        self.team, self.kernels, self.starts, self.members = team, kernels, starts, members
        self.n, self.m = kernels.n, len(members)
        everything = len(members) == kernels.m
        self.names = kernels.names if everything else [kernels.names[k] for k in members]
        self.round_size = round_size_of(self.n)
        self.cache_mb = cache_mb
        self.row_bytes = pickled_bytes(kernels.pack(np.array([0])))

    @classmethod
    def build(cls, client: Any, kernels: Any, cache_mb: float, patience: float) -> PointShards:
        """Send the kernels to every worker, and to each its samples."""
        count = min(len(Team.addresses(client)), kernels.n)
        starts = np.linspace(0, kernels.n, count + 1).astype(np.int64)
        recipe = kernels.without_samples()
        fixed = pickled_bytes(recipe)
        row = pickled_bytes(kernels.pack(np.array([0])))
        needed = [fixed + _COPIES * row * size for size in np.diff(starts)]

        def ingredients(w: int) -> tuple[Any, ...]:
            own = np.arange(starts[w], starts[w + 1])
            return recipe, kernels.pack(own), int(starts[w]), cache_mb

        team = Team(client, PointShard, ingredients, needed, patience)
        return cls(team, kernels, starts, np.arange(kernels.m), cache_mb)

    @property
    def nbytes(self) -> int:
        """Bytes of the shards, all workers together."""
        return int(self.team.nbytes)

    def own(self, w: int) -> slice:
        """Return the samples of shard w."""
        return slice(int(self.starts[w]), int(self.starts[w + 1]))

    def chosen(self, kernels: Array | None) -> Array:
        """Return those kernels as the shards count them."""
        return self.members[kernel_indices(kernels, self.m)]

    def messages(self, idx: Array, copies: float = 1.0) -> Iterator[tuple[Array, Any]]:
        """Yield samples as they travel, a bounded number at a time."""
        size = max(1, int(_MESSAGE_BYTES // (copies * self.row_bytes)))
        for first in range(0, len(idx), size):
            part = idx[first : first + size]
            yield part, self.kernels.pack(part)

    def _places(self, idx: Array) -> list[tuple[int, Array, Array]]:
        """For every shard that holds some of these samples: (shard, which of them, where there)."""
        holder = np.searchsorted(self.starts, idx, side="right") - 1
        found = ((w, np.flatnonzero(holder == w)) for w in np.unique(holder))
        return [(int(w), which, idx[which] - self.starts[w]) for w, which in found]

    # Rows

    def block(
        self, rows: Which = None, columns: Which = None, kernels: Which = None, dtype: Kind = None
    ) -> Array:
        chosen, idx = self.chosen(kernels), np.arange(self.n) if rows is None else np.asarray(rows)
        width = self.n if columns is None else len(columns)
        require_bytes(8.0 * len(chosen) * len(idx) * width, f"{len(idx)} rows of the kernels")
        out = np.empty((len(chosen), len(idx), width), np.float64 if dtype is None else dtype)
        self._fill(out, idx, columns, "rows", (chosen,))
        return out

    def _fill(
        self, out: Array, idx: Array, columns: Array | None, name: str, args: tuple[Any, ...]
    ) -> None:
        """Put what the shards say of rows `idx` into the last two axes of `out`."""
        places: dict[int, tuple[Any, Array | None]]
        if columns is None:
            places = {w: (self.own(w), None) for w in range(len(self.team))}
        else:
            places = {w: (which, at) for w, which, at in self._places(np.asarray(columns))}
        done = 0
        for part, packed in self.messages(idx):
            answers = self.team.ask(name, {w: (packed, places[w][1], *args) for w in places})
            for (where, _), answer in zip(places.values(), answers, strict=True):
                out[..., done : done + len(part), where] = answer
            done += len(part)

    def weighted(
        self, d: ArrayLike, rows: Which = None, columns: Which = None, out: Array | None = None
    ) -> Array:
        """See :class:`KernelOperator`; all of its numbers come here."""
        idx = np.arange(self.n) if rows is None else np.asarray(rows)
        width = self.n if columns is None else len(columns)
        out = self._sum_memory(len(idx), width) if out is None else out
        self._fill(out, idx, columns, "weighted", (np.asarray(d, dtype=float), self.members))
        return out

    def diagonal(self, kernels: Which = None) -> Array:
        chosen = self.chosen(kernels)
        return np.concatenate(self.team.ask_all("diagonal", chosen), axis=1)

    def eigenvalue_bound(self) -> Array:
        traces = np.sum(self.team.ask_all("diagonal_sum", self.members), axis=0)
        return np.maximum(traces - self.quad(np.ones(self.n)) / self.n, 0.0)

    # Products

    def apply(self, v: Array, kernels: Which = None, rows: Which = None) -> Array:
        """See :class:`KernelOperator`; of the samples of some rows only these are sent."""
        if rows is not None:
            return self._products_at(v, np.asarray(rows), kernels)
        chosen, tasks = self.chosen(kernels), as_tasks(v)
        out = np.zeros((len(chosen), len(tasks), self.n))
        for part, packed in self.messages(np.flatnonzero(tasks.any(axis=0))):
            answers = self.team.ask_all("products", packed, tasks[:, part], chosen)
            for w, answer in enumerate(answers):
                out[:, :, self.own(w)] += answer
        return out if np.ndim(v) == 2 else out[:, 0]

    def quad(self, v: Array, kernels: Which = None) -> Array:
        chosen, tasks = self.chosen(kernels), as_tasks(v)
        support = np.flatnonzero(tasks.any(axis=0))
        held = {w: (here, tasks[:, support[which]]) for w, which, here in self._places(support)}
        out = np.zeros(len(chosen))
        for part, packed in self.messages(support):
            values = tasks[:, part]
            asked = {w: (packed, values, *mine, chosen) for w, mine in held.items()}
            out += np.sum(self.team.ask("quad", asked), axis=0)
        return semi_definite(out, v, self, kernel_indices(kernels, self.m))

    def quad_and_product(self, v: Array, d: Array) -> tuple[Array, Array]:
        tasks = as_tasks(v)
        active, rest = np.flatnonzero(d), np.flatnonzero(d == 0)
        quad, product = np.zeros(self.m), np.zeros_like(tasks)
        chosen, weights = self.members[active], np.asarray(d, dtype=float)[active]
        held = {w: tasks[:, self.own(w)] for w in range(len(self.team))}
        for part, packed in self.messages(np.flatnonzero(tasks.any(axis=0))):
            values = tasks[:, part]
            asked = {w: (packed, values, mine, weights, chosen) for w, mine in held.items()}
            for w, (some, added) in enumerate(self.team.ask("quad_and_product", asked)):
                quad[active] += some
                product[:, self.own(w)] += added
        if len(rest):
            quad[rest] = self.quad(tasks, rest)
        return semi_definite(quad, tasks, self, np.arange(self.m)), product

    def _products_at(self, v: Array, idx: Array, kernels: Array | None) -> Array:
        chosen, tasks = self.chosen(kernels), as_tasks(v)
        support = np.flatnonzero(tasks.any(axis=0))
        held = {w: (here, tasks[:, support[which]]) for w, which, here in self._places(support)}
        out = np.zeros((len(chosen), len(tasks), len(idx)))
        done = 0
        for part, packed in self.messages(idx):
            asked = {w: (packed, *mine, chosen) for w, mine in held.items()}
            answers = self.team.ask("partial", asked)
            out[:, :, done : done + len(part)] = np.sum(answers, axis=0) if answers else 0.0
            done += len(part)
        return out if np.ndim(v) == 2 else out[:, 0]

    def sum_products(self, V: Array) -> Array:
        """See :class:`KernelOperator`; V goes to every worker."""
        out = np.zeros(V.shape[1:])
        copies = 1.0 + 8.0 * V.shape[0] * V.shape[1] / self.row_bytes
        for part, packed in self.messages(np.arange(self.n), copies):
            some = np.ascontiguousarray(V[:, :, part])
            answers = self.team.ask_all("sum_products", packed, some, self.members)
            for w, answer in enumerate(answers):
                out[:, self.own(w)] += answer
        return out

    def square_sum(self) -> Array:
        """See :class:`KernelOperator`; n^2 numbers come from every worker."""
        packed = self.kernels.pack(np.arange(self.n))
        return np.sum(self.team.ask_all("squares", packed, self.members), axis=0)

    # Rounds and other operators

    def rounds(self, rules: BoxConstraints, weights: Array | None = None) -> PointRounds:
        return PointRounds(self, rules, weights)

    def take(self, idx: Array) -> KernelOperator:
        """See :class:`KernelOperator`; few samples are at home here."""
        return self.kernels.take(np.asarray(idx)).select(self.members)

    def select(self, kernels: Array) -> PointShards:
        """See :class:`KernelOperator`; the shards stay where they are."""
        return PointShards(
            self.team, self.kernels, self.starts, self.chosen(kernels), self.cache_mb
        )
