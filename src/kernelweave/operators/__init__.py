"""Operators: m kernels between two sets of samples, behind one set of questions."""

from kernelweave.operators.auto import bind_kernels
from kernelweave.operators.base import KernelOperator
from kernelweave.operators.bounds import ErrorBound
from kernelweave.operators.computed import ComputedOperator
from kernelweave.operators.dense import DenseOperator
from kernelweave.operators.distances import DistanceOperator
from kernelweave.operators.factors import FactorOperator
from kernelweave.operators.features import FeatureOperator
from kernelweave.operators.gaussians import GaussianOperator
from kernelweave.operators.sampled import Part
from kernelweave.operators.sequences import SequenceOperator
from kernelweave.operators.stacked import StackedOperator

__all__ = [
    "ComputedOperator",
    "DenseOperator",
    "DistanceOperator",
    "ErrorBound",
    "FactorOperator",
    "FeatureOperator",
    "GaussianOperator",
    "KernelOperator",
    "Part",
    "SequenceOperator",
    "StackedOperator",
    "bind_kernels",
]
