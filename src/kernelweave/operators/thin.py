"""Kernels by thin factors: products with them cost far less than their matrices have entries."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from kernelweave.arrays import Array
from kernelweave.compiled.blocks import MIRROR_ROWS
from kernelweave.compiled.dense_rows import mirror_rows
from kernelweave.compiled.threads import map_blocks
from kernelweave.errors import InvalidInputError
from kernelweave.kernels.normalize import ScaledFactor, Scaling, one_if_equal
from kernelweave.operators.base import (
    KernelOperator,
    Which,
    kernel_indices,
    round_size_of,
    same_samples,
)


class ThinOperator(KernelOperator):
    """Kernels K = S K_0 S - L'U - U'L, of which each has a `ScaledFactor`, exact.

    A subclass writes what the first term is: products, values and weighted sums.
    """

    # The method of an operator that gives the factor of one of its kernels, and what one that has
    # none is told.
    _factor: ClassVar[type]
    _needs: ClassVar[str]

    def __init__(self, factors: Sequence[ScaledFactor], names: Sequence[str]) -> None:
        self._kernels: list[Any] = list(factors)
        self._diagonals = [one_if_equal(factor.diagonal()) for factor in factors]
        self.names = tuple(names)
        self.n, self.m = factors[0].scaling.left.shape[1], len(factors)
        self.round_size = round_size_of(self.n)

    @classmethod
    def of(cls, kernels: KernelOperator) -> Any:
        factors = [kernels.thin_factor(k) for k in range(kernels.m)]
        for name, factor in zip(kernels.names, factors, strict=True):
            if not isinstance(factor, cls._factor):
                raise InvalidInputError(f"kernel '{name}' {cls._needs}")
        return cls(factors, kernels.names)

    @abstractmethod
    def _products(self, tasks: Array, chosen: Array, here: Any, out: Array) -> None:
        """Write S K_0 S v for the chosen kernels and all tasks, (kernels, tasks, rows)."""

    @abstractmethod
    def _values(self, chosen: Array, left: Any, right: Any, out: Array) -> None:
        """Write blocks of S K_0 S, (kernels, rows, columns)."""

    @abstractmethod
    def _add_sum(
        self, d: Array, active: Array, left: Any, right: Any, lower: bool, out: Array
    ) -> None:
        """Add sum_k d_k S K_0 S over the active kernels; up to the diagonal if `lower`."""

    def _apply(self, tasks: Array, chosen: Array, rows: Which) -> Array:
        here = _where(rows)
        out = np.empty((len(chosen), len(tasks), self.n if rows is None else len(here)))
        self._products(tasks, chosen, here, out)
        for place, k in enumerate(chosen):
            scaling = self._kernels[k].scaling
            if scaling.takes_off:
                for t, task in enumerate(tasks):
                    out[place, t] -= scaling.off_product(task, here)
        return out

    def block(self, rows: Which = None, columns: Which = None, kernels: Which = None) -> Array:
        chosen, left, right = kernel_indices(kernels, self.m), _where(rows), _where(columns)
        out = np.empty((len(chosen), *self._shape(rows, columns)))
        self._values(chosen, left, right, out)
        for place, k in enumerate(chosen):
            scaling = self._kernels[k].scaling
            if scaling.takes_off:
                out[place] -= scaling.off_block(left, right)
        return out

    def weighted(
        self, d: ArrayLike, rows: Which = None, columns: Which = None, out: Array | None = None
    ) -> Array:
        """See :class:`KernelOperator`; of a square only one side of the diagonal is computed."""
        given, left, right = np.asarray(d, dtype=np.float64), _where(rows), _where(columns)
        square = (rows is None and columns is None) or same_samples(rows, columns)
        active = np.flatnonzero(given)
        total = self._sum_memory(*self._shape(rows, columns))
        work = float(total.size)
        map_blocks(lambda a, b: total[a:b].fill(0.0), len(total), MIRROR_ROWS, work)
        self._add_sum(given, active, left, right, square, total)
        if square:
            map_blocks(lambda a, b: mirror_rows(total, a, b), len(total), MIRROR_ROWS, work)
        scalings = [self._kernels[k].scaling for k in active]
        if any(own.takes_off for own in scalings):
            # What centring takes off all kernels is one matrix of low rank.
            L = np.vstack(
                [d_k * own.left for d_k, own in zip(given[active], scalings, strict=True)]
            )
            U = np.vstack([own.right for own in scalings])
            total -= Scaling(np.ones(()), L, U).off_block(left, right)
        if out is None:
            return total
        out[...] = total
        return out

    def _shape(self, rows: Which, columns: Which) -> tuple[int, int]:
        return self.n if rows is None else len(rows), self.n if columns is None else len(columns)

    def diagonal(self, kernels: Which = None) -> Array:
        chosen = kernel_indices(kernels, self.m)
        out = np.empty((len(chosen), self.n))
        for i, k in enumerate(chosen):
            out[i] = self._diagonals[k]
        return out

    def take(self, idx: Array) -> Any:
        idx = np.asarray(idx, dtype=np.int64)
        shared: dict[int, Any] = {}
        return self._but(
            n=len(idx),
            round_size=round_size_of(len(idx)),
            _kernels=[kernel.take(idx, shared) for kernel in self._kernels],
            _diagonals=[own[idx] if own.ndim else own for own in self._diagonals],
        )

    def select(self, kernels: Array) -> Any:
        """See :class:`KernelOperator`; the factors are shared, not copied."""
        chosen = kernel_indices(kernels, self.m)
        return self._but(
            m=len(chosen),
            names=tuple(self.names[k] for k in chosen),
            _kernels=[self._kernels[k] for k in chosen],
            _diagonals=[self._diagonals[k] for k in chosen],
        )


def _where(which: Which) -> Any:
    return slice(None) if which is None else np.asarray(which, dtype=np.int64)
