"""What every bank of kernels answers, wherever its kernels live."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelweave.errors import InvalidInputError

__all__ = [
    "ErrorBound",
    "KernelBank",
    "as_tasks",
    "kernel_indices",
    "rounding_error",
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
        The function K_k v as the bank computes it has, under the exact kernel, a squared norm of
        at most the bank's v'K_k v plus this. Zero for a factored bank: its kernels lie below the
        exact ones, and a larger kernel gives the same function a smaller norm.
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


class KernelBank(ABC):
    """m kernel matrices on the same n samples.

    A vector argument `v` has shape (n,) or (T, n); with (T, n) a product has shape (m, T, n) and a
    quadratic form is summed over the T rows (the tasks of a shared multi-class problem).
    `kernels` restricts any answer to those kernels, in that order; None means all.
    """

    n: int
    m: int
    names: tuple[str, ...]
    # Up to this many samples forming K(d) is cheaper than asking for its rows and blocks.
    matrix_limit: int = 2000

    @abstractmethod
    def rows(self, idx: Array, kernels: Array | None = None, columns: Array | None = None) -> Array:
        """K_k[idx][:, columns] for each kernel: shape (m, len(idx), n or len(columns))."""

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

    @abstractmethod
    def take(self, idx: Array) -> KernelBank:
        """Return a bank of the same kernels on some of the samples."""

    @abstractmethod
    def diag(self, kernels: Array | None = None) -> Array:
        """Diagonals, shape (m, n)."""

    @abstractmethod
    def error(self, v: Array, d: Array) -> ErrorBound:
        """How far `quad(v)` and sum_k d_k K_k v can be from the exact kernels' answers."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes the bank holds."""

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


def as_tasks(v: Array) -> Array:
    """View v of shape (n,) or (T, n) as (T, n), float64 and contiguous."""
    return np.ascontiguousarray(np.atleast_2d(v), dtype=np.float64)


def kernel_indices(kernels: Array | None, m: int) -> Array:
    """Indices of the kernels asked for."""
    return np.arange(m) if kernels is None else np.asarray(kernels, dtype=np.int64)
