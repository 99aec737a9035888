"""Gaussian kernels that are computed in every pass and never stored."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from kernelweave.cached import cached_property
from kernelweave.compiled.blocks import (
    GAUSSIAN_TILE,
    GAUSSIAN_VALUES,
    GAUSSIAN_WORK,
    MIRROR_ROWS,
    SHARED_CACHE_ENTRIES,
    STACK_ENTRIES,
    gaussian_blocks,
)
from kernelweave.compiled.gaussians import (
    Batch,
    quad,
    rectangle,
    weighted_rows,
)
from kernelweave.compiled.matrix_checks import mirror_rows
from kernelweave.compiled.threads import map_blocks
from kernelweave.errors import InvalidInputError
from kernelweave.kernels.base import ElementwiseForm
from kernelweave.kernels.batch import RBFBatch
from kernelweave.kernels.names import BatchNames
from kernelweave.kernels.normalize import Normalization
from kernelweave.kernels.samples import Samples
from kernelweave.memory import require_bytes
from kernelweave.operators.base import (
    Array,
    ErrorBound,
    KernelOperator,
    Which,
    as_tasks,
    kernel_indices,
    power_of_two,
    same_samples,
    sample_indices,
)
from kernelweave.operators.computed import ComputedOperator
from kernelweave.operators.distance_parts import Columns, squared_columns
from kernelweave.operators.sampled import SampledOperator
from kernelweave.validation import require_kind

# Parts that a small sum of many kernels is cut into.
_GROUPS = 8
# Scaled columns are kept within this, so that no sum of squares overflows.
_LIMITS = {"float32": 1e16, "float64": 1e150}
# From this many columns on their distances are computed faster by BLAS.
_MOST_COLUMNS = 128
# Computed when it is first asked for.
_DERIVED = ("compiled", "_unit")
_STATE = ("batch", "samples", "normalization", "_all")


class Table:
    """Samples on one side of the operator: one row a column of the data."""

    def __init__(self, values: Array) -> None:
        self.values, self.n = np.ascontiguousarray(values), values.shape[1]

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
        self.batch, self.samples = None, kernels.samples
        self.normalization, self.names = kernels.normalization, kernels.names
        located = []
        # Gaussian kernels are as they are, but predictions ask for the constants of all kernels.
        kernels.learn(range(kernels.m))
        for k in range(kernels.m):
            found = gaussian_columns(kernels, k)
            if found is None:
                raise InvalidInputError(
                    f"kernel '{kernels.names[k]}' is not a Gaussian kernel on at most "
                    f"{_MOST_COLUMNS} dense columns, or centred; use bank='auto'."
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
        return self._but(batch=None, samples=None, _train=None, _left=None, _right=None)

    @cached_property
    def compiled(self) -> Batch:
        """What compiled code knows of the kernels, see `kernelweave.compiled.gaussians`.

        The factors sqrt(gamma log2(e)) turn columns of the tables into exponents of two.
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
        # In float64 differences are taken of the columns as they are, which rounds nothing else.
        scale = 0.0 if single else min(1.0, limit / float(peaks.max()))
        return self.columns, roots, shift, scale, np.empty(0, self.dtype)

    # Values

    def block(self, rows: Which = None, columns: Which = None, kernels: Which = None) -> Array:
        if rows is not None or columns is not None:
            return self.part(rows, columns).block(None, None, kernels)
        chosen = kernel_indices(kernels, self.m)
        kind = np.dtype(self.dtype)
        needed = float(len(chosen)) * self.shape[0] * self.shape[1] * kind.itemsize
        require_bytes(needed, f"{self.shape[0]} rows of {len(chosen)} kernels")
        out, none = np.empty((len(chosen), *self.shape), kind), np.empty((0, 0))

        def work(kernels: slice, rows: slice) -> None:
            left = np.ascontiguousarray(self._left.values[:, rows])
            some = out[kernels, rows]
            rectangle(left, self._right.values, self.compiled, chosen[kernels], none, some)

        _pass(work, len(chosen), self.shape[0], float(out[0].size) if len(chosen) else 0.0)
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
        lower = self._left is self._right
        left, right = self._left.values, self._right.values
        # Small sums of many kernels are cut by kernels, too: there are few rows for threads.
        groups = _GROUPS if out.size <= SHARED_CACHE_ENTRIES and len(active) >= 512 else 1
        some = np.array_split(active, groups)
        parts = out[None] if groups == 1 else np.empty((groups, q, s))
        values = max(1.0, float(len(active)) * s / (2 if lower else 1))
        height = max(1, int(GAUSSIAN_VALUES / values) // GAUSSIAN_TILE) * GAUSSIAN_TILE
        down = -(-q // height)

        def work(start: int, stop: int) -> None:
            for item in range(start, stop):
                # The last rows are the longest of one side of the diagonal.
                g, i = item % groups, (down - 1 - item // groups) * height
                last = min(i + height, q)
                own = some[g], weights[some[g]]
                weighted_rows(left, right, self.compiled, *own, i, last, lower, parts[g])

        map_blocks(work, down * groups, 1, GAUSSIAN_WORK * len(active) * out.size)
        if groups > 1:
            np.sum(parts, axis=0, out=out)
        if lower:
            map_blocks(lambda a, b: mirror_rows(out, a, b), q, MIRROR_ROWS, float(out.size))
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
        scale = power_of_two(values)
        values /= scale
        entries = len(support) ** 2 / 2
        height = gaussian_blocks(len(chosen), len(support), entries)[1]
        parts = np.zeros((max(1, -(-len(support) // height)), len(chosen)))

        def work(kernels: slice, rows: slice) -> None:
            own = parts[rows.start // height, kernels]
            quad(table, self.compiled, chosen[kernels], values, rows.start, rows.stop, own)

        _pass(work, len(chosen), len(support), entries)
        # These kernels are positive semi-definite: anything below zero is rounding.
        return scale**2 * np.maximum(parts.sum(axis=0), 0.0)

    def _apply(self, tasks: Array, chosen: Array, rows: Which) -> Array:
        left = (self._left if rows is None else self._left.take(rows)).values
        height = left.shape[1]
        entries = len(chosen) * len(tasks) * height
        if entries > STACK_ENTRIES:
            require_bytes(8.0 * entries, f"products with {len(chosen)} kernels")
        out = np.zeros((len(chosen), len(tasks), height))
        _, values, table = self._supported(tasks)

        def work(kernels: slice, rows: slice) -> None:
            some, here = out[kernels, :, rows], np.ascontiguousarray(left[:, rows])
            rectangle(here, table, self.compiled, chosen[kernels], values, some)

        _pass(work, len(chosen), height, float(height) * table.shape[1])
        return out

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
        error = 12.0 + 0.4 * (size + 3.0) + 1.5 * self.compiled[1] * np.sqrt(box)
        return np.minimum(2.0**-24 * error, 1.0)

    def refined(self) -> GaussianOperator | None:
        return None if self.dtype == "float64" else self.in_type("float64")

    def exact(self) -> GaussianOperator:
        return self.refined() or self


def _pass(work: Callable[[slice, slice], None], count: int, rows: int, entries: float) -> None:
    """Call ``work(kernels, rows)`` for blocks of so many kernels and rows, on threads."""
    if not count or not entries:
        return
    kernels, height, multiplications = gaussian_blocks(count, rows, entries)
    down = -(-rows // height)

    def block(first: int, last: int) -> None:
        for item in range(first, last):
            across, i = divmod(item, down)
            here = slice(i * height, min((i + 1) * height, rows))
            work(slice(across * kernels, min((across + 1) * kernels, count)), here)

    map_blocks(block, -(-count // kernels) * down, 1, multiplications)


def gaussian_columns(
    kernels: ComputedOperator, k: int
) -> tuple[float, tuple[Any, ...], list[int]] | None:
    """Return gamma and the columns of kernel k if it is Gaussian, dense and not centred.

    The columns are blocks that end in a transformer, and places behind them.
    """
    kernel = kernels.kernels[k]
    form = kernel.core.form()
    if form is None or (form.ingredient, form.code) != ("sqdist", 0):
        return None
    seen = kernels.samples.through(kernel.path)
    if seen.is_sparse or seen.n_columns > _MOST_COLUMNS or "center" in kernels.normalization.names:
        return None
    return form.p0, *squared_columns(kernel.path, kernels.samples)
