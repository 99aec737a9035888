"""What normalisation does to a Gram matrix that is only known by products with it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

__all__ = ["ScaledFactor"]

Floats = NDArray[np.float64]


class ScaledFactor(ABC):
    r"""The normalised part of a training Gram matrix, for dataclasses that know the raw one.

    .. math:: K = S K_0 S - L^\top U - U^\top L

    with a diagonal S. The other terms are what centring takes off:

    .. math:: K - r 1^\top - 1 r^\top + g\, 1 1^\top
              = K - (r - \tfrac g2) 1^\top - 1 (r - \tfrac g2)^\top .

    A subclass is a dataclass with the fields `scale` (the diagonal of S; a number stands for n
    equal ones), `left` and `right` (L and U, shape (r, n)), and has ``raw_product`` and
    ``raw_diagonal``.
    """

    scale: Floats | float
    left: Floats
    right: Floats

    @abstractmethod
    def raw_product(self, v: Floats) -> Floats:
        """K_0 v."""

    @abstractmethod
    def raw_diagonal(self) -> Floats:
        """Diagonal of K_0."""

    def scaled(self, root: Floats | float) -> Self:
        """Return the factor of diag(root) K diag(root)."""
        scale: Any = self.scale * root
        return self._with(scale=scale, left=self.left * root, right=self.right * root)

    def centred(self, means: Floats, grand: float) -> Self:
        """Return the factor of the centred matrix, given the row means of K and their mean."""
        return self._with(
            left=np.vstack([self.left, means - 0.5 * grand]),
            right=np.vstack([self.right, np.ones(len(means))]),
        )

    def _with(self, **changes: Any) -> Self:
        out: Any = replace(self, **changes)  # type: ignore[type-var]
        return out

    def product(self, v: Floats) -> Floats:
        """K v."""
        out = self.scale * self.raw_product(self.scale * v)
        return out - (self.left @ v) @ self.right - (self.right @ v) @ self.left

    def diagonal(self) -> Floats:
        """Diagonal of K."""
        squares = self.raw_diagonal() * np.square(self.scale)
        return np.maximum(squares - 2.0 * np.einsum("rn,rn->n", self.left, self.right), 0.0)
