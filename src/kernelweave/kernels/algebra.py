"""Sums and products of kernels, each one kernel with one weight."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from functools import reduce
from itertools import chain
from typing import Any, ClassVar, Self

import numpy as np
from scipy import sparse

from kernelweave.arrays import Array
from kernelweave.errors import InvalidInputError
from kernelweave.kernels.base import Kernel
from kernelweave.kernels.evaluate import Pair
from kernelweave.kernels.samples import Samples
from kernelweave.kernels.vectors import RBF, Linear


class Compound(Kernel):
    """What sums and products share: kernels whose values are put together entry by entry."""

    # How values are put together, the sign of that, and what the parts are called.
    _together: ClassVar[np.ufunc]
    _sign: ClassVar[str]
    _title: ClassVar[str]

    @abstractmethod
    def __init__(self, *parts: Kernel) -> None:
        kind = type(self)
        each = (kernel.parts if isinstance(kernel, kind) else (kernel,) for kernel in parts)
        setattr(self, self._title, tuple(chain.from_iterable(each)))

    @property
    def parts(self) -> tuple[Kernel, ...]:
        """The kernels it is made of."""
        parts: tuple[Kernel, ...] = getattr(self, self._title)
        return parts

    def _written(self, text: Callable[[Kernel], str]) -> str:
        # A sum is read as one factor only in brackets.
        shown = (f"({text(k)})" if isinstance(k, Sum) else text(k) for k in self.parts)
        return f" {self._sign} ".join(shown)

    @property
    def name(self) -> str:
        return self._written(lambda kernel: kernel.name)

    def __repr__(self) -> str:
        return self._written(repr)

    def bind(self, samples: Samples) -> Self:
        kind, parts = type(self).__name__, self.parts
        if not isinstance(parts, tuple) or not parts:
            raise InvalidInputError(f"{kind} needs at least one kernel; got none.")
        for part in parts:
            if not isinstance(part, Kernel):
                given = f"{type(part).__name__} ({part!r})"
                raise InvalidInputError(f"every part of a {kind} must be a kernel; got {given}.")
        return type(self)(*(kernel.bind(samples) for kernel in parts))

    def evaluate(self, pair: Pair) -> Array:
        first, *rest = self.parts
        out = first.evaluate(pair)
        for i, kernel in enumerate(rest):
            # The values of the first kernel may be shared with others; what comes after is ours.
            out = self._together(out, kernel.evaluate(pair), out=out if i else None)
        return out

    def diagonal(self, samples: Samples) -> Array:
        return reduce(self._together, (kernel.diagonal(samples) for kernel in self.parts))

    @classmethod
    def examples(cls) -> list[Kernel]:
        return [cls(RBF(width=1), Linear()), cls(RBF(width=1).on(0), RBF(width=2).on([1, 2]))]


class Sum(Compound):
    r"""Sum of kernels, written ``a + b``: one kernel with one weight.

    .. math:: k(x, x') = \sum_j k_j(x, x')

    Parameters
    ----------
    *terms : Kernel
        The kernels; sums among them are written out.

    Examples
    --------
    >>> from kernelweave.kernels import Linear, Polynomial
    >>> both = Linear() + Polynomial(2)
    >>> both.name
    'linear + polynomial(degree=2)'
    >>> both([[1.0], [2.0]])
    array([[ 5., 11.],
           [11., 29.]])
    """

    _together, _sign, _title = np.add, "+", "terms"
    terms: tuple[Kernel, ...]

    def __init__(self, *terms: Kernel) -> None:
        super().__init__(*terms)

    def features(self, samples: Samples) -> Any:
        parts: list[Any] = []
        for path, core in self.leaves(Sum):
            part = core.features(samples.through(path))
            if not (isinstance(part, np.ndarray) or sparse.issparse(part)):
                return None
            parts.append(part)
        dense = [isinstance(part, np.ndarray) for part in parts]
        if any(dense):
            return np.hstack(parts) if all(dense) else None
        # Columns are numbered in 64 bits, which two kernels on very long k-mers exceed.
        too_many = sum(part.shape[1] for part in parts) > np.iinfo(np.int64).max
        return None if too_many else sparse.hstack(parts, format="csr")


class Product(Compound):
    r"""Product of kernels, written ``a * b``.

    .. math:: k(x, x') = \prod_j k_j(x, x')

    Parameters
    ----------
    *factors : Kernel
        The kernels; products among them are written out.

    Examples
    --------
    >>> from kernelweave.kernels import Linear, Polynomial
    >>> product = Linear().on(0) * Polynomial(1).on(1)
    >>> product.name
    'linear on column 0 * polynomial(degree=1) on column 1'
    >>> product([[1.0, 2.0], [3.0, 4.0]])
    array([[  5.,  27.],
           [ 27., 153.]])
    """

    _together, _sign, _title = np.multiply, "*", "factors"
    factors: tuple[Kernel, ...]

    def __init__(self, *factors: Kernel) -> None:
        super().__init__(*factors)
