"""A bank of low-rank factors: K_k ~ F_k F_k', with a known bound on what is missing."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from kernelweave.bank.factor_tile import FactorTile
from kernelweave.bank.memory import AS_ROWS, require_bytes
from kernelweave.bank.protocol import (
    Array,
    ErrorBound,
    KernelBank,
    as_tasks,
    kernel_indices,
    sample_indices,
)
from kernelweave.bank.running import (
    FactorProducts,
    RowProducts,
    RunningProducts,
    StackedProducts,
)
from kernelweave.bank.source import Source
from kernelweave.bank.squares import SquareSum
from kernelweave.compiled.blocks import STACK_ENTRIES, SUM_PARTS
from kernelweave.compiled.passes import factor_products, factor_rows, factor_sums
from kernelweave.compiled.pivoted import INNER, SQUARED_DISTANCE, pivoted_cholesky_form
from kernelweave.compiled.threads import look_between_blocks, map_blocks
from kernelweave.errors import InvalidInputError
from kernelweave.linear_systems import LinAlgError, pivoted_cholesky

__all__ = ["FactoredBank", "RankExceeded", "factor_kernel"]

_KERNEL_BLOCK = 16
_COLUMN_BLOCK = 128
# Highest rank of factors that running products go through.
_THIN = 4
# Up to this many rows are multiplied out in one pass over all factors, more by BLAS.
_FEW_ROWS = 16
# A residual diagonal may be negative by this part of the kernel's own before it is not rounding.
_NEGATIVE = 1e-5
# Multiplications of compiled code between two looks at the clock, some hundredths of a second.
_PIVOT_WORK = 2e7


class RankExceeded(Exception):
    """A kernel needs more pivots than it was allowed."""


def factor_kernel(
    source: Source, k: int, rtol: float, max_rank: int | None = None
) -> tuple[Array, Array]:
    """Pivoted Cholesky of the k-th kernel to a relative trace error.

    Returns the normalised factor (rank, n), one row a pivot, and the residual diagonal (n,): the
    remainder ``E = K - F'F`` is positive semi-definite and ``trace(E) <= rtol * trace(K)``.
    Raises :class:`RankExceeded` when `max_rank` pivots are not enough.
    """
    residual = source.raw_diagonal(k)
    target = rtol * residual.sum()
    limit = source.n if max_rank is None else min(max_rank, source.n)
    form = source.form(k)
    if form is not None:
        formula, block = form
        kind = SQUARED_DISTANCE if formula.ingredient == "sqdist" else INNER
        factor = np.empty((limit, source.n))
        rank = most = 0
        while rank == most < limit:
            look_between_blocks()
            # A pivot takes one multiplication for each sample and pivot before it, or column.
            each = source.n * (rank + block.shape[1] + 1)
            most = min(limit, rank + max(1, int(_PIVOT_WORK // each)))
            rank = pivoted_cholesky_form(
                block,
                kind,
                formula.p0,
                formula.p1,
                formula.p2,
                residual,
                factor,
                target,
                rank,
                most,
            )
        factor = factor[:rank]
    else:

        def row(i: int) -> Array:
            look_between_blocks()
            return source.raw_row(k, i)

        try:
            factor = pivoted_cholesky(row, residual, target, limit, negative=_NEGATIVE)
        except LinAlgError:
            raise InvalidInputError(
                f"kernel '{source.names[k]}' is not positive semi-definite. Leave it out, or "
                "repair its matrix with kernelweave.kernels.nearest_psd(K)."
            ) from None
    if residual.sum() > target and len(factor) == limit < source.n:
        raise RankExceeded(source.names[k])
    return source.normalised_factor(k, factor, residual)


class FactoredBank(KernelBank):
    r"""Each kernel as a thin factor, exact up to a stated part of its trace.

    A pass costs :math:`O(n \sum_k r_k)` instead of :math:`O(m n^2)`. Kernels of one feature have
    tiny numerical rank (a degree-3 polynomial: 4), so this is the bank for per-feature families.
    What the factors leave out is positive semi-definite with known diagonal e, so that

    .. math:: 0 \le v'K_kv - |F_k'v|^2 \le
              \min\Big(|v|^2 \sum_i e_{ki},\; \big(\sum_i |v_i| \sqrt{e_{ki}}\big)^2\Big),

    and this bound enters the certificate.

    Parameters
    ----------
    rtol : float, default=1e-6
        Largest part of a kernel's trace that may be left out.
    max_rank : int or None, default=None
        Refuse kernels that need a higher rank than this.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.kernels import KernelSet, Polynomial
    >>> X = np.linspace(-1, 1, 50)[:, None]
    >>> bank = FactoredBank().build(KernelSet.build([Polynomial(3)], X, normalize=None))
    >>> bank.ranks
    array([4])
    """

    # Set by `build` and `from_factors`: the factors of all kernels one below the other, where each
    # begins, whose each row is, and the diagonals of what is left out.
    _source: Source | None
    _factors: Array
    _offsets: Array
    _owner: Array
    _residual: Array
    ranks: Array

    def __init__(self, rtol: float = 1e-6, max_rank: int | None = None) -> None:
        self.rtol = rtol
        self.max_rank = max_rank

    def build(self, kernels: Any) -> FactoredBank:
        """Factor every kernel of a KernelSet, or of a Source of some of it."""
        source = Source.of(kernels)
        if not 0 <= self.rtol < 1:
            raise InvalidInputError(f"rtol must lie in [0, 1); got {self.rtol!r}.")
        pieces: list[tuple[Array, Array]] = [(np.empty(0), np.empty(0))] * source.m

        def work(start: int, stop: int) -> None:
            for k in range(start, stop):
                try:
                    pieces[k] = factor_kernel(source, k, self.rtol, self.max_rank)
                except RankExceeded as exceeded:
                    raise InvalidInputError(
                        f"kernel '{exceeded}' needs a rank above max_rank={self.max_rank} for a "
                        f"relative trace error of {self.rtol:g}; use bank='auto' or 'dense'."
                    ) from None

        map_blocks(work, source.m, 1)
        return self.from_factors(pieces, source)

    def from_factors(self, pieces: list[tuple[Array, Array]], source: Source) -> FactoredBank:
        """Return a new bank around (factor, residual diagonal) pairs, one for each kernel."""
        bank = FactoredBank(self.rtol, self.max_rank)
        bank._source = source
        bank.n, bank.m, bank.names = source.n, source.m, source.names
        bank.ranks = np.array([len(factor) for factor, _ in pieces])
        bank._offsets = np.concatenate([[0], np.cumsum(bank.ranks)])
        total = int(bank._offsets[-1])
        require_bytes(
            8.0 * total * bank.n, f"factors of {bank.m} kernels (total rank {total})", AS_ROWS
        )
        bank._factors = np.empty((total, bank.n))
        bank._residual = np.empty((bank.m, bank.n))
        for k, (factor, residual) in enumerate(pieces):
            bank._factors[bank._offsets[k] : bank._offsets[k + 1]] = factor
            bank._residual[k] = residual
        bank._owner = np.repeat(np.arange(bank.m), bank.ranks)
        return bank

    @property
    def nbytes(self) -> int:
        """Bytes of the factors and the residual diagonals."""
        return int(self._factors.nbytes + self._residual.nbytes)

    def _factor_rows(self, chosen: Array) -> Array:
        """Indices of the factor rows of the chosen kernels, in order."""
        spans = [np.arange(self._offsets[k], self._offsets[k + 1]) for k in chosen]
        return np.concatenate(spans) if spans else np.empty(0, dtype=np.int64)

    def factor_of(self, kernels: Array) -> tuple[Array, Array]:
        """Factors of these kernels one below the other, (r, n), and whose each row is, (r,).

        Owners are positions in `kernels`.
        """
        chosen = kernel_indices(kernels, self.m)
        owner = np.repeat(np.arange(len(chosen)), self.ranks[chosen])
        return self._factors[self._factor_rows(chosen)], owner

    def rows(self, idx: Array, kernels: Array | None = None, columns: Array | None = None) -> Array:
        chosen = kernel_indices(kernels, self.m)
        out = np.empty((len(chosen), len(idx), self.n if columns is None else len(columns)))
        if columns is None and len(idx) <= _FEW_ROWS:
            few = sample_indices(idx, self.n)

            def work(start: int, stop: int) -> None:
                factor_rows(self._factors, self._offsets, chosen, few, out, start, stop)

            cost = float(self.ranks[chosen].sum()) * len(few) * self.n
            map_blocks(work, len(chosen), _KERNEL_BLOCK, cost)
            return out
        for position, k in enumerate(chosen):
            F = self._factors[self._offsets[k] : self._offsets[k + 1]]
            np.matmul(F[:, idx].T, F if columns is None else F[:, columns], out=out[position])
        return out

    def _project(self, tasks: Array) -> Array:
        """F'v for all factors: shape (T, total rank)."""
        out = np.empty((len(tasks), len(self._factors)))

        def work(start: int, stop: int) -> None:
            out[:, start:stop] = tasks @ self._factors[start:stop].T

        map_blocks(work, len(self._factors), max(16, 2**19 // self.n), self._factors.size)
        return out

    def matvec(self, v: Array, kernels: Array | None = None) -> Array:
        chosen = kernel_indices(kernels, self.m)
        tasks = as_tasks(v)
        out = np.empty((len(chosen), len(tasks), self.n))

        def work(start: int, stop: int) -> None:
            factor_products(self._factors, self._offsets, chosen, tasks, out, start, stop)

        cost = 2.0 * self.ranks[chosen].sum() * tasks.size
        map_blocks(work, len(chosen), _KERNEL_BLOCK, cost)
        return out if np.ndim(v) == 2 else out[:, 0]

    def running(self) -> RunningProducts:
        """See :class:`KernelBank`.

        Going through a factor reads all of it, and a row from the cache is read as fast as the
        state: only the thinnest factors are better off without both.
        """
        thin = np.flatnonzero(self.ranks <= _THIN)
        wide = np.flatnonzero(self.ranks > _THIN)
        if not len(thin):
            return RowProducts(self)
        own = self if not len(wide) else self.select(thin)
        products = FactorProducts(own._factors, own._offsets)
        if not len(wide):
            return products
        return StackedProducts([products, RowProducts(self.select(wide))], [thin, wide])

    def sum_products(self, V: Array) -> Array:
        V = np.ascontiguousarray(V, dtype=np.float64)
        # Every block of kernels has sums of its own, added up in the order of the blocks.
        block = max(_KERNEL_BLOCK, -(-self.m // SUM_PARTS))
        sums = np.zeros((-(-self.m // block), *V.shape[1:]))

        def work(start: int, stop: int) -> None:
            factor_sums(self._factors, self._offsets, V, sums[start // block], start, stop)

        map_blocks(work, self.m, block, 2.0 * self._factors.size * V.shape[1])
        return sums.sum(axis=0)

    def square_sum(self) -> Array:
        """See :class:`KernelBank`; F_k'(F_k F_k')F_k, some kernels at a time."""
        squares = SquareSum(self.n)
        first = 0
        while first < self.m:
            ends = (self._offsets[first + 1 :] - self._offsets[first]) * self.n
            last = first + max(1, int(np.searchsorted(ends, STACK_ENTRIES, side="right")))
            factors = self._factors[self._offsets[first] : self._offsets[last]]
            squares.add(factors, self._moved(first, last, lambda gram: gram))
            first = last
        return squares.total()

    def square_factor(self) -> Array | None:
        """See :class:`KernelBank`; known if the ranks of all kernels add up to less than n.

        With FF' = U diag(s) U' the square of K = F'F is F'FF'F = H'H for H = sqrt(s) U'F. Factors
        may be near singular, where this stays exact and a Cholesky factor of FF' does not.
        """

        def root(gram: Array) -> Array:
            s, U = np.linalg.eigh(gram)
            return (U * np.sqrt(np.maximum(s, 0.0))).T

        return self._moved(0, self.m, root) if len(self._factors) < self.n else None

    def _moved(self, first: int, last: int, map_of: Callable[[Array], Array]) -> Array:
        """Factors of kernels first..last, each multiplied by a matrix that comes from its FF'."""
        base = self._offsets[first]
        out = np.empty((self._offsets[last] - base, self.n))

        def work(start: int, stop: int) -> None:
            for k in range(first + start, first + stop):
                F = self._factors[self._offsets[k] : self._offsets[k + 1]]
                np.matmul(map_of(F @ F.T), F, out=out[self._offsets[k] - base :][: len(F)])

        ranks = self.ranks[first:last].astype(np.float64)
        map_blocks(work, last - first, 1, 2.0 * self.n * float(ranks @ ranks))
        return out

    def quad(self, v: Array, kernels: Array | None = None) -> Array:
        squares = (self._project(as_tasks(v)) ** 2).sum(axis=0)
        sums = np.bincount(self._owner, weights=squares, minlength=self.m)
        return sums if kernels is None else sums[kernel_indices(kernels, self.m)]

    def products_at(self, v: Array, idx: Array, kernels: Array | None = None) -> Array:
        chosen = kernel_indices(kernels, self.m)
        tasks = as_tasks(v)
        out = np.empty((len(chosen), len(tasks), len(idx)))
        for position, k in enumerate(chosen):
            F = self._factors[self._offsets[k] : self._offsets[k + 1]]
            out[position] = (tasks @ F.T) @ F[:, idx]
        return out if np.ndim(v) == 2 else out[:, 0]

    def take(self, idx: Array) -> FactoredBank:
        bank = copy(self)
        bank._source = None
        bank.n = len(idx)
        bank._factors = np.ascontiguousarray(self._factors[:, idx])
        bank._residual = np.ascontiguousarray(self._residual[:, idx])
        return bank

    def select(self, kernels: Array) -> FactoredBank:
        """See :class:`KernelBank`; the factors of consecutive kernels are shared, not copied."""
        chosen = kernel_indices(kernels, self.m)
        bank = copy(self)
        bank._source = None if self._source is None else self._source.select(chosen)
        bank.m = len(chosen)
        bank.names = tuple(self.names[k] for k in chosen)
        bank.ranks = self.ranks[chosen]
        bank._offsets = np.concatenate([[0], np.cumsum(bank.ranks)])
        bank._owner = np.repeat(np.arange(bank.m), bank.ranks)
        if bank.m and np.all(np.diff(chosen) == 1):
            first, last = chosen[0], chosen[-1] + 1
            bank._factors = self._factors[self._offsets[first] : self._offsets[last]]
            bank._residual = self._residual[first:last]
        else:
            # One product with all factors needs them one below the other.
            bank._factors = self._factors[self._factor_rows(chosen)]
            bank._residual = self._residual[chosen]
        return bank

    def combine(self, d: Array, out: Array | None = None) -> Array:
        out = np.empty((self.n, self.n)) if out is None else out
        picked = self._factor_rows(np.flatnonzero(d))
        plain = self._factors[picked].astype(out.dtype, copy=False)
        scaled = plain * d[self._owner[picked], None].astype(out.dtype)

        def work(start: int, stop: int) -> None:
            block = scaled[:, :stop].T @ plain[:, start:stop]
            out[:stop, start:stop] = block
            out[start:stop, :stop] = block.T

        map_blocks(work, self.n, _COLUMN_BLOCK, len(picked) * self.n**2)
        return out

    def combine_block(self, d: Array, idx: Array) -> Array:
        picked = self._factor_rows(np.flatnonzero(d))
        part = self._factors[np.ix_(picked, idx)]
        return (part * d[self._owner[picked], None]).T @ part

    def diag(self, kernels: Array | None = None) -> Array:
        chosen = kernel_indices(kernels, self.m)
        spans = [self._factors[self._offsets[k] : self._offsets[k + 1]] for k in chosen]
        return np.array([np.einsum("rn,rn->n", F, F) for F in spans]).reshape(-1, self.n)

    def tile(
        self, rows: Array, columns: Array | None = None, dtype: DTypeLike = float
    ) -> FactorTile:
        left = self._factors[:, np.asarray(rows)]
        right = self._factors if columns is None else self._factors[:, np.asarray(columns)]
        return FactorTile(left, right, self._owner, self.m, dtype)

    def eigenvalue_bound(self) -> Array:
        """See :class:`KernelBank`; the eigenvalue itself, and what the factors leave out."""
        out = self._residual.sum(axis=1)

        def work(start: int, stop: int) -> None:
            for k in range(start, stop):
                F = self._factors[self._offsets[k] : self._offsets[k + 1]]
                F = F - F.mean(axis=1, keepdims=True)
                out[k] += np.linalg.norm(F @ F.T, 2) if len(F) else 0.0

        map_blocks(work, self.m, 16, self.m * self.n * float(np.mean(self.ranks**2)))
        return out * (1.0 + 1e-9)

    def error(self, v: Array, d: Array) -> ErrorBound:
        """What the factors leave out; see the class docstring.

        The kernels E that they leave out are semi-definite, with a known diagonal: v'Ev is at most
        the smaller of two bounds, and an entry of Ev at most sqrt(E_ii v'Ev), by Cauchy and
        Schwarz. What predicts is the function of the exact kernels.
        """
        tasks = as_tasks(v)
        roots = np.sqrt(self._residual)
        by_norm = (tasks**2).sum(axis=1)[:, None] * self._residual.sum(axis=1)
        left_out = np.minimum(by_norm, (np.abs(tasks) @ roots.T) ** 2)
        missing = left_out.sum(axis=0)
        return ErrorBound(missing, missing, (np.sqrt(left_out) * d) @ roots)

    @property
    def approximates(self) -> Source | None:
        return self._source

    def refined(self) -> FactoredBank | None:
        """Return factors a hundred times closer, down to a relative trace error of 1e-12."""
        if self.rtol <= 1e-12 or self._source is None:
            return None
        return FactoredBank(max(self.rtol / 100, 1e-12), self.max_rank).build(self._source)
