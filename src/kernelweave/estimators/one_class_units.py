"""One-class problems in units in which their objective is not far below one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from kernelweave.losses import OneClass
from kernelweave.problem import Array, Problem
from kernelweave.solvers import Limits, Point, Record, Result, Solver, solve
from kernelweave.solvers.watch import Keeper, Numbers

__all__ = ["mean_diagonal", "solve_one_class"]

# Kernels that are asked for their diagonal: with a million of them some are enough.
_SOME_KERNELS = 1000


class _OneClassOfSum(OneClass):
    """The one-class loss in other units: alphas of sum `total`."""

    def __init__(self, total: float) -> None:
        self.alpha_sum = total  # type: ignore[misc]


def mean_diagonal(problem: Problem) -> float:
    """Largest mean diagonal of the kernels: 1 if they are normalised."""
    some = np.unique(np.linspace(0, problem.m - 1, _SOME_KERNELS).astype(np.int64))
    diagonal: Array = problem.bank.diag(some)
    return float(np.max(diagonal.mean(axis=1)))


# What is in units of alpha; the numbers of a solver stay in the units in which it will see them.
_OF_ALPHA = ("alpha", "intercept", "best.alpha", "best.intercept", "witness")


class _OwnUnitsKeeper(Keeper):
    """Hands on where the fit stands, in the units of the problem."""

    def __init__(self, keeper: Keeper, own: Callable[[Record], Record], t: float) -> None:
        self._keeper, self._own, self._t = keeper, own, t

    def keep(self, line: Any, numbers: Callable[[], Numbers]) -> None:
        def own() -> Numbers:
            return {k: v / self._t if k in _OF_ALPHA else v for k, v in numbers().items()}

        self._keeper.keep(self._own(line), own)


def _in_units(start: Point, t: float) -> Point:
    progress = start.progress
    if progress is not None and progress.witness is not None:
        progress = replace(progress, witness=t * progress.witness)
    return Point.start(start.d, t * start.alpha, t * start.intercept, start.extra, progress)


def solve_one_class(
    problem: Problem, solver: Solver, limits: Limits, start: Point | None = None
) -> Result:
    r"""Solve a one-class problem to a gap that is small beside its objective.

    The objective has no unit of its own: it is :math:`-\tfrac12 \alpha^\top K(d)\, \alpha` for
    alphas of sum one, of the size of :math:`K_{ii} / n` for a narrow kernel. Everybody else counts
    in units of one: gaps are relative to the larger of one and the objective, and steps and
    tolerances start from such sizes. So the problem is handed on with alphas of sum t,

    .. math:: t\, \alpha,\quad t\, C,\quad t^2\, r(d) \quad\text{for}\quad \alpha,\ C,\ r(d),
              \qquad t^2 = 2 n / \bar K_{ii},

    which multiplies the objective by :math:`t^2` and changes nothing else, and the result is given
    in the units of the problem. With entries :math:`K_{ij} \ge 0` the objective handed on is at
    least one: :math:`\alpha^\top K \alpha \ge \sum_i \alpha_i^2 K_{ii}`.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.bank import DenseBank
    >>> from kernelweave.combine import WeightedSum
    >>> from kernelweave.regularizers import Simplex
    >>> from kernelweave.solvers import SPG
    >>> bank = DenseBank().from_matrices([np.diag([1e-5, 2e-5])])
    >>> y, C = np.ones((1, 2)), np.ones((1, 2))
    >>> problem = Problem(bank, y, C, OneClass(), Simplex(), WeightedSum())
    >>> solve_one_class(problem, SPG(), Limits(tol=1e-6)).alpha.round(4)
    array([[0.6667, 0.3333]])
    """
    t = np.sqrt(2.0 * problem.n / (mean_diagonal(problem) or 1.0))
    scaled = replace(
        problem,
        C=t * problem.C,
        loss=_OneClassOfSum(t),
        regularizer=problem.regularizer.scaled(t**2),
    )
    if start is not None:
        start = _in_units(start, t)

    def in_own_units(record: Record) -> Record:
        return replace(record, primal=record.primal / t**2, dual=record.dual / t**2)

    def tell(callback: Any) -> Any:
        if isinstance(callback, Keeper):
            return _OwnUnitsKeeper(callback, in_own_units, t)
        return lambda record: callback(in_own_units(record))

    told = replace(limits, callbacks=tuple(tell(callback) for callback in limits.callbacks))
    result = solve(scaled, solver, told, start)
    certificate = replace(
        result.certificate,
        primal=result.certificate.primal / t**2,
        dual=result.certificate.dual / t**2,
        bank_primal=result.certificate.bank_primal / t**2,
        intercept=result.certificate.intercept / t,
    )
    return replace(
        result,
        alpha=result.alpha / t,
        intercept=result.intercept / t,
        certificate=certificate,
        history=[in_own_units(record) for record in result.history],
        witness=None if result.witness is None else result.witness / t,
    )
