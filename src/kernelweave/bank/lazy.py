"""A bank that computes kernel rows when they are asked for and keeps the recent ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from kernelweave.bank.dense import DenseBank
from kernelweave.bank.memory import cache_bytes, require_bytes, rows_and_work
from kernelweave.bank.protocol import (
    Array,
    ErrorBound,
    KernelBank,
    as_tasks,
    kernel_indices,
    rounding_error,
    semi_definite,
)
from kernelweave.bank.row_cache import RowCache
from kernelweave.bank.source import Source
from kernelweave.compiled.blocks import CACHED_ENTRIES, MATRIX_COLUMNS, rows_of
from kernelweave.compiled.passes import add_rows, row_products
from kernelweave.compiled.threads import map_blocks
from kernelweave.kernels.tile import StackTile, Tile

__all__ = ["LazyBank"]

_CHUNK_BYTES = 64e6
_SAMPLED_ROWS = 8
# Rows of a sum of kernels are added up so many bytes at a time.
_SUM_BYTES = 8e6
# Numbers for each kernel and sample that the smallest fit takes beside two rows: the diagonals, the
# products with alpha, and what is computed from these.
_NUMBERS = 4
# One tile of a streaming pass, all kernels together: it stays in the cache of a core.
_TILE_ROWS = 64
_TILE_KERNELS = 64


class LazyBank(KernelBank):
    """Kernel rows on demand, with a least-recently-used cache over rows.

    One entry of the cache holds the same row of every kernel. A fit takes `cache_mb` plus O(m n):
    up to two thirds of `cache_mb` are for cached rows, and what they leave is for the square
    matrices that solvers form on as many samples as fit in there.

    Parameters
    ----------
    cache_mb : float, default=1000
        Megabytes for cached rows and the matrices of solvers together.
    dtype : {"float32", "float64"}, default="float32"
        Type in which rows are evaluated and kept. Sums are float64. The error of float32 rows is
        measured on a few of them and enters the certificate with a margin of four.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.kernels import KernelSet, Linear
    >>> X = np.arange(6.0).reshape(3, 2)
    >>> bank = LazyBank(dtype="float64").build(KernelSet.build([Linear()], X, normalize=None))
    >>> bank.rows(np.array([1]))
    array([[[ 3., 13., 23.]]])
    """

    keeps_rows = True

    # Set by `build`.
    _source: Source
    _cache: RowCache
    _diagonals: Array
    _unit: Array

    def __init__(self, cache_mb: float = 1000, dtype: str = "float32") -> None:
        self.cache_mb = cache_mb
        self.dtype = dtype

    def build(self, kernels: Any) -> LazyBank:
        """Return a new bank over a KernelSet, or a Source of some of it, with an empty cache."""
        source = Source.of(kernels)
        kept = source.storage(self.dtype, range(source.m), on_the_way=True)
        bank = LazyBank(self.cache_mb, kept)._over(source)
        bank._diagonals = source.diag()
        bank._unit = bank._measured_unit()
        return bank

    def _over(self, source: Source, instead_of: RowCache | None = None) -> LazyBank:
        bank = LazyBank(self.cache_mb, self.dtype)
        bank._source = source
        bank.n, bank.m, bank.names = source.n, source.m, source.names
        dtype = np.dtype(self.dtype)
        entries = float(bank.m) * bank.n
        require_bytes(
            (2.0 * dtype.itemsize + 8.0 * _NUMBERS) * entries,
            f"two rows of {bank.m} kernels on {bank.n} samples, and products with them,",
            kernels=bank.m,
        )

        def compute(idx: Array) -> Array:
            return source.rows(idx, dtype=dtype)

        budget = cache_bytes(self.cache_mb)
        rows, bank.work_bytes = rows_and_work(budget, entries * bank.n * dtype.itemsize)
        bank._cache = RowCache(compute, bank.m, bank.n, rows, dtype, instead_of)
        return bank

    def _measured_unit(self) -> Array:
        """Relative error of float32 rows, measured on a few of them, with a margin of four."""
        if self.dtype == "float64":
            return np.zeros(self.m)
        root = np.sqrt(np.maximum(self._diagonals, 1e-300))
        worst = np.zeros(self.m)
        for i in np.unique(np.linspace(0, self.n - 1, _SAMPLED_ROWS).astype(np.int64)):
            row = np.array([i])
            error = self._source.rows(row)[:, 0]
            error -= self._source.rows(row, dtype=np.float32)[:, 0]
            np.abs(error, out=error)
            error /= root
            np.maximum(worst, error.max(axis=1) / root[:, i], out=worst)
        return np.maximum(4.0 * worst, 2.0**-24)

    @property
    def nbytes(self) -> int:
        """Bytes of the cache and the diagonals."""
        return int(self._cache.nbytes + self._diagonals.nbytes)

    def _chunks(self, idx: Array) -> Iterator[tuple[Array, Array, Array]]:
        """Yield (positions in idx, slab, slots) a bounded number of rows at a time."""
        row_bytes = self.m * self.n * np.dtype(self.dtype).itemsize
        size = int(np.clip(_CHUNK_BYTES // row_bytes, 1, self._cache.capacity))
        for first in range(0, len(idx), size):
            positions = np.arange(first, min(first + size, len(idx)))
            slab, slots = self._cache.slots(idx[positions])
            yield positions, slab, slots

    def rows(self, idx: Array, kernels: Array | None = None, columns: Array | None = None) -> Array:
        chosen = kernel_indices(kernels, self.m)
        idx = np.asarray(idx)
        pick = slice(None) if columns is None else np.asarray(columns)
        width = self.n if columns is None else len(columns)
        out = np.empty((len(chosen), len(idx), width), self.dtype)
        for positions, slab, slots in self._chunks(idx):
            for place, k in enumerate(chosen):
                out[place, positions] = slab[:, k][slots][:, pick]
        return out

    def fresh_rows(self, idx: Array, kernels: Array) -> Array:
        return self._source.rows(np.asarray(idx), kernels, self.dtype)

    def matvec(self, v: Array, kernels: Array | None = None) -> Array:
        chosen = kernel_indices(kernels, self.m)
        tasks = as_tasks(v)
        out = np.zeros((len(chosen), len(tasks), self.n))
        support = np.flatnonzero(tasks.any(axis=0))
        blocks = -(-self.n // MATRIX_COLUMNS)
        for positions, slab, slots in self._chunks(support):
            values = np.ascontiguousarray(tasks[:, support[positions]])

            def work(
                start: int,
                stop: int,
                slab: Array = slab,
                slots: Array = slots,
                values: Array = values,
            ) -> None:
                for item in range(start, stop):
                    place, b = divmod(item, blocks)
                    first, last = b * MATRIX_COLUMNS, min((b + 1) * MATRIX_COLUMNS, self.n)
                    for t in range(len(tasks)):
                        add_rows(
                            slab[:, chosen[place]], slots, values[t], out[place, t], first, last
                        )

            cost = len(chosen) * self.n * values.size
            map_blocks(work, len(chosen) * blocks, 1 if self.n > MATRIX_COLUMNS else 8, cost)
        return out if np.ndim(v) == 2 else out[:, 0]

    def tile(self, rows: Array, columns: Array | None = None, dtype: DTypeLike = float) -> Tile:
        """See :class:`KernelBank`; some columns of rows that cannot all be kept, past the cache."""
        if columns is None or self._cache.capacity == self.n:
            return super().tile(rows, columns, dtype)
        rows, columns = np.asarray(rows), np.asarray(columns)

        def evaluate(kernels: Array) -> Array:
            return self._source.tile(rows, columns, kernels, self.dtype)

        return StackTile((len(rows), len(columns)), self.m, evaluate, dtype)

    def _own_cache(self) -> RowCache:
        return self._cache

    def quad(self, v: Array, kernels: Array | None = None) -> Array:
        tasks = as_tasks(v)
        quad = np.einsum("ktn,tn->k", self.matvec(tasks, kernels), tasks)
        return semi_definite(quad, v, self, kernel_indices(kernels, self.m))

    def products_at(self, v: Array, idx: Array, kernels: Array | None = None) -> Array:
        chosen = kernel_indices(kernels, self.m)
        tasks = as_tasks(v)
        idx = np.asarray(idx)
        out = np.empty((len(chosen), len(tasks), len(idx)))
        for positions, slab, slots in self._chunks(idx):
            for place, k in enumerate(chosen):
                for t, row in enumerate(tasks):
                    part = np.empty(len(positions))
                    row_products(slab[:, k], slots, row, part)
                    out[place, t, positions] = part
        return out if np.ndim(v) == 2 else out[:, 0]

    def quad_and_product(self, v: Array, d: Array) -> tuple[Array, Array]:
        """See :class:`KernelBank`; small tiles computed afresh, past the cache.

        A pass over all rows would throw out what the cache holds, and writing rows to memory
        takes longer than computing them. Kernels in use are evaluated between all samples and the
        support of v, the others on its support, half of it: they are symmetric.
        """
        tasks = as_tasks(v)
        product = np.zeros_like(tasks)
        pieces = np.zeros((-(-self.n // _TILE_ROWS), self.m))
        support = np.flatnonzero(tasks.any(axis=0))
        values = np.ascontiguousarray(tasks[:, support].T, dtype=self.dtype)
        used, rest = self._together(np.flatnonzero(d)), self._together(np.flatnonzero(d == 0))

        def sums(rows: Array, first: int, kernels: Array) -> Array:
            """(K_k v)[rows] of these kernels, from the support from its `first` member on."""
            out = np.zeros((len(kernels), len(rows), len(tasks)))
            width = max(_TILE_ROWS, rows_of(_TILE_ROWS * len(kernels), CACHED_ENTRIES))
            for start in range(first, len(support), width):
                columns = slice(start, start + width)
                tile = self._source.tile(rows, support[columns], kernels, self.dtype)
                out += tile @ values[columns]
            return out

        def use(start: int, stop: int) -> None:
            rows = np.arange(start, stop)
            for kernels in used:
                own = sums(rows, 0, kernels)
                pieces[start // _TILE_ROWS, kernels] = np.einsum("krt,tr->k", own, tasks[:, rows])
                product[:, rows] += np.tensordot(d[kernels], own, axes=1).T

        def look(start: int, stop: int) -> None:
            rows = support[start:stop]
            for kernels in rest:
                # What is right of the block on the diagonal stands for its mirror image, too.
                own = 2.0 * sums(rows, start, kernels)
                own -= self._source.tile(rows, rows, kernels, self.dtype) @ values[start:stop]
                pieces[start // _TILE_ROWS, kernels] = np.einsum("krt,tr->k", own, tasks[:, rows])

        map_blocks(use, self.n, _TILE_ROWS)
        map_blocks(look, len(support), _TILE_ROWS)
        return semi_definite(pieces.sum(axis=0), v, self, np.arange(self.m)), product

    def _together(self, kernels: Array) -> list[Array]:
        """Split kernels into parts of a tile; those that read the same columns stay together."""
        alike = np.argsort(self._source.sharing(kernels), kind="stable")
        parts = -(-len(kernels) // _TILE_KERNELS)
        return np.array_split(kernels[alike], parts) if parts else []

    def take(self, idx: Array) -> DenseBank:
        """See :class:`KernelBank`; the few samples' matrices are formed."""
        idx = np.asarray(idx)
        # These matrices take the memory of the rows.
        self._cache.release()
        require_bytes(8.0 * self.m * len(idx) ** 2, f"{self.m} kernels on {len(idx)} samples")
        stack = np.empty((self.m, len(idx), len(idx)))
        for kernels, rows in self._blocks(np.arange(self.m), len(idx), len(idx)):
            stack[np.ix_(kernels, rows)] = self._source.tile(idx[rows], idx, kernels, np.float64)
        bank = DenseBank().from_matrices(list(stack), self.names)
        bank.work_bytes = max(cache_bytes(self.cache_mb) - stack.nbytes, 0.0)
        return bank

    def select(self, kernels: Array) -> LazyBank:
        """See :class:`KernelBank`; rows of the new bank take the place of those of this one."""
        chosen = kernel_indices(kernels, self.m)
        bank = self._over(self._source.select(chosen), self._cache)
        bank._diagonals, bank._unit = self._diagonals[chosen], self._unit[chosen]
        return bank

    def combine(self, d: Array, out: Array | None = None) -> Array:
        if out is None:
            require_bytes(8.0 * self.n**2, f"one dense {self.n} x {self.n} matrix")
            out = np.empty((self.n, self.n))
        return self.combine_rows(d, np.arange(self.n), out)

    def combine_rows(self, d: Array, idx: Array, out: Array) -> Array:
        out[:] = 0.0
        for kernels, rows in self._blocks(np.flatnonzero(d), len(idx), self.n):
            values = self.rows(idx[rows], kernels).astype(np.float64)
            out[rows] += np.tensordot(d[kernels], values, axes=1)
        return out

    def _blocks(self, kernels: Array, count: int, width: int) -> Iterator[tuple[Array, Array]]:
        """Yield (kernels, places of rows), for a stack of few bytes with rows of that width."""
        many = max(1, int(_SUM_BYTES // (8 * width)))
        for part in range(0, len(kernels), many):
            some = kernels[part : part + many]
            step = max(1, many // len(some))
            for first in range(0, count, step):
                yield some, np.arange(first, min(first + step, count))

    def combine_block(self, d: Array, idx: Array) -> Array:
        """See :class:`KernelBank`; computed afresh, which costs less than whole rows."""
        idx = np.asarray(idx)
        out = np.zeros((len(idx), len(idx)), self.dtype)
        weights = d.astype(self.dtype)
        for kernels, rows in self._blocks(np.flatnonzero(d), len(idx), len(idx)):
            first, last = rows[0], rows[-1] + 1
            tile = self._source.tile(idx[rows], idx[first:], kernels, self.dtype)
            out[rows, first:] += np.tensordot(weights[kernels], tile, axes=1)
            # What is right of the square on the diagonal stands for its mirror image, too.
            out[last:, rows] = out[rows, last:].T
        return out

    def diag(self, kernels: Array | None = None) -> Array:
        return self._diagonals[kernel_indices(kernels, self.m)]

    def error(self, v: Array, d: Array) -> ErrorBound:
        """Error of rows evaluated in float32."""
        if self.dtype == "float64":
            return ErrorBound.none(self.m)
        return rounding_error(v, d, self._diagonals, self._unit)

    @property
    def approximates(self) -> Source | None:
        """See :class:`KernelBank`; kernels whose rows are evaluated in float32."""
        return None if self.dtype == "float64" else self._source

    def refined(self) -> LazyBank | None:
        """Return the same bank with float64 rows."""
        if self.dtype == "float64":
            return None
        bank = LazyBank(self.cache_mb, "float64")._over(self._source, self._cache)
        bank._diagonals, bank._unit = self._diagonals, np.zeros(self.m)
        return bank
