"""Losses with a continuous gradient: squared, squared hinge, logistic, smooth hinge."""

from __future__ import annotations

from typing import ClassVar, Self

import numpy as np
from scipy.special import expit, xlog1py, xlogy

from kernelweave.arrays import Array
from kernelweave.losses.base import Loss
from kernelweave.losses.numeric import per_weight
from kernelweave.validation import positive_number


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

    def domain(self, y: Array, C: Array) -> tuple[Array, Array]:
        end = np.where(np.asarray(C) > 0, np.inf, 0.0) + 0.0 * y
        return -end, end

    def prox(self, y: Array, v: Array, C: Array, step: float) -> Array:
        weight = 2.0 * step * C
        return (v + weight * y) / (1.0 + weight)

    def lipschitz(self, C: Array) -> Array:
        return 2.0 * np.asarray(C, dtype=np.float64)


class SquaredHinge(Squared):
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
    task = "classification"  # type: ignore[assignment]
    steep = False
    soft_margin = "l2"

    # As y^2 = 1, it is the squared loss on one side of the margin.

    def value(self, y: Array, z: Array, C: Array) -> Array:
        return np.where(y * z >= 1.0, 0.0, super().value(y, z, C))

    def gradient(self, y: Array, z: Array, C: Array) -> Array:
        return np.where(y * z >= 1.0, 0.0, super().gradient(y, z, C))

    def curvature(self, y: Array, z: Array, C: Array) -> Array:
        return np.where(y * z >= 1.0, 0.0, super().curvature(y, z, C))

    def domain(self, y: Array, C: Array) -> tuple[Array, Array]:
        low, high = super().domain(y, C)
        return np.where(y > 0, 0.0, low), np.where(y > 0, high, 0.0)

    def prox(self, y: Array, v: Array, C: Array, step: float) -> Array:
        return np.where(y * v >= 1.0, v, super().prox(y, v, C, step))


class Logistic(Loss):
    r"""Logistic loss (row "logistic" of the table of losses).

    .. math::

        \ell(y, z) = C \log(1 + e^{-y z}), \qquad
        \ell^*(-\alpha) = C \left[ t \log t + (1 - t) \log(1 - t) \right], \quad
        t = \frac{y \alpha}{C} \in [0, 1] .

    Examples
    --------
    >>> import numpy as np
    >>> y, z, C = np.array([1.0, -1.0]), np.array([0.0, 1e6]), np.ones(2)
    >>> Logistic().value(y, z, C).round(4).tolist()
    [0.6931, 1000000.0]
    """

    name = "logistic"
    task = "classification"
    steep = True
    # Where the corner is that the loss rounds off. With this and a sharpness s it is
    # (C/s) log(1 + exp(s (margin - y z))), of which the smooth hinge is the other case.
    margin: ClassVar[float] = 0.0

    def _sharpness(self) -> float:
        return 1.0

    def value(self, y: Array, z: Array, C: Array) -> Array:
        s = self._sharpness()
        return C / s * np.logaddexp(0.0, s * (self.margin - y * z))

    def gradient(self, y: Array, z: Array, C: Array) -> Array:
        return -C * y * expit(self._sharpness() * (self.margin - y * z))

    def curvature(self, y: Array, z: Array, C: Array) -> Array:
        s = self._sharpness()
        u = s * (self.margin - y * z)
        return C * s * expit(u) * expit(-u)

    def conjugate(self, y: Array, alpha: Array, C: Array) -> Array:
        t = np.clip(per_weight(y * alpha, C), 0.0, 1.0)
        # Right to the last digits for the smallest t, too: the larger C is, the smaller t.
        negative_entropy = xlogy(t, t) + xlog1py(1.0 - t, -t)
        values = C / self._sharpness() * negative_entropy - self.margin * y * alpha
        return self._finite_in_domain(y, alpha, C, values)

    def domain(self, y: Array, C: Array) -> tuple[Array, Array]:
        return np.minimum(0.0, y * C), np.maximum(0.0, y * C)

    def prox(self, y: Array, v: Array, C: Array, step: float) -> Array:
        s, weight = self._sharpness(), step * np.asarray(C, dtype=np.float64)
        t = _logistic_prox(s * (y * v - self.margin), s * weight)
        # Both are right; a short way is added to v without loss.
        way = weight * expit(-t)
        return np.where(way <= np.abs(v), v + y * way, y * (self.margin + t / s))

    def lipschitz(self, C: Array) -> Array:
        return 0.25 * self._sharpness() * np.asarray(C, dtype=np.float64)


class SmoothHinge(Logistic):
    r"""Smooth hinge loss (row "smooth hinge, sigma" of the table of losses).

    .. math::

        \ell(y, z) = \frac{C}{\sigma} \log\left(1 + e^{\sigma (1 - y z)}\right), \qquad
        \ell^*(-\alpha) = -a + \frac{C}{\sigma}
        \left[ t \log t + (1 - t) \log(1 - t) \right], \quad
        t = \frac{a}{C} \in [0, 1],\; a = y \alpha .

    It tends to the hinge as :math:`\sigma` grows.

    Parameters
    ----------
    sigma : float, default=10.0
        Sharpness of the corner at the margin, > 0.

    Examples
    --------
    >>> import numpy as np
    >>> y, z, C = np.array([1.0, -1.0]), np.array([0.5, -3.0]), np.ones(2)
    >>> SmoothHinge(sigma=100.0).value(y, z, C).round(6).tolist()
    [0.5, 0.0]
    """

    name = "smooth_hinge"
    margin = 1.0

    def __init__(self, sigma: float = 10.0) -> None:
        self.sigma = sigma

    @classmethod
    def examples(cls) -> list[Self]:
        return [cls(), cls(sigma=1.5)]

    def _sharpness(self) -> float:
        return positive_number("sigma of the smooth hinge loss", self.sigma)


def _logistic_prox(v: Array, weight: Array) -> Array:
    r"""Solve :math:`t - \mathrm{weight} / (1 + e^t) = v` for every t.

    The equation is the same for -t and -(v + weight), so that t >= 0 can be had. There the left
    side is rising and concave, and Newton's method from a bound below never overshoots. By
    :math:`e^t = \mathrm{weight} / (t - v) - 1` the bound follows from one above,
    :math:`t \le \max(v, 0) + \log(1 + \mathrm{weight})`. It is close: from v or zero, Newton's
    method would come nearer by one at each step.
    """
    flipped = v + 0.5 * weight < 0
    v = np.where(flipped, -(v + weight), v)
    low = np.maximum(v, 0.0)
    room = np.maximum(low + np.log1p(weight) - v, np.finfo(np.float64).tiny)
    t = np.maximum(low, np.log(np.maximum(weight / room - 1.0, 1.0)))
    for _ in range(200):
        gap = expit(-t)
        change = (t - weight * gap - v) / (1.0 + weight * gap * (1.0 - gap))
        t = t - change
        if np.all(np.abs(change) <= 1e-9 * (1.0 + np.abs(t))):
            break
    return np.where(flipped, -t, t)
