"""Training Gram matrices that are only known by products with them, and their normalisation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# A table of all columns is quicker than sorting, but must not be much larger than the entries.
_TABLE = 16
_MANY_COLUMNS = 2**16


@dataclass(frozen=True, eq=False)
class Scaling:
    r"""What normalisation makes of a training Gram matrix :math:`K_0`, which stays as it is.

    .. math:: K = S K_0 S - L^\top U - U^\top L

    with a diagonal S. The other terms are what centring takes off:

    .. math:: K - r 1^\top - 1 r^\top + g\, 1 1^\top
              = K - (r - \tfrac g2) 1^\top - 1 (r - \tfrac g2)^\top .

    Parameters
    ----------
    scale : ndarray of shape (n,) or ()
        The diagonal of S; a single number stands for n equal ones.
    left, right : ndarray of shape (r, n)
        L and U.

    Examples
    --------
    >>> halved = Scaling.none(3).scaled(np.float64(0.5)).centred(np.array([1.0, 2.0, 3.0]), 2.0)
    >>> halved.scale, halved.off_block([0], [1, 2])
    (array(0.5), array([[1., 2.]]))
    """

    scale: Floats
    left: Floats
    right: Floats

    @classmethod
    def none(cls, n: int, scale: Floats | float = 1.0) -> Scaling:
        """Return what a kernel on n samples that is not normalised has."""
        return cls(one_if_equal(np.asarray(scale)), np.empty((0, n)), np.empty((0, n)))

    def scaled(self, root: Floats | float) -> Scaling:
        """Return that of diag(root) K diag(root)."""
        scale = one_if_equal(np.asarray(self.scale * root))
        return Scaling(scale, self.left * root, self.right * root)

    def centred(self, means: Floats, grand: float) -> Scaling:
        """Return that of the centred matrix, given the row means of K and their mean."""
        left = np.vstack([self.left, means - 0.5 * grand])
        return Scaling(self.scale, left, np.vstack([self.right, np.ones(len(means))]))

    def take(self, idx: Any) -> Scaling:
        """Return that of some of the samples."""
        some = (np.ascontiguousarray(side[:, idx]) for side in (self.left, self.right))
        return Scaling(self.at(idx), *some)

    def at(self, idx: Any) -> Floats:
        """Entries of S for some samples, or the one number that all are."""
        return self.scale[idx] if self.scale.ndim else self.scale

    @property
    def takes_off(self) -> bool:
        """Whether there is anything but the scale."""
        return len(self.left) > 0

    def off_product(self, v: Floats, rows: Any = slice(None)) -> Floats:
        """What centring takes off some rows of K v."""
        left, right = self.left, self.right
        return (left @ v) @ right[:, rows] + (right @ v) @ left[:, rows]

    def off_block(self, rows: Any, columns: Any) -> Floats:
        """What centring takes off a block of K."""
        left, right = self.left, self.right
        return left[:, rows].T @ right[:, columns] + right[:, rows].T @ left[:, columns]


class ScaledFactor(ABC):
    """A normalised training Gram matrix, for dataclasses that know the raw one."""

    scaling: Scaling

    @abstractmethod
    def raw_product(self, v: Floats) -> Floats:
        """K_0 v."""

    @abstractmethod
    def raw_diagonal(self) -> Floats:
        """Diagonal of K_0."""

    @abstractmethod
    def take(self, idx: Any, shared: dict[int, Any]) -> ScaledFactor:
        """Return the same on some of the samples.

        `shared` holds what factors of the same samples have in common, by the id of the original.
        """

    def product(self, v: Floats) -> Floats:
        """K v."""
        scale = self.scaling.scale
        return scale * self.raw_product(scale * v) - self.scaling.off_product(v)

    def diagonal(self) -> Floats:
        """Diagonal of K."""
        own = self.scaling
        squares = self.raw_diagonal() * np.square(own.scale)
        return np.maximum(squares - 2.0 * np.einsum("rn,rn->n", own.left, own.right), 0.0)


def one_if_equal(given: Floats) -> Floats:
    """Return a single number, shape (), if all are equal."""
    return given[0].copy() if given.size and given.ndim and np.all(given == given[0]) else given


def number_columns(indices: NDArray[np.integer]) -> tuple[Ints, Ints]:
    """Return the columns that occur, ascending, and the place of each entry among them."""
    if indices.max(initial=0) < _TABLE * indices.size + _MANY_COLUMNS:
        there = np.bincount(indices) > 0
        return np.flatnonzero(there), (np.cumsum(there) - 1)[indices]
    used, places = np.unique(indices, return_inverse=True)
    return used.astype(np.int64, copy=False), places
