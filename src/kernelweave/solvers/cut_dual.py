"""The master problem over cutting planes where the regularizer is not polyhedral."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.optimize import minimize

from kernelweave.problem import Array
from kernelweave.regularizers.base import Regularizer
from kernelweave.solvers.cut_lp import MasterSolution
from kernelweave.solvers.cuts import Cuts

__all__ = ["solve_dual"]

_MOST_STEPS = 100


def solve_dual(
    cuts: Cuts, regularizer: Regularizer, start: Array, accuracy: float
) -> MasterSolution | None:
    r"""Minimise :math:`r(d) + \max_j (c_j - \frac12 q_j \cdot d)` by its dual.

    For a strictly convex r (the lp ball, the elastic net, ...) the linear program of SILP becomes

    .. math:: \max_{\lambda \ge 0,\, \sum \lambda = 1} \; \lambda \cdot c
              - r^*\Big(\tfrac12 \sum_j \lambda_j q_j\Big),

    smooth, with one variable for each cut. The weights follow in closed form: they attain
    :math:`r^*` there (:meth:`Regularizer.dual_weights`).

    Parameters
    ----------
    cuts : Cuts
    regularizer : Regularizer
    start : ndarray of shape (J,)
        Multipliers to start from.
    accuracy : float
        How far below the optimum the value may end.

    Returns
    -------
    MasterSolution or None
        None if the regularizer cannot tell the weights.
    """
    if regularizer.dual_weights(cuts.quads[-1]) is None:
        return None

    def value(multipliers: Array) -> float:
        mix = multipliers @ cuts.quads
        return float(multipliers @ cuts.constants) - regularizer.dual_penalty(mix)

    # A mean with a poor cut can be far below a single good one.
    first = max([start, *np.eye(len(cuts))], key=value)
    multipliers = _climb(cuts, regularizer, first, value, accuracy)
    if not value(multipliers) >= value(first):
        multipliers = first
    d = regularizer.dual_weights(multipliers @ cuts.quads)
    return MasterSolution(np.asarray(d), multipliers, value(multipliers))


def _climb(
    cuts: Cuts,
    regularizer: Regularizer,
    first: Array,
    value: Callable[[Array], float],
    accuracy: float,
) -> Array:
    """Multipliers from SciPy's SLSQP, on the simplex to the last digit."""
    size = len(cuts)
    unit = max(abs(value(first)), accuracy, 1e-300)

    def negative(multipliers: Array) -> tuple[float, Array]:
        d = np.asarray(regularizer.dual_weights(multipliers @ cuts.quads))
        return -value(multipliers) / unit, -cuts.values(d) / unit

    found = minimize(
        negative,
        first,
        jac=True,
        method="SLSQP",
        bounds=[(0.0, 1.0)] * size,
        constraints={"type": "eq", "fun": lambda x: x.sum() - 1.0, "jac": lambda x: np.ones(size)},
        options={"maxiter": _MOST_STEPS, "ftol": 0.1 * accuracy / unit},
    ).x
    multipliers = np.where(found > 1e-9, found, 0.0)
    total = float(multipliers.sum())
    return multipliers / total if np.isfinite(total) and total > 0 else first
