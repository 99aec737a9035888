"""How an estimator keeps its kernels during a fit: what the parameter ``bank=`` accepts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kernelweave.arrays import Array
from kernelweave.cluster import DaskBank
from kernelweave.errors import InvalidInputError
from kernelweave.memory import cache_bytes
from kernelweave.operators.auto import BANKS, build_bank, computed_rows, storage_dtype
from kernelweave.operators.base import KernelOperator
from kernelweave.operators.computed import ComputedOperator
from kernelweave.operators.dense import DenseOperator
from kernelweave.operators.factors import FactorOperator
from kernelweave.operators.features import FeatureOperator
from kernelweave.operators.gaussians import GaussianOperator
from kernelweave.operators.sequences import SequenceOperator

__all__ = [
    "BANKS",
    "BatchBank",
    "DaskBank",
    "DenseBank",
    "FactoredBank",
    "LazyBank",
    "PositionalBank",
    "SparseBank",
    "build_bank",
    "storage_dtype",
]


@dataclass(frozen=True)
class DenseBank:
    """Every kernel matrix in memory; see :class:`~kernelweave.operators.DenseOperator`.

    Parameters
    ----------
    dtype : {"float32", "float64"}, default="float64"
        Storage of the matrices that have to be computed. Sums are always float64, and the rounding
        of float32 enters the certificate.

    Examples
    --------
    >>> import numpy as np
    >>> operator = DenseBank().from_matrices([np.eye(3), np.ones((3, 3))])
    >>> operator.quad(np.array([1.0, 2.0, 0.0]))
    array([5., 9.])
    """

    dtype: str = "float64"

    def build(self, kernels: KernelOperator) -> DenseOperator:
        """Return the matrices of the kernels."""
        return DenseOperator.of(kernels, self.dtype)

    def from_matrices(
        self, matrices: Any, names: Any = (), scale: Array | None = None
    ) -> DenseOperator:
        """Return an operator around symmetric matrices, taken as they are, times a factor each."""
        return DenseOperator(matrices, names, scale)


@dataclass(frozen=True)
class LazyBank:
    """Kernel values computed as they are asked for; of their sum recent rows are kept.

    See :class:`~kernelweave.operators.ComputedOperator`.

    Parameters
    ----------
    cache_mb : float, default=1000
        Megabytes for the rows that are kept and the matrices of solvers together.
    dtype : {"float32", "float64"}, default="float32"
        Type in which the values are computed. Sums are float64. The error of float32 is measured on
        a few rows and enters the certificate with a margin of four.
    """

    cache_mb: float = 1000
    dtype: str = "float32"

    def build(self, kernels: ComputedOperator | GaussianOperator) -> KernelOperator:
        """Return the kernels with arithmetic of that type."""
        out = computed_rows(kernels, self.dtype)
        out.cache_mb, out.work_bytes = self.cache_mb, cache_bytes(self.cache_mb)
        return out


@dataclass(frozen=True)
class FactoredBank:
    """Each kernel as a thin factor; see :class:`~kernelweave.operators.FactorOperator`.

    Parameters
    ----------
    rtol : float, default=1e-6
        Largest part of a kernel's trace that may be left out.
    max_rank : int or None, default=None
        Refuse kernels that need a higher rank than this.
    """

    rtol: float = 1e-6
    max_rank: int | None = None

    def build(self, kernels: KernelOperator) -> FactorOperator:
        """Factor every kernel."""
        return FactorOperator.of(kernels, self.rtol, self.max_rank)


@dataclass(frozen=True)
class SparseBank:
    """Explicit sparse features; see :class:`~kernelweave.operators.FeatureOperator`."""

    def build(self, kernels: KernelOperator) -> FeatureOperator:
        """Return the kernels by their features."""
        return FeatureOperator.of(kernels)


@dataclass(frozen=True)
class PositionalBank:
    """Aligned sequences; see :class:`~kernelweave.operators.SequenceOperator`."""

    def build(self, kernels: KernelOperator) -> SequenceOperator:
        """Return the kernels by their sequences."""
        return SequenceOperator.of(kernels)


@dataclass(frozen=True)
class BatchBank:
    """Very many Gaussian kernels; see :class:`~kernelweave.operators.GaussianOperator`.

    Parameters
    ----------
    dtype : {"float32", "float64"}, default="float32"
        Type of the arithmetic. Sums are float64.
    """

    dtype: str = "float32"

    def build(self, kernels: Any) -> GaussianOperator:
        """Return the kernels with arithmetic of that type."""
        if not isinstance(kernels, GaussianOperator):
            raise InvalidInputError(
                f"BatchBank holds the kernels of an RBFBatch; got {kernels!r}. Use bank='auto'."
            )
        return kernels.in_type(self.dtype)
