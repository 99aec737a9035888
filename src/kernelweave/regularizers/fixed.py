"""Weights that are given, not learnt."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kernelweave.arrays import Array
from kernelweave.errors import InvalidInputError
from kernelweave.regularizers.base import Regularizer


class Fixed(Regularizer):
    r"""The indicator of one point: :math:`d = w`.

    The problem becomes that of the single kernel :math:`\sum_k w_k K_k`, with

    .. math::

        \Omega(|f|) = \tfrac12 \sum_k |f_k|^2 / w_k,
        \qquad r^*(q/2) = \tfrac12 \sum_k w_k q_k.

    It belongs to one number of kernels, so it has no name in the register: pass the object.

    Parameters
    ----------
    weights : sequence of float
        One weight for each kernel, not negative.

    Examples
    --------
    >>> import numpy as np
    >>> Fixed([0.5, 0.5]).dual_penalty(np.array([4.0, 8.0]))
    3.0
    """

    sparse = False
    bounded = True
    fixed = True

    def __init__(self, weights: Sequence[float] | Array) -> None:
        self.weights = weights

    def _given(self) -> Array:
        w = np.array(self.weights, dtype=np.float64)
        if w.ndim != 1 or not np.all(np.isfinite(w)) or np.any(w < 0):
            raise InvalidInputError(
                f"fixed weights must be a list of finite numbers >= 0; got {self.weights!r}."
            )
        return w

    def value(self, d: Array) -> float:
        return 0.0 if np.allclose(d, self._given(), rtol=1e-9, atol=1e-12) else np.inf

    def gradient(self, d: Array) -> Array:
        return np.zeros_like(d)

    def project(self, v: Array) -> Array:
        return self._given()

    def prox(self, v: Array, step: Array | float) -> Array:
        return self._given()

    def weights_from_norms(self, norms: Array) -> Array:
        return self._given()

    def dual_penalty(self, q: Array) -> float:
        return float(0.5 * self._given() @ q)

    def dual_weights(self, q: Array) -> Array:
        return self._given()

    def start(self, m: int) -> Array:
        w = self._given()
        if len(w) != m:
            raise InvalidInputError(f"{len(w)} fixed weights were given for {m} kernels.")
        return w
