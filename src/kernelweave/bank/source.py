"""What the banks ask of a set of kernels: which of them, as matrices, rows or formulas."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from kernelweave.bank.protocol import Array
from kernelweave.compiled.finite import fits_float32
from kernelweave.kernels.base import ElementwiseForm
from kernelweave.kernels.batch_set import BatchSet
from kernelweave.kernels.evaluate import evaluate_stack
from kernelweave.kernels.precomputed import Precomputed

if TYPE_CHECKING:
    from kernelweave.kernels.base import Kernel
    from kernelweave.kernels.kernel_set import KernelSet
    from kernelweave.kernels.sparse_factor import SparseFactor
    from kernelweave.kernels.strings.positional_factor import PositionalFactor

__all__ = ["Source"]


@dataclass(frozen=True)
class Source:
    """Some of the kernels of a set; a bank is built from one.

    Parameters
    ----------
    kernel_set : KernelSet
        Kernels on the training rows, with their normalisation.
    members : ndarray of int
        Which of them, in the bank's order.

    Examples
    --------
    >>> from kernelweave.kernels import KernelSet, Linear, RBF
    >>> source = Source.of(KernelSet.build([Linear(), RBF(width=1)], [[1.0], [3.0]]), [1])
    >>> source.m, source.names
    (1, ('rbf(width=1)',))
    """

    kernel_set: KernelSet
    members: Array

    @classmethod
    def of(cls, kernels: Any, members: Any = None) -> Source:
        """Return a source of those members (None: all) of a set; a source is returned as it is."""
        if isinstance(kernels, Source):
            return kernels
        chosen = np.arange(kernels.m) if members is None else np.asarray(members, dtype=np.int64)
        return (BatchSource if isinstance(kernels, BatchSet) else Source)(kernels, chosen)

    def select(self, kernels: Array) -> Source:
        """Return a source of some of these kernels."""
        return type(self)(self.kernel_set, self.members[kernels])

    @property
    def n(self) -> int:
        """Number of samples."""
        return self.kernel_set.n

    @property
    def m(self) -> int:
        """Number of kernels."""
        return len(self.members)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the kernels."""
        return tuple(self.kernel_set.names[k] for k in self.members)

    @cached_property
    def _scale(self) -> Array | None:
        return self.kernel_set.scale

    def kernel(self, k: int) -> Kernel:
        """Return the k-th kernel, bound but not normalised."""
        return self.kernel_set.kernels[self.members[k]]

    def sharing(self, kernels: Array) -> list[int]:
        """Return a number for each of these kernels, the same where they read the same columns."""
        numbers: dict[Any, int] = {}
        return [numbers.setdefault(self.kernel(k).path, len(numbers)) for k in kernels]

    def rows(self, idx: Array, kernels: Array | None = None, dtype: Any = np.float64) -> Array:
        """Normalised rows, shape (m, len(idx), n)."""
        chosen = self.members if kernels is None else self.members[kernels]
        return self.kernel_set.rows(idx, chosen, dtype=dtype)

    def block(self, idx: Array, kernels: Array | None = None, dtype: Any = np.float64) -> Array:
        """Normalised kernels between some samples, shape (m, len(idx), len(idx))."""
        chosen = self.members if kernels is None else self.members[kernels]
        return self.kernel_set.rows(idx, chosen, idx, dtype)

    def tile(self, idx: Array, columns: Array, kernels: Array, dtype: Any) -> Array:
        """Some normalised kernels between some samples and others, (m, len(idx), len(columns))."""
        return self.kernel_set.rows(idx, self.members[kernels], columns, dtype)

    def diag(self) -> Array:
        """Normalised diagonals, shape (m, n)."""
        return self.kernel_set.diag(self.members)

    def storage(self, dtype: str, kernels: Any, on_the_way: bool = False) -> str:
        """Return the type to keep these kernels in: `dtype`, or "float64" if they do not fit.

        With `on_the_way` everything they are computed from must fit as well.
        """
        if dtype == "float64":
            return dtype
        for k in kernels:
            fits = fits_float32(self.kernel_set.diag([self.members[k]]))
            if not (fits and (not on_the_way or self._evaluates_in_float32(k))):
                return "float64"
        return dtype

    def _evaluates_in_float32(self, k: int) -> bool:
        form = self.kernel(k).form()
        rate = form.p0 if form is not None and form.ingredient == "sqdist" else 1.0
        return fits_float32(np.array([rate])) and fits_float32(self.raw_diagonal(k))

    def stored_matrix(self, k: int) -> tuple[Array, float] | None:
        """Return a matrix that exists already and its scale, if normalising only scales it."""
        scale = self._scale
        matrix = None if scale is None else self.kernel(k).as_matrix(self.kernel_set.samples)
        if matrix is None or scale is None:
            return None
        return np.ascontiguousarray(matrix), float(scale[self.members[k]])

    def given(self, k: int) -> tuple[Array, Array, float] | None:
        """Return a given matrix over all its samples, which of them are meant, and its scale.

        None if there is no such matrix, or if normalising does more than to scale it.
        """
        scale = self._scale
        matrix = None if scale is None else self.kernel(k).whole_matrix()
        if matrix is None or scale is None:
            return None
        ids = self.kernel(k).ids(self.kernel_set.samples)
        return matrix, np.asarray(ids), float(scale[self.members[k]])

    def holds_matrix(self, k: int) -> bool:
        """Whether `stored_matrix` has an answer."""
        scaling = self.kernel_set.normalization.pure_scaling
        return scaling and isinstance(self.kernel(k).core, Precomputed)

    def form(self, k: int) -> tuple[ElementwiseForm, Array] | None:
        """Return the kernel's formula and the dense block of columns it reads, if it has one."""
        form = self.kernel(k).form()
        block = None if form is None else self.kernel(k).block(self.kernel_set.samples)
        return None if form is None or block is None else (form, np.ascontiguousarray(block))

    def sparse_factor(self, k: int) -> SparseFactor | None:
        """Return the normalised kernel by its sparse features, if it has any."""
        return self.kernel_set.sparse_factor(int(self.members[k]))

    def positional_factor(self, k: int) -> PositionalFactor | None:
        """Return the normalised kernel by its aligned sequences, if it has any."""
        return self.kernel_set.positional_factor(int(self.members[k]))

    def raw_diagonal(self, k: int) -> Array:
        """k(x, x) before normalisation."""
        return np.array(self.kernel_set.raw_diag(int(self.members[k]), self.kernel_set.samples))

    def raw_row(self, k: int, i: int) -> Array:
        """Row i before normalisation."""
        samples = self.kernel_set.samples
        return evaluate_stack([self.kernel(k)], samples.take([i]), samples)[0, 0]

    def normalised_factor(self, k: int, factor: Array, residual: Array) -> tuple[Array, Array]:
        """Normalise a (rank, n) factor of the raw kernel and the residual diagonal beside it."""
        member = int(self.members[k])
        scaled = self.kernel_set.apply_to_factor(member, factor.T).T
        return np.ascontiguousarray(scaled), self.kernel_set.apply_to_residual(member, residual)


