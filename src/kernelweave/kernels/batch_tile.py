"""A rectangle of a batch of Gaussian kernels, computed where it is used."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from kernelweave.compiled.batch_rectangle import (
    contract_rectangle,
    rectangle,
    weighted_rectangle,
)
from kernelweave.compiled.batch_rows import BLOCK
from kernelweave.compiled.threads import map_blocks
from kernelweave.kernels.tile import Tile

__all__ = ["BatchTile", "batch_roots", "kernel_block"]

Array = NDArray[Any]

# How many multiplications the time of one kernel value is.
WORK = 8
_LEFT_BLOCK = 16
# Scaled columns are kept within this, so that no sum of squares overflows.
_LIMITS = {np.dtype(np.float32): 1e16, np.dtype(np.float64): 1e150}


def batch_roots(gamma: Array, dtype: DTypeLike, *tables: Array) -> Array:
    r"""Return the factors sqrt(gamma log2(e)) that turn columns into exponents of two.

    Examples
    --------
    >>> batch_roots(np.array([np.log(2.0)]), np.float64, np.array([[3.0]]))
    array([1.])
    """
    largest = max((float(np.abs(table).max(initial=0.0)) for table in tables), default=0.0)
    roots = np.sqrt(gamma) * np.sqrt(np.log2(np.e))
    return np.minimum(roots, _LIMITS[np.dtype(dtype)] / max(largest, 1e-150))


def kernel_block(entries: float) -> int:
    """Return how many kernels of that many entries a thread takes at a time.

    Examples
    --------
    >>> kernel_block(1e4), kernel_block(1e9)
    (200, 1)
    """
    return int(np.clip(2e6 // max(1.0, entries), 1, 1024))


class BatchTile(Tile):
    """Values of a batch of Gaussian kernels between two sets of samples.

    Parameters
    ----------
    columns : array of int32, shape (m, max_size)
        Columns of each kernel: rows of `left` and `right`, filled up with -1.
    gamma : array of shape (m,)
        Their gamma.
    left, right : arrays of shape (p, q) and (p, s)
        The samples, one row a column of the data.
    dtype : {float64, float32}
        Type of the results.
    compute : {float64, float32}, optional
        Type of the arithmetic; `dtype` by default. Sums are float64.

    Examples
    --------
    >>> columns, gamma = np.array([[0, -1], [0, 1]], np.int32), np.array([1.0, 0.5])
    >>> tile = BatchTile(columns, gamma, np.zeros((2, 1)), np.array([[0.0, 1.0], [0.0, 1.0]]))
    >>> tile.weighted([2.0, 1.0]).round(3)
    array([[3.   , 1.104]])
    >>> tile.contract([[1.0, -1.0]]).round(3)
    array([0.632, 0.632])
    """

    def __init__(
        self,
        columns: Array,
        gamma: Array,
        left: Array,
        right: Array,
        dtype: DTypeLike = np.float64,
        compute: DTypeLike | None = None,
    ) -> None:
        self.shape = (left.shape[1], right.shape[1])
        self.m = len(gamma)
        self._columns = columns
        self._left = np.ascontiguousarray(left)
        self._right = np.ascontiguousarray(right)
        self._dtype = np.dtype(dtype)
        self._like = np.empty(0, self._dtype if compute is None else compute)
        self._roots = batch_roots(gamma, self._like.dtype, self._left, self._right)

    def weighted(self, d: ArrayLike) -> Array:
        """See :class:`Tile`."""
        weights = np.asarray(d, dtype=np.float64)
        active = np.flatnonzero(weights)
        out = np.zeros(self.shape, self._dtype)
        q, s = self.shape
        runs = -(-s // BLOCK)

        def work(start: int, stop: int) -> None:
            for item in range(start, stop):
                b, run = divmod(item, runs)
                rows = slice(b * _LEFT_BLOCK, min((b + 1) * _LEFT_BLOCK, q))
                weighted_rectangle(
                    np.ascontiguousarray(self._left[:, rows]),
                    self._right,
                    self._columns,
                    self._roots,
                    active,
                    weights[active],
                    self._like,
                    out[rows],
                    run * BLOCK,
                )

        map_blocks(work, -(-q // _LEFT_BLOCK) * runs, 1, WORK * len(active) * out.size)
        return out

    def stack(self, kernels: ArrayLike | None = None) -> Array:
        """See :class:`Tile`."""
        chosen = np.arange(self.m) if kernels is None else np.asarray(kernels, dtype=np.int64)
        out = np.empty((len(chosen), *self.shape), self._dtype)

        def work(start: int, stop: int) -> None:
            rectangle(
                self._left,
                self._right,
                self._columns,
                self._roots,
                chosen,
                self._like,
                out,
                start,
                stop,
            )

        if out.size:
            map_blocks(work, len(chosen), kernel_block(out[0].size), WORK * out.size)
        return out

    def contract(self, M: ArrayLike) -> NDArray[np.float64]:
        """See :class:`Tile`."""
        weights = np.ascontiguousarray(M, dtype=np.float64)
        out = np.zeros(self.m)

        def work(start: int, stop: int) -> None:
            contract_rectangle(
                self._left,
                self._right,
                self._columns,
                self._roots,
                weights,
                self._like,
                out,
                start,
                stop,
            )

        if weights.size:
            map_blocks(work, self.m, kernel_block(weights.size), WORK * self.m * weights.size)
        return out
