"""What every bank of kernels answers, wherever its kernels live."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from kernelweave.bank.memory import cache_bytes
from kernelweave.bank.rounds import BoxConstraints, LocalRounds, Rounds
from kernelweave.bank.row_cache import RowCache
from kernelweave.bank.running import RowProducts, RunningProducts, SumProducts
from kernelweave.bank.squares import SquareSum
from kernelweave.compiled.blocks import STACK_ENTRIES, rows_of
from kernelweave.compiled.threads import one_blas_thread
from kernelweave.errors import InvalidInputError
from kernelweave.kernels.tile import StackTile, Tile
from kernelweave.memory import FEW_SAMPLES, square_side

if TYPE_CHECKING:
    from kernelweave.bank.source import Source

__all__ = [
    "ErrorBound",
    "KernelBank",
    "MatrixBank",
    "as_tasks",
    "kernel_indices",
    "round_size_of",
    "rounding_error",
    "sample_indices",
    "semi_definite",
]

# Below this part of the largest value a quadratic form could have, a negative one is rounding.
_NEGATIVE = 1e-5

Array = NDArray[Any]


@dataclass(frozen=True)
class ErrorBound:
    """How far a bank's answers for one v can be from those of the exact kernels.

    Attributes
    ----------
    quad_missing : ndarray of shape (m,)
        v'K_k v (exact) is at most the bank's answer plus this.
    norm_missing : ndarray of shape (m,)
        The function K_k v of the exact kernel has a squared norm of at most the bank's v'K_k v plus
        this.
    product : ndarray of shape (T, n), or 0.0
        Entrywise bound on the error of sum_k d_k K_k v.
    """

    quad_missing: Array
    norm_missing: Array
    product: Array | float

    @classmethod
    def none(cls, m: int) -> ErrorBound:
        """Return the bound of an exact bank."""
        return cls(np.zeros(m), np.zeros(m), 0.0)


class MatrixBank(ABC):
    """m base matrices on the same n samples: kernels, or distances that become one."""

    n: int
    m: int
    names: Sequence[str]
    # Up to this many samples forming K(d) is cheaper than asking for its rows and blocks.
    matrix_limit: int = 2000
    # Precision of tiles where sums over all of them are taken.
    tile_dtype: str = "float64"
    # Megabytes that rows of K(d) may take where a combination has to keep them itself.
    cache_mb: float = 1000

    @cached_property
    def work_bytes(self) -> float:
        """Bytes that a solver may take for square matrices of samples beside the bank.

        Half of what is free, unless the bank has promised less.
        """
        return cache_bytes(float("inf"))

    @property
    def kept_bytes(self) -> float:
        """Bytes for rows of K(d), or of some kernels, that are kept beside the bank."""
        return min(1e6 * self.cache_mb, self.work_bytes)

    def square_limit(self, most: int, copies: float) -> int:
        """Return on how many samples, at most `most`, so many square matrices may be formed."""
        if min(most, self.n) <= FEW_SAMPLES:
            return most  # Asking how much memory there is would take longer than small fits do.
        return min(most, square_side(self.work_bytes, copies))

    @property
    def forms_matrix(self) -> bool:
        """Whether solvers form K(d) as a matrix: it is cheap, and there is room for it.

        That is half of the room, as what is computed from the matrix is of the same size.
        """
        return self.n <= self.square_limit(self.matrix_limit, copies=2)

    @abstractmethod
    def tile(self, rows: Array, columns: Array | None = None, dtype: DTypeLike = float) -> Tile:
        """Return those rows and columns (None: all) of every matrix, to be combined."""

    @abstractmethod
    def take(self, idx: Array) -> MatrixBank:
        """Return a bank of the same matrices on some of the samples."""

    @abstractmethod
    def select(self, kernels: Array) -> MatrixBank:
        """Return a bank of some of the matrices on the same samples."""

    def refined(self) -> MatrixBank | None:
        """Return a more exact bank of the same matrices, or None if this one is exact."""
        return None

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes the bank holds."""


