"""Running products of factored kernels."""

from __future__ import annotations

import numpy as np

from kernelweave.bank.running.base import Array, RunningProducts
from kernelweave.compiled.mwu import factor_at, factor_block, factor_pair, weigh_factors
from kernelweave.compiled.threads import map_blocks

__all__ = ["FactorProducts"]

# Columns of a block: its part of the sum stays in the cache of a core.
_COLUMN_BLOCK = 2048


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
        self.wake(None)

    @property
    def nbytes(self) -> int:
        """See :class:`RunningProducts`."""
        return int(self._z.nbytes)

    def reset(self, v: Array) -> None:
        """See :class:`RunningProducts`."""
        self.wake(None)
        self._z[:] = self._factors @ v if np.any(v) else 0.0

    def settle(self, v: Array) -> Array:
        """See :class:`RunningProducts`; z follows every move, so nobody ever sleeps."""
        self.wake(None)
        return np.bincount(self._owner, weights=self._z**2, minlength=self.m)

    def at(self, idx: Array) -> Array:
        """See :class:`RunningProducts`."""
        out = np.empty((len(self.awake), len(idx)))
        factor_at(self._factors, self._offsets, self.awake, self._z, np.asarray(idx), out)
        return out

    def block(self, idx: Array) -> Array:
        """See :class:`RunningProducts`."""
        out = np.empty((len(self.awake), len(idx), len(idx)))
        factor_block(self._factors, self._offsets, self.awake, np.asarray(idx), out)
        return out

    def pair(self, i: int, j: int) -> tuple[Array, Array]:
        """See :class:`RunningProducts`."""
        at, block = self._empty_pair()
        factor_pair(self._factors, self._offsets, self.awake, self._z, i, j, at, block)
        return at, block

    def move(self, idx: Array, delta: Array, d: Array) -> Array:
        """See :class:`RunningProducts`."""
        for i, step in zip(idx, delta, strict=True):
            self._z += step * self._factors[:, i]
        return self.weigh(d)

    def weigh(self, d: Array) -> Array:
        """See :class:`RunningProducts`."""
        weights = np.zeros(self.m)
        weights[self.awake] = d
        coefficients = self._z * weights[self._owner]
        used = np.flatnonzero(coefficients)
        out = np.zeros(self.n)

        def work(start: int, stop: int) -> None:
            weigh_factors(self._factors, used, coefficients, out, (start, stop))

        map_blocks(work, self.n, _COLUMN_BLOCK, float(len(used)) * self.n)
        return out
