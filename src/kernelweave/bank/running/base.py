"""What running products answer, however they are kept."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Array", "RunningProducts"]

Array = NDArray[Any]


class RunningProducts(ABC):
    """K_k v of every kernel, kept up to date while v changes at few samples at a time.

    This is the state ``G_k a`` of MWUMKL (algorithm 4). One move costs two rows of every kernel
    and one pass over the state, O(m n), and no matrix is formed. Kernels can be left frozen: moves
    then cost nothing for them until `synchronise` brings all of them up to date at once.

    Attributes
    ----------
    m, n : int
        Numbers of kernels and samples.
    followed : ndarray of int
        The kernels that follow the moves. `at`, `block`, `move` and `weigh`, and the weights they
        are given, are about these, in this order.
    """

    m: int
    n: int
    followed: Array

    @abstractmethod
    def reset(self, v: Array) -> None:
        """Start from this v, of shape (n,), with all kernels followed; zeros cost nothing."""

    def restrict(self, kernels: Array | None) -> None:
        """Let only these kernels (None: all) follow the moves from now on, until `synchronise`.

        All kernels must be followed before.
        """
        self.followed = (
            np.arange(self.m) if kernels is None else np.asarray(kernels, dtype=np.int64)
        )

    @abstractmethod
    def synchronise(self, v: Array) -> Array:
        """Bring all kernels up to date and follow them; returns v'K_k v of each, shape (m,)."""

    @abstractmethod
    def at(self, idx: Array) -> Array:
        """(K_k v)[idx] of every kernel followed, shape (len(followed), len(idx))."""

    @abstractmethod
    def block(self, idx: Array) -> Array:
        """K_k[idx][:, idx] of every kernel followed, shape (len(followed), len(idx), len(idx))."""

    def pair(self, i: int, j: int) -> tuple[Array, Array]:
        """What moving i and j has to know of every kernel followed.

        (K_k v)_i and (K_k v)_j, shape (len(followed), 2), and K_k[i, i], K_k[j, j] and K_k[i, j],
        shape (len(followed), 3).
        """
        idx = np.array([i, j])
        block = self.block(idx)
        return self.at(idx), np.stack([block[:, 0, 0], block[:, 1, 1], block[:, 0, 1]], axis=1)

    @abstractmethod
    def move(self, idx: Array, delta: Array, d: Array) -> Array:
        """Add `delta` to v at two samples and return sum_k d_k K_k v, shape (n,)."""

    @abstractmethod
    def weigh(self, d: Array) -> Array:
        """sum_k d_k K_k v, shape (n,)."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes of the state, without what the bank holds."""
