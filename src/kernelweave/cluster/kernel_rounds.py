"""Rounds of MWU over shards of the kernels: two supersteps each, n numbers from every worker."""

from __future__ import annotations

import itertools
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np

from kernelweave.compiled.mwu import best_pair
from kernelweave.operators.base import Array
from kernelweave.operators.rounds import BoxConstraints, PairStep, Rounds

if TYPE_CHECKING:
    from kernelweave.cluster.by_kernels import KernelShards

__all__ = ["KernelRounds"]

_KEYS = itertools.count()


class KernelRounds(Rounds):
    """Every worker keeps K_k v of its kernels; the sum over kernels is taken here."""

    def __init__(self, bank: KernelShards, rules: BoxConstraints, weights: Array | None) -> None:
        self._bank, self._team, self._rules, self._weights = bank, bank.team, rules, weights
        self._held = bank.split()
        self._m = bank.m if weights is None else 1
        self._v, self._fitted = np.zeros(bank.n), np.zeros(bank.n)
        self._key = next(_KEYS)
        self._find(np.arange(self._m))
        if weights is None:
            sizes = np.diff(bank.starts)
            self._team.require(
                lambda w: 8.0 * sizes[w] * bank.n,
                f"the state of its {sizes.max()} kernels on {bank.n} samples",
            )
        self._team.ask("begin", {w: self._beginning(w) for w in self._held})
        self._team.keep(self)
        weakref.finalize(self, self._team.drop, "forget", self._key)

    def _beginning(self, w: int) -> tuple[Any, ...]:
        which, places = self._held[w]
        weights = None if self._weights is None else self._weights[which]
        return self._key, self._v, places, weights, self._places[w]

    def restore(self, w: int) -> None:
        """Give shard w, which was made again, the state it had before this superstep."""
        if w in self._held:
            self._team.tell(w, "begin", *self._beginning(w))

    def _find(self, followed: Array) -> None:
        """Set where the kernels followed are: among all of them, and in their shards."""
        self._followed = followed
        self._own: dict[int, Array] = {}
        self._places: dict[int, Array] = {}
        for w, (which, _) in self._held.items():
            if self._weights is not None:
                self._own[w] = self._places[w] = np.arange(1)
                continue
            self._own[w] = np.flatnonzero(np.isin(followed, which))
            self._places[w] = np.searchsorted(which, followed[self._own[w]])

    def _asked(self, d: Array, *args: Any) -> dict[int, tuple[Any, ...]]:
        return {w: (self._key, *args, d[own]) for w, own in self._own.items()}

    def restrict(self, kernels: Array | None) -> None:
        self._find(np.arange(self._m) if kernels is None else np.asarray(kernels))
        self._team.ask("restrict", {w: (self._key, own) for w, own in self._places.items()})

    def synchronise(self) -> Array:
        answers = self._team.ask("synchronise", dict.fromkeys(self._held, (self._key,)))
        self._find(np.arange(self._m))
        if self._weights is not None:
            return np.sum(answers, axis=0)
        out = np.empty(self._m)
        for (which, _), answer in zip(self._held.values(), answers, strict=True):
            out[which] = answer
        return out

    def start(self, v: Array, d: Array) -> PairStep:
        self._v = np.array(v, dtype=np.float64)
        self._find(np.arange(self._m))
        self._team.ask("reset", dict.fromkeys(self._held, (self._key, self._v)))
        return self.reweigh(d)

    def advance(self, choice: PairStep, step_i: float, step_j: float, d: Array) -> PairStep:
        idx, delta = np.array([choice.i, choice.j]), np.array([step_i, step_j])
        self._fitted = self._sum(self._team.ask("move", self._asked(d, idx, delta)))
        self._v[idx] += delta
        return self._choose()

    def reweigh(self, d: Array) -> PairStep:
        self._fitted = self._sum(self._team.ask("weigh", self._asked(d)))
        return self._choose()

    def _sum(self, answers: list[Any]) -> Array:
        """Add up what the shards say; one without kernels followed says 0."""
        out = np.zeros(self._bank.n)
        for answer in answers:
            out += answer
        return out

    def _choose(self) -> PairStep:
        rules, v = self._rules, self._v
        i, high, j, low = best_pair(
            self._fitted, v, rules.linear, rules.ridge, rules.up, rules.down
        )
        if i < 0 or j < 0:
            return PairStep.nobody(len(self._followed), i, j)
        asked = dict.fromkeys(self._held, (self._key, np.array([i, j])))
        answers = self._team.ask("look", asked)
        if self._weights is not None:
            known = np.sum(answers, axis=0)
        else:
            known = np.empty((len(self._followed), 5))
            for own, answer in zip(self._own.values(), answers, strict=True):
                known[own] = answer
        return PairStep(i, j, high, low, float(v[i]), float(v[j]), known[:, :2], known[:, 2:])

    def values(self) -> Array:
        return self._v.copy()

    def fitted(self) -> Array:
        return self._fitted.copy()

    @property
    def nbytes(self) -> int:
        """Bytes of the state, all workers together."""
        return 8 * self._m * self._bank.n
