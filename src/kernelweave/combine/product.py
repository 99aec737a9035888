"""K(d) = exp(-sum_k d_k D_k): a product of kernels, one power each."""

from __future__ import annotations

import numpy as np

from kernelweave.combine.base import Combination
from kernelweave.compiled.exp import exp_inplace
from kernelweave.operators.base import Array, KernelOperator

__all__ = ["Product"]


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
