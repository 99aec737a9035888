"""What a worker does for a bank that is cut by points: all kernels, against its own samples."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernelweave.bank.dask.point_state import PointState, pieces
from kernelweave.bank.dask.recipe import Recipe, Rows
from kernelweave.bank.protocol import Array
from kernelweave.bank.rounds import BoxConstraints
from kernelweave.bank.squares import SquareSum

__all__ = ["PointShard"]


class PointShard:
    """Some of the samples, on a worker.

    Questions come with the other samples they are about, packed as `pack` leaves them.

    Parameters
    ----------
    recipe : Recipe
        The kernels.
    packed : object
        The samples that live here.
    first : int
        Index of the first of them among all.
    cache_mb : float
        Megabytes of kernel rows that the rounds keep.
    """

    def __init__(self, recipe: Recipe, packed: Any, first: int, cache_mb: float) -> None:
        self.recipe, self.own = recipe, recipe.open(packed)
        self.first, self._cache_mb = first, cache_mb
        self._states: dict[int, PointState] = {}

    # Passes

    def _mine(self, here: Array | None) -> Rows:
        return self.own if here is None else self.own.take(here)

    def rows(self, packed: Any, here: Array | None, kernels: Array) -> Array:
        """K_k of the samples sent against those here (None: all of them)."""
        return self.recipe.values(self.recipe.open(packed), self._mine(here), kernels)

    def weighted(self, packed: Any, here: Array | None, d: Array, kernels: Array) -> Array:
        """sum_k d_k K_k of the samples sent against those here (None: all of them)."""
        return self.recipe.weighted(self.recipe.open(packed), self._mine(here), d, kernels)

    def products(self, packed: Any, V: Array, kernels: Array) -> Array:
        """K_k v at the samples here, from the samples where v is not zero."""
        return self.recipe.products(self.recipe.open(packed), self.own, V, kernels)

    def partial(self, packed: Any, here: Array, V: Array, kernels: Array) -> Array:
        """K_k v at the samples sent, as far as v lives here."""
        mine = self.own.take(here)
        return self.recipe.products(mine, self.recipe.open(packed), V, kernels)

    def quad(self, packed: Any, V: Array, here: Array, V_here: Array, kernels: Array) -> Array:
        """v'K_k v, summed over the samples here only on one side."""
        left, right = self.recipe.open(packed), self.own.take(here)
        out = np.zeros(len(kernels))
        for part in pieces(len(kernels), V_here.size):
            products = self.recipe.products(left, right, V, kernels[part])
            out[part] = np.einsum("ktn,tn->k", products, V_here)
        return out

    def quad_and_product(
        self, packed: Any, V: Array, V_here: Array, d: Array, kernels: Array
    ) -> tuple[Array, Array]:
        """(v'K_k v as in `quad`, sum_k d_k K_k v at the samples here)."""
        left = self.recipe.open(packed)
        quad, product = np.zeros(len(kernels)), np.zeros(V_here.shape)
        for part in pieces(len(kernels), V_here.size):
            products = self.recipe.products(left, self.own, V, kernels[part])
            quad[part] = np.einsum("ktn,tn->k", products, V_here)
            product += np.tensordot(d[part], products, axes=1)
        return quad, product

    def diag(self, kernels: Array) -> Array:
        """K_k(x, x) of the samples here."""
        return np.array(self.recipe.diag(self.own, kernels))

    def diag_sum(self, kernels: Array) -> Array:
        """Sum of K_k(x, x) over the samples here."""
        parts = pieces(len(kernels), self.own.n)
        return np.concatenate([self.recipe.diag(self.own, kernels[p]).sum(axis=1) for p in parts])

    def sum_products(self, packed: Any, V: Array, kernels: Array) -> Array:
        """sum_k K_k V[k] at the samples here, from all samples."""
        left = self.recipe.open(packed)
        out = np.zeros((V.shape[1], self.own.n))
        for place in range(len(kernels)):
            out += self.recipe.products(left, self.own, V[place], kernels[place : place + 1])[0]
        return out

    def squares(self, packed: Any, kernels: Array) -> Array:
        """sum_k K_k[here]' K_k[here], from all samples."""
        everyone = self.recipe.open(packed)
        total = SquareSum(everyone.n)
        for part in pieces(self.own.n, everyone.n):
            mine = self.own.take(part)
            for some in pieces(len(kernels), len(part) * everyone.n):
                rows = self.recipe.values(mine, everyone, kernels[some]).reshape(-1, everyone.n)
                total.add(rows, rows)
        return total.total()

    # Rounds

    def begin(self, key: int, rules: BoxConstraints, kernels: Array, weights: Array | None) -> None:
        """Keep K_k v at the samples here from now on, under this key."""
        self._states[key] = PointState(
            self.recipe, self.own, self.first, rules, kernels, weights, self._cache_mb
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
        self._states[key].add(self.recipe.open(packed), values, kernels)

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
        return self._states[key].move(self.recipe.open(packed), idx, delta, d)

    def fitted(self, key: int) -> Array:
        """sum_k d_k K_k v at the samples here, by the last weights."""
        return self._states[key].fitted
