"""The combinations that come with the library: a sum, a product, a mixture of polynomials."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np
from numpy.polynomial import polynomial

from kernelweave.combine.base import Combination
from kernelweave.compiled.exp import exp_inplace
from kernelweave.errors import InvalidInputError
from kernelweave.operators.base import Array, KernelOperator

__all__ = ["PolynomialMixture", "Product", "WeightedSum"]


class WeightedSum(Combination):
    """The combination "sum": K(d) = sum_k d_k K_k, so dK/dd_k = K_k.

    Examples
    --------
    >>> WeightedSum()
    WeightedSum()
    """

    name = "sum"
    linear = True
    is_sum = True

    def values(self, tile: KernelOperator, d: Array) -> Array:
        """sum_k d_k K_k."""
        return tile.weighted(d)

    def derivative(self, tile: KernelOperator, d: Array, M: Array) -> Array:
        """sum_ij M_ij K_k[i, j]."""
        return tile.contract(M)

    def mean_slope(self, tile: KernelOperator, d: Array) -> None:
        """K is S itself."""

    def derivative_quad(
        self, bank: KernelOperator, d: Array, alpha: Array, kernels: Array | None = None
    ) -> Array:
        """q_k(alpha) = alpha'K_k alpha, from the bank's own pass."""
        if kernels is None:
            return bank.quad(alpha)
        quad = np.zeros(bank.m)
        quad[kernels] = bank.quad(alpha, kernels)
        return quad

    def evaluate(self, bank: KernelOperator, d: Array, alpha: Array) -> tuple[Array, Array]:
        """(K(d) alpha, q(alpha)), in one pass where the bank can."""
        quad, product = bank.quad_and_product(alpha, d)
        return product, quad


class Product(Combination):
    r"""Product of kernels (SPG-GMKL, section 2).

    .. math:: K(d) = \prod_k \exp(-d_k D_k) = \exp\Big(-\sum_k d_k D_k\Big), \qquad
              \frac{\partial K}{\partial d_k} = -D_k \circ K(d).

    The base matrices are distances: of a kernel :math:`\exp(-D)` the matrix D. With the default
    kernels there is one squared distance for each standardised feature, so that d are the inverse
    squared widths of a Gaussian kernel, one for each feature; with the `L1` regularizer irrelevant
    features get weight zero.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from kernelweave import MKLClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = MKLClassifier(combination="product", regularizer="l1", C=10).fit(X, y)
    >>> model.gap_kind_, model.score(X, y) > 0.95
    ('projected_gradient', True)
    """

    name = "product"
    base = "distances"

    def values(self, tile: KernelOperator, d: Array) -> Array:
        """exp(-sum_k d_k D_k)."""
        return exp_inplace(np.ascontiguousarray(tile.weighted(d)), -1.0)

    def derivative(self, tile: KernelOperator, d: Array, M: Array) -> Array:
        """-sum_ij M_ij K(d)_ij D_k[i, j]."""
        return -tile.contract(M * self.values(tile, d))

    def mean_slope(self, tile: KernelOperator, d: Array) -> Array:
        """-(1 - exp(-S)) / S, which is -1 where S is 0."""
        S = np.asarray(tile.weighted(d))
        return np.divide(np.expm1(-S), S, out=np.full_like(S, -1.0), where=S != 0)


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
