"""A kernel matrix by its sparse features, normalised without making them dense."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelweave.kernels.samples import row_square_norms

__all__ = ["SparseFactor"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class SparseFactor:
    r"""A training Gram matrix known by n sparse rows of features.

    .. math:: K = S F F^\top S - L^\top U - U^\top L

    with the features F as the kernel gives them and a diagonal S. The other terms are what
    centring takes off: centred features would be dense, but

    .. math:: K - r 1^\top - 1 r^\top + g\, 1 1^\top
              = K - (r - \tfrac g2) 1^\top - 1 (r - \tfrac g2)^\top .

    Parameters
    ----------
    features : CSR matrix of shape (n, D)
        The features F.
    scale : ndarray of shape (n,) or float
        The diagonal of S; a number stands for n equal ones.
    left, right : ndarray of shape (r, n)
        L and U.

    Examples
    --------
    >>> from scipy import sparse
    >>> factor = SparseFactor.of(sparse.csr_array([[1.0, 0.0], [0.0, 2.0]]))
    >>> factor.scaled(0.5).product(np.array([1.0, 1.0]))
    array([0.25, 1.  ])
    """

    features: Any
    scale: Floats | float
    left: Floats
    right: Floats

    @classmethod
    def of(cls, features: Any) -> SparseFactor:
        """Return K = F F'."""
        none = np.empty((0, features.shape[0]))
        return cls(features.astype(np.float64, copy=False), 1.0, none, none)

    def scaled(self, root: Floats | float) -> SparseFactor:
        """Return the factor of diag(root) K diag(root)."""
        return replace(
            self, scale=self.scale * root, left=self.left * root, right=self.right * root
        )

    def centred(self, means: Floats, grand: float) -> SparseFactor:
        """Return the factor of the centred matrix, given the row means of K and their mean."""
        return replace(
            self,
            left=np.vstack([self.left, means - 0.5 * grand]),
            right=np.vstack([self.right, np.ones(len(means))]),
        )

    def product(self, v: Floats) -> Floats:
        """K v."""
        out = self.scale * (self.features @ (self.features.T @ (self.scale * v)))
        return out - (self.left @ v) @ self.right - (self.right @ v) @ self.left

    def diagonal(self) -> Floats:
        """Diagonal of K."""
        squares = row_square_norms(self.features) * np.square(self.scale)
        return np.maximum(squares - 2.0 * np.einsum("rn,rn->n", self.left, self.right), 0.0)
