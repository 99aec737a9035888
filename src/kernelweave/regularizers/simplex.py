"""Weights that sum to one."""

from __future__ import annotations

import numpy as np

from kernelweave.arrays import Array, Flags
from kernelweave.regularizers.base import Regularizer
from kernelweave.regularizers.norm_prox import NormProx, power_prox, project_simplex

__all__ = ["Simplex"]


class Simplex(Regularizer):
    r"""Weights on the simplex (row "simplex" of the table of regularizers).

    .. math::

        d \ge 0,\ \sum_k d_k = 1, \qquad
        \Omega = \tfrac12 \Big( \sum_k |f_k| \Big)^2, \qquad r^*(q/2) = \tfrac12 \max_k q_k .

    Examples
    --------
    >>> import numpy as np
    >>> reg = Simplex()
    >>> reg.project(np.array([0.9, 0.5, -2.0])).round(10).tolist()
    [0.7, 0.3, 0.0]
    >>> reg.omega(np.array([1.0, 3.0]))
    8.0
    """

    name = "simplex"
    sparse = True
    bounded = True
    proximal = True
    selective = True
    polyhedral = True

    def value(self, d: Array) -> float:
        inside = abs(float(np.sum(d)) - 1.0) <= 1e-9 and float(np.min(d)) >= -1e-9
        return 0.0 if inside else np.inf

    def gradient(self, d: Array) -> Array:
        return np.zeros(np.shape(d))

    def project(self, v: Array) -> Array:
        return project_simplex(v)

    def prox(self, v: Array, step: Array | float) -> Array:
        return self.project(v)

    def omega(self, norms: Array) -> float:
        total = float(np.sum(norms))
        return 0.5 * (total * total)

    def norm_prox(self, norms: Array, step: float) -> NormProx:
        return power_prox(norms, 1.0, step, 2.0)

    def weights_from_norms(self, norms: Array) -> Array:
        total = float(np.sum(norms))
        return norms / total if total > 0 else self.start(len(norms))

    def dual_penalty(self, q: Array) -> float:
        # Not the maximum with zero: d must sum to one even where all q are negative by rounding.
        return 0.5 * float(np.max(q))

    def screened(self, low: Array, high: Array) -> Flags:
        # Only kernels with the largest q carry weight.
        return np.asarray(high < np.max(low))
