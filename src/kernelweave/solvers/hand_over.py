"""Where a solver gives up too early, cutting planes go on from its last weights."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kernelweave.problem import Problem
from kernelweave.solvers.base import Solver
from kernelweave.solvers.inner import Point
from kernelweave.solvers.loop import Result, run, warn_of_interruption
from kernelweave.solvers.silp import SILP
from kernelweave.solvers.watch import Limits

__all__ = ["run_to_the_end"]


def run_to_the_end(
    problem: Problem, solver: Solver, limits: Limits, start: Point | None, *course: Any
) -> tuple[Result, Solver]:
    """Do what :func:`~kernelweave.solvers.loop.run` does; also returns the solver of the result.

    A fit that is taken up from where cutting planes had the lead goes on with them.
    """
    if start is not None and solver.hands_over and "planes" in start.extra:
        solver = SILP()
    result = run(problem, solver, limits, start, *course)
    found = result.certificate
    # Early is while rounding hides less than half of the gap.
    early = result.reason in ("stuck", "steps") and found.gap > 2.0 * found.rounding
    if not (early and solver.hands_over and problem.convex):
        return result, solver
    # Where T has no gradient the gap of a single alpha says little: the weights that the solver
    # came to last may be far better than those with the smallest gap. Its alpha makes a cut.
    last = result.last or result.start
    known = {"witness.alpha": result.alpha if result.witness is None else result.witness}
    there = Point.start(last.d, last.alpha, last.intercept, known)
    planes = SILP()
    try:
        other = run(problem, planes, limits, there, *course)
    except KeyboardInterrupt:
        # Before a first point of these: there is one all the same.
        warn_of_interruption(result.history, found.gap)
        return replace(result, reason="interrupted"), solver
    if other.certificate.gap < found.gap:
        return other, planes
    ended = "interrupted" if other.reason == "interrupted" else result.reason
    return replace(result, reason=ended), solver
