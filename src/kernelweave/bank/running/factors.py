"""Running products of factored kernels."""

from __future__ import annotations

import numpy as np

from kernelweave.bank.running.base import Array, RunningProducts
from kernelweave.compiled.blocks import CACHED_COLUMNS
from kernelweave.compiled.mwu import factor_pair
from kernelweave.compiled.passes import add_rows
from kernelweave.compiled.threads import map_blocks

__all__ = ["FactorProducts"]


class FactorProducts(RunningProducts):
    """Running products of factored kernels: only z_k = F_k v is kept, K_k v = F_k'z_k follows.

    Parameters
    ----------
    factors : ndarray of shape (R, n)
        The factors of all kernels, one below the other.
    offsets : ndarray of shape (m + 1,)
        Where each begins.
    """

    def __init__(self, factors: Array, offsets: Array) -> None:
        self._factors, self._offsets = factors, offsets
        self.m, self.n = len(offsets) - 1, factors.shape[1]
        self._owner = np.repeat(np.arange(self.m), np.diff(offsets))
        self._z = np.zeros(len(factors))
        self.restrict(None)

    @property
    def nbytes(self) -> int:
        return int(self._z.nbytes)

    def reset(self, v: Array) -> None:
        self.restrict(None)
        self._z[:] = self._factors @ v if np.any(v) else 0.0

    def synchronise(self, v: Array) -> Array:
        """See :class:`RunningProducts`; z follows every move, so none is ever frozen."""
        self.restrict(None)
        return self._sums(self._z**2)

    def _sums(self, values: Array) -> Array:
        """Sums of one value for each row of the factors over the rows of every kernel followed."""
        return np.bincount(self._owner, weights=values, minlength=self.m)[self.followed]

    def at(self, idx: Array) -> Array:
        return np.stack([self._sums(self._factors[:, i] * self._z) for i in idx], axis=1)

    def block(self, idx: Array) -> Array:
        out = np.empty((len(self.followed), len(idx), len(idx)))
        columns = self._factors[:, idx].T
        for s, t in zip(*np.tril_indices(len(idx)), strict=True):
            out[:, s, t] = out[:, t, s] = self._sums(columns[s] * columns[t])
        return out

    def pair(self, i: int, j: int) -> tuple[Array, Array]:
        at, block = np.empty((len(self.followed), 2)), np.empty((len(self.followed), 3))
        factor_pair(self._factors, self._offsets, self.followed, self._z, i, j, at, block)
        return at, block

    def move(self, idx: Array, delta: Array, d: Array) -> Array:
        for i, step in zip(idx, delta, strict=True):
            self._z += step * self._factors[:, i]
        return self.weigh(d)

    def weigh(self, d: Array) -> Array:
        weights = np.zeros(self.m)
        weights[self.followed] = d
        coefficients = self._z * weights[self._owner]
        used = np.flatnonzero(coefficients)
        values, out = coefficients[used], np.zeros(self.n)

        def work(start: int, stop: int) -> None:
            add_rows(self._factors, used, values, out, start, stop)

        map_blocks(work, self.n, CACHED_COLUMNS, float(len(used)) * self.n)
        return out
