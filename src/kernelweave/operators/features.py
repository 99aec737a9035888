"""Kernels known by explicit sparse features: K_k = Phi_k Phi_k', never formed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from kernelweave.compiled.sparse_rows import (
    add_inner,
    add_rows,
    clear_rows,
    dot_rows,
    square_rows,
    turn_rows,
)
from kernelweave.compiled.threads import map_blocks, one_blas_thread
from kernelweave.errors import InvalidInputError
from kernelweave.kernels.sparse_factor import SparseFactor
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
from kernelweave.operators.feature_rows import FeatureRows

__all__ = ["FeatureOperator"]

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


class _Zeros:
    """Vectors of zeros over columns, lent out and taken back as zeros.

    One that an exception keeps from coming back is lost, so none is ever dirty.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._free: list[Array] = []

    def lend(self) -> Array:
        try:
            return self._free.pop()
        except IndexError:
            return np.zeros(self._size)

    def take_back(self, w: Array) -> None:
        self._free.append(w)


class _Vector:
    """A vector over samples, and where it is not zero."""

    def __init__(self, values: Array) -> None:
        self.values = values
        self.support = np.flatnonzero(values != 0)  # Ten times quicker than from the numbers.
        self.there = values[self.support]


class FeatureOperator(KernelOperator):
    r"""Kernels by explicit sparse features, :math:`K_k = \Phi_k \Phi_k^\top`, exact.

    A product goes through the features ("linadd", Sonnenburg et al. 2006, algorithm 3):

    .. math:: w = \Phi_k^\top v, \qquad K_k v = \Phi_k w, \qquad v^\top K_k v = |w|^2 .

    The first step reads only the samples where v is not zero, so a pass costs at most twice the
    number of features that are not zero, whatever n is. Centring would make the features dense;
    what it takes off is kept beside them instead (see
    :class:`~kernelweave.kernels.sparse_factor.SparseFactor`).

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
        self._zeros = _Zeros(max((kernel.width for kernel in kernels), default=0))

    @property
    def nbytes(self) -> int:
        """Bytes of the features and of what normalises them."""
        pointers = {id(kernel.indptr): kernel.indptr.nbytes for kernel in self._kernels}
        return sum(kernel.nbytes for kernel in self._kernels) + sum(pointers.values())

    # Products, through the vector over columns

    def _passes(
        self, v: Array, chosen: Array, one: Callable[[int, FeatureRows, int, _Vector, Run], None]
    ) -> None:
        """Call ``one(place, kernel, task, v of the task, run)`` for all kernels and tasks.

        Many kernels go to threads whole; few are cut, by `run`, in the very same way.
        """
        tasks = [_Vector(row) for row in as_tasks(v)]

        def work(start: int, stop: int, run: Run = _in_this_thread) -> None:
            for place in range(start, stop):
                for t, task in enumerate(tasks):
                    one(place, self._kernels[chosen[place]], t, task, run)

        with one_blas_thread():
            if len(chosen) < _MANY:
                work(0, len(chosen), map_blocks)
            else:
                cost = _WORK * len(tasks) * sum(self._kernels[k].nnz for k in chosen)
                map_blocks(work, len(chosen), 1, cost)

    def _collect(self, kernel: FeatureRows, v: _Vector, run: Run) -> tuple[Array, Array | None]:
        """Return w = Phi'v, and the samples to go through to clear it if that is quicker."""
        support = v.support
        weights = v.there * kernel.scale_at(support)
        entries = kernel.row_entries * len(support)
        # Every part has a vector of its own, which has to be worth it.
        parts = int(np.clip(entries // max(_ADD_ENTRIES, 4 * kernel.width), 1, _ADD_PARTS))
        vectors = [self._zeros.lend() for _ in range(parts)]
        size = max(1, -(-len(support) // parts))

        def work(start: int, stop: int) -> None:
            add_rows(*kernel.rows, support[start:stop], weights[start:stop], vectors[start // size])

        run(work, len(support), size, _WORK * entries)
        w = vectors[0]
        for other in vectors[1:]:
            w[: kernel.width] += other[: kernel.width]
            other[: kernel.width] = 0.0
            self._zeros.take_back(other)
        return w, support if _CLEAR * entries < kernel.width else None

    def apply(self, v: Array, kernels: Which = None, rows: Which = None) -> Array:
        chosen, idx = kernel_indices(kernels, self.m), rows
        rows = np.arange(self.n) if idx is None else np.asarray(idx, dtype=np.int64)
        out = np.empty((len(chosen), len(as_tasks(v)), len(rows)))

        def one(place: int, kernel: FeatureRows, t: int, v: _Vector, run: Run) -> None:
            w, touched = self._collect(kernel, v, run)
            target = out[place, t]
            left, right = kernel.left @ v.values, kernel.right @ v.values

            def work(start: int, stop: int) -> None:
                part = target[start:stop]
                dot_rows(*kernel.rows, rows[start:stop], w, part)
                here = slice(start, stop) if idx is None else rows[start:stop]
                part *= kernel.scale_at(here)
                if len(left):
                    part -= left @ kernel.right[:, here] + right @ kernel.left[:, here]

            size = kernel.row_entries
            run(work, len(rows), max(1, _DOT_ENTRIES // size), _WORK * size * len(rows))
            if touched is None:
                w[: kernel.width] = 0.0
            else:
                clear_rows(kernel.indptr, kernel.indices, touched, w)
            self._zeros.take_back(w)

        self._passes(v, chosen, one)
        return out if np.ndim(v) == 2 else out[:, 0]

    def quad(self, v: Array, kernels: Which = None) -> Array:
        chosen = kernel_indices(kernels, self.m)
        out = np.zeros((len(chosen), len(as_tasks(v))))

        def one(place: int, kernel: FeatureRows, t: int, v: _Vector, run: Run) -> None:
            w, touched = self._collect(kernel, v, run)
            if touched is None:
                used = w[: kernel.width]
                square = float(used @ used)
                used[:] = 0.0
            else:
                square = square_rows(kernel.indptr, kernel.indices, touched, w)
            self._zeros.take_back(w)
            left, right = kernel.left @ v.values, kernel.right @ v.values
            out[place, t] = square - 2.0 * float(left @ right)

        self._passes(v, chosen, one)
        # Squares of features: anything below zero is the rounding of centring.
        return np.maximum(out.sum(axis=1), 0.0)

    # Inner products between samples, through columns

    def _turned(self, chosen: Array, idx: Array) -> Iterator[tuple[Array, list[Turned]]]:
        """Yield kernels, a bounded number at a time, with the rows `idx` turned into columns."""
        sizes = [self._kernels[k].entries(idx) + self._kernels[k].width for k in chosen]
        group = np.cumsum(sizes, dtype=np.int64) // _TURNED
        for g in np.unique(group):
            some = chosen[group == g]
            turned: list[Any] = [None] * len(some)

            def work(start: int, stop: int, some: Array = some, turned: list[Any] = turned) -> None:
                for place in range(start, stop):
                    turned[place] = _turn(self._kernels[some[place]], idx)

            map_blocks(work, len(some), 1, _WORK * sum(sizes))
            yield some, turned

    def _add_block(
        self, k: int, weight: float, rows: Array, columns: Array, turned: Turned, out: Array
    ) -> None:
        """out += weight K_k[rows][:, columns], where `turned` begins with these columns."""
        kernel = self._kernels[k]
        starts, places, values = turned
        weights = np.full(len(rows), weight) * kernel.scale_at(rows)
        add_inner(*kernel.rows, rows, weights, starts, places, values, out)
        if len(kernel.left):
            left, right = kernel.left, kernel.right
            product = left[:, rows].T @ right[:, columns] + right[:, rows].T @ left[:, columns]
            out -= weight * product

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
        done = 0
        for some, turned in self._turned(chosen, few):

            def work(
                start: int,
                stop: int,
                some: Array = some,
                turned: list[Turned] = turned,
                done: int = done,
            ) -> None:
                for item in range(start, stop):
                    place, b = divmod(item, len(blocks))
                    here = slice(blocks[b], blocks[b] + step)
                    part = np.zeros((len(many[here]), len(few)))
                    self._add_block(some[place], 1.0, many[here], few, turned[place], part)
                    target[done + place, here] = part

            cost = sum(self._kernels[k].nnz for k in some) + len(some) * len(few) * len(many)
            map_blocks(work, len(some) * len(blocks), 1, float(cost))
            done += len(some)
        return out

    def _combined(self, d: Array, idx: Array, out: Array) -> Array:
        """Write sum_k d_k K_k[idx][:, idx]: the lower half is computed, the upper one copied."""
        out[...] = 0.0
        for some, turned in self._turned(np.flatnonzero(d), idx):

            def work(
                start: int, stop: int, some: Array = some, turned: list[Turned] = turned
            ) -> None:
                part = np.zeros((stop - start, stop))
                for k, columns in zip(some, turned, strict=True):
                    self._add_block(k, d[k], idx[start:stop], idx[:stop], columns, part)
                out[start:stop, :stop] += part
                out[:start, start:stop] = out[start:stop, :start].T

            cost = _WORK * sum(len(places) for _, places, _ in turned) + len(idx) ** 2
            map_blocks(work, len(idx), _BLOCK_ROWS, cost)
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
        out = self._sum_memory(len(idx), len(idx)) if out is None else out
        return self._combined(weights, idx, out)

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


def _turn(kernel: FeatureRows, idx: Array) -> Turned:
    """Return the features of some samples column by column, scaled."""
    entries = kernel.entries(idx)
    starts = np.zeros(kernel.width + 1, np.uint64)
    places, values = np.empty(entries, np.uint32), np.empty(entries)
    turn_rows(*kernel.rows, idx, np.ones(len(idx)) * kernel.scale_at(idx), starts, places, values)
    return starts, places, values
