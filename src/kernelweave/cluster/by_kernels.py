"""Kernels on a cluster, cut by kernels: every worker holds all samples and some of the kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from kernelweave.cluster.kernel_rounds import KernelRounds
from kernelweave.cluster.kernel_shard import KernelShard
from kernelweave.cluster.team import Team, pickled_bytes
from kernelweave.operators.base import (
    Array,
    ErrorBound,
    KernelOperator,
    Kind,
    Which,
    as_tasks,
    kernel_indices,
)
from kernelweave.operators.rounds import BoxConstraints

__all__ = ["KernelShards"]


class KernelShards(KernelOperator):
    """Some of the kernels on every worker, each on all samples, in an operator of the worker's own.

    Answers for single kernels come from the worker that holds them; sums over kernels are summed
    here, n numbers from every worker. See :class:`~kernelweave.cluster.DaskBank`.
    """

    keeps_rows = True

    def __init__(
        self, team: Team, kernels: Any, starts: Array, members: Array, cache_mb: float
    ) -> None:
        self.team, self.kernels, self.starts, self.members = team, kernels, starts, members
        self.n, self.m = kernels.n, len(members)
        everything = len(members) == kernels.m
        self.names = kernels.names if everything else [kernels.names[k] for k in members]
        self.cache_mb = cache_mb

    @classmethod
    def build(cls, client: Any, kernels: Any, cache_mb: float, patience: float) -> KernelShards:
        """Send every worker all samples and its own kernels."""
        count = min(len(Team.addresses(client)), kernels.m)
        starts = np.linspace(0, kernels.m, count + 1).astype(np.int64)
        shares = [np.arange(starts[w], starts[w + 1]) for w in range(count)]

        def ingredients(w: int) -> tuple[Any, ...]:
            # Constants are learnt there: it has all samples, and centring takes a pass over all.
            return kernels.select(shares[w]), cache_mb

        needed = [pickled_bytes(ingredients(w)) for w in range(count)]
        team = Team(client, KernelShard, ingredients, needed, patience)
        return cls(team, kernels, starts, np.arange(kernels.m), cache_mb)

    @property
    def nbytes(self) -> int:
        """Bytes of the shards, all workers together."""
        return int(self.team.nbytes)

    def split(self, kernels: Array | None = None) -> dict[int, tuple[Array, Array]]:
        """For every shard that holds some of these kernels: (which of them, where there)."""
        chosen = self.members[kernel_indices(kernels, self.m)]
        owner = np.searchsorted(self.starts, chosen, side="right") - 1
        found = ((int(w), np.flatnonzero(owner == w)) for w in np.unique(owner))
        return {w: (which, chosen[which] - self.starts[w]) for w, which in found}

    def _spread_out(self, values: Array) -> dict[int, Array]:
        """Cut something of every kernel by shards; zero for kernels that are not here."""
        out = {}
        for w, (which, places) in self.split().items():
            size = int(self.starts[w + 1] - self.starts[w])
            out[w] = np.zeros((size, *values.shape[1:]))
            out[w][places] = values[which]
        return out

    # Single kernels: answers of the shard that holds each

    def _each(
        self,
        kernels: Array | None,
        shape: tuple[int, ...],
        args: Callable[[Array], tuple[Any, ...]],
    ) -> Array:
        held = self.split(kernels)
        answers = self.team.ask("ask", {w: args(places) for w, (_, places) in held.items()})
        out = np.empty((len(kernel_indices(kernels, self.m)), *shape))
        for (which, _), answer in zip(held.values(), answers, strict=True):
            out[which] = answer
        return out

    def block(
        self, rows: Which = None, columns: Which = None, kernels: Which = None, dtype: Kind = None
    ) -> Array:
        shape = (self.n if rows is None else len(rows), self.n if columns is None else len(columns))
        found = self._each(kernels, shape, lambda own: ("block", rows, columns, own))
        return found if dtype is None else found.astype(dtype, copy=False)

    def apply(self, v: Array, kernels: Which = None, rows: Which = None) -> Array:
        shape = (*np.shape(v)[:-1], self.n if rows is None else len(rows))
        return self._each(kernels, shape, lambda own: ("apply", v, own, rows))

    def quad(self, v: Array, kernels: Which = None) -> Array:
        return self._each(kernels, (), lambda own: ("quad", v, own))

    def diagonal(self, kernels: Which = None) -> Array:
        return self._each(kernels, (self.n,), lambda own: ("diagonal", own))

    # Sums over kernels: what every shard says, added up

    def weighted(
        self, d: ArrayLike, rows: Which = None, columns: Which = None, out: Array | None = None
    ) -> Array:
        """See :class:`KernelOperator`; all of its numbers come from every worker."""
        shape = (self.n if rows is None else len(rows), self.n if columns is None else len(columns))
        out = self._sum_memory(*shape) if out is None else out
        out[...] = 0.0
        shares = {w: own for w, own in self._spread_out(np.asarray(d)).items() if own.any()}
        asked = {w: ("weighted", own, rows, columns) for w, own in shares.items()}
        for answer in self.team.ask("ask", asked):
            out += answer
        return out

    def quad_and_product(self, v: Array, d: Array) -> tuple[Array, Array]:
        quad, product = np.empty(self.m), np.zeros_like(as_tasks(v))
        weights, held = self._spread_out(np.asarray(d)), self.split()
        asked = {w: ("quad_and_product", v, own) for w, own in weights.items()}
        for w, (some, added) in zip(asked, self.team.ask("ask", asked), strict=True):
            which, places = held[w]
            quad[which] = some[places]
            product += added
        return quad, product

    def sum_products(self, V: Array) -> Array:
        """See :class:`KernelOperator`; every worker is sent the part of V of its kernels."""
        asked = {w: ("sum_products", own) for w, own in self._spread_out(V).items()}
        return np.sum(self.team.ask("ask", asked), axis=0)

    def square_sum(self) -> Array:
        """See :class:`KernelOperator`; n^2 numbers come from every worker."""
        asked = {w: (places,) for w, (_, places) in self.split().items()}
        return np.sum(self.team.ask("squares", asked), axis=0)

    def eigenvalue_bound(self) -> Array:
        held, out = self.split(), np.empty(self.m)
        answers = self.team.ask("ask", dict.fromkeys(held, ("eigenvalue_bound",)))
        for (which, places), answer in zip(held.values(), answers, strict=True):
            out[which] = answer[places]
        return out

    def error(self, v: Array, d: Array) -> ErrorBound:
        """Each worker's own bound."""
        missing, excess = np.zeros(self.m), np.zeros(self.m)
        product: Array | float = np.zeros_like(as_tasks(v))
        weights, held = self._spread_out(np.asarray(d)), self.split()
        asked = {w: ("error", v, own) for w, own in weights.items()}
        for w, bound in zip(asked, self.team.ask("ask", asked), strict=True):
            which, places = held[w]
            missing[which], excess[which] = bound.quad_missing[places], bound.norm_missing[places]
            product = product + bound.product
        return ErrorBound(missing, excess, product)

    # Rounds and other operators

    def rounds(self, rules: BoxConstraints, weights: Array | None = None) -> KernelRounds:
        return KernelRounds(self, rules, weights)

    def take(self, idx: Array) -> KernelOperator:
        """See :class:`KernelOperator`; few samples are at home here."""
        return self.kernels.take(np.asarray(idx)).select(self.members)

    def select(self, kernels: Array) -> KernelShards:
        """See :class:`KernelOperator`; the shards stay where they are."""
        chosen = self.members[kernel_indices(kernels, self.m)]
        return KernelShards(self.team, self.kernels, self.starts, chosen, self.cache_mb)
