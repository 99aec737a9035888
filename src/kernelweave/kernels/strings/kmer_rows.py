"""Rows of k-mer counts arranged for inner products with others."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy import sparse

from kernelweave.compiled.blocks import KMER_ROWS
from kernelweave.compiled.sparse_rows import add_inner
from kernelweave.compiled.threads import map_blocks
from kernelweave.kernels.sparse_factor import number_columns

__all__ = ["KmerRows", "square_norms"]

# Columns that this share of the rows have are multiplied as a dense matrix: some ten numbers in the
# time it takes to add up one coincidence.
_OFTEN = 0.3
# Sums of products of integers below this are exact in float32.
_EXACT = 2.0**24


class SplitRows(NamedTuple):
    """Rows, the frequent columns of which are dense, the others as `sparse_rows` reads them."""

    dense: NDArray[Any]
    indptr: NDArray[np.uint64]
    indices: NDArray[np.uint32]
    values: NDArray[Any]


def square_norms(features: Any) -> NDArray[np.float64]:
    """Return the sum of the squares of every row of a CSR matrix."""
    n = features.shape[0]
    rows = np.repeat(np.arange(n), np.diff(features.indptr))
    squares = np.bincount(rows, weights=np.square(features.data), minlength=n)
    return squares.astype(np.float64, copy=False)


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
        self._rank = np.where(often, np.cumsum(often) - 1, self._c + np.cumsum(~often) - 1)
        self.own = self._split(features.indptr, self._rank[places], features.data)
        _, indptr, indices, values = self.own
        shape = (self.n, len(self._used) - self._c)
        turned = sparse.csr_array((values, indices, indptr), shape=shape).tocsc()
        self._turned = (
            turned.indptr.astype(np.uint64),
            turned.indices.astype(np.uint32),
            turned.data,
        )

    def _split(self, indptr: NDArray[Any], numbers: NDArray[Any], values: Any) -> SplitRows:
        """Split rows of numbered columns, the first of which are the frequent ones."""
        shape = (len(indptr) - 1, len(self._used))
        rows = sparse.csr_array((values, numbers, indptr), shape=shape)
        largest = square_norms(rows).max(initial=0.0)
        whole = np.all(values == np.rint(values)) and largest < _EXACT
        rows = rows.astype(np.float32 if whole else np.float64)
        rest = rows[:, self._c :]
        ends, columns = rest.indptr.astype(np.uint64), rest.indices.astype(np.uint32)
        return SplitRows(rows[:, : self._c].toarray(), ends, columns, rest.data)

    def read(self, features: Any) -> SplitRows:
        """Return rows of other samples in the same numbering, without columns unknown here."""
        places = np.searchsorted(self._used, features.indices)
        known = places < len(self._used)
        known[known] = self._used[places[known]] == features.indices[known]
        before = np.concatenate([[0], np.cumsum(known)])
        numbers = self._rank[places[known]]
        return self._split(before[features.indptr], numbers, features.data[known])

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

        map_blocks(work, len(rows), KMER_ROWS, float(out.size) * (1.0 + self._c / 8.0))
        return out
