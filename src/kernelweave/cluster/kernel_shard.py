"""What a worker does for kernels that is cut by kernels: its own kernels, on all samples."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernelweave.operators.auto import build_bank
from kernelweave.operators.base import Array, KernelOperator
from kernelweave.operators.running import RunningProducts, SumProducts

__all__ = ["KernelShard"]

# Kernels in float64, and factors that leave out a trace of 1e-12: the same answer as one machine.
_TOL = 1e-9


class KernelShard:
    """Some of the kernels, on a worker, in an operator of their own.

    Parameters
    ----------
    kernels : KernelOperator
        The kernels that live here, on all samples.
    cache_mb : float
        Megabytes for matrices or cached rows.
    """

    def __init__(self, kernels: KernelOperator, cache_mb: float) -> None:
        self.operator = build_bank("auto", kernels, cache_mb=cache_mb, tol=_TOL)
        self._states: dict[int, tuple[RunningProducts, Array]] = {}

    def ask(self, name: str, *args: Any) -> Any:
        """Answer any question of an operator."""
        return getattr(self.operator, name)(*args)

    def squares(self, kernels: Array) -> Array:
        """sum_k K_k K_k over those kernels."""
        return self.operator.select(kernels).square_sum()

    # Rounds

    def begin(
        self, key: int, v: Array, kernels: Array, weights: Array | None, followed: Array
    ) -> None:
        """Keep K_k v of the kernels here from now on, under this key."""
        operator = self.operator.select(kernels)
        made = operator.running() if weights is None else SumProducts(operator, weights)
        self._states[key] = made, np.zeros(operator.n)
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
