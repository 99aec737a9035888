"""What a Bayesian fit leaves behind: moments of the weights, and of the output at new points."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from kernelweave.arrays import Array, Index
from kernelweave.bayes.ensemble import Ensemble
from kernelweave.bayes.factors import SampleCovariance
from kernelweave.bayes.matrices import FullMatrix, Matrix, ThinMatrix
from kernelweave.validation import positive_number, require_array, require_kind


def selected_kernels(e_mean: Array) -> Index:
    """Return the kernels whose mean weight is above a thousandth of the largest."""
    size = np.abs(e_mean)
    return np.flatnonzero(size > 1e-3 * size.max(initial=0.0))


@dataclass(frozen=True)
class BayesRecord:
    """One line of the history of a Bayesian fit.

    Attributes
    ----------
    iteration : int
    seconds : float
        Since the fit began.
    lower_bound : float
        On the log evidence, equation 2.
    change : float
        Of the bound since the iteration before, for each sample and task.
    active_kernels : int
        Kernels whose mean weight is above 1e-3 of the largest.
    """

    iteration: int
    seconds: float
    lower_bound: float
    change: float
    active_kernels: int

    def told(self) -> str:
        """Return what progress shows of it."""
        return (
            f"lower bound {self.lower_bound:.6g}  change {self.change:.2e}  "
            f"kernels {self.active_kernels}"
        )


@dataclass(frozen=True)
class Posterior:
    """Moments of q, as far as prediction and reports need them.

    Attributes
    ----------
    e_mean, e_std : ndarray of shape (m,)
        Of the kernel weights.
    b_mean, b_std : ndarray of shape (T,)
        Of the intercepts.
    a_mean : ndarray of shape (T, n)
        Of the sample weights.
    noise_variance : ndarray of shape (T,)
        Of f around e'g + b; 1 for classes.
    sigma_g : float
    lower_bound : float
    history : list of BayesRecord
    converged : bool
    reason : str
        "converged", "max_iter", "max_time", "callback" or "interrupted".
    """

    e_mean: Array
    e_std: Array
    b_mean: Array
    b_std: Array
    a_mean: Array
    noise_variance: Array
    sigma_g: float
    lower_bound: float
    converged: bool
    reason: str
    history: list[BayesRecord] = field(repr=False)
    _covariance: Matrix = field(repr=False)
    _covariance_be: Array = field(repr=False)
    _sample_covariance: SampleCovariance = field(repr=False)

    @classmethod
    def of(cls, found: Ensemble, history: list[BayesRecord], reason: str) -> Posterior:
        """Take the moments of the factors found."""
        samples, weights = found.samples, found.weights
        return cls(
            e_mean=weights.e_mean,
            e_std=np.sqrt(weights.e_variance),
            b_mean=weights.b_mean,
            b_std=np.sqrt(weights.b_variance),
            a_mean=samples.mean,
            noise_variance=found.targets.noise_variance,
            sigma_g=found.sigma_g,
            lower_bound=history[-1].lower_bound,
            converged=reason == "converged",
            reason=reason,
            history=history,
            _covariance=weights.covariance,
            _covariance_be=weights.covariance_be,
            _sample_covariance=samples.covariance(),
        )

    def check(self, m: int, n: int, n_tasks: int) -> None:
        """Raise unless the moments, which came from a file, are of m kernels and n samples."""
        require_array("e_mean", self.e_mean, (m,))
        require_array("e_std", self.e_std, (m,), low=0.0)
        require_array("b_mean", self.b_mean, (n_tasks,))
        require_array("b_std", self.b_std, (n_tasks,), low=0.0)
        require_array("a_mean", self.a_mean, (n_tasks, n))
        require_array("noise_variance", self.noise_variance, (n_tasks,), low=0.0)
        positive_number("sigma_g", self.sigma_g)
        what = "the covariance of the kernel weights"
        require_kind(what, self._covariance, (FullMatrix, ThinMatrix))
        self._covariance.check(what, m)
        require_array("the covariances of b and e", self._covariance_be, (n_tasks, m))
        require_kind("the covariance of a", self._sample_covariance, SampleCovariance)
        self._sample_covariance.check(n, n_tasks)
        require_kind("history", self.history, list)

    @property
    def sample_variance(self) -> Array:
        """Variances of the sample weights, shape (T, n)."""
        return np.array([one.diagonal for one in self._sample_covariance.of_tasks()])

    @property
    def sample_precisions(self) -> Array:
        """E[lambda], shape (T, n)."""
        return self._sample_covariance.precisions

    def mean(self, cross: Array, kernels: Index) -> Array:
        """E[f] at new points, shape (T, n_new) (section 4.3).

        Parameters
        ----------
        cross : ndarray of shape (len(kernels), n_new, n)
            Values of these kernels between the new points and the training samples; all others
            are taken to have weight zero.
        kernels : ndarray of int
        """
        return self.b_mean[:, None] + np.einsum(
            "k,kpt->tp", self.e_mean[kernels], cross @ self.a_mean.T
        )

    def variance(self, cross: Array, kernels: Index) -> Array:
        r"""Var[f] at new points, shape (T, n_new); arguments as for :meth:`mean`.

        With :math:`g = (a'k_1, \dots, a'k_m)` at the new point, of covariance
        :math:`\sigma_g^2 I + (k_k' \mathrm{Cov}(a)\, k_l)_{kl}`,

        .. math:: \mathrm{Var}[f] = \upsilon^{-1} + \mathrm{Var}[b] + 2\, \mathrm{Cov}(b, e)\,
                  \mathrm E[g] + \mathrm E[g]' \mathrm{Cov}(e)\, \mathrm E[g]
                  + \mathrm{tr}\big(\mathrm E[ee']\, \mathrm{Cov}(g)\big).

        Section 4.3 stops before the last term, as if g were known.
        """
        count, n_new, n = cross.shape
        e, covariance = self.e_mean[kernels], self._covariance.take(kernels)
        out = np.empty((len(self.b_mean), n_new))
        known = self.sigma_g**2 * (e @ e + covariance.diagonal.sum())
        vectors = cross.reshape(count * n_new, n)
        for t, covariance_a in enumerate(self._sample_covariance.of_tasks()):
            g = cross @ self.a_mean[t]
            out[t] = self.noise_variance[t] + self.b_std[t] ** 2 + known
            out[t] += 2.0 * self._covariance_be[t, kernels] @ g
            out[t] += np.einsum("kp,kp->p", g, covariance.apply(g))
            for sign, rows in covariance_a.signed_roots(vectors):
                flat = rows.reshape(count, n_new * rows.shape[1])
                each = np.einsum("kj,kj->j", flat, covariance.apply(flat)) + (e @ flat) ** 2
                out[t] += sign * each.reshape(n_new, rows.shape[1]).sum(axis=1)
        return out
