"""A learnt combination of kernels, as a callable that any scikit-learn ``kernel=`` accepts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from kernelweave.arrays import Index
from kernelweave.combine import Combination, WeightedSum
from kernelweave.kernels.samples import Samples, as_samples
from kernelweave.memory import available_bytes
from kernelweave.operators import KernelOperator
from kernelweave.problem import Array

__all__ = ["LearntKernel"]

_BLOCK_ENTRIES = 2**20
# Several arrays of a block's size are there at once; fewer rows where memory is short.
_BYTES_AN_ENTRY = 128
# So few are there whatever else is: asking for memory takes longer than computing them.
_FEW_ENTRIES = 2**15


class LearntKernel:
    """K(d) between any samples, with the kernels' learnt constants and the learnt weights.

    Parameters
    ----------
    kernel_set : KernelOperator
        Bound to and normalised on the training rows.
    weights : ndarray of shape (m,)
        Their weights; in a sum, kernels of weight zero are never evaluated.
    combination : Combination, optional
        How they are combined; a sum by default.

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

    def __init__(
        self, kernel_set: KernelOperator, weights: Array, combination: Combination | None = None
    ) -> None:
        self.kernel_set = kernel_set
        self.weights = np.asarray(weights, dtype=np.float64)
        self.combination = WeightedSum() if combination is None else combination

    def __call__(self, X: Any, Z: Any = None) -> Array:
        """Gram matrix of X against Z (None: against X itself)."""
        left = as_samples(X)
        right = left if Z is None else as_samples(Z)
        return self._rows(left, right.n, lambda part: self.kernel_set.between(part, right))

    def against_training(self, X: Any, idx: Index | None = None) -> Array:
        """Gram matrix of X against the training rows `idx` (None: all of them)."""
        width = self.kernel_set.n if idx is None else len(idx)
        return self._rows(as_samples(X), width, self._against(idx))

    def products(self, X: Any, idx: Index, coef: Array) -> Array:
        """Gram matrix of X against the training rows `idx`, times `coef.T`; it is never whole."""
        left = as_samples(X)
        out = np.zeros((left.n, len(coef)))
        for rows, values in self._blocks(left, len(idx), self._against(idx)):
            out[rows] = values @ coef.T
        return out

    def _against(self, idx: Index | None) -> Callable[[Samples], KernelOperator]:
        return lambda part: self.kernel_set.against(part).part(None, idx)

    def _rows(self, left: Samples, width: int, tile: Callable[[Samples], KernelOperator]) -> Array:
        out = np.zeros((left.n, width))
        for rows, values in self._blocks(left, width, tile):
            out[rows] = values
        return out

    def _blocks(
        self, left: Samples, width: int, tile: Callable[[Samples], KernelOperator]
    ) -> Iterator[tuple[Index, Array]]:
        """K(d) a bounded number of rows at a time, and which these are."""
        if not width:
            return
        entries = min(_BLOCK_ENTRIES, left.n * width)
        if entries > _FEW_ENTRIES:
            entries = min(entries, int(available_bytes() / _BYTES_AN_ENTRY))
        step = max(1, int(entries // width))
        for first in range(0, left.n, step):
            rows = np.arange(first, min(first + step, left.n))
            part = left if len(rows) == left.n else left.take(rows)
            yield rows, self.combination.values(tile(part), self.weights)

    def __sklearn_clone__(self) -> LearntKernel:
        return self
