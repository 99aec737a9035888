"""The normal factors of the posterior: q(a) of the samples' weights, q(G) of the single kernels'
outputs, and q(b, e) of the intercepts and kernel weights.

None of them changes once it is there. An update returns another one, so that whoever holds a
factor (prediction, the iteration ahead) keeps the numbers of that time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kernelweave.arrays import Array, Index
from kernelweave.bayes.matrices import FullMatrix, Matrix, ThinMatrix, identity, square_of, sum_of
from kernelweave.bayes.priors import Gamma
from kernelweave.cached import cached_property
from kernelweave.compiled.threads import map_blocks
from kernelweave.solvers.kept import ABOVE_ZERO
from kernelweave.validation import positive_number, require_array, require_kind

# The thin form keeps the columns of a few iterations: it pays from so many kernels a column on.
# Beside the full one an iteration takes 1.0 to 1.2 times as long with 2 kernels for each of 20 or
# 40 samples, 0.9 to 1 with 6, 0.7 with 12 and 0.3 with 30 (one thread).
_THIN_FROM = 6


@dataclass(frozen=True, eq=False)
class SampleWeights:
    """q(a) of T tasks, normal with the precision diag(lambda) + S / sigma_g^2 (equation 3)."""

    squares: Matrix  # S = sum_k K_k K_k, n x n.
    precision: float  # 1 / sigma_g^2.
    mean: Array  # Of each weight, (T, n), as are their variances and E[lambda].
    variance: Array
    precisions: Array
    traced: Array  # tr(Cov(a) S) / sigma_g^2 of each task, and log det Cov(a).
    log_dets: Array

    @classmethod
    def start(cls, squares: Matrix, precision: float, n_tasks: int) -> SampleWeights:
        """Return the factor with means 0 and variances 1."""
        diagonal = squares.diagonal
        zero, one = np.zeros((n_tasks, len(diagonal))), np.ones((n_tasks, len(diagonal)))
        traced = np.full(n_tasks, precision * diagonal.sum())
        return cls(squares, precision, zero, one, one, traced, np.zeros(n_tasks))

    def updated(self, precisions: Array, pull: Array) -> SampleWeights:
        """Return the factor for E[lambda] and `pull`, sum_k K_k E[g_k] / sigma_g^2."""
        mean, variance, log_dets = np.empty_like(pull), np.empty_like(pull), np.empty(len(pull))

        def work(start: int, stop: int) -> None:
            for t in range(start, stop):
                covariance, log_det = self.squares.inverse(precisions[t], self.precision)
                mean[t] = covariance.apply(pull[t, :, None])[:, 0]
                variance[t] = covariance.diagonal
                log_dets[t] = -log_det

        map_blocks(work, len(pull), 1)
        # tr(Cov (P - diag(lambda))), P the precision matrix and Cov its inverse.
        traced = pull.shape[1] - (precisions * variance).sum(axis=1)
        return SampleWeights(
            self.squares, self.precision, mean, variance, precisions, traced, log_dets
        )

    def bound(self, lam: Gamma) -> float:
        """E[log p(a | lambda)] - E[log q(a)]."""
        own = float(self.log_dets.sum()) + self.mean.size
        return 0.5 * (lam.normal_part(self.mean, self.variance) + own)

    def covariance(self) -> SampleCovariance:
        """Return the covariance matrices, for prediction."""
        return SampleCovariance(self.squares, self.precision, self.precisions)


class SampleCovariance:
    """Cov(a) of each task, kept as what it is made of: n^2 numbers for all tasks together."""

    def __init__(self, squares: Matrix, precision: float, precisions: Array) -> None:
        self._squares, self._precision, self._precisions = squares, precision, precisions
        self._roots: list[ThinMatrix] = []

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

    def of_tasks(self) -> list[ThinMatrix]:
        """Return the matrix of each task."""
        if not self._roots:
            pairs = (self._squares.inverse(p, self._precision) for p in self._precisions)
            self._roots = [covariance for covariance, _ in pairs]
        return self._roots


@dataclass(frozen=True, eq=False)
class KernelOutputs:
    """q(G): g_ki of every kernel, task and sample, with one covariance for a task's samples."""

    mean: Array  # (m, T, n)
    precision: float  # 1 / sigma_g^2.
    covariances: list[Matrix]  # One for each level of noise, m x m, and log det.
    log_dets: Array
    levels: Index  # Which of them is that of a task.

    @classmethod
    def start(cls, mean: Array, precision: float, thin: bool) -> KernelOutputs:
        """Return the factor with these means and the covariance sigma_g^2 I."""
        m, n_tasks, _ = mean.shape
        covariance, log_dets = identity(m, thin, 1.0 / precision), -m * np.log([precision])
        return cls(mean, precision, [covariance], log_dets, np.zeros(n_tasks, dtype=np.intp))

    def updated(
        self, products: Array, weights: KernelWeights, f: Array, noise: Array
    ) -> KernelOutputs:
        """Return the factor for K_k E[a], q(b, e), and E[f] and E[upsilon] of each task."""
        m, _, n = products.shape
        mean, covariances, log_dets = np.empty_like(products), [], []
        mixed = weights.b_mean[:, None] * weights.e_mean + weights.covariance_be  # E[b e]
        different, levels = np.unique(noise, return_inverse=True)
        for level, value in enumerate(different.tolist()):
            covariance, log_det = self._covariance(weights, value)
            tasks = slice(None) if len(different) == 1 else np.flatnonzero(levels == level)
            right = self.precision * products[:, tasks]
            right += (value * weights.e_mean)[:, None, None] * f[tasks]
            right -= (value * mixed[tasks]).T[:, :, None]
            mean[:, tasks] = covariance.apply(right.reshape(m, -1)).reshape(m, -1, n)
            covariances.append(covariance)
            log_dets.append(log_det)
        return KernelOutputs(mean, self.precision, covariances, np.array(log_dets), levels)

    def _covariance(self, weights: KernelWeights, noise: float) -> tuple[Matrix, float]:
        """(I / sigma_g^2 + noise E[ee'])^-1 and its log det; see matrices.py."""
        ratio, m = self.precision / noise, len(weights.e_mean)
        shrunk, log_det = weights.precision.shrunk(ratio)
        # E[ee'] = A^-1 + mean mean': the rank one by Sherman and Morrison.
        moved = shrunk.apply(weights.e_mean[:, None])[:, 0] / self.precision
        grown = 1.0 + noise * float(weights.e_mean @ moved)
        covariance = shrunk.scaled_less(1.0 / self.precision, moved * np.sqrt(noise / grown))
        log_det += m * np.log(noise) - weights.log_det + np.log(grown)
        return covariance, -log_det

    def bound(self, products: Array, traced: Array) -> float:
        """E[log p(G | a)] - E[log q(G)]; `traced` as in :class:`SampleWeights`."""
        m, _, n = self.mean.shape
        off = self.mean - products
        squares = np.einsum("ktn,ktn->t", off, off)
        traces = np.array([covariance.diagonal.sum() for covariance in self.covariances])
        squares = self.precision * (squares + n * traces[self.levels]) + traced
        parts = n * (m * (1.0 + np.log(self.precision)) + self.log_dets[self.levels]) - squares
        return 0.5 * float(parts.sum())


