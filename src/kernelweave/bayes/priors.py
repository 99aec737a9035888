"""Gamma priors of the precisions: the presets, and the factor that each one gets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

import numpy as np
from scipy.special import digamma, gammaln

from kernelweave.arrays import Array
from kernelweave.errors import InvalidInputError
from kernelweave.validation import positive_number, unknown_name


@dataclass(frozen=True)
class Hyperparameters:
    """Shape (alpha) and scale (beta) of the gamma prior of each kind of precision.

    Attributes
    ----------
    alpha_lambda, beta_lambda : float
        Of the sample weights a. (1e-10, 1e10) makes few of them matter, as in a relevance vector
        machine.
    alpha_gamma, beta_gamma : float
        Of the intercept.
    alpha_omega, beta_omega : float
        Of the kernel weights e.
    alpha_upsilon, beta_upsilon : float
        Of the noise of a regression.

    Examples
    --------
    >>> Hyperparameters(alpha_omega=1e-10, beta_omega=1e10).beta_omega
    10000000000.0
    """

    alpha_lambda: float = 1.0
    beta_lambda: float = 1.0
    alpha_gamma: float = 1.0
    beta_gamma: float = 1.0
    alpha_omega: float = 1.0
    beta_omega: float = 1.0
    alpha_upsilon: float = 1.0
    beta_upsilon: float = 1.0


# Section 6.1 of the paper.
_PRESETS = {
    "dense": Hyperparameters(),
    "sparse": Hyperparameters(alpha_omega=1e-10, beta_omega=1e10),
}


def get_hyperparameters(
    sparsity: str, given: Mapping[str, float] | Hyperparameters | None = None
) -> Hyperparameters:
    """Return the preset of that name, with what was `given` in place of its values.

    Examples
    --------
    >>> get_hyperparameters("sparse").alpha_omega
    1e-10
    >>> get_hyperparameters("dense", {"alpha_lambda": 2.0}).alpha_lambda
    2.0
    """
    if sparsity not in _PRESETS:
        raise unknown_name("sparsity", sparsity, tuple(_PRESETS))
    chosen = _PRESETS[sparsity]
    if isinstance(given, Hyperparameters):
        chosen = given
    elif given is not None:
        if not isinstance(given, Mapping):
            raise InvalidInputError(
                "hyperparameters must be a dictionary or a Hyperparameters; got "
                f"{type(given).__name__}."
            )
        allowed = [field.name for field in fields(Hyperparameters)]
        for name in given:
            if name not in allowed:
                raise unknown_name("hyperparameter", name, allowed)
        chosen = replace(chosen, **dict(given))
    for field in fields(Hyperparameters):
        positive_number(f"hyperparameters[{field.name!r}]", getattr(chosen, field.name))
    return chosen


@dataclass(frozen=True, eq=False)
class Gamma:
    """q of a set of precisions, and their prior.

    Attributes
    ----------
    alpha, beta : float
        Shape and scale of the prior.
    shape, scale : ndarray
        Those of the factor.

    Examples
    --------
    >>> Gamma.start(1.0, 1.0, (2,)).updated(1.0, np.array([0.0, 2.0])).mean
    array([1.5 , 0.75])
    """

    alpha: float
    beta: float
    shape: Array
    scale: Array

    @classmethod
    def start(cls, alpha: float, beta: float, size: tuple[int, ...]) -> Gamma:
        """Return the prior of so many precisions."""
        return cls(alpha, beta, np.full(size, float(alpha)), np.full(size, float(beta)))

    @property
    def mean(self) -> Array:
        """E[x]."""
        return self.shape * self.scale

    @property
    def log_mean(self) -> Array:
        """E[log x]."""
        return digamma(self.shape) + np.log(self.scale)

    @property
    def inverse_mean(self) -> Array:
        """E[1 / x]; where that is infinite (shapes up to 1), 1 / E[x]."""
        return 1.0 / (self.scale * np.where(self.shape > 1.0, self.shape - 1.0, self.shape))

    def updated(self, count: float, squares: Array) -> Gamma:
        """Return the factor given `count` normal variables each and E[sum of their squares].

        Section 4.1: shape alpha + count/2, scale (1/beta + squares/2)^-1.
        """
        shape = np.full_like(squares, self.alpha + 0.5 * count)
        return replace(self, shape=shape, scale=1.0 / (1.0 / self.beta + 0.5 * squares))

    def normal_part(self, mean: Array, variance: Array) -> float:
        """Sum of 2 E[log p(v | x)], up to log 2 pi, of normal v with the precisions x."""
        return float((self.log_mean - self.mean * (mean**2 + variance)).sum())

    def bound(self) -> float:
        """E[log p(x)] - E[log q(x)]: its part of the lower bound."""
        parts = (
            (self.alpha - self.shape) * self.log_mean
            - self.mean / self.beta
            - gammaln(self.alpha)
            - self.alpha * np.log(self.beta)
            + self.shape
            + gammaln(self.shape)
            + self.shape * np.log(self.scale)
        )
        return float(parts.sum())
