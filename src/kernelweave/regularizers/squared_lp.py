"""A price on the squared lp norm of the weights."""

from __future__ import annotations

from typing import Self

import numpy as np

from kernelweave.arrays import Array
from kernelweave.regularizers.base import Regularizer
from kernelweave.regularizers.groups import Partition
from kernelweave.regularizers.norm_prox import NormProx, power_parts, power_prox
from kernelweave.regularizers.norms import (
    checked_exponent,
    dual_exponent,
    largest_on_sphere,
    norm,
    sphere_weights,
)

__all__ = ["SquaredLp"]


class SquaredLp(Regularizer):
    r"""Squared lp norm penalty (row "squared-norm penalty" of the table of regularizers).

    .. math::

        r(d) = \tfrac{s}{2} \|d\|_p^2,\ d \ge 0, \qquad
        \Omega = \tfrac32\, s^{1/3} \left( \tfrac12 A \right)^{2/3}, \quad
        A = \big\| (|f_k|)_k \big\|_{2p/(p+1)}^2, \qquad
        r^*(z) = \frac{\|z\|_{p/(p-1)}^2}{2 s},\ z = q / 2 .

    :math:`\Omega` follows from :math:`d = t u` with :math:`\|u\|_p = 1`: the best u is that of the
    ball, and :math:`\tfrac12 A / t + \tfrac{s}{2} t^2` is least at :math:`t^3 = A / (2 s)`.

    Parameters
    ----------
    p : float, default=2.0
        Exponent of the norm, >= 1 and finite.
    weight : float, default=1.0
        The price s > 0.

    Examples
    --------
    >>> import numpy as np
    >>> reg = SquaredLp(p=2.0, weight=1.0)
    >>> reg.value(np.array([3.0, 4.0]))
    12.5
    >>> reg.dual_penalty(np.array([6.0, 8.0]))
    12.5
    """

    name = "squared_lp"
    sparse = False
    orthant = True
    proximal = True
    searching = True

    def __init__(self, p: float = 2.0, weight: float = 1.0) -> None:
        self.p = p
        self.weight = weight

    @classmethod
    def examples(cls) -> list[Self]:
        return [cls(), cls(1.0, 0.5), cls(1.33, 3.0), cls(4.0, 0.2)]

    @property
    def smooth(self) -> bool:
        """Not between 1 and 2: there slopes rise infinitely steeply from zero."""
        return not 1.0 < self._exponent() < 2.0

    def _exponent(self) -> float:
        return checked_exponent("SquaredLp", self.p)

    def value(self, d: Array) -> float:
        if float(np.min(d)) < -1e-9:
            return np.inf
        size = norm(d, self._exponent())
        return 0.5 * self._price() * (size * size)

    def gradient(self, d: Array) -> Array:
        p, size = self._exponent(), norm(d, self._exponent())
        if size == 0.0:
            return np.zeros(np.shape(d))
        return self._price() * size * (np.maximum(d, 0.0) / size) ** (p - 1.0)

    def prox(self, v: Array, step: Array | float) -> Array:
        p, price = self._exponent(), step * self._price()
        if p == 1.0:
            return power_prox(np.maximum(v, 0.0), 1.0, float(price), 2.0).norms
        if p == 2.0:
            return np.maximum(v, 0.0) / (1.0 + price)
        out, top = np.zeros(len(v)), float(np.max(v))
        used = v > 0
        if np.any(used):
            # Of degree one in v, so its size can be taken out.
            steps = np.broadcast_to(np.asarray(price, dtype=np.float64), v.shape)[used]
            _, x, _ = power_parts(v[used] / top, steps, p, 2.0, Partition.whole(len(steps)))
            out[used] = top * x
        return out

    def _radius(self, norms: Array) -> float:
        """Norm t of the best weights."""
        p = self._exponent()
        size = norm(norms, 2.0 * p / (p + 1.0))
        return float(np.cbrt(size * (size / (2.0 * self._price()))))

    def omega(self, norms: Array) -> float:
        radius = self._radius(norms)
        return 1.5 * self._price() * (radius * radius)

    def norm_prox(self, norms: Array, step: float) -> NormProx:
        # Omega is 3/4 (2 s)^(1/3) times the norm to the power of 4/3.
        price = step * float(np.cbrt(2.0 * self._price()))
        return power_prox(norms, self._exponent(), price, 4.0 / 3.0)

    def weights_from_norms(self, norms: Array) -> Array:
        return self._radius(norms) * sphere_weights(norms, self._exponent())

    def dual_penalty(self, q: Array) -> float:
        size = norm(0.5 * np.maximum(q, 0.0), dual_exponent(self._exponent()))
        # A product of floats that is too large is infinite, where a power would raise.
        return (size * size) / (2.0 * self._price())

    def dual_weights(self, q: Array) -> Array | None:
        p = self._exponent()
        if p == 1.0:
            return None
        z = 0.5 * np.maximum(q, 0.0)
        return norm(z, dual_exponent(p)) / self._price() * largest_on_sphere(z, p)
