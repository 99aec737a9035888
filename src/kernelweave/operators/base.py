"""What every kernel operator answers, wherever its kernels live."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from kernelweave.arrays import Array
from kernelweave.cached import cached_property
from kernelweave.compiled.blocks import CACHED_ENTRIES, STACK_ENTRIES
from kernelweave.compiled.threads import map_blocks, rows_of
from kernelweave.errors import InvalidInputError
from kernelweave.kernels.normalize import Target
from kernelweave.memory import FEW_SAMPLES, cache_bytes, require_bytes, rows_and_work, square_side
from kernelweave.operators.bounds import ErrorBound, rounding_error, semi_definite

# Rows and kernels, and by these the columns, of a tile that stays in the cache while products are
# taken with it: so many values that asking for them takes little time beside computing them. For 16
# Gaussian kernels on 2,500 samples a fifth of both takes 3.8 times as long, five times both, which
# leave few columns, 0.8 times.
_TILE_ROWS, _TILE_KERNELS = 64, 8
# What a value counts where tiles are shared out to threads: from a million of them on. Of Gaussian
# kernels two threads take longer up to five million values and as long for ten (measured for ten
# widths on 150 to 1,000 samples); values of other kernels may take longer each.
_VALUE_COST = 4.0
# The fewest rows of a sum of kernels that a thread takes at a time: whoever computes them reads all
# samples on the right for each such part.
_FEWEST_ROWS = 16

# Which rows, columns or kernels; None means all of them.
Which = Array | None


class KernelOperator(ABC):
    """m kernels, or distances that become one, between left samples and right samples.

    Training asks an operator of the training samples against themselves; prediction asks what its
    `against` returns, which is rectangular. A new operator supplies `block`, and `diagonal` if it
    is square; all else has a default that is built on these, which a representation overrides
    where it is faster.

    A vector argument `v` has shape (n,) or (T, n); with (T, n) a product has shape (m, T, n) and a
    quadratic form is summed over the T rows (the tasks of a shared multi-class problem). Rows are
    left samples, columns right ones, and None means all. `kernels` restricts any answer to those
    kernels, in that order.

    Attributes
    ----------
    n : int
        Number of right samples; of both in a square operator.
    m : int
        Number of kernels.
    names : sequence of str
        Their names.
    """

    n: int
    m: int
    names: Sequence[str]
    # Up to this many samples forming K(d) is cheaper than asking for its rows and blocks.
    matrix_limit: int = 2000
    # Precision of parts where sums over all of them are taken.
    tile_dtype: str = "float64"
    # Megabytes that rows of K(d) may take where a combination has to keep them itself.
    cache_mb: float = 1000
    # Variables that a decomposition solver should move at a time, more where a product with the
    # kernel costs much and a block of it little; None if it does not matter.
    round_size: int | None = None
    # Whether products go through rows, so that a row of a sum of kernels is had as quickly.
    keeps_rows: bool = False
    # Whether rows are computed whenever they are asked for: those of a sum are worth keeping.
    computes_rows: bool = False
    # Ranks of the factors that `factor_of` returns, one for each kernel; None if it has none.
    ranks: Array | None = None

    # The primitives

    @abstractmethod
    def block(self, rows: Which = None, columns: Which = None, kernels: Which = None) -> Array:
        """K_k[rows][:, columns] for each kernel: shape (m, rows, columns).

        In the operator's own type; the caller minds the memory.
        """

    def diagonal(self, kernels: Which = None) -> Array:
        """Diagonals of a square operator, shape (m, n)."""
        raise NotImplementedError(f"{type(self).__name__} has no diagonal.")

    def apply(self, v: Array, kernels: Which = None, rows: Which = None) -> Array:
        """(K_k v)[rows] for each kernel; costs only the columns where v is not zero."""
        out = self._apply(as_tasks(v), kernel_indices(kernels, self.m), rows)
        return out if np.ndim(v) == 2 else out[:, 0]

    def _apply(self, tasks: Array, chosen: Array, rows: Which) -> Array:
        """Return the products with all tasks, (kernels, tasks, rows)."""
        where = np.arange(self.shape[0]) if rows is None else np.asarray(rows)
        support = np.flatnonzero(tasks.any(axis=0))
        values = np.ascontiguousarray(tasks[:, support].T)
        out = np.zeros((len(chosen), len(tasks), len(where)))

        def work(first: int, last: int) -> None:
            for start in range(0, len(chosen), _TILE_KERNELS):
                own = chosen[start : start + _TILE_KERNELS]
                width = rows_of(_TILE_ROWS * len(own), CACHED_ENTRIES)
                for left in range(0, len(support), width):
                    run = slice(left, left + width)
                    found = self.block(where[first:last], support[run], own) @ values[run]
                    out[start : start + len(own), :, first:last] += found.transpose(0, 2, 1)

        cost = _VALUE_COST * len(chosen) * len(where) * len(support)
        map_blocks(work, len(where), _TILE_ROWS, cost)
        return out

    # Sums over kernels, and over entries

    def weighted(
        self, d: ArrayLike, rows: Which = None, columns: Which = None, out: Array | None = None
    ) -> Array:
        """sum_k d_k K_k[rows][:, columns], float64 unless `out` says otherwise.

        Kernels of weight zero are not evaluated.
        """
        weights = np.asarray(d, dtype=np.float64)
        where = np.arange(self.shape[0]) if rows is None else np.asarray(rows)
        width = self.shape[1] if columns is None else len(columns)
        out = self._sum_memory(len(where), width) if out is None else out
        active = np.flatnonzero(weights)

        def work(first: int, last: int) -> None:
            out[first:last] = 0.0
            for part in kernel_runs(len(active), (last - first) * width):
                stack = self.block(where[first:last], columns, active[part])
                out[first:last] += np.tensordot(weights[active[part]], stack, axes=1)

        map_blocks(work, len(where), row_step(width))
        return out

    def _sum_memory(self, q: int, s: int, dtype: DTypeLike = np.float64) -> Array:
        if q * s > STACK_ENTRIES:
            require_bytes(8.0 * q * s, f"one dense {q} x {s} matrix")
        return np.empty((q, s), dtype)

    def contract(self, M: ArrayLike) -> Array:
        """sum_ij M_ij K_k[i, j] for every k, shape (m,), in bounded memory."""
        weights = np.asarray(M, dtype=np.float64).ravel()
        out = np.empty(self.m)
        for part in kernel_runs(self.m, weights.size):
            values = self.block(kernels=part).reshape(len(part), -1)
            out[part] = values.astype(np.float64, copy=False) @ weights
        return out

    def quad(self, v: Array, kernels: Which = None) -> Array:
        """v'K_k v for each kernel of a square operator."""
        tasks = as_tasks(v)
        support = np.flatnonzero(tasks.any(axis=0))
        products = self.apply(tasks, kernels, support)
        quad = np.einsum("ktn,tn->k", products, tasks[:, support])
        return semi_definite(quad, v, self, kernel_indices(kernels, self.m))

    def quad_and_product(self, v: Array, d: Array) -> tuple[Array, Array]:
        """(v'K_k v for each kernel, sum_k d_k K_k v), in one pass over the kernels in use."""
        tasks = as_tasks(v)
        quad, product = np.empty(self.m), np.zeros_like(tasks)
        active = np.flatnonzero(d)
        for run in kernel_runs(len(active), tasks.size):
            part = active[run]
            parts = self.apply(tasks, part)
            quad[part] = np.einsum("ktn,tn->k", parts, tasks)
            product += np.tensordot(d[part], parts, axes=1)
        rest = np.flatnonzero(d == 0)
        if len(rest):
            quad[rest] = self.quad(tasks, rest)
        return semi_definite(quad, tasks, self, np.arange(self.m)), product

    def factor_of(self, kernels: Array) -> tuple[Array, Array]:
        """F of shape (r, n) and the owners of its rows: K_k = F_k'F_k, where there are `ranks`.

        Owners are positions in `kernels`.
        """
        raise NotImplementedError(f"{type(self).__name__} keeps no factors of its kernels.")

    @property
    def quick_sums(self) -> bool:
        """Whether a sum of kernels is formed as quickly as products with them are taken."""
        return self.keeps_rows or self.forms_matrix

    # Other operators

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of left and right samples."""
        return self.n, self.n

    def part(
        self, rows: Which = None, columns: Which = None, dtype: DTypeLike = np.float64
    ) -> KernelOperator:
        """Return the operator between some left and some right samples.

        Its sums are of that type: what a combination of kernels is computed from.
        """
        from kernelweave.operators.sampled import Part

        return Part(self, rows, columns, None, dtype)

    def take(self, idx: Array) -> KernelOperator:
        """Return the same kernels on some of the samples; here their matrices are formed."""
        from kernelweave.operators.dense import DenseOperator

        idx = np.asarray(idx)
        require_bytes(8.0 * self.m * len(idx) ** 2, f"{self.m} kernels on {len(idx)} samples")
        stack = np.empty((self.m, len(idx), len(idx)))
        for part in kernel_runs(self.m, len(idx) ** 2):
            stack[part] = self.block(idx, idx, part)
        out = DenseOperator(list(stack), self.names)
        out.work_bytes = max(self.work_bytes - float(stack.nbytes), 0.0)
        return out

    def select(self, kernels: Array) -> KernelOperator:
        from kernelweave.operators.sampled import Part

        return Part(self, None, None, kernel_indices(kernels, self.m), np.float64)

    def against(self, X: Any) -> KernelOperator:
        """Return the kernels between new samples (rows) and the training samples."""
        raise NotImplementedError(f"{type(self).__name__} knows no samples.")

    def between(self, X: Any, Z: Any) -> KernelOperator:
        """Return the kernels between new samples and other new samples."""
        raise NotImplementedError(f"{type(self).__name__} knows no samples.")

    def sample_ids_of(self, idx: Array, kernels: Array | None = None) -> dict[str, Any]:
        """Return, for each precomputed kernel, the ids of those training samples."""
        return {}

    def _but(self, **changes: Any) -> Self:
        out = object.__new__(type(self))
        out.__dict__.update(self.__dict__, **changes)
        return out

    # How exact the answers are

    def error(self, v: Array, d: Array) -> ErrorBound:
        """How far `quad(v)` and sum_k d_k K_k v can be from the exact kernels' answers."""
        return ErrorBound.none(self.m)

    def refined(self) -> KernelOperator | None:
        """Return a more exact operator of the same kernels, or None if this one is exact."""
        return None

    def exact(self) -> KernelOperator:
        """Return the same kernels in float64, nothing of them stored; itself if it is exact.

        float32 values and factors are good enough to search with. What a fit is certified by, and
        predicts with, are the kernels themselves: their values are computed as they are asked for.
        """
        return self

    def rounding(self, v: Array, d: Array) -> ErrorBound:
        """How far sums in float64 can take `quad(v)` and sum_k d_k K_k v from their exact values.

        By sqrt(n) units in the last place of the sum of the sizes of their terms: rounding goes up
        as often as down.
        """
        return self._by_diagonals(v, d, np.sqrt(self.n) * np.finfo(np.float64).eps)

    def largest_quad(self, v: Array) -> Array:
        """Upper bounds on v'K_k v by the diagonals alone, shape (m,).

        No entry of a kernel is larger than the root of the product of its two diagonal ones.
        """
        return self._by_diagonals(v, np.zeros(self.m), 1.0).quad_missing

    def _by_diagonals(self, v: Array, d: Array, unit: float) -> ErrorBound:
        """Bound for kernel values off by up to `unit` sqrt(K_ii K_jj), some kernels at a time."""
        tasks = as_tasks(v)
        quad, product = np.zeros(self.m), np.zeros_like(tasks)
        for part in kernel_runs(self.m, self.n):
            units = np.full(len(part), unit)
            bound = rounding_error(tasks, d[part], self.diagonal(part), units)
            quad[part] = bound.quad_missing
            product += bound.product
        return ErrorBound(quad, product)

    def eigenvalue_bound(self) -> Array:
        """Upper bounds on the largest eigenvalue of each kernel on vectors of sum zero, (m,).

        Here the trace of the centred kernel, which bounds every eigenvalue.
        """
        ones, trace = np.ones(self.n), np.empty(self.m)
        for part in kernel_runs(self.m, self.n):
            trace[part] = self.diagonal(part).sum(axis=1)
        # The bound on all entries of what is missing covers its diagonal as well.
        missing = self.error(ones, np.zeros(self.m)).quad_missing
        return np.maximum(trace - self.quad(ones) / self.n + 2.0 * missing, 0.0)

    # How much memory there is beside the operator

    @cached_property
    def work_bytes(self) -> float:
        """Bytes that a solver may take for square matrices of samples beside the operator.

        Half of what is free, unless the operator has promised less.
        """
        return cache_bytes(float("inf"))

    @property
    def kept_bytes(self) -> float:
        """Bytes for rows of K(d), or of some kernels, that are kept beside the operator."""
        return min(1e6 * self.cache_mb, self.work_bytes)

    @property
    def bytes_for_rows(self) -> float:
        """Bytes for rows of K(d) where these are computed: not all of `kept_bytes`.

        What they leave is for the square matrices that solvers form.
        """
        return rows_and_work(self.kept_bytes, 8.0 * float(self.n) ** 2)[0]

    def square_limit(self, most: int, copies: float) -> int:
        """Return on how many samples, at most `most`, so many square matrices may be formed."""
        if min(most, self.n) <= FEW_SAMPLES:
            return most  # Asking how much memory there is would take longer than small fits do.
        room = self.work_bytes
        if self.computes_rows and not self.forms_matrix:
            room = rows_and_work(self.kept_bytes, 8.0 * float(self.n) ** 2)[1]
        return min(most, square_side(room, copies))

    @property
    def forms_matrix(self) -> bool:
        """Whether solvers form K(d) as a matrix: it is cheap, and there is room for it.

        That is half of the room, as what is computed from the matrix is of the same size.
        """
        most = min(self.matrix_limit, self.n)
        return self.n <= most and (most <= FEW_SAMPLES or most <= square_side(self.work_bytes, 2))

    # What representations are made from, where an operator knows more of a kernel than its values

    def sharing(self, kernels: Array) -> list[int]:
        """Return a number for each of these kernels, the same where they share work."""
        return list(range(len(kernels)))

    def given_matrix(self, k: int) -> tuple[Array, Array, float] | None:
        """Return a given matrix over all its samples, which of them are meant, and its scale.

        None if normalising does more than to scale it.
        """
        return None

    def thin_factor(self, k: int) -> Any:
        """Return the normalised kernel k as `FeatureRows` or `PositionalFactor`, if it is one."""
        return None

    def dense_features(self, k: int) -> Array | None:
        """Return features of the raw kernel k, shape (n, D), whose inner products it is, if any."""
        return None

    def formula(self, k: int) -> tuple[Any, Array] | None:
        """Return the kernel's formula and the dense block of columns it reads, if it has one."""
        return None

    def raw(self) -> KernelOperator:
        """Return the kernels before their normalisation."""
        return self

    def normalised(self, k: int, target: Target) -> Target:
        """Scale and centre what belongs to kernel k on the training samples, given for the raw one.

        Such as a `Scaling`, or a factor.
        """
        return target

    def storage(self, dtype: str, kernels: Any, on_the_way: bool = False) -> str:
        """Return the type to keep these kernels in: `dtype`, or "float64" if they do not fit.

        With `on_the_way` everything they are computed from must fit as well.
        """
        return dtype


