"""Combinations of kernels: K(d) and its derivative."""

from __future__ import annotations

from kernelweave.combine.base import Combination
from kernelweave.combine.gram import Gram, TiledGram
from kernelweave.combine.polynomial_mixture import PolynomialMixture
from kernelweave.combine.product import Product
from kernelweave.combine.weighted_sum import SumGram, WeightedSum

__all__ = [
    "Combination",
    "Gram",
    "PolynomialMixture",
    "Product",
    "SumGram",
    "TiledGram",
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
