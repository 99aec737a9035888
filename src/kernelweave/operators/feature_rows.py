"""The sparse features of one kernel, stored to be read fast."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from kernelweave.kernels.sparse_factor import SparseFactor
from kernelweave.operators.base import Array

__all__ = ["FeatureRows"]

# A table of all columns is looked up fastest, but must not be much larger than the rows.
_TABLE = 16


@dataclass(frozen=True, eq=False)
class FeatureRows:
    r"""The matrix :math:`S F F^\top S - L^\top U - U^\top L`, as a `SparseFactor` has it.

    Columns are numbered anew, the most frequent first, so that the part of a vector over columns
    that is read most stays in the cache, and columns that do not occur take no place in it. Values
    are float32 where that is exact (counts), and not stored where they are all equal.

    Attributes
    ----------
    indptr, indices, values : ndarray
        The rows of F, as `kernelweave.compiled.sparse_rows` reads them.
    width : int
        Number of columns that occur.
    scale : ndarray of shape (n,) or ()
        The diagonal of S; a single number stands for n equal ones.
    left, right : ndarray of shape (r, n)
        L and U.
    diagonal : ndarray of shape (n,)
        The diagonal of the matrix.

    Examples
    --------
    >>> from scipy import sparse
    >>> factor = SparseFactor.of(sparse.csr_array([[0.0, 0.0, 3.0], [0.0, 3.0, 3.0]]))
    >>> kernel = FeatureRows.build(factor)
    >>> kernel.indices, kernel.values, kernel.scale
    (array([0, 1, 0], dtype=uint16), array([], dtype=float32), array(3.))
    """

    indptr: Array
    indices: Array
    values: Array
    width: int
    scale: Array
    left: Array
    right: Array
    diagonal: Array

    @classmethod
    def build(cls, factor: SparseFactor, like: FeatureRows | None = None) -> FeatureRows:
        """Store a factor; the row pointers of the kernel `like` are shared if they are equal."""
        features = factor.features
        indptr, indices, values = features.indptr, features.indices, features.data
        if not np.all(values):
            features = features.copy()
            features.eliminate_zeros()
            indptr, indices, values = features.indptr, features.indices, features.data
        scale = np.asarray(factor.scale)
        if values.size and np.all(values == values[0]):
            scale, values = np.asarray(scale * values[0]), np.empty(0, np.float32)
        with np.errstate(over="ignore"):
            single = values.astype(np.float32)
        if np.array_equal(single, values):
            values = single
        pointers = indptr.astype(np.uint64)
        if like is not None and np.array_equal(like.indptr, pointers):
            pointers = like.indptr
        renamed, width = _by_frequency(indices)
        return cls(
            pointers,
            renamed,
            np.ascontiguousarray(values),
            width,
            scale,
            factor.left,
            factor.right,
            factor.diagonal(),
        )

    @property
    def n(self) -> int:
        """Number of samples."""
        return len(self.indptr) - 1

    @property
    def nnz(self) -> int:
        """Number of features not zero."""
        return len(self.indices)

    @property
    def row_entries(self) -> int:
        """About how many features of a sample are not zero, at least one."""
        return 1 + self.nnz // (self.n + 1)

    @property
    def nbytes(self) -> int:
        """Bytes of all but the row pointers, which kernels may share."""
        arrays = (self.indices, self.values, self.scale, self.left, self.right, self.diagonal)
        return sum(array.nbytes for array in arrays)

    @property
    def rows(self) -> tuple[Array, Array, Array]:
        """What compiled code asks for."""
        return self.indptr, self.indices, self.values

    def entries(self, idx: Array) -> int:
        """Number of features not zero of some samples."""
        return int(self._counts(idx).sum())

    def _counts(self, idx: Array) -> Array:
        return (self.indptr[idx + 1] - self.indptr[idx]).astype(np.int64)

    def scale_at(self, idx: Array | slice) -> Array:
        """Entries of S for some samples, or the one number that all are."""
        return self.scale[idx] if self.scale.ndim else self.scale

    def take(self, idx: Array) -> FeatureRows:
        """Return the same kernel on some of the samples."""
        counts = self._counts(idx)
        indptr = np.concatenate([[0], np.cumsum(counts)])
        # Where each of the new entries is among the old ones.
        moved = self.indptr[idx].astype(np.int64) - indptr[:-1]
        picked = np.arange(indptr[-1]) + np.repeat(moved, counts)
        renamed, width = _by_frequency(self.indices[picked])
        return replace(
            self,
            indptr=indptr.astype(np.uint64),
            indices=renamed,
            values=self.values[picked] if self.values.size else self.values,
            width=width,
            scale=self.scale_at(idx),
            left=np.ascontiguousarray(self.left[:, idx]),
            right=np.ascontiguousarray(self.right[:, idx]),
            diagonal=self.diagonal[idx],
        )


def _by_frequency(indices: Array) -> tuple[Array, int]:
    """Return columns numbered from the most frequent down, and how many occur."""
    if not indices.size:
        return np.empty(0, np.uint16), 0
    last = int(indices.max())
    if last < _TABLE * indices.size + 2**16:
        counts = np.bincount(indices, minlength=last + 1)
        order = np.argsort(-counts, kind="stable")
        width = int(np.count_nonzero(counts))
        places = indices
    else:
        _, places, counts = np.unique(indices, return_inverse=True, return_counts=True)
        order = np.argsort(-counts, kind="stable")
        width = len(counts)
    kind = np.min_scalar_type(max(width - 1, 2**16 - 1))
    rank = np.zeros(len(order), kind)
    rank[order[:width]] = np.arange(width)
    return rank[places], width
