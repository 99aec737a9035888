"""Epsilon-insensitive loss: support vector regression."""

from __future__ import annotations

from typing import Self

import numpy as np

from kernelweave.arrays import Array
from kernelweave.losses.base import Loss
from kernelweave.losses.box_qp import BoxQP
from kernelweave.losses.numeric import root_of_steps
from kernelweave.validation import positive_number

__all__ = ["EpsilonInsensitive"]


class EpsilonInsensitive(Loss):
    r"""Epsilon-insensitive loss (row "eps-insensitive" of the table of losses).

    .. math::

        \ell(y, z) = C \max(0, |y - z| - \varepsilon), \qquad
        \ell^*(-\alpha) = \varepsilon |\alpha| - \alpha y, \quad |\alpha| \le C .

    Parameters
    ----------
    epsilon : float, default=0.1
        Half-width of the tube inside which errors cost nothing, >= 0.

    Examples
    --------
    >>> import numpy as np
    >>> loss = EpsilonInsensitive(epsilon=0.5)
    >>> loss.value(np.array([1.0, 2.0]), np.array([1.25, 0.0]), np.ones(2)).tolist()
    [0.0, 1.5]
    """

    name = "epsilon_insensitive"
    task = "regression"
    smooth = False

    def __init__(self, epsilon: float = 0.1) -> None:
        self.epsilon = epsilon

    @classmethod
    def examples(cls) -> list[Self]:
        return [cls(), cls(epsilon=0.0)]

    def _width(self) -> float:
        name = "epsilon of the epsilon-insensitive loss"
        return positive_number(name, self.epsilon, allow_zero=True)

    def value(self, y: Array, z: Array, C: Array) -> Array:
        return C * np.maximum(0.0, np.abs(y - z) - self._width())

    def gradient(self, y: Array, z: Array, C: Array) -> Array:
        return np.where(np.abs(y - z) > self._width(), C * np.sign(z - y), 0.0)

    def conjugate(self, y: Array, alpha: Array, C: Array) -> Array:
        values = self._width() * np.abs(alpha) - alpha * y
        return self._finite_in_domain(y, alpha, C, values)

    def conjugate_gradient(self, y: Array, alpha: Array, C: Array) -> Array:
        return self._width() * np.sign(alpha) - y

    def domain(self, y: Array, C: Array) -> tuple[Array, Array]:
        end = C + 0.0 * y
        return -end, end

    def prox(self, y: Array, v: Array, C: Array, step: float) -> Array:
        # Outside the tube towards it, at most onto its edge.
        width = self._width()
        return np.clip(np.clip(v, y - width, y + width), v - step * C, v + step * C)

    def prox_slope(self, y: Array, v: Array, z: Array, C: Array, step: float) -> Array:
        off, width = np.abs(v - y), self._width()
        return np.where((off >= width) & (off < width + step * C), 0.0, 1.0)

    def best_intercept(self, y: Array, f: Array, C: Array, start: float = 0.0) -> float:
        # The slope rises by C at each of the two edges of the tube.
        epsilon, weight, residual = self._width(), C + 0.0 * y, y - f
        breaks = np.concatenate([residual - epsilon, residual + epsilon])
        return root_of_steps(breaks, np.tile(weight, 2), -float(weight.sum()), start)

    def box_qp(self, y: Array, C: Array) -> BoxQP:
        n, epsilon = y.shape[0], self._width()
        upper = np.broadcast_to(np.asarray(C, dtype=np.float64), (n,))
        return BoxQP(
            sign=np.repeat([1.0, -1.0], n),
            linear=np.concatenate([epsilon - y, epsilon + y]),
            upper=np.tile(upper, 2),
            sample=np.tile(np.arange(n), 2),
            total=0.0,
        )
