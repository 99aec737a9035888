"""Symmetric matrices, precisions and covariances: in full, or a diagonal and a few rows.

With A the precision of the kernel weights, Sigma_g = (I/s^2 + u E[ee'])^-1 follows from A without
its inverse, s being sigma_g and u the precision of the noise:

    (I/s^2 + u A^-1)^-1 = s^2 (I - (I + A / (u s^2))^-1).

Where m is far above n, A = diag + (few columns), and stays so: what a past iteration put in shrinks
by a factor of about n in each following one, and is left out when it is a hundred-millionth of
the diagonal. The bound may then fall by about a billionth of itself.

Products and Cholesky factors are computed in blocks on threads. The blocks depend on the sizes
only, so that the answer has the same bits on any number of threads. LAPACK's own triangular
routines would not let two threads run at once (SciPy calls them with the interpreter locked), so
everything but the small diagonal blocks is a matrix product.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg.lapack import dpotrf, dtrtri

from kernelweave.arrays import Array, Index
from kernelweave.compiled.threads import map_blocks
from kernelweave.linear_systems import SquareSum
from kernelweave.validation import require_array

# Largest relative change of a precision matrix by the rows left out of it.
_LEFT_OUT = 1e-8
# With more rows than this part of m the full form is faster.
_THIN_SHARE = 0.5
# Columns that a thread takes at a time: a square block of so many is 128 kB, in the second-level
# cache of a core. Triangles are cut into such blocks too, and so their panels are twice as wide.
_BLOCK, _PANEL = 128, 256


def _product(A: Array, B: Array, *, lower: bool = False) -> Array:
    """A B, with blocks of columns of B on threads; of a `lower` triangle B without its zeros."""
    out = np.empty((A.shape[0], B.shape[1]))

    def work(start: int, stop: int) -> None:
        first = start if lower else 0
        np.matmul(A[:, first:], B[first:, start:stop], out=out[:, start:stop])

    map_blocks(work, B.shape[1], _BLOCK, A.size * B.shape[1])
    return out


def _lower_times(X: Array, B: Array) -> Array:
    """X B for a lower triangular X without its zeros, with blocks of columns of B on threads."""
    out = np.empty(B.shape)

    def work(start: int, stop: int) -> None:
        for first in range(0, len(X), _BLOCK):
            last = min(first + _BLOCK, len(X))
            out[first:last, start:stop] = X[first:last, :last] @ B[:last, start:stop]

    map_blocks(work, B.shape[1], _PANEL, len(X) * B.size / 2)
    return out


def _gram(Z: Array) -> Array:
    """Z Z', computed for one half and mirrored."""
    squares = SquareSum(len(Z))
    squares.add(Z.T, Z.T)
    return squares.total()


def _shifted(matrix: Array, shift: Array | float) -> Array:
    """Add to the diagonal of a matrix, in place."""
    matrix[np.diag_indices_from(matrix)] += shift
    return matrix


def cholesky_inverse(A: Array) -> tuple[ThinMatrix, float]:
    """A^-1 = root' root of a symmetric positive definite A = L L', root = L^-1, and log det A.

    A is overwritten.
    """
    root = np.zeros_like(A)
    log_det = _invert_factor(A, root)
    return ThinMatrix.of_rows(root), log_det


def square_of(root: Array) -> Array:
    """root' root for a lower triangular root, without its zeros."""
    n = len(root)
    out = np.empty((n, n))

    def work(start: int, stop: int) -> None:
        # Rows of the root above `start` are zero in these columns.
        part = root[start:, start:stop].T @ root[start:, :stop]
        out[start:stop, :stop] = part
        out[:start, start:stop] = part[:, :start].T

    map_blocks(work, n, _BLOCK, n**3 / 3)
    return out