def into(out: Array | None, values: Array) -> Array:
    """Return values, written to `out` if there is one."""
    if out is None or out is values:
        return values
    out[...] = values
    return out


def same_samples(rows: Which, columns: Which) -> bool:
    return rows is not None and columns is not None and np.array_equal(rows, columns)


def row_step(n_columns: int) -> int:
    """Rows of a part with that many columns that stay in the cache of the processor."""
    return max(_FEWEST_ROWS, rows_of(n_columns, CACHED_ENTRIES))


def kernel_runs(count: int, entries: int) -> list[Array]:
    """Cut `count` kernels of so many entries each into runs that fit in memory."""
    size = rows_of(entries, STACK_ENTRIES)
    return [np.arange(first, min(first + size, count)) for first in range(0, count, size)]


def round_size_of(n: int) -> int:
    """Round size where products take time in proportion to n, however few v are not zero.

    A block takes time in proportion to its square, so the two balance at a multiple of sqrt(n).
    """
    return int(np.clip(6.0 * np.sqrt(n), 512, 4096))


def as_tasks(v: Array) -> Array:
    """View v of shape (n,) or (T, n) as (T, n), float64 and contiguous."""
    return np.ascontiguousarray(np.atleast_2d(v), dtype=np.float64)


def kernel_indices(kernels: Any, m: int) -> Array:
    """Indices of the kernels asked for, checked."""
    return np.arange(m) if kernels is None else _indices(kernels, m, "kernel")


def sample_indices(idx: Any, n: int) -> Array:
    """Indices of samples, checked: compiled code reads wherever it is told to."""
    return _indices(idx, n, "sample")


def _indices(given: Any, size: int, what: str) -> Array:
    chosen = np.asarray(given, dtype=np.int64)
    if chosen.ndim != 1 or (chosen.size and not (chosen.min() >= 0 and chosen.max() < size)):
        raise InvalidInputError(
            f"{what} indices must be a 1-D array in 0..{size - 1}; got {given!r}."
        )
    return chosen
