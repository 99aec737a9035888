"""Kernels on a cluster, cut by kernels: every worker holds all samples and some of the kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from kernelweave.cluster.team import ShardedOperator, Team, pickled_bytes
from kernelweave.operators.auto import build_bank
from kernelweave.operators.base import Array, ErrorBound, KernelOperator, Kind, Which, as_tasks
from kernelweave.operators.rounds import BoxConstraints, Rounds
from kernelweave.operators.running import RunningProducts, StackedProducts, running_products

__all__ = ["KernelShard", "KernelShards"]

# Kernels in float64, and factors that leave out a trace of 1e-12: the same answer as one machine.
_TOL = 1e-9


class KernelShards(ShardedOperator):
    """Some of the kernels on every worker, each on all samples, in an operator of the worker's own.

    Answers for single kernels come from the worker that holds them; sums over kernels are summed
    here, n numbers from every worker. See :class:`~kernelweave.cluster.DaskBank`.
    """

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
        return cls(team, kernels, starts, cache_mb)

    def split(self, kernels: Which = None) -> dict[int, tuple[Array, Array]]:
        """For every shard that holds some of these kernels: (which of them, where there)."""
        chosen = self.chosen(kernels)
        owner = np.searchsorted(self.starts, chosen, side="right") - 1
        found = ((int(w), np.flatnonzero(owner == w)) for w in np.unique(owner))
        return {w: (which, chosen[which] - self.starts[w]) for w, which in found}

    # Single kernels: answers of the shard that holds each

    def _each(self, name: str, kernels: Which, shape: tuple[int, ...], **args: Any) -> Array:
        held = self.split(kernels)
        asked = {w: (name, {**args, "kernels": places}) for w, (_, places) in held.items()}
        out = np.empty((self.m if kernels is None else len(kernels), *shape))
        for (which, _), answer in zip(held.values(), self.team.ask("ask", asked), strict=True):
            out[which] = answer
        return out

    def block(
        self, rows: Which = None, columns: Which = None, kernels: Which = None, dtype: Kind = None
    ) -> Array:
        found = self._each("block", kernels, self._shape(rows, columns), rows=rows, columns=columns)
        return found if dtype is None else found.astype(dtype, copy=False)

    def _shape(self, rows: Which, columns: Which) -> tuple[int, int]:
        return self.n if rows is None else len(rows), self.n if columns is None else len(columns)

    def apply(self, v: Array, kernels: Which = None, rows: Which = None) -> Array:
        shape = (*np.shape(v)[:-1], self.n if rows is None else len(rows))
        return self._each("apply", kernels, shape, v=v, rows=rows)

    def quad(self, v: Array, kernels: Which = None) -> Array:
        return self._each("quad", kernels, (), v=v)

    def diagonal(self, kernels: Which = None) -> Array:
        return self._each("diagonal", kernels, (self.n,))

    def eigenvalue_bound(self) -> Array:
        out = np.empty(self.m)
        for (which, _), found in zip(*self._of_own("eigenvalue_bound"), strict=True):
            out[which] = found
        return out

    def _of_own(self, name: str) -> tuple[list[tuple[Array, Array]], list[Any]]:
        """What every shard answers about all of its kernels that are here."""
        held = self.split()
        asked: dict[int, tuple[Any, ...]]
        asked = {w: (name, {}, places) for w, (_, places) in held.items()}
        return list(held.values()), self.team.ask("ask", asked)

    # Sums over kernels: what every shard answers, added up

    def _shares(self, values: Array) -> dict[int, Array]:
        """Cut something of every kernel by shards; zero for kernels that are not here."""
        out = {}
        for w, (which, places) in self.split().items():
            size = int(self.starts[w + 1] - self.starts[w])
            out[w] = np.zeros((size, *values.shape[1:]))
            out[w][places] = values[which]
        return out

    def weighted(
        self, d: ArrayLike, rows: Which = None, columns: Which = None, out: Array | None = None
    ) -> Array:
        """See :class:`KernelOperator`; all of its numbers come from every worker."""
        out = self._sum_memory(*self._shape(rows, columns)) if out is None else out
        out[...] = 0.0
        shares = {w: own for w, own in self._shares(np.asarray(d)).items() if own.any()}
        asked = {
            w: ("weighted", {"d": own, "rows": rows, "columns": columns})
            for w, own in shares.items()
        }
        for answer in self.team.ask("ask", asked):
            out += answer
        return out

    def quad_and_product(self, v: Array, d: Array) -> tuple[Array, Array]:
        quad, product = np.empty(self.m), np.zeros_like(as_tasks(v))
        for (which, places), (some, added) in self._with_weights("quad_and_product", v, d):
            quad[which] = some[places]
            product += added
        return quad, product

    def _with_weights(self, name: str, v: Array, d: Array) -> list[tuple[Any, Any]]:
        """What every shard answers about v and its weights, and what `split` says of it."""
        asked = {w: (name, {"v": v, "d": own}) for w, own in self._shares(np.asarray(d)).items()}
        held = self.split()
        return list(zip(held.values(), self.team.ask("ask", asked), strict=True))

    def sum_products(self, V: Array) -> Array:
        """See :class:`KernelOperator`; every worker is sent the part of V of its kernels."""
        asked = {w: ("sum_products", {"V": own}) for w, own in self._shares(V).items()}
        return np.sum(self.team.ask("ask", asked), axis=0)

    def square_sum(self) -> Array:
        """See :class:`KernelOperator`; n^2 numbers come from every worker."""
        return np.sum(self._of_own("square_sum")[1], axis=0)

    def error(self, v: Array, d: Array) -> ErrorBound:
        """Each worker's own bound."""
        missing, excess = np.zeros(self.m), np.zeros(self.m)
        product: Array | float = np.zeros_like(as_tasks(v))
        for (which, places), bound in self._with_weights("error", v, d):
            missing[which], excess[which] = bound.quad_missing[places], bound.norm_missing[places]
            product = product + bound.product
        return ErrorBound(missing, excess, product)

    def rounds(self, rules: BoxConstraints, weights: Array | None = None) -> Rounds:
        return Rounds(_ShardProducts(self, weights), rules)


