"""What a single-kernel solver needs to know of a Gram matrix."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from kernelweave.arrays import AnyArray, Array, Index
from kernelweave.compiled.dense_rows import rows_product, square_block
from kernelweave.errors import InvalidInputError

__all__ = ["DenseGram", "GramSource"]


class GramSource(Protocol):
    """One (combined) kernel on the training samples, however it is stored."""

    @property
    def n(self) -> int:
        """Number of samples."""

    # Variables that a decomposition solver should move at a time; None if it does not matter.
    round_size: int | None

    def diagonal(self) -> Array:
        """Return the diagonal of K, shape (n,)."""

    def block(self, idx: Index) -> AnyArray:
        """Return ``K[idx][:, idx]``, shape (q, q), float64 or float32, for sorted indices."""

    def product(self, idx: Index, delta: Array) -> Array:
        """Return ``K[:, idx] @ delta``, shape (n,), for sorted indices; sums in float64."""

    def dense(self) -> AnyArray | None:
        """Return the whole matrix if there is one at no cost, else None."""

    def square_limit(self, most: int, copies: float) -> int:
        """Return on how many samples, at most `most`, so many square matrices may be formed."""


class DenseGram:
    """A symmetric Gram matrix in memory, float32 or float64; sums are in float64."""

    round_size: int | None = None

    def __init__(self, K: ArrayLike) -> None:
        matrix = np.asarray(K)
        if matrix.dtype not in (np.float32, np.float64):
            matrix = matrix.astype(np.float64)
        if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
            raise InvalidInputError(f"K must be a square matrix; got shape {matrix.shape}.")
        self._K = np.ascontiguousarray(matrix)

    @property
    def n(self) -> int:
        """Number of samples."""
        return int(self._K.shape[0])

    def diagonal(self) -> Array:
        """Return the diagonal of K."""
        return np.diagonal(self._K).astype(np.float64)

    def block(self, idx: Index) -> Array:
        """Return ``K[idx][:, idx]`` in float64."""
        return square_block(self._K, idx)

    def product(self, idx: Index, delta: Array) -> Array:
        """Return ``K[:, idx] @ delta``."""
        return rows_product(self._K, idx, delta)

    def dense(self) -> AnyArray:
        """Return the matrix itself."""
        return self._K

    def square_limit(self, most: int, copies: float) -> int:
        """Return `most`: where there is room for the matrix, there is for parts of it."""
        return most
