"""K(d) = sum_k d_k K_k, and its derivative."""

from __future__ import annotations

import numpy as np
from numpy.typing import DTypeLike

from kernelweave.combine.base import Combination
from kernelweave.combine.gram import Gram, matrix_memory
from kernelweave.compiled.dense_rows import square_block
from kernelweave.operators.base import Array, KernelOperator

__all__ = ["SumGram", "WeightedSum"]


class SumGram(Gram):
    """One combined kernel matrix, as the single-kernel solvers see it.

    Where the bank finds it cheaper (moderate n, matrices in memory) the matrix is formed once.
    Elsewhere it never is: a product is taken kernel by kernel and remembered in `parts`, so that
    K_k alpha stays known for every active kernel and the next weights need no pass of their own.

    Parameters
    ----------
    bank : KernelOperator
        The kernels.
    d : ndarray of shape (m,)
        Their weights.
    dtype : numpy dtype
        Storage of the matrix, if it is formed.
    reuse : Gram, optional
        Its memory is taken over, and what it holds if it is of the same weights.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.operators import DenseOperator
    >>> bank = DenseOperator([np.eye(2), np.ones((2, 2))])
    >>> SumGram(bank, np.array([0.5, 0.5])).product(np.array([0]), np.array([2.0]))
    array([2., 1.])
    """

    def __init__(
        self,
        bank: KernelOperator,
        d: Array,
        dtype: DTypeLike = np.float64,
        reuse: Gram | None = None,
    ) -> None:
        super().__init__(bank, d)
        self.bank = bank
        self.round_size = bank.round_size
        self._known: tuple[Array, Array] | None = None
        if isinstance(reuse, SumGram) and reuse.bank is bank and np.array_equal(reuse.d, d):
            self._known = reuse._known
            if reuse._matrix is not None and reuse._matrix.dtype == dtype:
                self._matrix = reuse._matrix
        if self._matrix is None and bank.forms_matrix:
            self._matrix = bank.weighted(d, out=matrix_memory(bank.n, np.dtype(dtype), reuse))

    def diagonal(self) -> Array:
        """Diagonal of K(d)."""
        if self._matrix is not None:
            return super().diagonal()
        return self.d[self.active] @ self.bank.diagonal(self.active)

    def block(self, idx: Array) -> Array:
        """K(d)[idx][:, idx]."""
        if self._matrix is not None:
            return super().block(idx)
        # A solver that narrows down its variables asks for parts of what it had before.
        if self._known is not None:
            known, block = self._known
            places = np.searchsorted(known, idx)
            if places[-1] < len(known) and np.array_equal(known[places], idx):
                return block if len(idx) == len(known) else square_block(block, places)
        block = self.bank.weighted(self.d, idx, idx)
        self._known = (idx, block)
        return block

    def product(self, idx: Array, delta: Array) -> Array:
        """K(d)[:, idx] @ delta."""
        if self._matrix is not None:
            return super().product(idx, delta)
        v = np.zeros(self.n)
        v[idx] = delta
        parts = self.bank.apply(v, self.active)
        self.parts = parts if self.parts is None else self.parts + parts
        return self.d[self.active] @ parts


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

    def gram(
        self,
        bank: KernelOperator,
        d: Array,
        dtype: DTypeLike = np.float64,
        reuse: Gram | None = None,
    ) -> SumGram:
        """See :class:`Combination`; from the bank's own passes."""
        return SumGram(bank, d, dtype, reuse)

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
