"""Weights in an lp ball."""

from __future__ import annotations

from typing import Self

import numpy as np

from kernelweave.arrays import Array
from kernelweave.regularizers.base import Regularizer
from kernelweave.regularizers.norm_prox import NormProx, power_prox, project_lp_ball
from kernelweave.regularizers.norms import (
    checked_exponent,
    dual_exponent,
    largest_on_sphere,
    norm,
    sphere_weights,
)

__all__ = ["LpBall"]


class LpBall(Regularizer):
    r"""Weights in the lp ball (row "lp ball" of the table of regularizers).

    .. math::

        d \ge 0,\ \|d\|_p \le 1, \qquad
        \Omega = \tfrac12 \big\| (|f_k|)_k \big\|_{2p/(p+1)}^2, \qquad
        r^*(q/2) = \tfrac12 \|q\|_{p/(p-1)} .

    At ``p = 1`` the conjugate norm is the maximum and the solutions are those of the simplex.

    Parameters
    ----------
    p : float, default=2.0
        Exponent of the norm, >= 1 and finite. The closer to 1, the fewer kernels matter.

    Examples
    --------
    >>> import numpy as np
    >>> reg = LpBall(p=2.0)
    >>> reg.project(np.array([3.0, 4.0, -1.0])).round(10).tolist()
    [0.6, 0.8, 0.0]
    >>> reg.dual_penalty(np.array([3.0, 4.0]))
    2.5
    """

    name = "lp_ball"
    sparse = False
    bounded = True
    proximal = True
    searching = True

    def __init__(self, p: float = 2.0) -> None:
        self.p = p

    @classmethod
    def examples(cls) -> list[Self]:
        return [cls(p) for p in (1.0, 1.1, 1.5, 2.0, 3.0, 8.0)]

    @property
    def polyhedral(self) -> bool:
        """The ball of the 1-norm: weights below a sum of one are never better."""
        return self.p == 1

    def _exponent(self) -> float:
        return checked_exponent("LpBall", self.p)

    def value(self, d: Array) -> float:
        inside = norm(d, self._exponent()) <= 1.0 + 1e-9 and float(np.min(d)) >= -1e-9
        return 0.0 if inside else np.inf

    def gradient(self, d: Array) -> Array:
        return np.zeros(np.shape(d))

    def project(self, v: Array) -> Array:
        return project_lp_ball(v, self._exponent())

    def prox(self, v: Array, step: Array | float) -> Array:
        return self.project(v)

    def omega(self, norms: Array) -> float:
        p = self._exponent()
        size = norm(norms, 2.0 * p / (p + 1.0))
        return 0.5 * (size * size)

    def norm_prox(self, norms: Array, step: float) -> NormProx:
        return power_prox(norms, self._exponent(), step, 2.0)

    def weights_from_norms(self, norms: Array) -> Array:
        return sphere_weights(norms, self._exponent())

    def dual_penalty(self, q: Array) -> float:
        return 0.5 * norm(np.maximum(q, 0.0), dual_exponent(self._exponent()))

    def dual_weights(self, q: Array) -> Array | None:
        p = self._exponent()
        return None if p == 1.0 else largest_on_sphere(q, p)

    def start(self, m: int) -> Array:
        return np.full(m, m ** (-1.0 / self._exponent()))
