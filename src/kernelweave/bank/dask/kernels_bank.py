"""A bank cut by kernels: every worker holds all samples and some of the kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kernelweave.bank.batch import BatchBank
from kernelweave.bank.dask.few import few_samples
from kernelweave.bank.dask.kernel_rounds import KernelRounds
from kernelweave.bank.dask.kernel_shard import KernelShard
from kernelweave.bank.dask.team import Team, pickled_bytes
from kernelweave.bank.memory import require_bytes
from kernelweave.bank.protocol import (
    Array,
    ErrorBound,
    KernelBank,
    as_tasks,
    kernel_indices,
)
from kernelweave.bank.rounds import BoxConstraints
from kernelweave.kernels.batch_set import BatchSet
from kernelweave.kernels.composite_set import CompositeSet
from kernelweave.kernels.kernel_set import KernelSet

__all__ = ["KernelsBank"]


class KernelsBank(KernelBank):
    """Some of the kernels on every worker, each on all samples, in a bank of the worker's own.

    Answers for single kernels come from the worker that holds them; sums over kernels are summed
    here, n numbers from every worker. See :class:`~kernelweave.bank.DaskBank`.
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
    def build(cls, client: Any, kernels: Any, cache_mb: float, patience: float) -> KernelsBank:
        """Send every worker all samples and its own kernels."""
        count = min(len(Team.addresses(client)), kernels.m)
        starts = np.linspace(0, kernels.m, count + 1).astype(np.int64)
        shares = [np.arange(starts[w], starts[w + 1]) for w in range(count)]

        def ingredients(w: int) -> tuple[Any, ...]:
            parts, members = some_kernels(kernels, shares[w])
            return parts, members, cache_mb

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
        """Cut something of every kernel by shards; zero for kernels that are not in this bank."""
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

    def rows(self, idx: Array, kernels: Array | None = None, columns: Array | None = None) -> Array:
        shape = (len(idx), self.n if columns is None else len(columns))
        return self._each(kernels, shape, lambda own: ("rows", idx, own, columns))

    def matvec(self, v: Array, kernels: Array | None = None) -> Array:
        return self._each(kernels, np.shape(v), lambda own: ("matvec", v, own))

    def quad(self, v: Array, kernels: Array | None = None) -> Array:
        return self._each(kernels, (), lambda own: ("quad", v, own))

    def products_at(self, v: Array, idx: Array, kernels: Array | None = None) -> Array:
        shape = (*np.shape(v)[:-1], len(idx))
        return self._each(kernels, shape, lambda own: ("products_at", v, idx, own))

    def diag(self, kernels: Array | None = None) -> Array:
        return self._each(kernels, (self.n,), lambda own: ("diag", own))

    # Sums over kernels: what every shard says, added up

    def _summed(self, d: Array, out: Array, name: str, *args: Any) -> Array:
        weights = {w: own for w, own in self._spread_out(np.asarray(d)).items() if own.any()}
        out[...] = 0.0
        for answer in self.team.ask(name, {w: (own, *args) for w, own in weights.items()}):
            out += answer
        return out

    def combine(self, d: Array, out: Array | None = None) -> Array:
        """See :class:`KernelBank`; n^2 numbers come from every worker."""
        require_bytes(8.0 * self.n**2, f"one dense {self.n} x {self.n} matrix")
        return self._summed(d, np.empty((self.n, self.n)) if out is None else out, "combine")

    def combine_rows(self, d: Array, idx: Array, out: Array) -> Array:
        return self._summed(d, out, "combine_rows", np.asarray(idx))

    def combine_block(self, d: Array, idx: Array) -> Array:
        return self._summed(d, np.empty((len(idx), len(idx))), "combine_block", np.asarray(idx))

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
        """See :class:`KernelBank`; every worker is sent the part of V of its kernels."""
        asked = {w: ("sum_products", own) for w, own in self._spread_out(V).items()}
        return np.sum(self.team.ask("ask", asked), axis=0)

    def square_sum(self) -> Array:
        """See :class:`KernelBank`; n^2 numbers come from every worker."""
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

    # Rounds and other banks

    def rounds(self, rules: BoxConstraints, weights: Array | None = None) -> KernelRounds:
        return KernelRounds(self, rules, weights)

    def take(self, idx: Array) -> KernelBank:
        """See :class:`KernelBank`; few samples are at home here."""
        return few_samples(self.kernels, np.asarray(idx)).select(self.members)

    def select(self, kernels: Array) -> KernelsBank:
        """See :class:`KernelBank`; the shards stay where they are."""
        chosen = self.members[kernel_indices(kernels, self.m)]
        return KernelsBank(self.team, self.kernels, self.starts, chosen, self.cache_mb)


def some_kernels(kernels: Any, chosen: Array) -> tuple[list[Any], list[Array]]:
    """Some kernels of a set as they travel: its parts, and which of the chosen each holds."""
    if isinstance(kernels, CompositeSet):
        parts: list[Any] = []
        members: list[Array] = []
        for part, own in zip(kernels.parts, kernels.members, strict=True):
            which = np.flatnonzero(np.isin(chosen, own))
            if len(which):
                places = np.searchsorted(own, chosen[which])
                parts.append(some_kernels(part, places)[0][0])
                members.append(which)
        return parts, members
    everyone = [np.arange(len(chosen))]
    if isinstance(kernels, BatchSet):
        return [BatchBank("float64").build(kernels).select(chosen)], everyone
    picked = [kernels.kernels[k] for k in chosen]
    # Its constants are learnt there: it has all samples, and centring takes a pass over all pairs.
    return [KernelSet(picked, kernels.samples, kernels.normalization)], everyone
