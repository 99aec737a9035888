"""What a combination of kernels is: K(d) and its derivative, from tiles of the base matrices."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import DTypeLike

from kernelweave.bank.protocol import Array, MatrixBank, as_tasks
from kernelweave.combine.gram import Gram, TiledGram
from kernelweave.combine.tiles import add_tiles, fill_symmetric
from kernelweave.kernels.tile import Tile
from kernelweave.registry import Named

__all__ = ["Combination"]


class Combination(Named):
    r"""A differentiable map from weights :math:`d \ge 0` to one kernel :math:`K(d)`.

    A new one supplies `values` and `derivative` on a :class:`~kernelweave.kernels.tile.Tile`, any
    rectangle of the base matrices; training, gradients and prediction all follow from these two,
    a few rows at a time. A subclass that sets `name` can be asked for by it and joins the contract
    tests.

    Attributes
    ----------
    base : {"kernels", "distances"}
        What the base matrices B_k are.
    linear : bool
        Whether K(d) is linear in d. The problem is then convex and a fit ends with a duality gap;
        otherwise it ends at a stationary point.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.bank import DenseBank
    >>> from kernelweave.combine import PolynomialMixture
    >>> bank = DenseBank().from_matrices([np.eye(2), np.ones((2, 2))])
    >>> PolynomialMixture((1.0, 1.0)).matrix(bank, np.array([1.0, 2.0]))
    array([[12.,  6.],
           [ 6., 12.]])
    """

    kind = "combination"
    base: ClassVar[str] = "kernels"
    linear: ClassVar[bool] = False

    @abstractmethod
    def values(self, tile: Tile, d: Array) -> Array:
        """K(d) on the tile, shape `tile.shape`."""

    @abstractmethod
    def derivative(self, tile: Tile, d: Array, M: Array) -> Array:
        """sum_ij M_ij dK(d)_ij / dd_k over the tile, for every k: shape (m,)."""

    def gram(
        self,
        bank: Any,
        d: Array,
        dtype: DTypeLike = np.float64,
        reuse: Gram | None = None,
    ) -> Gram:
        """Return K(d) for the single-kernel solvers; `reuse` lends its memory and is lost."""
        return TiledGram(self.values, bank, d, np.dtype(dtype), reuse)

    def matrix(self, bank: MatrixBank, d: Array) -> Array:
        """K(d) on all samples, (n, n) in float64."""
        out = np.empty((bank.n, bank.n))
        fill_symmetric(bank, lambda tile: self.values(tile, d), out)
        return out

    def contract(self, bank: MatrixBank, d: Array, W: Array) -> Array:
        """sum_ij W_ij dK(d)_ij / dd_k over all samples, for every k; W is symmetric."""
        everyone = np.arange(bank.n)
        return add_tiles(
            bank,
            everyone,
            everyone,
            lambda tile, i, j: self.derivative(tile, d, W[np.ix_(i, j)]),
            np.zeros(bank.m),
            symmetric=True,
        )

    def derivative_quad(
        self, bank: Any, d: Array, alpha: Array, kernels: Array | None = None
    ) -> Array:
        """alpha'(dK/dd_k) alpha for every k, summed over the rows of alpha, from its support.

        Entries outside `kernels` (None: all) need not be computed and may be zero.
        """
        tasks = as_tasks(alpha)
        support = np.flatnonzero(tasks.any(axis=0))
        values = tasks[:, support]

        def part(tile: Tile, i: Array, j: Array) -> Array:
            return self.derivative(tile, d, values[:, i].T @ values[:, j])

        return add_tiles(bank, support, support, part, np.zeros(bank.m), symmetric=True)

    def evaluate(self, bank: Any, d: Array, alpha: Array) -> tuple[Array, Array]:
        """(K(d) alpha, alpha'(dK/dd_k) alpha), computed afresh: for the certificate."""
        tasks = as_tasks(alpha)
        support = np.flatnonzero(tasks.any(axis=0))
        values = tasks[:, support]
        fitted = np.zeros_like(tasks)

        def part(tile: Tile, i: Array, j: Array) -> Array:
            fitted[:, i] += values[:, j] @ self.values(tile, d).T
            return np.zeros(0)

        add_tiles(bank, np.arange(bank.n), support, part, np.zeros(0))
        return fitted, self.derivative_quad(bank, d, tasks)
