"""Straight lines through points on logarithmic axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["Slope", "upper_slope"]

# Points of the upper part of a range. Small problems show what a fit takes at least, not growth.
UPPER = 4
FEWEST = 3


@dataclass(frozen=True)
class Slope:
    """The exponent b of value ~ size^b, its standard error, and from how many points."""

    exponent: float
    error: float
    points: int

    def told(self) -> str:
        """Return the exponent as a table shows it."""
        return f"{self.exponent:.2f} ± {self.error:.2f}"


def upper_slope(sizes: Sequence[float], values: Sequence[float]) -> Slope | None:
    r"""Fit log(value) = a + b log(size) to the points of the four largest sizes.

    The standard error is that of least squares, :math:`\sqrt{s^2 / \sum (x - \bar x)^2}` with
    :math:`s^2` the sum of squared residuals over the number of points less two. None for fewer than
    three points, which leave nothing to tell an error from.
    """
    order = np.argsort(sizes)[-UPPER:]
    if len(order) < FEWEST:
        return None
    x, y = np.log(np.asarray(sizes, float)[order]), np.log(np.asarray(values, float)[order])
    x = x - x.mean()
    spread = float(x @ x)
    b = float(x @ y) / spread
    residuals = y - y.mean() - b * x
    variance = float(residuals @ residuals) / (len(x) - 2)
    return Slope(b, float(np.sqrt(variance / spread)), len(x))