class KernelBank(MatrixBank):
    """m kernel matrices on the same n samples.

    A vector argument `v` has shape (n,) or (T, n); with (T, n) a product has shape (m, T, n) and a
    quadratic form is summed over the T rows (the tasks of a shared multi-class problem).
    `kernels` restricts any answer to those kernels, in that order; None means all.
    """

    # Variables that a decomposition solver should move at a time, more where a product with the
    # kernel costs much and a block of it little; None if it does not matter.
    round_size: int | None = None
    # Whether products go through rows, so that a row of a sum of kernels is worth keeping.
    keeps_rows: bool = False

    @abstractmethod
    def rows(self, idx: Array, kernels: Array | None = None, columns: Array | None = None) -> Array:
        """K_k[idx][:, columns] for each kernel: shape (m, len(idx), n or len(columns))."""

    def fresh_rows(self, idx: Array, kernels: Array) -> Array:
        """What `rows` returns for all columns, past any cache of the bank's own."""
        return self.rows(idx, kernels)

    @abstractmethod
    def matvec(self, v: Array, kernels: Array | None = None) -> Array:
        """K_k v for each kernel; costs only the rows where v is not zero."""

    @abstractmethod
    def quad(self, v: Array, kernels: Array | None = None) -> Array:
        """v'K_k v for each kernel."""

    @abstractmethod
    def products_at(self, v: Array, idx: Array, kernels: Array | None = None) -> Array:
        """(K_k v)[idx] for each kernel: shape (m, T, len(idx))."""

    @abstractmethod
    def combine(self, d: Array, out: Array | None = None) -> Array:
        """sum_k d_k K_k as an n x n matrix, float64 unless `out` says otherwise."""

    def combine_rows(self, d: Array, idx: Array, out: Array) -> Array:
        """sum_k d_k K_k[idx], into `out` of shape (len(idx), n)."""
        out[:] = self.tile(idx, None, out.dtype).weighted(d)
        return out

    @abstractmethod
    def take(self, idx: Array) -> KernelBank:
        """Return a bank of the same kernels on some of the samples."""

    @abstractmethod
    def diag(self, kernels: Array | None = None) -> Array:
        """Diagonals, shape (m, n)."""

    @abstractmethod
    def error(self, v: Array, d: Array) -> ErrorBound:
        """How far `quad(v)` and sum_k d_k K_k v can be from the exact kernels' answers."""

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
        size = rows_of(self.n, STACK_ENTRIES)
        for first in range(0, self.m, size):
            part = np.arange(first, min(first + size, self.m))
            units = np.full(len(part), unit)
            bound = rounding_error(tasks, d[part], self.diag(part), units)
            quad[part] = bound.quad_missing
            product += bound.product
        return ErrorBound(quad, quad, product)

    def eigenvalue_bound(self) -> Array:
        """Upper bounds on the largest eigenvalue of each kernel on vectors of sum zero, (m,).

        Here the trace of the centred kernel, which bounds every eigenvalue.
        """
        ones = np.ones(self.n)
        inside = self.quad(ones) - self.error(ones, np.zeros(self.m)).quad_missing
        return np.maximum(self.diag().sum(axis=1) - inside / self.n, 0.0)

    def quad_and_product(self, v: Array, d: Array) -> tuple[Array, Array]:
        """(v'K_k v for each kernel, sum_k d_k K_k v), in one pass over the kernels in use."""
        tasks = as_tasks(v)
        quad, product = np.empty(self.m), np.zeros_like(tasks)
        active = np.flatnonzero(d)
        size = rows_of(tasks.size, STACK_ENTRIES)
        for first in range(0, len(active), size):
            part = active[first : first + size]
            parts = self.matvec(tasks, part)
            quad[part] = np.einsum("ktn,tn->k", parts, tasks)
            product += np.tensordot(d[part], parts, axes=1)
        rest = np.flatnonzero(d == 0)
        if len(rest):
            quad[rest] = self.quad(tasks, rest)
        return semi_definite(quad, tasks, self, np.arange(self.m)), product

    def sum_products(self, V: Array) -> Array:
        """sum_k K_k V[k] for a vector, or T of them, of each kernel's own: (m, T, n) to (T, n)."""
        out = np.zeros(V.shape[1:])
        if not self.keeps_rows:
            for k in range(self.m):
                out += self.matvec(V[k], np.array([k]))[0]
            return out
        turned = V.transpose(0, 2, 1)
        size = rows_of(self.m * self.n, STACK_ENTRIES)
        for first in range(0, self.n, size):
            idx = np.arange(first, min(first + size, self.n))
            rows = self.rows(idx)
            with one_blas_thread():
                out[:, idx] = np.matmul(rows, turned).sum(axis=0).T
        return out

    def square_sum(self) -> Array:
        """sum_k K_k K_k as an n x n matrix, float64."""
        squares = SquareSum(self.n)
        size = rows_of(self.m * self.n, STACK_ENTRIES)
        many = rows_of(self.n, STACK_ENTRIES)
        for first in range(0, self.n, size):
            idx = np.arange(first, min(first + size, self.n))
            for start in range(0, self.m, many):
                part = np.arange(start, min(start + many, self.m))
                # A kernel is symmetric: its square is the sum over its rows r of r r'.
                rows = self.rows(idx, part).astype(np.float64).reshape(-1, self.n)
                squares.add(rows, rows)
        return squares.total()

    def square_factor(self) -> Array | None:
        """H of shape (R, n), R < n, with H'H = `square_sum()`; None if it is not known as such."""
        return None

    def running(self) -> RunningProducts:
        """Return K_k v of every kernel, kept up to date while v changes a little at a time."""
        return RowProducts(self, self._own_cache())

    def _own_cache(self) -> RowCache | None:
        """Return the cache of rows the bank has itself, if any."""
        return None

    def rounds(self, rules: BoxConstraints, weights: Array | None = None) -> Rounds:
        """Return what MWU asks for in its rounds, see :class:`Rounds`.

        With `weights` the rounds know one kernel only, sum_k weights_k K_k.
        """
        return LocalRounds(self.running() if weights is None else SumProducts(self, weights), rules)

    def tile(self, rows: Array, columns: Array | None = None, dtype: DTypeLike = float) -> Tile:
        rows = np.asarray(rows)
        shape = (len(rows), self.n if columns is None else len(columns))
        return StackTile(shape, self.m, lambda part: self.rows(rows, part, columns), dtype)

    @abstractmethod
    def select(self, kernels: Array) -> KernelBank:
        """See :class:`MatrixBank`."""

    @property
    def approximates(self) -> Source | None:
        """The kernels that the bank knows only nearly; None if it is exact."""
        return None

    def refined(self) -> KernelBank | None:
        """Return a more exact bank of the same kernels, or None if this one is exact."""
        return None

    @abstractmethod
    def combine_block(self, d: Array, idx: Array) -> Array:
        """sum_k d_k K_k[idx][:, idx], float64 or float32."""


