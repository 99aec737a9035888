"""What is known of the outputs f: the side of a margin they lie on, or their values with noise."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import erfcx, log_ndtr, ndtr

from kernelweave.arrays import Array
from kernelweave.bayes.priors import Gamma, Hyperparameters
from kernelweave.solvers.kept import Numbers

_LOG_2_PI = float(np.log(2.0 * np.pi))
_ROOT_TWO = np.sqrt(2.0)
_HAZARD_SCALE = np.sqrt(2.0 / np.pi)
# From here on `hazard(z) - z` comes from its continued fraction: the difference would lose z^2 eps,
# and 22 levels are right to 1e-16.
_FAR, _LEVELS = 6.0, 22


class Labels:
    """Classes: f lies beyond the margin, on the side of its label (sections 3 and 5.2).

    q(f) is truncated normal with variance 1. It never changes: an update is another object.

    Parameters
    ----------
    y : ndarray of shape (T, n)
        1, -1, or 0 where the label is not known: then on either side, but not in between.
    margin : float
        nu.
    location : ndarray of shape (T, n), optional
        Mean of f before it is truncated; zero unless given.
    """

    # Whether what is left open about e'g + b is wanted for each task, or in sum.
    by_task = False

    def __init__(self, y: Array, margin: float = 1.0, location: Array | None = None) -> None:
        self.y, self.margin = y, margin
        self._location = np.zeros(y.shape) if location is None else location
        self.precision = self.noise_variance = np.ones(len(y))
        self.mean, _, self._log_mass = truncated_moments(self._location, y, margin)

    def start(self, priors: Hyperparameters, guess: Array | None = None) -> Labels:
        """Return what q(f) starts from; `guess` is its location, or zero."""
        return self.updated(guess)

    def updated(self, location: Array | None, spread: Array | None = None) -> Labels:
        """Return q(f) for E[e'g + b], its `location`; the sum of variances is no matter."""
        return Labels(self.y, self.margin, location)

    def numbers(self) -> dict[str, Array]:
        """Return what the next iterations need of the factor."""
        return {"location": self._location}

    def restored(self, numbers: Numbers) -> Labels:
        """Return what :meth:`numbers` was taken from, for the labels at hand."""
        return self.updated(numbers["location"])

    def bound(self, location: Array, spread: Array) -> float:
        """E[log p(f | e'g + b)] - E[log q(f)], from now another location."""
        off = self._location - location
        squares = off * (2.0 * (self.mean - self._location) + off)
        return float(np.sum(self._log_mass - 0.5 * squares) - 0.5 * np.sum(spread))


class Outputs:
    """Values: y is f itself, with noise of unknown precision. Methods are those of `Labels`.

    Parameters
    ----------
    y : ndarray of shape (T, n)
    noise : Gamma, optional
        q(upsilon), the precision of the noise of each output.
    """

    by_task = True

    def __init__(self, y: Array, noise: Gamma | None = None) -> None:
        self.y = self.mean = y
        self._noise = noise or Gamma.start(1.0, 1.0, (len(y),))
        self.precision, self.noise_variance = self._noise.mean, self._noise.inverse_mean

    def start(self, priors: Hyperparameters, guess: Array | None = None) -> Outputs:
        """Return what q(upsilon) starts from; there is nothing to guess."""
        size = (len(self.y),)
        return Outputs(self.y, Gamma.start(priors.alpha_upsilon, priors.beta_upsilon, size))

    def _squares(self, location: Array, spread: Array) -> Array:
        return np.sum((self.y - location) ** 2, axis=1) + spread

    def updated(self, location: Array, spread: Array) -> Outputs:
        """Return q(upsilon) for E[e'g + b] and its variances summed, by task."""
        squares = self._squares(location, spread)
        return Outputs(self.y, self._noise.updated(self.y.shape[1], squares))

    def numbers(self) -> dict[str, Array]:
        return {"shape": self._noise.shape, "scale": self._noise.scale}

    def restored(self, numbers: Numbers) -> Outputs:
        shape, scale = numbers["shape"], numbers["scale"]
        return Outputs(self.y, replace(self._noise, shape=shape, scale=scale))

    def bound(self, location: Array, spread: Array) -> float:
        """E[log p(y | e'g + b, upsilon)] + E[log p(upsilon)] - E[log q(upsilon)]."""
        fit = self.y.shape[1] * (self._noise.log_mean - _LOG_2_PI)
        fit = fit - self._noise.mean * self._squares(location, spread)
        return 0.5 * float(fit.sum()) + self._noise.bound()


Targets = Labels | Outputs


# Moments of a normal variable kept outside the margin, in closed form


class TruncatedMoments(NamedTuple):
    """E[f], E[(f - location)^2] and the log of the mass kept, element by element."""

    mean: Array
    second: Array
    log_mass: Array


def truncated_moments(location: ArrayLike, label: ArrayLike, margin: float) -> TruncatedMoments:
    r"""Moments of N(location, 1) truncated to the side of its label.

    With :math:`\phi, \Phi` of the standard normal and :math:`z = \nu - y \mu`, a labelled one has

    .. math::

        y \, \mathrm E[f] = \nu + h(z) - z, \quad
        \mathrm E[(f - \mu)^2] = 1 + z \, h(z), \quad
        h(z) = \frac{\phi(z)}{\Phi(-z)}

    and mass :math:`\Phi(-z)` (Gönen 2012, section 4.1). An unlabelled one lies on either side of
    the margin (section 5.2). Nothing overflows; the digits that cancel are not formed.

    Parameters
    ----------
    location : array-like
        Mean before truncation.
    label : array-like
        +1: f > margin; -1: f < -margin; 0: \|f\| > margin. Broadcast against `location`.
    margin : float
        Not negative. With 0, an unlabelled f is not truncated.

    Examples
    --------
    >>> mean, second, log_mass = truncated_moments([0.0, -1e3, 0.5], [1, 1, 0], 0.0)
    >>> mean.round(6).tolist(), second.round(6).tolist()
    ([0.797885, 0.001, 0.5], [1.0, 1000001.999998, 1.0])
    """
    mu, y = np.broadcast_arrays(np.asarray(location, dtype=np.float64), np.asarray(label))
    mean, second, log_mass = np.empty(mu.shape), np.empty(mu.shape), np.empty(mu.shape)
    free = y == 0
    for part, moments in ((~free, _one_sided), (free, _two_sided)):
        if np.any(part):
            mean[part], second[part], log_mass[part] = moments(mu[part], y[part], float(margin))
    return TruncatedMoments(mean, second, log_mass)


def class_probability(mean: ArrayLike, std: ArrayLike, margin: float) -> Array:
    r"""Probability of the label +1 for f ~ N(mean, std^2), knowing f lies outside the margin.

    .. math::

        p(y = +1) = \frac{\Phi((\mu - \nu) / s)}{\Phi((\mu - \nu) / s) + \Phi((-\mu - \nu) / s)}

    (Gönen 2012, section 4.3).

    Examples
    --------
    >>> class_probability([0.0, 1.0, -1e6], 1.0, 1.0).round(4).tolist()
    [0.5, 0.9565, 0.0]
    """
    mu, s = np.asarray(mean, dtype=np.float64), np.asarray(std, dtype=np.float64)
    odds = _far_side(np.abs(mu) / s, margin / s)
    return np.where(mu >= 0.0, 1.0, odds) / (1.0 + odds)


def log_class_probability(mean: ArrayLike, std: ArrayLike, margin: float) -> Array:
    """Logarithm of :func:`class_probability`, which may be too small for a number."""
    mu, s = np.asarray(mean, dtype=np.float64), np.asarray(std, dtype=np.float64)
    here, there = log_ndtr((mu - margin) / s), log_ndtr((-mu - margin) / s)
    return here - np.logaddexp(here, there)


def _one_sided(mu: Array, y: Array, margin: float) -> tuple[Array, Array, Array]:
    z = margin - y * mu
    hazard = _hazard(z)
    excess = hazard - z
    far = z > _FAR
    # hazard(z) - z for large z: 1/(z + 2/(z + 3/(z + ...))).
    tail = z[far]
    for level in range(_LEVELS, 1, -1):
        tail = z[far] + level / tail
    excess[far] = 1.0 / tail
    # Strictly beyond the margin, also where the excess is lost in its last digit.
    inner = np.maximum(margin + excess, np.nextafter(margin, np.inf))
    return y * inner, 1.0 + z * hazard, log_ndtr(-z)


def _two_sided(mu: Array, y: Array, margin: float) -> tuple[Array, Array, Array]:
    """Both tails, reflected so that the location is not negative."""
    u = np.abs(mu)
    near, far = margin - u, margin + u
    odds = _far_side(u, margin)
    # phi(near) / mass, and phi(far) = phi(near) exp(-2 margin u).
    height = _hazard(near) / (1.0 + odds)
    fall = 2.0 * margin * u
    mean = u - height * np.expm1(-fall)
    second = 1.0 + height * (near + far * np.exp(-fall))
    inside = ndtr(near) - ndtr(-far)
    # The smaller of the two masses carries the digits.
    small = inside < 0.5
    log_mass = np.empty_like(u)
    log_mass[small] = np.log1p(-inside[small])
    log_mass[~small] = log_ndtr(-near[~small]) + np.log1p(odds[~small])
    return np.copysign(mean, mu), second, log_mass


def _hazard(z: Array) -> Array:
    """phi(z) / Phi(-z); 0 where that underflows."""
    return _HAZARD_SCALE / erfcx(z / _ROOT_TWO)


def _far_side(u: Array, margin: Array | float) -> Array:
    """Phi(-u - margin) / Phi(u - margin) for u >= 0, the common exponential taken out."""
    far, near = (margin + u) / _ROOT_TWO, (margin - u) / _ROOT_TWO
    return np.exp(-2.0 * margin * u) * erfcx(far) / erfcx(near)
