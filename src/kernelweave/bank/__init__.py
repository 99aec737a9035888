"""Banks: m kernel matrices that may not fit in memory, behind one set of questions."""

from kernelweave.bank.auto import BANKS, build_bank, storage_dtype
from kernelweave.bank.batch import BatchBank
from kernelweave.bank.dask import DaskBank
from kernelweave.bank.dense import DenseBank
from kernelweave.bank.distances import DistanceBank
from kernelweave.bank.factored import FactoredBank
from kernelweave.bank.lazy import LazyBank
from kernelweave.bank.positional import PositionalBank
from kernelweave.bank.protocol import ErrorBound, KernelBank, MatrixBank
from kernelweave.bank.sparse import SparseBank
from kernelweave.bank.stacked import StackedBank

__all__ = [
    "BANKS",
    "BatchBank",
    "DaskBank",
    "DenseBank",
    "DistanceBank",
    "ErrorBound",
    "FactoredBank",
    "KernelBank",
    "LazyBank",
    "MatrixBank",
    "PositionalBank",
    "SparseBank",
    "StackedBank",
    "build_bank",
    "storage_dtype",
]
