"""A bank that holds every kernel matrix in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kernelweave.bank.memory import AS_ROWS, require_bytes
from kernelweave.bank.protocol import (
    Array,
    ErrorBound,
    KernelBank,
    as_tasks,
    kernel_indices,
    rounding_error,
    sample_indices,
    semi_definite,
)
from kernelweave.bank.running import MatrixProducts, RunningProducts
from kernelweave.bank.source import Source
from kernelweave.bank.squares import SquareSum
from kernelweave.compiled.blocks import FEW_ENTRIES, MATRIX_COLUMNS, rows_of
from kernelweave.compiled.dense_rows import add_rectangle, add_weighted_rows, copy_rectangle
from kernelweave.compiled.passes import (
    add_row_products,
    add_rows,
    quad_block,
    row_products,
)
from kernelweave.compiled.threads import map_blocks, one_blas_thread, thread_count

__all__ = ["DenseBank"]

# Blocks are chosen once and for all, never from the number of threads: same bits on any machine.
_ROW_BLOCK = 256
_SUM_PARTS = 16
# Above this part of entries that are not zero a vector is taken as full.
_FULL_SHARE = 0.75
_BUILD_BYTES = 32e6
_BUILD_ROWS = 256


class DenseBank(KernelBank):
    """Dense n x n matrices, one per kernel, with a scale factor each.

    Matrices that the user already holds (:class:`~kernelweave.kernels.Precomputed`) are used in
    place, never copied, when the normalisation is a plain scaling.

    Parameters
    ----------
    dtype : {"float32", "float64"}, default="float64"
        Storage of the matrices the bank computes itself. Sums are always float64, and the
        rounding of float32 enters the certificate.

    Examples
    --------
    >>> import numpy as np
    >>> bank = DenseBank().from_matrices([np.eye(3), np.ones((3, 3))])
    >>> bank.quad(np.array([1.0, 2.0, 0.0]))
    array([5., 9.])
    """

    # The matrices are there already: adding them up costs one pass.
    matrix_limit = 20_000
    keeps_rows = True

    # Set by `build` and `from_matrices`. Matrices that were computed lie one behind the other.
    _stack: Array | None = None
    _source: Source | None
    _matrices: list[Array]
    _scale: Array
    _rounded: Array

    def __init__(self, dtype: str = "float64") -> None:
        self.dtype = dtype

    def build(self, kernels: Any) -> DenseBank:
        """Return a new bank with the matrices of a KernelSet, or of a Source of some of it."""
        source = Source.of(kernels)
        bank = DenseBank(self.dtype)
        bank._source = source
        bank.n, bank.m, bank.names = source.n, source.m, source.names
        bank._scale = np.ones(bank.m)
        bank._rounded = np.zeros(bank.m, dtype=bool)
        bank._matrices = [np.empty((0, 0))] * bank.m
        computed = []
        for k in range(bank.m):
            stored = source.stored_matrix(k)
            if stored is None:
                computed.append(k)
            else:
                bank._matrices[k], bank._scale[k] = stored
        bank._fill(np.array(computed, dtype=np.int64), source)
        return bank

    def from_matrices(
        self, matrices: Sequence[Array], names: Sequence[str] = (), scale: Array | None = None
    ) -> DenseBank:
        """Return a new bank around symmetric matrices, taken as they are, times a factor each."""
        bank = DenseBank(self.dtype)
        bank._source = None
        bank._matrices = [np.ascontiguousarray(K) for K in matrices]
        bank.m, bank.n = len(matrices), matrices[0].shape[0]
        bank.names = tuple(names) or tuple(f"kernel {k}" for k in range(bank.m))
        bank._scale = np.ones(bank.m) if scale is None else np.asarray(scale, dtype=np.float64)
        bank._rounded = np.zeros(bank.m, dtype=bool)
        return bank

    def bytes_for(self, n: int, m: int) -> float:
        """Bytes that it takes to compute m kernels on n samples and to work with them."""
        needed = float(m) * n**2 * np.dtype(self.dtype).itemsize
        # Solvers form a sum of them, if they are not too large.
        if n <= self.matrix_limit:
            needed += 8.0 * n**2
        return needed + min(needed, 2.0 * thread_count() * _BUILD_BYTES)

    def _fill(self, computed: Array, source: Source) -> None:
        if not len(computed):
            return
        self.dtype = source.storage(self.dtype, computed)
        dtype = np.dtype(self.dtype)
        needed = self.bytes_for(self.n, len(computed))
        require_bytes(needed, f"{len(computed)} dense {self.n} x {self.n} kernel matrices", AS_ROWS)
        stack = np.empty((len(computed), self.n, self.n), dtype)
        # Kernels of the same columns share work, so they stay together.
        order = sorted(range(len(computed)), key=source.sharing(computed).__getitem__)
        many = int(np.clip(_BUILD_BYTES / (8 * self.n * min(self.n, _BUILD_ROWS)), 1, len(order)))
        parts = [np.array(order[first : first + many]) for first in range(0, len(order), many)]
        rows = int(np.clip(_BUILD_BYTES / (8 * many * self.n), 1, self.n))
        starts = range(0, self.n, rows)

        def fill(first: int, last: int) -> None:
            # Evaluated in float64 whatever the storage: the only error is one rounding.
            for task in range(first, last):
                part, start = parts[task // len(starts)], starts[task % len(starts)]
                stop = min(start + rows, self.n)
                stack[part, start:stop] = source.rows(np.arange(start, stop), computed[part])

        map_blocks(fill, len(parts) * len(starts), 1)
        self._stack = stack if len(computed) == self.m else None
        for position, k in enumerate(computed):
            self._matrices[k] = stack[position]
            self._rounded[k] = dtype == np.float32

    @property
    def nbytes(self) -> int:
        """Bytes of all matrices, the user's own included."""
        return sum(K.nbytes for K in self._matrices)

    def rows(self, idx: Array, kernels: Array | None = None, columns: Array | None = None) -> Array:
        chosen = kernel_indices(kernels, self.m)
        pick = np.asarray(idx) if columns is None else np.ix_(idx, columns)
        width = self.n if columns is None else len(columns)
        out = np.empty((len(chosen), len(idx), width), np.result_type(*self._dtypes(chosen)))
        for position, k in enumerate(chosen):
            np.multiply(
                self._matrices[k][pick], self._scale[k], out=out[position], casting="same_kind"
            )
        return out

    def _dtypes(self, chosen: Array) -> list[np.dtype]:
        return [self._matrices[k].dtype for k in chosen] or [np.dtype(np.float64)]

    def matvec(self, v: Array, kernels: Array | None = None) -> Array:
        chosen = kernel_indices(kernels, self.m)
        tasks = as_tasks(v)
        out = np.zeros((len(chosen), len(tasks), self.n))
        supports = [np.flatnonzero(row) for row in tasks]
        # Sums along the rows of a symmetric matrix are quicker than sums of its rows.
        full = min(map(len, supports)) > _FULL_SHARE * self.n
        blocks = -(-self.n // MATRIX_COLUMNS)

        def work(start: int, stop: int) -> None:
            for item in range(start, stop):
                position, b = divmod(item, blocks)
                k = chosen[position]
                first, last = b * MATRIX_COLUMNS, min((b + 1) * MATRIX_COLUMNS, self.n)
                if full:
                    K, scale = self._matrices[k], self._scale[k]
                    add_row_products(K, scale, tasks, out[position], first, last)
                    continue
                for t, support in enumerate(supports):
                    values = self._scale[k] * tasks[t, support]
                    add_rows(self._matrices[k], support, values, out[position, t], first, last)

        cost = len(chosen) * self.n * sum(len(support) for support in supports)
        map_blocks(work, len(chosen) * blocks, 1 if self.n > MATRIX_COLUMNS else 8, cost)
        return out if np.ndim(v) == 2 else out[:, 0]

    def quad(self, v: Array, kernels: Array | None = None) -> Array:
        chosen = kernel_indices(kernels, self.m)
        tasks = as_tasks(v)
        supports = [np.flatnonzero(row) for row in tasks]
        longest = max(len(s) for s in supports)
        blocks = max(1, -(-longest // _ROW_BLOCK))
        parts = np.zeros((len(chosen), blocks))

        def work(start: int, stop: int) -> None:
            for item in range(start, stop):
                position, b = divmod(item, blocks)
                k = chosen[position]
                for t, support in enumerate(supports):
                    first, last = b * _ROW_BLOCK, min((b + 1) * _ROW_BLOCK, len(support))
                    parts[position, b] += quad_block(
                        self._matrices[k], support, tasks[t], first, last, 4 * len(support) > self.n
                    )

        cost = len(chosen) * self.n * sum(len(support) for support in supports)
        map_blocks(work, len(chosen) * blocks, 1 if self.n > MATRIX_COLUMNS else 8, cost)
        return semi_definite(self._scale[chosen] * parts.sum(axis=1), v, self, chosen)

    def products_at(self, v: Array, idx: Array, kernels: Array | None = None) -> Array:
        chosen = kernel_indices(kernels, self.m)
        tasks, idx = as_tasks(v), sample_indices(idx, self.n)
        out = np.empty((len(chosen), len(tasks), len(idx)))

        def work(start: int, stop: int) -> None:
            for position in range(start, stop):
                k = chosen[position]
                for t, row in enumerate(tasks):
                    row_products(self._matrices[k], idx, self._scale[k] * row, out[position, t])

        map_blocks(work, len(chosen), 1, len(chosen) * len(idx) * self.n)
        return out if np.ndim(v) == 2 else out[:, 0]

    def running(self) -> RunningProducts:
        return super().running() if self._stack is None else MatrixProducts(self, self._stack)

    def sum_products(self, V: Array) -> Array:
        V = np.ascontiguousarray(V, dtype=np.float64)
        # Every part of the kernels has sums of its own, added up in the order of the parts.
        size = max(1, -(-self.m // _SUM_PARTS))
        starts = range(0, self.m, size)
        sums = np.zeros((len(starts), *V.shape[1:]))
        blocks = -(-self.n // MATRIX_COLUMNS)

        def work(start: int, stop: int) -> None:
            for item in range(start, stop):
                place, b = divmod(item, blocks)
                first, last = b * MATRIX_COLUMNS, min((b + 1) * MATRIX_COLUMNS, self.n)
                for k in range(starts[place], min(starts[place] + size, self.m)):
                    K = self._matrices[k]
                    add_row_products(K, self._scale[k], V[k], sums[place], first, last)

        map_blocks(work, len(starts) * blocks, 1, V.size * self.n)
        return sums.sum(axis=0)

    def square_sum(self) -> Array:
        squares = SquareSum(self.n)
        with one_blas_thread():
            for K, scale in zip(self._matrices, self._scale, strict=True):
                exact = K.astype(np.float64, copy=False)
                squares.add(exact, exact if scale == 1.0 else scale**2 * exact)
        return squares.total()

    def combine(self, d: Array, out: Array | None = None) -> Array:
        out = np.empty((self.n, self.n)) if out is None else out
        return self._sum_rows(d, np.arange(self.n), out)

    def combine_rows(self, d: Array, idx: Array, out: Array) -> Array:
        return self._sum_rows(d, sample_indices(idx, self.n), out)

    def _sum_rows(self, d: Array, idx: Array, out: Array) -> Array:
        active = np.flatnonzero(d)
        weights = d[active] * self._scale[active]
        matrices = [self._matrices[k] for k in active]
        # A few rows stay in the processor's cache while the kernels pass by.
        few = rows_of(self.n, FEW_ENTRIES)

        def work(start: int, stop: int) -> None:
            out[start:stop].fill(0.0)
            add_weighted_rows(matrices, weights, idx[start:stop], out[start:stop])

        map_blocks(work, len(idx), few, len(active) * out.size)
        return out

    def take(self, idx: Array) -> DenseBank:
        idx = sample_indices(idx, self.n)
        bank = DenseBank(self.dtype)
        bank._source = None
        bank.n, bank.m, bank.names = len(idx), self.m, self.names
        bank._scale, bank._rounded = np.ones(self.m), self._rounded
        stack = np.empty((self.m, len(idx), len(idx)))

        def work(start: int, stop: int) -> None:
            for k in range(start, stop):
                copy_rectangle(self._matrices[k], idx, idx, self._scale[k], stack[k], 0, len(idx))

        map_blocks(work, self.m, 1, stack.size)
        bank._matrices, bank._stack = list(stack), stack
        return bank

    def select(self, kernels: Array) -> DenseBank:
        """See :class:`KernelBank`; the matrices are shared, not copied."""
        chosen = kernel_indices(kernels, self.m)
        bank = DenseBank(self.dtype)
        bank._source = None if self._source is None else self._source.select(chosen)
        bank.n, bank.m = self.n, len(chosen)
        bank.names = tuple(self.names[k] for k in chosen)
        bank._matrices = [self._matrices[k] for k in chosen]
        bank._scale, bank._rounded = self._scale[chosen], self._rounded[chosen]
        return bank

    def combine_block(self, d: Array, idx: Array) -> Array:
        idx = sample_indices(idx, self.n)
        out = np.zeros((len(idx), len(idx)))
        active = np.flatnonzero(d)

        def work(start: int, stop: int) -> None:
            for k in active:
                weight = d[k] * self._scale[k]
                add_rectangle(self._matrices[k], idx, idx, weight, out, start, stop)

        map_blocks(work, len(idx), 64, len(active) * len(idx) ** 2)
        return out

    def diag(self, kernels: Array | None = None) -> Array:
        chosen = kernel_indices(kernels, self.m)
        return np.array([self._scale[k] * self._matrices[k].diagonal() for k in chosen], np.float64)

    def eigenvalue_bound(self) -> Array:
        """See :class:`KernelBank`; the Frobenius norm of the centred matrix, if that is less."""
        by_trace = super().eigenvalue_bound()
        squares = np.empty(self.m)

        def work(start: int, stop: int) -> None:
            for k in range(start, stop):
                # (np.vdot would hand matrices that a message brought to an odd address to BLAS.)
                K = self._matrices[k]
                square = np.einsum("ij,ij->", K, K, dtype=np.float64)
                squares[k] = self._scale[k] ** 2 * square

        map_blocks(work, self.m, 1, self.m * self.n**2)
        products = self.matvec(np.ones(self.n))
        sums = products.sum(axis=1) / self.n
        centred = squares - 2.0 * np.sum(products**2, axis=1) / self.n + sums**2
        # Beyond rounding, of the storage and of the difference.
        slack = 1e-6 * self.diag().sum(axis=1)
        return np.minimum(by_trace, np.sqrt(np.maximum(centred, 0.0)) + slack)

    def error(self, v: Array, d: Array) -> ErrorBound:
        """Rounding of float32 storage; the user's own matrices are exact whatever their type."""
        if not self._rounded.any():
            return ErrorBound.none(self.m)
        return rounding_error(v, d, self.diag(), np.where(self._rounded, 2.0**-24, 0.0))

    @property
    def approximates(self) -> Source | None:
        """See :class:`KernelBank`; matrices that were rounded to float32."""
        return self._source if self._rounded.any() else None

    def refined(self) -> DenseBank | None:
        """Return the same matrices in float64, if any was stored in float32."""
        source = self.approximates
        return None if source is None else DenseBank("float64").build(source)
