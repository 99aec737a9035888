"""The m x m matrices of q(G) and q(b, e): in full, or as a diagonal and a few columns.

With A the precision of the kernel weights, Sigma_g = (I/s^2 + u E[ee'])^-1 follows from A without
its inverse, s being sigma_g and u the precision of the noise:

    (I/s^2 + u A^-1)^-1 = s^2 (I - (I + A / (u s^2))^-1).

Where m is far above n, A = diag + (few columns), and stays so: what a past iteration put in shrinks
by a factor of about n in each following one, and is left out when it is a hundred-millionth of
the diagonal. The bound may then fall by about a billionth of itself.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np

from kernelweave.problem import Array
from kernelweave.solvers.bemkl.factor import Factor, gram, product
from kernelweave.solvers.watch import Numbers
from kernelweave.validation import positive_number, require_array

__all__ = [
    "FullCovariance",
    "FullPrecision",
    "Precision",
    "ThinCovariance",
    "ThinPrecision",
    "restored",
]

# Largest relative change of a precision matrix by the columns left out of it.
_LEFT_OUT = 1e-8
# With more columns than this part of m the full form is faster.
_THIN_SHARE = 0.5


class Covariance(ABC):
    """A symmetric m x m matrix that is applied, not looked into."""

    @classmethod
    @abstractmethod
    def identity(cls, m: int, scale: float) -> Covariance:
        """Return scale * I."""

    @property
    @abstractmethod
    def diagonal(self) -> Array:
        """Its diagonal."""

    @abstractmethod
    def apply(self, X: Array) -> Array:
        """Return the matrix times X (m, p)."""

    @abstractmethod
    def take(self, chosen: Array) -> Covariance:
        """Return the rows and columns of some kernels."""

    @abstractmethod
    def scaled_less(self, scale: float, w: Array) -> Covariance:
        """Return scale * (this matrix) - w w'."""

    @abstractmethod
    def check(self, m: int) -> None:
        """Raise unless this, which came from a file, is of m kernels."""


@dataclass(frozen=True)
class FullCovariance(Covariance):
    """A symmetric matrix, all of it."""

    matrix: Array

    @classmethod
    def identity(cls, m: int, scale: float) -> FullCovariance:
        return cls(scale * np.eye(m))

    @property
    def diagonal(self) -> Array:
        return self.matrix.diagonal()

    def apply(self, X: Array) -> Array:
        return product(self.matrix, X)

    def take(self, chosen: Array) -> FullCovariance:
        return FullCovariance(self.matrix[np.ix_(chosen, chosen)])

    def scaled_less(self, scale: float, w: Array) -> FullCovariance:
        matrix = scale * self.matrix
        matrix -= np.outer(w, w)
        return FullCovariance(matrix)

    def check(self, m: int) -> None:
        require_array("a covariance", self.matrix, (m, m))


@dataclass(frozen=True)
class ThinCovariance(Covariance):
    """diag(base) + gain plus' plus - minus' minus, with few rows in `plus` and `minus`."""

    base: Array
    plus: Array
    minus: Array
    gain: float = 1.0

    @classmethod
    def identity(cls, m: int, scale: float) -> ThinCovariance:
        return cls(np.full(m, scale), np.empty((0, m)), np.empty((0, m)))

    @property
    def matrix(self) -> Array:
        """All of it."""
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

    def take(self, chosen: Array) -> ThinCovariance:
        plus, minus = self.plus[:, chosen], self.minus[:, chosen]
        return ThinCovariance(self.base[chosen], plus, minus, self.gain)

    def scaled_less(self, scale: float, w: Array) -> ThinCovariance:
        minus = np.vstack([np.sqrt(scale) * self.minus, w[None]])
        return ThinCovariance(scale * self.base, self.plus, minus, scale * self.gain)

    def check(self, m: int) -> None:
        require_array("the diagonal of a covariance", self.base, (m,))
        for rows in (self.plus, self.minus):
            require_array("the rows of a covariance", rows, (None, m))
        positive_number("the gain of a covariance", self.gain)


Kind = TypeVar("Kind", bound=Covariance)


class Precision(ABC, Generic[Kind]):
    """A, the precision matrix of the kernel weights (intercepts integrated out)."""

    log_det: float

    @abstractmethod
    def solve(self, right: Array) -> Array:
        """A^-1 right."""

    @abstractmethod
    def covariance(self) -> Kind:
        """A^-1."""

    @abstractmethod
    def inverse_diagonal(self) -> Array:
        """Diagonal of A^-1."""

    @abstractmethod
    def shrunk(self, ratio: float) -> tuple[Kind, float]:
        """I - (I + ratio A)^-1, and log det(I + ratio A)."""

    @abstractmethod
    def traced_with(self, covariance: Kind) -> float:
        """tr(A^-1 covariance)."""

    @abstractmethod
    def next(self, omega: Array, parts: list[tuple[float, Kind]], Z: Array) -> Precision[Any]:
        """diag(omega) + sum of weight * covariance over `parts` + Z Z'."""

    @abstractmethod
    def numbers(self) -> dict[str, Array]:
        """Return what :func:`restored` makes the same matrix of."""


