"""Kernels as low-rank factors: K_k ~ F_k F_k', with a known bound on what is missing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from kernelweave.arrays import Array
from kernelweave.compiled.blocks import MIRROR_ROWS
from kernelweave.compiled.dense_rows import mirror_rows, read_only
from kernelweave.compiled.low_rank import (
    INNER,
    SQUARED_DISTANCE,
    factor_products,
    factor_rows,
    pivoted_cholesky_form,
)
from kernelweave.compiled.threads import look_between_blocks, map_blocks
from kernelweave.errors import InvalidInputError
from kernelweave.linear_systems import LinAlgError, pivoted_cholesky
from kernelweave.memory import AS_ROWS, require_bytes
from kernelweave.operators.base import (
    KernelOperator,
    Which,
    as_tasks,
    into,
    kernel_indices,
    sample_indices,
)
from kernelweave.operators.bounds import ErrorBound

# Kernels, and columns of their sum, that a thread takes at a time. Products with 400 kernels on 600
# samples (cubic ones of a feature) took 1.8 ms so, 2.4 three at a time and 1.8 eighty at a time;
# their sum took 73 ms, 81 by 26 columns and 105 by 640.
_KERNEL_BLOCK = 16
_COLUMN_BLOCK = 128
# Up to this many rows are multiplied out in one pass over all factors, more by BLAS: of those
# kernels 2 rows took 2.2 against 9.3 ms, 16 rows 12 against 21, and 32 rows 44 against 39.
_FEW_ROWS = 16
# A residual diagonal may be negative by this part of the kernel's own before it is not rounding.
_NEGATIVE = 1e-5
# Multiplications of compiled code between two looks at the clock, some hundredths of a second.
_PIVOT_WORK = 2e7


class RankExceeded(Exception):
    """A kernel needs more pivots than it was allowed."""


@dataclass(frozen=True)
class Pivots:
    """A factor of K = F'F + E, one row a pivot, and a bound on the diagonal of the remainder E.

    The remainder is positive semi-definite.
    """

    factor: Array
    residual: Array

    def scaled(self, root: Any) -> Pivots:
        return Pivots(self.factor * root, self.residual * np.square(root))

    def centred(self, means: Array, grand: float) -> Pivots:
        # |phi_i - mean(phi)| <= |phi_i| + mean |phi| in the feature space of the remainder.
        roots = np.sqrt(np.maximum(self.residual, 0.0))
        factor = self.factor - self.factor.mean(axis=1, keepdims=True)
        return Pivots(factor, (roots + roots.mean()) ** 2)


def factor_kernel(
    source: KernelOperator,
    k: int,
    rtol: float,
    max_rank: int | None = None,
    raw: KernelOperator | None = None,
) -> Pivots:
    """Pivoted Cholesky of the k-th kernel to a relative trace error, normalised.

    Of the kernel before its normalisation ``trace(E) <= rtol * trace(K)``. Raises
    :class:`RankExceeded` when `max_rank` pivots are not enough. Whoever factors many kernels gives
    `raw`, which is ``source.raw()``.
    """
    raw = source.raw() if raw is None else raw
    return source.normalised(k, raw_factor(raw, k, rtol, max_rank))


def raw_factor(raw: KernelOperator, k: int, rtol: float, max_rank: int | None = None) -> Pivots:
    """Return what :func:`factor_kernel` does, of a kernel that is not normalised."""
    own = np.array([k])
    features = raw.dense_features(k)
    if features is not None and features.shape[1] <= (max_rank or features.shape[1]):
        return Pivots(features.T, np.zeros(raw.n))
    residual = np.array(raw.diagonal(own)[0])
    target = rtol * residual.sum()
    limit = raw.n if max_rank is None else min(max_rank, raw.n)
    form = raw.formula(k)
    if form is not None:
        formula, block = form[0], read_only(form[1])
        kind = SQUARED_DISTANCE if formula.ingredient == "sqdist" else INNER
        factor = np.empty((limit, raw.n))
        rank = most = 0
        while rank == most < limit:
            look_between_blocks()
            # A pivot takes one multiplication for each sample and pivot before it, or column.
            each = raw.n * (rank + block.shape[1] + 1)
            most = min(limit, rank + max(1, int(_PIVOT_WORK // each)))
            numbers = formula.p0, formula.p1, formula.p2
            rank = pivoted_cholesky_form(
                block, kind, *numbers, residual, factor, target, rank, most
            )
        factor = factor[:rank]
    else:

        def row(i: int) -> Array:
            look_between_blocks()
            return raw.block(np.array([i]), None, own)[0, 0]

        try:
            factor = pivoted_cholesky(row, residual, target, limit, negative=_NEGATIVE)
        except LinAlgError:
            raise InvalidInputError(
                f"kernel '{raw.names[k]}' is not positive semi-definite. Leave it out, or "
                "repair its matrix with kernelweave.kernels.nearest_psd(K)."
            ) from None
    if residual.sum() > target and len(factor) == limit < raw.n:
        raise RankExceeded(raw.names[k])
    return Pivots(factor, residual)


class FactorOperator(KernelOperator):
    r"""Each kernel as a thin factor, exact up to a stated part of its trace.

    A pass costs :math:`O(n \sum_k r_k)` instead of :math:`O(m n^2)`. Kernels of one feature have
    tiny numerical rank (a degree-3 polynomial: 4), so this is for per-feature families.
    What the factors leave out is positive semi-definite with known diagonal e, so that

    .. math:: 0 \le v'K_kv - |F_k'v|^2 \le
              \min\Big(|v|^2 \sum_i e_{ki},\; \big(\sum_i |v_i| \sqrt{e_{ki}}\big)^2\Big),

    and this bound enters the certificate.

    Parameters
    ----------
    pieces : sequence of Pivots
        The factor of each kernel, and the diagonal of what it leaves out.
    names : sequence of str
        Names of the kernels.
    source : KernelOperator, optional
        The kernels themselves.
    rtol : float, default=0
        Largest part of a kernel's trace that was left out.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.kernels import Polynomial
    >>> from kernelweave.operators import ComputedOperator
    >>> X = np.linspace(-1, 1, 50)[:, None]
    >>> FactorOperator.of(ComputedOperator.build([Polynomial(3)], X, normalize=None)).ranks
    array([4])
    """

    ranks: Array
    _max_rank: int | None = None

    def __init__(
        self,
        pieces: Sequence[Pivots],
        names: Sequence[str],
        source: KernelOperator | None = None,
        rtol: float = 0.0,
    ) -> None:
        self._source, self.rtol = source, rtol
        self.m, self.n, self.names = len(pieces), len(pieces[0].residual), names
        self.ranks = np.array([len(piece.factor) for piece in pieces])
        # The factors of all kernels one below the other, where each begins, and whose each row is.
        self._offsets = np.concatenate([[0], np.cumsum(self.ranks)])
        self._owner = np.repeat(np.arange(self.m), self.ranks)
        total = int(self._offsets[-1])
        require_bytes(
            8.0 * total * self.n, f"factors of {self.m} kernels (total rank {total})", AS_ROWS
        )
        self._factors = np.empty((total, self.n))
        self._residual = np.empty((self.m, self.n))
        for k, piece in enumerate(pieces):
            self._factors[self._offsets[k] : self._offsets[k + 1]] = piece.factor
            self._residual[k] = piece.residual

    @classmethod
    def of(
        cls, kernels: KernelOperator, rtol: float = 1e-6, max_rank: int | None = None
    ) -> FactorOperator:
        """Factor every kernel to a relative trace error of `rtol`.

        Kernels that need a higher rank than `max_rank` are refused.
        """
        if not 0 <= rtol < 1:
            raise InvalidInputError(f"rtol must lie in [0, 1); got {rtol!r}.")
        pieces: dict[int, Pivots] = {}
        raw = kernels.raw()

        def work(start: int, stop: int) -> None:
            for k in range(start, stop):
                try:
                    pieces[k] = factor_kernel(kernels, k, rtol, max_rank, raw)
                except RankExceeded as exceeded:
                    raise InvalidInputError(
                        f"kernel '{exceeded}' needs a rank above max_rank={max_rank} for a "
                        f"relative trace error of {rtol:g}; use bank='auto' or 'dense'."
                    ) from None

        map_blocks(work, kernels.m, 1)
        out = cls([pieces[k] for k in range(kernels.m)], kernels.names, kernels, rtol)
        out._max_rank = max_rank
        return out

    def _factor_rows(self, chosen: Array) -> Array | slice:
        """The factor rows of the chosen kernels, in order: a slice if they follow each other."""
        if len(chosen) and np.all(np.diff(chosen) == 1):
            return slice(self._offsets[chosen[0]], self._offsets[chosen[-1] + 1])
        spans = [np.arange(self._offsets[k], self._offsets[k + 1]) for k in chosen]
        return np.concatenate(spans) if spans else np.empty(0, dtype=np.int64)

    def factor_of(self, kernels: Array) -> tuple[Array, Array]:
        chosen = kernel_indices(kernels, self.m)
        owner = np.repeat(np.arange(len(chosen)), self.ranks[chosen])
        return self._factors[self._factor_rows(chosen)], owner

    def block(self, rows: Which = None, columns: Which = None, kernels: Which = None) -> Array:
        chosen = kernel_indices(kernels, self.m)
        idx = np.arange(self.n) if rows is None else sample_indices(rows, self.n)
        width = self.n if columns is None else len(columns)
        out = np.empty((len(chosen), len(idx), width))
        if columns is None and len(idx) <= _FEW_ROWS:

            def work(start: int, stop: int) -> None:
                some = chosen[start:stop]
                factor_rows(self._factors, self._offsets, some, idx, out[start:stop])

            cost = float(self.ranks[chosen].sum()) * len(idx) * self.n
            map_blocks(work, len(chosen), _KERNEL_BLOCK, cost)
            return out
        for position, k in enumerate(chosen):
            own = slice(self._offsets[k], self._offsets[k + 1])
            left, right = self._factors[own, idx], self._factors[own]
            out[position] = left.T @ (right if columns is None else right[:, columns])
        return out

    def _apply(self, tasks: Array, chosen: Array, rows: Which) -> Array:
        out = np.empty((len(chosen), len(tasks), self.n))

        def work(start: int, stop: int) -> None:
            some = chosen[start:stop]
            factor_products(self._factors, self._offsets, some, tasks, out[start:stop])

        cost = 2.0 * self.ranks[chosen].sum() * tasks.size
        map_blocks(work, len(chosen), _KERNEL_BLOCK, cost)
        return out if rows is None else out[:, :, sample_indices(rows, self.n)]

    def quad(self, v: Array, kernels: Which = None) -> Array:
        tasks = as_tasks(v)
        squares = np.empty(len(self._factors))

        def work(start: int, stop: int) -> None:
            squares[start:stop] = ((tasks @ self._factors[start:stop].T) ** 2).sum(axis=0)

        map_blocks(work, len(squares), max(16, 2**19 // self.n), self._factors.size)
        sums = np.bincount(self._owner, weights=squares, minlength=self.m)
        return sums if kernels is None else sums[kernel_indices(kernels, self.m)]

    def take(self, idx: Array) -> FactorOperator:
        factors = np.ascontiguousarray(self._factors[:, idx])
        residual = np.ascontiguousarray(self._residual[:, idx])
        return self._but(n=len(idx), _factors=factors, _residual=residual, _source=None)

    def select(self, kernels: Array) -> FactorOperator:
        """See :class:`KernelOperator`; factors of consecutive kernels are shared, not copied."""
        chosen = kernel_indices(kernels, self.m)
        ranks = self.ranks[chosen]
        return self._but(
            m=len(chosen),
            names=tuple(self.names[k] for k in chosen),
            ranks=ranks,
            _source=None if self._source is None else self._source.select(chosen),
            _offsets=np.concatenate([[0], np.cumsum(ranks)]),
            _owner=np.repeat(np.arange(len(chosen)), ranks),
            _factors=self._factors[self._factor_rows(chosen)],
            _residual=self._residual[chosen],
        )

    def weighted(
        self, d: ArrayLike, rows: Which = None, columns: Which = None, out: Array | None = None
    ) -> Array:
        d = np.asarray(d, dtype=np.float64)
        picked = self._factor_rows(np.flatnonzero(d))
        kind = np.dtype(np.float64) if out is None else out.dtype
        weights = d[self._owner[picked], None].astype(kind)
        if rows is not None or columns is not None:
            left, right = _cut(self._factors, picked, rows), _cut(self._factors, picked, columns)
            return into(out, (left * weights).T @ right)
        out = np.empty((self.n, self.n)) if out is None else out
        plain = self._factors[picked].astype(kind, copy=False)
        scaled = plain * weights

        def work(start: int, stop: int) -> None:
            np.matmul(scaled[:, start:stop].T, plain[:, :stop], out=out[start:stop, :stop])

        # Half of the entries, and BLAS multiplies ten times as fast as other work is counted.
        map_blocks(work, self.n, _COLUMN_BLOCK, 0.05 * len(scaled) * self.n**2)
        map_blocks(lambda a, b: mirror_rows(out, a, b), self.n, MIRROR_ROWS, float(out.size))
        return out

    def diagonal(self, kernels: Which = None) -> Array:
        chosen = kernel_indices(kernels, self.m)
        spans = [self._factors[self._offsets[k] : self._offsets[k + 1]] for k in chosen]
        return np.array([np.einsum("rn,rn->n", F, F) for F in spans]).reshape(-1, self.n)

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
        return ErrorBound(missing, (np.sqrt(left_out) * d) @ roots)

    def exact(self) -> KernelOperator:
        return self if self._source is None else self._source

    def refined(self) -> FactorOperator | None:
        """Return factors a hundred times closer, down to a relative trace error of 1e-12."""
        if self.rtol <= 1e-12 or self._source is None:
            return None
        return FactorOperator.of(self._source, max(self.rtol / 100, 1e-12), self._max_rank)


def _cut(factors: Array, rows: Array | slice, columns: Which) -> Array:
    if columns is None:
        return factors[rows]
    return factors[rows][:, columns] if isinstance(rows, slice) else factors[np.ix_(rows, columns)]