def _invert_factor(A: Array, root: Array) -> float:
    """Set `root` to L^-1; returns log det A. Overwrites the lower half of `A`.

    A matrix of four blocks: L11 from the first, L21 = A21 L11^-T, L22 from what L21 leaves of A22,
    and L^-1 has the lower block -L22^-1 L21 L11^-1.
    """
    n = len(A)
    if n == 0:
        return 0.0
    if n <= _PANEL:
        upper, info = dpotrf(A.T, lower=0)
        if info != 0:
            raise np.linalg.LinAlgError("a matrix that should be positive definite is not.")
        root[:] = dtrtri(upper, lower=0)[0].T
        return 2.0 * float(np.log(upper.diagonal()).sum())
    half = _BLOCK * round(n / (2 * _BLOCK))
    log_det = _invert_factor(A[:half, :half], root[:half, :half])
    below = _lower_times(root[:half, :half], A[half:, :half].T).T
    A[half:, half:] -= _gram(below)
    log_det += _invert_factor(A[half:, half:], root[half:, half:])
    below = _product(below, root[:half, :half], lower=True)
    root[half:, :half] = -_lower_times(root[half:, half:], below)
    return log_det


@dataclass(frozen=True)
class FullMatrix:
    """A symmetric matrix, all of it; its inverse costs O(m^3)."""

    matrix: Array

    @property
    def diagonal(self) -> Array:
        """Its diagonal."""
        return self.matrix.diagonal()

    def apply(self, X: Array) -> Array:
        """Return the matrix times X (m, p)."""
        return _product(self.matrix, X)

    def take(self, chosen: Index) -> FullMatrix:
        """Return the rows and columns of some kernels."""
        return FullMatrix(self.matrix[np.ix_(chosen, chosen)])

    def inverse(self, shift: Array | float = 0.0, scale: float = 1.0) -> tuple[ThinMatrix, float]:
        """Return (diag(shift) + scale A)^-1, A being this matrix, and log det of its inverse."""
        return cholesky_inverse(_shifted(scale * self.matrix, shift))

    def shrunk(self, ratio: float) -> tuple[FullMatrix, float]:
        """I - (I + ratio A)^-1, A being this matrix, and log det(I + ratio A)."""
        inverse, log_det = self.inverse(1.0, ratio)
        return FullMatrix(_shifted(-square_of(inverse.plus), 1.0)), log_det

    def scaled_less(self, scale: float, w: Array) -> FullMatrix:
        """Return scale * (this matrix) - w w'."""
        matrix = scale * self.matrix
        matrix -= np.outer(w, w)
        return FullMatrix(matrix)

    def check(self, what: str, m: int) -> None:
        """Raise unless this, which came from a file, is of m kernels or samples."""
        require_array(what, self.matrix, (m, m))

    def __setstate__(self, state: dict[str, Any]) -> None:
        # Older files have sums of squared kernels under a name of their own.
        self.__dict__.update(matrix=state["matrix"] if "matrix" in state else state["_matrix"])


