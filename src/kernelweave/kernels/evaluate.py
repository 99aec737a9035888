"""Kernels evaluated between two sets of samples, sharing what they have in common.

A `Pair` is two sets of rows seen together, with the distances and inner products of all kernels on
the same columns. A `Plan` evaluates many kernels through such pairs, block by block.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import DTypeLike
from scipy import sparse
from scipy.spatial.distance import cdist

from kernelweave.arrays import Array, Index
from kernelweave.compiled.blocks import (
    CACHED_ENTRIES,
    FEW_ENTRIES,
    GAUSSIAN_WORK,
    SHARED_CACHE_ENTRIES,
)
from kernelweave.compiled.dense_rows import add_rectangle, add_weighted_rows, all_finite
from kernelweave.compiled.threads import map_blocks, rows_of
from kernelweave.errors import InvalidInputError
from kernelweave.kernels.base import Kernel
from kernelweave.kernels.samples import Samples, row_square_norms

# Up to this many columns squared distances are sums of squared differences: exact, and quicker than
# by a product (of 65 x 1000 samples in 86 us against 111 us for four columns, 148 against 126 for
# eight; a single column takes half of SciPy's time by NumPy).
_DIRECT_COLUMNS = 4
# |u|^2 + |v|^2 - 2 u'v keeps less than six digits below this fraction of |u|^2 + |v|^2.
_CANCELLED = 1e-10
# Rows are cut so that intermediate matrices stay in the cache, but not below this many. Of 1, 6,
# 16, 32 and 160 rows 16 are never far from best: sums of 273 kernels on 5,000 samples take 1.4
# times as long by 32 rows, 2.6 times by 160, values of 7 kernels on 20,000 samples 1.3 times by 6.
_CHUNK_ROWS = 16
# Numbers that memory hands out together.
_CACHE_LINE = 8
# From this many multiplications on OpenBLAS starts threads of its own, which cost more than they
# save on blocks this small (limiting them costs some 50 microseconds, hence not always).
_BLAS_THREADS = 2**18
# Values that overflow are found by looking at all of them, which names the kernel as well.
_QUIET = partial(np.errstate, over="ignore", invalid="ignore", divide="ignore")
# Products and sums read many column blocks through one pair, which is emptied beyond this number:
# their distances, FEW_ENTRIES of a block, are 32 MB for each thread.
_KEPT_BLOCKS = 64


# The place of a kernel among others, and its core.
Member = tuple[int, Kernel]


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
        if left.n_columns != right.n_columns:
            raise InvalidInputError(
                f"the two sets of samples must have the same columns; got {left.n_columns} and "
                f"{right.n_columns}."
            )
        self.left = left
        self.right = right
        self.dtype = np.dtype(dtype)
        self.memo: dict[Any, Any] = {}
        self._children: dict[Any, Pair] = {}

    @property
    def shape(self) -> tuple[int, int]:
        return self.left.n, self.right.n

    def finite_rate(self, rate: float) -> float:
        """A rate that `dtype` can hold: an infinite one times zero would not be a number."""
        return min(rate, float(np.finfo(self.dtype).max))

    def write(self, kernel: Kernel, out: Array) -> None:
        """Write the values of a kernel into a C-contiguous array.

        The pair may keep `out` and read it for other kernels: leave it alone until the pair goes.
        """
        form = kernel.form()
        if form is None:
            out[...] = kernel.evaluate(self)
        else:
            form.write(self, out)

    def on(self, block: Any) -> Pair:
        """Return the pair seen through a column block; the same object for the same block."""
        child = self._children.get(block)
        if child is None:
            left, right = self.left, self.right
            # Derived once, so that both sides stay rows of one set and share its cache.
            whole = left.base.derive(block)
            other = whole if left.base is right.base else right.base.derive(block)
            if len(self._children) >= _KEPT_BLOCKS:
                self._children.clear()
            child = Pair(left.in_another(whole), right.in_another(other), self.dtype)
            self._children[block] = child
        return child

    def through(self, path: tuple[Any, ...]) -> Pair:
        """Return the pair seen through several column blocks, one behind the other."""
        pair = self
        for block in path:
            pair = pair.on(block)
        return pair

    @property
    def inner(self) -> Array:
        """Inner products u'v, shape (q, n)."""
        if "inner" not in self.memo:
            self.memo["inner"] = _product(self.left.array(self.dtype), self.right.array(self.dtype))
        return self.memo["inner"]

    @property
    def sqdist(self) -> Array:
        """Squared Euclidean distances, shape (q, n): never negative, zero for a row with itself."""
        if "sqdist" in self.memo:
            return self.memo["sqdist"]
        left, right = self.left, self.right
        dense, double = not (left.is_sparse or right.is_sparse), self.dtype == np.float64
        if dense and right.n_columns <= _DIRECT_COLUMNS:
            D = _squared_differences(left.array(), right.array()).astype(self.dtype, copy=False)
        else:
            U, V = self._centred(dense)
            left_sq, right_sq = row_square_norms(U), right.square_norms(self.dtype, centred=dense)
            D = _product(-2 * U, V)
            D += left_sq[:, None]
            D += right_sq
            if dense and double:
                # From numbers as they are: a shift would round small ones beside huge ones.
                _repair_cancelled(D, left.array(), right.array(), left_sq, right_sq)
            else:
                np.maximum(D, 0, out=D)
                D[self.same_rows()] = 0
        self.memo["sqdist"] = D
        return D

    def _centred(self, dense: bool) -> tuple[Any, Any]:
        """Both sides, dense ones relative to one origin near the data, so that little cancels."""
        left, V = self.left, self.right.array(self.dtype, centred=dense)
        if not dense or left.base is self.right.base:
            return left.array(self.dtype, centred=dense), V
        return (left.array() - self.right.shift).astype(self.dtype, copy=False), V

    def same_rows(self) -> tuple[Index, Index]:
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


