"""Logistic loss."""

from __future__ import annotations

import numpy as np
from scipy.special import expit, logit, xlog1py, xlogy

from kernelweave.losses.base import Array, Loss
from kernelweave.losses.numeric import per_weight

__all__ = ["Logistic", "fraction", "logistic_prox", "negative_entropy"]


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

    def value(self, y: Array, z: Array, C: Array) -> Array:
        return C * np.logaddexp(0.0, -y * z)

    def gradient(self, y: Array, z: Array, C: Array) -> Array:
        return -C * y * expit(-y * z)

    def curvature(self, y: Array, z: Array, C: Array) -> Array:
        return C * expit(z) * expit(-z)

    def conjugate(self, y: Array, alpha: Array, C: Array) -> Array:
        t = fraction(y, alpha, C)
        return self._finite_in_domain(y, alpha, C, C * negative_entropy(t))

    def conjugate_gradient(self, y: Array, alpha: Array, C: Array) -> Array:
        return y * logit(fraction(y, alpha, C))

    def domain(self, y: Array, C: Array) -> tuple[Array, Array]:
        return np.minimum(0.0, y * C), np.maximum(0.0, y * C)

    def prox(self, y: Array, v: Array, C: Array, step: float) -> Array:
        return y * logistic_prox(y * v, step * np.asarray(C, dtype=np.float64))

    def lipschitz(self, C: Array) -> Array:
        return 0.25 * np.asarray(C, dtype=np.float64)


def logistic_prox(v: Array, weight: Array) -> Array:
    r"""Solve :math:`t - \mathrm{weight} / (1 + e^t) = v` for every t.

    The equation is the same for -t and -(v + weight), so that t >= 0 can be had. There the left
    side is rising and concave, and Newton's method from a bound below never overshoots. By
    :math:`e^t = \mathrm{weight} / (t - v) - 1` the bound follows from one above,
    :math:`t \le \max(v, 0) + \log(1 + \mathrm{weight})`. It is close: from v or zero, Newton's
    method would come nearer by one at each step.

    Examples
    --------
    >>> import numpy as np
    >>> float(logistic_prox(np.array([-1.0]), np.array([2.0]))[0])
    0.0
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


def fraction(y: Array, alpha: Array, C: Array) -> Array:
    """``t = y * alpha / C`` kept in [0, 1]; zero for samples of weight zero.

    Examples
    --------
    >>> import numpy as np
    >>> fraction(np.array([1.0, -1.0]), np.array([1.0, -3.0]), np.array([4.0, 3.0])).tolist()
    [0.25, 1.0]
    """
    return np.clip(per_weight(y * alpha, C), 0.0, 1.0)


def negative_entropy(t: Array) -> Array:
    """``t log t + (1 - t) log(1 - t)`` on [0, 1].

    Right to the last digits for the smallest t, too: it is multiplied by C, and the larger C is,
    the smaller t.

    Examples
    --------
    >>> import numpy as np
    >>> negative_entropy(np.array([0.0, 0.5, 1.0])).round(4).tolist()
    [0.0, -0.6931, 0.0]
    """
    return xlogy(t, t) + xlog1py(1.0 - t, -t)
