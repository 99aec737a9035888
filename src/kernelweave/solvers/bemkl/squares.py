"""sum_k K_k K_k and what q(a) asks of it: in full, or by the few rows of a thin factor."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from scipy.linalg.lapack import dpstrf

from kernelweave.operators.base import KernelOperator
from kernelweave.problem import Array
from kernelweave.solvers.bemkl.factor import CholeskyInverse
from kernelweave.solvers.bemkl.matrices import Inverse, ThinMatrix
from kernelweave.validation import require_array

__all__ = ["FullSquares", "Squares", "ThinSquares"]

# With R rows the thin form does n R^2 multiplications, the other one n^3 / 3.
_THIN_SHARE = 0.5
# Below this size nothing is gained by looking for a low rank.
_WORTH_LOOKING = 256
# What may be left out of the sum, beside precisions of size one.
_LEFT_OUT = 1e-10
# Numbers on the diagonals of kernels that are held at a time.
_DIAGONAL_ENTRIES = 2**20


class Squares(ABC):
    """S = sum_k K_k K_k, formed once for all iterations and all classes.

    Attributes
    ----------
    n : int
        Samples.
    trace : float
        Of S.
    """

    n: int
    trace: float

    @staticmethod
    def of(bank: KernelOperator) -> Squares:
        """Form the sum for the kernels of a bank, thin if their ranks or its own allow that."""
        thin = bank.square_factor()
        if thin is not None and len(thin) <= _THIN_SHARE * bank.n:
            return ThinSquares(thin)
        full = bank.square_sum()
        thin = _low_rank(full) if bank.n > _WORTH_LOOKING else None
        return FullSquares(full) if thin is None else ThinSquares(thin)

    @staticmethod
    def unknown(bank: KernelOperator) -> Squares:
        """Stand in for the sum where there is no time to form it.

        Nothing is known of a then beyond its prior. As kernels have no negative eigenvalues, the
        trace of a square is at most the square of the trace: the lower bound stays one.
        """
        squares = ThinSquares(np.zeros((0, bank.n)))
        parts = np.array_split(np.arange(bank.m), -(-bank.m * bank.n // _DIAGONAL_ENTRIES))
        traces = [bank.diagonal(part).sum(axis=1, dtype=np.float64) for part in parts]
        squares.trace = float(np.sum(np.concatenate(traces) ** 2))
        return squares

    @abstractmethod
    def covariance(self, scale: float, precisions: Array) -> tuple[Inverse, float]:
        """Return (diag(precisions) + scale S)^-1, and the log det of its inverse."""

    @abstractmethod
    def check(self, n: int) -> None:
        """Raise unless this, which came from a file, is of n samples."""


class FullSquares(Squares):
    """The n x n matrix."""

    def __init__(self, matrix: Array) -> None:
        self._matrix = matrix
        self.n, self.trace = len(matrix), float(np.trace(matrix))

    def covariance(self, scale: float, precisions: Array) -> tuple[Inverse, float]:
        matrix = scale * self._matrix
        matrix[np.diag_indices_from(matrix)] += precisions
        inverse = CholeskyInverse(matrix)
        return inverse, inverse.log_det

    def check(self, n: int) -> None:
        require_array("the sum of squared kernels", self._matrix, (n, n))
        FullSquares.__init__(self, self._matrix)


class ThinSquares(Squares):
    """H (R, n) with S = H'H."""

    def __init__(self, thin: Array) -> None:
        self._thin = thin
        self.n, self.trace = thin.shape[1], float(np.vdot(thin, thin))

    def covariance(self, scale: float, precisions: Array) -> tuple[Inverse, float]:
        return ThinMatrix(precisions, self._thin, self._thin[:0], scale).inverse()

    def check(self, n: int) -> None:
        require_array("the sum of squared kernels", self._thin, (None, n))
        ThinSquares.__init__(self, self._thin)


def _low_rank(full: Array) -> Array | None:
    """H with H'H = full up to rounding, if it has few rows: Cholesky with pivots, stopped early."""
    n = len(full)
    tol = max(_LEFT_OUT, n * np.finfo(float).eps * full.diagonal().max())
    # Some of the rows tell whether the rank is high, for a fraction of the work.
    part = np.linspace(0, n - 1, int(1.2 * _THIN_SHARE * n)).astype(int)
    if dpstrf(full[np.ix_(part, part)], tol=tol, lower=0)[2] > _THIN_SHARE * n:
        return None
    upper, pivots, rank, _ = dpstrf(full, tol=tol, lower=0)
    if rank > _THIN_SHARE * n:
        return None
    thin = np.empty((rank, n))
    thin[:, pivots - 1] = np.triu(upper)[:rank]
    return thin
