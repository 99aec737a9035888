"""Kernels known by explicit sparse features: K_k = Phi_k Phi_k', never formed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kernelweave.arrays import Array
from kernelweave.compiled.blocks import FEW_ENTRIES, KMER_ROWS, SUM_PARTS
from kernelweave.compiled.sparse_rows import SparseRows, add_inner, add_rows, dot_rows, turn_rows
from kernelweave.compiled.threads import map_blocks, rows_of, thread_count
from kernelweave.kernels.normalize import ScaledFactor, Scaling
from kernelweave.kernels.strings.kmers import number_columns
from kernelweave.operators.base import Which, as_tasks, kernel_indices
from kernelweave.operators.thin import ThinOperator

# Features one thread adds up or multiplies at a time: about 0.2 ms, several times what it takes to
# wake one. Cuts follow from the kernels alone, never from the number of threads: same bits.
_ENTRIES = 2**17
# A feature is read, looked up and multiplied: 0.4 to 1.5 ns, as long as at most so many
# multiplications in a row.
_WORK = 4.0


@dataclass(frozen=True, eq=False)
class FeatureRows(ScaledFactor):
    r"""A training Gram matrix known by n sparse rows of features: :math:`K_0 = F F^\top`.

    Columns are numbered anew, the most frequent first, so that the part of a vector over columns
    that is read most stays in the cache, and columns that do not occur take no place in it. Values
    are float32 where that is exact (counts), and not stored where they are all equal. The rows are
    as `kernelweave.compiled.sparse_rows` reads them. Centred features would be dense; what centring
    takes off is kept beside them instead.

    Examples
    --------
    >>> from scipy import sparse
    >>> factor = FeatureRows.of(sparse.csr_array([[1.0, 0.0], [0.0, 2.0]]))
    >>> factor.product(np.array([1.0, 1.0]))
    array([1., 4.])
    """

    indptr: Array
    indices: Array
    values: Array
    width: int  # Number of columns that occur.
    scaling: Scaling

    @classmethod
    def of(cls, features: Any) -> FeatureRows:
        """Return K = F F', for a CSR matrix."""
        if not (features.has_canonical_format and np.all(features.data)):
            features = features.copy()
            features.sum_duplicates()
            features.eliminate_zeros()
        values, scale = features.data.astype(np.float64, copy=False), 1.0
        if values.size and np.all(values == values[0]):
            values, scale = values[:0], float(values[0])
        with np.errstate(over="ignore"):
            single = values.astype(np.float32)
        if np.array_equal(single, values):
            values = single
        pointers, scaling = (
            features.indptr.astype(np.uint64),
            Scaling.none(features.shape[0], scale),
        )
        indices, width = _by_frequency(features.indices)
        return cls(pointers, indices, np.ascontiguousarray(values), width, scaling)

    def raw_product(self, v: Array) -> Array:
        every, w, out = np.arange(len(v)), np.zeros(self.width), np.empty(len(v))
        add_rows(self.rows, every, v, w)
        dot_rows(self.rows, every, w, out)
        return out

    def raw_diagonal(self) -> Array:
        counts = np.diff(self.indptr).astype(np.int64)
        if not self.values.size:
            return counts.astype(np.float64)
        with np.errstate(over="ignore"):
            squares = np.square(self.values, dtype=np.float64)
        rows = np.repeat(np.arange(len(counts)), counts)
        return np.bincount(rows, squares, len(counts))

    @property
    def nnz(self) -> int:
        return len(self.indices)

    @property
    def row_entries(self) -> int:
        """About how many features of a sample are not zero, at least one."""
        return 1 + self.nnz // len(self.indptr)

    @property
    def rows(self) -> SparseRows:
        return self.indptr, self.indices, self.values

    def counts(self, idx: Array) -> Array:
        return (self.indptr[idx + 1] - self.indptr[idx]).astype(np.int64)

    def take(self, idx: Array, shared: dict[int, Any]) -> FeatureRows:
        counts = self.counts(idx)
        indptr = np.concatenate([[0], np.cumsum(counts)])
        # Where each of the new entries is among the old ones.
        moved = self.indptr[idx].astype(np.int64) - indptr[:-1]
        picked = np.arange(indptr[-1]) + np.repeat(moved, counts)
        values = self.values[picked] if self.values.size else self.values
        pointers = shared.setdefault(id(self.indptr), indptr.astype(np.uint64))
        indices, width = _by_frequency(self.indices[picked])
        return FeatureRows(pointers, indices, values, width, self.scaling.take(idx))


