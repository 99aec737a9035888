"""Cholesky factors and products of large matrices, in blocks on threads.

The blocks depend on the sizes only, so that the answer has the same bits on any number of threads.
LAPACK's own triangular routines would not let two threads run at once (SciPy calls them with the
interpreter locked), so everything but the small diagonal blocks is a matrix product.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from scipy.linalg.lapack import dpotrf, dtrtri

from kernelweave.compiled.threads import map_blocks
from kernelweave.problem import Array

__all__ = ["CholeskyInverse", "gram", "lower_times", "product"]

# Up to this size LAPACK alone is as fast.
_WHOLE = 256
_BLOCK = 128
_PANEL = 256


def product(A: Array, B: Array, *, lower: bool = False) -> Array:
    """A B, with blocks of columns of B on threads; of a `lower` triangle without its zeros."""
    out = np.empty((A.shape[0], B.shape[1]))

    def work(start: int, stop: int) -> None:
        first = start if lower else 0
        np.matmul(A[:, first:], B[first:, start:stop], out=out[:, start:stop])

    map_blocks(work, B.shape[1], _BLOCK, A.size * B.shape[1])
    return out


def gram(Z: Array) -> Array:
    """Z Z', computed for one half and mirrored."""
    n = len(Z)
    out = np.empty((n, n))
    starts = range(0, n, _BLOCK)[::-1]  # The longest first, so that no thread waits at the end.

    def work(first: int, last: int) -> None:
        for start in starts[first:last]:
            stop = min(start + _BLOCK, n)
            part = Z[start:stop] @ Z[:stop].T
            out[start:stop, :stop] = part
            out[:start, start:stop] = part[:, :start].T

    map_blocks(work, len(starts), 1, n * Z.size / 2)
    return out


class CholeskyInverse:
    """A^-1 = root' root of a symmetric positive definite A = L L', with root = L^-1.

    Parameters
    ----------
    A : ndarray of shape (n, n)
        Overwritten.

    Attributes
    ----------
    root : ndarray of shape (n, n)
    log_det : float
        Of A.

    Examples
    --------
    >>> inverse = CholeskyInverse(np.array([[4.0, 2.0], [2.0, 3.0]]))
    >>> np.round(inverse.apply(np.array([8.0, 7.0])), 12)
    array([1.25, 1.5 ])
    """

    def __init__(self, A: Array) -> None:
        self.root = np.zeros_like(A)
        self.log_det = _invert_factor(A, self.root)

    def apply(self, X: Array) -> Array:
        """A^-1 X."""
        return self.root.T @ (self.root @ X)

    @property
    def diagonal(self) -> Array:
        """Diagonal of A^-1."""
        return np.einsum("ij,ij->j", self.root, self.root)

    @cached_property
    def matrix(self) -> Array:
        """A^-1 in full, where it enters a sum of matrices."""
        root, n = self.root, len(self.root)
        out = np.empty((n, n))

        def work(start: int, stop: int) -> None:
            # Rows of the root above `start` are zero in these columns.
            part = root[start:, start:stop].T @ root[start:, :stop]
            out[start:stop, :stop] = part
            out[:start, start:stop] = part[:, :start].T

        map_blocks(work, n, _BLOCK, n**3 / 3)
        return out

    def signed_roots(self, vectors: Array) -> list[tuple[float, Array]]:
        """(sign, Y) for vectors V (p, n): V A^-1 V' is the sum of sign Y Y'."""
        return [(1.0, product(vectors, self.root.T))]


def _invert_factor(A: Array, root: Array) -> float:
    """Set `root` to L^-1; returns log det A. Overwrites the lower half of `A`.

    A matrix of four blocks: L11 from the first, L21 = A21 L11^-T, L22 from what L21 leaves of A22,
    and L^-1 has the lower block -L22^-1 L21 L11^-1.
    """
    n = len(A)
    if n == 0:
        return 0.0
    if n <= _WHOLE:
        upper, info = dpotrf(A.T, lower=0)
        if info != 0:
            raise np.linalg.LinAlgError("a matrix that should be positive definite is not.")
        root[:] = dtrtri(upper, lower=0)[0].T
        return 2.0 * float(np.log(upper.diagonal()).sum())
    half = _BLOCK * round(n / (2 * _BLOCK))
    log_det = _invert_factor(A[:half, :half], root[:half, :half])
    below = lower_times(root[:half, :half], A[half:, :half].T).T
    A[half:, half:] -= gram(below)
    log_det += _invert_factor(A[half:, half:], root[half:, half:])
    below = product(below, root[:half, :half], lower=True)
    root[half:, :half] = -lower_times(root[half:, half:], below)
    return log_det


def lower_times(X: Array, B: Array) -> Array:
    """X B for a lower triangular X without its zeros, with blocks of columns of B on threads."""
    out = np.empty(B.shape)

    def work(start: int, stop: int) -> None:
        for first in range(0, len(X), _BLOCK):
            last = min(first + _BLOCK, len(X))
            out[first:last, start:stop] = X[first:last, :last] @ B[:last, start:stop]

    map_blocks(work, B.shape[1], _PANEL, len(X) * B.size / 2)
    return out
