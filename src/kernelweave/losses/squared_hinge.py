"""Squared hinge loss."""

from __future__ import annotations

import numpy as np

from kernelweave.arrays import Array
from kernelweave.losses.base import Loss
from kernelweave.losses.numeric import per_weight

__all__ = ["SquaredHinge"]


class SquaredHinge(Loss):
    r"""Squared hinge loss (row "squared hinge" of the table of losses).

    .. math::

        \ell(y, z) = C \max(0, 1 - y z)^2, \qquad
        \ell^*(-\alpha) = -a + \frac{a^2}{4 C}, \quad a = y \alpha \ge 0 .

    Examples
    --------
    >>> import numpy as np
    >>> y, z, C = np.array([1.0, -1.0]), np.array([0.5, -3.0]), np.ones(2)
    >>> SquaredHinge().value(y, z, C).tolist()
    [0.25, 0.0]
    """

    name = "squared_hinge"
    task = "classification"
    soft_margin = "l2"

    def value(self, y: Array, z: Array, C: Array) -> Array:
        return C * np.maximum(0.0, 1.0 - y * z) ** 2

    def gradient(self, y: Array, z: Array, C: Array) -> Array:
        return -2.0 * C * y * np.maximum(0.0, 1.0 - y * z)

    def curvature(self, y: Array, z: Array, C: Array) -> Array:
        return np.where(y * z < 1.0, 2.0 * C, 0.0)

    def conjugate(self, y: Array, alpha: Array, C: Array) -> Array:
        a = y * alpha
        return self._finite_in_domain(y, alpha, C, -a + 0.25 * a * per_weight(a, C))

    def conjugate_gradient(self, y: Array, alpha: Array, C: Array) -> Array:
        return y * (-1.0 + 0.5 * per_weight(y * alpha, C))

    def domain(self, y: Array, C: Array) -> tuple[Array, Array]:
        end = np.where(np.asarray(C) > 0, np.inf, 0.0)
        return np.where(y > 0, 0.0, -end), np.where(y > 0, end, 0.0)

    def prox(self, y: Array, v: Array, C: Array, step: float) -> Array:
        inside, weight = y * v, 2.0 * step * C
        return np.where(inside < 1.0, y * (inside + weight) / (1.0 + weight), v)

    def lipschitz(self, C: Array) -> Array:
        return 2.0 * np.asarray(C, dtype=np.float64)
