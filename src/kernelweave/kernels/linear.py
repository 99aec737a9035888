"""The linear kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelweave.kernels.base import ElementwiseForm, Kernel, LookUp, Terms
from kernelweave.kernels.pair import Pair
from kernelweave.kernels.samples import Samples

__all__ = ["Linear"]


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
