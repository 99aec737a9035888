"""Smooth hinge loss: a logistic loss that tends to the hinge."""

from __future__ import annotations

from typing import Self

import numpy as np
from scipy.special import expit, logit

from kernelweave.losses.base import Array, Loss
from kernelweave.losses.logistic import fraction, logistic_prox, negative_entropy
from kernelweave.validation import positive_number

__all__ = ["SmoothHinge"]


class SmoothHinge(Loss):
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
    task = "classification"
    smooth = True
    steep = True

    def __init__(self, sigma: float = 10.0) -> None:
        self.sigma = sigma

    @classmethod
    def examples(cls) -> list[Self]:
        return [cls(), cls(sigma=1.5)]

    def _sharpness(self) -> float:
        return positive_number("sigma of the smooth hinge loss", self.sigma)

    def value(self, y: Array, z: Array, C: Array) -> Array:
        sigma = self._sharpness()
        return C / sigma * np.logaddexp(0.0, sigma * (1.0 - y * z))

    def gradient(self, y: Array, z: Array, C: Array) -> Array:
        return -C * y * expit(self._sharpness() * (1.0 - y * z))

    def curvature(self, y: Array, z: Array, C: Array) -> Array:
        sigma = self._sharpness()
        u = sigma * (1.0 - y * z)
        return C * sigma * expit(u) * expit(-u)

    def conjugate(self, y: Array, alpha: Array, C: Array) -> Array:
        t = fraction(y, alpha, C)
        values = -y * alpha + C / self._sharpness() * negative_entropy(t)
        return self._finite_in_domain(y, alpha, C, values)

    def conjugate_gradient(self, y: Array, alpha: Array, C: Array) -> Array:
        return y * (-1.0 + logit(fraction(y, alpha, C)) / self._sharpness())

    def domain(self, y: Array, C: Array) -> tuple[Array, Array]:
        return np.minimum(0.0, y * C), np.maximum(0.0, y * C)

    def prox(self, y: Array, v: Array, C: Array, step: float) -> Array:
        sigma = self._sharpness()
        weight = step * np.asarray(C, dtype=np.float64)
        t = logistic_prox(sigma * (y * v - 1.0), sigma * weight)
        # Both are right; a short way is added to v without loss.
        way = weight * expit(-t)
        return np.where(way <= np.abs(v), v + y * way, y * (1.0 + t / sigma))

    def lipschitz(self, C: Array) -> Array:
        return 0.25 * self._sharpness() * np.asarray(C, dtype=np.float64)
