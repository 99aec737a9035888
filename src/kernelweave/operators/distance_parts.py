"""What sums of distances are added up from: squared columns by one matrix product, and others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy import sparse

from kernelweave.arrays import AnyArray as Array
from kernelweave.compiled.blocks import SHARED_CACHE_ENTRIES, STACK_ENTRIES
from kernelweave.compiled.threads import rows_of
from kernelweave.errors import InvalidInputError
from kernelweave.kernels.base import Kernel
from kernelweave.kernels.evaluate import Pair
from kernelweave.kernels.samples import Samples
from kernelweave.operators.sampled import Columns, Path, squared_columns

Positions = tuple[NDArray[np.intp], NDArray[np.intp]]

# The origin is the median of at most this many samples.
_MEDIAN_SAMPLES = 10_000
# |u|^2 + |v|^2 - 2 u'v is off by about the rounding unit times |u|^2 + |v|^2. Where that is more
# than this, small distances are computed again from differences.
_TOLERANCE = {np.dtype(np.float64): 1e-9, np.dtype(np.float32): 2e-5}
# Beyond this distance exp(-D) is zero for any purpose, whatever the error of D.
_FAR = 64.0
# Rows of a sum in float32 that is then added up in float64.
_SUM_ROWS = 4096


@dataclass(frozen=True)
class Term:
    """One summand of the exponent of kernel `k`: the kernel `leaf` seen through column blocks.

    The blocks of `path` lie between the samples and `leaf`, outermost first.
    """

    k: int
    path: Path
    leaf: Kernel

    def exponent(self, left: Samples, right: Samples, dtype: DTypeLike) -> Array:
        return self.leaf.exponent(Pair(left, right, dtype).through(self.path))


class Side(NamedTuple):
    """Some rows of a whole set of samples; consecutive ones as a slice, so that nothing is copied.

    What is computed once for each sample is kept for the whole set.
    """

    whole: Samples
    rows: Array | slice

    @property
    def n(self) -> int:
        return self.rows.stop - self.rows.start if isinstance(self.rows, slice) else len(self.rows)

    @property
    def samples(self) -> Samples:
        if not isinstance(self.rows, slice):
            return self.whole.take(self.rows)
        if self.n == self.whole.n:
            return self.whole
        return self.whole.take(np.arange(self.rows.start, self.rows.stop))

    def cut(self, rows: Array | slice) -> Side:
        """Return some of the rows; a slice has both ends."""
        if isinstance(self.rows, slice):
            first = self.rows.start
            if isinstance(rows, slice):
                return Side(self.whole, slice(first + rows.start, first + rows.stop))
            return Side(self.whole, first + rows)
        return Side(self.whole, self.rows[rows])


class SquaredColumns:
    r"""Squared differences of single columns, of which squared distances on blocks are sums.

    A term :math:`g_k \|x_B - x'_B\|^2` on a column block B is :math:`g_k` times the sum of those of
    its columns. So

    .. math:: \sum_k d_k D_k = \sum_j w_j (x_j - x'_j)^2,\quad w_j = \sum_{k: j \in B_k} d_k g_k

    is one matrix product, and with :math:`c_j = \sum_{ii'} M_{ii'} (x_{ij} - x'_{i'j})^2` so is
    :math:`\sum_{ii'} M_{ii'} D_k[i, i'] = g_k \sum_{j \in B_k} c_j` for all k.

    The terms have a `squared_rate`, and read dense columns or sparse ones, all of them. `factors`
    is a CSR matrix of shape (m, p), g_k at the columns of B_k; every column appears once, however
    many kernels read it. `by_base` is its transpose.
    """

    def __init__(self, terms: list[Term], samples: Samples, m: int) -> None:
        self._sparse = samples.through(terms[0].path).is_sparse
        self._columns = Columns([squared_columns(term.path, samples) for term in terms], samples)
        counts = [len(places) for places in self._columns.places]
        rates = np.repeat([float(term.leaf.squared_rate or 0.0) for term in terms], counts)
        rows, cols = np.repeat([term.k for term in terms], counts), self._columns.places
        self.factors = sparse.csr_matrix(
            (rates, (rows, np.concatenate(cols))), shape=(m, self._columns.count)
        )
        self.by_base = self.factors.T.tocsr()
        self._centre = 0.0 if self._sparse else self._median(samples)
        # Columns of whole sets of samples, and what was made of them for the last weights.
        self._known: WeakKeyDictionary[Samples, dict[str, _Columns]] = WeakKeyDictionary()
        self._lock = Lock()

    def _median(self, samples: Samples) -> Array:
        # Not the mean: one outlier would move it away from all other samples.
        if samples.n > _MEDIAN_SAMPLES:
            rng = np.random.default_rng(0)
            samples = samples.take(np.sort(rng.choice(samples.n, _MEDIAN_SAMPLES, replace=False)))
        return np.median(self._values(samples), axis=0)

    def _values(self, samples: Samples) -> Any:
        return self._columns.values(samples, self._sparse)

    def prepare(self, whole: Samples, dtype: np.dtype[Any]) -> _Columns:
        """Return the columns of a whole set of samples, dense and centred or sparse."""
        with self._lock:
            known = self._known.setdefault(whole, {})
            if dtype.char not in known:
                values = self._values(whole)
                values = values if self._sparse else values - self._centre
                known[dtype.char] = _Columns(values.astype(dtype, copy=False))
            return known[dtype.char]

    def weighted(
        self, w: Array, left: Side, right: Side, dtype: np.dtype[Any], out: Array | None
    ) -> Array:
        """Add sum_j w_j (x_j - x'_j)^2 to `out`, shape (q, s), or return it new."""
        one, two = (self.prepare(side.whole, dtype) for side in (left, right))
        active = np.flatnonzero(w)
        same = Pair(left.samples, right.samples).same_rows()
        U = one.values[left.rows]
        U = U if len(active) == len(w) else U[:, active]
        if self._sparse:
            V = two.values[right.rows]
            V = V if len(active) == len(w) else V[:, active]
            D = _weighted_sparse(U, V, w[active], same)
        else:
            B, norms = two.weighted(w)
            D = _weighted_dense(U, B[right.rows], norms[right.rows], w[active], same)
        if out is None:
            return D
        out += D
        return out

    def contract(self, M: Array, left: Side, right: Side, dtype: np.dtype[Any]) -> Array:
        """sum_ab M_ab (U_aj - V_bj)^2 for every column j, shape (p,)."""
        U, V = (self.prepare(side.whole, dtype).values[side.rows] for side in (left, right))
        same = Pair(left.samples, right.samples).same_rows()
        if len(same[0]):
            # They count nothing, but they are the largest entries of a narrow kernel, and their
            # rounding would drown the others.
            M = M.copy()
            M[same] = 0
        return _contract_sparse(M, U, V) if self._sparse else _contract_dense(M, U, V)


class Evaluated:
    """Distances that are evaluated one at a time: given matrices, kept ones, and other metrics.

    Each of `bases` is a matrix on all training samples, or a term; D_k contains the multiples
    `factors`, a CSR matrix of shape (m, len(bases)), of them.
    """

    def __init__(self, bases: Sequence[Array | Term], factors: Any) -> None:
        self._bases, self.factors, self.by_base = bases, factors, factors.T.tocsr()

    def prepare(self, whole: Samples, dtype: np.dtype[Any]) -> None:
        """Nothing is kept of samples."""

    def _blocks(
        self, left: Side, right: Side, dtype: np.dtype[Any], used: Array
    ) -> Iterator[tuple[slice, int, Array]]:
        """Yield rows, place among the bases and distances, a block of bounded size at a time."""
        step = rows_of(right.n, SHARED_CACHE_ENTRIES)
        for start in range(0, left.n, step):
            rows = slice(start, min(start + step, left.n))
            some, path, pair = left.cut(rows), None, None
            for place in used.tolist():
                base = self._bases[place]
                if not isinstance(base, Term):
                    yield rows, place, _cut(base, some.rows, right.rows)
                    continue
                # Terms on the same column blocks, which follow each other, share distances.
                if pair is None or base.path != path:
                    path = base.path
                    pair = Pair(some.samples, right.samples, dtype).through(path)
                yield rows, place, base.leaf.exponent(pair)

    def weighted(
        self, w: Array, left: Side, right: Side, dtype: np.dtype[Any], out: Array | None
    ) -> Array:
        """Add sum_j w_j B_j to `out`, shape (q, s), or return it new."""
        if out is None:
            out = np.zeros((left.n, right.n), dtype)
        for rows, place, D in self._blocks(left, right, dtype, np.flatnonzero(w)):
            out[rows] += np.multiply(D, w[place], dtype=dtype, casting="same_kind")
        return out

    def contract(self, M: Array, left: Side, right: Side, dtype: np.dtype[Any]) -> Array:
        """sum_ab M_ab B_j[a, b] for every base, in float64."""
        out = np.zeros(len(self._bases))
        for rows, place, D in self._blocks(left, right, dtype, np.arange(len(out))):
            # (np.vdot would hand given matrices to BLAS, some of which fail at odd addresses, where
            # a message or a file in memory may have them.)
            out[place] += np.einsum("ij,ij->", M[rows], D, dtype=np.float64)
        return out


def _cut(matrix: Array, rows: Array | slice, columns: Array | slice) -> Array:
    if isinstance(rows, slice) or isinstance(columns, slice):
        return matrix[rows, columns]
    return matrix[np.ix_(rows, columns)]


def factor_table(entries: list[tuple[int, int, float]], m: int, width: int) -> Any:
    """CSR matrix of shape (m, width) of entries (row, column, value); equal places add up."""
    rows, columns, values = zip(*entries, strict=True) if entries else ((), (), ())
    return sparse.csr_matrix((values, (rows, columns)), shape=(m, width), dtype=np.float64)


Part = SquaredColumns | Evaluated


def parts_of(terms: Sequence[Term], samples: Samples, m: int) -> list[Part]:
    """Sort terms into squared distances on dense and on sparse columns, and all others."""
    dense: list[Term] = []
    thin: list[Term] = []
    others: dict[Any, list[Term]] = {}
    for term in terms:
        if term.leaf.squared_rate is None:
            others.setdefault(term.path, []).append(term)
        else:
            (thin if samples.through(term.path).is_sparse else dense).append(term)
    parts: list[Part] = [SquaredColumns(group, samples, m) for group in (dense, thin) if group]
    if others:
        bases = [term for group in others.values() for term in group]
        factors = [(term.k, place, 1.0) for place, term in enumerate(bases)]
        parts.append(Evaluated(bases, factor_table(factors, m, len(bases))))
    return parts


class _Columns:
    """The columns of a whole set, and what the last weights made of them."""

    def __init__(self, values: Any) -> None:
        self.values = values
        self._last: tuple[Array, tuple[Array, Array]] | None = None

    def weighted(self, w: Array) -> tuple[Array, Array]:
        """Columns of non-zero weight, extended; many tiles in a row have the same weights."""
        last = self._last
        if last is None or not np.array_equal(last[0], w):
            active = np.flatnonzero(w)
            chosen = self.values if len(active) == len(w) else self.values[:, active]
            last = self._last = (w, _extended(chosen, w[active]))
        return last[1]


def _extended(V: Array, w: Array) -> tuple[Array, Array]:
    """[v, 1, |v|^2] for a product, and the norms |v|^2 = sum_j w_j v_j^2, which may overflow."""
    with np.errstate(over="ignore", invalid="ignore"):
        norms = _norms(V, w.astype(V.dtype))
    p = V.shape[1]
    B = np.empty((len(V), p + 2), V.dtype)
    B[:, :p], B[:, p], B[:, p + 1] = V, 1, norms
    return B, norms


def _weighted_dense(U: Array, B: Array, right_sq: Array, w: Array, same: Positions) -> Array:
    """Return sum_j w_j (u_j - v_j)^2 for all pairs of rows, in the type of U.

    The columns are centred, the others `_extended`. If no weight is negative, neither is a result.
    `same` holds positions (i, j) known to be zero because u_i and v_j are the same sample.
    """
    kind = U.dtype
    with np.errstate(over="ignore", invalid="ignore"):
        weights = w.astype(kind)
        norms = _norms(U, weights)
        largest = sum(float(np.abs(own).max(initial=0.0)) for own in (norms, right_sq))
    p = U.shape[1]
    V = B[:, :p]
    if not largest < np.finfo(kind).max / 8:
        return _overflowed(U, V, w, same)
    # One product of [-2 w u, |u|^2, 1] and [v, 1, |v|^2], so that no further pass is needed.
    A = np.empty((len(U), p + 2), kind)
    np.multiply(U, -2 * weights, out=A[:, :p])
    A[:, p], A[:, p + 1] = norms, 1
    D = A @ B.T
    if weights.min() < 0:
        D[same] = 0
        return D
    _repair(D, U, V, weights, norms, right_sq)
    D[same] = 0
    # Most tiles have no negative entry, and reading costs half of writing.
    if D.size and D.min() < 0:
        np.maximum(D, 0, out=D)
    return D


def _norms(U: Array, weights: Array) -> Array:
    return np.einsum("ij,ij->i", U * weights, U)


def _overflowed(U: Array, V: Array, w: Array, same: Positions) -> Array:
    """Distances too large for their type: in float64 if they were float32."""
    if U.dtype == np.float64:
        raise InvalidInputError(
            "the weighted squared distances are too large for double precision; scale the "
            "features (StandardScaler), or use smaller gammas."
        )
    D = _weighted_dense(U.astype(np.float64), *_extended(V.astype(np.float64), w), w, same)
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


def _contract_dense(M: Array, U: Array, V: Array) -> Array:
    """sum_ab M_ab (U_aj - V_bj)^2 for every column j, sums of many rows in float64."""
    M = np.asarray(M, dtype=U.dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        G = M @ V
        out = _square_sums(M @ np.ones(len(V), M.dtype), U)
        out += _square_sums(np.ones(len(U), M.dtype) @ M, V)
        for start in range(0, len(U), _SUM_ROWS):
            rows = slice(start, start + _SUM_ROWS)
            out -= 2.0 * (U[rows] * G[rows]).sum(axis=0, dtype=np.float64)
    if U.dtype != np.float64 and not np.isfinite(out).all():
        return _contract_dense(M, U.astype(np.float64), V.astype(np.float64))
    return out


def _square_sums(weights: Array, U: Array) -> Array:
    """sum_a weights_a U_aj^2."""
    out = np.zeros(U.shape[1])
    for start in range(0, len(U), _SUM_ROWS):
        part = U[start : start + _SUM_ROWS]
        out += weights[start : start + _SUM_ROWS] @ (part * part)
    return out


def _weighted_sparse(U: Any, V: Any, w: Array, same: Positions) -> Array:
    """Return `_weighted_dense` of CSR matrices, which are not centred."""
    scaled = U @ sparse.diags(w.astype(U.dtype), format="csr")
    left_sq = np.asarray(scaled.multiply(U).sum(axis=1), dtype=U.dtype).ravel()
    right_sq = np.asarray((V.multiply(V) @ w).ravel(), dtype=U.dtype)
    D = (scaled @ V.T).toarray()
    D *= -2
    D += left_sq[:, None]
    D += right_sq
    D[same] = 0
    return np.maximum(D, 0, out=D) if w.min() >= 0 else D


def _contract_sparse(M: Array, U: Any, V: Any) -> Array:
    """Return `_contract_dense` of CSR matrices, in float64 whatever their type."""
    M = np.asarray(M, dtype=np.float64)
    out = U.multiply(U).T @ M.sum(axis=1) + V.multiply(V).T @ M.sum(axis=0)
    across = V.T.tocsr()
    step = rows_of(V.shape[1], STACK_ENTRIES)
    for start in range(0, len(M), step):
        rows = slice(start, start + step)
        G = across @ M[rows].T
        out -= 2.0 * np.asarray(U[rows].multiply(G.T).sum(axis=0)).ravel()
    return np.asarray(out, dtype=np.float64)
