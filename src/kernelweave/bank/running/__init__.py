"""K_k v of every kernel, for a v that changes at few samples at a time: the state of MWUMKL."""

from __future__ import annotations

from kernelweave.bank.running.base import RunningProducts
from kernelweave.bank.running.batch import BatchProducts
from kernelweave.bank.running.factors import FactorProducts
from kernelweave.bank.running.rows import MatrixProducts, RowProducts, SumProducts
from kernelweave.bank.running.stacked import StackedProducts

__all__ = [
    "BatchProducts",
    "FactorProducts",
    "MatrixProducts",
    "RowProducts",
    "RunningProducts",
    "StackedProducts",
    "SumProducts",
]
