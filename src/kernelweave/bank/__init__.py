"""Banks: m kernel matrices that may not fit in memory, behind one set of questions."""

from kernelweave.bank.auto import BANKS, build_bank
from kernelweave.bank.dense import DenseBank
from kernelweave.bank.factored import FactoredBank
from kernelweave.bank.lazy import LazyBank
from kernelweave.bank.protocol import ErrorBound, KernelBank
from kernelweave.bank.stacked import StackedBank

__all__ = [
    "BANKS",
    "DenseBank",
    "ErrorBound",
    "FactoredBank",
    "KernelBank",
    "LazyBank",
    "StackedBank",
    "build_bank",
]