@dataclass(frozen=True, eq=False)
class KernelWeights:
    """q(b, e), jointly normal (equation 4)."""

    e_mean: Array  # (m,)
    e_variance: Array
    b_mean: Array  # (T,)
    b_variance: Array
    covariance_be: Array  # (T, m)
    precision: Matrix  # A, the inverse covariance of e, the intercepts integrated out.
    inverse: ThinMatrix  # Of A, which is Cov(e), and log det A.
    log_det: float
    log_det_be: float = 0.0  # Of the covariance of b and e together.
    seen: Array | None = None  # The means of q(G) at the last update, and what it left open then.
    spread_seen: float = 0.0

    @classmethod
    def start(cls, m: int, n_tasks: int, thin: bool) -> KernelWeights:
        """Return the factor with e = 1 and b = 0, each with variance 1."""
        precision = identity(m, thin)
        zero, one = np.zeros(n_tasks), np.ones(n_tasks)
        between = np.zeros((n_tasks, m))
        return cls(np.ones(m), np.ones(m), zero, one, between, precision, *precision.inverse())

    @staticmethod
    def may_be_thin(m: int, n_tasks: int, n: int, by_task: bool) -> bool:
        """Whether so many more kernels than samples are there that the thin form saves work."""
        return m >= _THIN_FROM * n_tasks * n and (n_tasks == 1 or not by_task)

    @cached_property
    def covariance(self) -> Matrix:
        """Cov(e), in full if its inverse is."""
        full = isinstance(self.precision, FullMatrix)
        return FullMatrix(square_of(self.inverse.plus)) if full else self.inverse

    def updated(
        self, omega: Array, gamma: Array, outputs: KernelOutputs, f: Array, noise: Array
    ) -> KernelWeights:
        """Return the factor for E[omega], E[gamma], q(G), E[f] and E[upsilon] of each task."""
        G = outputs.mean
        m, n_tasks, n = G.shape
        block = gamma + n * noise  # The precision of b.
        sums = G.sum(axis=2)
        border = noise[:, None] * sums.T  # (T, m): precision between b and e.
        # Without b the precision of e loses border border' / block: a shift of the columns of G.
        shift = (1.0 - np.sqrt(gamma / block)) / n
        Z = G - (shift * sums)[:, :, None]
        if np.any(noise != 1.0):
            Z *= np.sqrt(noise)[:, None]
        shares = np.bincount(outputs.levels, n * noise)
        parts = list(zip(shares.tolist(), outputs.covariances, strict=True))
        precision = sum_of(omega, parts, Z.reshape(m, n_tasks * n))
        inverse, log_det = precision.inverse()
        pulled = noise[:, None] * f
        right = G.reshape(m, n_tasks * n) @ pulled.ravel()
        right -= (pulled.sum(axis=1) / block) @ border
        moved = inverse.apply(np.column_stack([right, border.T]))
        e_mean, e_variance, spread = moved[:, 0], inverse.diagonal, moved[:, 1:].T
        b_variance = (1.0 + np.einsum("tk,tk->t", border, spread) / block) / block
        # sum of noise * spread: tr(Cov (P - diag(gamma, omega))), P the precision matrix and Cov
        # its inverse, and what q(G) leaves open.
        total = m + n_tasks - gamma @ b_variance - omega @ e_variance
        total += sum(weight * _quadratic(covariance, e_mean) for weight, covariance in parts)
        return KernelWeights(
            e_mean=e_mean,
            e_variance=e_variance,
            b_mean=(pulled.sum(axis=1) - border @ e_mean) / block,
            b_variance=b_variance,
            covariance_be=-spread / block[:, None],
            precision=precision,
            inverse=inverse,
            log_det=log_det,
            log_det_be=-log_det - float(np.log(block).sum()),
            seen=G,
            spread_seen=float(total) / float(noise[0]),
        )

    def location(self, outputs: KernelOutputs) -> Array:
        """E[e'g + b], shape (T, n)."""
        m, n_tasks, n = outputs.mean.shape
        flat = self.e_mean @ outputs.mean.reshape(m, n_tasks * n)
        return flat.reshape(n_tasks, n) + self.b_mean[:, None]

    def spread(self, outputs: KernelOutputs, by_task: bool) -> Array:
        """Var[e'g + b] summed over the samples, for each task or (noise being equal) in all."""
        G = outputs.mean
        if G is self.seen and (len(self.b_mean) == 1 or not by_task):
            return np.array([self.spread_seen])
        n, own = G.shape[2], self.covariance
        out = n * self.b_variance + 2.0 * np.einsum("tk,ktn->t", self.covariance_be, G)
        shared = [
            _quadratic(covariance, self.e_mean) + float(np.vdot(covariance.matrix, own.matrix))
            for covariance in outputs.covariances
        ]
        out += n * np.array(shared)[outputs.levels]
        return out + np.array([float(np.vdot(g, own.apply(g))) for g in G.transpose(1, 0, 2)])

    def bound(self, omega: Gamma, gamma: Gamma) -> float:
        """E[log p(b, e)] - E[log q(b, e)]."""
        own = self.log_det_be + len(self.e_mean) + len(self.b_mean)
        of_e = omega.normal_part(self.e_mean, self.e_variance)
        return 0.5 * (of_e + gamma.normal_part(self.b_mean, self.b_variance) + own)


def _quadratic(covariance: Matrix, v: Array) -> float:
    return float(v @ covariance.apply(v[:, None])[:, 0])
