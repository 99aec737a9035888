"""Combinations of kernels: K(d) and its derivative."""

from __future__ import annotations

from kernelweave.combine.base import (
    Combination,
    PolynomialMixture,
    Product,
    WeightedSum,
    get_combination,
)
from kernelweave.combine.gram import CombinedOperator, Gram

__all__ = [
    "Combination",
    "CombinedOperator",
    "Gram",
    "PolynomialMixture",
    "Product",
    "WeightedSum",
    "get_combination",
]
