"""Kernels on few samples, in this process."""

from __future__ import annotations

from typing import Any

from kernelweave.bank.batch import BatchBank
from kernelweave.bank.dense import DenseBank
from kernelweave.bank.memory import require_bytes
from kernelweave.bank.protocol import Array, KernelBank
from kernelweave.bank.stacked import StackedBank
from kernelweave.kernels.batch_set import BatchSet
from kernelweave.kernels.composite_set import CompositeSet

__all__ = ["few_samples"]


def few_samples(kernels: Any, idx: Array) -> KernelBank:
    """Return a bank of a set of kernels on some of its samples.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.kernels import KernelSet, Linear
    >>> few_samples(KernelSet.build([Linear()], [[1.0], [3.0]]), np.array([1])).diag()
    array([[1.8]])
    """
    if isinstance(kernels, CompositeSet):
        return StackedBank([few_samples(part, idx) for part in kernels.parts], kernels.members)
    if isinstance(kernels, BatchSet):
        return BatchBank("float64").build(kernels).take(idx)
    require_bytes(8.0 * kernels.m * len(idx) ** 2, f"{kernels.m} kernels on {len(idx)} samples")
    return DenseBank().from_matrices(list(kernels.rows(idx, None, idx)), kernels.names)
