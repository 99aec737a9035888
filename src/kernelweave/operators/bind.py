"""From what an estimator's `kernels` accepts to an operator on the training samples."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernelweave.kernels.base import Kernel
from kernelweave.kernels.families import resolve_items
from kernelweave.kernels.rbf import RBFBatch
from kernelweave.kernels.samples import as_samples
from kernelweave.operators.base import Array
from kernelweave.operators.computed import ComputedOperator
from kernelweave.operators.gaussians import GaussianOperator
from kernelweave.operators.stacked import StackedOperator

__all__ = ["bind_kernels"]


def bind_kernels(
    kernels: Any, X: Any, normalize: Any = "trace"
) -> ComputedOperator | GaussianOperator | StackedOperator:
    """Bind whatever an estimator's `kernels` accepts to the samples `X`.

    Parameters
    ----------
    kernels : Kernel, Family, RBFBatch, str, or list of these
        What the user asked for.
    X : array, CSR matrix, DataFrame or Samples
        The training samples.
    normalize : {"trace", "diagonal", "center"}, None or tuple of these, default="trace"
        The normalisation.

    Examples
    --------
    >>> from kernelweave.kernels import Linear
    >>> X = [[0.0, 1.0], [2.0, 1.0]]
    >>> bind_kernels(RBFBatch([[0], [1]], [1.0, 1.0]), X)
    GaussianOperator(n=2, m=2, Normalization('trace'))
    >>> list(bind_kernels([RBFBatch([[1]], [1.0]), Linear()], X).names)
    ['rbf(gamma=1) on column 1', 'linear']
    """
    samples = as_samples(X)
    items = resolve_items(kernels, samples)
    sizes = [item.m if isinstance(item, RBFBatch) else 1 for item in items]
    ends = np.cumsum(sizes)
    parts: list[Any] = []
    members: list[Array] = []
    ordinary = {i: item for i, item in enumerate(items) if isinstance(item, Kernel)}
    if ordinary:
        # All in one operator: they share what they compute, and no two get the same name.
        parts.append(ComputedOperator(list(ordinary.values()), samples, normalize))
        members.append(ends[list(ordinary)] - 1)
    for item, size, end in zip(items, sizes, ends, strict=True):
        if isinstance(item, RBFBatch):
            parts.append(GaussianOperator(item, samples, normalize))
            members.append(np.arange(end - size, end))
    return parts[0] if len(parts) == 1 else StackedOperator(parts, members)
