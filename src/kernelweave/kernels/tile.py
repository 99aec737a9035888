"""A rectangle of all base matrices at once: what a combination of kernels is computed from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from kernelweave.compiled.blocks import STACK_ENTRIES, rows_of

__all__ = ["StackTile", "Tile"]

Array = NDArray[Any]


class Tile(ABC):
    """The same rows and columns of every base matrix B_k (kernels or distances).

    Attributes
    ----------
    shape : tuple of int
        Numbers of rows and columns, (q, s).
    m : int
        Number of base matrices.
    """

    shape: tuple[int, int]
    m: int

    @abstractmethod
    def weighted(self, d: ArrayLike) -> Array:
        """sum_k d_k B_k, shape (q, s), a new array; matrices of weight zero are not evaluated."""

    @abstractmethod
    def stack(self, kernels: ArrayLike | None = None) -> Array:
        """B_k for those k (None: all), shape (m', q, s); the caller minds the memory."""

    @abstractmethod
    def contract(self, M: ArrayLike) -> NDArray[np.float64]:
        """sum_ij M_ij B_k[i, j] for every k, shape (m,), in bounded memory."""


class StackTile(Tile):
    """A tile that evaluates matrices a few at a time.

    Parameters
    ----------
    shape : tuple of int
        (q, s).
    m : int
        Number of base matrices.
    evaluate : callable
        ``evaluate(kernels) -> (len(kernels), q, s)``.
    dtype : numpy dtype
        Type of `weighted`.
    add_up : callable, optional
        ``add_up(d) -> (q, s)``: `weighted` itself, where there is a way without stacks.

    Examples
    --------
    >>> B = np.array([[[1.0, 2.0]], [[3.0, 4.0]]])
    >>> tile = StackTile((1, 2), 2, lambda kernels: B[kernels])
    >>> tile.weighted([1.0, 10.0])
    array([[31., 42.]])
    >>> tile.contract([[1.0, -1.0]])
    array([-1., -1.])
    """

    def __init__(
        self,
        shape: tuple[int, int],
        m: int,
        evaluate: Callable[[Array], Array],
        dtype: DTypeLike = np.float64,
        add_up: Callable[[Array], Array] | None = None,
    ) -> None:
        self.shape = shape
        self.m = m
        self._evaluate = evaluate
        self._add_up = add_up
        self._dtype = np.dtype(dtype)

    def _parts(self, kernels: Array) -> list[Array]:
        """Cut the kernels into runs whose stack is small."""
        size = rows_of(self.shape[0] * self.shape[1], STACK_ENTRIES)
        return [kernels[first : first + size] for first in range(0, len(kernels), size)]

    def weighted(self, d: ArrayLike) -> Array:
        if self._add_up is not None:
            return self._add_up(np.asarray(d, dtype=np.float64))
        weights = np.asarray(d, dtype=self._dtype)
        out = np.zeros(self.shape, self._dtype)
        for part in self._parts(np.flatnonzero(weights)):
            out += np.tensordot(weights[part], self._evaluate(part), axes=1)
        return out

    def stack(self, kernels: ArrayLike | None = None) -> Array:
        chosen = np.arange(self.m) if kernels is None else np.asarray(kernels)
        return self._evaluate(chosen)

    def contract(self, M: ArrayLike) -> NDArray[np.float64]:
        weights = np.asarray(M, dtype=np.float64).ravel()
        out = np.empty(self.m)
        for part in self._parts(np.arange(self.m)):
            values = self._evaluate(part).reshape(len(part), -1)
            out[part] = values.astype(np.float64, copy=False) @ weights
        return out
