"""Very many Gaussian kernels that are computed in every pass and never stored."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from kernelweave.compiled.blocks import (
    GAUSSIAN_COLUMNS,
    GAUSSIAN_TILE,
    GAUSSIAN_WORK,
    SHARED_CACHE_ENTRIES,
    SUM_PARTS,
    gaussian_kernels,
)
from kernelweave.compiled.gaussians import (
    Batch,
    contract_rectangle,
    quad,
    rectangle,
    rectangle_products,
    square_products,
    weighted_rectangle,
)
from kernelweave.compiled.threads import map_blocks
from kernelweave.errors import InvalidInputError
from kernelweave.kernels.base import ElementwiseForm
from kernelweave.kernels.columns import Block
from kernelweave.kernels.names import BatchNames
from kernelweave.kernels.normalize import Normalization
from kernelweave.kernels.rbf import RBFBatch
from kernelweave.kernels.samples import Samples
from kernelweave.memory import require_bytes
from kernelweave.operators.base import (
    Array,
    ErrorBound,
    KernelOperator,
    Kind,
    Which,
    as_tasks,
    kernel_indices,
    same_samples,
    sample_indices,
)
from kernelweave.operators.computed import check_columns
from kernelweave.operators.running import BatchProducts
from kernelweave.validation import require_kind

__all__ = ["GaussianOperator"]

# Parts that a small sum of many kernels is cut into.
_GROUPS = 8
# Scaled columns are kept within this, so that no sum of squares overflows.
_LIMITS = {"float32": 1e16, "float64": 1e150}
_STATE = ("batch", "samples", "normalization", "_all")


class Table:
    """Samples on one side of the operator: one row a column of the data."""

    def __init__(self, values: Array) -> None:
        self.values, self.n = np.ascontiguousarray(values), values.shape[1]

    def take(self, idx: Array) -> Table:
        """Return some of the samples."""
        return Table(self.values[:, idx])


class GaussianOperator(KernelOperator):
    r"""The Gaussian kernels of an `RBFBatch`, on few columns each, some bytes a kernel.

    Every pass evaluates the kernels anew, each pair of samples once, with the exponential, the
    distance and the sum in one compiled loop: a pass over a million kernels takes seconds and no
    memory. In float32 every value is known to

    .. math:: |\Delta K_{ij}| \le 2^{-24} \big(11 + 0.4\,(|S_k| + 3)
              + 1.5 \sqrt{\gamma_k \log_2 e}\; R_k \big),

    where :math:`R_k` is the radius of the box around the samples in the columns of kernel k. The
    terms are the exponential and the sums, the squares, and the rounding of the columns. This
    bound enters the certificate.

    Parameters
    ----------
    batch : RBFBatch
        The kernels.
    samples : Samples
        The training samples.
    normalize : {"trace", "diagonal"}, None or tuple of these, default="trace"
        All are the same here: a Gaussian kernel has a diagonal of ones.

    Attributes
    ----------
    names : sequence of str
        Names, written when they are read. Kernels that are equal have equal names.
    columns, gamma : arrays of shape (m, max_size) and (m,)
        The kernels; columns are rows of the tables of samples, filled up with -1.
    dtype : {"float64", "float32"}
        Type of the arithmetic; sums are float64. See `in_type`.

    Examples
    --------
    >>> batch = RBFBatch([[0, -1], [0, 1]], [1.0, 0.5])
    >>> kernels = GaussianOperator(batch, Samples([[0.0, 0.0], [1.0, 1.0]]))
    >>> kernels.in_type("float32").quad(np.array([1.0, 1.0])).round(3)
    array([2.736, 2.736])
    >>> kernels.against([[1.0, 0.0]]).block().round(3)
    array([[[0.368, 1.   ]],
    <BLANKLINE>
           [[0.607, 0.607]]])
    """

    # One pass adds up all kernels, as fast as it would take to compute a few rows of each.
    matrix_limit = 20_000
    dtype = "float64"
    # Type of sums of kernels.
    _sums = np.dtype(np.float64)
    names: BatchNames

    def __init__(self, batch: RBFBatch, samples: Samples, normalize: Any = "trace") -> None:
        self.normalization = Normalization.parse(normalize)
        if "center" in self.normalization.names:
            raise InvalidInputError(
                f"kernels of an RBFBatch are not stored and cannot be centred; got "
                f"normalize={normalize!r}. Allowed: 'trace', 'diagonal' or None, which are all "
                f"the same for them, because their diagonal is one."
            )
        self.batch = batch
        self.samples = samples
        self._all = batch.selection.bind(samples)
        self._look()

    def _look(self) -> None:
        """Take from the samples what the kernels read."""
        batch, samples = self.batch, self.samples
        seen = samples.derive(self._all)
        columns, self.gamma = batch.checked(seen.n_columns)
        used, positions = np.unique(columns, return_inverse=True)
        filled = int(used[0] == -1)
        self.columns = (positions.reshape(columns.shape) - filled).astype(np.int32)
        titles = seen.columns
        own = [int(j) for j in used[filled:]]
        names = None if titles is None else [titles[j] for j in own]
        self._used = Block(own, seen.n_columns, names, "")
        values = self._values(samples)
        # Small numbers are rounded least: the middle of the range is the best place for zero.
        self._shift = 0.5 * (values.min(axis=0) + values.max(axis=0))
        self._train = self._left = self._right = Table((values - self._shift).T)
        suffix = f" via {self._all.label.partition(' via ')[2]}" if batch.transformer else ""
        self.names = BatchNames(columns, self.gamma, titles, suffix)
        self.m = len(self.gamma)
        # Which kernels of the batch these are, if not all.
        self._members: Array | None = None

    def __getstate__(self) -> dict[str, Any]:
        if not (self._left is self._right is self._train is not None):
            return {name: own for name, own in self.__dict__.items() if name != "compiled"}
        # The rest is the samples and the batch once more.
        state = {name: self.__dict__[name] for name in _STATE}
        if self._members is not None:
            columns, gamma = np.asarray(self.batch.columns), np.asarray(self.batch.gamma)
            own, transformer = self._members, self.batch.transformer
            state["batch"] = RBFBatch(columns[own], gamma[own], transformer=transformer)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if "gamma" not in state:
            self._look()

    def _after_load(self) -> None:
        require_kind("the normalization", self.normalization, Normalization)
        if "center" in self.normalization.names:
            raise InvalidInputError("kernels of an RBFBatch cannot be centred.")
        # Whatever else the file holds is not to be believed.
        self.__dict__ = {name: self.__dict__[name] for name in _STATE}
        self._look()

    def __repr__(self) -> str:
        return f"GaussianOperator(n={self.n}, m={self.m}, {self.normalization!r})"

    # Both sides

    @property
    def n(self) -> int:  # type: ignore[override]
        return self._right.n

    @property
    def shape(self) -> tuple[int, int]:
        return self._left.n, self._right.n

    @property
    def nbytes(self) -> int:
        """Bytes of the columns and of what describes the kernels."""
        tables = self._right.values.nbytes + self.gamma.nbytes
        return int(tables + sum(a.nbytes for a in self.compiled))

    def _values(self, samples: Samples) -> Array:
        values = samples.derive(self._all).derive(self._used).array()
        return values.toarray() if samples.derive(self._all).is_sparse else values

    def _table(self, X: Any) -> Table:
        return Table((self._values(check_columns(X, self.samples)) - self._shift).T)

    def against(self, X: Any) -> GaussianOperator:
        return self.of_rows(self._table(X), self._train)

    def between(self, X: Any, Z: Any) -> GaussianOperator:
        left = self._table(X)
        return self.of_rows(left, left if Z is X else self._table(Z))

    def of_rows(self, left: Table, right: Table) -> GaussianOperator:
        """Return the kernels between other samples."""
        return self._but(_left=left, _right=right)

    def _but(self, **changes: Any) -> GaussianOperator:
        out = super()._but(**changes)
        out.__dict__.pop("compiled", None)
        return out

    def in_type(self, dtype: str) -> GaussianOperator:
        """Return the same kernels with arithmetic of that type."""
        return self._but(dtype=dtype)

    def part(
        self, rows: Which = None, columns: Which = None, dtype: DTypeLike = np.float64
    ) -> KernelOperator:
        left, right = self._left, self._right
        square = left is right and same_samples(rows, columns)
        if rows is not None:
            left = left.take(sample_indices(rows, left.n))
        if columns is not None:
            right = left if square else right.take(sample_indices(columns, right.n))
        return self._but(_left=left, _right=right, _sums=np.dtype(dtype))

    def take(self, idx: Array) -> GaussianOperator:
        few = self._right.take(sample_indices(idx, self.n))
        return self.of_rows(few, few)

    def select(self, kernels: Array) -> GaussianOperator:
        chosen = kernel_indices(kernels, self.m)
        return self._but(
            columns=self.columns[chosen],
            gamma=self.gamma[chosen],
            names=self.names.select(chosen),
            m=len(chosen),
            _members=chosen if self._members is None else self._members[chosen],
        )

    def pack(self, idx: Array) -> Array:
        """Return training samples as they travel."""
        return self._train.values[:, idx]

    def open(self, packed: Array) -> Table:
        """Return what `pack` made ready for `of_rows`."""
        return Table(packed)

    def without_samples(self) -> GaussianOperator:
        """Return the kernels and no sample."""
        return self._but(batch=None, samples=None, _train=None, _left=None, _right=None)

    @cached_property
    def compiled(self) -> Batch:
        """What compiled code knows of the kernels, see `kernelweave.compiled.gaussians`.

        The factors sqrt(gamma log2(e)) turn columns of the tables into exponents of two.
        """
        tables = (self._left.values, self._right.values)
        largest = max(float(np.abs(table).max(initial=0.0)) for table in tables)
        roots = np.sqrt(self.gamma) * math.sqrt(math.log2(math.e))
        roots = np.minimum(roots, _LIMITS[self.dtype] / max(largest, 1e-150))
        return self.columns, roots, np.empty(0, self.dtype)

    # Values

    def block(
        self, rows: Which = None, columns: Which = None, kernels: Which = None, dtype: Kind = None
    ) -> Array:
        if rows is not None or columns is not None:
            return self.part(rows, columns).block(None, None, kernels, dtype)
        chosen = kernel_indices(kernels, self.m)
        kind = np.dtype(self.dtype if dtype is None else dtype)
        needed = float(len(chosen)) * self.shape[0] * self.shape[1] * kind.itemsize
        require_bytes(needed, f"{self.shape[0]} rows of {len(chosen)} kernels")
        out = np.empty((len(chosen), *self.shape), kind)

        def work(start: int, stop: int) -> None:
            left, right = self._left.values, self._right.values
            rectangle(left, right, self.compiled, chosen[start:stop], out[start:stop])

        if out.size:
            map_blocks(work, len(chosen), *gaussian_kernels(len(chosen), out[0].size))
        return out

    def diagonal(self, kernels: Which = None) -> Array:
        """Return the diagonals: ones, in a view that takes no memory."""
        return np.broadcast_to(1.0, (len(kernel_indices(kernels, self.m)), self.n))

    def weighted(
        self, d: ArrayLike, rows: Which = None, columns: Which = None, out: Array | None = None
    ) -> Array:
        """See :class:`KernelOperator`; of a square only one side of the diagonal is computed."""
        if rows is not None or columns is not None:
            return self.part(rows, columns).weighted(d, out=out)
        weights = np.asarray(d, dtype=np.float64)
        active = np.flatnonzero(weights)
        q, s = self.shape
        out = self._sum_memory(q, s, self._sums) if out is None else out
        mirrored = self._left is self._right
        tiles = [
            (slice(i, min(i + GAUSSIAN_TILE, q)), slice(j, min(j + GAUSSIAN_COLUMNS, s)))
            for i in range(0, q, GAUSSIAN_TILE)
            for j in range(i if mirrored else 0, s, GAUSSIAN_COLUMNS)
        ]
        # Small sums of many kernels are cut by kernels, too: there are few tiles for threads.
        groups = _GROUPS if out.size <= SHARED_CACHE_ENTRIES and len(active) >= 512 else 1
        some = np.array_split(active, groups)
        parts = out[None] if groups == 1 else np.empty((groups, q, s))

        def work(start: int, stop: int) -> None:
            for item in range(start, stop):
                g, (top, run) = item % groups, tiles[item // groups]
                left = np.ascontiguousarray(self._left.values[:, top])
                right = np.ascontiguousarray(self._right.values[:, run])
                above = mirrored and top.start == run.start
                sums = weighted_rectangle(
                    left, right, self.compiled, some[g], weights[some[g]], above
                )
                parts[g, top, run] = sums
                if mirrored:
                    parts[g, run, top] = sums.T

        map_blocks(work, len(tiles) * groups, 1, GAUSSIAN_WORK * len(active) * out.size)
        if groups > 1:
            np.sum(parts, axis=0, out=out)
        return out

    def contract(self, M: ArrayLike) -> NDArray[np.float64]:
        weights = np.ascontiguousarray(M, dtype=np.float64)
        left, right, out = self._left.values, self._right.values, np.zeros(self.m)

        def work(start: int, stop: int) -> None:
            kernels = np.arange(start, stop)
            contract_rectangle(left, right, self.compiled, kernels, weights, out[start:stop])

        if weights.size:
            map_blocks(work, self.m, *gaussian_kernels(self.m, weights.size))
        return out

    # Products

    def _supported(self, v: Array) -> tuple[Array, Array, Array]:
        """Return where v is not zero, its values there, and the samples there."""
        tasks = as_tasks(v)
        support = np.flatnonzero(tasks.any(axis=0))
        values = np.ascontiguousarray(tasks[:, support])
        return support, values, self._right.take(support).values

    def quad(self, v: Array, kernels: Which = None) -> Array:
        chosen = kernel_indices(kernels, self.m)
        support, values, table = self._supported(v)
        out = np.zeros(len(chosen))
        if not len(support):
            return out

        def work(start: int, stop: int) -> None:
            quad(table, self.compiled, chosen[start:stop], values, out[start:stop])

        map_blocks(work, len(chosen), *gaussian_kernels(len(chosen), len(support) ** 2 / 2))
        # These kernels are positive semi-definite: anything below zero is rounding.
        return np.maximum(out, 0.0)

    def _multiply(self, v: Array) -> tuple[Callable[[Array], Array], float]:
        """Return kernels -> K_k v of each, (len(kernels), T, n), and the values that one takes."""
        support, values, table = self._supported(v)
        rest = np.setdiff1d(np.arange(self.n), support, assume_unique=True)
        others = self._right.take(rest).values

        def products(kernels: Array) -> Array:
            shape = (len(kernels), len(values))
            out = np.zeros((*shape, self.n))
            if len(support):
                inside, outside = np.empty((*shape, len(support))), np.empty((*shape, len(rest)))
                batch = self.compiled
                square_products(table, batch, kernels, values, inside)
                rectangle_products(others, table, batch, kernels, values, outside)
                out[:, :, support], out[:, :, rest] = inside, outside
            return out

        return products, len(support) * (self.n - len(support) / 2)

    def apply(self, v: Array, kernels: Which = None, rows: Which = None) -> Array:
        chosen, tasks = kernel_indices(kernels, self.m), len(as_tasks(v))
        height = self.shape[0] if rows is None else len(rows)
        require_bytes(8.0 * len(chosen) * tasks * height, f"products with {len(chosen)} kernels")
        out = np.zeros((len(chosen), tasks, height))
        if rows is None and self._left is self._right:
            products, entries = self._multiply(v)

            def work(start: int, stop: int) -> None:
                out[start:stop] = products(chosen[start:stop])

        else:
            support, values, table = self._supported(v)
            left = (self._left if rows is None else self._left.take(rows)).values
            entries = float(len(support)) * height

            def work(start: int, stop: int) -> None:
                if len(support):
                    some = chosen[start:stop]
                    rectangle_products(left, table, self.compiled, some, values, out[start:stop])

        if height:
            map_blocks(work, len(chosen), *gaussian_kernels(len(chosen), entries))
        return out if np.ndim(v) == 2 else out[:, 0]

    def quad_and_product(self, v: Array, d: Array) -> tuple[Array, Array]:
        """See :class:`KernelOperator`; kernels of weight zero cost no more than in `quad`."""
        tasks = as_tasks(v)
        unused, used = np.flatnonzero(d == 0), np.flatnonzero(d)
        quads = np.empty(self.m)
        quads[unused] = self.quad(v, unused)
        products, entries = self._multiply(v)
        few, cost = gaussian_kernels(len(used), entries)
        block = max(1, -(-len(used) // SUM_PARTS))
        parts = np.zeros((SUM_PARTS, *tasks.shape))

        def work(start: int, stop: int) -> None:
            for first in range(start, stop, few):
                some = used[first : min(first + few, stop)]
                found = products(some).reshape(len(some), -1)
                quads[some] = found @ tasks.ravel()
                parts[start // block] += (d[some] @ found).reshape(tasks.shape)

        map_blocks(work, len(used), block, cost)
        return np.maximum(quads, 0.0), parts.sum(axis=0)

    def running(self) -> BatchProducts:
        return BatchProducts(self, self._right.values, self.compiled)

    # What representations are made from

    def formula(self, k: int) -> tuple[ElementwiseForm, Array]:
        columns = self.columns[k]
        block = np.ascontiguousarray(self._right.values[columns[columns >= 0]].T)
        return ElementwiseForm("sqdist", 0, float(self.gamma[k])), block

    # How exact the answers are

    def error(self, v: Array, d: Array) -> ErrorBound:
        """Error of float32 arithmetic; see the class."""
        if self.dtype == "float64":
            return ErrorBound.none(self.m)
        unit = self._unit()
        weight = np.abs(as_tasks(v)).sum(axis=1)
        bound = unit * float((weight**2).sum())
        product = np.repeat(float(unit @ d) * weight[:, None], self.n, axis=1)
        return ErrorBound(bound, bound, product)

    def _unit(self) -> Array:
        """Bound on the error of one kernel value, for every kernel.

        With eps = 2^-24, scaled columns b and z = |b_i - b_j|^2: rounding b moves z by at most
        4 eps sqrt(z) |b|, and squares and sums by (size + 3) eps z; 2^-z changes by ln 2 times
        that times 2^-z, where sqrt(z) 2^-z <= 0.516 and z 2^-z <= 0.54. The polynomial and its
        rounding add 4 eps, a sum of eight products 6 eps, and rounding v one.
        """
        peaks = np.abs(self._right.values).max(axis=1) ** 2
        box, size = np.zeros(self.m), np.zeros(self.m)
        for column in self.columns.T:
            there = column >= 0
            size += there
            box += np.where(there, peaks[column], 0.0)
        error = 11.0 + 0.4 * (size + 3.0) + 1.5 * self.compiled[1] * np.sqrt(box)
        return np.minimum(2.0**-24 * error, 1.0)

    def refined(self) -> GaussianOperator | None:
        """Return the same kernels in float64 arithmetic."""
        return None if self.dtype == "float64" else self.in_type("float64")

    def exact(self) -> GaussianOperator:
        return self.refined() or self