class BatchSource(Source):
    """Some of the kernels of a `BatchSet`, for banks that store them after all."""

    def sharing(self, kernels: Array) -> list[int]:
        """Each kernel stands alone."""
        return list(range(len(kernels)))

    def stored_matrix(self, k: int) -> tuple[Array, float] | None:
        """No matrix exists."""
        return None

    def given(self, k: int) -> tuple[Array, Array, float] | None:
        """No matrix exists."""
        return None

    def holds_matrix(self, k: int) -> bool:
        """No matrix exists."""
        return False

    def form(self, k: int) -> tuple[ElementwiseForm, Array] | None:
        """Return the kernel's formula and the columns it reads."""
        member = self.members[k]
        columns = self._batch.columns[member]
        block = np.ascontiguousarray(self._batch.table[columns[columns >= 0]].T)
        return ElementwiseForm("sqdist", 0, float(self._batch.gamma[member])), block

    def sparse_factor(self, k: int) -> SparseFactor | None:
        """No Gaussian kernel has sparse features."""
        return None

    def positional_factor(self, k: int) -> PositionalFactor | None:
        """No Gaussian kernel compares sequences."""
        return None

    def raw_diagonal(self, k: int) -> Array:
        """Ones."""
        return np.ones(self.n)

    def raw_row(self, k: int, i: int) -> Array:
        """Row i."""
        return self._batch.rows([i], [self.members[k]])[0, 0]

    def normalised_factor(self, k: int, factor: Array, residual: Array) -> tuple[Array, Array]:
        """A Gaussian kernel is as normalisation would leave it."""
        return np.ascontiguousarray(factor), residual

    @property
    def _batch(self) -> Any:
        return self.kernel_set
