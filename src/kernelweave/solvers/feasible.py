"""The nearest feasible dual point: inside its box, with the right sum."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from kernelweave.arrays import Array
from kernelweave.errors import InvalidInputError
from kernelweave.problem import Problem
from kernelweave.root_search import rising_root

__all__ = ["centre", "feasible_alpha"]

_EPS = float(np.finfo(np.float64).eps)


def centre(alpha: ArrayLike, lo: ArrayLike, hi: ArrayLike, total: float = 0.0) -> Array:
    r"""Project onto :math:`\{lo \le \alpha \le hi,\ \sum_i \alpha_i = \mathrm{total}\}`.

    The nearest point is :math:`\mathrm{clip}(\alpha - \tau, lo, hi)` with the :math:`\tau` that
    gives the right sum. The sum is piecewise linear and falls with :math:`\tau`: Newton steps end
    in the right piece after finitely many of them. A point that is feasible to rounding is returned
    as it is. Ends of the box may be infinite; if no point of it has that sum, this raises.

    Examples
    --------
    >>> centre(np.array([3.0, 1.0, 0.5]), np.zeros(3), np.full(3, 2.0), 2.5).tolist()
    [2.0, 0.5, 0.0]
    """
    start = np.asarray(alpha, dtype=np.float64)
    low, high = np.broadcast_to(lo, start.shape), np.broadcast_to(hi, start.shape)
    least, most = float(low.sum()), float(high.sum())
    slack = 1e-9 * (abs(total) or float(np.abs(start).max(initial=0.0)))
    if not least - slack <= total <= most + slack:
        raise InvalidInputError(
            f"no dual point has the sum {total:g}: with these bounds sums go from {least:g} to "
            f"{most:g}."
        )

    point = start

    def excess(tau: float) -> tuple[float, float, float]:
        nonlocal point
        moved = start - tau
        point = np.clip(moved, low, high)
        over = float(point.sum()) - total
        size = float(np.abs(point).sum()) + abs(total)
        # At an end of the box only the step back inside changes the sum.
        free = int(np.count_nonzero((moved > low) & (moved < high))) if over else 1
        return -over, size, tau + over / free if free else np.nan

    first, last = float(np.min(start - high, initial=0.0)), float(np.max(start - low, initial=0.0))
    rising_root(excess, 0.0, first, last)
    return _absorb(point, low, high, total)


def _absorb(point: Array, low: Array, high: Array, total: float) -> Array:
    """Give what is left of the sum to the entry with the most room, if it is more than rounding.

    Steps in tau smaller than its last digit cannot be taken when alpha is huge beside the total.
    """
    excess = float(point.sum()) - total
    if abs(excess) <= 4.0 * _EPS * (float(np.abs(point).sum()) + abs(total)):
        return point
    room = point - low if excess > 0 else high - point
    most = int(np.argmax(room))
    point[most] -= np.sign(excess) * min(abs(excess), float(room[most]))
    return point


def feasible_alpha(problem: Problem, alpha: Array) -> Array:
    """Return alpha moved to the nearest point of its box with the right sum."""
    lo, hi = problem.loss.domain(problem.y, problem.C)
    rows = [centre(alpha[t], lo[t], hi[t], problem.loss.alpha_sum) for t in range(problem.n_tasks)]
    return np.array(rows)
