"""Symmetric m x m matrices, precisions and covariances: in full, or a diagonal and a few rows.

With A the precision of the kernel weights, Sigma_g = (I/s^2 + u E[ee'])^-1 follows from A without
its inverse, s being sigma_g and u the precision of the noise:

    (I/s^2 + u A^-1)^-1 = s^2 (I - (I + A / (u s^2))^-1).

Where m is far above n, A = diag + (few columns), and stays so: what a past iteration put in shrinks
by a factor of about n in each following one, and is left out when it is a hundred-millionth of
the diagonal. The bound may then fall by about a billionth of itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernelweave.arrays import Array, Index
from kernelweave.solvers.bemkl.factor import CholeskyInverse, gram, lower_times, product
from kernelweave.validation import positive_number, require_array

__all__ = ["FullMatrix", "Inverse", "Matrix", "ThinMatrix", "sum_of"]

# Largest relative change of a precision matrix by the rows left out of it.
_LEFT_OUT = 1e-8
# With more rows than this part of m the full form is faster.
_THIN_SHARE = 0.5


@dataclass(frozen=True)
class FullMatrix:
    """A symmetric matrix, all of it; its inverse costs O(m^3)."""

    matrix: Array

    @classmethod
    def identity(cls, m: int, scale: float = 1.0) -> FullMatrix:
        """Return scale * I."""
        return cls(scale * np.eye(m))

    @property
    def diagonal(self) -> Array:
        """Its diagonal."""
        return self.matrix.diagonal()

    def apply(self, X: Array) -> Array:
        """Return the matrix times X (m, p)."""
        return product(self.matrix, X)

    def take(self, chosen: Index) -> FullMatrix:
        """Return the rows and columns of some kernels."""
        return FullMatrix(self.matrix[np.ix_(chosen, chosen)])

    def inverse(self) -> tuple[CholeskyInverse, float]:
        """Return the inverse, and the log det of this matrix."""
        inverse = CholeskyInverse(self.matrix.copy())
        return inverse, inverse.log_det

    def shrunk(self, ratio: float) -> tuple[FullMatrix, float]:
        """I - (I + ratio A)^-1, A being this matrix, and log det(I + ratio A)."""
        matrix = ratio * self.matrix
        matrix[np.diag_indices_from(matrix)] += 1.0
        inverse = CholeskyInverse(matrix)
        rest = -inverse.matrix
        rest[np.diag_indices_from(rest)] += 1.0
        return FullMatrix(rest), inverse.log_det

    def scaled_less(self, scale: float, w: Array) -> FullMatrix:
        """Return scale * (this matrix) - w w'."""
        matrix = scale * self.matrix
        matrix -= np.outer(w, w)
        return FullMatrix(matrix)

    def traced_with(self, other: Inverse) -> float:
        """Return the trace of (this matrix) (the other one)."""
        return float(np.vdot(self.matrix, other.matrix))

    def check(self, m: int) -> None:
        """Raise unless this, which came from a file, is of m kernels."""
        require_array("a covariance", self.matrix, (m, m))


