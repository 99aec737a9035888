"""Weights that sum to one, kept close to equal ones."""

from __future__ import annotations

from typing import Self

import numpy as np
from scipy.special import softmax, wrightomega

from kernelweave.arrays import Array
from kernelweave.regularizers.base import Regularizer
from kernelweave.regularizers.norms import project_simplex
from kernelweave.root_search import rising_root

# The slope of d log(d) at zero is minus infinity. With this in place of zero it is finite, and far
# beyond any slope that a fit can set against it.
_FLOOR = 1e-300


class Entropy(Regularizer):
    r"""Kullback-Leibler divergence of the weights from equal ones.

    .. math::

        r(d) = s \sum_k d_k \log(m d_k),\ d \ge 0,\ \sum_k d_k = 1, \qquad
        r^*(z) = s \log \tfrac1m \sum_k e^{z_k / s},\ z = q / 2 .

    A large s keeps the weights equal, a small one gives those of the simplex; none is ever zero.
    :math:`\Omega` has no closed form: its weights follow from one multiplier, which is searched
    for.

    Parameters
    ----------
    weight : float, default=1.0
        The price s > 0.

    Examples
    --------
    >>> import numpy as np
    >>> reg = Entropy(weight=2.0)
    >>> reg.value(np.array([0.5, 0.5]))
    0.0
    >>> reg.dual_weights(np.array([0.0, 4.0 * np.log(3.0)])).round(10).tolist()
    [0.25, 0.75]
    """

    name = "entropy"
    sparse = False
    bounded = True
    smooth = False  # its slope at the border is infinite, which projected gradients cannot follow

    def __init__(self, weight: float = 1.0) -> None:
        self.weight = weight

    @classmethod
    def examples(cls) -> list[Self]:
        return [cls(), cls(0.02), cls(30.0)]

    def value(self, d: Array) -> float:
        price = self._price()
        if abs(float(np.sum(d)) - 1.0) > 1e-9 or float(np.min(d)) < -1e-9:
            return np.inf
        relative = len(d) * np.maximum(d, 0.0)
        return price * _divergence(relative, np.log(np.maximum(relative, _FLOOR)))

    def gradient(self, d: Array) -> Array:
        """Gradient up to a constant, which the sum of the weights makes void."""
        return self._price() * np.log(len(d) * np.maximum(d, _FLOOR))

    def project(self, v: Array) -> Array:
        return project_simplex(v)

    def prox(self, v: Array, step: Array | float) -> Array:
        return _prox(v, float(step) * self._price())

    def weights_from_norms(self, norms: Array) -> Array:
        d = np.exp(_log_relative_weights(norms, self._price()))
        return d / d.sum()

    def dual_penalty(self, q: Array) -> float:
        price, top = self._price(), 0.5 * float(np.max(q))
        below = (0.5 * q - top) / price
        mean = float(np.mean(np.expm1(below)))
        # Near zero the logarithm of 1 + mean keeps its digits only this way.
        log_mean = np.log1p(mean) if mean > -0.5 else np.log(np.mean(np.exp(below)))
        return top + price * float(log_mean)

    def dual_weights(self, q: Array) -> Array:
        d: Array = softmax((0.5 / self._price()) * q)
        return d


def _divergence(u: Array, x: Array) -> float:
    """Mean of u log u, x being log u, for u of mean one.

    Each term has u - 1 taken off. That changes nothing in exact arithmetic, but keeps the rounding
    of the mean out of a divergence that may be far smaller.
    """
    rise = np.where(np.abs(x) < 0.5, np.expm1(x), u - 1.0)
    return float(np.mean(u * x - rise))


def _prox(v: Array, price: float) -> Array:
    r"""Minimise :math:`\tfrac12 |d - v|^2 + \lambda \sum_k d_k \log(m d_k)` over the simplex.

    Stationarity is :math:`d_k + \lambda \log(m d_k) = v_k + \sigma`, so :math:`w = d_k / \lambda`
    solves ``w + log(w) = (v_k + sigma) / lambda - log(m lambda)``, the Wright omega function. At
    the largest v, taken to be zero, :math:`d_k` is between 1/m and 1, which bounds :math:`\sigma`.
    """
    m = len(v)
    below = np.asarray(v, dtype=np.float64) - np.max(v)
    log_unit = np.log(m * price)
    d = project_simplex(below)
    # First guess: the largest weight is that of the nearest point, without the price.
    start = float(d.max() + price * np.log(m * d.max()))

    def excess(sigma: float) -> tuple[float, float, float]:
        nonlocal d
        w = wrightomega((below + sigma) / price - log_unit)
        d = price * w
        total = float(d.sum())
        # Newton on log(total); dw / dz = w / (1 + w).
        step = np.log(total) * total / float(np.sum(w / (1.0 + w)))
        return total - 1.0, 1.0, sigma - step

    rising_root(excess, start, 1.0 / m, 1.0 + price * np.log(m), tolerance=1e-12)
    return d / d.sum()


def _log_relative_weights(norms: Array, price: float) -> Array:
    r"""log(m d) for the weights d that attain Omega.

    Stationarity is :math:`x_k + \kappa = c_k e^{-2 x_k}` with :math:`c_k = m^2 |f_k|^2 / (2 s)` and
    the :math:`\kappa \ge 0` for which the mean of :math:`e^{x_k}` is one. Averaging the condition
    as it stands, and times :math:`e^{2 x_k}`, bounds :math:`\kappa` by the cubed mean of
    :math:`c^{1/3}` and the mean of c. Newton's steps are taken in :math:`\log \kappa`.
    """
    top = float(np.max(norms))
    if not top > 0:
        return np.zeros(len(norms))
    ratio = np.asarray(norms, dtype=np.float64) / top
    log_top = 2.0 * np.log(top * (len(ratio) / np.sqrt(2.0 * price)))
    with np.errstate(divide="ignore"):
        log_c = 2.0 * np.log(ratio) + log_top
    low = 3.0 * np.log(np.mean(np.cbrt(ratio) ** 2)) + log_top
    high = np.log(np.mean(ratio**2)) + log_top

    x, excess = np.zeros_like(ratio), 0.0

    def lack(t: float) -> tuple[float, float, float]:
        nonlocal x, excess
        kappa = float(np.exp(t))
        x, rest = _stationary(log_c, kappa)
        u, excess = np.exp(x), float(np.mean(np.expm1(x)))
        # d log mean(u) / d log kappa, from dx / dkappa = -1 / (1 + 2 (x + kappa)).
        slope = kappa * float(np.sum(u / (1.0 + 2.0 * rest)) / np.sum(u))
        return -excess, 1.0, t + float(np.log1p(excess)) / slope if slope > 0 else np.nan

    rising_root(lack, 2.0 * np.log(np.mean(ratio)) + log_top, low, high, tolerance=1e-12)
    return x - np.log1p(excess)


def _stationary(log_c: Array, kappa: float) -> tuple[Array, Array]:
    """Solve ``x + kappa = c exp(-2 x)`` for every entry; returns (x, x + kappa).

    ``w = 2 (x + kappa)`` solves ``w + log(w) = log(2 c) + 2 kappa``, the Wright omega function.
    """
    rest = 0.5 * wrightomega(log_c + np.log(2.0) + 2.0 * kappa)
    # Of two large numbers the difference would lose its digits.
    large = rest > max(0.5 * kappa, 0.5)
    x = rest - kappa
    x[large] = 0.5 * (log_c[large] - np.log(rest[large]))
    return x, rest
