"""A sequence of problems that differ in their loss weight, each started from its neighbour."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from kernelweave.arrays import Array
from kernelweave.errors import InvalidInputError
from kernelweave.problem import Problem
from kernelweave.solvers.base import Solver
from kernelweave.solvers.certificate import feasible_alpha
from kernelweave.solvers.checkpoint import neighbour_start
from kernelweave.solvers.inner import Point
from kernelweave.solvers.loop import Limits, Result, prepared
from kernelweave.solvers.solve import reason_for_gap, settle
from kernelweave.validation import positive_number

# How far a kink may be from the intercept, relative to the targets, and still be at it: intercepts
# are known to about 1e-15, and a factor at which a kernel enters changes by this part at most.
_AT_THE_KINK = 1e-9


def solve_path(
    problem: Problem,
    factors: Sequence[float] | Array,
    solver: Solver,
    limits: Limits,
    start: Point | None = None,
) -> list[Result]:
    """Solve the problem with its loss weights times each factor, each from the one before.

    Parameters
    ----------
    problem : Problem
        The problem for a factor of one.
    factors : sequence of float
        Positive factors on ``problem.C``. They are taken in this order, so let neighbours be near:
        from small to large, as a rule.
    solver : Solver
        Any solver.
    limits : Limits
        When each of the fits stops; `max_time` is for one of them.
    start : Point, optional
        Where the first fit starts.

    Returns
    -------
    list of Result
        One for each factor; fewer if the fit was interrupted from the keyboard. All share one bank;
        where a fit needs a more exact one, those after it get that too. One warning tells of all
        the points that did not reach the tolerance.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.operators import DenseOperator
    >>> from kernelweave.combine import WeightedSum
    >>> from kernelweave.losses import Squared
    >>> from kernelweave.regularizers import L1
    >>> from kernelweave.solvers import SPG
    >>> x = np.linspace(-1, 1, 30)
    >>> bank = DenseOperator([np.outer(x, x), np.outer(x**2, x**2)])
    >>> y, C = (x + 0.2 * x**2)[None], np.ones((1, 30))
    >>> problem = Problem(bank, y, C, Squared(), L1(1.0), WeightedSum())
    >>> factors = entry_factor(problem) * np.array([0.9, 2.0, 50.0])
    >>> results = solve_path(problem, factors, SPG(), Limits())
    >>> [int(np.count_nonzero(result.d)) for result in results]
    [0, 1, 2]
    """
    factors = np.asarray([positive_number("each factor of a path", f) for f in factors])
    if not len(factors):
        raise InvalidInputError("factors is empty; a path needs at least one factor on C.")
    results = list(walk_path(problem, factors, solver, limits, start))
    pairs = zip(factors, results, strict=False)
    told = [(f, text) for f, r in pairs if (text := reason_for_gap(r, limits))]
    if told:
        at = ", ".join(f"{factor:.3g}" for factor, _ in told)
        warnings.warn(
            f"{len(told)} of {len(results)} points of the path did not converge, those at the "
            f"factors {at}. At the last of them {told[-1][1]}",
            ConvergenceWarning,
            stacklevel=2,
        )
    return results


def walk_path(
    problem: Problem, factors: Array, solver: Solver, limits: Limits, start: Point | None = None
) -> Iterator[Result]:
    """Yield the results of :func:`solve_path` one by one, without a word on those not converged."""
    problem = prepared(problem, solver)
    result, last_C = None, problem.C
    for factor in factors:
        here = replace(problem, C=factor * problem.C)
        if result is not None:
            start = neighbour_start(result, here.C, last_C)
        result, bank = settle(here, solver, limits, start)
        problem, last_C = problem.with_bank(bank), here.C
        yield result
        if result.reason == "interrupted":
            return


def intercept_only(problem: Problem) -> Point:
    r"""Solve the problem without any kernel: all weights zero, the best intercepts.

    :math:`\alpha_0` is minus the gradient of the loss there, the dual optimum without kernels. At a
    kink of a loss that is not smooth the gradient is an interval, and :math:`\alpha_0` need not be
    unique: where one class of the hinge loss has the larger weight, its samples are all at the
    kink. The same place in every interval is taken, the one that gives the right sum, so that a
    sample counts by its loss weight.
    """
    loss, y, C = problem.loss, problem.y, problem.C
    nothing = np.zeros(problem.n)
    intercept = np.array([loss.best_intercept(y[t], nothing, C[t]) for t in range(problem.n_tasks)])
    z = np.repeat(intercept[:, None], problem.n, axis=1)
    near = _AT_THE_KINK * np.maximum(problem.decision_unit, np.maximum(np.abs(y), np.abs(z)))
    near *= not loss.smooth
    low, high = 0.0 - loss.gradient(y, z + near, C), 0.0 - loss.gradient(y, z - near, C)
    room = (high - low).sum(axis=1)
    missing = loss.alpha_sum - low.sum(axis=1)
    place = np.divide(missing, room, out=np.zeros_like(room), where=room > 0)
    alpha = low + np.clip(place, 0.0, 1.0)[:, None] * (high - low)
    return Point.start(np.zeros(problem.m), feasible_alpha(problem, alpha), intercept)


def entry_factor(problem: Problem) -> float:
    r"""Return the factor on the loss weights up to which no kernel enters.

    With :math:`\alpha_0` the dual solution without kernels (:func:`intercept_only`) and loss
    weights :math:`t\,C` it is :math:`t\,\alpha_0`. All weights are zero while :math:`q(t \alpha_0)`
    leaves them there: under the l1 penalty while :math:`t^2 \max_k q_k(\alpha_0) \le 2 s`, which is
    the block l1 norm's :math:`c_{max} = \max_k \sqrt{q_k(\alpha_0)}` in our units.

    Returns
    -------
    float
        Up to this factor no kernel has weight. Just above it one has, where :math:`\alpha_0` is
        unique: for all smooth losses, and for the others unless samples are at a kink, as those of
        the larger class are under the hinge loss. There the first kernel enters at this factor or
        later. Zero if some kernel always has weight (simplex, lp ball), infinite if the
        intercept fits the targets so well that no kernel ever enters. For combinations other than
        sums "no kernel" is a stationary point, which need not be the best one.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.operators import DenseOperator
    >>> from kernelweave.combine import WeightedSum
    >>> from kernelweave.losses import Hinge
    >>> from kernelweave.regularizers import L1
    >>> bank = DenseOperator([np.eye(4)])
    >>> y, C = np.array([[1.0, 1.0, -1.0, -1.0]]), np.ones((1, 4))
    >>> entry_factor(Problem(bank, y, C, Hinge(), L1(2.0), WeightedSum()))
    1.0
    """
    return _entry(problem.bound(), intercept_only(problem))[0]


def first_factor(problem: Problem) -> float:
    r"""Return a factor on the loss weights for a path to start from.

    That is :func:`entry_factor` where the kernels enter one after the other. Where some kernel
    always has weight, it is the factor at which the best kernel (or all at equal weights) moves the
    decision values by half of the targets' unit: with :math:`\alpha = t\,\alpha_0`

    .. math:: t \max_k q_k(\alpha_0) = \tfrac12 \alpha_0^\top y,

    both sides divided by :math:`\sum_i |\alpha_{0i}|` being means over the samples, the right one 1
    for labels. It is 1 where there is nothing to learn, :math:`q(\alpha_0) = 0`.
    """
    problem = problem.bound()
    point = intercept_only(problem)
    entry, q = _entry(problem, point)
    if 0 < entry < np.inf:
        return entry
    most = max(float(q.max()), float(problem.regularizer.start(problem.m) @ q))
    gain = float(np.sum(point.alpha * problem.y))
    return 0.5 * gain / most if most > 0 and gain > 0 else 1.0


def _entry(problem: Problem, point: Point) -> tuple[float, Array]:
    """Return the entry factor, and alpha'(dK/dd_k) alpha without kernels."""
    q = problem.combination.derivative_quad(problem.bank, point.d, point.alpha, None)
    if not np.any(q > 0):
        return np.inf, q
    return float(problem.regularizer.entry_scale(q)), q
