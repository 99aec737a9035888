"""A price on the sum of the weights."""

from __future__ import annotations

from typing import Self

import numpy as np

from kernelweave.arrays import Array, Flags
from kernelweave.regularizers.base import Regularizer
from kernelweave.regularizers.norm_prox import NormProx, soft_threshold

__all__ = ["L1"]


class L1(Regularizer):
    r"""Linear penalty on the weights (row "l1 penalty" of the table of regularizers).

    .. math::

        r(d) = s \sum_k d_k,\ d \ge 0, \qquad \Omega = \sqrt{2 s} \sum_k |f_k|, \qquad
        r^*(q/2) = 0 \text{ if } q_k \le 2 s \text{ for all } k, \text{ else } \infty .

    This is the block l1 norm with coefficient :math:`c = \sqrt{2 s}`.

    Parameters
    ----------
    weight : float, default=1.0
        The price s > 0.

    Examples
    --------
    >>> import numpy as np
    >>> reg = L1(weight=2.0)
    >>> reg.omega(np.array([1.0, 3.0]))
    8.0
    >>> reg.weights_from_norms(np.array([1.0, 3.0])).tolist()
    [0.5, 1.5]
    """

    name = "l1"
    sparse = True
    orthant = True
    proximal = True
    selective = True
    polyhedral = True

    def __init__(self, weight: float = 1.0) -> None:
        self.weight = weight

    @classmethod
    def examples(cls) -> list[Self]:
        return [cls(), cls(weight=0.03), cls(weight=20.0)]

    def value(self, d: Array) -> float:
        return self._price() * float(np.sum(d)) if float(np.min(d)) >= -1e-9 else np.inf

    def gradient(self, d: Array) -> Array:
        return np.full(np.shape(d), self._price())

    def prox(self, v: Array, step: Array | float) -> Array:
        return np.maximum(v - step * self._price(), 0.0)

    def omega(self, norms: Array) -> float:
        return float(np.sqrt(2.0 * self._price()) * np.sum(norms))

    def norm_prox(self, norms: Array, step: float) -> NormProx:
        return soft_threshold(norms, step * float(np.sqrt(2.0 * self._price())))

    def weights_from_norms(self, norms: Array) -> Array:
        return norms / np.sqrt(2.0 * self._price())

    def dual_penalty(self, q: Array) -> float:
        return 0.0 if float(np.max(q)) <= 2.0 * self._price() * (1.0 + 1e-9) else np.inf

    def dual_scale(self, q: Array) -> float:
        return min(1.0, self.entry_scale(q))

    def entry_scale(self, q: Array) -> float:
        top = float(np.max(q))
        return float(np.sqrt(2.0 * self._price() / top)) if top > 0 else np.inf

    def screened(self, low: Array, high: Array) -> Flags:
        return np.asarray(high < np.sqrt(2.0 * self._price()))
