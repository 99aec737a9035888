"""q(a): the weights of the samples."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernelweave.compiled.threads import map_blocks
from kernelweave.problem import Array
from kernelweave.solvers.bemkl.priors import Gamma
from kernelweave.solvers.bemkl.squares import Squares
from kernelweave.solvers.watch import Numbers
from kernelweave.validation import positive_number, require_array, require_kind

__all__ = ["SampleCovariance", "SampleWeights"]

_TINY = float(np.finfo(np.float64).tiny)


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
                root, log_det = squares.root(self._precision, precisions[t])
                self.mean[t] = squares.solve(root, precisions[t], pull[t])
                self.variance[t] = squares.diagonal(root, precisions[t])
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
        self._roots: list[Array] = []

    def __getstate__(self) -> dict[str, Any]:
        # Large, and quickly made anew.
        return {**self.__dict__, "_roots": []}

    def check(self, n: int, n_tasks: int) -> None:
        """Raise unless this, which came from a file, is of n samples."""
        require_kind("the sum of squared kernels", self._squares, Squares)
        self._squares.check(n)
        positive_number("1 / sigma_g^2", self._precision)
        require_array("E[lambda]", self._precisions, (n_tasks, n), low=_TINY)
        self._roots = []

    @property
    def precisions(self) -> Array:
        """E[lambda], shape (T, n)."""
        return self._precisions

    def diagonal(self) -> Array:
        """Variances of the sample weights, shape (T, n)."""
        pairs = zip(self._all_roots(), self._precisions, strict=True)
        return np.array([self._squares.diagonal(root, p) for root, p in pairs])

    def _all_roots(self) -> list[Array]:
        if not self._roots:
            self._roots = [self._squares.root(self._precision, p)[0] for p in self._precisions]
        return self._roots

    def signed_roots(self, t: int, vectors: Array) -> list[tuple[float, Array]]:
        """(sign, Y) for vectors V (p, n): V Cov(a_t) V' is the sum of sign Y Y'."""
        return self._squares.signed_roots(self._all_roots()[t], self._precisions[t], vectors)
