"""What a worker does for kernels that is cut by points: all kernels, against its own samples."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernelweave.cluster.point_state import PointState
from kernelweave.operators.base import Array, kernel_runs
from kernelweave.operators.rounds import BoxConstraints

__all__ = ["PointShard"]


class PointShard:
    """Some of the samples, on a worker.

    Questions come with the other samples they are about, as the operator's `pack` leaves them.

    Parameters
    ----------
    kernels : KernelOperator
        The kernels, without samples.
    packed : object
        The samples that live here.
    first : int
        Which of the first of them among all.
    cache_mb : float
        Megabytes of kernel rows that the rounds keep.
    """

    def __init__(self, kernels: Any, packed: Any, first: int, cache_mb: float) -> None:
        self.kernels, self.own = kernels, kernels.open(packed)
        self.first, self._cache_mb = first, cache_mb
        self._states: dict[int, PointState] = {}

    # Passes

    def _sent(self, packed: Any, here: Array | None) -> Any:
        """The kernels of the samples sent against those here (None: all of them)."""
        mine = self.own if here is None else self.own.take(here)
        return self.kernels.of_rows(self.kernels.open(packed), mine)

    def _mine(self, packed: Any, here: Array | None) -> Any:
        """The kernels of the samples here (None: all of them) against those sent."""
        mine = self.own if here is None else self.own.take(here)
        return self.kernels.of_rows(mine, self.kernels.open(packed))

    def rows(self, packed: Any, here: Array | None, kernels: Array) -> Array:
        """K_k of the samples sent against those here."""
        return np.array(self._sent(packed, here).block(kernels=kernels))

    def weighted(self, packed: Any, here: Array | None, d: Array, kernels: Array) -> Array:
        """sum_k d_k K_k of the samples sent against those here."""
        return np.array(self._sent(packed, here).select(kernels).weighted(d))

    def products(self, packed: Any, V: Array, kernels: Array) -> Array:
        """K_k v at the samples here, from the samples where v is not zero."""
        return np.array(self._mine(packed, None).apply(V, kernels))

    def partial(self, packed: Any, here: Array, V: Array, kernels: Array) -> Array:
        """K_k v at the samples sent, as far as v lives here."""
        return np.array(self._sent(packed, here).apply(V, kernels))

    def quad(self, packed: Any, V: Array, here: Array, V_here: Array, kernels: Array) -> Array:
        """v'K_k v, summed over the samples here only on one side."""
        operator, out = self._mine(packed, here), np.zeros(len(kernels))
        for part in kernel_runs(len(kernels), V_here.size):
            out[part] = np.einsum("ktn,tn->k", operator.apply(V, kernels[part]), V_here)
        return out

    def quad_and_product(
        self, packed: Any, V: Array, V_here: Array, d: Array, kernels: Array
    ) -> tuple[Array, Array]:
        """(v'K_k v as in `quad`, sum_k d_k K_k v at the samples here)."""
        operator = self._mine(packed, None)
        quad, product = np.zeros(len(kernels)), np.zeros(V_here.shape)
        for part in kernel_runs(len(kernels), V_here.size):
            products = operator.apply(V, kernels[part])
            quad[part] = np.einsum("ktn,tn->k", products, V_here)
            product += np.tensordot(d[part], products, axes=1)
        return quad, product

    def diagonal(self, kernels: Array) -> Array:
        """K_k(x, x) of the samples here."""
        return np.array(self.kernels.of_rows(self.own, self.own).diagonal(kernels))

    def diagonal_sum(self, kernels: Array) -> Array:
        """Sum of K_k(x, x) over the samples here."""
        parts = kernel_runs(len(kernels), self.own.n)
        return np.concatenate([self.diagonal(kernels[part]).sum(axis=1) for part in parts])

    def sum_products(self, packed: Any, V: Array, kernels: Array) -> Array:
        """sum_k K_k V[k] at the samples here, from all samples."""
        found: Array = self._mine(packed, None).select(kernels).sum_products(V)
        return found

    def squares(self, packed: Any, kernels: Array) -> Array:
        """sum_k K_k[here]' K_k[here], from all samples."""
        found: Array = self._mine(packed, None).select(kernels).square_sum()
        return found

    # Rounds

    def begin(self, key: int, rules: BoxConstraints, kernels: Array, weights: Array | None) -> None:
        """Keep K_k v at the samples here from now on, under this key."""
        self._states[key] = PointState(
            self.kernels, self.own, self.first, rules, kernels, weights, self._cache_mb
        )

    def forget(self, key: int) -> None:
        """Drop that state."""
        self._states.pop(key, None)

    def clear(self, key: int) -> None:
        """Start from v = 0."""
        self._states[key].clear()

    def put(self, key: int, v: Array) -> None:
        """Set v at the samples here."""
        self._states[key].put(v)

    def add(self, key: int, packed: Any, values: Array, kernels: Array | None) -> None:
        """Add the products of these kernels (None: all) with those values at the samples sent."""
        self._states[key].add(self.kernels.open(packed), values, kernels)

    def restrict(self, key: int, kernels: Array | None) -> None:
        """Let only these kernels (None: all) follow the moves."""
        self._states[key].restrict(kernels)

    def synchronise(self, key: int) -> Array:
        """Wake all kernels; returns v'K_k v, as far as v lives here on one side."""
        return self._states[key].synchronise()

    def weigh(self, key: int, d: Array) -> Array:
        """Choose the best pair here by weights d."""
        return self._states[key].weigh(d)

    def move(self, key: int, packed: Any, idx: Array, delta: Array, d: Array) -> Array:
        """Move two samples, wherever they live, and choose the best pair here by weights d."""
        return self._states[key].move(self.kernels.open(packed), idx, delta, d)

    def fitted(self, key: int) -> Array:
        """sum_k d_k K_k v at the samples here, by the last weights."""
        return self._states[key].fitted