class _ShardProducts(StackedProducts):
    """Every worker keeps K_k v of its kernels; the sum over kernels is taken here.

    A round takes two supersteps, and n numbers come from every worker with kernels followed.
    """

    def __init__(self, operator: KernelShards, weights: Array | None) -> None:
        self._team, self._key = operator.team, operator.team.adopt(self)
        held = operator.split()
        self._shards = list(held)
        # With weights all shards hold a part of the same one kernel.
        one = np.zeros(1, np.int64)
        members = [which if weights is None else one for which, _ in held.values()]
        super().__init__((), members, operator.n)
        self._v = np.zeros(self.n)
        self._beginnings = {
            w: (self._key, places, None if weights is None else weights[which])
            for w, (which, places) in held.items()
        }
        if weights is None:
            sizes = np.diff(operator.starts)
            self._team.require(
                lambda w: 8.0 * sizes[w] * self.n,
                f"the state of its {sizes.max()} kernels on {self.n} samples",
            )
        self._team.ask("begin", self._beginnings)

    def _ask(self, name: str, args: dict[int, tuple[Any, ...]]) -> list[Any]:
        asked = {self._shards[p]: (self._key, name, *own) for p, own in args.items()}
        return self._team.ask("running", asked)

    def reset(self, v: Array) -> None:
        super().reset(v)
        self._v[:] = v

    def move(self, idx: Array, delta: Array, d: Array) -> Array:
        out = super().move(idx, delta, d)
        np.add.at(self._v, idx, delta)
        return out

    def restore(self, w: int) -> None:
        """Give shard w, which was made again, the state it had before this superstep."""
        if w in self._beginnings:
            self._team.tell(w, "begin", *self._beginnings[w])
            self._team.tell(w, "running", self._key, "reset", self._v)
            followed = self._here[self._shards.index(w)]
            self._team.tell(w, "running", self._key, "restrict", followed)


class KernelShard:
    """Some of the kernels on all samples, on a worker, in an operator of their own."""

    def __init__(self, kernels: KernelOperator, cache_mb: float) -> None:
        self.operator = build_bank("auto", kernels, cache_mb=cache_mb, tol=_TOL)
        self._states: dict[int, RunningProducts] = {}

    def _some(self, kernels: Which) -> KernelOperator:
        if kernels is None or np.array_equal(kernels, np.arange(self.operator.m)):
            return self.operator
        return self.operator.select(kernels)

    def ask(self, name: str, args: dict[str, Any], kernels: Which = None) -> Any:
        """Answer a question to the operator, or to the one of some of its kernels."""
        return getattr(self._some(kernels), name)(**args)

    def begin(self, key: int, kernels: Array, weights: Array | None) -> None:
        """Keep K_k v of these kernels from now on, under this key."""
        self._states[key] = running_products(self._some(kernels), weights)

    def running(self, key: int, name: str, *args: Any) -> Any:
        """Call a method of the products kept under this key."""
        products = self._states[key]
        answer = getattr(products, name)(*args)
        # Where all kernels are frozen, n zeros need not travel.
        return 0.0 if name == "move" and not len(products.followed) else answer

    def forget(self, key: int) -> None:
        """Drop the products of this key."""
        self._states.pop(key, None)
