"""Kernels on a cluster, cut by kernels: every worker holds all samples and some of the kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import methodcaller
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from kernelweave.arrays import Array
from kernelweave.cluster.team import Team, pickled_bytes
from kernelweave.operators.auto import build_bank
from kernelweave.operators.base import KernelOperator, Which, into
from kernelweave.operators.stacked import Call, StackedOperator

# Kernels in float64, and factors that leave out a trace of 1e-12: the same answer as one machine.
_TOL = 1e-9


class KernelShards(StackedOperator):
    """A stack whose parts live on the workers: some kernels on each, all of them on all samples.

    Answers for single kernels come from the worker that holds them; sums over kernels are summed
    here, n numbers from every worker. See :class:`~kernelweave.cluster.DaskBank`.
    """

    keeps_rows = True

    @classmethod
    def build(cls, client: Any, kernels: Any, cache_mb: float, patience: float) -> KernelShards:
        count = min(len(Team.addresses(client)), kernels.m)
        starts = np.linspace(0, kernels.m, count + 1).astype(np.int64)
        shares = [np.arange(starts[w], starts[w + 1]) for w in range(count)]
        # Constants are learnt there: it has all samples, and centring takes a pass over all.
        own = [kernels.select(share) for share in shares]
        needed = [pickled_bytes((some, cache_mb)) for some in own]
        team = Team(client, KernelShard, lambda w: (own[w], cache_mb), needed, patience)
        return cls([_Remote(team, w, own[w], cache_mb) for w in range(count)], shares)

    @property
    def team(self) -> Team:
        team: Team = self.parts[0].team
        return team

    def _ask(self, calls: Sequence[tuple[Call, Any]]) -> Iterator[Any]:
        asked = {part.shard: (part.chosen, call) for call, part in calls}
        return iter(self.team.ask("ask", asked))

    def weighted(
        self, d: ArrayLike, rows: Which = None, columns: Which = None, out: Array | None = None
    ) -> Array:
        """See :class:`KernelOperator`; what a worker writes to would be a copy."""
        return into(out, super().weighted(d, rows, columns))


class _Remote(KernelOperator):
    """The kernels of one shard, or those `chosen` of them; `kernels` are the same ones, here."""

    keeps_rows = True

    def __init__(
        self, team: Team, shard: int, kernels: Any, cache_mb: float, chosen: Which = None
    ) -> None:
        self.team, self.shard, self.kernels, self.chosen = team, shard, kernels, chosen
        self.n, self.m, self.names, self.cache_mb = kernels.n, kernels.m, kernels.names, cache_mb

    def block(self, rows: Which = None, columns: Which = None, kernels: Which = None) -> Array:
        call = methodcaller("block", rows, columns, kernels)
        values: Array = self.team.ask("ask", {self.shard: (self.chosen, call)})[0]
        return values

    def take(self, idx: Array) -> KernelOperator:
        few: KernelOperator = self.kernels.take(np.asarray(idx))
        return few

    def select(self, kernels: Array) -> _Remote:
        places = np.asarray(kernels) if self.chosen is None else self.chosen[kernels]
        return _Remote(self.team, self.shard, self.kernels.select(kernels), self.cache_mb, places)


class KernelShard:
    """Some of the kernels on all samples, on a worker, in an operator of their own."""

    def __init__(self, kernels: KernelOperator, cache_mb: float) -> None:
        self.operator = build_bank("auto", kernels, cache_mb=cache_mb, tol=_TOL)
        # The operator of the kernels last chosen, and which these were.
        self._chosen, self._few = b"", self.operator

    def of(self, chosen: Which) -> KernelOperator:
        """Return the operator of all kernels here (None), or of some."""
        if chosen is None:
            return self.operator
        if chosen.tobytes() != self._chosen:
            self._chosen, self._few = chosen.tobytes(), self.operator.select(chosen)
        return self._few

    def ask(self, chosen: Which, call: Callable[[Any], Any]) -> Any:
        return call(self.of(chosen))
