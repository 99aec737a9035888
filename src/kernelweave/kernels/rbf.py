"""Gaussian kernels."""

from __future__ import annotations

from functools import cached_property
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
_POWERS = {2.0**k: k for k in range(1, _MAX_DOUBLINGS + 1)}


class RBF(Kernel):
    r"""Gaussian (radial basis function) kernel.

    .. math:: k(x, x') = \exp(-\gamma \|x - x'\|^2) = \exp\Big(-\frac{\|x - x'\|^2}{2 s^2}\Big)

    Parameters
    ----------
    gamma : float, optional
        Inverse squared scale. Give either `gamma` or `width`.
    width : float, optional
        Width s of the Gaussian, ``gamma = 1 / (2 width**2)``.
    name : str, optional
        What to call it in outputs; its width by default.

    Examples
    --------
    >>> RBF(width=1)([[0.0], [2.0]]).round(4)
    array([[1.    , 0.1353],
           [0.1353, 1.    ]])
    >>> RBF(gamma=0.5).name, RBF(width=1).name
    ('rbf(gamma=0.5)', 'rbf(width=1)')
    """

    def __init__(
        self, gamma: float | None = None, *, width: float | None = None, name: str | None = None
    ) -> None:
        self.gamma = gamma
        self.width = width
        self._name = name

    @property
    def name(self) -> str:
        if self._name is not None:
            return str(self._name)
        given = {"gamma": self.gamma, "width": self.width}
        shown = ", ".join(f"{key}={value:g}" for key, value in given.items() if value is not None)
        return f"rbf({shown})"

    @cached_property
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
        if not 1e-150 < width < 1e150:
            raise InvalidInputError(
                f"width of RBF must be between 1e-150 and 1e150; got {self.width!r}."
            )
        return 0.5 / (width * width)

    @property
    def order(self) -> float:
        return self.rate

    def bind(self, samples: Samples) -> RBF:
        self._after_load()
        return self

    def _after_load(self) -> None:
        _ = self.rate
        super()._after_load()

    def evaluate(self, pair: Pair) -> NDArray[Any]:
        known = _known(pair).get(self.rate)
        if known is not None:
            return known[1]
        out = np.empty(pair.shape, dtype=pair.dtype)
        self.evaluate_into(pair, out)
        return out

    def evaluate_into(self, pair: Pair, out: NDArray[Any]) -> None:
        rate = self.rate
        known = _known(pair)
        wider = _wider(known, rate) if pair.dtype == np.float64 else None
        if wider is None:
            depth = 0
            np.copyto(out, pair.sqdist)
            exp_inplace(out, -_finite_rate(rate, pair))
        else:
            depth, values = known[wider]
            doublings = _doublings(rate, wider)
            np.multiply(values, values, out=out)
            for _ in range(doublings - 1):
                out *= out
            depth += doublings
        known[rate] = (depth, out)

    def diagonal(self, samples: Samples) -> NDArray[np.float64]:
        return np.ones(samples.n)

    @property
    def has_exponent(self) -> bool:
        return True

    def exponent(self, pair: Pair) -> NDArray[Any]:
        return pair.sqdist * _finite_rate(self.rate, pair)

    def form(self) -> ElementwiseForm:
        return ElementwiseForm("sqdist", 0, self.rate)

    def _parameters(self) -> dict[str, Any]:
        return {"gamma": self.gamma, "width": self.width, "name": self._name}

    @classmethod
    def examples(cls) -> list[Kernel]:
        return [cls(gamma=0.5), cls(width=0.25), cls(width=3.0)]


def _finite_rate(rate: float, pair: Pair) -> float:
    # An infinite factor times a zero distance would not be a number.
    return min(rate, float(np.finfo(pair.dtype).max))


def _known(pair: Pair) -> dict[float, tuple[int, NDArray[Any]]]:
    """The Gaussians of a pair computed so far: by rate, how many squarings deep, and the values."""
    return pair.memo.setdefault("gaussians", {})


def _wider(known: dict[float, tuple[int, NDArray[Any]]], rate: float) -> float | None:
    """The nearest known rate from which repeated squaring leads to `rate`, if any."""
    usable = [
        other
        for other, (depth, _) in known.items()
        if (doublings := _doublings(rate, other)) and depth + doublings <= _MAX_DOUBLINGS
    ]
    return max(usable, default=None)


def _doublings(rate: float, other: float) -> int:
    """The k >= 1 with rate = 2^k other exactly, or 0 if there is none."""
    ratio = rate / other
    return _POWERS.get(ratio, 0) if other * ratio == rate else 0