def _by_frequency(indices: Array) -> tuple[Array, int]:
    """Return columns numbered from the most frequent down, and how many occur."""
    used, places = number_columns(indices)
    width = len(used)
    rank = np.empty(width, np.min_scalar_type(max(width - 1, 2**16 - 1)))
    rank[np.argsort(-np.bincount(places), kind="stable")] = np.arange(width)
    return rank[places], width


class FeatureOperator(ThinOperator):
    r"""Kernels by explicit sparse features, :math:`K_k = \Phi_k \Phi_k^\top`, exact.

    A product goes through the features ("linadd", Sonnenburg et al. 2006, algorithm 3):

    .. math:: w = \Phi_k^\top v, \qquad K_k v = \Phi_k w, \qquad v^\top K_k v = |w|^2 .

    The first step reads only the samples where v is not zero, so a pass costs at most twice the
    number of features that are not zero, whatever n is.

    Kernels say themselves whether they have sparse features (``Kernel.features``): the spectrum
    kernel of sequences, the linear kernel and ``Polynomial(1)`` on sparse data, these on columns,
    and sums of them.

    Parameters
    ----------
    factors : sequence of FeatureRows
        Normalised features, one set for each kernel.
    names : sequence of str
        Names of the kernels.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy import sparse
    >>> from kernelweave.kernels import Linear
    >>> from kernelweave.operators import ComputedOperator
    >>> X = sparse.csr_array([[1.0, 0.0, 2.0], [0.0, 3.0, 0.0], [0.0, 0.0, 1.0]])
    >>> kernels = ComputedOperator.build([Linear(), Linear().on([0, 1])], X, normalize=None)
    >>> FeatureOperator.of(kernels).apply(np.array([1.0, 0.0, 0.0]))
    array([[5., 0., 2.],
           [1., 0., 0.]])
    """

    _factor = FeatureRows
    _needs = (
        "has no sparse features, which bank='sparse' needs. Allowed are Spectrum, Linear and "
        "Polynomial(1) on sparse data (scipy.sparse.csr_array(X)), these on columns, and sums of "
        "them; bank='auto' keeps these sparse and the others in another way."
    )

    def __init__(self, factors: Sequence[FeatureRows], names: Sequence[str]) -> None:
        kernels: list[FeatureRows] = []
        for factor in factors:
            if kernels and np.array_equal(kernels[-1].indptr, factor.indptr):
                factor = replace(factor, indptr=kernels[-1].indptr)
            kernels.append(factor)
        super().__init__(kernels, names)

    # Products, through the vector over columns

    def _each(self, chosen: Array, work: Callable[[FeatureRows, int], None], cost: float) -> None:
        """Call work(kernel, place) for all kernels.

        Many go to threads whole; few are cut inside of `work`, in the very same way.
        """

        def some(start: int, stop: int) -> None:
            for place in range(start, stop):
                work(self._kernels[chosen[place]], place)

        map_blocks(some, len(chosen), 1 if len(chosen) >= thread_count() else len(chosen), cost)

    def _pass(self, tasks: Array, chosen: Array, read: Callable[..., None]) -> None:
        """Call ``read(kernel, w, place, task)`` with w = Phi'v for all kernels and tasks."""
        supports = [np.flatnonzero(task != 0) for task in tasks]  # Quicker than from the numbers.

        def work(kernel: FeatureRows, place: int) -> None:
            for t, support in enumerate(supports):
                read(kernel, _collected(kernel, support, tasks[t, support]), place, t)

        cost = _WORK * len(tasks) * sum(self._kernels[k].nnz for k in chosen)
        self._each(chosen, work, cost)

    def _products(self, tasks: Array, chosen: Array, here: Any, out: Array) -> None:
        idx = np.arange(self.n)[here]

        def read(kernel: FeatureRows, w: Array, place: int, t: int) -> None:
            target = out[place, t]

            def work(start: int, stop: int) -> None:
                dot_rows(kernel.rows, idx[start:stop], w, target[start:stop])

            size = kernel.row_entries
            map_blocks(work, len(idx), max(1, _ENTRIES // size), _WORK * size * len(idx))
            target *= kernel.scaling.at(here)

        self._pass(tasks, chosen, read)

    def quad(self, v: Array, kernels: Which = None) -> Array:
        chosen, tasks = kernel_indices(kernels, self.m), as_tasks(v)
        out = np.zeros((len(chosen), len(tasks)))

        def read(kernel: FeatureRows, w: Array, place: int, t: int) -> None:
            own = kernel.scaling
            out[place, t] = w @ w - 2.0 * ((own.left @ tasks[t]) @ (own.right @ tasks[t]))

        self._pass(tasks, chosen, read)
        # Squares of features: anything below zero is the rounding of centring.
        return np.maximum(out.sum(axis=1), 0.0)

    # Inner products between samples, through columns

    def _values(self, chosen: Array, left: Any, right: Any, out: Array) -> None:
        rows, columns = np.arange(self.n)[left], np.arange(self.n)[right]

        def work(kernel: FeatureRows, place: int) -> None:
            out[place] = 0.0
            _add_inner(kernel, 1.0, rows, columns, False, out[place])

        self._each(chosen, work, float(sum(self._kernels[k].nnz for k in chosen) + out.size))

    def _add_sum(
        self, d: Array, active: Array, left: Any, right: Any, lower: bool, out: Array
    ) -> None:
        rows, columns = np.arange(self.n)[left], np.arange(self.n)[right]
        for k in active:
            _add_inner(self._kernels[k], d[k], rows, columns, lower, out)


def _add_inner(
    kernel: FeatureRows, weight: float, rows: Array, columns: Array, lower: bool, out: Array
) -> None:
    """Add weight S K_0 S between some samples to `out`; up to the diagonal if `lower`."""
    swapped = len(rows) < len(columns)
    if swapped:
        # The smaller side is turned into columns, the other one read through.
        rows, columns, out = columns, rows, out.T
    entries = int(kernel.counts(columns).sum())
    starts = np.zeros(kernel.width + 1, np.uint64)
    turned = starts, np.empty(entries, np.uint32), np.empty(entries)
    turn_rows(kernel.rows, columns, np.ones(len(columns)) * kernel.scaling.at(columns), turned)

    def work(start: int, stop: int) -> None:
        some = rows[start:stop]
        # Contiguous, so that one form of `add_inner` is compiled and no other.
        part = np.zeros((len(some), len(columns))) if swapped else out[start:stop]
        width = stop if lower else len(columns)
        weights = np.full(len(some), weight) * kernel.scaling.at(some)
        add_inner(kernel.rows, some, weights, turned, width, part)
        if swapped:
            out[start:stop] += part

    step = max(KMER_ROWS, rows_of(len(columns), FEW_ENTRIES))
    map_blocks(work, len(rows), step, _WORK * kernel.nnz + out.size)


def _collected(kernel: FeatureRows, support: Array, v: Array) -> Array:
    weights = v * kernel.scaling.at(support)
    entries = kernel.row_entries * len(support)
    # Every part has a vector of its own, and these are added up at the end: a tenth of the work.
    parts = int(np.clip(entries // max(_ENTRIES, 4 * kernel.width), 1, SUM_PARTS))
    vectors = np.zeros((parts, kernel.width))
    size = max(1, -(-len(support) // parts))

    def work(start: int, stop: int) -> None:
        add_rows(kernel.rows, support[start:stop], weights[start:stop], vectors[start // size])

    map_blocks(work, len(support), size, _WORK * entries)
    return vectors[0] if parts == 1 else vectors.sum(axis=0)
