"""Kernels known by explicit sparse features: K_k = Phi_k Phi_k', never formed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from kernelweave.compiled.sparse_rows import (
    add_inner,
    add_rows,
    dot_rows,
    square_rows,
    turn_rows,
)
from kernelweave.compiled.threads import map_blocks, one_blas_thread
from kernelweave.errors import InvalidInputError
from kernelweave.kernels.scaled_factor import Scaling, SparseFactor, few_columns, number_columns
from kernelweave.operators.base import (
    Array,
    KernelOperator,
    Kind,
    Which,
    as_tasks,
    kernel_indices,
    round_size_of,
    same_samples,
)

__all__ = ["FeatureOperator", "FeatureRows"]

# All cuts follow from the kernels alone, never from the number of threads: same bits.
# Features one thread adds up at a time, and the most parts one sum is cut into.
_ADD_ENTRIES = 2**19
_ADD_PARTS = 8
# Features one thread multiplies at a time.
_DOT_ENTRIES = 2**17
# From this many kernels on each one stays in a thread.
_MANY = 8
# A vector over columns is cleared as a whole unless the features touched are fewer by this factor.
_CLEAR = 8
# Rows of a block of inner products (or its entries), and features turned into columns at a time.
_BLOCK_ROWS = 64
_BLOCK_ENTRIES = 2**15
_TURNED = 2**23
# A feature is read, looked up and multiplied: as long as this many multiplications in a row.
_WORK = 4.0

# Columns of some samples: see `turn_rows`.
Turned = tuple[Array, Array, Array]
# `map_blocks`, or the same in one thread.
Run = Callable[[Callable[[int, int], None], int, int, float], None]


def _in_this_thread(
    work: Callable[[int, int], None], n_items: int, block: int, cost: float
) -> None:
    for start in range(0, n_items, block):
        work(start, min(start + block, n_items))


@dataclass(frozen=True, eq=False)
class FeatureRows:
    """The sparse features of one kernel, stored to be read fast, and what normalises it.

    Columns are numbered anew, the most frequent first, so that the part of a vector over columns
    that is read most stays in the cache, and columns that do not occur take no place in it. Values
    are float32 where that is exact (counts), and not stored where they are all equal. The rows are
    as `kernelweave.compiled.sparse_rows` reads them.
    """

    indptr: Array
    indices: Array
    values: Array
    width: int  # Number of columns that occur.
    scaling: Scaling
    diagonal: Array

    @classmethod
    def build(cls, factor: SparseFactor, like: FeatureRows | None = None) -> FeatureRows:
        """Store a factor; the row pointers of the kernel `like` are shared if they are equal."""
        features, scaling = factor.features, factor.scaling
        if not np.all(features.data):
            features = features.copy()
            features.eliminate_zeros()
        values = features.data
        if values.size and np.all(values == values[0]):
            scaling = replace(scaling, scale=np.asarray(scaling.scale * values[0]))
            values = values[:0]
        with np.errstate(over="ignore"):
            single = values.astype(np.float32)
        if np.array_equal(single, values):
            values = single
        pointers = features.indptr.astype(np.uint64)
        if like is not None and np.array_equal(like.indptr, pointers):
            pointers = like.indptr
        indices, width = _by_frequency(features.indices)
        values = np.ascontiguousarray(values)
        return cls(pointers, indices, values, width, scaling, factor.diagonal())

    @property
    def nnz(self) -> int:
        """Number of features not zero."""
        return len(self.indices)

    @property
    def row_entries(self) -> int:
        """About how many features of a sample are not zero, at least one."""
        return 1 + self.nnz // len(self.indptr)

    @property
    def nbytes(self) -> int:
        """Bytes of all but the row pointers, which kernels may share."""
        arrays = (self.indices, self.values, self.scaling, self.diagonal)
        return sum(array.nbytes for array in arrays)

    @property
    def rows(self) -> tuple[Array, Array, Array]:
        """What compiled code asks for."""
        return self.indptr, self.indices, self.values

    def counts(self, idx: Array) -> Array:
        """Numbers of features not zero of some samples."""
        return (self.indptr[idx + 1] - self.indptr[idx]).astype(np.int64)

    def take(self, idx: Array) -> FeatureRows:
        """Return the same kernel on some of the samples."""
        counts = self.counts(idx)
        indptr = np.concatenate([[0], np.cumsum(counts)])
        # Where each of the new entries is among the old ones.
        moved = self.indptr[idx].astype(np.int64) - indptr[:-1]
        picked = np.arange(indptr[-1]) + np.repeat(moved, counts)
        indices, width = _by_frequency(self.indices[picked])
        values = self.values[picked] if self.values.size else self.values
        beside = self.scaling.take(idx), self.diagonal[idx]
        return FeatureRows(indptr.astype(np.uint64), indices, values, width, *beside)

    def turned(self, idx: Array) -> Turned:
        """Return the features of some samples column by column, scaled."""
        entries = int(self.counts(idx).sum())
        starts = np.zeros(self.width + 1, np.uint64)
        places, values = np.empty(entries, np.uint32), np.empty(entries)
        turn_rows(*self.rows, idx, np.ones(len(idx)) * self.scaling.at(idx), starts, places, values)
        return starts, places, values

    def add_block(
        self, weight: float, rows: Array, columns: Array, turned: Turned, out: Array
    ) -> None:
        """out += weight K[rows][:, columns], where `turned` begins with these columns."""
        weights = np.full(len(rows), weight) * self.scaling.at(rows)
        add_inner(*self.rows, rows, weights, *turned, out)
        if self.scaling.takes_off:
            out -= weight * self.scaling.off_block(rows, columns)


def _by_frequency(indices: Array) -> tuple[Array, int]:
    """Return columns numbered from the most frequent down, and how many occur."""
    places = indices
    if not few_columns(indices):
        _, places = number_columns(indices)
    counts = np.bincount(places)
    width = int(np.count_nonzero(counts))
    order = np.argsort(-counts, kind="stable")[:width]
    rank = np.zeros(len(counts), np.min_scalar_type(max(width - 1, 2**16 - 1)))
    rank[order] = np.arange(width)
    return rank[places], width


class FeatureOperator(KernelOperator):
    r"""Kernels by explicit sparse features, :math:`K_k = \Phi_k \Phi_k^\top`, exact.

    A product goes through the features ("linadd", Sonnenburg et al. 2006, algorithm 3):

    .. math:: w = \Phi_k^\top v, \qquad K_k v = \Phi_k w, \qquad v^\top K_k v = |w|^2 .

    The first step reads only the samples where v is not zero, so a pass costs at most twice the
    number of features that are not zero, whatever n is. Centring would make the features dense;
    what it takes off is kept beside them instead (see
    :class:`~kernelweave.kernels.scaled_factor.SparseFactor`).

    Kernels say themselves whether they have sparse features (``Kernel.features``): the spectrum
    kernel of sequences, the linear kernel and ``Polynomial(1)`` on sparse data, these on columns,
    and sums of them.

    Parameters
    ----------
    factors : sequence of SparseFactor
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

    def __init__(self, factors: Sequence[SparseFactor], names: Sequence[str]) -> None:
        kernels: list[FeatureRows] = []
        for factor in factors:
            kernels.append(FeatureRows.build(factor, kernels[-1] if kernels else None))
        self._hold(kernels, tuple(names), factors[0].features.shape[0])

    @classmethod
    def of(cls, kernels: KernelOperator) -> FeatureOperator:
        """Return kernels by their features; all must have some."""
        factors = []
        for k in range(kernels.m):
            factor = kernels.sparse_factor(k)
            if factor is None:
                raise InvalidInputError(
                    f"kernel '{kernels.names[k]}' has no sparse features, which bank='sparse' "
                    "needs. Allowed are Spectrum, Linear and Polynomial(1) on sparse data "
                    "(scipy.sparse.csr_array(X)), these on columns, and sums of them; "
                    "bank='auto' keeps these sparse and the others in another way."
                )
            factors.append(factor)
        return cls(factors, kernels.names)

    def _hold(self, kernels: list[FeatureRows], names: Sequence[str], n: int) -> None:
        self._kernels, self.names = kernels, names
        self.n, self.m = n, len(kernels)
        self.round_size = round_size_of(n)
        # Vectors of zeros over columns, lent out and taken back as zeros. One that an exception
        # keeps from coming back is lost, so none is ever dirty.
        self._width = max((kernel.width for kernel in kernels), default=0)
        self._free: list[Array] = []

    def _lend(self) -> Array:
        try:
            return self._free.pop()
        except IndexError:
            return np.zeros(self._width)

    @property
    def nbytes(self) -> int:
        """Bytes of the features and of what normalises them."""
        pointers = {id(kernel.indptr): kernel.indptr.nbytes for kernel in self._kernels}
        return sum(kernel.nbytes for kernel in self._kernels) + sum(pointers.values())

    # Products, through the vector over columns

    def _pass(
        self,
        v: Array,
        chosen: Array,
        read: Callable[[FeatureRows, Array, int, int, Run], None] | None = None,
    ) -> Array:
        """Go through w = Phi'v for all kernels and tasks; return |w|^2 if it is not to be `read`.

        That is called as ``read(kernel, w, place, task, run)``. Many kernels go to threads whole;
        few are cut, by `run`, in the very same way.
        """
        tasks = as_tasks(v)
        supports = [np.flatnonzero(task != 0) for task in tasks]  # Quicker than from the numbers.
        squares = np.zeros((len(chosen), len(tasks)))

        def work(start: int, stop: int, run: Run = _in_this_thread) -> None:
            for place in range(start, stop):
                kernel = self._kernels[chosen[place]]
                for t, support in enumerate(supports):
                    w = self._collect(kernel, support, tasks[t, support], run)
                    if read is not None:
                        read(kernel, w, place, t, run)
                    if _CLEAR * kernel.row_entries * len(support) < kernel.width:
                        squares[place, t] = square_rows(kernel.indptr, kernel.indices, support, w)
                    else:
                        used = w[: kernel.width]
                        if read is None:
                            squares[place, t] = used @ used
                        used[:] = 0.0
                    self._free.append(w)

        with one_blas_thread():
            if len(chosen) < _MANY:
                work(0, len(chosen), map_blocks)
            else:
                cost = _WORK * len(tasks) * sum(self._kernels[k].nnz for k in chosen)
                map_blocks(work, len(chosen), 1, cost)
        return squares

    def _collect(self, kernel: FeatureRows, support: Array, v: Array, run: Run) -> Array:
        """Return w = Phi'v for v on its support."""
        weights = v * kernel.scaling.at(support)
        entries = kernel.row_entries * len(support)
        # Every part has a vector of its own, which has to be worth it.
        parts = int(np.clip(entries // max(_ADD_ENTRIES, 4 * kernel.width), 1, _ADD_PARTS))
        vectors = [self._lend() for _ in range(parts)]
        size = max(1, -(-len(support) // parts))

        def work(start: int, stop: int) -> None:
            add_rows(*kernel.rows, support[start:stop], weights[start:stop], vectors[start // size])

        run(work, len(support), size, _WORK * entries)
        w = vectors[0]
        for other in vectors[1:]:
            w[: kernel.width] += other[: kernel.width]
            other[: kernel.width] = 0.0
            self._free.append(other)
        return w

    def apply(self, v: Array, kernels: Which = None, rows: Which = None) -> Array:
        chosen, tasks = kernel_indices(kernels, self.m), as_tasks(v)
        idx = np.arange(self.n) if rows is None else np.asarray(rows, dtype=np.int64)
        here = slice(None) if rows is None else idx
        out = np.empty((len(chosen), len(tasks), len(idx)))

        def read(kernel: FeatureRows, w: Array, place: int, t: int, run: Run) -> None:
            target = out[place, t]

            def work(start: int, stop: int) -> None:
                dot_rows(*kernel.rows, idx[start:stop], w, target[start:stop])

            size = kernel.row_entries
            run(work, len(idx), max(1, _DOT_ENTRIES // size), _WORK * size * len(idx))
            target *= kernel.scaling.at(here)
            if kernel.scaling.takes_off:
                target -= kernel.scaling.off_product(tasks[t], here)

        self._pass(v, chosen, read)
        return out if np.ndim(v) == 2 else out[:, 0]

    def quad(self, v: Array, kernels: Which = None) -> Array:
        chosen, tasks = kernel_indices(kernels, self.m), as_tasks(v)
        out = self._pass(v, chosen)
        for place, k in enumerate(chosen):
            own = self._kernels[k].scaling
            if own.takes_off:
                out[place] -= [2.0 * ((own.left @ task) @ (own.right @ task)) for task in tasks]
        # Squares of features: anything below zero is the rounding of centring.
        return np.maximum(out.sum(axis=1), 0.0)

    # Inner products between samples, through columns

    def _turned(self, chosen: Array, idx: Array) -> Iterator[tuple[Array, list[Turned]]]:
        """Yield kernels, a bounded number at a time, with the rows `idx` turned into columns."""
        own = [self._kernels[k] for k in chosen]
        sizes = [int(kernel.counts(idx).sum()) + kernel.width for kernel in own]
        group = np.cumsum(sizes, dtype=np.int64) // _TURNED
        for g in np.unique(group):
            some = chosen[group == g]
            turned: list[Any] = [None] * len(some)

            def work(start: int, stop: int, some: Array = some, turned: list[Any] = turned) -> None:
                for place in range(start, stop):
                    turned[place] = self._kernels[some[place]].turned(idx)

            map_blocks(work, len(some), 1, _WORK * sum(sizes))
            yield some, turned

    def block(
        self, rows: Which = None, columns: Which = None, kernels: Which = None, dtype: Kind = None
    ) -> Array:
        chosen = kernel_indices(kernels, self.m)
        few = np.arange(self.n) if rows is None else np.asarray(rows, dtype=np.int64)
        many = np.arange(self.n) if columns is None else np.asarray(columns, dtype=np.int64)
        out = np.empty((len(chosen), len(few), len(many)), np.float64 if dtype is None else dtype)
        target = out.transpose(0, 2, 1)
        if len(few) > len(many):
            # The smaller side is turned into columns, the other one read through.
            few, many, target = many, few, out
        step = max(_BLOCK_ROWS, _BLOCK_ENTRIES // max(1, len(few)))
        blocks = range(0, len(many), step)
        for some, turned in self._turned(chosen, few):

            def work(
                start: int,
                stop: int,
                some: Array = some,
                turned: list[Turned] = turned,
                target: Array = target,
            ) -> None:
                for item in range(start, stop):
                    place, b = divmod(item, len(blocks))
                    here = slice(blocks[b], blocks[b] + step)
                    part = np.zeros((len(many[here]), len(few)))
                    kernel = self._kernels[some[place]]
                    kernel.add_block(1.0, many[here], few, turned[place], part)
                    target[place, here] = part

            cost = sum(self._kernels[k].nnz for k in some) + len(some) * len(few) * len(many)
            map_blocks(work, len(some) * len(blocks), 1, float(cost))
            target = target[len(some) :]
        return out

    def weighted(
        self, d: ArrayLike, rows: Which = None, columns: Which = None, out: Array | None = None
    ) -> Array:
        """See :class:`KernelOperator`; of a square only one side of the diagonal is computed."""
        weights = np.asarray(d, dtype=np.float64)
        whole = rows is None and columns is None
        if not whole and not same_samples(rows, columns):
            return super().weighted(weights, rows, columns, out)
        idx = np.arange(self.n) if rows is None else np.asarray(rows, dtype=np.int64)
        total = self._sum_memory(len(idx), len(idx)) if out is None else out
        total[...] = 0.0
        for some, turned in self._turned(np.flatnonzero(weights), idx):

            def work(
                start: int, stop: int, some: Array = some, turned: list[Turned] = turned
            ) -> None:
                part = np.zeros((stop - start, stop))
                for k, columns in zip(some, turned, strict=True):
                    own = idx[start:stop], idx[:stop], columns, part
                    self._kernels[k].add_block(weights[k], *own)
                total[start:stop, :stop] += part
                total[:start, start:stop] = total[start:stop, :start].T

            cost = _WORK * sum(len(places) for _, places, _ in turned) + len(idx) ** 2
            map_blocks(work, len(idx), _BLOCK_ROWS, cost)
        return total

    def diagonal(self, kernels: Which = None) -> Array:
        chosen = kernel_indices(kernels, self.m)
        return np.array([self._kernels[k].diagonal for k in chosen]).reshape(-1, self.n)

    # Some of the samples or kernels

    def _around(self, kernels: list[FeatureRows], names: Sequence[str], n: int) -> FeatureOperator:
        out = self._but()
        out._hold(kernels, names, n)
        return out

    def take(self, idx: Array) -> FeatureOperator:
        idx = np.asarray(idx, dtype=np.int64)
        return self._around([kernel.take(idx) for kernel in self._kernels], self.names, len(idx))

    def select(self, kernels: Array) -> FeatureOperator:
        """See :class:`KernelOperator`; the features are shared, not copied."""
        chosen = kernel_indices(kernels, self.m)
        names = tuple(self.names[k] for k in chosen)
        return self._around([self._kernels[k] for k in chosen], names, self.n)
