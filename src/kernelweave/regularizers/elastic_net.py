"""A price on the sum of the weights and on their squares."""

from __future__ import annotations

from typing import Self

import numpy as np

from kernelweave.arrays import Array, Flags
from kernelweave.errors import InvalidInputError
from kernelweave.regularizers.base import NormProx, Regularizer
from kernelweave.validation import positive_number


class ElasticNet(Regularizer):
    r"""Linear and squared penalty on the weights: sparse, but kernels alike share their weight.

    .. math::

        r(d) = \sum_k a\, d_k + \tfrac{b}{2} d_k^2,\ d \ge 0, \qquad
        a = s \rho,\ b = s (1 - \rho), \qquad
        r^*(z) = \sum_k \frac{\max(0, z_k - a)^2}{2 b},\ z = q / 2 .

    :math:`\Omega = \sum_k 2 a d_k + \tfrac32 b d_k^2` with the :math:`d_k` that solve
    :math:`a d_k^2 + b d_k^3 = |f_k|^2 / 2`.

    Parameters
    ----------
    weight : float, default=1.0
        The price s > 0.
    l1_ratio : float, default=0.5
        Share :math:`\rho` of the linear part, from 0 to below 1. (At 1 it is
        :class:`~kernelweave.regularizers.L1`.)

    Examples
    --------
    >>> import numpy as np
    >>> reg = ElasticNet(weight=2.0, l1_ratio=0.5)
    >>> reg.value(np.array([1.0, 2.0]))
    5.5
    >>> reg.dual_weights(np.array([1.0, 6.0])).tolist()
    [0.0, 2.0]
    """

    name = "elastic_net"
    sparse = True
    orthant = True
    proximal = True
    selective = True

    def __init__(self, weight: float = 1.0, l1_ratio: float = 0.5) -> None:
        self.weight = weight
        self.l1_ratio = l1_ratio

    @classmethod
    def examples(cls) -> list[Self]:
        return [cls(), cls(0.2, 0.9), cls(5.0, 0.0), cls(1.0, 0.01)]

    def _prices(self) -> tuple[float, float]:
        """Prices a and b of the linear and the squared part."""
        weight = self._price()
        try:
            ratio = positive_number("l1_ratio of ElasticNet", self.l1_ratio, allow_zero=True)
        except InvalidInputError:
            ratio = np.inf
        if not ratio < 1.0:
            raise InvalidInputError(
                "l1_ratio of ElasticNet must be a number from 0 to below 1; got "
                f"{self.l1_ratio!r}. For l1_ratio=1 use L1(weight)."
            )
        return weight * ratio, weight * (1.0 - ratio)

    def value(self, d: Array) -> float:
        a, b = self._prices()
        if float(np.min(d)) < -1e-9:
            return np.inf
        return a * float(np.sum(d)) + 0.5 * b * float(d @ d)

    def gradient(self, d: Array) -> Array:
        a, b = self._prices()
        return a + b * d

    def prox(self, v: Array, step: Array | float) -> Array:
        a, b = self._prices()
        return np.maximum(v - step * a, 0.0) / (1.0 + step * b)

    def norm_prox(self, norms: Array, step: float) -> NormProx:
        r"""Of the p and d that minimise :math:`\tfrac12 (p - n)^2 + t (p^2 / (2 d) + r(d))`.

        There :math:`p = n d / (d + t)`, and :math:`(a + b d) (d + t)^2 = n^2 / 2` gives d.
        """
        a, b = self._prices()
        d = self._weights(norms, step)
        left = d / (d + step)
        # dd / dn = n / (derivative of the cubic).
        steep = step * (2.0 * a + b * step) + d * (2.0 * a + 4.0 * b * step + 3.0 * b * d)
        return NormProx.separable(norms * left, left + step * (norms / (d + step)) ** 2 / steep)

    def weights_from_norms(self, norms: Array) -> Array:
        return self._weights(norms, 0.0)

    def _weights(self, norms: Array, step: float) -> Array:
        """Solve (a + b d) (d + t)^2 = n^2 / 2, zero where n is too small."""
        a, b = self._prices()
        n, d = np.asarray(norms, dtype=np.float64), np.zeros(np.shape(norms))
        edge = step * np.sqrt(2.0 * a)
        used = n > edge
        # b x^3 + square x^2 + linear x = root^2: no coefficient is negative.
        root = np.sqrt(0.5 * (n[used] - edge)) * np.sqrt(n[used] + edge)
        square, linear = a + 2.0 * b * step, step * (2.0 * a + b * step)
        with np.errstate(divide="ignore"):
            # The solutions with one of the three terms alone; the true one is below all.
            alone = root * (root / linear), root / np.sqrt(square), np.cbrt(root) ** 2 / np.cbrt(b)
        x = np.minimum(np.minimum(*alone[:2]), alone[2])
        # Convex and rising: Newton's method comes down without a bracket. Seven steps are exact to
        # rounding for all such coefficients, as the terms are at most root^2 each at the start.
        for _ in range(7):
            slope = linear + x * (2.0 * square + 3.0 * b * x)
            x -= (x / root * (linear + x * (square + b * x)) - root) / (slope / root)
        d[used] = x
        return d

    def dual_penalty(self, q: Array) -> float:
        a, b = self._prices()
        excess = np.maximum(0.5 * q - a, 0.0)
        return float(excess @ excess) / (2.0 * b)

    def dual_weights(self, q: Array) -> Array:
        a, b = self._prices()
        return np.maximum(0.5 * q - a, 0.0) / b

    def entry_scale(self, q: Array) -> float:
        a, top = self._prices()[0], float(np.max(q))
        if a == 0.0:
            return 0.0
        return float(np.sqrt(2.0 * a / top)) if top > 0 else np.inf

    def screened(self, low: Array, high: Array) -> Flags:
        return np.asarray(high < np.sqrt(2.0 * self._prices()[0]))
