"""From posteriors to the predictive moments of new samples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from kernelweave.arrays import Index
from kernelweave.bayes import Posterior
from kernelweave.combine import WeightedSum
from kernelweave.estimators.decisions import Decisions, Parts
from kernelweave.kernels.samples import as_samples
from kernelweave.operators import KernelOperator
from kernelweave.problem import Array

__all__ = ["Predictive"]

# Kernel values of new against training samples that are held at a time: 64 MB.
_BLOCK_ENTRIES = 2**23


class Predictive:
    """Means and variances of the functions of new samples, a bounded number of rows at a time.

    Kernels that no posterior uses are never evaluated.

    Parameters
    ----------
    kernel_set : KernelOperator
        Bound to and normalised on the training samples.
    posteriors : sequence of Posterior
        Of one fit for all tasks, or of one fit for each task.
    weights : ndarray of shape (len(posteriors), m)
        Means of the kernel weights, zero for those that are not used.
    used : sequence of integer arrays
        The kernels that each posterior uses.
    """

    def __init__(
        self,
        kernel_set: KernelOperator,
        posteriors: Sequence[Posterior],
        weights: Array,
        used: Sequence[Index],
    ) -> None:
        self._kernel_set = kernel_set
        self.posteriors = list(posteriors)
        self.used = list(used)
        self._kernels = np.unique(np.concatenate(self.used))
        self._intercept = np.concatenate([posterior.b_mean for posterior in posteriors])
        coef = np.concatenate([posterior.a_mean for posterior in posteriors])
        everyone = np.arange(kernel_set.n)
        self._decide = Decisions(kernel_set, WeightedSum(), weights, everyone, coef)

    def mean(self, X: Any) -> Array:
        """Return the means of samples X, shape (n_new, T); the kernels are added up first."""
        return self._decide(X) + self._intercept

    def parts(self, X: Any) -> Parts:
        """Return what each kernel adds to `mean`, in which the intercepts are the constant."""
        parts = self._decide.parts(X)
        return parts._replace(constant=parts.constant + self._intercept)

    def mean_and_variance(self, X: Any) -> tuple[Array, Array]:
        """Return means and variances of samples X, each of shape (n_new, T)."""
        means, variances = [], []
        for cross in self._blocks(X):
            parts = [self._values(cross, used) for used in self.used]
            every = list(zip(self.posteriors, parts, self.used, strict=True))
            means.append(np.concatenate([q.mean(values, own) for q, values, own in every]))
            variances.append(np.concatenate([q.variance(values, own) for q, values, own in every]))
        return np.hstack(means).T, np.hstack(variances).T

    def _blocks(self, X: Any) -> Iterator[Array]:
        """Values against the training samples, shape (len(kernels), rows, n)."""
        new = as_samples(X)
        n, kernels = self._kernel_set.n, self._kernels
        step = max(1, _BLOCK_ENTRIES // max(1, n * len(kernels)))
        for first in range(0, new.n, step):
            rows = np.arange(first, min(first + step, new.n))
            if not len(kernels):
                yield np.empty((0, len(rows), n))
                continue
            part = new if len(rows) == new.n else new.take(rows)
            yield self._kernel_set.against(part).block(kernels=kernels)

    def _values(self, cross: Array, used: Index) -> Array:
        """Those of a block that belong to the kernels in use."""
        everything = len(used) == len(self._kernels)
        return cross if everything else cross[np.searchsorted(self._kernels, used)]
