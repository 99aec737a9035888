"""A bank of very many Gaussian kernels that are computed in every pass and never stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from kernelweave.bank.memory import require_bytes
from kernelweave.bank.protocol import Array, ErrorBound, KernelBank, as_tasks, kernel_indices
from kernelweave.bank.running import BatchProducts
from kernelweave.compiled.blocks import SUM_PARTS, gaussian_kernels
from kernelweave.compiled.gaussians import Batch, quad, rectangle_products, square_products
from kernelweave.compiled.threads import map_blocks
from kernelweave.errors import InvalidInputError
from kernelweave.kernels.batch_set import BatchSet
from kernelweave.kernels.batch_tile import BatchTile, compiled_batch
from kernelweave.kernels.lazy_names import BatchNames

__all__ = ["BatchBank"]


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
    _batch: Batch
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
        bank._batch = compiled_batch(columns, gamma, self.dtype, table)
        bank.n, bank.m = table.shape[1], len(gamma)
        return bank

    @property
    def nbytes(self) -> int:
        """Bytes of the columns and of what describes the kernels."""
        return int(self._table.nbytes + self._gamma.nbytes + sum(a.nbytes for a in self._batch))

    def tile(
        self, rows: Array, columns: Array | None = None, dtype: DTypeLike = float
    ) -> BatchTile:
        """See :class:`MatrixBank`; computed in the bank's own type."""
        left = self._table[:, np.asarray(rows)]
        right = self._table if columns is None else self._table[:, np.asarray(columns)]
        return BatchTile(self._columns, self._gamma, left, right, dtype, self.dtype)

    def rows(self, idx: Array, kernels: Array | None = None, columns: Array | None = None) -> Array:
        chosen = kernel_indices(kernels, self.m)
        width = self.n if columns is None else len(columns)
        needed = float(len(chosen)) * len(idx) * width * np.dtype(self.dtype).itemsize
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
        chosen = kernel_indices(kernels, self.m)
        support, values, table = self._supported(v)
        out = np.zeros(len(chosen))
        if not len(support):
            return out

        def work(start: int, stop: int) -> None:
            quad(table, self._batch, chosen, values, out, start, stop)

        map_blocks(work, len(chosen), *gaussian_kernels(len(chosen), len(support) ** 2 / 2))
        # These kernels are positive semi-definite: anything below zero is rounding.
        return np.maximum(out, 0.0)

    def _multiply(self, v: Array) -> tuple[Callable[[Array], Array], float]:
        """Return kernels -> K_k v of each, (len(kernels), T, n), and the values that one takes."""
        support, values, table = self._supported(v)
        rest = np.setdiff1d(np.arange(self.n), support, assume_unique=True)
        others = self._samples(rest)

        def products(kernels: Array) -> Array:
            count, shape = len(kernels), (len(kernels), len(values))
            out = np.zeros((*shape, self.n))
            if len(support):
                inside, outside = np.empty((*shape, len(support))), np.empty((*shape, len(rest)))
                square_products(table, self._batch, kernels, values, inside, 0, count)
                rectangle_products(others, table, self._batch, kernels, values, outside, 0, count)
                out[:, :, support], out[:, :, rest] = inside, outside
            return out

        return products, len(support) * (self.n - len(support) / 2)

    def matvec(self, v: Array, kernels: Array | None = None) -> Array:
        chosen = kernel_indices(kernels, self.m)
        tasks = len(as_tasks(v))
        require_bytes(8.0 * len(chosen) * tasks * self.n, f"products with {len(chosen)} kernels")
        out = np.empty((len(chosen), tasks, self.n))
        products, entries = self._multiply(v)

        def work(start: int, stop: int) -> None:
            out[start:stop] = products(chosen[start:stop])

        map_blocks(work, len(chosen), *gaussian_kernels(len(chosen), entries))
        return out if np.ndim(v) == 2 else out[:, 0]

    def quad_and_product(self, v: Array, d: Array) -> tuple[Array, Array]:
        """See :class:`KernelBank`; kernels of weight zero cost no more than in `quad`."""
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

    def products_at(self, v: Array, idx: Array, kernels: Array | None = None) -> Array:
        chosen = kernel_indices(kernels, self.m)
        support, values, table = self._supported(v)
        left = self._samples(np.asarray(idx))
        out = np.zeros((len(chosen), len(values), len(idx)))

        def work(start: int, stop: int) -> None:
            rectangle_products(left, table, self._batch, chosen, values, out, start, stop)

        if len(support) and len(idx):
            entries = len(support) * len(idx)
            map_blocks(work, len(chosen), *gaussian_kernels(len(chosen), entries))
        return out if np.ndim(v) == 2 else out[:, 0]

    def running(self) -> BatchProducts:
        return BatchProducts(self, self._table, self._batch)

    def combine(self, d: Array, out: Array | None = None) -> Array:
        require_bytes(8.0 * self.n**2, f"one dense {self.n} x {self.n} matrix")
        kind = np.float64 if out is None else out.dtype
        return self._square(self._table, kind).weighted(d, out)

    def combine_block(self, d: Array, idx: Array) -> Array:
        return self._square(self._samples(np.asarray(idx)), np.float64).weighted(d)

    def _square(self, table: Array, dtype: DTypeLike) -> BatchTile:
        return BatchTile(self._columns, self._gamma, table, table, dtype, self.dtype)

    def take(self, idx: Array) -> BatchBank:
        return self._over(self._samples(np.asarray(idx)), self._columns, self._gamma, self.names)

    def select(self, kernels: Array) -> BatchBank:
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
        error = 11.0 + 0.4 * (size + 3.0) + 1.5 * self._batch[1] * np.sqrt(box)
        return np.minimum(2.0**-24 * error, 1.0)

    def refined(self) -> BatchBank | None:
        """Return the same kernels in float64 arithmetic."""
        if self.dtype == "float64":
            return None
        return BatchBank("float64")._over(self._table, self._columns, self._gamma, self.names)
