"""Squared loss."""

from __future__ import annotations

import numpy as np

from kernelweave.arrays import Array
from kernelweave.losses.base import Loss
from kernelweave.losses.numeric import per_weight

__all__ = ["Squared"]


class Squared(Loss):
    r"""Squared loss (row "squared" of the table of losses).

    .. math::

        \ell(y, z) = C (y - z)^2, \qquad
        \ell^*(-\alpha) = \frac{\alpha^2}{4 C} - \alpha y, \quad \alpha \in \mathbb{R} .

    Examples
    --------
    >>> import numpy as np
    >>> Squared().value(np.array([1.0, 2.0]), np.array([1.5, 0.0]), np.ones(2)).tolist()
    [0.25, 4.0]
    """

    name = "squared"
    task = "regression"
    steep = True

    def value(self, y: Array, z: Array, C: Array) -> Array:
        return C * (y - z) ** 2

    def gradient(self, y: Array, z: Array, C: Array) -> Array:
        return 2.0 * C * (z - y)

    def curvature(self, y: Array, z: Array, C: Array) -> Array:
        return 2.0 * C + 0.0 * z

    def conjugate(self, y: Array, alpha: Array, C: Array) -> Array:
        return self._finite_in_domain(y, alpha, C, 0.25 * alpha * per_weight(alpha, C) - alpha * y)

    def conjugate_gradient(self, y: Array, alpha: Array, C: Array) -> Array:
        return 0.5 * per_weight(alpha, C) - y

    def domain(self, y: Array, C: Array) -> tuple[Array, Array]:
        end = np.where(np.asarray(C) > 0, np.inf, 0.0) + 0.0 * y
        return -end, end

    def prox(self, y: Array, v: Array, C: Array, step: float) -> Array:
        weight = 2.0 * step * C
        return (v + weight * y) / (1.0 + weight)

    def lipschitz(self, C: Array) -> Array:
        return 2.0 * np.asarray(C, dtype=np.float64)

    def best_intercept(self, y: Array, f: Array, C: Array, start: float = 0.0) -> float:
        weight = C + 0.0 * y
        total = float(weight.sum())
        return float((weight * (y - f)).sum() / total) if total > 0 else float(start)
