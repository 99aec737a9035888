"""The master problem over cutting planes where the regularizer is not polyhedral."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kernelweave.problem import Array
from kernelweave.regularizers.base import Regularizer
from kernelweave.root_search import zero_of_slope
from kernelweave.solvers.curvature import minimise_model
from kernelweave.solvers.cut_lp import MasterSolution
from kernelweave.solvers.cuts import Cuts

__all__ = ["solve_dual", "solve_proximal"]

_MOST_STEPS = 50
# Change of one multiplier, of a sum of one, by which the curvature is taken: the root of what
# float64 resolves, which balances rounding against the error of a difference.
_DIFFERENCE = 1.5e-8
# The master is solved to this part of what is between it and the best objective so far.
_ACCURACY = 0.01
_EPS = float(np.finfo(np.float64).eps)

# The minimiser and the minimum over d of r(d) - 1/2 mix . d (and a proximal term, if any).
Response = Callable[[Array], tuple[Array, float]]


def solve_dual(
    cuts: Cuts, regularizer: Regularizer, start: Array, upper: float
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
    upper : float
        What the optimum is known to be below. The value ends at least 99 % of the way to it.

    Returns
    -------
    MasterSolution or None
        None if the regularizer cannot tell the weights.
    """
    if regularizer.dual_weights(cuts.quads[-1]) is None:
        return None

    def response(mix: Array) -> tuple[Array, float]:
        return np.asarray(regularizer.dual_weights(mix)), -regularizer.dual_penalty(mix)

    return _solve(cuts, response, start, upper)


def solve_proximal(
    cuts: Cuts, regularizer: Regularizer, centre: Array, step: float, start: Array, upper: float
) -> MasterSolution:
    r"""Minimise :math:`r(d) + \max_j (c_j - \frac12 q_j \cdot d) + \frac1{2t} |d - \hat d|^2`.

    The step of a proximal bundle method of step length t (Bonnans et al. 2006, Numerical
    Optimization, section 10.3), for any r with a prox: the weights that belong to multipliers are
    :math:`\mathrm{prox}_{t r}(\hat d + \frac t2 \sum_j \lambda_j q_j)`. The value is that with the
    proximal term.
    """

    def response(mix: Array) -> tuple[Array, float]:
        d = regularizer.prox(centre + 0.5 * step * mix, step)
        away = float(np.sum((d - centre) ** 2)) / (2.0 * step)
        return d, float(regularizer.value(d)) + away - 0.5 * float(mix @ d)

    return _solve(cuts, response, start, upper)


def _solve(cuts: Cuts, response: Response, start: Array, upper: float) -> MasterSolution:
    """Climb on the simplex of multipliers by Newton's method with a search along each step.

    The gradient is what each cut says at the weights; its differences, along one multiplier after
    the other, give the curvature.
    """

    def at(multipliers: Array) -> tuple[MasterSolution, Array]:
        d, value = response(multipliers @ cuts.quads)
        found = MasterSolution(d, multipliers, float(multipliers @ cuts.constants) + value)
        return found, cuts.values(d)

    def curvature(place: MasterSolution, heights: Array) -> Array:
        moved = [at(place.multipliers + row)[1] for row in _DIFFERENCE * np.eye(len(cuts))]
        B = (heights - np.array(moved)) / _DIFFERENCE
        return 0.5 * (B + B.T)

    def along(place: MasterSolution, heights: Array, way: Array) -> tuple[MasterSolution, Array]:
        def fall(t: float) -> float:
            return -float(at(place.multipliers + t * way)[1] @ way)

        first = -float(heights @ way)
        if not first < 0:
            return place, heights
        return at(place.multipliers + zero_of_slope(fall, first) * way)

    # A mean with a poor cut can be far below a single good one.
    firsts = [at(multipliers) for multipliers in [start, *np.eye(len(cuts))]]
    best, heights = max(firsts, key=lambda first: first[0].value)
    for _ in range(_MOST_STEPS):
        # The weights are this far from the bound of the multipliers.
        left = float(heights.max() - best.multipliers @ heights)
        if not left > max(_ACCURACY * (upper - best.value), _EPS * abs(best.value)):
            break
        target = minimise_model(curvature(best, heights), -heights, best.multipliers, 0.01 * left)
        found, seen = along(best, heights, target - best.multipliers)
        # A short step to a steep cut may gain little of what is left: only rounding ends the climb.
        if not found.value - best.value > _EPS * abs(best.value):
            break
        best, heights = found, seen
    total = float(best.multipliers.sum())
    return MasterSolution(best.d, best.multipliers / total, best.value)
