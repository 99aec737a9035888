"""What a duality gap proves, in numbers and in words."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["bound_text", "is_zero", "relative_bound"]


def is_zero(estimator: Any) -> bool:
    """Whether the objective of a fit cannot be told from zero in float64.

    Such is that of a regression whose targets are met exactly, or of a one-class problem around the
    origin.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> is_zero(SimpleNamespace(objective_=1e-20, dual_objective_=0.0, objective_floor_=1e-12))
    True
    """
    size = max(abs(_sum(estimator, "objective_")), abs(_sum(estimator, "dual_objective_")))
    return size <= _sum(estimator, "objective_floor_")


def relative_bound(estimator: Any) -> float:
    """By which part of the best objective that of a fit may be above it; infinite if unknown.

    The best objective is between the dual and the primal one, so it is furthest away, and smallest,
    at the dual.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> round(relative_bound(SimpleNamespace(objective_=1.0, dual_objective_=0.8)), 6)
    0.25
    """
    primal, dual = _sum(estimator, "objective_"), _sum(estimator, "dual_objective_")
    if primal <= dual:
        return 0.0
    return (primal - dual) / abs(dual) if primal * dual > 0 else np.inf


def bound_text(estimator: Any) -> str:
    """Say how near to the best possible the objective of a fit is proven to be.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> bound_text(SimpleNamespace(objective_=1.0, dual_objective_=0.9995))
    'the objective is proven to be within 0.05 % of the best possible'
    """
    if is_zero(estimator):
        return "the objective is zero as far as float64 can tell, and none can be lower"
    share = relative_bound(estimator)
    if not np.isfinite(share):
        return "nothing is proven yet about the best possible objective"
    return f"the objective is proven to be within {100 * share:.2g} % of the best possible"


def _sum(estimator: Any, name: str) -> float:
    return float(np.sum(getattr(estimator, name, 0.0)))
