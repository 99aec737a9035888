"""What a worker does for a bank that is cut by kernels: its own kernels, on all samples."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernelweave.bank.auto import build_bank
from kernelweave.bank.protocol import Array, KernelBank
from kernelweave.bank.running import RunningProducts, SumProducts
from kernelweave.bank.stacked import StackedBank

__all__ = ["KernelShard"]

# Kernels in float64, and factors that leave out a trace of 1e-12: the same answer as one machine.
_TOL = 1e-9


class KernelShard:
    """Some of the kernels, on a worker, in a bank of their own.

    Parameters
    ----------
    parts : list of KernelSet or BatchBank
        The kernels that live here, on all samples.
    members : list of integer arrays
        Which kernels of the shard each part holds.
    cache_mb : float
        Megabytes for matrices or cached rows.
    """

    def __init__(self, parts: list[Any], members: list[Array], cache_mb: float) -> None:
        banks = [
            part
            if isinstance(part, KernelBank)
            else build_bank("auto", part, cache_mb=cache_mb, tol=_TOL)
            for part in parts
        ]
        self.bank = banks[0] if len(banks) == 1 else StackedBank(banks, members)
        self._states: dict[int, tuple[RunningProducts, Array]] = {}

    def ask(self, name: str, *args: Any) -> Any:
        """Answer any question of a bank."""
        return getattr(self.bank, name)(*args)

    def combine(self, d: Array) -> Array:
        """sum_k d_k K_k of the kernels here."""
        return self.bank.combine(d)

    def combine_block(self, d: Array, idx: Array) -> Array:
        """sum_k d_k K_k[idx][:, idx] of the kernels here."""
        return self.bank.combine_block(d, idx)

    def combine_rows(self, d: Array, idx: Array) -> Array:
        """sum_k d_k K_k[idx] of the kernels here."""
        return self.bank.combine_rows(d, idx, np.empty((len(idx), self.bank.n)))

    def squares(self, kernels: Array) -> Array:
        """sum_k K_k K_k over those kernels."""
        return self.bank.select(kernels).square_sum()

    # Rounds

    def begin(
        self, key: int, v: Array, kernels: Array, weights: Array | None, followed: Array
    ) -> None:
        """Keep K_k v of the kernels here from now on, under this key."""
        bank = self.bank.select(kernels)
        made = bank.running() if weights is None else SumProducts(bank, weights)
        self._states[key] = made, np.zeros(bank.n)
        self.reset(key, v)
        self.restrict(key, followed)

    def forget(self, key: int) -> None:
        """Drop that state."""
        self._states.pop(key, None)

    def reset(self, key: int, v: Array) -> None:
        """Start from another v, with all kernels followed."""
        products, own = self._states[key]
        own[:] = v
        products.reset(own)

    def restrict(self, key: int, kernels: Array) -> None:
        """Let only these kernels follow the moves."""
        self._states[key][0].restrict(kernels)

    def synchronise(self, key: int) -> Array:
        """Bring all kernels here up to date, and return v'K_k v of each."""
        products, v = self._states[key]
        return products.synchronise(v)

    def weigh(self, key: int, d: Array) -> Array | float:
        """sum_k d_k K_k v of the kernels here."""
        products = self._states[key][0]
        return products.weigh(d) if len(products.followed) else 0.0

    def move(self, key: int, idx: Array, delta: Array, d: Array) -> Array | float:
        """Move two samples; returns what `weigh` does."""
        products, v = self._states[key]
        v[idx] += delta
        fitted = products.move(idx, delta, d)
        return fitted if len(products.followed) else 0.0

    def look(self, key: int, idx: Array) -> Array:
        """(K_k v)_i, (K_k v)_j, K_k[i, i], K_k[j, j], K_k[i, j] of the kernels followed here."""
        products = self._states[key][0]
        if not len(products.followed):
            return np.empty((0, 5))
        block = products.block(idx)
        between = np.stack([block[:, 0, 0], block[:, 1, 1], block[:, 0, 1]], axis=1)
        return np.hstack([products.at(idx), between])
