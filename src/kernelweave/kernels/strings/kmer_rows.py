"""Rows of k-mer counts arranged for inner products with others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from kernelweave.compiled.sparse_rows import add_inner, turn_rows
from kernelweave.compiled.threads import map_blocks
from kernelweave.kernels.numbering import number_columns

__all__ = ["KmerRows", "SplitRows"]

# Columns that this share of the rows have are multiplied as a dense matrix: some ten numbers in the
# time it takes to add up one coincidence.
_OFTEN = 0.3
# Rows of one block of products.
_BLOCK_ROWS = 64
# Sums of products of integers below this are exact in float32.
_EXACT = 2.0**24


@dataclass(frozen=True, eq=False)
class SplitRows:
    """Rows, the frequent columns of which are dense.

    Attributes
    ----------
    dense : ndarray of shape (n, c)
        The frequent columns.
    indptr, indices, values : ndarray
        The others, as `kernelweave.compiled.sparse_rows` reads them.
    """

    dense: NDArray[Any]
    indptr: NDArray[np.uint64]
    indices: NDArray[np.uint32]
    values: NDArray[Any]

    @classmethod
    def of(
        cls, indptr: NDArray[Any], numbers: NDArray[np.int64], values: NDArray[Any], c: int
    ) -> SplitRows:
        """Split rows of numbered columns, the first c of which are the frequent ones."""
        n = len(indptr) - 1
        rows = np.repeat(np.arange(n), np.diff(indptr))
        squares = np.bincount(rows, weights=values * values, minlength=n)
        whole = np.all(values == np.rint(values)) and squares.max(initial=0.0) < _EXACT
        kind = np.float32 if whole else np.float64
        often = numbers < c
        dense = np.zeros((n, c), kind)
        dense[rows[often], numbers[often]] = values[often]
        rest = ~often
        ends = np.zeros(n + 1, np.uint64)
        np.cumsum(np.bincount(rows[rest], minlength=n), out=ends[1:])
        return cls(dense, ends, (numbers[rest] - c).astype(np.uint32), values[rest].astype(kind))


class KmerRows:
    """Sparse rows of a set of samples, against which those of others are multiplied.

    Only coincidences cost anything: for each entry of a row, the samples that have its column. The
    few columns that most samples have are left to BLAS.

    Parameters
    ----------
    features : CSR matrix of shape (n, D)
        The rows, each with ascending columns.

    Examples
    --------
    >>> from scipy import sparse
    >>> rows = KmerRows(sparse.csr_array([[1.0, 0.0, 2.0], [1.0, 3.0, 0.0]]))
    >>> rows.products(rows.own, np.array([0, 1]), None, np.float64)
    array([[ 5.,  1.],
           [ 1., 10.]])
    """

    def __init__(self, features: Any) -> None:
        self.n = features.shape[0]
        self._used, places = number_columns(features.indices)
        often = np.bincount(places, minlength=len(self._used)) >= _OFTEN * self.n
        self._c = int(np.count_nonzero(often))
        # The new number of each column that occurs: the frequent ones come first.
        self._rank = np.empty(len(self._used), np.int64)
        self._rank[often] = np.arange(self._c)
        self._rank[~often] = np.arange(self._c, len(self._used))
        self.own = SplitRows.of(features.indptr, self._rank[places], features.data, self._c)
        self._turned = self._turn()

    def _turn(self) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        own = self.own
        starts = np.zeros(len(self._used) - self._c + 1, np.uint64)
        places = np.empty(len(own.indices), np.uint32)
        turned = np.empty(len(own.indices), own.values.dtype)
        everyone, ones = np.arange(self.n), np.ones(self.n)
        turn_rows(own.indptr, own.indices, own.values, everyone, ones, starts, places, turned)
        return starts, places, turned

    def read(self, features: Any) -> SplitRows:
        """Return rows of other samples in the same numbering, without columns unknown here."""
        if not len(self._used):
            nothing = np.empty(0, np.int64)
            return SplitRows.of(np.zeros_like(features.indptr), nothing, np.empty(0), 0)
        places = np.searchsorted(self._used, features.indices)
        places[places == len(self._used)] = 0
        known = self._used[places] == features.indices
        before = np.concatenate([[0], np.cumsum(known)])
        numbers = self._rank[places[known]]
        return SplitRows.of(before[features.indptr], numbers, features.data[known], self._c)

    def products(
        self,
        left: SplitRows,
        rows: NDArray[np.intp],
        columns: NDArray[np.intp] | None,
        dtype: DTypeLike,
    ) -> NDArray[Any]:
        """Return the inner products of some rows of `left` with these rows (None: all)."""
        out = np.zeros((len(rows), self.n if columns is None else len(columns)), dtype)
        dense = self.own.dense if columns is None else self.own.dense[columns]

        def work(start: int, stop: int) -> None:
            target, some = out[start:stop], rows[start:stop]
            if self._c:
                target[...] = left.dense[some] @ dense.T
            if not len(left.indices):
                return
            full = target if columns is None else np.zeros((len(some), self.n), out.dtype)
            ones = np.ones(len(some))
            add_inner(left.indptr, left.indices, left.values, some, ones, *self._turned, full)
            if columns is not None:
                target += full[:, columns]

        map_blocks(work, len(rows), _BLOCK_ROWS, float(out.size) * (1.0 + self._c / 8.0))
        return out
