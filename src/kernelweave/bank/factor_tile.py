"""A rectangle of kernels that are known by their factors."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from kernelweave.bank.protocol import Array
from kernelweave.kernels.tile import Tile

__all__ = ["FactorTile"]


class FactorTile(Tile):
    """Rows and columns of kernels K_k = F_k'F_k, never formed one by one.

    Parameters
    ----------
    left, right : ndarray of shape (R, q) and (R, s)
        The factors of all kernels one below the other, at the samples of the rows and columns.
    owner : ndarray of shape (R,)
        The kernel that each row of the factors belongs to.
    m : int
        Number of kernels.
    dtype : numpy dtype
        Type of `weighted` and `stack`.

    Examples
    --------
    >>> F = np.array([[1.0, 2.0], [0.0, 1.0]])
    >>> tile = FactorTile(F, F, np.array([0, 1]), 2)
    >>> tile.weighted([1.0, 10.0])
    array([[ 1.,  2.],
           [ 2., 14.]])
    >>> tile.contract(np.eye(2))
    array([5., 1.])
    """

    def __init__(
        self, left: Array, right: Array, owner: Array, m: int, dtype: DTypeLike = np.float64
    ) -> None:
        self.shape = (left.shape[1], right.shape[1])
        self.m = m
        self._left = left
        self._right = right
        self._owner = owner
        self._dtype = np.dtype(dtype)

    def weighted(self, d: ArrayLike) -> Array:
        weights: NDArray[Any] = np.asarray(d, dtype=np.float64)[self._owner]
        used = np.flatnonzero(weights)
        scaled = self._left[used] * weights[used, None]
        return (scaled.T @ self._right[used]).astype(self._dtype, copy=False)

    def stack(self, kernels: ArrayLike | None = None) -> Array:
        chosen = np.arange(self.m) if kernels is None else np.asarray(kernels)
        out = np.empty((len(chosen), *self.shape), self._dtype)
        for place, k in enumerate(chosen):
            own = self._owner == k
            out[place] = self._left[own].T @ self._right[own]
        return out

    def contract(self, M: ArrayLike) -> NDArray[np.float64]:
        """See :class:`Tile`; sum_ij M_ij K_ij is the trace of F M F'."""
        moved = self._left @ np.asarray(M, dtype=np.float64)
        traces = np.einsum("rs,rs->r", moved, self._right)
        sums = np.bincount(self._owner, weights=traces, minlength=self.m)
        return sums.astype(np.float64)
