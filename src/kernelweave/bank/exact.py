"""The kernels of a bank as they are, for certificates."""

from __future__ import annotations

from typing import Any

from kernelweave.bank.batch import BatchBank
from kernelweave.bank.distances import DistanceBank
from kernelweave.bank.lazy import LazyBank
from kernelweave.bank.memory import NO_CACHE
from kernelweave.bank.stacked import StackedBank

__all__ = ["exact_bank"]


def exact_bank(bank: Any) -> Any:
    """Return the same kernels in float64, nothing of them stored; the bank itself if it is exact.

    float32 values and factors are good enough to search with. What a fit is certified by, and
    predicts with, are the kernels themselves: their values are computed as they are asked for.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.bank import DenseBank
    >>> from kernelweave.kernels import KernelSet, RBF
    >>> X = np.linspace(0, 1, 50)[:, None]
    >>> coarse = DenseBank("float32").build(KernelSet.build([RBF(width=0.1)], X))
    >>> v, d = np.ones(50), np.ones(1)
    >>> exact = exact_bank(coarse)
    >>> exact is coarse, exact_bank(exact) is exact
    (False, True)
    >>> bool(0 < abs(exact.quad_and_product(v, d)[0] - coarse.quad(v))[0] < 1e-3)
    True
    """
    if isinstance(bank, StackedBank):
        parts = [exact_bank(part) for part in bank.parts]
        same = all(new is old for new, old in zip(parts, bank.parts, strict=True))
        return bank if same else StackedBank(parts, bank.members)
    if isinstance(bank, BatchBank):
        return bank.refined() or bank
    if isinstance(bank, DistanceBank):
        return bank.in_double()
    if bank.approximates is None:
        return bank
    # Tiles are computed past the cache.
    return LazyBank(NO_CACHE, "float64").build(bank.approximates)
