"""The dual of the two soft margins, as rounds of pairs see it."""

from __future__ import annotations

import numpy as np

from kernelweave.losses.base import Loss
from kernelweave.losses.piecewise_linear import Hinge
from kernelweave.losses.smooth import SquaredHinge
from kernelweave.operators.rounds import BoxConstraints
from kernelweave.problem import Array, Problem

__all__ = ["BISECTED", "SOFT_MARGINS", "pair_rules", "ridge_of"]

# MWUMKL, footnote 1: the 1-norm soft margin bounds alpha, the 2-norm adds to the diagonal.
SOFT_MARGINS: dict[str, type[Loss]] = {"l1": Hinge, "l2": SquaredHinge}


class _GivenIntercept:
    """A loss under which the certificate is that of the intercept it is given, not of the best."""

    def best_intercept(self, y: Array, f: Array, C: Array, start: float = 0.0) -> float:
        """Return the intercept given."""
        return start


class _BisectedHinge(_GivenIntercept, Hinge):
    pass


class _BisectedSquaredHinge(_GivenIntercept, SquaredHinge):
    pass


# The losses of algorithm 4, whose intercept bisects the two hulls.
BISECTED: dict[type[Loss], type[Loss]] = {
    Hinge: _BisectedHinge,
    SquaredHinge: _BisectedSquaredHinge,
}


def ridge_of(problem: Problem) -> Array:
    """What the loss adds to the diagonal of every kernel, shape (T, n): 1/(2C) for the 2-norm."""
    if not isinstance(problem.loss, SquaredHinge):
        return np.zeros_like(problem.C)
    # A sample of weight zero may not move, whatever its diagonal.
    return np.divide(0.5, problem.C, out=np.zeros_like(problem.C), where=problem.C > 0)


def pair_rules(problem: Problem, task: int) -> BoxConstraints:
    """Return the rules of the dual: who may move in its box, and the rate at which it rises."""
    low, high = problem.loss.domain(problem.y, problem.C)
    return BoxConstraints(
        np.ascontiguousarray(problem.y[task]),
        ridge_of(problem)[task],
        np.array(high[task], dtype=np.float64),
        np.array(low[task], dtype=np.float64),
    )
