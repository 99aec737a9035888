"""Kernels on a cluster, cut by points: every worker computes all kernels of its samples."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from kernelweave.cluster.point_shard import PointShard
from kernelweave.cluster.team import Team, pickled_bytes
from kernelweave.memory import require_bytes
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
from kernelweave.operators.rounds import BoxConstraints, PairStep, Rounds

__all__ = ["PointShards"]

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

    def __init__(self, team: Team, kernels: Any, starts: Array, cache_mb: float) -> None:
        # All kernels on all samples, here, and where the samples of each shard begin.
        self.team, self.kernels, self.starts, self.cache_mb = team, kernels, starts, cache_mb
        self.n, self.m, self.names = kernels.n, kernels.m, kernels.names
        # Which kernels of the shards this operator has.
        self.members = np.arange(self.m)
        self.round_size = round_size_of(self.n)
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
            return recipe, kernels.pack(own), int(starts[w]), kernels.n, cache_mb

        team = Team(client, PointShard, ingredients, needed, patience)
        return cls(team, kernels, starts, cache_mb)

    @property
    def nbytes(self) -> int:
        """Bytes of the shards, all workers together."""
        return int(self.team.nbytes)

    def chosen(self, kernels: Which) -> Array:
        """Return those kernels as the shards count them."""
        return self.members[kernel_indices(kernels, self.m)]

    def take(self, idx: Array) -> KernelOperator:
        """See :class:`KernelOperator`; few samples are at home here."""
        few: KernelOperator = self.kernels.take(np.asarray(idx)).select(self.members)
        return few

    def select(self, kernels: Array) -> PointShards:
        """See :class:`KernelOperator`; the shards stay where they are."""
        chosen = self.chosen(kernels)
        names = [self.kernels.names[k] for k in chosen]
        return self._but(members=chosen, m=len(chosen), names=names)

    def own(self, w: int) -> slice:
        """Return the samples of shard w."""
        return slice(int(self.starts[w]), int(self.starts[w + 1]))

    def messages(self, idx: Array, copies: float = 1.0) -> Iterator[tuple[Array, Any]]:
        """Yield samples as they travel, a bounded number at a time."""
        size = max(1, int(self.message_bytes // (copies * self.row_bytes)))
        for first in range(0, len(idx), size):
            part = idx[first : first + size]
            yield part, self.kernels.pack(part)

    def _places(self, idx: Array) -> list[tuple[int, Array, Array]]:
        """For every shard that holds some of these samples: (shard, which of them, where there)."""
        holder = np.searchsorted(self.starts, idx, side="right") - 1
        found = ((w, np.flatnonzero(holder == w)) for w in np.unique(holder))
        return [(int(w), which, idx[which] - self.starts[w]) for w, which in found]

    # Values

    def block(
        self, rows: Which = None, columns: Which = None, kernels: Which = None, dtype: Kind = None
    ) -> Array:
        chosen, idx = self.chosen(kernels), np.arange(self.n) if rows is None else np.asarray(rows)
        width = self.n if columns is None else len(columns)
        require_bytes(8.0 * len(chosen) * len(idx) * width, f"{len(idx)} rows of the kernels")
        out = np.empty((len(chosen), len(idx), width), np.float64 if dtype is None else dtype)
        self._fill(out, idx, columns, "block", None, None, chosen)
        return out

    def _fill(self, out: Array, idx: Array, columns: Which, name: str, *args: Any) -> None:
        """Put what the shards answer for rows `idx` into the last two axes of `out`."""
        places: dict[int, tuple[Any, Array | None]]
        if columns is None:
            places = {w: (self.own(w), None) for w in range(len(self.team))}
        else:
            places = {w: (which, at) for w, which, at in self._places(np.asarray(columns))}
        done = 0
        for part, packed in self.messages(idx):
            asked = {w: (packed, here, True, name, *args) for w, (_, here) in places.items()}
            for (where, _), answer in zip(
                places.values(), self.team.ask("ask", asked), strict=True
            ):
                out[..., done : done + len(part), where] = answer
            done += len(part)

    def weighted(
        self, d: ArrayLike, rows: Which = None, columns: Which = None, out: Array | None = None
    ) -> Array:
        """See :class:`KernelOperator`; all of its numbers come here."""
        idx = np.arange(self.n) if rows is None else np.asarray(rows)
        width = self.n if columns is None else len(columns)
        out = self._sum_memory(len(idx), width) if out is None else out
        weights = np.zeros(self.kernels.m)
        weights[self.members] = d
        self._fill(out, idx, columns, "weighted", weights)
        return out

    def diagonal(self, kernels: Which = None) -> Array:
        return np.concatenate(self.team.ask_all("diagonal", self.chosen(kernels)), axis=1)

    def eigenvalue_bound(self) -> Array:
        traces = np.sum(self.team.ask_all("diagonal_sum", self.members), axis=0)
        return np.maximum(traces - self.quad(np.ones(self.n)) / self.n, 0.0)

    # Products

    def apply(self, v: Array, kernels: Which = None, rows: Which = None) -> Array:
        """See :class:`KernelOperator`; of the samples of some rows only these are sent."""
        chosen, tasks = self.chosen(kernels), as_tasks(v)
        support = np.flatnonzero(tasks.any(axis=0))
        if rows is None:
            out = np.zeros((len(chosen), len(tasks), self.n))
            for part, packed in self.messages(support):
                asked = packed, None, False, "apply", tasks[:, part], chosen
                for w, answer in enumerate(self.team.ask_all("ask", *asked)):
                    out[:, :, self.own(w)] += answer
        else:
            idx, done = np.asarray(rows), 0
            out = np.zeros((len(chosen), len(tasks), len(idx)))
            for part, packed in self.messages(idx):
                one_side = {
                    w: (packed, here, True, "apply", tasks[:, support[which]], chosen)
                    for w, which, here in self._places(support)
                }
                for answer in self.team.ask("ask", one_side):
                    out[:, :, done : done + len(part)] += answer
                done += len(part)
        return out if np.ndim(v) == 2 else out[:, 0]

    def quad(self, v: Array, kernels: Which = None) -> Array:
        chosen, tasks = self.chosen(kernels), as_tasks(v)
        support = np.flatnonzero(tasks.any(axis=0))
        held = {w: (here, tasks[:, support[which]]) for w, which, here in self._places(support)}
        out = np.zeros(len(chosen))
        for part, packed in self.messages(support):
            asked = {w: (packed, tasks[:, part], *own, None, chosen) for w, own in held.items()}
            for some, _ in self.team.ask("quad_and_product", asked):
                out += some
        return semi_definite(out, v, self, kernel_indices(kernels, self.m))

    def quad_and_product(self, v: Array, d: Array) -> tuple[Array, Array]:
        tasks = as_tasks(v)
        active, rest = np.flatnonzero(d), np.flatnonzero(d == 0)
        quad, product = np.zeros(self.m), np.zeros_like(tasks)
        with_weights = np.asarray(d, dtype=float)[active], self.members[active]
        for part, packed in self.messages(np.flatnonzero(tasks.any(axis=0))):
            asked = {
                w: (packed, tasks[:, part], None, tasks[:, self.own(w)], *with_weights)
                for w in range(len(self.team))
            }
            for w, (some, added) in enumerate(self.team.ask("quad_and_product", asked)):
                quad[active] += some
                product[:, self.own(w)] += added
        if len(rest):
            quad[rest] = self.quad(tasks, rest)
        return semi_definite(quad, tasks, self, np.arange(self.m)), product

    def sum_products(self, V: Array) -> Array:
        """See :class:`KernelOperator`; V goes to every worker."""
        out = np.zeros(V.shape[1:])
        copies = 1.0 + 8.0 * V.shape[0] * V.shape[1] / self.row_bytes
        for part, packed in self.messages(np.arange(self.n), copies):
            some = np.ascontiguousarray(V[:, :, part])
            for w, answer in enumerate(
                self.team.ask_all("sum_products", packed, some, self.members)
            ):
                out[:, self.own(w)] += answer
        return out

    def square_sum(self) -> Array:
        """See :class:`KernelOperator`; n^2 numbers come from every worker."""
        packed = self.kernels.pack(np.arange(self.n))
        return np.sum(self.team.ask_all("squares", packed, self.members), axis=0)

    def rounds(self, rules: BoxConstraints, weights: Array | None = None) -> Rounds:
        return PointRounds(self, rules, weights)


class PointRounds(Rounds):
    """Rounds of one superstep each: every worker keeps the state and the rules of its samples.

    A round sends two samples, their steps and the weights, and gets back from every worker its
    best pair, O(m + n_features) numbers. v is kept here as well, so that the state of a worker that
    died can be made again.
    """

    def __init__(self, operator: PointShards, rules: BoxConstraints, weights: Array | None) -> None:
        self._operator, self._team, self._weights = operator, operator.team, weights
        self._m = operator.m if weights is None else 1
        self._key = self._team.adopt(self)
        self._beginnings = {
            w: (self._key, rules.of(operator.own(w)), operator.members, weights)
            for w in range(len(operator.team))
        }
        self._zero()
        sizes = np.diff(operator.starts)
        self._team.require(
            lambda w: 8.0 * self._m * sizes[w],
            f"the state of {self._m} kernels on its {sizes.max()} samples",
        )

    def _zero(self) -> None:
        self._v = np.zeros(self._operator.n)
        # Steps that the kernels frozen have not seen.
        self._missed = np.zeros(self._operator.n)
        self._followed, self._d = np.arange(self._m), np.zeros(self._m)

    def _all(self, name: str, *args: Any) -> list[Any]:
        return self._team.ask_all("state", self._key, name, *args)

    def restore(self, w: int) -> None:
        """Give shard w, which was made again, the state it had before this superstep."""
        tell, key = self._team.tell, self._key
        tell(w, "begin", *self._beginnings[w])
        seen_by = ((self._v - self._missed, None), (self._missed, self._followed))
        for values, kernels in seen_by:
            for part, packed in self._operator.messages(np.flatnonzero(values)):
                tell(w, "state", key, "add", packed, values[part], kernels)
        own = self._v[self._operator.own(w)]
        tell(w, "state", key, "place", own, self._followed, self._d)

    def start(self, v: Array, d: Array) -> PairStep:
        self._zero()
        self._team.ask("begin", self._beginnings)
        for part, packed in self._operator.messages(np.flatnonzero(v)):
            self._all("add", packed, v[part], None)
            self._v[part] = v[part]
        asked = {
            w: (self._key, "place", v[self._operator.own(w)], None, d) for w in self._beginnings
        }
        return self._best(self._team.ask("state", asked), d)

    def advance(self, choice: PairStep, step_i: float, step_j: float, d: Array) -> PairStep:
        idx, delta = np.array([choice.i, choice.j]), np.array([step_i, step_j])
        found = self._all("move", self._operator.kernels.pack(idx), idx, delta, d)
        np.add.at(self._v, idx, delta)
        if len(self._followed) < self._m:
            np.add.at(self._missed, idx, delta)
        return self._best(found, d)

    def reweigh(self, d: Array) -> PairStep:
        return self._best(self._all("weigh", d), d)

    def restrict(self, kernels: Array | None) -> None:
        followed = np.arange(self._m) if kernels is None else np.asarray(kernels)
        self._all("restrict", followed)
        self._followed, self._d = followed, np.zeros(len(followed))

    def synchronise(self) -> Array:
        """See :class:`Rounds`; the samples that moved meanwhile are sent once more."""
        frozen = np.setdiff1d(np.arange(self._m), self._followed)
        for part, packed in self._operator.messages(np.flatnonzero(self._missed)):
            self._all("add", packed, self._missed[part], frozen)
            self._missed[part] = 0.0
        quads = self._all("synchronise")
        self._followed, self._d = np.arange(self._m), np.zeros(self._m)
        return np.maximum(np.sum(quads, axis=0), 0.0)

    def fitted(self) -> Array:
        """See :class:`Rounds`; n numbers come here."""
        return np.concatenate(self._all("last_fitted"))

    def _best(self, found: list[Array], d: Array) -> PairStep:
        """The best pair of all; shards come in the order of their samples, and the first wins."""
        self._d = d
        up = [answer[0] for answer in found if answer[0, 0] >= 0]
        down = [answer[1] for answer in found if answer[1, 0] >= 0]
        one = max(up, key=lambda row: row[1], default=None)
        two = min(down, key=lambda row: row[1], default=None)
        i = -1 if one is None else int(one[0])
        j = -1 if two is None else int(two[0])
        if one is None or two is None:
            return PairStep.nobody(len(self._followed), i, j)
        at = np.stack([one[3:], two[3:]], axis=1)
        scores, values = (float(one[1]), float(two[1])), (float(one[2]), float(two[2]))
        return PairStep(i, j, *scores, *values, at, self._block(np.array([i, j])))

    def _block(self, idx: Array) -> Array:
        kernels, members = self._operator.kernels, self._operator.members
        if self._weights is None:
            values = kernels.block(idx, idx, members[self._followed])
        else:
            values = np.tensordot(self._weights, kernels.block(idx, idx, members), axes=1)[None]
        return np.stack([values[:, 0, 0], values[:, 1, 1], values[:, 0, 1]], axis=1)
