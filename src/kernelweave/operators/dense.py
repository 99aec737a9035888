"""Kernels as matrices in memory."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy

import numpy as np
from numpy.typing import ArrayLike

from kernelweave.arrays import Array
from kernelweave.cached import cached_property
from kernelweave.compiled.blocks import FEW_ENTRIES, GAUSSIAN_WORK, STACK_ENTRIES
from kernelweave.compiled.dense_rows import (
    add_rectangle,
    add_rows,
    add_weighted_rows,
    rectangle,
    row_products,
)
from kernelweave.compiled.threads import map_blocks, map_columns, rows_of, thread_count
from kernelweave.memory import AS_ROWS, require_bytes
from kernelweave.operators.base import KernelOperator, Which, kernel_indices, sample_indices
from kernelweave.operators.bounds import ErrorBound, rounding_error

# Rows of matrices that are computed at a time, if there are so many and `STACK_ENTRIES` allows it:
# kernels of the same columns share what they compute as long as they are asked for together.
_BUILD_ROWS = 256


class DenseOperator(KernelOperator):
    """Dense n x n matrices, one per kernel, with a scale factor each.

    Matrices that the user already holds (:class:`~kernelweave.kernels.Precomputed`) are used in
    place, never copied, when the normalisation is a plain scaling.

    Parameters
    ----------
    matrices : sequence of ndarray of shape (n, n)
        Symmetric matrices, taken as they are.
    names : sequence of str, optional
        Their names.
    scale : ndarray of shape (m,), optional
        A factor on each.

    Examples
    --------
    >>> import numpy as np
    >>> operator = DenseOperator([np.eye(3), np.ones((3, 3))])
    >>> operator.quad(np.array([1.0, 2.0, 0.0]))
    array([5., 9.])
    """

    # The matrices are there already: adding them up costs one pass.
    matrix_limit = 20_000
    keeps_rows = True

    # What the matrices were computed from, and which of them were rounded to float32.
    _source: KernelOperator | None = None
    _rounded: Array

    def __init__(
        self, matrices: Sequence[Array], names: Sequence[str] = (), scale: Array | None = None
    ) -> None:
        self._matrices = [np.ascontiguousarray(K) for K in matrices]
        self.m, self.n = len(matrices), matrices[0].shape[0]
        self.names = tuple(names) or tuple(f"kernel {k}" for k in range(self.m))
        self._scale = np.ones(self.m) if scale is None else np.asarray(scale, dtype=np.float64)
        self._rounded = np.zeros(self.m, dtype=bool)

    @classmethod
    def of(cls, kernels: KernelOperator, dtype: str = "float64") -> DenseOperator:
        """Return the matrices of other kernels; those that have to be computed in that type.

        Sums are always float64, and the rounding of float32 enters the certificate.
        """
        n, matrices, scale = kernels.n, [np.empty((0, 0))] * kernels.m, np.ones(kernels.m)
        given = {k: one for k in range(kernels.m) if (one := kernels.given_matrix(k)) is not None}
        whole = [k for k, (K, ids, _) in given.items() if np.array_equal(ids, np.arange(len(K)))]
        # Counted before the first is cut.
        cut = [given[k][0] for k in given if k not in whole]
        if len(cut) * n**2 > STACK_ENTRIES:
            needed = sum(float(K.itemsize) for K in cut) * n**2
            require_bytes(needed, f"the parts of {len(cut)} given matrices", AS_ROWS)
        for k, (K, ids, factor) in given.items():
            matrices[k] = K if k in whole else rectangle(K, ids, ids, K.dtype)
            scale[k] = factor
        chosen = np.array([k for k in range(kernels.m) if k not in given], dtype=np.int64)
        if not len(chosen):
            return cls(matrices, kernels.names, scale)
        kind = np.dtype(kernels.storage(dtype, chosen))
        needed = dense_bytes(n, len(chosen), kind.name)
        require_bytes(needed, f"{len(chosen)} dense {n} x {n} kernel matrices", AS_ROWS)
        stack = np.empty((len(chosen), n, n), kind)
        # Kernels of the same columns share work, so they stay together.
        order = np.argsort(kernels.sharing(chosen), kind="stable")
        many = min(len(order), rows_of(n * min(n, _BUILD_ROWS), STACK_ENTRIES))
        parts = np.split(order, range(many, len(order), many))
        rows = min(n, rows_of(many * n, STACK_ENTRIES))
        starts = range(0, n, rows)

        def fill(first: int, last: int) -> None:
            # Evaluated in float64 whatever the storage: the only error is one rounding.
            for task in range(first, last):
                part, start = parts[task // len(starts)], starts[task % len(starts)]
                stop = min(start + rows, n)
                stack[part, start:stop] = kernels.block(np.arange(start, stop), None, chosen[part])

        map_blocks(fill, len(parts) * len(starts), 1, float(GAUSSIAN_WORK) * stack.size)
        for k, matrix in zip(chosen, stack, strict=True):
            matrices[k] = matrix
        out = cls(matrices, kernels.names, scale)
        out._source = kernels
        out._rounded[chosen] = kind == np.float32
        return out

    @property
    def dtype(self) -> str:
        """Type of the matrices that were computed."""
        return "float32" if self._rounded.any() else "float64"

    def matrix(self, k: int) -> tuple[Array, float]:
        """Return the matrix of kernel k, and the factor that it has to be multiplied by."""
        return self._matrices[k], float(self._scale[k])

    def block(self, rows: Which = None, columns: Which = None, kernels: Which = None) -> Array:
        chosen = kernel_indices(kernels, self.m)
        rows = np.arange(self.n) if rows is None else np.asarray(rows)
        pick = rows if columns is None else np.ix_(rows, columns)
        width = self.n if columns is None else len(columns)
        kinds = [self._matrices[k].dtype for k in chosen] or [np.dtype(np.float64)]
        out = np.empty((len(chosen), len(rows), width), np.result_type(*kinds))
        for position, k in enumerate(chosen):
            np.multiply(
                self._matrices[k][pick], self._scale[k], out=out[position], casting="same_kind"
            )
        return out

    def _apply(self, tasks: Array, chosen: Array, rows: Which) -> Array:
        where = np.arange(self.n) if rows is None else sample_indices(rows, self.n)
        supports = [np.flatnonzero(row) for row in tasks]
        # Of a symmetric matrix the rows where v is not zero are enough. Where it is zero nowhere,
        # sums along rows take up to a fifth less time than sums of rows.
        few = rows is None and min(map(len, supports)) < self.n
        out = np.zeros((len(chosen), len(tasks), len(where)))

        values = [task[support] for task, support in zip(tasks, supports, strict=True)]

        def work(position: int, first: int, last: int) -> None:
            K = self._matrices[chosen[position]]
            for t, target in enumerate(out[position]):
                if few:
                    add_rows(K, supports[t], values[t], target, first, last)
                else:
                    row_products(K, where[first:last], tasks[t], target[first:last])

        cost = len(chosen) * len(where) * sum(len(support) for support in supports)
        map_columns(work, len(chosen), len(where), cost)
        out *= self._scale[chosen, None, None]
        return out

    def weighted(
        self, d: ArrayLike, rows: Which = None, columns: Which = None, out: Array | None = None
    ) -> Array:
        idx = np.arange(self.n) if rows is None else sample_indices(rows, self.n)
        d = np.asarray(d, dtype=np.float64)
        active = np.flatnonzero(d)
        weights = d[active] * self._scale[active]
        matrices = [self._matrices[k] for k in active]
        width = self.n if columns is None else len(columns)
        out = np.empty((len(idx), width)) if out is None else out
        right = None if columns is None else sample_indices(columns, self.n)

        def work(start: int, stop: int) -> None:
            out[start:stop].fill(0.0)
            if right is None:
                add_weighted_rows(matrices, weights, idx[start:stop], out[start:stop])
                return
            for K, weight in zip(matrices, weights, strict=True):
                add_rectangle(K, idx[start:stop], right, weight, out[start:stop])

        # A few rows stay in the processor's cache while the kernels pass by.
        few = rows_of(self.n, FEW_ENTRIES) if right is None else 64
        map_blocks(work, len(idx), few, len(active) * out.size)
        return out

    def select(self, kernels: Array) -> DenseOperator:
        """See :class:`KernelOperator`; the matrices are shared, not copied."""
        chosen = kernel_indices(kernels, self.m)
        out = copy(self)
        out.__dict__.pop("_diagonals", None)
        out.m = len(chosen)
        out.names = tuple(self.names[k] for k in chosen)
        out._matrices = [self._matrices[k] for k in chosen]
        out._scale, out._rounded = self._scale[chosen], self._rounded[chosen]
        out._source = None if self._source is None else self._source.select(chosen)
        return out

    def diagonal(self, kernels: Which = None) -> Array:
        return self._diagonals[kernel_indices(kernels, self.m)]

    @cached_property
    def _diagonals(self) -> Array:
        found = [scale * K.diagonal() for scale, K in zip(self._scale, self._matrices, strict=True)]
        return np.array(found, np.float64).reshape(self.m, -1)

    def error(self, v: Array, d: Array) -> ErrorBound:
        """Rounding of float32 storage; the user's own matrices are exact whatever their type."""
        if not self._rounded.any():
            return ErrorBound.none(self.m)
        return rounding_error(v, d, self._diagonals, np.where(self._rounded, 2.0**-24, 0.0))

    def exact(self) -> KernelOperator:
        return self if self._source is None or not self._rounded.any() else self._source

    def refined(self) -> DenseOperator | None:
        if self._source is None or not self._rounded.any():
            return None
        return DenseOperator.of(self._source)


def dense_bytes(n: int, m: int, dtype: str) -> float:
    """Bytes that it takes to compute m kernels on n samples as matrices and to work with them."""
    needed = float(m) * n**2 * np.dtype(dtype).itemsize
    # Solvers form a sum of them, if they are not too large.
    if n <= DenseOperator.matrix_limit:
        needed += 8.0 * n**2
    return needed + min(needed, 16.0 * thread_count() * STACK_ENTRIES)
