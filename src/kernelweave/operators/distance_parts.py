"""What sums of distances are added up from: squared columns by one matrix product, and others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import DTypeLike
from scipy import sparse

from kernelweave.arrays import Array
from kernelweave.compiled.blocks import STACK_ENTRIES
from kernelweave.compiled.threads import rows_of
from kernelweave.errors import InvalidInputError
from kernelweave.kernels.base import Kernel
from kernelweave.kernels.evaluate import Pair
from kernelweave.kernels.samples import Samples, row_square_norms
from kernelweave.operators.base import Which, sample_indices
from kernelweave.operators.sampled import Columns, Path, squared_columns

# The origin is the median of at most this many samples: off by about 1.25 / sqrt(10,000) of a
# standard deviation, which takes nothing from the digits of distances.
_MEDIAN_SAMPLES = 10_000
# |u|^2 + |v|^2 - 2 u'v is off by about the rounding unit times |u|^2 + |v|^2. Where that is more
# than this, small distances are computed again from differences. It is the relative error of
# exp(-D): a fifteenth of the root of the rounding unit, and below the tolerances of fits that
# each type is for.
_TOLERANCE = {np.dtype(np.float64): 1e-9, np.dtype(np.float32): 2e-5}
# Beyond this distance exp(-D) is zero for any purpose, whatever the error of D.
_FAR = 64.0


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
        if isinstance(self.rows, slice):
            return self.whole.rows(self.rows.start, self.rows.stop)
        return self.whole.take(self.rows)

    def cut(self, rows: Which) -> Side:
        """Return some of the rows, None for all."""
        if rows is None:
            return self
        index = sample_indices(rows, self.n)
        index = index + self.rows.start if isinstance(self.rows, slice) else self.rows[index]
        if len(index) and (np.diff(index) == 1).all():
            return Side(self.whole, slice(int(index[0]), int(index[-1]) + 1))
        return Side(self.whole, index)


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
        self._known: WeakKeyDictionary[Samples, dict[np.dtype[Any], _Columns]] = WeakKeyDictionary()
        self._lock = Lock()

    def _median(self, samples: Samples) -> Array:
        # Not the mean: one outlier would move it away from all other samples.
        if samples.n > _MEDIAN_SAMPLES:
            rng = np.random.default_rng(0)
            samples = samples.take(np.sort(rng.choice(samples.n, _MEDIAN_SAMPLES, replace=False)))
        return np.median(self._columns.values(samples), axis=0)

    def _of(self, whole: Samples, dtype: np.dtype[Any]) -> _Columns:
        """Return the columns of a whole set of samples, dense and centred or sparse."""
        with self._lock:
            known = self._known.setdefault(whole, {})
            if dtype not in known:
                values = self._columns.values(whole, self._sparse)
                values = values if self._sparse else values - self._centre
                known[dtype] = _Columns(values.astype(dtype, copy=False))
            return known[dtype]

    def weighted(self, w: Array, left: Side, right: Side, dtype: np.dtype[Any]) -> Array:
        """sum_j w_j (x_j - x'_j)^2, shape (q, s)."""
        if w.min() < 0:
            above = self.weighted(np.maximum(w, 0.0), left, right, dtype)
            return above - self.weighted(np.maximum(-w, 0.0), left, right, dtype)
        A, _, left_sq = self._of(left.whole, dtype).weighted(w, left.rows)
        _, B, right_sq = self._of(right.whole, dtype).weighted(w, right.rows)
        largest = float(left_sq.max(initial=0.0)) + float(right_sq.max(initial=0.0))
        if not largest < np.finfo(dtype).max / 8:
            if dtype == np.float64:
                raise InvalidInputError(
                    "the weighted squared distances are too large for double precision; scale the "
                    "features (StandardScaler), or use smaller gammas."
                )
            limit = np.finfo(dtype).max
            return self.weighted(w, left, right, np.dtype(float)).clip(-limit, limit).astype(dtype)
        D = A @ B.T
        D = D.toarray() if self._sparse else D
        _repair(D, A, B, left_sq, right_sq)
        D[_same(left, right)] = 0
        # Most tiles have no negative entry, and reading costs half of writing.
        return np.maximum(D, 0, out=D) if D.min(initial=0) < 0 else D

    def contract(self, M: Array, left: Side, right: Side, dtype: np.dtype[Any]) -> Array:
        """sum_ab M_ab (U_aj - V_bj)^2 for every column j, shape (p,)."""
        U, V = (self._of(side.whole, dtype).values[side.rows] for side in (left, right))
        same = _same(left, right)
        if len(same[0]):
            # They count nothing, but they are the largest entries of a narrow kernel, and their
            # rounding would drown the others.
            M = M.copy()
            M[same] = 0
        return _contract(M, U, V)


class Evaluated:
    """Distances that are evaluated one at a time: given matrices, kept ones, and other metrics.

    Each of `bases` is a matrix on all training samples, or a term; D_k contains the multiples
    `factors`, a CSR matrix of shape (m, len(bases)), of them.
    """

    def __init__(self, bases: Sequence[Array | Term], factors: Any) -> None:
        self._bases, self.factors, self.by_base = bases, factors, factors.T.tocsr()

    def _values(
        self, left: Side, right: Side, dtype: np.dtype[Any], used: Array
    ) -> Iterator[tuple[int, Array]]:
        """Yield places among the bases and the distances of each."""
        path, pair = None, None
        for place in used.tolist():
            base = self._bases[place]
            if not isinstance(base, Term):
                yield place, _cut(base, left.rows, right.rows)
                continue
            # Terms on the same column blocks, which follow each other, share distances.
            if pair is None or base.path != path:
                path = base.path
                pair = Pair(left.samples, right.samples, dtype).through(path)
            yield place, base.leaf.exponent(pair)

    def weighted(self, w: Array, left: Side, right: Side, dtype: np.dtype[Any]) -> Array:
        """sum_j w_j B_j, shape (q, s)."""
        out = np.zeros((left.n, right.n), dtype)
        for place, D in self._values(left, right, dtype, np.flatnonzero(w)):
            out += np.multiply(D, w[place], dtype=dtype, casting="same_kind")
        return out

    def contract(self, M: Array, left: Side, right: Side, dtype: np.dtype[Any]) -> Array:
        """sum_ab M_ab B_j[a, b] for every base, in float64."""
        out = np.zeros(len(self._bases))
        for place, D in self._values(left, right, dtype, np.arange(len(out))):
            # (np.vdot would hand given matrices to BLAS, some of which fail at odd addresses, where
            # a message or a file in memory may have them.)
            out[place] = np.einsum("ij,ij->", M, D, dtype=np.float64)
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
        self._last: tuple[Array, Any, Any, Array] | None = None

    def weighted(self, w: Array, rows: Array | slice) -> tuple[Any, Any, Array]:
        """[-2 u, |u|^2, 1], [u, 1, |u|^2] and |u|^2 of some rows u, times the roots of w.

        A product of the first of one sample and the second of another is their distance. Columns of
        weight zero are left out, and norms may overflow. Many tiles in a row have the same weights.
        """
        last = self._last
        if last is None or not np.array_equal(last[0], w):
            active, thin = np.flatnonzero(w), sparse.issparse(self.values)
            roots = np.sqrt(w[active]).astype(self.values.dtype)
            with np.errstate(over="ignore", invalid="ignore"):
                U = self.values[:, active]
                U = U.multiply(roots).tocsr() if thin else U * roots
                norms = row_square_norms(U)
                column, ones = norms[:, None], np.ones_like(norms)[:, None]
                tables = [-2 * U, column, ones], [U, ones, column]
            A, B = (sparse.hstack(own, "csr") if thin else np.hstack(own) for own in tables)
            last = self._last = (w, A, B, norms)
        return last[1][rows], last[2][rows], last[3][rows]


def _same(left: Side, right: Side) -> tuple[Array, Array]:
    """Positions (i, j) known to be zero, as both sides have the same sample there."""
    return Pair(left.samples, right.samples).same_rows()


def _repair(D: Array, A: Any, B: Any, left_sq: Array, right_sq: Array) -> None:
    """Compute small distances between rows far from the origin from their differences."""
    unit = np.finfo(D.dtype).eps
    limit = D.dtype.type(_TOLERANCE[D.dtype] / unit)
    rows = np.flatnonzero(left_sq + right_sq.max(initial=0) > limit)
    size = left_sq[rows, None] + right_sq
    i, j = np.nonzero((size > limit) & (D[rows] < _FAR + 4 * unit * size))
    i, p = rows[i], A.shape[1] - 2
    step = rows_of(p, STACK_ENTRIES)
    for start in range(0, len(i), step):
        a, b = i[start : start + step], j[start : start + step]
        D[a, b] = row_square_norms(A[a][:, :p] / -2 - B[b][:, :p])


def _contract(M: Array, U: Any, V: Any) -> Array:
    """sum_ab M_ab (U_aj - V_bj)^2 for every column j, sums of many rows in float64."""
    thin = sparse.issparse(U)
    # Products with sparse columns add up one by one.
    M = M.astype(np.float64, copy=False) if thin else M
    with np.errstate(over="ignore", invalid="ignore"):
        out = np.zeros(U.shape[1])
        rows, columns = M @ np.ones(M.shape[1], M.dtype), np.ones(len(M), M.dtype) @ M
        for sums, A in ((rows, U), (columns, V)):
            out += sums @ (A.multiply(A) if thin else A * A)
        step = rows_of(len(out), STACK_ENTRIES)
        for start in range(0, len(M), step):
            own, products = U[start : start + step], M[start : start + step] @ V
            products = own.multiply(products) if thin else own * products
            out -= 2.0 * np.asarray(products.sum(axis=0, dtype=np.float64)).ravel()
    if U.dtype != np.float64 and not np.isfinite(out).all():
        return _contract(M, U.astype(np.float64), V.astype(np.float64))
    return out
