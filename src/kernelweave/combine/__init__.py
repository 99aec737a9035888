"""Combinations of kernels: K(d) and its derivative."""

from __future__ import annotations

from kernelweave.combine.base import Combination, PolynomialMixture, Product, WeightedSum
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


def get_combination(spec: str | Combination) -> Combination:
    """Return the combination of that name, or `spec` itself if it is one already.

    Examples
    --------
    >>> get_combination("sum")
    WeightedSum()
    """
    return spec if isinstance(spec, Combination) else Combination.find(spec)()
