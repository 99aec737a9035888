"""Smooth hinge loss: a logistic loss that tends to the hinge."""

from __future__ import annotations

from typing import Self

from kernelweave.losses.logistic import Logistic
from kernelweave.validation import positive_number

__all__ = ["SmoothHinge"]


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