def rounding_error(v: Array, d: Array, diagonals: Array, unit: Array) -> ErrorBound:
    """Bound for kernel values known to |dK_ij| <= unit_k sqrt(K_ii K_jj).

    `unit` is (m,), `diagonals` (m, n). Rounding to float32 has unit 2^-24, because
    |K_ij| <= sqrt(K_ii K_jj).
    """
    root = np.sqrt(np.maximum(diagonals, 0.0))
    weight = np.abs(as_tasks(v)) @ root.T  # (T, m): sum_j |v_j| sqrt(K_jj)
    bound = unit * (weight**2).sum(axis=0)
    return ErrorBound(bound, bound, (weight * (unit * d)) @ root)


def semi_definite(quad: Array, v: Array, bank: KernelBank, kernels: Array) -> Array:
    """Return quadratic forms without the rounding that takes them just below zero.

    Raises an error that names the kernel if one is negative beyond rounding: such a kernel is not
    positive semi-definite, and no solver can trust it.
    """
    low = np.flatnonzero(quad < 0)
    if len(low):
        diagonals = np.maximum(bank.diag(kernels[low]), 0.0)
        # A semi-definite form is at most this, and float32 rounding a ten-millionth of it.
        size = ((np.abs(as_tasks(v)) @ np.sqrt(diagonals).T) ** 2).sum(axis=0)
        bad = low[quad[low] < -_NEGATIVE * size]
        if len(bad):
            raise InvalidInputError(
                f"kernel '{bank.names[kernels[bad[0]]]}' is not positive semi-definite: v'Kv = "
                f"{quad[bad[0]]:.3g} for a vector v met during the fit. Leave it out, use another "
                "metric or scale, or repair its matrix with kernelweave.kernels.nearest_psd(K)."
            )
    return np.maximum(quad, 0.0)


def round_size_of(n: int) -> int:
    """Round size of banks whose products take time in proportion to n, however few v are not zero.

    A block takes time in proportion to its square, so the two balance at a multiple of sqrt(n).
    """
    return int(np.clip(6.0 * np.sqrt(n), 512, 4096))


def as_tasks(v: Array) -> Array:
    """View v of shape (n,) or (T, n) as (T, n), float64 and contiguous."""
    return np.ascontiguousarray(np.atleast_2d(v), dtype=np.float64)


def kernel_indices(kernels: Array | None, m: int) -> Array:
    """Indices of the kernels asked for, checked."""
    return np.arange(m) if kernels is None else _indices(kernels, m, "kernel")


def sample_indices(idx: Any, n: int) -> Array:
    """Indices of samples, checked: compiled code reads wherever it is told to."""
    return _indices(idx, n, "sample")


def _indices(given: Any, size: int, what: str) -> Array:
    chosen = np.asarray(given, dtype=np.int64)
    if chosen.size and not (chosen.min() >= 0 and chosen.max() < size):
        raise InvalidInputError(f"{what} indices must be in 0..{size - 1}; got {given!r}.")
    return chosen
