"""Combinations of kernels: K(d) and its derivative."""

from __future__ import annotations

from kernelweave.combine.weighted_sum import SumGram, WeightedSum
from kernelweave.validation import unknown_name

__all__ = ["COMBINATIONS", "SumGram", "WeightedSum", "get_combination"]

COMBINATIONS: dict[str, type[WeightedSum]] = {"sum": WeightedSum}


def get_combination(spec: str | WeightedSum) -> WeightedSum:
    """Return the combination of that name, or `spec` itself if it is one already.

    Examples
    --------
    >>> get_combination("sum")
    WeightedSum()
    """
    if isinstance(spec, WeightedSum):
        return spec
    if spec not in COMBINATIONS:
        raise unknown_name("combination", spec, COMBINATIONS)
    return COMBINATIONS[spec]()
