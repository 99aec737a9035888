"""Kernels whose rows are computed when they are asked for, the recent ones kept."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from kernelweave.compiled.blocks import SHARED_CACHE_ENTRIES, rows_of
from kernelweave.compiled.dense_rows import add_rows, row_products
from kernelweave.memory import cache_bytes, require_bytes, rows_and_work
from kernelweave.operators.base import (
    Array,
    ErrorBound,
    KernelOperator,
    Which,
    as_tasks,
    kernel_indices,
    map_columns,
    rounding_error,
    semi_definite,
)
from kernelweave.operators.computed import ComputedOperator
from kernelweave.operators.gaussians import GaussianOperator
from kernelweave.operators.row_cache import RowCache

_CHUNK_BYTES = 64e6
_SAMPLED_ROWS = 8
# Numbers for each kernel and sample that the smallest fit takes beside two rows: the diagonals, the
# products with alpha, and what is computed from these.
_NUMBERS = 4


class CachedOperator(KernelOperator):
    """Kernel rows on demand, with a least-recently-used cache over rows.

    One entry of the cache holds the same row of every kernel. A fit takes `cache_mb` plus O(m n):
    up to two thirds of `cache_mb` are for cached rows, and what they leave is for the square
    matrices that solvers form on as many samples as fit in there.

    Parameters
    ----------
    kernels : ComputedOperator or GaussianOperator
        The kernels on the training samples.
    cache_mb : float, default=1000
        Megabytes for cached rows and the matrices of solvers together.
    dtype : {"float32", "float64"}, default="float32"
        Type in which rows are evaluated and kept. Sums are float64. The error of float32 rows is
        measured on a few of them and enters the certificate with a margin of four.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.kernels import Linear
    >>> X = np.arange(6.0).reshape(3, 2)
    >>> kernels = ComputedOperator.build([Linear()], X, normalize=None)
    >>> CachedOperator(kernels, dtype="float64").block(np.array([1]))
    array([[[ 3., 13., 23.]]])
    """

    keeps_rows = True

    def __init__(
        self,
        kernels: ComputedOperator | GaussianOperator,
        cache_mb: float = 1000,
        dtype: str = "float32",
    ) -> None:
        self._source, self.cache_mb = kernels, cache_mb
        self.n, self.m, self.names = kernels.n, kernels.m, kernels.names
        self._set_type(kernels.storage(dtype, range(kernels.m), on_the_way=True))
        self._diagonals = kernels.diagonal()
        self._unit = self._measured_unit()

    def _set_type(self, name: str) -> None:
        """Compute in that type, into an empty cache."""
        self.dtype, dtype = name, np.dtype(name)
        self._computed = computed = self._source.in_type(name)
        entries = float(self.m) * self.n
        require_bytes(
            (2.0 * dtype.itemsize + 8.0 * _NUMBERS) * entries,
            f"two rows of {self.m} kernels on {self.n} samples, and products with them,",
            kernels=self.m,
        )

        budget = cache_bytes(self.cache_mb)
        rows, self.work_bytes = rows_and_work(budget, entries * self.n * dtype.itemsize)
        self._cache = RowCache(computed.block, self.m, self.n, rows, dtype)

    def _other(self, dtype: str, **changes: Any) -> CachedOperator:
        """Return a copy with a cache of its own, whose rows take the place of those of this one."""
        self._cache.release()
        out = self._but(**changes)
        out._set_type(dtype)
        return out

    def _measured_unit(self) -> Array:
        """Relative error of float32 rows, measured on a few of them, with a margin of four."""
        if self.dtype == "float64":
            return np.zeros(self.m)
        root = np.sqrt(np.maximum(self._diagonals, 1e-300))
        worst = np.zeros(self.m)
        for i in np.unique(np.linspace(0, self.n - 1, _SAMPLED_ROWS).astype(np.int64)):
            row = np.array([i])
            error = self._source.block(row)[:, 0]
            error -= self._computed.block(row)[:, 0]
            np.abs(error, out=error)
            error /= root
            np.maximum(worst, error.max(axis=1) / root[:, i], out=worst)
        return np.maximum(4.0 * worst, 2.0**-24)

    def _chunks(self, idx: Array) -> Iterator[tuple[Array, Array, Array]]:
        """Yield (positions in idx, slab, slots) a bounded number of rows at a time."""
        row_bytes = self.m * self.n * np.dtype(self.dtype).itemsize
        size = int(np.clip(_CHUNK_BYTES // row_bytes, 1, self._cache.capacity))
        for first in range(0, len(idx), size):
            positions = np.arange(first, min(first + size, len(idx)))
            slab, slots = self._cache.slots(idx[positions])
            yield positions, slab, slots

    def block(self, rows: Which = None, columns: Which = None, kernels: Which = None) -> Array:
        """See :class:`KernelOperator`; some columns of rows that cannot all be kept, afresh."""
        if columns is not None and self._cache.capacity < self.n:
            return self._computed.block(rows, columns, kernels)
        chosen = kernel_indices(kernels, self.m)
        idx = np.arange(self.n) if rows is None else np.asarray(rows)
        pick: Any = slice(None) if columns is None else np.asarray(columns)
        width = self.n if columns is None else len(pick)
        out = np.empty((len(chosen), len(idx), width), self.dtype)
        for positions, slab, slots in self._chunks(idx):
            for place, k in enumerate(chosen):
                out[place, positions] = slab[:, k][slots][:, pick]
        return out

    def row_cache(self, kernels: Array, source: KernelOperator | None = None) -> RowCache:
        """See :class:`KernelOperator`; rows of some kernels are computed past those of all."""
        if len(kernels) == self.m:
            return self._cache
        return super().row_cache(kernels, self._computed)

    def _apply(self, tasks: Array, chosen: Array, rows: Which) -> Array:
        if rows is not None:
            return self._row_products(tasks, chosen, np.asarray(rows))
        # Everywhere: from the rows where v is not zero.
        out = np.zeros((len(chosen), len(tasks), self.n))
        support = np.flatnonzero(tasks.any(axis=0))
        for positions, slab, slots in self._chunks(support):
            values = np.ascontiguousarray(tasks[:, support[positions]])

            def work(
                place: int,
                first: int,
                last: int,
                slab: Array = slab,
                slots: Array = slots,
                values: Array = values,
            ) -> None:
                rows = slab[:, chosen[place]]
                for t in range(len(tasks)):
                    add_rows(rows, slots, values[t], out[place, t], first, last)

            map_columns(work, len(chosen), self.n, len(chosen) * self.n * values.size)
        return out

    def _row_products(self, tasks: Array, chosen: Array, idx: Array) -> Array:
        out = np.empty((len(chosen), len(tasks), len(idx)))
        for positions, slab, slots in self._chunks(idx):
            part = np.empty(len(positions))
            for place, t in np.ndindex(len(chosen), len(tasks)):
                row_products(slab[:, chosen[place]], slots, tasks[t], part)
                out[place, t, positions] = part
        return out

    def quad(self, v: Array, kernels: Which = None) -> Array:
        """See :class:`KernelOperator`; from the products everywhere, whose rows are kept."""
        tasks = as_tasks(v)
        chosen = kernel_indices(kernels, self.m)
        quad = np.einsum("ktn,tn->k", self.apply(tasks, chosen), tasks)
        return semi_definite(quad, v, self, chosen)

    def quad_and_product(self, v: Array, d: Array) -> tuple[Array, Array]:
        """See :class:`KernelOperator`; past the cache, which a pass over all rows would empty."""
        return self._computed.quad_and_product(v, d)

    def weighted(
        self, d: ArrayLike, rows: Which = None, columns: Which = None, out: Array | None = None
    ) -> Array:
        """See :class:`KernelOperator`; whole rows from the cache, parts of them afresh."""
        if columns is not None:
            return self._computed.weighted(d, rows, columns, out)
        weights = np.asarray(d, dtype=np.float64)
        idx = np.arange(self.n) if rows is None else np.asarray(rows)
        out = self._sum_memory(len(idx), self.n) if out is None else out
        active = np.flatnonzero(weights)
        step = rows_of(self.n * len(active), SHARED_CACHE_ENTRIES)
        for first in range(0, len(idx), step):
            values = self.block(idx[first : first + step], None, active).astype(np.float64)
            out[first : first + step] = np.tensordot(weights[active], values, axes=1)
        return out

    def take(self, idx: Array) -> KernelOperator:
        # These matrices take the memory of the rows.
        self._cache.release()
        few = self._source.take(idx)
        held = 8.0 * self.m * float(few.n) ** 2
        few.work_bytes = max(cache_bytes(self.cache_mb) - held, 0.0)
        return few

    def select(self, kernels: Array) -> CachedOperator:
        """See :class:`KernelOperator`; rows of the new one take the place of those of this one."""
        chosen = kernel_indices(kernels, self.m)
        few = self._source.select(chosen)
        return self._other(
            self.dtype,
            _source=few,
            m=few.m,
            names=few.names,
            _diagonals=self._diagonals[chosen],
            _unit=self._unit[chosen],
        )

    def diagonal(self, kernels: Which = None) -> Array:
        return self._diagonals[kernel_indices(kernels, self.m)]

    def error(self, v: Array, d: Array) -> ErrorBound:
        if self.dtype == "float64":
            return ErrorBound.none(self.m)
        return rounding_error(v, d, self._diagonals, self._unit)

    def exact(self) -> KernelOperator:
        return self if self.dtype == "float64" else self._source

    def refined(self) -> CachedOperator | None:
        if self.dtype == "float64":
            return None
        return self._other("float64", _unit=np.zeros(self.m))
