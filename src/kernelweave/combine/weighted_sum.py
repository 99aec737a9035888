"""K(d) = sum_k d_k K_k, and its derivative."""

from __future__ import annotations

import numpy as np

from kernelweave.bank.protocol import Array, KernelBank
from kernelweave.compiled.dense_rows import rows_product, square_block

__all__ = ["SumGram", "WeightedSum"]


class SumGram:
    """One combined kernel matrix, as the single-kernel solvers see it.

    Where the bank finds it cheaper (moderate n, matrices in memory) the matrix is formed once.
    Elsewhere it never is: a product is taken kernel by kernel and remembered in `parts`, so that
    K_k alpha stays known for every active kernel and the next weights need no pass of their own.

    Parameters
    ----------
    bank : KernelBank
        The kernels.
    d : ndarray of shape (m,)
        Their weights.
    out : ndarray of shape (n, n), optional
        Where to form the matrix, if it is formed.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.bank import DenseBank
    >>> bank = DenseBank().from_matrices([np.eye(2), np.ones((2, 2))])
    >>> SumGram(bank, np.array([0.5, 0.5])).product(np.array([0]), np.array([2.0]))
    array([2., 1.])
    """

    def __init__(self, bank: KernelBank, d: Array, out: Array | None = None) -> None:
        self.n = bank.n
        self.bank = bank
        self.d = d
        self.active = np.flatnonzero(d)
        self._matrix = bank.combine(d, out) if bank.n <= bank.matrix_limit else None
        self.parts: Array | None = None

    def diag(self) -> Array:
        """Diagonal of K(d)."""
        if self._matrix is not None:
            return self._matrix.diagonal().astype(np.float64)
        return self.d[self.active] @ self.bank.diag(self.active)

    def block(self, idx: Array) -> Array:
        """K(d)[idx][:, idx]."""
        if self._matrix is not None:
            return square_block(self._matrix, np.asarray(idx, dtype=np.int64))
        return self.bank.combine_block(self.d, idx)

    def product(self, idx: Array, delta: Array) -> Array:
        """K(d)[:, idx] @ delta."""
        if self._matrix is not None:
            return rows_product(self._matrix, np.asarray(idx, dtype=np.int64), delta)
        v = np.zeros(self.n)
        v[idx] = delta
        parts = self.bank.matvec(v, self.active)
        self.parts = parts if self.parts is None else self.parts + parts
        return self.d[self.active] @ parts

    def dense(self) -> Array | None:
        """The matrix, if it has been formed."""
        return self._matrix


class WeightedSum:
    """The combination "sum": K(d) = sum_k d_k K_k, so dK/dd_k = K_k.

    Examples
    --------
    >>> WeightedSum()
    WeightedSum()
    """

    name = "sum"

    def __repr__(self) -> str:
        return "WeightedSum()"

    def gram(self, bank: KernelBank, d: Array, out: Array | None = None) -> SumGram:
        """Return K(d) for the single-kernel solvers, in `out` if it is formed."""
        return SumGram(bank, d, out)

    def derivative_quad(self, bank: KernelBank, alpha: Array) -> Array:
        """alpha'(dK/dd_k) alpha for all k, which for a sum is q_k(alpha) = alpha'K_k alpha."""
        return bank.quad(alpha)

    def cross(self, blocks: Array, d: Array) -> Array:
        """Combine kernel blocks (m, q, s) between new and training samples into (q, s)."""
        return np.tensordot(d, blocks, axes=1)
