"""Running products of several banks side by side."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kernelweave.bank.running.base import Array, RunningProducts
from kernelweave.kernels.composite_set import whereabouts

__all__ = ["StackedProducts"]


class StackedProducts(RunningProducts):
    """Running products of several banks side by side.

    Parameters
    ----------
    parts : sequence of RunningProducts
    members : sequence of integer arrays
        Which kernels of the whole each part holds.
    """

    def __init__(self, parts: Sequence[RunningProducts], members: Sequence[Array]) -> None:
        self._parts, self._members = list(parts), list(members)
        self.m, self.n = sum(part.m for part in parts), parts[0].n
        self._part, self._place = whereabouts(members)
        self.restrict(None)

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in self._parts)

    def restrict(self, kernels: Array | None) -> None:
        super().restrict(kernels)
        # Where the kernels followed of each part are among all those followed.
        self._own = [
            np.flatnonzero(self._part[self.followed] == p) for p in range(len(self._parts))
        ]
        for part, own in zip(self._parts, self._own, strict=True):
            part.restrict(self._place[self.followed[own]])

    def _gather(self, shape: tuple[int, ...], name: str, idx: Array) -> Array:
        out = np.empty((len(self.followed), *shape))
        for part, own in zip(self._parts, self._own, strict=True):
            if len(own):
                out[own] = getattr(part, name)(idx)
        return out

    def reset(self, v: Array) -> None:
        for part in self._parts:
            part.reset(v)
        self.restrict(None)

    def synchronise(self, v: Array) -> Array:
        out = np.empty(self.m)
        for part, own in zip(self._parts, self._members, strict=True):
            out[own] = part.synchronise(v)
        self.restrict(None)
        return out

    def at(self, idx: Array) -> Array:
        return self._gather((len(idx),), "at", idx)

    def block(self, idx: Array) -> Array:
        return self._gather((len(idx), len(idx)), "block", idx)

    def pair(self, i: int, j: int) -> tuple[Array, Array]:
        at, block = np.empty((len(self.followed), 2)), np.empty((len(self.followed), 3))
        for part, own in zip(self._parts, self._own, strict=True):
            if len(own):
                at[own], block[own] = part.pair(i, j)
        return at, block

    def move(self, idx: Array, delta: Array, d: Array) -> Array:
        pairs = zip(self._parts, self._own, strict=True)
        return np.sum([part.move(idx, delta, d[own]) for part, own in pairs], axis=0)

    def weigh(self, d: Array) -> Array:
        pairs = zip(self._parts, self._own, strict=True)
        return np.sum([part.weigh(d[own]) for part, own in pairs], axis=0)