class FullPrecision(Precision[FullCovariance | ThinCovariance]):
    """A in full; costs O(m^3). Covariances may be thin: those of before A was formed in full."""

    def __init__(self, matrix: Array) -> None:
        self._matrix = matrix
        self._factor = Factor(matrix.copy())
        self._inverse: FullCovariance | None = None
        self.log_det = self._factor.log_det

    @classmethod
    def identity(cls, m: int) -> FullPrecision:
        """Return that of the start."""
        return cls(np.eye(m))

    def solve(self, right: Array) -> Array:
        return self._factor.solve(right)

    def covariance(self) -> FullCovariance:
        if self._inverse is None:
            self._inverse = FullCovariance(self._factor.inverse())
        return self._inverse

    def inverse_diagonal(self) -> Array:
        return self._factor.inverse_diagonal()

    def shrunk(self, ratio: float) -> tuple[FullCovariance, float]:
        matrix = ratio * self._matrix
        matrix[np.diag_indices_from(matrix)] += 1.0
        factor = Factor(matrix)
        rest = factor.inverse()
        np.negative(rest, out=rest)
        rest[np.diag_indices_from(rest)] += 1.0
        return FullCovariance(rest), factor.log_det

    def traced_with(self, covariance: FullCovariance | ThinCovariance) -> float:
        return float(np.vdot(self.covariance().matrix, covariance.matrix))

    def next(
        self, omega: Array, parts: list[tuple[float, FullCovariance | ThinCovariance]], Z: Array
    ) -> FullPrecision:
        matrix = gram(Z)
        for weight, part in parts:
            matrix += weight * part.matrix
        matrix[np.diag_indices_from(matrix)] += omega
        return FullPrecision(matrix)

    def numbers(self) -> dict[str, Array]:
        return {"matrix": self._matrix}


class ThinPrecision(Precision[ThinCovariance]):
    """A = diag(base) + plus' plus - minus' minus; costs O(m k^2) with k rows in `plus`.

    The newest rows come first: what older ones add to them is small, and shows as such.
    """

    def __init__(self, base: Array, plus: Array, minus: Array) -> None:
        self._base, self._plus, self._minus = base, plus, minus
        self._inverse, self.log_det = _inverse(base, plus, minus)

    @classmethod
    def identity(cls, m: int) -> ThinPrecision:
        """Return that of the start."""
        return cls(np.ones(m), np.empty((0, m)), np.empty((0, m)))

    def solve(self, right: Array) -> Array:
        return self._inverse.apply(right)

    def covariance(self) -> ThinCovariance:
        return self._inverse

    def inverse_diagonal(self) -> Array:
        return self._inverse.diagonal

    def shrunk(self, ratio: float) -> tuple[ThinCovariance, float]:
        inverse, log_det = _inverse(
            1.0 + ratio * self._base, self._plus, np.sqrt(ratio) * self._minus, ratio
        )
        base = 1.0 - inverse.base
        # (I + ratio A)^-1 = diag + plus' plus - minus' minus: the signs change places.
        plus, minus = _that_count(inverse.minus, base), _that_count(inverse.plus, base)
        return ThinCovariance(base, plus, minus), log_det

    def traced_with(self, covariance: ThinCovariance) -> float:
        total = float(self.inverse_diagonal() @ covariance.base)
        for sign, rows in ((covariance.gain, covariance.plus), (-1.0, covariance.minus)):
            total += sign * float(np.vdot(rows.T, self.solve(rows.T)))
        return total

    def next(
        self, omega: Array, parts: list[tuple[float, ThinCovariance]], Z: Array
    ) -> ThinPrecision | FullPrecision:
        """See :class:`Precision`; in full from the moment when thin saves nothing."""
        base = omega.copy()
        plus = np.empty((Z.shape[1] + sum(len(part.plus) for _, part in parts), len(Z)))
        plus[: Z.shape[1]] = Z.T
        first = Z.shape[1]
        for weight, part in parts:
            base += weight * part.base
            last = first + len(part.plus)
            np.multiply(part.plus, np.sqrt(weight * part.gain), out=plus[first:last])
            first = last
        minus = np.vstack([np.sqrt(weight) * part.minus for weight, part in parts])
        if len(plus) <= _THIN_SHARE * len(omega):
            return ThinPrecision(base, plus, minus)
        return FullPrecision(ThinCovariance(base, plus, minus).matrix)

    def numbers(self) -> dict[str, Array]:
        return {"base": self._base, "plus": self._plus, "minus": self._minus}


def restored(numbers: Numbers) -> Precision[Any]:
    """Return the precision matrix that :meth:`Precision.numbers` was taken of."""
    if "matrix" in numbers:
        return FullPrecision(numbers["matrix"])
    return ThinPrecision(numbers["base"], numbers["plus"], numbers["minus"])


def _that_count(rows: Array, base: Array) -> Array:
    """Return the rows r whose r r' is not negligible beside diag(base)."""
    return rows[np.einsum("ij,ij,j->i", rows, rows, 1.0 / base) > _LEFT_OUT]


def _inverse(
    base: Array, plus: Array, minus: Array, gain: float = 1.0
) -> tuple[ThinCovariance, float]:
    """Inverse and log det of diag(base) + gain plus' plus - minus' minus (Woodbury, twice)."""
    root = np.sqrt(base)
    scaled = plus * (np.sqrt(gain) / root)
    inner = gram(scaled)
    inner[np.diag_indices_from(inner)] += 1.0
    factor = Factor(inner)
    log_det = float(np.log(base).sum()) + factor.log_det
    taken = factor.halve(scaled)
    taken /= root
    without = ThinCovariance(1.0 / base, minus[:0], taken)
    if not len(minus):
        return without, log_det
    moved = without.apply(minus.T)
    inner = -(minus @ moved)
    inner[np.diag_indices_from(inner)] += 1.0
    factor = Factor(inner)
    added = factor.root @ moved.T
    return ThinCovariance(without.base, added, taken), log_det + factor.log_det
