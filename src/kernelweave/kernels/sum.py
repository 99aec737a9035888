"""Sums of kernels."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from kernelweave.kernels.base import Kernel, LookUp, Terms
from kernelweave.kernels.pair import Pair
from kernelweave.kernels.product import check_parts
from kernelweave.kernels.samples import Samples

__all__ = ["Sum"]


class Sum(Kernel):
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

    def __init__(self, *terms: Kernel) -> None:
        parts: list[Kernel] = []
        for kernel in terms:
            parts.extend(kernel.terms if isinstance(kernel, Sum) else (kernel,))
        self.terms: tuple[Kernel, ...] = tuple(parts)

    @property
    def name(self) -> str:
        return " + ".join(kernel.name for kernel in self.terms)

    def _after_load(self) -> None:
        super()._after_load()
        check_parts("Sum", self.terms)

    def check_bound(self, samples: Samples) -> None:
        for kernel in self.terms:
            kernel.check_bound(samples)

    def bind(self, samples: Samples) -> Sum:
        check_parts("Sum", self.terms)
        return Sum(*(kernel.bind(samples) for kernel in self.terms))

    def evaluate(self, pair: Pair) -> NDArray[Any]:
        if len(self.terms) == 1:
            return self.terms[0].evaluate(pair)
        out = self.terms[0].evaluate(pair) + self.terms[1].evaluate(pair)
        for kernel in self.terms[2:]:
            out += kernel.evaluate(pair)
        return out

    def diagonal(self, samples: Samples) -> NDArray[np.float64]:
        return reduce(np.add, (kernel.diagonal(samples) for kernel in self.terms))

    def features(self, samples: Samples) -> Any:
        parts = []
        for kernel in self.terms:
            part = kernel.core.features(samples.through(kernel.path))
            if part is None:
                return None
            parts.append(part)
        # Columns are numbered in 64 bits, which two kernels on very long k-mers exceed.
        too_many = sum(part.shape[1] for part in parts) > np.iinfo(np.int64).max
        return None if too_many else sparse.hstack(parts, format="csr")

    def weigh(
        self, samples: Samples, v: NDArray[np.float64], terms: Terms | None = None
    ) -> LookUp | None:
        parts = []
        for kernel in self.terms:
            part = kernel.weigh(samples, v)
            if part is None:
                return None
            parts.append(part)
        return lambda new: np.sum([part(new) for part in parts], axis=0)

    def _parameters(self) -> dict[str, Any]:
        return {"terms": self.terms}

    def __repr__(self) -> str:
        return " + ".join(repr(kernel) for kernel in self.terms)

    @classmethod
    def examples(cls) -> list[Kernel]:
        from kernelweave.kernels.linear import Linear
        from kernelweave.kernels.rbf import RBF

        return [cls(RBF(width=1), Linear()), Linear().on(0) + RBF(width=2).on([1, 2])]