@dataclass(frozen=True)
class ThinMatrix:
    """diag(base) + gain plus' plus - minus' minus; its inverse costs O(m k^2) with k rows.

    The newest rows come first: what older ones add to them is small, and shows as such. Methods are
    those of :class:`FullMatrix`.
    """

    base: Array
    plus: Array
    minus: Array
    gain: float = 1.0

    @classmethod
    def identity(cls, m: int, scale: float = 1.0) -> ThinMatrix:
        return cls(np.full(m, scale), np.empty((0, m)), np.empty((0, m)))

    @property
    def matrix(self) -> Array:
        matrix = self.gain * gram(self.plus.T) - gram(self.minus.T)
        matrix[np.diag_indices_from(matrix)] += self.base
        return matrix

    @property
    def diagonal(self) -> Array:
        plus, minus = (np.einsum("ij,ij->j", rows, rows) for rows in (self.plus, self.minus))
        return self.base + self.gain * plus - minus

    def apply(self, X: Array) -> Array:
        out = self.base[:, None] * X
        for sign, rows in ((self.gain, self.plus), (-1.0, self.minus)):
            if len(rows):
                out += product(rows.T, sign * product(rows, X))
        return out

    def take(self, chosen: Index) -> ThinMatrix:
        plus, minus = self.plus[:, chosen], self.minus[:, chosen]
        return ThinMatrix(self.base[chosen], plus, minus, self.gain)

    def inverse(self) -> tuple[ThinMatrix, float]:
        """See :class:`FullMatrix`; by Woodbury's formula, twice."""
        root = np.sqrt(self.base)
        scaled = self.plus * (np.sqrt(self.gain) / root)
        inner = gram(scaled)
        inner[np.diag_indices_from(inner)] += 1.0
        found = CholeskyInverse(inner)
        log_det = float(np.log(self.base).sum()) + found.log_det
        taken = lower_times(found.root, scaled)
        taken /= root
        without = ThinMatrix(1.0 / self.base, self.minus[:0], taken)
        if not len(self.minus):
            return without, log_det
        moved = without.apply(self.minus.T)
        inner = -(self.minus @ moved)
        inner[np.diag_indices_from(inner)] += 1.0
        found = CholeskyInverse(inner)
        added = found.root @ moved.T
        return ThinMatrix(without.base, added, taken), log_det + found.log_det

    def shrunk(self, ratio: float) -> tuple[ThinMatrix, float]:
        base, minus = 1.0 + ratio * self.base, np.sqrt(ratio) * self.minus
        inverse, log_det = ThinMatrix(base, self.plus, minus, ratio * self.gain).inverse()
        base = 1.0 - inverse.base
        # I - (diag + plus' plus - minus' minus): the signs change places. Rows r stay whose r r'
        # is not negligible beside the diagonal.
        plus, minus = (
            rows[np.einsum("ij,ij,j->i", rows, rows, 1.0 / base) > _LEFT_OUT]
            for rows in (inverse.minus, inverse.plus)
        )
        return ThinMatrix(base, plus, minus), log_det

    def scaled_less(self, scale: float, w: Array) -> ThinMatrix:
        minus = np.vstack([np.sqrt(scale) * self.minus, w[None]])
        return ThinMatrix(scale * self.base, self.plus, minus, scale * self.gain)

    def traced_with(self, other: Inverse) -> float:
        total = float(other.diagonal @ self.base)
        for sign, rows in ((self.gain, self.plus), (-1.0, self.minus)):
            total += sign * float(np.vdot(rows.T, other.apply(rows.T)))
        return total

    def signed_roots(self, vectors: Array) -> list[tuple[float, Array]]:
        """(sign, Y) for vectors V (p, m): V (this matrix) V' is the sum of sign Y Y'."""
        roots = [(1.0, vectors * np.sqrt(self.base))]
        for sign, rows in ((self.gain, self.plus), (-1.0, self.minus)):
            if len(rows):
                roots.append((sign, product(vectors, rows.T)))
        return roots

    def check(self, m: int) -> None:
        require_array("the diagonal of a covariance", self.base, (m,))
        for rows in (self.plus, self.minus):
            require_array("the rows of a covariance", rows, (None, m))
        positive_number("the gain of a covariance", self.gain)


Matrix = FullMatrix | ThinMatrix
# What `inverse` returns.
Inverse = CholeskyInverse | ThinMatrix


def sum_of(omega: Array, parts: list[tuple[float, Matrix]], Z: Array) -> Matrix:
    """diag(omega) + sum of weight * matrix over `parts` + Z Z'; thin if all are and that pays."""
    thin = [(weight, part) for weight, part in parts if isinstance(part, ThinMatrix)]
    rows = [Z.T, *(np.sqrt(weight * part.gain) * part.plus for weight, part in thin)]
    if len(thin) == len(parts) and sum(map(len, rows)) <= _THIN_SHARE * len(omega):
        base = omega + sum(weight * part.base for weight, part in thin)
        minus = np.vstack([np.sqrt(weight) * part.minus for weight, part in thin])
        return ThinMatrix(base, np.vstack(rows), minus)
    matrix = gram(Z)
    for weight, part in parts:
        matrix += weight * part.matrix
    matrix[np.diag_indices_from(matrix)] += omega
    return FullMatrix(matrix)
