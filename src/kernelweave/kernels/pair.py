"""Two sets of rows seen together: the distances and inner products all kernels share."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy import sparse

from kernelweave.errors import InvalidInputError
from kernelweave.kernels.samples import Samples

__all__ = ["Pair"]

# Up to this many columns differences are formed one column at a time: exact, and no slower than
# BLAS on such thin matrices.
_DIRECT_COLUMNS = 4
# |u|^2 + |v|^2 - 2 u'v keeps less than six digits below this fraction of |u|^2 + |v|^2.
_CANCELLED = 1e-10


class Pair:
    """Rows `left` against rows `right`, with everything computed from them kept once.

    Parameters
    ----------
    left, right : Samples
        The two sets of rows, with the same columns.
    dtype : {float64, float32}
        Type of all arrays computed here.

    Attributes
    ----------
    memo : dict
        Shared intermediate results of the kernels, such as powers and exponentials.

    Examples
    --------
    >>> X = Samples([[0.0], [3.0]])
    >>> pair = Pair(X, X)
    >>> pair.sqdist
    array([[0., 9.],
           [9., 0.]])
    >>> pair.inner
    array([[0., 0.],
           [0., 9.]])
    """

    def __init__(self, left: Samples, right: Samples, dtype: DTypeLike = np.float64) -> None:
        self.left = left
        self.right = right
        self.dtype = np.dtype(dtype)
        self.memo: dict[Any, Any] = {}
        self._children: dict[Any, Pair] = {}

    @property
    def shape(self) -> tuple[int, int]:
        return self.left.n, self.right.n

    def __len__(self) -> int:
        """Number of column blocks whose results are being kept."""
        return len(self._children)

    def clear(self) -> None:
        """Forget everything computed so far."""
        self.memo.clear()
        self._children.clear()

    def on(self, block: Any) -> Pair:
        """Return the pair seen through a column block; the same object for an equal block."""
        child = self._children.get(block)
        if child is None:
            if self.left.base is self.right.base:
                # Derive once, so that both sides stay rows of one set and share its cache.
                whole = self.left.base.derive(block)
                left, right = _cut(whole, self.left), _cut(whole, self.right)
            else:
                left, right = self.left.derive(block), self.right.derive(block)
            child = self._children[block] = Pair(left, right, self.dtype)
        return child

    @property
    def inner(self) -> NDArray[Any]:
        """Inner products u'v, shape (q, n)."""
        if "inner" not in self.memo:
            self._check_columns()
            self.memo["inner"] = _product(self.left.array(self.dtype), self.right.array(self.dtype))
        return self.memo["inner"]

    @property
    def sqdist(self) -> NDArray[Any]:
        """Squared Euclidean distances, shape (q, n): never negative, zero for a row with itself."""
        if "sqdist" not in self.memo:
            self._check_columns()
            sparse_input = self.left.is_sparse or self.right.is_sparse
            if not sparse_input and self.right.n_columns <= _DIRECT_COLUMNS:
                D = _direct_sqdist(*self._differenced())
            else:
                D = self._expanded_sqdist(sparse_input)
            self.memo["sqdist"] = D
        return self.memo["sqdist"]

    def _differenced(self) -> tuple[Any, Any]:
        """Both sides for differences of entries, which are exact but for their own rounding.

        In float64 they are taken as they are: a shift would round small entries beside huge ones.
        """
        if self.dtype == np.float64:
            return self.left.array(), self.right.array()
        return self._centred()

    def _centred(self) -> tuple[Any, Any]:
        """Both sides relative to one origin near the data, so that little cancels."""
        V = self.right.array(self.dtype, centred=True)
        if self.left.base is self.right.base:
            return self.left.array(self.dtype, centred=True), V
        U = self.left.array()
        return (U - self.right.shift).astype(self.dtype, copy=False), V

    def _expanded_sqdist(self, sparse_input: bool) -> NDArray[Any]:
        if sparse_input:
            U, V = self.left.array(self.dtype), self.right.array(self.dtype)
            left_sq, right_sq = (s.square_norms(self.dtype) for s in (self.left, self.right))
        else:
            U, V = self._centred()
            left_sq = np.einsum("ij,ij->i", U, U)
            right_sq = self.right.square_norms(self.dtype, centred=True)
        D = _product(-2 * U, V)
        D += left_sq[:, None]
        D += right_sq
        if self.dtype == np.float64 and not sparse_input:
            _repair_cancelled(D, *self._differenced(), left_sq, right_sq)
        else:
            np.maximum(D, 0, out=D)
        rows, cols = self.same_rows()
        D[rows, cols] = 0
        return D

    def same_rows(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Positions (i, j) at which both sides hold the very same sample of one set."""
        left, right = self.left, self.right
        if left.base is not right.base:
            none = np.zeros(0, dtype=np.intp)
            return none, none
        ids = np.arange(left.n) if left.index is None else left.index
        if right.index is None:
            return np.arange(len(ids)), ids
        order = np.argsort(right.index, kind="stable")
        known = right.index[order]
        first = np.searchsorted(known, ids, side="left")
        count = np.searchsorted(known, ids, side="right") - first
        rows = np.repeat(np.arange(len(ids)), count)
        within = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
        return rows, order[np.repeat(first, count) + within]

    def _check_columns(self) -> None:
        if self.left.n_columns != self.right.n_columns:
            raise InvalidInputError(
                f"the two sets of samples must have the same columns; got "
                f"{self.left.n_columns} and {self.right.n_columns}."
            )


def _cut(whole: Samples, like: Samples) -> Samples:
    return whole if like.index is None else whole.take(like.index)


def _product(U: Any, V: Any) -> NDArray[Any]:
    """U V' as a new dense array."""
    if sparse.issparse(U) or sparse.issparse(V):
        P = U @ V.T
        return P.toarray() if sparse.issparse(P) else np.asarray(P)
    if V.shape[1] == 1:
        return U * V[:, 0]
    return U @ V.T


def _direct_sqdist(U: NDArray[Any], V: NDArray[Any]) -> NDArray[Any]:
    D = np.subtract.outer(U[:, 0], V[:, 0])
    D *= D
    for j in range(1, U.shape[1]):
        step = np.subtract.outer(U[:, j], V[:, j])
        step *= step
        D += step
    return D


def _repair_cancelled(
    D: NDArray[Any],
    U: NDArray[Any],
    V: NDArray[Any],
    left_sq: NDArray[Any],
    right_sq: NDArray[Any],
) -> None:
    """Recompute from differences the entries of D that are mostly rounding error."""
    # A cheap test of all entries that lets too many through, then the right one of those few.
    suspects = np.flatnonzero(_CANCELLED * (left_sq + right_sq.max())[:, None] >= D)
    rows, cols = np.divmod(suspects, D.shape[1])
    lost = D[rows, cols] <= _CANCELLED * (left_sq[rows] + right_sq[cols])
    rows, cols = rows[lost], cols[lost]
    chunk = max(1, 2**20 // U.shape[1])
    for start in range(0, len(rows), chunk):
        i, j = rows[start : start + chunk], cols[start : start + chunk]
        step = U[i] - V[j]
        D[i, j] = np.einsum("ij,ij->i", step, step)
