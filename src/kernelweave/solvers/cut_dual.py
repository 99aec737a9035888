"""The master problem over cutting planes where the regularizer is not polyhedral."""

from __future__ import annotations

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
    unit = max(accuracy, 1e-300)

    def negative(multipliers: Array) -> tuple[float, Array]:
        mix = multipliers @ cuts.quads
        d = np.asarray(regularizer.dual_weights(mix))
        value = float(multipliers @ cuts.constants) - regularizer.dual_penalty(mix)
        return -value / unit, -cuts.values(d) / unit

    size = len(cuts)
    multipliers = np.ones(1)
    if size > 1:
        found = minimize(
            negative,
            start,
            jac=True,
            method="SLSQP",
            bounds=[(0.0, 1.0)] * size,
            constraints={
                "type": "eq",
                "fun": lambda x: x.sum() - 1.0,
                "jac": lambda x: np.ones(size),
            },
            options={"maxiter": _MOST_STEPS, "ftol": 0.1},
        )
        multipliers = np.where(found.x > 1e-9, found.x, 0.0)
        if not (np.isfinite(multipliers).all() and multipliers.sum() > 0):
            return None
        multipliers /= multipliers.sum()
    mix = multipliers @ cuts.quads
    value = float(multipliers @ cuts.constants) - regularizer.dual_penalty(mix)
    return MasterSolution(np.asarray(regularizer.dual_weights(mix)), multipliers, value)
