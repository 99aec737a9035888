"""Gaussian kernels."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelweave.compiled.exp import exp_inplace
from kernelweave.errors import InvalidInputError
from kernelweave.kernels.base import ElementwiseForm, Kernel
from kernelweave.kernels.pair import Pair
from kernelweave.kernels.samples import Samples
from kernelweave.validation import positive_number

__all__ = ["RBF"]

# Every squaring doubles the relative error: 12 of them keep it below 4096 * 2.3e-16 < 1e-12.
_MAX_DOUBLINGS = 12


class RBF(Kernel):
    r"""Gaussian (radial basis function) kernel.

    .. math:: k(x, x') = \exp(-\gamma \|x - x'\|^2) = \exp\Big(-\frac{\|x - x'\|^2}{2 s^2}\Big)

    Parameters
    ----------
    gamma : float, optional
        Inverse squared scale. Give either `gamma` or `width`.
    width : float, optional
        Width s of the Gaussian, ``gamma = 1 / (2 width**2)``.

    Examples
    --------
    >>> RBF(width=1)([[0.0], [2.0]]).round(4)
    array([[1.    , 0.1353],
           [0.1353, 1.    ]])
    >>> RBF(gamma=0.5).name, RBF(width=1).name
    ('rbf(gamma=0.5)', 'rbf(width=1)')
    """

    def __init__(self, gamma: float | None = None, *, width: float | None = None) -> None:
        self.gamma = gamma
        self.width = width

    @property
    def name(self) -> str:
        given = {"gamma": self.gamma, "width": self.width}
        shown = ", ".join(f"{key}={value:g}" for key, value in given.items() if value is not None)
        return f"rbf({shown})"

    @property
    def rate(self) -> float:
        """The factor of the squared distance, however it was given."""
        if (self.gamma is None) == (self.width is None):
            raise InvalidInputError(
                f"RBF needs exactly one of gamma and width; got gamma={self.gamma!r} and "
                f"width={self.width!r}. Write RBF(gamma=0.1) or RBF(width=2)."
            )
        if self.gamma is not None:
            return positive_number("gamma of RBF", self.gamma)
        width = positive_number("width of RBF", self.width)
        return 0.5 / (width * width)

    @property
    def order(self) -> float:
        return self.rate

    def bind(self, samples: Samples) -> RBF:
        if not math.isfinite(self.rate):
            raise InvalidInputError(f"width={self.width!r} of RBF is too small to be squared.")
        return self

    def evaluate(self, pair: Pair) -> NDArray[Any]:
        if pair.dtype != np.float64:
            out = pair.sqdist.copy()
            # An infinite factor times a zero distance would not be a number.
            exp_inplace(out, -min(self.rate, float(np.finfo(pair.dtype).max)))
            return out
        return _exponentials(pair, self.rate)

    def diagonal(self, samples: Samples) -> NDArray[np.float64]:
        return np.ones(samples.n)

    def form(self) -> ElementwiseForm:
        return ElementwiseForm("sqdist", 0, self.rate)

    @classmethod
    def examples(cls) -> list[Kernel]:
        return [cls(gamma=0.5), cls(width=0.25), cls(width=3.0)]


def _exponentials(pair: Pair, rate: float) -> NDArray[Any]:
    """exp(-rate * sqdist), by squaring a wider Gaussian of the same pair where one is known."""
    known: dict[float, tuple[int, NDArray[Any]]] = pair.memo.setdefault("exponentials", {})
    if rate in known:
        return known[rate][1]
    nearest: float | None = None
    for other, (depth, _) in known.items():
        doublings = _doublings(rate, other)
        if doublings and depth + doublings <= _MAX_DOUBLINGS:
            nearest = other if nearest is None else max(nearest, other)
    if nearest is None:
        out = pair.sqdist.copy()
        exp_inplace(out, -rate)
        known[rate] = (0, out)
        return out
    doublings = _doublings(rate, nearest)
    depth, values = known[nearest]
    out = values * values
    for _ in range(doublings - 1):
        out *= out
    known[rate] = (depth + doublings, out)
    return out


def _doublings(rate: float, other: float) -> int:
    """The k with rate = 2^k other exactly, or 0 if there is none above 0."""
    mantissa, exponent = math.frexp(rate / other)
    return (
        exponent - 1 if mantissa == 0.5 and exponent > 1 and other * (rate / other) == rate else 0
    )
