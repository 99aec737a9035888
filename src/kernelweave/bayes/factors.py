"""The normal factors of the posterior: q(a) of the samples' weights, q(G) of the single kernels'
outputs, and q(b, e) of the intercepts and kernel weights.

None of them changes once it is there. An update returns another one, so that whoever holds a
factor (prediction, the iteration ahead) keeps the numbers of that time.
"""

from __future__ import annotations

from copy import copy
from typing import Any

import numpy as np
from scipy.linalg.lapack import dpstrf

from kernelweave.arrays import Array
from kernelweave.bayes.matrices import FullMatrix, Inverse, Matrix, ThinMatrix, sum_of
from kernelweave.bayes.priors import Gamma
from kernelweave.compiled.threads import map_blocks
from kernelweave.operators.base import KernelOperator
from kernelweave.solvers.kept import ABOVE_ZERO, Numbers
from kernelweave.validation import positive_number, require_array, require_kind

__all__ = ["KernelOutputs", "KernelWeights", "SampleCovariance", "SampleWeights", "sum_of_squares"]

# With R rows a thin sum of squares takes n R^2 multiplications in an iteration, a full one n^3 / 3.
_THIN_SHARE = 0.5
# Below this size nothing is gained by looking for a low rank.
_WORTH_LOOKING = 256
# What may be left out of the sum of squares, beside precisions of size one.
_LEFT_OUT = 1e-10
# The thin form keeps the columns of a few iterations: it pays from so many kernels a column on.
_THIN_FROM = 6

# What checkpoints hold: moments, and the parts of a precision matrix that is thin.
_SAMPLE_MOMENTS = ("mean", "variance", "precisions")
_MOMENTS = ("e_mean", "e_variance", "b_mean", "b_variance", "covariance_be")
_THIN = ("base", "plus", "minus")


def sum_of_squares(bank: KernelOperator) -> Matrix:
    """S = sum_k K_k K_k, formed once for all iterations and all classes.

    It is thin if the ranks of the kernels, or its own, allow that.
    """
    thin = bank.square_factor()
    if thin is not None and len(thin) <= _THIN_SHARE * bank.n:
        return ThinMatrix.of_rows(thin)
    full = bank.square_sum()
    thin = _low_rank(full) if bank.n > _WORTH_LOOKING else None
    return FullMatrix(full) if thin is None else ThinMatrix.of_rows(thin)


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


class SampleWeights:
    """q(a) of T tasks, normal with the precision diag(lambda) + S / sigma_g^2 (equation 3).

    Parameters
    ----------
    squares : Matrix
        S = sum_k K_k K_k, n x n.
    precision : float
        1 / sigma_g^2.
    n_tasks : int
        T.

    Attributes
    ----------
    mean, variance : ndarray of shape (T, n)
        Of each weight; at the start 0 and 1.
    precisions : ndarray of shape (T, n)
        E[lambda].
    traced : ndarray of shape (T,)
        tr(Cov(a) S) / sigma_g^2.
    """

    def __init__(self, squares: Matrix, precision: float, n_tasks: int) -> None:
        self.squares, self._precision = squares, precision
        diagonal = squares.diagonal
        self.mean = np.zeros((n_tasks, len(diagonal)))
        self.variance, self.precisions = np.ones_like(self.mean), np.ones_like(self.mean)
        self.traced = np.full(n_tasks, precision * diagonal.sum())
        self._log_det = np.zeros(n_tasks)

    def updated(self, precisions: Array, pull: Array) -> SampleWeights:
        """Return the factor for E[lambda] and `pull`, sum_k K_k E[g_k] / sigma_g^2."""
        new = copy(self)
        new.mean, new.variance = np.empty_like(pull), np.empty_like(pull)
        new._log_det, new.precisions = np.empty(len(pull)), precisions

        def work(start: int, stop: int) -> None:
            for t in range(start, stop):
                covariance, log_det = self.squares.inverse(precisions[t], self._precision)
                new.mean[t] = covariance.apply(pull[t, :, None])[:, 0]
                new.variance[t] = covariance.diagonal
                new._log_det[t] = -log_det

        map_blocks(work, len(pull), 1)
        # tr(Cov (P - diag(lambda))), P the precision matrix and Cov its inverse.
        new.traced = pull.shape[1] - (precisions * new.variance).sum(axis=1)
        return new

    def numbers(self) -> dict[str, Array]:
        """Return what the next iterations and predictions need of the factor."""
        return {name: getattr(self, name) for name in _SAMPLE_MOMENTS}

    def restored(self, numbers: Numbers) -> SampleWeights:
        """Return the factor that :meth:`numbers` was taken from, all but its part of the bound."""
        new = copy(self)
        vars(new).update({name: numbers[name] for name in _SAMPLE_MOMENTS})
        return new

    def bound(self, lam: Gamma) -> float:
        """E[log p(a | lambda)] - E[log q(a)]."""
        parts = lam.log_mean - lam.mean * (self.mean**2 + self.variance) + 1.0
        return 0.5 * float(parts.sum() + self._log_det.sum())

    def covariance(self) -> SampleCovariance:
        """Return the covariance matrices, for prediction."""
        return SampleCovariance(self.squares, self._precision, self.precisions)