def _product(U: Any, V: Any) -> Array:
    """U V' as a new dense array."""
    if sparse.issparse(U) or sparse.issparse(V):
        P = U @ V.T
        return P.toarray() if sparse.issparse(P) else np.asarray(P)
    if V.shape[1] == 1:
        return U * V[:, 0]
    return U @ V.T


def _squared_differences(U: Array, V: Array) -> Array:
    if U.shape[1] > 1:
        return cdist(U, V, "sqeuclidean")
    D = np.subtract.outer(U[:, 0], V[:, 0])
    D *= D
    return D


def _repair_cancelled(
    D: Array,
    U: Array,
    V: Array,
    left_sq: Array,
    right_sq: Array,
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


class NotFiniteError(InvalidInputError):
    """Kernel values are infinite or NaN; compiled code must not see them."""

    def __init__(self, kernel: str, dtype: Any = np.float64) -> None:
        super().__init__(
            f"kernel '{kernel}' has values that are infinite or NaN in {np.dtype(dtype).name}. "
            f"Scale the columns it reads (for instance with kernel.on(columns, StandardScaler())), "
            f"lower its degree or its factor, or leave it out."
        )


def evaluate_stack(
    kernels: Sequence[Kernel],
    left: Samples,
    right: Samples,
    dtype: DTypeLike = np.float64,
) -> Array:
    """Return the values of bound kernels between two sets of samples, shape (m, q, n).

    Kernels on the same column block share distances, inner products, powers and exponentials. The
    blocks of work are the same for any number of threads, and so are the results. All values are
    finite: an error names the first kernel with another one.
    """
    return Plan(kernels).evaluate(left, right, dtype)


class Plan:
    """Bound kernels sorted into groups on the same column block, to be evaluated many times."""

    def __init__(self, kernels: Sequence[Kernel]) -> None:
        self.m = len(kernels)
        self._kernels = kernels
        groups: dict[tuple[Any, ...], list[Member]] = {}
        for k, kernel in enumerate(kernels):
            groups.setdefault(kernel.path, []).append((k, kernel.core))
        for members in groups.values():
            # Gaussians from wide to narrow: powers of the wide ones are narrower ones.
            members.sort(key=lambda member: getattr(member[1].form(), "p0", 0.0))
        self._groups = list(groups.items())

    def evaluate(self, left: Samples, right: Samples, dtype: DTypeLike = np.float64) -> Array:
        """Return what `evaluate_stack` does."""
        kind = np.dtype(dtype)
        if kind not in (np.float64, np.float32):
            raise InvalidInputError(f"kernels are evaluated in float64 or float32; got {kind}.")
        out = np.empty((self.m, left.n, right.n), dtype=kind)
        rows = max(_CHUNK_ROWS, rows_of(right.n, FEW_ENTRIES))
        starts = range(0, left.n, rows)

        def run(first: int, last: int) -> None:
            for task in range(first, last):
                path, members = self._groups[task // len(starts)]
                start = starts[task % len(starts)]
                stop = min(start + rows, left.n)
                part = left.rows(start, stop)
                pair = Pair(part, right, kind).through(path)
                for k, kernel in members:
                    with _QUIET():
                        pair.write(kernel, out[k, start:stop])
                    if not all_finite(out[k, start:stop]):
                        raise NotFiniteError(self._kernels[k].name, kind)

        tasks = len(self._groups) * len(starts)
        if out.size * right.n_columns < _BLAS_THREADS:
            run(0, tasks)
        else:
            self._warm(left, right)
            map_blocks(run, tasks, 1, float(out.size) * (right.n_columns + GAUSSIAN_WORK))
        return out

    def weighted(self, weights: Array, left: Samples, right: Samples, out: Array) -> Array:
        """Write sum_k weights[k] K_k for two sets of samples to `out`, (q, n), in bounded memory.

        A few rows at a time: what is added up stays in the processor's cache.
        """
        kind = out.dtype
        widest = max((len(members) for _, members in self._groups), default=1)
        rows = int(max(_CHUNK_ROWS, rows_of(widest * right.n, CACHED_ENTRIES)))

        def run(first: int, last: int) -> None:
            part = left.rows(first, last)
            out[first:last] = 0.0
            with _QUIET():
                for path, members in self._groups:
                    # The pair before is held meanwhile: memory that goes back to the system and
                    # comes again takes as long as all values do.
                    pair = Pair(part, right, kind).through(path)
                    _add(out[first:last], members, weights, pair)
            if not all_finite(out[first:last]):
                self.evaluate(part, right, kind)  # raises an error that names the kernel
                raise NotFiniteError("sum of all kernels", kind)

        self._warm(left, right)
        work = float(self.m) * out.size * (right.n_columns + GAUSSIAN_WORK)
        map_blocks(run, left.n, rows, work)
        return out

    def _warm(self, left: Samples, right: Samples) -> None:
        """Run the transformers before threads start, so that none runs twice."""
        for path, _ in self._groups:
            left.base.through(path)
            right.base.through(path)


def _add(out: Array, members: list[Member], weights: Array, pair: Pair) -> None:
    found: dict[int, list[tuple[int, Kernel, Array]]] = {}
    computed = []
    for k, kernel in members:
        given = kernel.given
        if given is None or given.rate is not None or not given.matrix.flags.c_contiguous:
            computed.append((k, kernel))
        else:
            found.setdefault(len(given.matrix), []).append((k, kernel, given.matrix))
    for alike in found.values():
        left, right = (np.asarray(alike[0][1].ids(side)) for side in (pair.left, pair.right))
        own = weights[[k for k, *_ in alike]]
        _add_given([matrix for *_, matrix in alike], own, left, right, out)
    many = rows_of(out.size, SHARED_CACHE_ENTRIES)
    for first in range(0, len(computed), many):
        some = computed[first : first + many]
        values = np.empty((len(some), *out.shape), out.dtype)
        for place, (_, kernel) in enumerate(some):
            pair.write(kernel, values[place])
        own = weights[[k for k, _ in some]].astype(out.dtype, copy=False)
        # For a single kernel np.dot takes a third of the time that the operator @ takes.
        out += np.dot(own, values.reshape(len(some), -1)).reshape(out.shape)


def _add_given(
    matrices: list[Array],
    weights: Array,
    left: Index,
    right: Index,
    out: Array,
) -> None:
    """out += sum_k weights[k] matrices[k][left][:, right]."""
    size = len(matrices[0])
    if _CACHE_LINE * len(right) < size:
        for K, weight in zip(matrices, weights, strict=True):
            add_rectangle(K, left, right, weight, out)
        return
    # Nearly all of a row has to be read anyway: from front to back that is quicker.
    rows = np.zeros((len(left), size))
    add_weighted_rows(matrices, weights, left, rows)
    add_rectangle(rows, np.arange(len(left)), right, 1.0, out)
