"""Rounds of MWU over shards of the samples: one superstep each, O(m + n_features) numbers."""

from __future__ import annotations

import itertools
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np

from kernelweave.operators.base import Array
from kernelweave.operators.rounds import BoxConstraints, PairStep, Rounds

if TYPE_CHECKING:
    from kernelweave.cluster.by_points import PointShards

__all__ = ["PointRounds"]

_KEYS = itertools.count()


class PointRounds(Rounds):
    """Every worker keeps the columns of the state that belong to its samples.

    A round sends two samples, their steps and the weights, and gets back from every worker its
    best pair. v is kept here as well, so that the state of a worker that died can be made again.
    """

    def __init__(self, bank: PointShards, rules: BoxConstraints, weights: Array | None) -> None:
        self._bank, self._team, self._weights = bank, bank.team, weights
        self._rules = [self._cut(rules, bank.own(w)) for w in range(len(bank.team))]
        self._m = bank.m if weights is None else 1
        # Steps that the kernels frozen have not seen.
        self._v, self._missed = np.zeros(bank.n), np.zeros(bank.n)
        self._followed, self._d = np.arange(self._m), np.zeros(self._m)
        self._key = next(_KEYS)
        sizes = np.diff(bank.starts)
        self._team.require(
            lambda w: 8.0 * self._m * sizes[w],
            f"the state of {self._m} kernels on its {sizes.max()} samples",
        )
        self._team.ask("begin", {w: self._beginning(w) for w in range(len(self._team))})
        self._team.keep(self)
        weakref.finalize(self, self._team.drop, "forget", self._key)

    @staticmethod
    def _cut(rules: BoxConstraints, own: slice) -> BoxConstraints:
        return BoxConstraints(rules.linear[own], rules.ridge[own], rules.up[own], rules.down[own])

    def _beginning(self, w: int) -> tuple[Any, ...]:
        return self._key, self._rules[w], self._bank.members, self._weights

    def _send(self, v: Array, kernels: Array | None, w: int) -> None:
        for part, packed in self._bank.messages(np.flatnonzero(v)):
            self._team.tell(w, "add", self._key, packed, v[part], kernels)

    def restore(self, w: int) -> None:
        """Give shard w, which was made again, the state it had before this superstep."""
        self._team.tell(w, "begin", *self._beginning(w))
        self._send(self._v - self._missed, None, w)
        self._send(self._missed, self._followed, w)
        self._team.tell(w, "put", self._key, self._v[self._bank.own(w)])
        self._team.tell(w, "restrict", self._key, self._followed)
        self._team.tell(w, "weigh", self._key, self._d)

    def start(self, v: Array, d: Array) -> PairStep:
        everyone = range(len(self._team))
        self._team.ask_all("clear", self._key)
        self._v, self._missed = np.zeros(self._bank.n), np.zeros(self._bank.n)
        self._followed, self._d = np.arange(self._m), np.zeros(self._m)
        for part, packed in self._bank.messages(np.flatnonzero(v)):
            self._team.ask_all("add", self._key, packed, v[part], None)
            self._v[part] = v[part]
        self._team.ask("put", {w: (self._key, v[self._bank.own(w)]) for w in everyone})
        return self.reweigh(d)

    def advance(self, choice: PairStep, step_i: float, step_j: float, d: Array) -> PairStep:
        idx, delta = np.array([choice.i, choice.j]), np.array([step_i, step_j])
        packed = self._bank.kernels.pack(idx)
        found = self._team.ask_all("move", self._key, packed, idx, delta, d)
        self._v[idx] += delta
        if len(self._followed) < self._m:
            self._missed[idx] += delta
        self._d = d
        return self._best(found)

    def restrict(self, kernels: Array | None) -> None:
        followed = np.arange(self._m) if kernels is None else np.asarray(kernels)
        self._team.ask_all("restrict", self._key, followed)
        self._followed, self._d = followed, np.zeros(len(followed))

    def synchronise(self) -> Array:
        """See :class:`Rounds`; the samples that moved meanwhile are sent once more."""
        frozen = np.setdiff1d(np.arange(self._m), self._followed)
        for part, packed in self._bank.messages(np.flatnonzero(self._missed)):
            self._team.ask_all("add", self._key, packed, self._missed[part], frozen)
            self._missed[part] = 0.0
        quads = self._team.ask_all("synchronise", self._key)
        self._followed, self._d = np.arange(self._m), np.zeros(self._m)
        return np.maximum(np.sum(quads, axis=0), 0.0)

    def reweigh(self, d: Array) -> PairStep:
        found = self._team.ask_all("weigh", self._key, d)
        self._d = d
        return self._best(found)

    def _best(self, found: list[Array]) -> PairStep:
        """The best pair of all; shards come in the order of their samples, and the first wins."""
        up = [answer[0] for answer in found if answer[0, 0] >= 0]
        down = [answer[1] for answer in found if answer[1, 0] >= 0]
        one = max(up, key=lambda row: row[1], default=None)
        two = min(down, key=lambda row: row[1], default=None)
        i = -1 if one is None else int(one[0])
        j = -1 if two is None else int(two[0])
        if one is None or two is None:
            return PairStep.nobody(len(self._followed), i, j)
        at = np.stack([one[3:], two[3:]], axis=1)
        block = self._block(np.array([i, j]))
        scores, values = (float(one[1]), float(two[1])), (float(one[2]), float(two[2]))
        return PairStep(i, j, *scores, *values, at, block)

    def _block(self, idx: Array) -> Array:
        bank = self._bank
        if self._weights is None:
            values = bank.kernels.block(idx, idx, bank.members[self._followed])
        else:
            stack = bank.kernels.block(idx, idx, bank.members)
            values = np.tensordot(self._weights, stack, axes=1)[None]
        return np.stack([values[:, 0, 0], values[:, 1, 1], values[:, 0, 1]], axis=1)

    def values(self) -> Array:
        return self._v.copy()

    def fitted(self) -> Array:
        """See :class:`Rounds`; n numbers come here."""
        return np.concatenate(self._team.ask_all("fitted", self._key))

    @property
    def nbytes(self) -> int:
        """Bytes of the state, all workers together."""
        return 8 * self._m * self._bank.n