class SampleCovariance:
    """Cov(a) of each task, kept as what it is made of: n^2 numbers for all tasks together."""

    def __init__(self, squares: Matrix, precision: float, precisions: Array) -> None:
        self._squares, self._precision, self._precisions = squares, precision, precisions
        self._roots: list[Inverse] = []

    def __getstate__(self) -> dict[str, Any]:
        # Large, and quickly made anew.
        return {**self.__dict__, "_roots": []}

    def check(self, n: int, n_tasks: int) -> None:
        """Raise unless this, which came from a file, is of n samples."""
        what = "the sum of squared kernels"
        require_kind(what, self._squares, (FullMatrix, ThinMatrix))
        self._squares.check(what, n)
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
            pairs = (self._squares.inverse(p, self._precision) for p in self._precisions)
            self._roots = [covariance for covariance, _ in pairs]
        return self._roots


class KernelOutputs:
    """q(G): g_ki of every kernel, task and sample, with one covariance matrix for a task's samples.

    Attributes
    ----------
    mean : ndarray of shape (m, T, n)
    covariances : list of (m, m) matrices
        One for each task; tasks of equal noise share theirs.
    """

    def __init__(self, mean: Array, precision: float, thin: bool) -> None:
        m, n_tasks, _ = mean.shape
        self.mean, self._precision = mean, precision
        kind: type[Matrix] = ThinMatrix if thin else FullMatrix
        self.covariances: list[Matrix] = [kind.identity(m, 1.0 / precision)] * n_tasks
        self._traces = np.full(n_tasks, m / precision)
        self._log_dets = np.full(n_tasks, -m * np.log(precision))

    def updated(
        self, products: Array, weights: KernelWeights, f: Array, noise: Array
    ) -> KernelOutputs:
        """Return the factor for K_k E[a], q(b, e), and E[f] and E[upsilon] of each task."""
        m, _, n = products.shape
        new = copy(self)
        new.mean, new.covariances = np.empty_like(products), list(self.covariances)
        new._traces, new._log_dets = np.empty(len(noise)), np.empty(len(noise))
        mixed = weights.b_mean[:, None] * weights.e_mean + weights.covariance_be  # E[b e]
        for level in np.unique(noise):
            tasks = np.flatnonzero(noise == level)
            covariance, log_det = self._covariance(weights, float(level))
            everyone = slice(None) if len(tasks) == len(noise) else tasks
            right = self._precision * products[:, everyone]
            right += (level * weights.e_mean)[:, None, None] * f[everyone]
            right -= (level * mixed[everyone]).T[:, :, None]
            answer = covariance.apply(right.reshape(m, len(tasks) * n))
            new.mean[:, everyone] = answer.reshape(m, len(tasks), n)
            for t in tasks:
                new.covariances[t] = covariance
            new._traces[tasks] = covariance.diagonal.sum()
            new._log_dets[tasks] = log_det
        return new

    def moved(self, mean: Array) -> KernelOutputs:
        """Return the factor with other means; an update needs nothing else of it."""
        new = copy(self)
        new.mean = mean
        return new

    def _covariance(self, weights: KernelWeights, noise: float) -> tuple[Matrix, float]:
        """(I / sigma_g^2 + noise E[ee'])^-1 and its log det; see matrices.py."""
        ratio, m = self._precision / noise, len(weights.e_mean)
        shrunk, log_det = weights.precision.shrunk(ratio)
        # E[ee'] = A^-1 + mean mean': the rank one by Sherman and Morrison.
        moved = shrunk.apply(weights.e_mean[:, None])[:, 0] / self._precision
        grown = 1.0 + noise * float(weights.e_mean @ moved)
        covariance = shrunk.scaled_less(1.0 / self._precision, moved * np.sqrt(noise / grown))
        log_det += m * np.log(noise) - weights.log_det + np.log(grown)
        return covariance, -log_det

    def bound(self, products: Array, traced: Array) -> float:
        """E[log p(G | a)] - E[log q(G)]; `traced` as in :class:`SampleWeights`."""
        m, _, n = self.mean.shape
        off = self.mean - products
        squares = np.einsum("ktn,ktn->t", off, off)
        squares = self._precision * (squares + n * self._traces) + traced
        parts = n * (m * (1.0 + np.log(self._precision)) + self._log_dets) - squares
        return 0.5 * float(parts.sum())


