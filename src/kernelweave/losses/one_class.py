"""One-class loss: the support of a distribution."""

from __future__ import annotations

import numpy as np

from kernelweave.arrays import Array
from kernelweave.losses.base import Loss
from kernelweave.losses.box_qp import BoxQP
from kernelweave.losses.numeric import root_of_steps

__all__ = ["OneClass"]


class OneClass(Loss):
    r"""One-class loss (row "one-class (nu)" of the table of losses).

    With :math:`z = f(x) + b`, :math:`b = -\rho` and :math:`C = 1 / (\nu n)`,

    .. math::

        \ell(z) = C \max(0, -z), \qquad \ell^*(-\alpha) = 0, \quad 0 \le \alpha \le C .

    The primal has the extra term :math:`b`, so the dual constraint is
    :math:`\sum_i \alpha_i = 1`. Labels are not looked at.

    Examples
    --------
    >>> import numpy as np
    >>> z = np.array([0.5, -3.0])
    >>> OneClass().value(np.ones(2), z, np.full(2, 0.25)).tolist()
    [0.0, 0.75]
    """

    name = "one_class"
    task = "one_class"
    smooth = False
    alpha_sum = 1.0

    def value(self, y: Array, z: Array, C: Array) -> Array:
        return C * np.maximum(0.0, -z)

    def gradient(self, y: Array, z: Array, C: Array) -> Array:
        return np.where(z < 0.0, -C, 0.0)

    def conjugate(self, y: Array, alpha: Array, C: Array) -> Array:
        return self._finite_in_domain(y, alpha, C, 0.0 * alpha)

    def conjugate_gradient(self, y: Array, alpha: Array, C: Array) -> Array:
        return 0.0 * alpha

    def domain(self, y: Array, C: Array) -> tuple[Array, Array]:
        hi = C + 0.0 * y
        return 0.0 * hi, hi

    def prox(self, y: Array, v: Array, C: Array, step: float) -> Array:
        return np.maximum(v, np.minimum(0.0, v + step * C))

    def prox_slope(self, y: Array, v: Array, z: Array, C: Array, step: float) -> Array:
        return np.where((v < 0.0) & (v + step * C > 0.0), 0.0, 1.0)

    def best_intercept(self, y: Array, f: Array, C: Array, start: float = 0.0) -> float:
        weight = C + 0.0 * f
        return root_of_steps(-f, weight, self.alpha_sum - float(weight.sum()), start)

    def box_qp(self, y: Array, C: Array) -> BoxQP:
        n = y.shape[0]
        upper = np.broadcast_to(np.asarray(C, dtype=np.float64), (n,)).copy()
        return BoxQP(np.ones(n), np.zeros(n), upper, np.arange(n), self.alpha_sum)