@dataclass(frozen=True)
class ThinMatrix:
    """diag(base) + plus' plus - minus' minus; its inverse costs O(m k^2) with k rows.

    The newest rows come first: what older ones add to them is small, and shows as such. Methods are
    those of :class:`FullMatrix`.
    """

    base: Array
    plus: Array
    minus: Array

    @classmethod
    def of_rows(cls, rows: Array) -> ThinMatrix:
        """Return rows' rows."""
        return cls(np.zeros(rows.shape[1]), rows, rows[:0])

    def _signed_rows(self) -> list[tuple[float, Array]]:
        pairs = (1.0, self.plus), (-1.0, self.minus)
        return [(sign, rows) for sign, rows in pairs if len(rows)]

    @property
    def matrix(self) -> Array:
        return _shifted(_gram(self.plus.T) - _gram(self.minus.T), self.base)

    @property
    def diagonal(self) -> Array:
        out = self.base.copy()
        for sign, rows in self._signed_rows():
            out += sign * np.einsum("ij,ij->j", rows, rows)
        return out

    def apply(self, X: Array) -> Array:
        out = self.base[:, None] * X
        for sign, rows in self._signed_rows():
            out += _product(rows.T, sign * _product(rows, X))
        return out

    def take(self, chosen: Index) -> ThinMatrix:
        return ThinMatrix(self.base[chosen], self.plus[:, chosen], self.minus[:, chosen])

    def inverse(self, shift: Array | float = 0.0, scale: float = 1.0) -> tuple[ThinMatrix, float]:
        """By Woodbury's formula, twice."""
        base = shift + scale * self.base
        root = np.sqrt(base)
        scaled = self.plus * (np.sqrt(scale) / root)
        found, log_det = cholesky_inverse(_shifted(_gram(scaled), 1.0))
        log_det += float(np.log(base).sum())
        taken = _lower_times(found.plus, scaled)
        taken /= root
        without = ThinMatrix(1.0 / base, self.minus[:0], taken)
        if not len(self.minus):
            return without, log_det
        minus = np.sqrt(scale) * self.minus
        moved = without.apply(minus.T)
        found, log_det_minus = cholesky_inverse(_shifted(-(minus @ moved), 1.0))
        return ThinMatrix(without.base, found.plus @ moved.T, taken), log_det + log_det_minus

    def shrunk(self, ratio: float) -> tuple[ThinMatrix, float]:
        inverse, log_det = self.inverse(1.0, ratio)
        base = 1.0 - inverse.base
        # I - (diag + plus' plus - minus' minus): the signs change places. Rows r stay whose r r'
        # is not negligible beside the diagonal.
        plus, minus = (
            rows[np.einsum("ij,ij,j->i", rows, rows, 1.0 / base) > _LEFT_OUT]
            for rows in (inverse.minus, inverse.plus)
        )
        return ThinMatrix(base, plus, minus), log_det

    def scaled_less(self, scale: float, w: Array) -> ThinMatrix:
        root = np.sqrt(scale)
        minus = np.vstack([root * self.minus, w[None]])
        return ThinMatrix(scale * self.base, root * self.plus, minus)

    def signed_roots(self, vectors: Array) -> list[tuple[float, Array]]:
        """(sign, Y) for vectors V (p, m): V A V' is the sum of sign Y Y', A being this matrix."""
        roots = [(1.0, vectors * np.sqrt(self.base))] if self.base.any() else []
        return roots + [(s, _product(vectors, rows.T)) for s, rows in self._signed_rows()]

    def check(self, what: str, m: int) -> None:
        require_array(f"the diagonal of {what}", self.base, (m,))
        for rows in (self.plus, self.minus):
            require_array(f"the rows of {what}", rows, (None, m))

    def __setstate__(self, state: dict[str, Any]) -> None:
        # Older files have sums of squared kernels by the rows alone, and a factor of one elsewhere.
        rows = state.get("_thin")
        known = state if rows is None else vars(ThinMatrix.of_rows(rows))
        self.__dict__.update({name: known[name] for name in ("base", "plus", "minus")})


Matrix = FullMatrix | ThinMatrix


def identity(m: int, thin: bool, scale: float = 1.0) -> Matrix:
    """Return scale * I, in the form asked for."""
    if thin:
        return ThinMatrix(np.full(m, scale), np.empty((0, m)), np.empty((0, m)))
    return FullMatrix(scale * np.eye(m))


def sum_of(omega: Array, parts: list[tuple[float, Matrix]], Z: Array) -> Matrix:
    """diag(omega) + sum of weight * matrix over `parts` + Z Z'; thin if all are and that pays."""
    thin = [(weight, part) for weight, part in parts if isinstance(part, ThinMatrix)]
    rows = [Z.T, *(np.sqrt(weight) * part.plus for weight, part in thin)]
    if len(thin) == len(parts) and sum(map(len, rows)) <= _THIN_SHARE * len(omega):
        base = omega + sum(weight * part.base for weight, part in thin)
        minus = np.vstack([np.sqrt(weight) * part.minus for weight, part in thin])
        return ThinMatrix(base, np.vstack(rows), minus)
    matrix = _gram(Z)
    for weight, part in parts:
        matrix += weight * part.matrix
    return FullMatrix(_shifted(matrix, omega))
