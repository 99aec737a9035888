"""A weighted degree kernel, or a part of one, on training samples, normalised."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernelweave.kernels.scaled_factor import Floats, ScaledFactor
from kernelweave.kernels.strings.aligned import Aligned
from kernelweave.kernels.strings.position_weights import PositionWeights

__all__ = ["PositionalFactor"]


@dataclass(frozen=True, eq=False)
class PositionalFactor(ScaledFactor):
    r"""A training Gram matrix known by the k-mers of aligned sequences.

    Parameters
    ----------
    aligned : Aligned
        The sequences.
    weights : PositionWeights
        What counts, in one window.
    lengths : (int, int) or None
        The k-mer lengths, first and last, if each counts 1.
    scale, left, right : ndarrays
        See :class:`~kernelweave.kernels.scaled_factor.ScaledFactor`.

    Examples
    --------
    >>> from kernelweave.kernels import Samples, WeightedDegree
    >>> samples = Samples(["ACGT", "ACCT"])
    >>> factor = WeightedDegree(2).bind(samples).positional(samples)
    >>> factor.product(np.array([1.0, 0.0])).round(3)
    array([3.667, 2.333])
    """

    aligned: Aligned
    weights: PositionWeights
    lengths: tuple[int, int] | None
    scale: Floats | float
    left: Floats
    right: Floats

    def raw_product(self, v: Floats) -> Floats:
        return self.weights.products(self.aligned, self.aligned, v).sum(axis=(0, 1))

    def raw_diagonal(self) -> Floats:
        return self.weights.diagonals(self.aligned).sum(axis=(0, 1))

    @property
    def window(self) -> tuple[int, int]:
        """The first position and the one after the last."""
        inside = np.flatnonzero(self.weights.window_of >= 0)
        return int(inside[0]), int(inside[-1]) + 1