class KernelWeights:
    """q(b, e), jointly normal (equation 4).

    Attributes
    ----------
    e_mean, e_variance : ndarray of shape (m,)
    b_mean, b_variance : ndarray of shape (T,)
    covariance_be : ndarray of shape (T, m)
    precision : FullMatrix or ThinMatrix
        A, the inverse covariance of e, the intercepts integrated out.
    log_det : float
        Of A.
    """

    def __init__(self, m: int, n_tasks: int, thin: bool) -> None:
        self.e_mean, self.e_variance = np.ones(m), np.ones(m)
        self.b_mean, self.b_variance = np.zeros(n_tasks), np.ones(n_tasks)
        self.covariance_be = np.zeros((n_tasks, m))
        self._set_precision(ThinMatrix.identity(m) if thin else FullMatrix.identity(m))
        self._log_det = 0.0
        # The means of q(G) that the last update saw, and what it then left open.
        self._seen: Array | None = None
        self._spread = 0.0

    @staticmethod
    def may_be_thin(m: int, n_tasks: int, n: int, by_task: bool) -> bool:
        """Whether so many more kernels than samples are there that the thin form saves work."""
        return m >= _THIN_FROM * n_tasks * n and (n_tasks == 1 or not by_task)

    def _set_precision(self, precision: Matrix) -> None:
        self.precision = precision
        found: tuple[Inverse, float] = precision.inverse()
        self._inverse, self.log_det = found

    def covariance(self) -> Matrix:
        """Return Cov(e)."""
        inverse = self._inverse
        return inverse if isinstance(inverse, ThinMatrix) else FullMatrix(inverse.matrix)

    def updated(
        self, omega: Array, gamma: Array, outputs: KernelOutputs, f: Array, noise: Array
    ) -> KernelWeights:
        """Return the factor for E[omega], E[gamma], q(G), E[f] and E[upsilon] of each task."""
        G, new = outputs.mean, copy(self)
        m, n_tasks, n = G.shape
        block = gamma + n * noise  # The precision of b.
        sums = G.sum(axis=2)
        border = noise[:, None] * sums.T  # (T, m): precision between b and e.
        # Without b the precision of e loses border border' / block: a shift of the columns of G.
        shift = (1.0 - np.sqrt(gamma / block)) / n
        Z = G - (shift * sums)[:, :, None]
        if np.any(noise != 1.0):
            Z *= np.sqrt(noise)[:, None]
        parts = _grouped(n * noise, outputs.covariances)
        new._set_precision(sum_of(omega, parts, Z.reshape(m, n_tasks * n)))
        pulled = noise[:, None] * f
        right = G.reshape(m, n_tasks * n) @ pulled.ravel()
        right -= (pulled.sum(axis=1) / block) @ border
        moved = new._inverse.apply(np.column_stack([right, border.T]))
        new.e_mean, spread = moved[:, 0], moved[:, 1:].T
        new.e_variance = new._inverse.diagonal
        new.b_mean = (pulled.sum(axis=1) - border @ new.e_mean) / block
        new.covariance_be = -spread / block[:, None]
        new.b_variance = (1.0 + np.einsum("tk,tk->t", border, spread) / block) / block
        new._log_det = -new.log_det - float(np.log(block).sum())
        # sum of noise * spread: tr(Cov (P - diag(gamma, omega))), P the precision matrix and Cov
        # its inverse, and what q(G) leaves open.
        total = m + n_tasks - gamma @ new.b_variance - omega @ new.e_variance
        for weight, covariance in parts:
            total += weight * _quadratic(covariance, new.e_mean)
        new._seen, new._spread = G, float(total) / float(noise[0])
        return new

    def numbers(self) -> dict[str, Array]:
        """Return what the next iterations and predictions need of the factor."""
        matrix = self.precision
        names = ("matrix",) if isinstance(matrix, FullMatrix) else _THIN
        known = {f"precision.{name}": getattr(matrix, name) for name in names}
        return known | {name: getattr(self, name) for name in _MOMENTS}

    def restored(self, numbers: Numbers) -> KernelWeights:
        """Return the factor that :meth:`numbers` was taken from, all but its part of the bound."""
        new = copy(self)
        vars(new).update({name: numbers[name] for name in _MOMENTS})
        if "precision.matrix" in numbers:
            new._set_precision(FullMatrix(numbers["precision.matrix"]))
        else:
            base, plus, minus = (numbers[f"precision.{name}"] for name in _THIN)
            new._set_precision(ThinMatrix(base, plus, minus))
        return new

    def location(self, outputs: KernelOutputs) -> Array:
        """E[e'g + b], shape (T, n)."""
        m, n_tasks, n = outputs.mean.shape
        flat = self.e_mean @ outputs.mean.reshape(m, n_tasks * n)
        return flat.reshape(n_tasks, n) + self.b_mean[:, None]

    def spread(self, outputs: KernelOutputs, by_task: bool) -> Array:
        """Var[e'g + b] summed over the samples, for each task or (noise being equal) in all."""
        G = outputs.mean
        if G is self._seen and (len(self.b_mean) == 1 or not by_task):
            return np.array([self._spread])
        n = G.shape[2]
        out = n * self.b_variance + 2.0 * np.einsum("tk,ktn->t", self.covariance_be, G)
        for t, covariance in enumerate(outputs.covariances):
            out[t] += n * _quadratic(covariance, self.e_mean)
            out[t] += n * covariance.traced_with(self._inverse)
            out[t] += float(np.vdot(G[:, t], self._inverse.apply(G[:, t])))
        return out

    def bound(self, omega: Gamma, gamma: Gamma) -> float:
        """E[log p(b, e)] - E[log q(b, e)]."""
        parts = [
            (omega.log_mean - omega.mean * (self.e_mean**2 + self.e_variance)).sum(),
            (gamma.log_mean - gamma.mean * (self.b_mean**2 + self.b_variance)).sum(),
            self._log_det + len(self.e_mean) + len(self.b_mean),
        ]
        return 0.5 * float(sum(parts))


def _quadratic(covariance: Matrix, v: Array) -> float:
    return float(v @ covariance.apply(v[:, None])[:, 0])


def _grouped(weights: Array, covariances: list[Matrix]) -> list[tuple[float, Matrix]]:
    """(weight, covariance) with the weights of tasks that share a covariance added up."""
    groups: dict[int, tuple[float, Matrix]] = {}
    for weight, covariance in zip(weights, covariances, strict=True):
        before = groups.get(id(covariance), (0.0, covariance))[0]
        groups[id(covariance)] = (before + float(weight), covariance)
    return list(groups.values())
