"""From a fit to decision values of new samples."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernelweave.combine import Combination, WeightedSum
from kernelweave.estimators.learnt_kernel import LearntKernel
from kernelweave.kernels.base_set import BaseSet
from kernelweave.kernels.kernel_set import KernelSet
from kernelweave.kernels.look_ups import LookUps
from kernelweave.kernels.samples import as_samples
from kernelweave.problem import Array

__all__ = ["Decisions"]


class Decisions:
    r"""The learnt functions :math:`f_t(x) = \sum_j \alpha_{tj} K(d)(x_j, x)`, without intercepts.

    Kernels whose features can be looked up (string kernels) cost the same whatever the number of
    support vectors; the others are evaluated against the support vectors. Kernels of weight zero
    are never evaluated.

    Parameters
    ----------
    kernel_set : BaseSet
        Bound to and normalised on the training samples.
    combination : Combination
        How the kernels are combined.
    weights : ndarray of shape (1, m) or (T, m)
        Their weights, shared by all tasks or one set each.
    support : ndarray of int
        The training samples that count.
    coef : ndarray of shape (T, len(support))
        Their coefficients.
    """

    def __init__(
        self,
        kernel_set: BaseSet,
        combination: Combination,
        weights: Array,
        support: Array,
        coef: Array,
    ) -> None:
        self._kernel_set = kernel_set
        self._combination = combination
        self._weights = weights
        self._support = support
        self._coef = coef
        self._look_ups: list[LookUps] | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Tables of features can be made again, and would make a large file.
        return {**self.__dict__, "_look_ups": None}

    def __call__(self, X: Any) -> Array:
        """Return the values of samples X, shape (n_new, T)."""
        new = as_samples(X)
        kernels = self._kernel_set
        if isinstance(self._combination, WeightedSum) and isinstance(kernels, KernelSet):
            if self._look_ups is None:
                self._look_ups = [self._prepare(kernels, t) for t in range(len(self._coef))]
            out = np.column_stack([found(new) for found in self._look_ups])
            rest = np.array([self._look_ups[t].rest for t in range(len(self._weights))])
        else:
            out, rest = np.zeros((new.n, len(self._coef))), self._weights
        for row, d in enumerate(rest):
            if d.any():
                tasks = slice(row, row + 1) if len(rest) > 1 else slice(None)
                kernel = LearntKernel(kernels, d, self._combination)
                out[:, tasks] += kernel.against_training(new, self._support) @ self._coef[tasks].T
        return out

    def _prepare(self, kernels: KernelSet, task: int) -> LookUps:
        v = np.zeros(kernels.n)
        v[self._support] = self._coef[task]
        d = self._weights[task if len(self._weights) > 1 else 0]
        return LookUps(kernels, d, v)
