"""Weighted squared distances and their contractions as matrix products."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from kernelweave.compiled.blocks import STACK_ENTRIES, rows_of
from kernelweave.errors import InvalidInputError

__all__ = [
    "WeightedRows",
    "contract_sparse_squares",
    "contract_squares",
    "weighted_sparse_squares",
    "weighted_squares",
]

Array = NDArray[Any]
Positions = tuple[NDArray[np.intp], NDArray[np.intp]]

# |u|^2 + |v|^2 - 2 u'v is off by about the rounding unit times |u|^2 + |v|^2. Where that is more
# than this, small distances are computed again from differences.
_TOLERANCE = {np.dtype(np.float64): 1e-9, np.dtype(np.float32): 2e-5}
# Beyond this distance exp(-D) is zero for any purpose, whatever the error of D.
_FAR = 64.0
# Rows of a sum in float32 that is then added up in float64.
_SUM_ROWS = 4096


@dataclass(frozen=True)
class WeightedRows:
    """Rows v with weights w of their columns, ready for a product with other rows.

    Attributes
    ----------
    values : array of shape (s, p)
        v.
    norms : array of shape (s,)
        sum_j w_j v_j^2.
    extended : array of shape (s, p + 2)
        [v, 1, norms].
    """

    values: Array
    norms: Array
    extended: Array

    @classmethod
    def of(cls, V: Array, w: Array) -> WeightedRows:
        """Compute norms; they may overflow, which `weighted_squares` finds out."""
        with np.errstate(over="ignore", invalid="ignore"):
            norms = _norms(V, w.astype(V.dtype))
        p = V.shape[1]
        B = np.empty((len(V), p + 2), V.dtype)
        B[:, :p], B[:, p], B[:, p + 1] = V, 1, norms
        return cls(V, norms, B)

    def __getitem__(self, rows: slice) -> WeightedRows:
        return WeightedRows(self.values[rows], self.norms[rows], self.extended[rows])


def weighted_squares(U: Array, right: WeightedRows, w: Array, same: Positions) -> Array:
    """Return sum_j w_j (u_j - v_j)^2 for all pairs of rows, in the type of U.

    The columns should be centred. If no weight is negative, neither is a result.

    Parameters
    ----------
    U : array of shape (q, p)
        Rows u, float64 or float32.
    right : WeightedRows
        Rows v, with the same weights.
    w : array of shape (p,)
        Weights of the columns.
    same : pair of index arrays
        Positions (i, j) known to be zero because u_i and v_j are the same sample.

    Examples
    --------
    >>> X, w = np.array([[0.0, 1.0], [2.0, 1.0]]), np.array([0.5, 3.0])
    >>> none = np.zeros(0, dtype=np.intp)
    >>> weighted_squares(X, WeightedRows.of(X, w), w, (none, none))
    array([[0., 2.],
           [2., 0.]])
    """
    kind = U.dtype
    with np.errstate(over="ignore", invalid="ignore"):
        weights = w.astype(kind)
        norms = _norms(U, weights)
        largest = _largest(norms) + _largest(right.norms)
    if not largest < np.finfo(kind).max / 8:
        return _overflowed(U, right.values, w, same)
    # One product of [-2 w u, |u|^2, 1] and [v, 1, |v|^2], so that no further pass is needed.
    p = U.shape[1]
    A = np.empty((len(U), p + 2), kind)
    np.multiply(U, -2 * weights, out=A[:, :p])
    A[:, p], A[:, p + 1] = norms, 1
    D = A @ right.extended.T
    if weights.min() < 0:
        D[same] = 0
        return D
    _repair(D, U, right.values, weights, norms, right.norms)
    D[same] = 0
    # Most tiles have no negative entry, and reading costs half of writing.
    if D.size and D.min() < 0:
        np.maximum(D, 0, out=D)
    return D


def _norms(U: Array, weights: Array) -> Array:
    return np.einsum("ij,ij->i", U * weights, U)


def _largest(norms: Array) -> float:
    return float(np.abs(norms).max(initial=0.0))


def _overflowed(U: Array, V: Array, w: Array, same: Positions) -> Array:
    """Distances too large for their type: in float64 if they were float32."""
    if U.dtype == np.float64:
        raise InvalidInputError(
            "the weighted squared distances are too large for double precision; scale the "
            "features (StandardScaler), or use smaller gammas."
        )
    right = WeightedRows.of(V.astype(np.float64), w)
    D = weighted_squares(U.astype(np.float64), right, w, same)
    limit = float(np.finfo(U.dtype).max)
    return np.clip(D, -limit, limit, out=D).astype(U.dtype)


def _repair(D: Array, U: Array, V: Array, weights: Array, left_sq: Array, right_sq: Array) -> None:
    """Compute small distances between rows far from the origin from their differences."""
    unit = np.finfo(D.dtype).eps
    limit = D.dtype.type(_TOLERANCE[D.dtype] / unit)
    suspects = np.flatnonzero(left_sq + right_sq.max(initial=0) > limit)
    step = rows_of(len(V), STACK_ENTRIES)
    pairs = rows_of(U.shape[1], STACK_ENTRIES)
    for first in range(0, len(suspects), step):
        rows = suspects[first : first + step]
        size = left_sq[rows, None] + right_sq
        lost = (size > limit) & (D[rows] < _FAR + 4 * unit * size)
        i, j = np.nonzero(lost)
        i = rows[i]
        for start in range(0, len(i), pairs):
            a, b = i[start : start + pairs], j[start : start + pairs]
            D[a, b] = _norms(U[a] - V[b], weights)


def contract_squares(M: Array, U: Array, V: Array, same: Positions) -> NDArray[np.float64]:
    """Return sum_ab M_ab (U_aj - V_bj)^2 for every column j, shape (p,).

    `same` holds positions (a, b) at which both rows are the same sample.

    Examples
    --------
    >>> X, none = np.array([[0.0, 1.0], [2.0, 1.0]]), np.zeros(0, dtype=np.intp)
    >>> contract_squares(np.ones((2, 2)), X, X, (none, none))
    array([8., 0.])
    """
    M = np.asarray(M, dtype=U.dtype)
    G, left, out = np.zeros_like(U), np.zeros(len(U), U.dtype), np.zeros(U.shape[1])
    with np.errstate(over="ignore", invalid="ignore"):
        for columns, part in _without(M, same):
            G += part @ V[columns]
            left += part @ np.ones(part.shape[1], M.dtype)
            out += _square_sums(np.ones(len(U), M.dtype) @ part, V[columns])
        out += _square_sums(left, U)
        for start in range(0, len(U), _SUM_ROWS):
            rows = slice(start, start + _SUM_ROWS)
            out -= 2.0 * (U[rows] * G[rows]).sum(axis=0, dtype=np.float64)
    if U.dtype != np.float64 and not np.isfinite(out).all():
        return contract_squares(M, U.astype(np.float64), V.astype(np.float64), same)
    return out


def _without(M: Array, same: Positions) -> Iterator[tuple[slice, Array]]:
    """Yield M in ranges of columns, with zeros at the positions `same`.

    Those count nothing, but they are the largest entries of a narrow kernel, and their rounding
    would drown the others. Only the columns around them are copied.
    """
    s = M.shape[1]
    if len(same[0]) == 0:
        yield slice(0, s), M
        return
    first, last = int(same[1].min()), int(same[1].max()) + 1
    if first > 0:
        yield slice(0, first), M[:, :first]
    middle = M[:, first:last].copy()
    middle[same[0], same[1] - first] = 0
    yield slice(first, last), middle
    if last < s:
        yield slice(last, s), M[:, last:]


def _square_sums(weights: Array, U: Array) -> NDArray[np.float64]:
    """sum_a weights_a U_aj^2."""
    out = np.zeros(U.shape[1])
    for start in range(0, len(U), _SUM_ROWS):
        part = U[start : start + _SUM_ROWS]
        out += weights[start : start + _SUM_ROWS] @ (part * part)
    return out


def weighted_sparse_squares(U: Any, V: Any, w: Array, same: Positions) -> Array:
    """Return `weighted_squares` of CSR matrices, which are not centred.

    Examples
    --------
    >>> X, none = sparse.csr_matrix([[0.0, 1.0], [2.0, 1.0]]), np.zeros(0, dtype=np.intp)
    >>> weighted_sparse_squares(X, X, np.array([0.5, 3.0]), (none, none))
    array([[0., 2.],
           [2., 0.]])
    """
    scaled = U @ sparse.diags(w.astype(U.dtype), format="csr")
    left_sq = np.asarray(scaled.multiply(U).sum(axis=1), dtype=U.dtype).ravel()
    right_sq = np.asarray((V.multiply(V) @ w).ravel(), dtype=U.dtype)
    D = np.empty((U.shape[0], V.shape[0]), U.dtype)
    step = rows_of(V.shape[0], STACK_ENTRIES)
    across = V.T.tocsr()
    for start in range(0, len(D), step):
        rows = slice(start, start + step)
        D[rows] = (scaled[rows] @ across).toarray()
    D *= -2
    D += left_sq[:, None]
    D += right_sq
    D[same] = 0
    return np.maximum(D, 0, out=D) if w.min() >= 0 else D


def contract_sparse_squares(M: Array, U: Any, V: Any, same: Positions) -> NDArray[np.float64]:
    """Return `contract_squares` of CSR matrices, in float64 whatever their type.

    Examples
    --------
    >>> X, none = sparse.csr_matrix([[0.0, 1.0], [2.0, 1.0]]), np.zeros(0, dtype=np.intp)
    >>> contract_sparse_squares(np.ones((2, 2)), X, X, (none, none))
    array([8., 0.])
    """
    M = np.asarray(M, dtype=np.float64)
    out = U.multiply(U).T @ M.sum(axis=1) + V.multiply(V).T @ M.sum(axis=0)
    across = V.T.tocsr()
    step = rows_of(V.shape[1], STACK_ENTRIES)
    for start in range(0, len(M), step):
        rows = slice(start, start + step)
        G = across @ M[rows].T
        out -= 2.0 * np.asarray(U[rows].multiply(G.T).sum(axis=0)).ravel()
    return np.asarray(out, dtype=np.float64)
