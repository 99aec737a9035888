"""K(d) = sum_q c_q (sum_k d_k K_k)^q: a mixture of polynomials of a sum."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np
from numpy.polynomial import polynomial

from kernelweave.combine.base import Combination
from kernelweave.errors import InvalidInputError
from kernelweave.operators.base import Array, KernelOperator

__all__ = ["PolynomialMixture"]


class PolynomialMixture(Combination):
    r"""Mixture of powers of a weighted sum (SPG-GMKL names it as one more combination).

    .. math:: K(d) = \sum_{q=1}^Q c_q\, S^{\circ q}, \quad S = \sum_k d_k K_k, \qquad
              \frac{\partial K}{\partial d_k} = \Big( \sum_q q\, c_q\, S^{\circ (q-1)} \Big)
              \circ K_k,

    with powers taken entry by entry: a power of degree q holds the products of all q-tuples of
    kernels. Products and sums of kernels with positive coefficients are kernels.

    Parameters
    ----------
    coefficients : sequence of float, default=(1.0, 0.5)
        :math:`c_1, \dots, c_Q`, none negative, not all zero.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from kernelweave import MKLClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = MKLClassifier(combination=PolynomialMixture((1.0, 1.0))).fit(X, y)
    >>> model.gap_kind_, bool(model.gap_ <= 1e-3)
    ('projected_gradient', True)
    """

    name = "polynomial_mixture"

    def __init__(self, coefficients: Sequence[float] = (1.0, 0.5)) -> None:
        self.coefficients = coefficients

    @classmethod
    def examples(cls) -> list[Self]:
        """Instances that the contract tests check."""
        return [cls(), cls((0.0, 1.0)), cls((0.5, 0.0, 2.0))]

    def _after_load(self) -> None:
        self._checked()

    def _checked(self) -> Array:
        c = np.asarray(self.coefficients, dtype=np.float64)
        if c.ndim != 1 or not np.all(np.isfinite(c)) or np.any(c < 0) or not np.any(c > 0):
            raise InvalidInputError(
                "coefficients of PolynomialMixture must be finite numbers >= 0, at least one of "
                f"them > 0; got {self.coefficients!r}."
            )
        return np.concatenate([[0.0], c])

    def values(self, tile: KernelOperator, d: Array) -> Array:
        """sum_q c_q S^q, entry by entry."""
        S = tile.weighted(d)
        return polynomial.polyval(S, self._checked().astype(S.dtype), tensor=False)

    def derivative(self, tile: KernelOperator, d: Array, M: Array) -> Array:
        """sum_ij M_ij (sum_q q c_q S_ij^(q-1)) K_k[i, j]."""
        slope = polynomial.polyder(self._checked())
        return tile.contract(M * polynomial.polyval(tile.weighted(d), slope, tensor=False))

    def mean_slope(self, tile: KernelOperator, d: Array) -> Array:
        """sum_q c_q S^(q-1), entry by entry."""
        return polynomial.polyval(tile.weighted(d), self._checked()[1:], tensor=False)
