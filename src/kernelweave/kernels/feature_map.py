"""Kernels given by an explicit dense feature map."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelweave.kernels.base import Kernel
from kernelweave.kernels.pair import Pair
from kernelweave.kernels.samples import Samples, row_square_norms

__all__ = ["FeatureMapKernel"]


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
