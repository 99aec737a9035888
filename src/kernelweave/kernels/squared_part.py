"""Weighted squared distances on many column blocks at once, by one matrix product."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike
from scipy import sparse

from kernelweave.kernels.columns import Block
from kernelweave.kernels.exponent import Array, Part, Term, taken, through
from kernelweave.kernels.pair import Pair
from kernelweave.kernels.samples import Samples
from kernelweave.kernels.squares import (
    WeightedRows,
    contract_sparse_squares,
    contract_squares,
    weighted_sparse_squares,
    weighted_squares,
)

__all__ = ["SquaredPart", "squared_columns"]

# The origin is the median of at most this many samples.
_MEDIAN_SAMPLES = 10_000


class _Side:
    """Some samples and their columns, dense and centred or sparse."""

    def __init__(
        self, samples: Samples, values: Any, whole: _Side | None = None, rows: slice | None = None
    ) -> None:
        self.samples = samples
        self.values = values
        self._whole = whole
        self._rows = rows
        self._known: tuple[Array, WeightedRows] | None = None

    def cut(self, rows: Array | slice) -> _Side:
        """Some of the rows; a slice shares what the whole knows."""
        if isinstance(rows, slice) and self._whole is None:
            if rows == slice(0, self.samples.n):
                return self
            return _Side(taken(self.samples, rows), self.values[rows], self, rows)
        return _Side(taken(self.samples, rows), self.values[rows])

    def weighted(self, w: Array) -> WeightedRows:
        """The columns of non-zero weight, prepared; many tiles in a row have the same weights."""
        if self._whole is not None and self._rows is not None:
            return self._whole.weighted(w)[self._rows]
        known = self._known
        if known is None or not np.array_equal(known[0], w):
            active = np.flatnonzero(w)
            chosen = self.values if len(active) == len(w) else self.values[:, active]
            known = self._known = (w, WeightedRows.of(chosen, w[active]))
        return known[1]


class SquaredPart(Part):
    r"""Terms :math:`g_k \|x_B - x'_B\|^2` on column blocks B, with all columns in one matrix.

    .. math:: \sum_k d_k D_k = \sum_j w_j (x_j - x'_j)^2,\quad w_j = \sum_{k: j \in B_k} d_k g_k

    is one matrix product, and with :math:`c_j = \sum_{ii'} M_{ii'} (x_{ij} - x'_{i'j})^2` so is
    :math:`\sum_{ii'} M_{ii'} D_k[i, i'] = g_k \sum_{j \in B_k} c_j` for all k.

    Parameters
    ----------
    terms : list of Term
        Terms with a `squared_rate`, all on dense columns or all on sparse ones.
    samples : Samples
        The training samples.
    m : int
        Number of kernels.

    Attributes
    ----------
    rates : CSR matrix of shape (m, p)
        g_k at the columns of B_k; every column appears once, however many kernels read it.

    Examples
    --------
    >>> from kernelweave.kernels.rbf import RBF
    >>> X = Samples([[0.0], [2.0]])
    >>> part = SquaredPart([Term(0, (), RBF(gamma=0.5))], X, 1)
    >>> part.weighted(np.array([10.0]), *2 * [part.side(X, np.float64)], None)
    array([[ 0., 20.],
           [20.,  0.]])
    """

    def __init__(self, terms: list[Term], samples: Samples, m: int) -> None:
        self._sparse = through(terms[0].path, samples).is_sparse
        located = [squared_columns(term.path, samples) for term in terms]
        wanted: dict[tuple[Any, ...], set[int]] = {}
        for root, columns in located:
            wanted.setdefault(root, set()).update(columns)
        self._sources: list[tuple[tuple[Any, ...], Block]] = []
        places: dict[tuple[Any, ...], dict[int, int]] = {}
        width = 0
        for root, used in wanted.items():
            whole = through(root, samples)
            chosen = sorted(used)
            names = None if whole.columns is None else [whole.columns[j] for j in chosen]
            self._sources.append((root, Block(chosen, whole.n_columns, names, "")))
            places[root] = {j: width + i for i, j in enumerate(chosen)}
            width += len(chosen)
        rows = np.repeat([term.k for term in terms], [len(columns) for _, columns in located])
        rates = np.repeat(
            [term.leaf.squared_rate for term in terms], [len(columns) for _, columns in located]
        )
        cols = [places[root][j] for root, columns in located for j in columns]
        self.rates = sparse.csr_matrix(
            (rates.astype(np.float64), (rows, cols)), shape=(m, width), dtype=np.float64
        )
        self._by_column = self.rates.T.tocsr()
        self._centre = None if self._sparse else self._median(samples)

    def _median(self, samples: Samples) -> Array:
        # Not the mean: one outlier would move it away from all other samples.
        if samples.n > _MEDIAN_SAMPLES:
            rng = np.random.default_rng(0)
            samples = samples.take(np.sort(rng.choice(samples.n, _MEDIAN_SAMPLES, replace=False)))
        return np.median(self._values(samples), axis=0)

    def _values(self, samples: Samples) -> Any:
        """All columns side by side, float64."""
        found = []
        for root, block in self._sources:
            seen = through(root, samples)
            everything = len(block.indices) == seen.n_columns and seen.columns is None
            values = seen.array() if everything else Samples(block.native(seen)).array()
            if self._sparse:
                found.append(sparse.csr_matrix(values))
            else:
                found.append(values.toarray() if sparse.issparse(values) else values)
        if len(found) == 1:
            return found[0]
        return sparse.hstack(found, format="csr") if self._sparse else np.hstack(found)

    def side(self, samples: Samples, dtype: DTypeLike) -> _Side:
        values = self._values(samples)
        if self._centre is not None:
            values = values - self._centre
        return _Side(samples, values.astype(dtype, copy=False))

    def take(self, side: _Side, rows: Array | slice) -> _Side:
        return side.cut(rows)

    def nbytes(self, side: _Side) -> int:
        values = side.values
        if not self._sparse:
            return int(values.nbytes)
        return int(values.data.nbytes + values.indices.nbytes + values.indptr.nbytes)

    def weighted(self, d: Array, left: _Side, right: _Side, out: Array | None) -> Array | None:
        w = self._by_column @ np.asarray(d, dtype=np.float64)
        active = np.flatnonzero(w)
        if len(active) == 0:
            return out
        U = left.values if len(active) == len(w) else left.values[:, active]
        same = Pair(left.samples, right.samples).same_rows()
        if self._sparse:
            V = right.values if len(active) == len(w) else right.values[:, active]
            D = weighted_sparse_squares(U, V, w[active], same)
        else:
            D = weighted_squares(U, right.weighted(w), w[active], same)
        if out is None:
            return D
        out += D
        return out

    def contract(self, M: Array, left: _Side, right: _Side, out: Array) -> None:
        work = contract_sparse_squares if self._sparse else contract_squares
        same = Pair(left.samples, right.samples).same_rows()
        out += self.rates @ work(M, left.values, right.values, same)


def squared_columns(path: tuple[Any, ...], samples: Samples) -> tuple[tuple[Any, ...], list[int]]:
    """Return where columns come from: blocks that end in a transformer, and places after them.

    Paths that read the same columns of the same (transformed) data then have equal roots.

    Examples
    --------
    >>> block = Block([2, 0], 3, None, "columns 0, 2")
    >>> squared_columns((block, Block([1], 2, None, "column 1")), Samples([[1.0, 2.0, 3.0]]))
    ((), [0])
    """
    root: tuple[Any, ...] = ()
    columns: list[int] | None = None
    for place, block in enumerate(path):
        if block.transformer is not None:
            root, columns = path[: place + 1], None
        else:
            chosen = block.indices
            columns = list(chosen) if columns is None else [columns[j] for j in chosen]
    return root, list(range(through(root, samples).n_columns)) if columns is None else columns
