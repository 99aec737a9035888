"""Kernels on rows of numbers: functions of their distance or inner product, and feature maps."""

from __future__ import annotations

from abc import abstractmethod
from numbers import Integral

import numpy as np

from kernelweave.arrays import Array
from kernelweave.cached import cached_property
from kernelweave.errors import InvalidInputError
from kernelweave.kernels.base import Elementwise, ElementwiseForm, Kernel
from kernelweave.kernels.evaluate import Pair
from kernelweave.kernels.samples import Samples, row_square_norms
from kernelweave.validation import positive_number


class RBF(Elementwise):
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
    def _form(self) -> ElementwiseForm:
        if (self.gamma is None) == (self.width is None):
            raise InvalidInputError(
                f"RBF needs exactly one of gamma and width; got gamma={self.gamma!r} and "
                f"width={self.width!r}. Write RBF(gamma=0.1) or RBF(width=2)."
            )
        if self.gamma is not None:
            return ElementwiseForm("sqdist", 0, positive_number("gamma of RBF", self.gamma))
        width = positive_number("width of RBF", self.width)
        if not 1e-150 < width < 1e150:
            raise InvalidInputError(
                f"width of RBF must be between 1e-150 and 1e150; got {self.width!r}."
            )
        return ElementwiseForm("sqdist", 0, 0.5 / (width * width))

    def exponent(self, pair: Pair) -> Array:
        return pair.sqdist * pair.finite_rate(self.form().p0)

    @classmethod
    def examples(cls) -> list[Kernel]:
        return [cls(gamma=0.5), cls(width=0.25), cls(width=3.0)]


class Linear(Elementwise):
    r"""Linear kernel, the inner product of the rows.

    .. math:: k(x, x') = x^\top x'

    Examples
    --------
    >>> Linear()([[1.0, 2.0], [0.0, 1.0]])
    array([[5., 2.],
           [2., 1.]])
    """

    def __init__(self) -> None:
        pass

    @property
    def name(self) -> str:
        return "linear"

    @cached_property
    def _form(self) -> ElementwiseForm:
        return ElementwiseForm("inner", 1, 1.0, 0.0, 1.0)


class Polynomial(Elementwise):
    r"""Polynomial kernel.

    .. math:: k(x, x') = (\gamma \, x^\top x' + c_0)^{\text{degree}}

    Parameters
    ----------
    degree : int
        Degree, at least 1.
    coef0 : float, default=1
        Constant, at least 0 (a negative one would not give a kernel).
    gamma : float, default=1
        Factor of the inner product.

    Examples
    --------
    >>> Polynomial(2)([[1.0], [2.0]])
    array([[ 4.,  9.],
           [ 9., 25.]])
    >>> Polynomial(3, gamma=0.5).name
    'polynomial(degree=3, gamma=0.5)'
    """

    def __init__(self, degree: int, coef0: float = 1, gamma: float = 1) -> None:
        self.degree = degree
        self.coef0 = coef0
        self.gamma = gamma

    @property
    def name(self) -> str:
        extra = "" if self.coef0 == 1 else f", coef0={self.coef0:g}"
        extra += "" if self.gamma == 1 else f", gamma={self.gamma:g}"
        return f"polynomial(degree={self.degree}{extra})"

    @cached_property
    def _form(self) -> ElementwiseForm:
        whole = isinstance(self.degree, Integral) and not isinstance(self.degree, bool)
        if not whole or self.degree < 1:
            raise InvalidInputError(
                f"degree of Polynomial must be an integer >= 1; got {self.degree!r}."
            )
        coef0 = positive_number("coef0 of Polynomial", self.coef0, allow_zero=True)
        gamma = positive_number("gamma of Polynomial", self.gamma)
        return ElementwiseForm("inner", 1, float(self.degree), coef0, gamma)

    @classmethod
    def examples(cls) -> list[Kernel]:
        return [cls(1), cls(2, coef0=0), cls(3, gamma=0.5), cls(6)]


class FeatureMapKernel(Kernel):
    r"""Base class of kernels known by a map to a few numbers.

    .. math:: k(x, x') = \varphi(x)^\top \varphi(x')

    A new one is a subclass with ``name`` and ``transform``. Fits keep it by its features where
    these are fewer than a quarter of the samples, and predictions cost the same whatever the number
    of support vectors.

    Examples
    --------
    >>> class Squares(FeatureMapKernel):
    ...     name = "squares"
    ...
    ...     def transform(self, samples):
    ...         return samples.array() ** 2
    >>> Squares()([[1.0, 2.0], [0.0, 1.0]])
    array([[17.,  4.],
           [ 4.,  1.]])
    """

    @abstractmethod
    def transform(self, samples: Samples) -> Array:
        """Return the features of each sample, shape (n, D)."""

    def features(self, samples: Samples) -> Array:
        found: Array = samples.memo(("features", self), self.transform)
        return found

    def evaluate(self, pair: Pair) -> Array:
        left, right = self.features(pair.left), self.features(pair.right)
        return (left @ right.T).astype(pair.dtype, copy=False)

    def diagonal(self, samples: Samples) -> Array:
        return np.asarray(row_square_norms(self.features(samples)))
