"""Combinations of kernels: K(d) and its derivative."""

from __future__ import annotations

from kernelweave.combine.base import (
    Combination,
    Gram,
    PolynomialMixture,
    Product,
    WeightedSum,
    get_combination,
)
from kernelweave.combine.combined import CombinedOperator

__all__ = [
    "Combination",
    "CombinedOperator",
    "Gram",
    "PolynomialMixture",
    "Product",
    "WeightedSum",
    "get_combination",
]
