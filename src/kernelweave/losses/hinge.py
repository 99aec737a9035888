"""Hinge loss: the support vector machine."""

from __future__ import annotations

import numpy as np

from kernelweave.arrays import Array
from kernelweave.losses.base import Loss
from kernelweave.losses.box_qp import BoxQP
from kernelweave.losses.numeric import root_of_steps

__all__ = ["Hinge"]


class Hinge(Loss):
    r"""Hinge loss (row "hinge" of the table of losses).

    .. math::

        \ell(y, z) = C \max(0, 1 - y z), \qquad
        \ell^*(-\alpha) = -a, \quad 0 \le a = y \alpha \le C .

    Examples
    --------
    >>> import numpy as np
    >>> y, z, C = np.array([1.0, -1.0]), np.array([0.5, -3.0]), np.ones(2)
    >>> Hinge().value(y, z, C).tolist()
    [0.5, 0.0]
    """

    name = "hinge"
    task = "classification"
    smooth = False
    soft_margin = "l1"

    def value(self, y: Array, z: Array, C: Array) -> Array:
        return C * np.maximum(0.0, 1.0 - y * z)

    def gradient(self, y: Array, z: Array, C: Array) -> Array:
        return np.where(y * z < 1.0, -C * y, 0.0)

    def conjugate(self, y: Array, alpha: Array, C: Array) -> Array:
        return self._finite_in_domain(y, alpha, C, -y * alpha)

    def conjugate_gradient(self, y: Array, alpha: Array, C: Array) -> Array:
        return -y + 0.0 * alpha

    def domain(self, y: Array, C: Array) -> tuple[Array, Array]:
        return np.minimum(0.0, y * C), np.maximum(0.0, y * C)

    def prox(self, y: Array, v: Array, C: Array, step: float) -> Array:
        # Inside the margin towards it, at most onto it.
        inside = y * v
        return y * np.maximum(inside, np.minimum(1.0, inside + step * C))

    def prox_slope(self, y: Array, v: Array, z: Array, C: Array, step: float) -> Array:
        inside = y * v
        return np.where((inside < 1.0) & (inside + step * C > 1.0), 0.0, 1.0)

    def best_intercept(self, y: Array, f: Array, C: Array, start: float = 0.0) -> float:
        # The slope rises by C at y z = 1, and far to the left only positives are inside the margin.
        weight = C + 0.0 * y
        return root_of_steps(y - f, weight, -float(weight[y > 0].sum()), start)

    def box_qp(self, y: Array, C: Array) -> BoxQP:
        n = y.shape[0]
        upper = np.broadcast_to(np.asarray(C, dtype=np.float64), (n,)).copy()
        return BoxQP(np.asarray(y, dtype=np.float64), np.full(n, -1.0), upper, np.arange(n), 0.0)
