"""Gaussian kernels that are computed in every pass and never stored."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from kernelweave.arrays import Array
from kernelweave.cached import cached_property
from kernelweave.compiled.blocks import (
    GAUSSIAN_COLUMNS,
    GAUSSIAN_PARTS,
    GAUSSIAN_ROWS,
    GAUSSIAN_TILE,
    GAUSSIAN_VALUES,
    GAUSSIAN_WORK,
    MIRROR_ROWS,
    STACK_ENTRIES,
)
from kernelweave.compiled.dense_rows import mirror_rows, read_only
from kernelweave.compiled.gaussians import Kernels, add_products, gaussian_blocks, write_sums
from kernelweave.compiled.threads import map_blocks
from kernelweave.errors import InvalidInputError
from kernelweave.kernels.base import ElementwiseForm
from kernelweave.kernels.batch import RBFBatch
from kernelweave.kernels.names import BatchNames
from kernelweave.kernels.normalize import Normalization
from kernelweave.kernels.samples import Samples
from kernelweave.memory import require_bytes
from kernelweave.operators.base import (
    KernelOperator,
    Which,
    as_tasks,
    kernel_indices,
    same_samples,
    sample_indices,
)
from kernelweave.operators.bounds import ErrorBound
from kernelweave.operators.computed import ComputedOperator
from kernelweave.operators.sampled import MOST_COLUMNS, Columns, SampledOperator, gaussian_columns
from kernelweave.validation import require_kind

# Scaled columns are kept within this, so that no sum of squares overflows.
_LIMITS = {"float32": 1e16, "float64": 1e150}
# Computed when it is first asked for.
_DERIVED = ("_scaled", "_unit")
_STATE = ("batch", "samples", "normalization", "_all")


class Table:
    """Samples on one side of the operator: one row a column of the data."""

    def __init__(self, values: Array) -> None:
        self.values, self.n = read_only(np.ascontiguousarray(values)), values.shape[1]

    def take(self, idx: Array) -> Table:
        return Table(self.values[:, idx])


class GaussianOperator(SampledOperator):
    r"""Gaussian kernels on dense columns, some bytes a kernel.

    Every pass evaluates the kernels anew, each pair of samples once, with the exponential, the
    distance and the sum in one compiled loop: a pass over a million kernels takes seconds and no
    memory. Neighbours on the same columns share the distances. In float32 every value is known to

    .. math:: |\Delta K_{ij}| \le 2^{-24} \big(12 + 0.4\,(|S_k| + 3)
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

    # One pass adds up all kernels, as fast as it would take to compute a few rows of each. In
    # float32 this is a matrix of 268 MB, and one that SMO uses as it is.
    matrix_limit = 8192
    # Type of sums of kernels.
    _sums = np.dtype(np.float64)
    # The kernels which these were found among, all of them.
    _found: ComputedOperator | None = None
    names: Any

    def __init__(self, batch: RBFBatch, samples: Samples, normalize: Any = "trace") -> None:
        self.normalization = Normalization.parse(normalize)
        if "center" in self.normalization.names:
            raise InvalidInputError(
                f"kernels of an RBFBatch are not stored and cannot be centred; got "
                f"normalize={normalize!r}. Allowed: 'trace', 'diagonal' or None, which are all "
                f"the same for them, because their diagonal is one."
            )
        self.batch: Any = batch
        self.samples = samples
        self._all = batch.selection.bind(samples)
        self._look()

    @classmethod
    def of(cls, kernels: ComputedOperator) -> GaussianOperator:
        """Return the Gaussian kernels that `gaussian_columns` finds among others, for a search."""
        self = cls.__new__(cls)
        self.batch, self.samples, self._found = None, kernels.samples, kernels
        self.normalization, self.names = kernels.normalization, kernels.names
        located = []
        # Gaussian kernels are as they are, but predictions ask for the constants of all kernels.
        kernels.learn(range(kernels.m))
        for k in range(kernels.m):
            found = gaussian_columns(kernels, k)
            if found is None:
                raise InvalidInputError(
                    f"kernel '{kernels.names[k]}' is not a Gaussian kernel on at most "
                    f"{MOST_COLUMNS} dense columns, or centred; use bank='auto'."
                )
            located.append(found)
        self.gamma = np.array([gamma for gamma, *_ in located])
        read = Columns([(root, columns) for _, root, columns in located], kernels.samples)
        self.columns = np.full((kernels.m, max(map(len, read.places))), -1, np.int32)
        for own, places in zip(self.columns, read.places, strict=True):
            own[: len(places)] = places
        self._keep(read)
        return self

    def _look(self) -> None:
        """Take from the samples what the kernels of a batch read."""
        batch, samples = self.batch, self.samples
        seen = samples.derive(self._all)
        columns, self.gamma = batch.checked(seen.n_columns)
        used, positions = np.unique(columns, return_inverse=True)
        filled = int(used[0] == -1)
        own = [int(j) for j in used[filled:]]
        self.columns = (positions.reshape(columns.shape) - filled).astype(np.int32)
        suffix = f" via {self._all.label.partition(' via ')[2]}" if batch.transformer else ""
        self.names = BatchNames(columns, self.gamma, seen.columns, suffix)
        self._keep(Columns([((self._all,), own)], samples))

    def _keep(self, read: Columns) -> None:
        """Keep the columns of the samples that kernels read."""
        self._read = read
        self._train = self._left = self._right = table = self._side(self.samples)
        # Small numbers are rounded least: the middle of the range is the best place for zero.
        self._shift = 0.5 * table.values.min(axis=1) + 0.5 * table.values.max(axis=1)
        self.m = len(self.gamma)
        # Which kernels of the batch these are, if not all.
        self._members: Array | None = None

    def __getstate__(self) -> dict[str, Any]:
        if self.batch is None or not (self._left is self._right is self._train is not None):
            return {name: own for name, own in self.__dict__.items() if name not in _DERIVED}
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

    # Other kernels and samples

    def _side(self, new: Samples) -> Table:
        return Table(self._read.values(new).T)

    def _but(self, **changes: Any) -> GaussianOperator:
        out = super()._but(**changes)
        for name in _DERIVED:
            out.__dict__.pop(name, None)
        return out

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
            names=self.names.select(chosen)
            if isinstance(self.names, BatchNames)
            else [self.names[k] for k in chosen],
            m=len(chosen),
            _members=chosen if self._members is None else self._members[chosen],
        )

    def pack(self, idx: Array) -> Any:
        return self._train.take(idx)

    def without_samples(self) -> GaussianOperator:
        return self._but(
            batch=None, samples=None, _found=None, _train=None, _left=None, _right=None
        )

    @cached_property
    def _scaled(self) -> tuple[Array, Array, float]:
        """Factors sqrt(gamma log2(e)) of columns, what is subtracted before, and a common scale.

        The factors turn columns of the tables into exponents of two. In float64 differences are
        taken of the columns as they are, which rounds nothing else; in float32 no scale is common.
        """
        single = self.dtype == "float32"
        shift = self._shift if single else np.zeros_like(self._shift)
        tables = [self._left.values, self._right.values][: 1 + (self._left is not self._right)]
        peaks = np.max(
            [np.abs(table - shift[:, None]).max(axis=1, initial=1e-150) for table in tables], axis=0
        )
        # Each kernel by its own columns: huge numbers in others do not concern it.
        own = np.full(self.m, 1e-150)
        for column in self.columns.T:
            own = np.maximum(own, np.where(column >= 0, peaks[column], 0.0))
        limit = _LIMITS[self.dtype]
        roots = np.minimum(np.sqrt(self.gamma) * math.sqrt(math.log2(math.e)), limit / own)
        return roots, shift, 0.0 if single else min(1.0, limit / float(peaks.max()))

    def compiled(self, chosen: Array) -> Kernels:
        """What `kernelweave.compiled.gaussians` knows of these kernels.

        Neighbours on the same columns share the distances, which are those of the narrowest.
        """
        roots, shift, scale = self._scaled
        columns, roots = self.columns[chosen], roots[chosen]
        alike = (columns[1:] == columns[:-1]).all(axis=1)
        starts = np.flatnonzero(np.append([True], ~alike)[: len(roots)])
        lengths = np.diff(starts, append=len(roots))
        if scale == 0.0 and len(starts):
            scales = np.repeat(np.maximum(np.maximum.reduceat(roots, starts), 1e-300), lengths)
        else:
            scales = np.full(len(roots), scale)
        ratios = np.minimum((roots / scales) ** 2, np.finfo(self.dtype).max)
        return columns, scales, ratios, np.repeat(starts + lengths, lengths), shift

    def workspace(self) -> Array:
        """Return memory for a pass of compiled code on one thread."""
        height = 2 * self.columns.shape[1] + 2 * GAUSSIAN_ROWS
        return np.zeros((height, GAUSSIAN_COLUMNS), self.dtype)

    # Values

    def block(self, rows: Which = None, columns: Which = None, kernels: Which = None) -> Array:
        if rows is not None or columns is not None:
            return self.part(rows, columns).block(None, None, kernels)
        chosen = kernel_indices(kernels, self.m)
        kind, (q, s) = np.dtype(self.dtype), self.shape
        needed = float(len(chosen)) * q * s * kind.itemsize
        require_bytes(needed, f"{q} rows of {len(chosen)} kernels")
        out, ones = np.empty((len(chosen), q, s), kind), np.ones(len(chosen))
        left, right, compiled = self._left.values, self._right.values, self.compiled(chosen)
        blocks, _, work = gaussian_blocks(len(chosen), q, float(q * s))

        def fill(first: int, last: int) -> None:
            memory, no_sums = self.workspace(), np.empty((GAUSSIAN_TILE, 0))
            for own in blocks[first:last]:
                write_sums(left, right, compiled, ones, *own, False, True, 0, memory, no_sums, out)

        map_blocks(fill, len(blocks), 1, work)
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
        weights, compiled = weights[active], self.compiled(active)
        q, s = self.shape
        out = self._sum_memory(q, s, self._sums) if out is None else out
        if not len(active):
            out[...] = 0.0
            return out
        lower, every = self._left is self._right, (0, len(active))
        left, right = self._left.values, self._right.values
        # Of few samples fewer rows at a time, so that there are enough for threads.
        tile = GAUSSIAN_TILE if q > GAUSSIAN_PARTS * GAUSSIAN_TILE else GAUSSIAN_ROWS
        values = max(1.0, float(len(active)) * s / (2 if lower else 1))
        height = max(1, int(GAUSSIAN_VALUES / values) // tile) * tile
        starts = range(0, q, height)[::-1]

        def fill(first: int, last: int) -> None:
            memory, inner = self.workspace(), np.empty((tile, GAUSSIAN_COLUMNS))
            few = np.empty((1, tile, s), self.dtype)
            # The last rows are the longest of one side of the diagonal: they come first.
            for start in starts[first:last]:
                for top in range(start, min(start + height, q), tile):
                    end = min(top + tile, q)
                    how = every, (top, end), lower, False, top
                    write_sums(left, right, compiled, weights, *how, memory, inner, few)
                    written = end if lower else s
                    out[top:end, :written] = few[0, : end - top, :written]

        map_blocks(fill, len(starts), 1, GAUSSIAN_WORK * len(active) * out.size)
        if lower:
            map_blocks(lambda a, b: mirror_rows(out, a, b), q, MIRROR_ROWS, float(out.size))
        return out

    # Products

    def _products(self, left: Array | None, tasks: Array, chosen: Array) -> Array:
        """Return K_k v for each of the tasks, or v'K_k v of all of them, (m, 1), without `left`."""
        support = np.flatnonzero(tasks.any(axis=0))
        # Padded with zeros: quadratic forms take eight rows at a time.
        values = np.zeros((len(tasks), -(-len(support) // GAUSSIAN_ROWS) * GAUSSIAN_ROWS))
        values[:, : len(support)] = tasks[:, support]
        right = self._right.take(support).values
        whole = right if left is None else left
        rows, count = whole.shape[1], len(support)
        entries = float(rows) * count / (2 if left is None else 1)
        blocks, height, work = gaussian_blocks(len(chosen), rows, entries)
        parts = -(-rows // height)
        out = np.zeros((len(chosen), *((1, parts) if left is None else (len(tasks), rows))))
        compiled = self.compiled(chosen)

        def add(first: int, last: int) -> None:
            memory = self.workspace()
            for some, own in blocks[first:last]:
                part = own[0] // height if left is None else -1
                add_products(whole, right, compiled, values, some, own, part, memory, out)

        map_blocks(add, len(blocks), 1, work)
        return out

    def quad(self, v: Array, kernels: Which = None) -> Array:
        tasks = as_tasks(v)
        # Dual variables are as large as C, and may be beyond the range of float32 as they are.
        scale = np.abs(tasks).max(initial=0.0) or 1.0
        found = self._products(None, tasks / scale, kernel_indices(kernels, self.m))
        # These kernels are positive semi-definite: anything below zero is rounding.
        return scale**2 * np.maximum(found.sum(axis=(1, 2)), 0.0)

    def _apply(self, tasks: Array, chosen: Array, rows: Which) -> Array:
        left = self._left if rows is None else self._left.take(rows)
        entries = len(chosen) * len(tasks) * left.n
        if entries > STACK_ENTRIES:
            require_bytes(8.0 * entries, f"products with {len(chosen)} kernels")
        return self._products(left.values, tasks, chosen)

    @property
    def sample_columns(self) -> Array:
        values: Array = self._right.values
        return values

    # What representations are made from

    def formula(self, k: int) -> tuple[ElementwiseForm, Array]:
        columns = self.columns[k]
        block = np.ascontiguousarray(self._right.values[columns[columns >= 0]].T)
        return ElementwiseForm("sqdist", 0, float(self.gamma[k])), block

    # How exact the answers are

    def error(self, v: Array, d: Array) -> ErrorBound:
        if self.dtype == "float64":
            return ErrorBound.none(self.m)
        unit = self._unit
        weight = np.abs(as_tasks(v)).sum(axis=1)
        bound = unit * float((weight**2).sum())
        product = np.repeat(float(unit @ d) * weight[:, None], self.n, axis=1)
        return ErrorBound(bound, product)

    @cached_property
    def _unit(self) -> Array:
        """Bound on the error of one kernel value, for every kernel.

        With eps = 2^-24, scaled columns b and z = |b_i - b_j|^2: rounding b moves z by at most
        4 eps sqrt(z) |b|, and squares and sums by (size + 3) eps z; 2^-z changes by ln 2 times
        that times 2^-z, where sqrt(z) 2^-z <= 0.516 and z 2^-z <= 0.54. The ratio to the distances
        of another kernel and its product with them add 2 eps z, the polynomial and its rounding
        4 eps, a sum of eight products 6 eps, and rounding v one. (Sums of kernels, `weighted`, add
        up to 64 terms in float32: solvers search with them, and nothing is certified by them.)
        """
        peaks = np.abs(self._right.values - self._shift[:, None]).max(axis=1) ** 2
        box, size = np.zeros(self.m), np.zeros(self.m)
        for column in self.columns.T:
            there = column >= 0
            size += there
            box += np.where(there, peaks[column], 0.0)
        error = 12.0 + 0.4 * (size + 3.0) + 1.5 * self._scaled[0] * np.sqrt(box)
        return np.minimum(2.0**-24 * error, 1.0)

    def exact(self) -> KernelOperator:
        """See `KernelOperator`; where there is little to compute, another version compiles longer.

        So it is left to the kernels that these were found among, if there are any.
        """
        few = self.m * self.n**2 <= STACK_ENTRIES and self._left is self._right is self._train
        if self.dtype == "float64" or self._found is None or not few:
            return super().exact()
        found = self._found if self._members is None else self._found.select(self._members)
        promised = ("cache_mb", "work_bytes")
        return found._but(**{key: self.__dict__[key] for key in promised if key in self.__dict__})
