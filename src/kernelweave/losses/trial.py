"""A loss at many places, and the complaint when something is wrong at one of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kernelweave.errors import InvalidInputError
from kernelweave.losses.base import Array, Loss

__all__ = ["Trial", "numbers"]

# Weights that are no round numbers: rounding shall show at the ends of the domain.
_WEIGHTS = np.array([0.37, 1.0, 5.3])
# Within this distance of zero a loss must not overflow.
_NEAR = 10.0


def numbers(text: str, *arrays: Array) -> Callable[[tuple[int, int]], str]:
    """Return what says which numbers the arrays hold at a place.

    Examples
    --------
    >>> numbers("it is {:g}", np.eye(2))((0, 0))
    'it is 1'
    """
    return lambda at: text.format(*(values[at] for values in arrays))


@dataclass(frozen=True, eq=False)
class Trial:
    """A loss at many decision values.

    Attributes
    ----------
    loss : Loss
    y, z, C : ndarray of shape (rows, places)
        One row for each pair of a target and a weight, z rising in each.
    value, gradient : ndarray of shape (rows, places)
        Of the loss, there.
    finite : ndarray of shape (rows, places)
        Where both are finite; only a loss that grows like exp may overflow, far out.

    Examples
    --------
    >>> from kernelweave.losses import Squared
    >>> trial = Trial.of(Squared(), [0.5])
    >>> bool(trial.finite.all()), trial.size.shape
    (True, (3, 1))
    """

    loss: Loss
    y: Array
    z: Array
    C: Array
    value: Array
    gradient: Array
    finite: NDArray[np.bool_]

    @classmethod
    def of(cls, loss: Loss, y: ArrayLike | None) -> Trial:
        """Evaluate the loss at targets `y`, or at some that suit its task."""
        if y is None:
            default = {"classification": [-1.0, 1.0], "one_class": [1.0]}
            y = default.get(loss.task, [-2.3, -0.4, 0.0, 0.7, 3.1])
        targets = np.unique(np.asarray(y, dtype=np.float64))
        if not targets.size or not np.all(np.isfinite(targets)):
            raise InvalidInputError(f"y must hold finite numbers to check with; got {y!r}.")
        size = np.append(np.geomspace(1e-3, 1e4, 57), 1.0)
        steps = np.concatenate([-size, [0.0], size])
        rows_y, rows_C = np.repeat(targets, len(_WEIGHTS)), np.tile(_WEIGHTS, len(targets))
        z = np.sort(np.hstack([steps + 0.0 * rows_y[:, None], steps + rows_y[:, None]]), axis=1)
        Y, C = rows_y[:, None] + 0.0 * z, rows_C[:, None] + 0.0 * z
        values = {name: getattr(loss, name)(Y, z, C) for name in ("value", "gradient")}
        for name, out in values.items():
            if np.shape(out) != z.shape:
                raise InvalidInputError(
                    f"{loss!r}: the {name} of arrays of shape {z.shape} must have the same shape; "
                    f"got {np.shape(out)}."
                )
        value, gradient = values["value"], values["gradient"]
        finite = np.isfinite(value) & np.isfinite(gradient)
        trial = cls(loss, Y, z, C, value, gradient, finite)
        trial.require(
            "value and gradient must be finite",
            np.where(finite | (np.abs(z) > _NEAR), 0.0, np.inf),
            0.0,
            numbers("they are {:g} and {:g}", value, gradient),
        )
        return trial

    @property
    def size(self) -> Array:
        """Size of the gradient near zero, one number a row."""
        near = self.finite & (np.abs(self.z) <= _NEAR)
        return np.where(near, np.abs(self.gradient), 0.0).max(axis=1, keepdims=True)

    def inside(self) -> Array:
        """Alphas well inside the domain, five a row."""
        low, high = self._slopes(np.abs(self.z) <= _NEAR)
        # Where a loss is straight near zero, something happens near its target.
        there = self._slopes(np.abs(self.z - self.y) <= _NEAR)
        low, high = np.where(low < high, (low, high), there)
        return low + np.array([0.07, 0.23, 0.41, 0.68, 0.93]) * (high - low)

    def _slopes(self, near: NDArray[np.bool_]) -> tuple[Array, Array]:
        """Least and largest minus gradient of each row, of places that are near."""
        near = near & self.finite
        low = np.where(near, -self.gradient, np.inf).min(axis=1, keepdims=True)
        high = np.where(near, -self.gradient, -np.inf).max(axis=1, keepdims=True)
        return low, high

    def require(
        self,
        rule: str,
        error: Array,
        allowed: Array | float,
        found: Callable[[tuple[int, int]], str],
        variable: str = "z",
        places: Array | None = None,
        weight: float | None = None,
    ) -> None:
        """Raise if an error is larger than allowed (or no number), and say where it is worst."""
        bad = ~((error <= 0.0) | (error <= allowed))
        if not np.any(bad):
            return
        # The worst, measured by what is allowed; no number is worse than any.
        size = np.where(np.isnan(error), np.inf, error / np.maximum(allowed, 1e-300))
        row, column = np.unravel_index(int(np.argmax(np.where(bad, size, -1.0))), bad.shape)
        at = int(row), int(column)
        place = (self.z if places is None else places)[at]
        C = self.C[at[0], 0] if weight is None else weight
        raise InvalidInputError(
            f"{self.loss!r}: {rule}: at y = {self.y[at[0], 0]:g}, {variable} = {place:.6g}, "
            f"C = {C:g} {found(at)}."
        )

    def rows(self, like: Array) -> tuple[Array, Array]:
        """Targets and weights in the shape of `like`."""
        return self.y[:, :1] + 0.0 * like, self.C[:, :1] + 0.0 * like
