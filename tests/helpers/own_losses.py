"""Losses as users write them: three methods. None has a name, so they join no register."""

from __future__ import annotations

import numpy as np
from scipy.special import expit, xlogy

from kernelweave.losses import Loss, per_weight


class Regression(Loss):
    task = "regression"


class Huber(Regression):
    """What a user has to write, and no more."""

    def __init__(self, delta: float = 1.0) -> None:
        self.delta = delta

    def value(self, y, z, C):
        r = np.abs(y - z)
        return C * np.where(r <= self.delta, 0.5 * r**2, self.delta * (r - 0.5 * self.delta))

    def gradient(self, y, z, C):
        return C * np.clip(z - y, -self.delta, self.delta)

    def conjugate(self, y, alpha, C):
        return self._finite_in_domain(y, alpha, C, 0.5 * alpha * per_weight(alpha, C) - alpha * y)


class FullHuber(Huber):
    """With all formulas."""

    def curvature(self, y, z, C):
        return C * (np.abs(y - z) <= self.delta)

    def conjugate_gradient(self, y, alpha, C):
        return per_weight(alpha, C) - y

    def domain(self, y, C):
        return -self.delta * C + 0 * y, self.delta * C + 0 * y


class LogCosh(Regression):
    def value(self, y, z, C):
        return C * (np.logaddexp(z - y, y - z) - np.log(2.0))

    def gradient(self, y, z, C):
        return C * np.tanh(z - y)

    def conjugate(self, y, alpha, C):
        t = np.clip(per_weight(alpha, C), -1.0, 1.0)
        entropy = 0.5 * C * (xlogy(1 + t, 1 + t) + xlogy(1 - t, 1 - t))
        return self._finite_in_domain(y, alpha, C, entropy - alpha * y)


class SmoothQuantile(Regression):
    def __init__(self, tau: float = 0.9, width: float = 0.05) -> None:
        self.tau, self.width = tau, width

    def value(self, y, z, C):
        r = y - z
        return C * (self.tau * r + self.width * np.logaddexp(0.0, -r / self.width))

    def gradient(self, y, z, C):
        return C * (expit((z - y) / self.width) - self.tau)

    def conjugate(self, y, alpha, C):
        t = np.clip(self.tau - per_weight(alpha, C), 0.0, 1.0)
        entropy = C * self.width * (xlogy(t, t) + xlogy(1 - t, 1 - t))
        return self._finite_in_domain(y, alpha, C, entropy - alpha * y)


class Poisson(Regression):
    """Counts, z the logarithm of the rate: a gradient that is bounded on one side only."""

    def value(self, y, z, C):
        return C * (np.exp(z) - y * z)

    def gradient(self, y, z, C):
        return C * (np.exp(z) - y)

    def conjugate(self, y, alpha, C):
        rate = np.maximum(y - per_weight(alpha, C), 0.0)
        return self._finite_in_domain(y, alpha, C, C * (xlogy(rate, rate) - rate))


class Quartic(Regression):
    """No curvature at the target."""

    def value(self, y, z, C):
        return C * (z - y) ** 4 / 4

    def gradient(self, y, z, C):
        return C * (z - y) ** 3

    def conjugate(self, y, alpha, C):
        power = 0.75 * C * np.abs(per_weight(alpha, C)) ** (4 / 3)
        return self._finite_in_domain(y, alpha, C, power - alpha * y)


class Exponential(Loss):
    """The loss of AdaBoost; its gradient is not Lipschitz."""

    task = "classification"

    def value(self, y, z, C):
        return C * np.exp(-y * z)

    def gradient(self, y, z, C):
        return -C * y * np.exp(-y * z)

    def conjugate(self, y, alpha, C):
        t = np.maximum(per_weight(y * alpha, C), 0.0)
        return self._finite_in_domain(y, alpha, C, C * (xlogy(t, t) - t))


class Absolute(Regression):
    def value(self, y, z, C):
        return C * np.abs(z - y)

    def gradient(self, y, z, C):
        return C * np.sign(z - y)

    def conjugate(self, y, alpha, C):
        return self._finite_in_domain(y, alpha, C, -alpha * y)
