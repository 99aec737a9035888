"""Products of kernels."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelweave.errors import InvalidInputError
from kernelweave.kernels.base import Kernel, no_exponent
from kernelweave.kernels.pair import Pair
from kernelweave.kernels.samples import Samples

__all__ = ["Product"]


class Product(Kernel):
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

    def __init__(self, *factors: Kernel) -> None:
        parts: list[Kernel] = []
        for kernel in factors:
            parts.extend(kernel.factors if isinstance(kernel, Product) else (kernel,))
        self.factors: tuple[Kernel, ...] = tuple(parts)

    @property
    def name(self) -> str:
        # A sum is read as one factor only in brackets.
        names = (f"({k.name})" if is_sum(k) else k.name for k in self.factors)
        return " * ".join(names)

    def _after_load(self) -> None:
        super()._after_load()
        check_parts("Product", self.factors)

    def check_bound(self, samples: Samples) -> None:
        for kernel in self.factors:
            kernel.check_bound(samples)

    def bind(self, samples: Samples) -> Product:
        check_parts("Product", self.factors)
        return Product(*(kernel.bind(samples) for kernel in self.factors))

    def evaluate(self, pair: Pair) -> NDArray[Any]:
        if len(self.factors) == 1:
            return self.factors[0].evaluate(pair)
        out = self.factors[0].evaluate(pair) * self.factors[1].evaluate(pair)
        for kernel in self.factors[2:]:
            out *= kernel.evaluate(pair)
        return out

    def diagonal(self, samples: Samples) -> NDArray[np.float64]:
        return reduce(np.multiply, (kernel.diagonal(samples) for kernel in self.factors))

    @property
    def has_exponent(self) -> bool:
        return all(kernel.has_exponent for kernel in self.factors)

    def exponent(self, pair: Pair) -> NDArray[Any]:
        if not self.has_exponent:
            raise no_exponent(self.name)
        return reduce(np.add, (kernel.exponent(pair) for kernel in self.factors))

    def exponent_terms(self) -> list[tuple[tuple[Any, ...], Kernel]]:
        return [term for kernel in self.factors for term in kernel.exponent_terms()]

    def _parameters(self) -> dict[str, Any]:
        return {"factors": self.factors}

    def __repr__(self) -> str:
        return " * ".join(f"({k!r})" if is_sum(k) else repr(k) for k in self.factors)

    @classmethod
    def examples(cls) -> list[Kernel]:
        from kernelweave.kernels.linear import Linear
        from kernelweave.kernels.rbf import RBF

        return [cls(RBF(width=1), Linear()), RBF(width=1).on(0) * RBF(width=2).on([1, 2])]


def is_sum(kernel: object) -> bool:
    """Whether a kernel needs brackets inside a product.

    Examples
    --------
    >>> from kernelweave.kernels import Linear
    >>> is_sum(Linear() + Linear()), is_sum(Linear())
    (True, False)
    """
    from kernelweave.kernels.sum import Sum

    return isinstance(kernel, Sum)


def check_parts(kind: str, parts: tuple[Any, ...]) -> None:
    """Raise unless `parts` is a non-empty tuple of kernels.

    Examples
    --------
    >>> check_parts("Sum", ())
    Traceback (most recent call last):
    ...
    kernelweave.errors.InvalidInputError: Sum needs at least one kernel; got none.
    """
    if not isinstance(parts, tuple) or not parts:
        raise InvalidInputError(f"{kind} needs at least one kernel; got none.")
    for part in parts:
        if not isinstance(part, Kernel):
            raise InvalidInputError(
                f"every part of a {kind} must be a kernel; got {type(part).__name__} ({part!r})."
            )
