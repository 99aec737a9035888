"""A rectangle of a batch of Gaussian kernels, computed where it is used."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from kernelweave.compiled.blocks import (
    GAUSSIAN_COLUMNS,
    GAUSSIAN_TILE,
    GAUSSIAN_WORK,
    SHARED_CACHE_ENTRIES,
    gaussian_kernels,
)
from kernelweave.compiled.gaussians import (
    Batch,
    contract_rectangle,
    rectangle,
    weighted_rectangle,
)
from kernelweave.compiled.threads import map_blocks
from kernelweave.kernels.tile import Tile

__all__ = ["BatchTile", "compiled_batch"]

Array = NDArray[Any]

# Parts that a small sum of many kernels is cut into.
_GROUPS = 8
# Scaled columns are kept within this, so that no sum of squares overflows.
_LIMITS = {np.dtype(np.float32): 1e16, np.dtype(np.float64): 1e150}


def compiled_batch(columns: Array, gamma: Array, dtype: DTypeLike, *tables: Array) -> Batch:
    r"""Return what compiled code knows of Gaussian kernels, see `kernelweave.compiled.gaussians`.

    The factors sqrt(gamma log2(e)) turn columns of these tables into exponents of two.

    Examples
    --------
    >>> columns, gamma = np.array([[0]], np.int32), np.array([np.log(2.0)])
    >>> compiled_batch(columns, gamma, np.float64, np.array([[3.0]]))[1]
    array([1.])
    """
    largest = max((float(np.abs(table).max(initial=0.0)) for table in tables), default=0.0)
    roots = np.sqrt(gamma) * np.sqrt(np.log2(np.e))
    roots = np.minimum(roots, _LIMITS[np.dtype(dtype)] / max(largest, 1e-150))
    return columns, roots, np.empty(0, dtype)


class BatchTile(Tile):
    """Values of a batch of Gaussian kernels between two sets of samples.

    Parameters
    ----------
    columns : array of int32, shape (m, max_size)
        Columns of each kernel: rows of `left` and `right`, filled up with -1.
    gamma : array of shape (m,)
        Their gamma.
    left, right : arrays of shape (p, q) and (p, s)
        The samples, one row a column of the data. If both are the same array, sums of kernels
        are computed on one side of the diagonal.
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
        self._left = np.ascontiguousarray(left)
        self._right = self._left if left is right else np.ascontiguousarray(right)
        self._dtype = np.dtype(dtype)
        kind = self._dtype if compute is None else compute
        self._batch = compiled_batch(columns, gamma, kind, self._left, self._right)

    def weighted(self, d: ArrayLike, out: Array | None = None) -> Array:
        """See :class:`Tile`; written into `out` where that is given."""
        weights = np.asarray(d, dtype=np.float64)
        active = np.flatnonzero(weights)
        out = np.empty(self.shape, self._dtype) if out is None else out
        q, s = self.shape
        mirrored = self._left is self._right
        tiles = [
            (slice(i, min(i + GAUSSIAN_TILE, q)), slice(j, min(j + GAUSSIAN_COLUMNS, s)))
            for i in range(0, q, GAUSSIAN_TILE)
            for j in range(i if mirrored else 0, s, GAUSSIAN_COLUMNS)
        ]
        # Small sums of many kernels are cut by kernels, too: there are few tiles for threads.
        groups = _GROUPS if out.size <= SHARED_CACHE_ENTRIES and len(active) >= 512 else 1
        some = np.array_split(active, groups)
        parts = out[None] if groups == 1 else np.empty((groups, q, s))

        def work(start: int, stop: int) -> None:
            for item in range(start, stop):
                g, (rows, run) = item % groups, tiles[item // groups]
                left = np.ascontiguousarray(self._left[:, rows])
                right = np.ascontiguousarray(self._right[:, run])
                above = mirrored and rows.start == run.start
                sums = weighted_rectangle(
                    left, right, self._batch, some[g], weights[some[g]], above
                )
                parts[g, rows, run] = sums
                if mirrored:
                    parts[g, run, rows] = sums.T

        map_blocks(work, len(tiles) * groups, 1, GAUSSIAN_WORK * len(active) * out.size)
        if groups > 1:
            np.sum(parts, axis=0, out=out)
        return out

    def stack(self, kernels: ArrayLike | None = None) -> Array:
        chosen = np.arange(self.m) if kernels is None else np.asarray(kernels, dtype=np.int64)
        out = np.empty((len(chosen), *self.shape), self._dtype)

        def work(start: int, stop: int) -> None:
            rectangle(self._left, self._right, self._batch, chosen, out, start, stop)

        if out.size:
            map_blocks(work, len(chosen), *gaussian_kernels(len(chosen), out[0].size))
        return out

    def contract(self, M: ArrayLike) -> NDArray[np.float64]:
        weights = np.ascontiguousarray(M, dtype=np.float64)
        out = np.zeros(self.m)

        def work(start: int, stop: int) -> None:
            contract_rectangle(self._left, self._right, self._batch, weights, out, start, stop)

        if weights.size:
            map_blocks(work, self.m, *gaussian_kernels(self.m, weights.size))
        return out
