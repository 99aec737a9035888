"""The quadratic program over cutting planes: a step that minds all cuts and the curvature."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import LinAlgError, lu_factor, lu_solve

from kernelweave.problem import Array

__all__ = ["nearest_below"]

# Interior-point methods need 10 to 20 iterations whatever the size (Wright 1997, chapter 1).
_MOST_ITERATIONS = 60
# Complementarity at which a program scaled to slopes of one counts as solved: a factor of ten above
# what its own sums, of some hundred terms, can resolve.
_SOLVED = 1e-13
# Part of the way to the nearest bound that one step may go (Wright 1997, section 10.4).
_INSIDE = 0.995


@dataclass
class _Place:
    """Weights x with multipliers z, and slacks s of the cuts with multipliers y; all positive."""

    x: Array
    z: Array
    s: Array
    y: Array
    level: float
    price: float

    def moved(self, by: _Place, primal: float, dual: float) -> _Place:
        return _Place(
            self.x + primal * by.x,
            self.z + dual * by.z,
            self.s + primal * by.s,
            self.y + dual * by.y,
            self.level + primal * by.level,
            self.price + dual * by.price,
        )

    @property
    def complementarity(self) -> float:
        return float(self.x @ self.z + self.s @ self.y) / (len(self.x) + len(self.s))


def nearest_below(
    constants: Array, slopes: Array, centre: Array, metric: Array, limit: float, exact_sum: bool
) -> tuple[Array, Array] | None:
    r"""Minimise :math:`\max_j (c_j + g_j \cdot d) + \frac12 (d - \hat d)' H (d - \hat d)`.

    Over weights d >= 0 that sum to `limit` (or, without `exact_sum`, to at most that). Returns
    (weights, multipliers of the cuts), or None where the numbers are not finite.

    By Mehrotra's predictor-corrector method (Wright 1997, Primal-Dual Interior-Point Methods,
    chapter 10) on the optimality conditions: with a level :math:`\theta`, slacks
    :math:`s_j = \theta - c_j - g_j \cdot d` and multipliers :math:`\lambda_j`, :math:`z_k`,
    :math:`\nu`,

    .. math:: H (d - \hat d) + \sum_j \lambda_j g_j - z - \nu 1 = 0, \quad
              \sum_j \lambda_j = 1, \quad \lambda_j s_j = 0, \quad z_k d_k = 0.

    Examples
    --------
    >>> import numpy as np
    >>> found = nearest_below(
    ...     np.zeros(2), np.array([[-1.0, 0.0], [1.0, 0.0]]), np.full(2, 0.5), np.eye(2), 1.0, True
    ... )
    >>> found[0].round(6)
    array([0., 1.])
    """
    size = len(centre)
    if not exact_sum:
        # One more weight takes up what is left of the limit.
        slopes = np.pad(slopes, ((0, 0), (0, 1)))
        metric = np.pad(metric, ((0, 1), (0, 1)))
        centre = np.append(centre, limit - centre.sum())
    # In units in which weights sum to one and slopes, beside what they have in common, are one.
    common = 0.5 * (slopes.max(axis=0) + slopes.min(axis=0)) if exact_sum else np.zeros(1)
    shift = float(common.mean())
    unit = limit * float(np.abs(slopes - shift).max())
    unit = max(unit, float(np.ptp(constants)), 1e-300)
    program = _Program(
        (constants - constants.max()) / unit,
        (slopes - shift) * (limit / unit),
        centre / limit,
        metric * (limit / unit * limit),
    )
    with np.errstate(all="ignore"):
        place = program.solve()
    if place is None:
        return None
    # A weight smaller than the multiplier that presses it to zero is zero.
    weights = np.where(place.x > place.z, place.x, 0.0)
    multipliers = np.where(place.y > place.s, place.y, 0.0)
    if not (weights.sum() > 0 and multipliers.sum() > 0):
        return None
    weights *= limit / weights.sum()
    return weights[:size], multipliers / multipliers.sum()


class _Program:
    """The program in its own units, where weights sum to one."""

    def __init__(self, constants: Array, slopes: Array, centre: Array, metric: Array) -> None:
        self.c, self.G, self.centre, self.H = constants, slopes, centre, metric
        self.cuts, self.size = slopes.shape

    def solve(self) -> _Place | None:
        """Return the best place found, or None if there is none of finite numbers."""
        x = np.full(self.size, 1.0 / self.size)
        heights = self.c + self.G @ x
        level = float(heights.max()) + 1.0
        y = np.full(self.cuts, 1.0 / self.cuts)
        place = _Place(x, np.ones(self.size), level - heights, y, level, 0.0)
        best, least = None, np.inf
        for _ in range(_MOST_ITERATIONS):
            residuals = self._residuals(place)
            error = max(place.complementarity, *(float(np.abs(r).max()) for r in residuals))
            if not np.isfinite(error):
                break
            if error < least:
                best, least = place, error
            if error <= _SOLVED:
                break
            moved = self._step(place, residuals)
            if moved is None:
                break
            place = moved
        return best

    def _residuals(self, p: _Place) -> tuple[Array, Array, Array]:
        """What is missing in the conditions on slopes, on cuts, and on the two sums."""
        slope = self.H @ (p.x - self.centre) + self.G.T @ p.y - p.z - p.price
        cut = p.level - self.c - self.G @ p.x - p.s
        return slope, cut, np.array([p.y.sum() - 1.0, p.x.sum() - 1.0])

    def _step(self, p: _Place, residuals: tuple[Array, Array, Array]) -> _Place | None:
        """Newton's step, predicted and corrected, on one factor of the linear system."""
        J, m = self.cuts, self.size
        A = np.zeros((m + J + 2, m + J + 2))
        A[:m, :m] = self.H
        A[np.arange(m), np.arange(m)] += p.z / p.x
        A[:m, m : m + J] = self.G.T
        A[m : m + J, :m] = -self.G
        A[np.arange(m, m + J), np.arange(m, m + J)] = p.s / p.y
        A[m : m + J, -2] = 1.0
        A[-2, m : m + J] = 1.0
        A[:m, -1] = -1.0
        A[-1, :m] = 1.0
        try:
            factor = lu_factor(A, overwrite_a=True, check_finite=False)
        except (LinAlgError, ValueError):
            return None

        def newton(pairs: Array, cuts: Array) -> _Place:
            """Direction in which x z changes by `pairs` and s y by `cuts`."""
            slope, cut, sums = residuals
            right = np.concatenate([-slope + pairs / p.x, -cut + cuts / p.y, -sums])
            step = lu_solve(factor, right, check_finite=False)
            x, y, level, price = step[:m], step[m : m + J], float(step[-2]), float(step[-1])
            z, s = (pairs - p.z * x) / p.x, (cuts - p.s * y) / p.y
            return _Place(x, z, s, y, level, price)

        pure = newton(-p.x * p.z, -p.s * p.y)
        far = p.moved(
            pure, _room((p.x, pure.x), (p.s, pure.s)), _room((p.z, pure.z), (p.y, pure.y))
        )
        mu = p.complementarity
        aim = mu * min(1.0, max(far.complementarity, 0.0) / mu) ** 3 if mu > 0 else 0.0
        step = newton(aim - p.x * p.z - pure.x * pure.z, aim - p.s * p.y - pure.s * pure.y)
        # One length for all: with a quadratic term primal and dual steps are coupled.
        length = min(
            1.0,
            _INSIDE * _room((p.x, step.x), (p.s, step.s), (p.z, step.z), (p.y, step.y), most=2.0),
        )
        return p.moved(step, length, length)


def _room(*pairs: tuple[Array, Array], most: float = 1.0) -> float:
    """Longest step, up to `most`, that leaves all numbers at zero or above."""
    for value, change in pairs:
        falling = change < 0
        if falling.any():
            most = min(most, float(np.min(-value[falling] / change[falling])))
    return most
