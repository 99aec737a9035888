"""A bank of very many Gaussian kernels that are computed in every pass and never stored."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from kernelweave.bank.memory import require_bytes
from kernelweave.bank.protocol import Array, ErrorBound, KernelBank, as_tasks, kernel_indices
from kernelweave.bank.running import BatchProducts
from kernelweave.compiled.batch import combine_tile, products, quad, quad_and_products
from kernelweave.compiled.batch_rectangle import rectangle_products
from kernelweave.compiled.batch_rows import BLOCK
from kernelweave.compiled.threads import map_blocks
from kernelweave.errors import InvalidInputError
from kernelweave.kernels.batch_set import BatchSet
from kernelweave.kernels.batch_tile import WORK, BatchTile, batch_roots, kernel_block
from kernelweave.kernels.lazy_names import BatchNames

__all__ = ["BatchBank"]

# Sums over kernels are cut into this many parts, whatever the number of threads.
_SUM_BLOCKS = 64
# A sum of matrices is cut by kernels too if its parts are no larger than this (entries).
_PART_ENTRIES = 2**20
_PARTS = 8


class BatchBank(KernelBank):
    r"""Gaussian kernels on few columns each, some bytes a kernel.

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
    dtype : {"float32", "float64"}, default="float32"
        Type of the arithmetic. Sums are float64.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.kernels import RBFBatch, build_set
    >>> batch = RBFBatch([[0, -1], [0, 1]], [1.0, 0.5])
    >>> bank = BatchBank().build(build_set(batch, [[0.0, 0.0], [1.0, 1.0]]))
    >>> bank.quad(np.array([1.0, 1.0])).round(3)
    array([2.736, 2.736])
    """

    # One pass adds up all kernels, as fast as it would take to compute a few rows of each.
    matrix_limit = 20_000

    # Set by `build`.
    _columns: Array
    _gamma: Array
    _table: Array
    _roots: Array
    _like: Array
    names: BatchNames

    def __init__(self, dtype: str = "float32") -> None:
        self.dtype = dtype

    def build(self, kernels: Any) -> BatchBank:
        """Return a new bank over a `BatchSet`."""
        if not isinstance(kernels, BatchSet):
            raise InvalidInputError(
                f"BatchBank holds the kernels of an RBFBatch; got {kernels!r}. Use bank='auto'."
            )
        return self._over(kernels.table, kernels.columns, kernels.gamma, kernels.names)

    def _over(self, table: Array, columns: Array, gamma: Array, names: BatchNames) -> BatchBank:
        bank = BatchBank(self.dtype)
        bank._table, bank._columns, bank._gamma, bank.names = table, columns, gamma, names
        bank._like = np.empty(0, self.dtype)
        bank._roots = batch_roots(gamma, bank._like.dtype, table)
        bank.n, bank.m = table.shape[1], len(gamma)
        return bank

    @property
    def nbytes(self) -> int:
        """Bytes of the columns and of what describes the kernels."""
        return int(
            self._table.nbytes + self._columns.nbytes + self._gamma.nbytes + self._roots.nbytes
        )

    def tile(
        self, rows: Array, columns: Array | None = None, dtype: DTypeLike = float
    ) -> BatchTile:
        """See :class:`MatrixBank`; computed in the bank's own type."""
        left = self._table[:, np.asarray(rows)]
        right = self._table if columns is None else self._table[:, np.asarray(columns)]
        return BatchTile(self._columns, self._gamma, left, right, dtype, self.dtype)

    def rows(self, idx: Array, kernels: Array | None = None, columns: Array | None = None) -> Array:
        """See :class:`KernelBank`."""
        chosen = kernel_indices(kernels, self.m)
        width = self.n if columns is None else len(columns)
        needed = float(len(chosen)) * len(idx) * width * self._like.itemsize
        require_bytes(needed, f"{len(idx)} rows of {len(chosen)} kernels")
        return self.tile(idx, columns, self.dtype).stack(chosen)

    def _supported(self, v: Array) -> tuple[Array, Array, Array]:
        """Return where v is not zero, its values there, and the samples there."""
        tasks = as_tasks(v)
        support = np.flatnonzero(tasks.any(axis=0))
        return support, np.ascontiguousarray(tasks[:, support]), self._samples(support)

    def _samples(self, idx: Array) -> Array:
        return np.ascontiguousarray(self._table[:, idx])

    def quad(self, v: Array, kernels: Array | None = None) -> Array:
        """See :class:`KernelBank`."""
        chosen = kernel_indices(kernels, self.m)
        support, values, table = self._supported(v)
        out = np.zeros(len(chosen))
        if not len(support):
            return out

        def work(start: int, stop: int) -> None:
            quad(table, self._columns, self._roots, chosen, values, self._like, out, start, stop)

        pairs = len(support) ** 2 / 2
        map_blocks(work, len(chosen), kernel_block(pairs), WORK * len(chosen) * pairs)
        # These kernels are positive semi-definite: anything below zero is rounding.
        return np.maximum(out, 0.0)

    def _rest(self, support: Array) -> Array:
        return np.setdiff1d(np.arange(self.n), support, assume_unique=True)

    def matvec(self, v: Array, kernels: Array | None = None) -> Array:
        """See :class:`KernelBank`."""
        chosen = kernel_indices(kernels, self.m)
        support, values, table = self._supported(v)
        tasks = len(values)
        require_bytes(8.0 * len(chosen) * tasks * self.n, f"products with {len(chosen)} kernels")
        out = np.zeros((len(chosen), tasks, self.n))
        if len(support):
            rest = self._rest(support)
            order, others = np.concatenate([support, rest]), self._samples(rest)

            def work(start: int, stop: int) -> None:
                part = np.empty((stop - start, tasks, self.n))
                some = chosen[start:stop]
                products(
                    table,
                    others,
                    self._columns,
                    self._roots,
                    some,
                    values,
                    self._like,
                    part,
                    0,
                    len(some),
                )
                out[start:stop, :, order] = part

            entries = len(support) * (self.n - len(support) / 2)
            map_blocks(work, len(chosen), kernel_block(entries), WORK * len(chosen) * entries)
        return out if np.ndim(v) == 2 else out[:, 0]

    def quad_and_product(self, v: Array, d: Array) -> tuple[Array, Array]:
        """See :class:`KernelBank`; kernels of weight zero cost no more than in `quad`."""
        support, values, table = self._supported(v)
        quads, total = np.zeros(self.m), np.zeros((len(values), self.n))
        if len(support):
            rest = self._rest(support)
            others = self._samples(rest)
            block = -(-self.m // _SUM_BLOCKS)
            parts = np.zeros((_SUM_BLOCKS, *total.shape))
            weights = np.ascontiguousarray(d, dtype=np.float64)

            def work(start: int, stop: int) -> None:
                quad_and_products(
                    table,
                    others,
                    self._columns,
                    self._roots,
                    values,
                    weights,
                    self._like,
                    quads,
                    parts[start // block],
                    start,
                    stop,
                )

            map_blocks(work, self.m, block, WORK * self.m * len(support) * self.n / 2)
            total[:, np.concatenate([support, rest])] = parts.sum(axis=0)
        return np.maximum(quads, 0.0), total

    def products_at(self, v: Array, idx: Array, kernels: Array | None = None) -> Array:
        """See :class:`KernelBank`."""
        chosen = kernel_indices(kernels, self.m)
        support, values, table = self._supported(v)
        left = self._samples(np.asarray(idx))
        out = np.zeros((len(chosen), len(values), len(idx)))
        if len(support) and len(idx):

            def work(start: int, stop: int) -> None:
                rectangle_products(
                    left,
                    table,
                    self._columns,
                    self._roots,
                    chosen,
                    values,
                    self._like,
                    out,
                    start,
                    stop,
                )

            entries = len(support) * len(idx)
            map_blocks(work, len(chosen), kernel_block(entries), WORK * len(chosen) * entries)
        return out if np.ndim(v) == 2 else out[:, 0]

    def running(self) -> BatchProducts:
        """See :class:`KernelBank`."""
        return BatchProducts(self, self._table, self._columns, self._roots, self._like)

    def combine(self, d: Array, out: Array | None = None) -> Array:
        """See :class:`KernelBank`."""
        require_bytes(8.0 * self.n**2, f"one dense {self.n} x {self.n} matrix")
        return self._combined(self._table, d, np.empty((self.n, self.n)) if out is None else out)

    def combine_block(self, d: Array, idx: Array) -> Array:
        """See :class:`KernelBank`."""
        return self._combined(self._samples(np.asarray(idx)), d, np.empty((len(idx), len(idx))))

    def _combined(self, table: Array, d: Array, out: Array) -> Array:
        n = table.shape[1]
        active = np.flatnonzero(d)
        weights = np.ascontiguousarray(d[active], dtype=np.float64)
        half = n // 2
        # A quarter of the offsets at most, so that several threads have work on few samples.
        offsets = int(np.clip(2 * -(-half // 8), 2, 32))
        starts, runs = range(1, half + 1, offsets), range(0, n, BLOCK)
        groups = _PARTS if n * n <= _PART_ENTRIES and len(active) >= 64 * _PARTS else 1
        size = max(1, -(-len(active) // groups))
        parts = out[None] if groups == 1 else np.zeros((groups, n, n))

        def work(first: int, last: int) -> None:
            for item in range(first, last):
                g, tile = divmod(item, len(starts) * len(runs))
                own = slice(g * size, (g + 1) * size)
                i, o = runs[tile % len(runs)], starts[tile // len(runs)]
                combine_tile(
                    table,
                    self._columns,
                    self._roots,
                    active[own],
                    weights[own],
                    self._like,
                    i,
                    o,
                    min(offsets, half + 1 - o),
                    parts[g],
                )

        cost = WORK * len(active) * n * n / 2
        map_blocks(work, groups * len(starts) * len(runs), 1, cost)
        if groups > 1:
            out[...] = parts.sum(axis=0)
        np.fill_diagonal(out, weights.sum())
        return out

    def take(self, idx: Array) -> BatchBank:
        """See :class:`KernelBank`."""
        return self._over(self._samples(np.asarray(idx)), self._columns, self._gamma, self.names)

    def select(self, kernels: Array) -> BatchBank:
        """See :class:`KernelBank`."""
        chosen = kernel_indices(kernels, self.m)
        names = self.names.select(chosen)
        return self._over(self._table, self._columns[chosen], self._gamma[chosen], names)

    def diag(self, kernels: Array | None = None) -> Array:
        """Return the diagonals: ones, in a view that takes no memory."""
        return np.broadcast_to(1.0, (len(kernel_indices(kernels, self.m)), self.n))

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
        peaks = np.abs(self._table).max(axis=1) ** 2
        box, size = np.zeros(self.m), np.zeros(self.m)
        for column in self._columns.T:
            there = column >= 0
            size += there
            box += np.where(there, peaks[column], 0.0)
        error = 11.0 + 0.4 * (size + 3.0) + 1.5 * self._roots * np.sqrt(box)
        return np.minimum(2.0**-24 * error, 1.0)

    def refined(self) -> BatchBank | None:
        """Return the same kernels in float64 arithmetic."""
        if self.dtype == "float64":
            return None
        return BatchBank("float64")._over(self._table, self._columns, self._gamma, self.names)
