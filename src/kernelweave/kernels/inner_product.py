"""Kernels of inner products: of the samples, their powers, and of features a map computes."""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from kernelweave.errors import InvalidInputError
from kernelweave.kernels.base import ElementwiseForm, Kernel, LookUp, Terms
from kernelweave.kernels.evaluate import Pair
from kernelweave.kernels.samples import Samples, row_square_norms
from kernelweave.validation import positive_number

__all__ = ["FeatureMapKernel", "Linear", "Polynomial"]


class Linear(Kernel):
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

    def evaluate(self, pair: Pair) -> NDArray[Any]:
        return pair.inner

    def diagonal(self, samples: Samples) -> NDArray[np.float64]:
        return np.array(samples.square_norms())

    def features(self, samples: Samples) -> Any:
        # Dense rows are better kept as factors.
        return samples.array() if samples.is_sparse else None

    def weigh(self, samples: Samples, v: NDArray[np.float64], terms: Terms | None = None) -> LookUp:
        used = np.flatnonzero(v)
        w = samples.take(used).array().T @ v[used]
        return lambda new: new.array() @ w

    def form(self) -> ElementwiseForm:
        return ElementwiseForm("inner", 1, 1.0, 0.0, 1.0)


class Polynomial(Kernel):
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
    def _numbers(self) -> tuple[int, float, float]:
        whole = isinstance(self.degree, Integral) and not isinstance(self.degree, bool)
        if not whole or self.degree < 1:
            raise InvalidInputError(
                f"degree of Polynomial must be an integer >= 1; got {self.degree!r}."
            )
        coef0 = positive_number("coef0 of Polynomial", self.coef0, allow_zero=True)
        return int(self.degree), coef0, positive_number("gamma of Polynomial", self.gamma)

    @property
    def order(self) -> float:
        return float(self.degree)

    def bind(self, samples: Samples) -> Polynomial:
        self._after_load()
        return self

    def _after_load(self) -> None:
        _ = self._numbers
        super()._after_load()

    def evaluate(self, pair: Pair) -> NDArray[Any]:
        out = np.empty(pair.shape, dtype=pair.dtype)
        self.evaluate_into(pair, out)
        return out

    def evaluate_into(self, pair: Pair, out: NDArray[Any]) -> None:
        degree, coef0, gamma = self._numbers
        base = _affine(pair, coef0, gamma)
        # Binary powers from the highest bit down need no memory but `out`.
        np.copyto(out, base)
        for bit in bin(degree)[3:]:
            out *= out
            if bit == "1":
                out *= base

    def diagonal(self, samples: Samples) -> NDArray[np.float64]:
        degree, coef0, gamma = self._numbers
        return (gamma * samples.square_norms() + coef0) ** degree

    def features(self, samples: Samples) -> Any:
        degree, coef0, gamma = self._numbers
        if degree > 1 or not samples.is_sparse:
            return None  # Powers of sparse rows are not sparse.
        constant = sparse.csr_array(np.full((samples.n, 1), np.sqrt(coef0)))
        return sparse.hstack([np.sqrt(gamma) * samples.array(), constant], format="csr")

    def form(self) -> ElementwiseForm:
        degree, coef0, gamma = self._numbers
        return ElementwiseForm("inner", 1, float(degree), coef0, gamma)

    @classmethod
    def examples(cls) -> list[Kernel]:
        return [cls(1), cls(2, coef0=0), cls(3, gamma=0.5), cls(6)]


def _affine(pair: Pair, coef0: float, gamma: float) -> NDArray[Any]:
    """gamma * inner + coef0, once for all degrees."""
    key = ("affine", coef0, gamma)
    if key not in pair.memo:
        values = pair.inner if gamma == 1 else pair.inner * gamma
        pair.memo[key] = values if coef0 == 0 else values + coef0
    return pair.memo[key]


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
    def transform(self, samples: Samples) -> NDArray[np.float64]:
        """Return the features of each sample, shape (n, D)."""

    def features(self, samples: Samples) -> NDArray[np.float64]:
        found: NDArray[np.float64] = samples.memo(("features", self), self.transform)
        return found

    def evaluate(self, pair: Pair) -> NDArray[Any]:
        left, right = self.features(pair.left), self.features(pair.right)
        return (left @ right.T).astype(pair.dtype, copy=False)

    def diagonal(self, samples: Samples) -> NDArray[np.float64]:
        return np.asarray(row_square_norms(self.features(samples)))
