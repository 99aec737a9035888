"""What a single-kernel solver needs to know of a Gram matrix."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kernelweave.compiled.dense_rows import rows_product, square_block
from kernelweave.errors import InvalidInputError

__all__ = ["DenseGram", "GramSource"]

Vector = NDArray[np.float64]
Index = NDArray[np.int64]


class GramSource(Protocol):
    """One (combined) kernel on the training samples, however it is stored."""

    @property
    def n(self) -> int:
        """Number of samples."""

    # Variables that a decomposition solver should move at a time; None if it does not matter.
    round_size: int | None

    def diag(self) -> Vector:
        """Return the diagonal of K, shape (n,)."""

    def block(self, idx: Index) -> NDArray:
        """Return ``K[idx][:, idx]``, shape (q, q), float64 or float32, for sorted indices."""

    def product(self, idx: Index, delta: Vector) -> Vector:
        """Return ``K[:, idx] @ delta``, shape (n,), for sorted indices; sums in float64."""

    def dense(self) -> NDArray | None:
        """Return the whole matrix if there is one at no cost, else None."""

    def square_limit(self, most: int, copies: float) -> int:
        """Return on how many samples, at most `most`, so many square matrices may be formed."""


class DenseGram:
    """A Gram matrix in memory.

    Parameters
    ----------
    K : ndarray of shape (n, n), float32 or float64
        Symmetric; rows are read where they are, sums are in float64.

    Examples
    --------
    >>> import numpy as np
    >>> gram = DenseGram(np.eye(3, dtype=np.float32))
    >>> gram.product(np.array([1]), np.array([2.0]))
    array([0., 2., 0.])
    """

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

    def diag(self) -> Vector:
        """Return the diagonal of K."""
        return np.diagonal(self._K).astype(np.float64)

    def block(self, idx: Index) -> Vector:
        """Return ``K[idx][:, idx]`` in float64."""
        return square_block(self._K, idx)

    def product(self, idx: Index, delta: Vector) -> Vector:
        """Return ``K[:, idx] @ delta``."""
        return rows_product(self._K, idx, delta)

    def dense(self) -> NDArray:
        """Return the matrix itself."""
        return self._K

    def square_limit(self, most: int, copies: float) -> int:
        """Return `most`: where there is room for the matrix, there is for parts of it."""
        return most
