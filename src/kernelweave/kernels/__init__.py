"""Kernels: similarity measures on samples, their families and normalisation.

A kernel is a short description such as ``RBF(width=2).on("petal length")``; ``kernel(X)`` gives its
Gram matrix. Products and sums are written ``a * b`` and ``a + b``. Families such as
``simplemkl_family()`` expand into many kernels when the data are seen. Kernels bound to training
samples, on a common scale, are an operator (`kernelweave.operators`).
"""

from __future__ import annotations

from kernelweave.kernels.algebra import Product, Sum
from kernelweave.kernels.base import ElementwiseForm, Kernel
from kernelweave.kernels.batch import RBFBatch
from kernelweave.kernels.columns import Block, OnColumns, Selection
from kernelweave.kernels.distance import Distance
from kernelweave.kernels.evaluate import Pair, evaluate_stack
from kernelweave.kernels.families import (
    Family,
    default_family,
    feature_distances,
    mwumkl_family,
    resolve,
    simplemkl_family,
    spicymkl_family,
)
from kernelweave.kernels.names import unique_names
from kernelweave.kernels.normalize import Normalization
from kernelweave.kernels.precomputed import Precomputed, from_matrices, sample_ids
from kernelweave.kernels.psd import nearest_psd
from kernelweave.kernels.samples import Samples, as_samples
from kernelweave.kernels.strings.spectrum import Spectrum
from kernelweave.kernels.strings.weighted_degree import WeightedDegree
from kernelweave.kernels.vectors import (
    RBF,
    FeatureMapKernel,
    Linear,
    Polynomial,
)

__all__ = [
    "RBF",
    "Block",
    "Distance",
    "ElementwiseForm",
    "Family",
    "FeatureMapKernel",
    "Kernel",
    "Linear",
    "Normalization",
    "OnColumns",
    "Pair",
    "Polynomial",
    "Precomputed",
    "Product",
    "RBFBatch",
    "Samples",
    "Selection",
    "Spectrum",
    "Sum",
    "WeightedDegree",
    "as_samples",
    "default_family",
    "evaluate_stack",
    "feature_distances",
    "from_matrices",
    "mwumkl_family",
    "nearest_psd",
    "resolve",
    "sample_ids",
    "simplemkl_family",
    "spicymkl_family",
    "unique_names",
]
