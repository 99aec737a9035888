"""What is known of the outputs f: the side of a margin they lie on, or their values with noise."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernelweave.problem import Array
from kernelweave.solvers.bemkl.priors import Gamma, Hyperparameters
from kernelweave.solvers.bemkl.truncated import truncated_moments
from kernelweave.solvers.kept import Numbers

__all__ = ["Labels", "Outputs", "Targets"]

_LOG_2_PI = float(np.log(2.0 * np.pi))


@dataclass(frozen=True)
class Labels:
    """Classes: f lies beyond the margin, on the side of its label (sections 3 and 5.2).

    Attributes
    ----------
    y : ndarray of shape (T, n)
        1, -1, or 0 where the label is not known: then on either side, but not in between.
    margin : float
        nu.
    """

    y: Array
    margin: float = 1.0

    def start(self, priors: Hyperparameters, guess: Array | None = None) -> LabelFactor:
        """Return the factor that q(f) starts from; `guess` is its location, or zero."""
        return LabelFactor(self, np.zeros(self.y.shape) if guess is None else guess)

    def signed(self, drawn: Array, guess: Array | None = None) -> Array:
        """Give numbers the sign of their label, or of the guess where there is none."""
        if guess is None:
            return np.abs(drawn) * self.y
        return np.abs(drawn) * np.where(self.y == 0, np.sign(guess), self.y)


@dataclass(frozen=True)
class Outputs:
    """Values: y is f itself, with noise of unknown precision.

    Attributes
    ----------
    y : ndarray of shape (T, n)
    """

    y: Array

    def start(self, priors: Hyperparameters, guess: Array | None = None) -> OutputFactor:
        """Return the factor that q(upsilon) starts from; there is nothing to guess."""
        return OutputFactor(self, priors)

    def signed(self, drawn: Array, guess: Array | None = None) -> Array:
        """Give numbers the sign of their output."""
        return np.abs(drawn) * np.sign(self.y)


Targets = Labels | Outputs


class LabelFactor:
    """q(f), truncated normal with variance 1."""

    # Whether what is left open about e'g + b is wanted for each task, or in sum.
    by_task = False

    def __init__(self, labels: Labels, location: Array) -> None:
        self._labels = labels
        self.precision = np.ones(len(labels.y))
        self.noise_variance = np.ones(len(labels.y))
        self.update(location, np.zeros(1))

    def update(self, location: Array, spread: Array) -> None:
        """Set the factor; `location` is E[e'g + b], `spread` the sum of its variances."""
        self._location = location
        moments = truncated_moments(location, self._labels.y, self._labels.margin)
        self.mean, self._log_mass = moments.mean, moments.log_mass

    def numbers(self) -> dict[str, Array]:
        """Return what the next iterations need of the factor."""
        return {"location": self._location}

    def restore(self, numbers: Numbers) -> None:
        """Set the factor to what :meth:`numbers` was, for the labels at hand."""
        self.update(numbers["location"], np.zeros(1))

    def bound(self, location: Array, spread: Array) -> float:
        """E[log p(f | e'g + b)] - E[log q(f)], from now another location."""
        off = self._location - location
        squares = off * (2.0 * (self.mean - self._location) + off)
        return float(np.sum(self._log_mass - 0.5 * squares) - 0.5 * np.sum(spread))


class OutputFactor:
    """q(upsilon), the precision of the noise of each output; starts from its prior."""

    by_task = True

    def __init__(self, outputs: Outputs, priors: Hyperparameters) -> None:
        self.mean = outputs.y
        self._noise = Gamma(priors.alpha_upsilon, priors.beta_upsilon, (len(outputs.y),))

    @property
    def precision(self) -> Array:
        """E[upsilon]."""
        return self._noise.mean

    @property
    def noise_variance(self) -> Array:
        """E[1 / upsilon]."""
        return self._noise.inverse_mean

    def _squares(self, location: Array, spread: Array) -> Array:
        return np.sum((self.mean - location) ** 2, axis=1) + spread

    def update(self, location: Array, spread: Array) -> None:
        """Set the factor; `location` is E[e'g + b], `spread` its variances summed, by task."""
        self._noise.update(self.mean.shape[1], self._squares(location, spread))

    def numbers(self) -> dict[str, Array]:
        """Return what the next iterations and predictions need of the factor."""
        return {"shape": self._noise.shape, "scale": self._noise.scale}

    def restore(self, numbers: Numbers) -> None:
        """Set the factor to what :meth:`numbers` was."""
        self._noise.shape, self._noise.scale = numbers["shape"], numbers["scale"]

    def bound(self, location: Array, spread: Array) -> float:
        """E[log p(y | e'g + b, upsilon)] + E[log p(upsilon)] - E[log q(upsilon)]."""
        n = self.mean.shape[1]
        fit = n * (self._noise.log_mean - _LOG_2_PI)
        fit = fit - self._noise.mean * self._squares(location, spread)
        return 0.5 * float(fit.sum()) + self._noise.bound()
