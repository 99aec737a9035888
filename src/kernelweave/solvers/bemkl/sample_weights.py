"""q(a): the weights of the samples."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernelweave.compiled.threads import map_blocks
from kernelweave.problem import Array
from kernelweave.solvers.bemkl.matrices import Inverse
from kernelweave.solvers.bemkl.priors import Gamma
from kernelweave.solvers.bemkl.squares import Squares
from kernelweave.solvers.kept import ABOVE_ZERO, Numbers
from kernelweave.validation import positive_number, require_array, require_kind

__all__ = ["SampleCovariance", "SampleWeights"]


class SampleWeights:
    """q(a) of T tasks, normal with the precision diag(lambda) + S / sigma_g^2 (equation 3).

    Parameters
    ----------
    squares : Squares
        S = sum_k K_k K_k.
    precision : float
        1 / sigma_g^2.
    n_tasks : int
        T.

    Attributes
    ----------
    mean, variance : ndarray of shape (T, n)
        Of each weight; at the start 0 and 1.
    traced : ndarray of shape (T,)
        tr(Cov(a) S) / sigma_g^2.
    """

    def __init__(self, squares: Squares, precision: float, n_tasks: int) -> None:
        self._squares, self._precision = squares, precision
        self.mean = np.zeros((n_tasks, squares.n))
        self.variance = np.ones((n_tasks, squares.n))
        self.traced = np.full(n_tasks, precision * squares.trace)
        self._log_det = np.zeros(n_tasks)
        self._precisions = np.ones((n_tasks, squares.n))

    def update(self, precisions: Array, pull: Array) -> None:
        """Set the factor; `precisions` are E[lambda], `pull` sum_k K_k E[g_k] / sigma_g^2."""
        squares = self._squares
        # New arrays: whoever took a copy of this factor keeps the numbers of that time.
        self.mean, self.variance = np.empty_like(pull), np.empty_like(pull)
        self._log_det = np.empty(len(pull))
        self._precisions = precisions

        def work(start: int, stop: int) -> None:
            for t in range(start, stop):
                covariance, log_det = squares.covariance(self._precision, precisions[t])
                self.mean[t] = covariance.apply(pull[t, :, None])[:, 0]
                self.variance[t] = covariance.diagonal
                self._log_det[t] = -log_det

        map_blocks(work, len(pull), 1)
        # tr(Cov (P - diag(lambda))), P the precision matrix and Cov its inverse.
        self.traced = squares.n - (precisions * self.variance).sum(axis=1)

    def numbers(self) -> dict[str, Array]:
        """Return what the next iterations and predictions need of the factor."""
        return {"mean": self.mean, "variance": self.variance, "precisions": self._precisions}

    def restore(self, numbers: Numbers) -> None:
        """Set the factor to what :meth:`numbers` was, all but its part of the bound."""
        self.mean, self.variance = numbers["mean"], numbers["variance"]
        self._precisions = numbers["precisions"]

    def bound(self, lam: Gamma) -> float:
        """E[log p(a | lambda)] - E[log q(a)]."""
        squares = self.mean**2 + self.variance
        parts = lam.log_mean - lam.mean * squares + 1.0
        return 0.5 * float(parts.sum() + self._log_det.sum())

    def covariance(self) -> SampleCovariance:
        """Return the covariance matrices, for prediction."""
        return SampleCovariance(self._squares, self._precision, self._precisions)


class SampleCovariance:
    """Cov(a) of each task, kept as what it is made of: n^2 numbers for all tasks together."""

    def __init__(self, squares: Squares, precision: float, precisions: Array) -> None:
        self._squares, self._precision, self._precisions = squares, precision, precisions
        self._roots: list[Inverse] = []

    def __getstate__(self) -> dict[str, Any]:
        # Large, and quickly made anew.
        return {**self.__dict__, "_roots": []}

    def check(self, n: int, n_tasks: int) -> None:
        """Raise unless this, which came from a file, is of n samples."""
        require_kind("the sum of squared kernels", self._squares, Squares)
        self._squares.check(n)
        positive_number("1 / sigma_g^2", self._precision)
        require_array("E[lambda]", self._precisions, (n_tasks, n), low=ABOVE_ZERO)
        self._roots = []

    @property
    def precisions(self) -> Array:
        """E[lambda], shape (T, n)."""
        return self._precisions

    def of_tasks(self) -> list[Inverse]:
        """Return the matrix of each task."""
        if not self._roots:
            pairs = (self._squares.covariance(self._precision, p) for p in self._precisions)
            self._roots = [covariance for covariance, _ in pairs]
        return self._roots
