"""A learnt combination of kernels, as a callable that any scikit-learn ``kernel=`` accepts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kernelweave.kernels.kernel_set import KernelSet
from kernelweave.kernels.samples import Samples, as_samples
from kernelweave.problem import Array

__all__ = ["LearntKernel"]

_BLOCK_BYTES = 64e6


class LearntKernel:
    """K(x, z) = sum_k d_k k_k(x, z) with the kernels' learnt constants and the learnt weights.

    Parameters
    ----------
    kernel_set : KernelSet
        The kernels, bound to and normalised on the training rows.
    weights : ndarray of shape (m,)
        Their weights; kernels of weight zero are never evaluated.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.svm import SVC
    >>> from kernelweave import MKLClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> kernel = MKLClassifier().fit(X, y).as_kernel()
    >>> SVC(kernel=kernel).fit(X, y).score(X, y) > 0.9
    True
    """

    def __init__(self, kernel_set: KernelSet, weights: Array) -> None:
        self.kernel_set = kernel_set
        self.weights = np.asarray(weights, dtype=np.float64)

    def __call__(self, X: Any, Z: Any = None) -> Array:
        """Gram matrix of X against Z (None: against X itself)."""
        left = as_samples(X)
        right = left if Z is None else as_samples(Z)
        return self._blocks(
            left, right.n, lambda part, active: self.kernel_set.between(part, right, active)
        )

    def against_training(self, X: Any, idx: Array | None = None) -> Array:
        """Gram matrix of X against the training rows `idx` (None: all of them)."""
        width = self.kernel_set.n if idx is None else len(idx)
        return self._blocks(
            as_samples(X), width, lambda part, active: self.kernel_set.cross(part, idx, active)
        )

    def _blocks(self, left: Samples, width: int, stack: Callable[[Samples, Array], Array]) -> Array:
        """Combine kernel stacks a bounded number of rows at a time."""
        active = np.flatnonzero(self.weights)
        out = np.zeros((left.n, width))
        if not len(active) or not width:
            return out
        step = max(1, int(_BLOCK_BYTES // (8 * width * len(active))))
        for first in range(0, left.n, step):
            rows = np.arange(first, min(first + step, left.n))
            part = left if len(rows) == left.n else left.take(rows)
            out[rows] = np.tensordot(self.weights[active], stack(part, active), axes=1)
        return out

    def __sklearn_clone__(self) -> LearntKernel:
        return self
