"""How far the answers of operators can be from those of the exact kernels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kernelweave.arrays import Array
from kernelweave.errors import InvalidInputError

if TYPE_CHECKING:
    from kernelweave.operators.base import KernelOperator

# Below this part of the largest value a quadratic form could have, a negative one is rounding: of
# float32, and of sums of many such values, with a margin of a hundred.
_NEGATIVE = 1e-5

# Rows on which the error of float32 values is measured.
_SAMPLED_ROWS = 8


@dataclass(frozen=True)
class ErrorBound:
    """How far an operator's answers for one v can be from those of the exact kernels.

    Attributes
    ----------
    quad_missing : ndarray of shape (m,)
        v'K_k v (exact), the squared norm of the function K_k v, differs from the operator's answer
        by at most this.
    product : ndarray of shape (T, n), or 0.0
        Entrywise bound on the error of sum_k d_k K_k v.
    """

    quad_missing: Array
    product: Array | float

    @classmethod
    def none(cls, m: int) -> ErrorBound:
        return cls(np.zeros(m), 0.0)


def rounding_error(v: Array, d: Array, diagonals: Array, unit: Array) -> ErrorBound:
    """Bound for kernel values known to |dK_ij| <= unit_k sqrt(K_ii K_jj).

    `unit` is (m,), `diagonals` (m, n). Rounding to float32 has unit 2^-24, because
    |K_ij| <= sqrt(K_ii K_jj).
    """
    root = np.sqrt(np.maximum(diagonals, 0.0))
    weight = np.abs(np.atleast_2d(v)) @ root.T  # (T, m): sum_j |v_j| sqrt(K_jj)
    bound = unit * (weight**2).sum(axis=0)
    return ErrorBound(bound, (weight * (unit * d)) @ root)


def largest_error(exact: KernelOperator, rounded: KernelOperator) -> Array:
    """Return the largest |dK_ij| / sqrt(K_ii K_jj) of each kernel on some rows, shape (m,)."""
    root = np.sqrt(np.maximum(exact.diagonal(), 1e-300))
    worst = np.zeros(exact.m)
    for i in np.unique(np.linspace(0, exact.n - 1, _SAMPLED_ROWS).astype(np.int64)):
        row = np.array([i])
        error = np.abs(exact.block(row)[:, 0] - rounded.block(row)[:, 0]) / root
        np.maximum(worst, error.max(axis=1) / root[:, i], out=worst)
    return worst


def semi_definite(quad: Array, v: Array, operator: KernelOperator, kernels: Array) -> Array:
    """Return quadratic forms without the rounding that takes them just below zero.

    Raises an error that names the kernel if one is negative beyond rounding: such a kernel is not
    positive semi-definite, and no solver can trust it.
    """
    low = np.flatnonzero(quad < 0)
    if len(low):
        diagonals = np.maximum(operator.diagonal(kernels[low]), 0.0)
        # A semi-definite form is at most this, and float32 rounding a ten-millionth of it.
        size = ((np.abs(np.atleast_2d(v)) @ np.sqrt(diagonals).T) ** 2).sum(axis=0)
        bad = low[quad[low] < -_NEGATIVE * size]
        if len(bad):
            raise InvalidInputError(
                f"kernel '{operator.names[kernels[bad[0]]]}' is not positive semi-definite: v'Kv = "
                f"{quad[bad[0]]:.3g} for a vector v met during the fit. Leave it out, use another "
                "metric or scale, or repair its matrix with kernelweave.kernels.nearest_psd(K)."
            )
    return np.maximum(quad, 0.0)
