"""q(G), the outputs of the single kernels, and q(b, e), the intercepts and kernel weights."""

from __future__ import annotations

import numpy as np

from kernelweave.problem import Array
from kernelweave.solvers.bemkl.matrices import FullMatrix, Inverse, Matrix, ThinMatrix, sum_of
from kernelweave.solvers.bemkl.priors import Gamma
from kernelweave.solvers.kept import Numbers

__all__ = ["KernelOutputs", "KernelWeights"]

# The thin form keeps the columns of a few iterations: it pays from so many kernels a column on.
_THIN_FROM = 6

# What checkpoints hold: moments, and the parts of a precision matrix that is thin.
_MOMENTS = ("e_mean", "e_variance", "b_mean", "b_variance", "covariance_be")
_THIN = ("base", "plus", "minus")


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

    def update(self, products: Array, weights: KernelWeights, f: Array, noise: Array) -> None:
        """Set the factor; `products` are K_k E[a], `f` E[f] and `noise` E[upsilon] of each task."""
        m, _, n = products.shape
        self.mean = np.empty_like(products)
        mixed = weights.b_mean[:, None] * weights.e_mean + weights.covariance_be  # E[b e]
        for level in np.unique(noise):
            tasks = np.flatnonzero(noise == level)
            covariance, log_det = self._covariance(weights, float(level))
            everyone = slice(None) if len(tasks) == len(noise) else tasks
            right = self._precision * products[:, everyone]
            right += (level * weights.e_mean)[:, None, None] * f[everyone]
            right -= (level * mixed[everyone]).T[:, :, None]
            answer = covariance.apply(right.reshape(m, len(tasks) * n))
            self.mean[:, everyone] = answer.reshape(m, len(tasks), n)
            for t in tasks:
                self.covariances[t] = covariance
            self._traces[tasks] = covariance.diagonal.sum()
            self._log_dets[tasks] = log_det

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

    def update(
        self, omega: Array, gamma: Array, outputs: KernelOutputs, f: Array, noise: Array
    ) -> None:
        """Set the factor, given E[omega], E[gamma], q(G), E[f] and E[upsilon] of each task."""
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
        parts = _grouped(n * noise, outputs.covariances)
        self._set_precision(sum_of(omega, parts, Z.reshape(m, n_tasks * n)))
        pulled = noise[:, None] * f
        right = G.reshape(m, n_tasks * n) @ pulled.ravel()
        right -= (pulled.sum(axis=1) / block) @ border
        moved = self._inverse.apply(np.column_stack([right, border.T]))
        self.e_mean, spread = moved[:, 0], moved[:, 1:].T
        self.e_variance = self._inverse.diagonal
        self.b_mean = (pulled.sum(axis=1) - border @ self.e_mean) / block
        self.covariance_be = -spread / block[:, None]
        self.b_variance = (1.0 + np.einsum("tk,tk->t", border, spread) / block) / block
        self._log_det = -self.log_det - float(np.log(block).sum())
        # sum of noise * spread: tr(Cov (P - diag(gamma, omega))), P the precision matrix and Cov
        # its inverse, and what q(G) leaves open.
        total = m + n_tasks - gamma @ self.b_variance - omega @ self.e_variance
        for weight, covariance in parts:
            total += weight * _quadratic(covariance, self.e_mean)
        self._seen, self._spread = G, float(total) / float(noise[0])

    def numbers(self) -> dict[str, Array]:
        """Return what the next iterations and predictions need of the factor."""
        matrix = self.precision
        names = ("matrix",) if isinstance(matrix, FullMatrix) else _THIN
        known = {f"precision.{name}": getattr(matrix, name) for name in names}
        return known | {name: getattr(self, name) for name in _MOMENTS}

    def restore(self, numbers: Numbers) -> None:
        """Set the factor to what :meth:`numbers` was, all but its part of the bound."""
        for name in _MOMENTS:
            setattr(self, name, numbers[name])
        if "precision.matrix" in numbers:
            self._set_precision(FullMatrix(numbers["precision.matrix"]))
        else:
            base, plus, minus = (numbers[f"precision.{name}"] for name in _THIN)
            self._set_precision(ThinMatrix(base, plus, minus))

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
