"""What normalisation makes of a kernel, and Gram matrices only known by products with them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# A table of all columns is quicker than sorting, but must not be much larger than the entries.
_TABLE = 16
_MANY_COLUMNS = 2**16
# A centred diagonal this small against the one before is rounding error of zero.
_ROUNDING = 1e-12


@dataclass(frozen=True, eq=False)
class Scaling:
    r"""What normalisation knows of some samples, on either side of a kernel :math:`K_0`.

    .. math:: K = S K_0 S' - L^\top U' - U^\top L'

    with diagonal S and S', those of the samples on the left and on the right. The other terms are
    what centring takes off:

    .. math:: K - r 1^\top - 1 r'^\top + g\, 1 1^\top
              = K - (r - \tfrac g2) 1^\top - 1 (r' - \tfrac g2)^\top .

    Every normalisation has this form, and every kernel is normalised by the formulas here, however
    it is kept.

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
        """Return what n samples of a kernel that is not normalised have."""
        return cls(one_if_equal(np.asarray(scale)), np.empty((0, n)), np.empty((0, n)))

    # Steps of a normalisation

    def scaled(self, root: Floats | float) -> Scaling:
        """Return that of diag(root) K diag(root')."""
        scale = one_if_equal(np.asarray(self.scale * root))
        return Scaling(scale, self.left * root, self.right * root)

    def centred(self, means: Floats, grand: float) -> Scaling:
        """Return that of the centred kernel, given the means over training samples and theirs."""
        left = np.vstack([self.left, means - 0.5 * grand])
        return Scaling(self.scale, left, np.vstack([self.right, np.ones(len(means))]))

    def take(self, idx: Any) -> Scaling:
        """Return that of some of the samples."""
        some = (np.ascontiguousarray(side[:, idx]) for side in (self.left, self.right))
        return Scaling(self.at(idx), *some)

    def at(self, idx: Any) -> Floats:
        """Entries of S for some samples, or the one number that all are."""
        return self.scale[idx] if self.scale.ndim else self.scale

    # From K_0 to K

    def normalise(self, values: NDArray[Any], other: Scaling) -> None:
        """Turn K_0 between these samples (rows) and others (columns) into K, in place."""
        kind = values.dtype
        if self.scale.ndim or other.scale.ndim:
            values *= np.reshape(self.scale, (-1, 1)).astype(kind, copy=False)
            values *= other.scale.astype(kind, copy=False)
        elif (factor := self.scale * other.scale) != 1.0:
            values *= kind.type(factor)
        if self.takes_off:
            values -= self.off_block(slice(None), slice(None), other, kind)

    def product(
        self, raw: Callable[[Floats], Floats], v: Floats, other: Scaling | None = None
    ) -> Floats:
        """K v, given `raw` for products with K_0; `other` is of the samples of v, if not these."""
        other = self if other is None else other
        return self.scale * raw(other.scale * v) - self.off_product(v, other=other)

    def diagonal(self, raw: Floats) -> Floats:
        """Diagonal of K, given that of K_0."""
        out = raw * np.square(self.scale)
        if self.takes_off:
            sizes = np.abs(out)
            out -= 2.0 * np.einsum("rn,rn->n", self.left, self.right)
            out[np.abs(out) <= _ROUNDING * sizes] = 0.0
        return out

    @property
    def takes_off(self) -> bool:
        """Whether there is anything but the scale."""
        return len(self.left) > 0

    def off_product(
        self, v: Floats, rows: Any = slice(None), other: Scaling | None = None
    ) -> Floats:
        """What centring takes off some rows of K v."""
        other = self if other is None else other
        left, right = self.left[:, rows], self.right[:, rows]
        return (other.left @ v) @ right + (other.right @ v) @ left

    def off_block(
        self, rows: Any, columns: Any, other: Scaling | None = None, dtype: Any = np.float64
    ) -> NDArray[Any]:
        """What centring takes off a block of K."""
        other = self if other is None else other
        mine = np.vstack([self.left[:, rows], self.right[:, rows]]).astype(dtype, copy=False)
        theirs = np.vstack([other.right[:, columns], other.left[:, columns]])
        return mine.T @ theirs.astype(dtype, copy=False)

    def coefficients(self, v: Floats) -> tuple[Floats, float]:
        r"""Return c and b with :math:`\sum_j v_j K(x, x_j) = s(x) \sum_j c_j K_0(x, x_j) + b`.

        For training samples :math:`x_j`, where nothing but a constant scales a kernel after it was
        centred. A centred kernel takes the mean off v as well, and has the mean 0 over the
        training samples.
        """
        left, right = self.left, self.right
        constant = left.mean(axis=1) @ (right @ v) - right.mean(axis=1) @ (left @ v)
        return self.scale * (v - v.mean() if self.takes_off else v), float(constant)


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
        return self.scaling.product(self.raw_product, v)

    def diagonal(self) -> Floats:
        """Diagonal of K."""
        return np.maximum(self.scaling.diagonal(self.raw_diagonal()), 0.0)


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
