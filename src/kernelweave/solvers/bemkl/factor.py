"""Cholesky factors and products of large matrices, in blocks on threads.

The blocks depend on the sizes only, so that the answer has the same bits on any number of threads.
LAPACK's own triangular routines would not let two threads run at once (SciPy calls them with the
interpreter locked), so everything but the small diagonal blocks is a matrix product.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg.lapack import dpotrf, dtrtri

from kernelweave.compiled.threads import map_blocks
from kernelweave.problem import Array

__all__ = ["Factor", "gram", "product"]

# Up to this size LAPACK alone is as fast.
_WHOLE = 256
_BLOCK = 128
_PANEL = 256


def product(A: Array, B: Array) -> Array:
    """A B, with blocks of columns of B on threads."""
    out = np.empty((A.shape[0], B.shape[1]))

    def work(start: int, stop: int) -> None:
        np.matmul(A, B[:, start:stop], out=out[:, start:stop])

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


class Factor:
    """The inverse of the Cholesky factor L of a symmetric positive definite matrix.

    Parameters
    ----------
    matrix : ndarray of shape (n, n)
        Overwritten.

    Attributes
    ----------
    root : ndarray of shape (n, n)
        L^-1, so that matrix^-1 = root' root.
    log_det : float
        Of the matrix.

    Examples
    --------
    >>> factor = Factor(np.array([[4.0, 2.0], [2.0, 3.0]]))
    >>> np.round(factor.solve(np.array([8.0, 7.0])), 12)
    array([1.25, 1.5 ])
    """

    def __init__(self, matrix: Array) -> None:
        self.root = np.zeros_like(matrix)
        self.log_det = _invert_factor(matrix, self.root)

    def halve(self, right: Array) -> Array:
        """L^-1 right, for many columns."""
        return _lower_times(self.root, right)

    def solve(self, right: Array) -> Array:
        """matrix^-1 right."""
        return self.root.T @ (self.root @ right)

    def inverse_diagonal(self) -> Array:
        """Diagonal of matrix^-1."""
        return np.einsum("ij,ij->j", self.root, self.root)

    def inverse(self) -> Array:
        """matrix^-1 in full, where it enters a sum of matrices."""
        root, n = self.root, len(self.root)
        out = np.empty((n, n))

        def work(start: int, stop: int) -> None:
            # Rows of the root above `start` are zero in these columns.
            part = root[start:, start:stop].T @ root[start:, :stop]
            out[start:stop, :stop] = part
            out[:start, start:stop] = part[:, :start].T

        map_blocks(work, n, _BLOCK, n**3 / 3)
        return out


def _invert_factor(matrix: Array, root: Array) -> float:
    """Set `root` to L^-1; returns log det L L'. Overwrites the lower half of `matrix`.

    A matrix of four blocks: L11 from the first, L21 = A21 L11^-T, L22 from what L21 leaves of A22,
    and L^-1 has the lower block -L22^-1 L21 L11^-1.
    """
    n = len(matrix)
    if n == 0:
        return 0.0
    if n <= _WHOLE:
        upper, info = dpotrf(matrix.T, lower=0)
        if info != 0:
            raise np.linalg.LinAlgError("a matrix that should be positive definite is not.")
        root[:] = dtrtri(upper, lower=0)[0].T
        return 2.0 * float(np.log(upper.diagonal()).sum())
    half = _BLOCK * round(n / (2 * _BLOCK))
    log_det = _invert_factor(matrix[:half, :half], root[:half, :half])
    below = _times_lower_transposed(matrix[half:, :half], root[:half, :half])
    _take_gram(matrix[half:, half:], below)
    log_det += _invert_factor(matrix[half:, half:], root[half:, half:])
    below = _times_lower(below, root[:half, :half])
    root[half:, :half] = -_lower_times(root[half:, half:], below)
    return log_det


# Products with a lower triangular X leave out the blocks that are zero.


def _lower_times(X: Array, B: Array) -> Array:
    """X B, with blocks of columns of B on threads."""
    out = np.empty(B.shape)

    def work(start: int, stop: int) -> None:
        for first in range(0, len(X), _BLOCK):
            last = min(first + _BLOCK, len(X))
            out[first:last, start:stop] = X[first:last, :last] @ B[:last, start:stop]

    map_blocks(work, B.shape[1], _PANEL, len(X) * B.size / 2)
    return out


def _times_lower(B: Array, X: Array) -> Array:
    """B X, with blocks of columns of X on threads."""
    out = np.empty(B.shape)

    def work(start: int, stop: int) -> None:
        out[:, start:stop] = B[:, start:] @ X[start:, start:stop]

    map_blocks(work, len(X), _BLOCK, len(X) * B.size / 2)
    return out


def _times_lower_transposed(B: Array, X: Array) -> Array:
    """B X', with blocks of rows of B on threads."""
    out = np.empty(B.shape)

    def work(start: int, stop: int) -> None:
        for first in range(0, len(X), _BLOCK):
            last = min(first + _BLOCK, len(X))
            out[start:stop, first:last] = B[start:stop, :last] @ X[first:last, :last].T

    map_blocks(work, len(B), _PANEL, len(X) * B.size / 2)
    return out


def _take_gram(matrix: Array, Z: Array) -> None:
    """Take Z Z' from the lower half of `matrix`."""
    n = len(Z)
    starts = range(0, n, _BLOCK)[::-1]

    def work(first: int, last: int) -> None:
        for start in starts[first:last]:
            stop = min(start + _BLOCK, n)
            matrix[start:stop, :stop] -= Z[start:stop] @ Z[:stop].T

    map_blocks(work, len(starts), 1, n * Z.size / 2)
