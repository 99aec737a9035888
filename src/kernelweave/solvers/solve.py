"""From a problem to a certified result: first weights, the loop, a finer bank if it is needed."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from sklearn.exceptions import ConvergenceWarning

from kernelweave.bank.protocol import MatrixBank
from kernelweave.deadline import Deadline
from kernelweave.problem import Problem
from kernelweave.solvers.base import Solver
from kernelweave.solvers.certificate import recompute
from kernelweave.solvers.checkpoint import Checkpoint, Session
from kernelweave.solvers.coarse import first_weights
from kernelweave.solvers.inner import Point
from kernelweave.solvers.loop import (
    Record,
    Result,
    certified_as_it_is,
    prepared,
    run,
    tolerance,
)
from kernelweave.solvers.resume import about, header_of, result_numbers
from kernelweave.solvers.watch import Limits, Progress

__all__ = ["reason_for_gap", "settle", "solve"]


def solve(problem: Problem, solver: Solver, limits: Limits, start: Point | None = None) -> Result:
    """Run `solver` to the tolerance, on a more exact bank if the first one stands in the way.

    Warns when the tolerance was not met, saying why and what to do.
    """
    result, _ = settle(problem, solver, limits, start, lambda bank: bank.refined())
    told = reason_for_gap(result, limits)
    if told:
        warnings.warn(told, ConvergenceWarning, stacklevel=2)
    return result


def settle(
    problem: Problem,
    solver: Solver,
    limits: Limits,
    start: Point | None,
    refine: Callable[[Any], MatrixBank | None],
) -> tuple[Result, MatrixBank]:
    """Do what :func:`solve` does, without a warning; also returns the last bank it solved on.

    `refine` gives the more exact bank of a bank, if there is one.
    """
    checkpoints = [c for c in limits.callbacks if isinstance(c, Checkpoint)]
    if not checkpoints:
        return _settle(problem, solver, limits, start, refine)
    with Session(checkpoints, header_of(problem)) as session:
        kept = session.limits(limits, 0, about(problem, solver))
        result, bank = _settle(problem, solver, kept, start, refine)
        if result.converged:
            session.end(0, result.history[-1], result_numbers(result))
    return result, bank


def _settle(
    problem: Problem,
    solver: Solver,
    limits: Limits,
    start: Point | None,
    refine: Callable[[Any], MatrixBank | None],
) -> tuple[Result, MatrixBank]:
    since = Progress() if start is None or start.progress is None else start.progress
    problem = problem.as_sum()
    now = time.perf_counter()
    began = now - since.seconds
    if limits.max_time is not None:
        problem = replace(problem, deadline=Deadline.after(limits.max_time, now))
    if start is None and solver.tries_weights:
        start = first_weights(problem, solver, limits)
    # Once: weights that a solver learns beforehand must not change with a more exact bank.
    problem = prepared(problem, solver)
    result = None
    if start is not None and since.gap <= limits.target():
        # The fit that is taken up had ended; as a rule there is nothing left to do.
        result = certified_as_it_is(problem, solver, limits, start, since)
    history: list[Record] = [] if result is None else result.history
    if result is None:
        result = run(problem, solver, limits, start, history, began, since)
    solved_on = problem.bank
    while result.reason == "bank":
        finer = refine(problem.bank)
        if finer is None:
            result = _certified_anew(problem, solver, limits, result, began, finest=True)
            break
        problem = problem.with_bank(finer)
        # Often the point is good enough and only its proof was not: look before solving again.
        result = _certified_anew(problem, solver, limits, result, began)
        if not result.converged and problem.deadline.passed():
            result = replace(result, reason="max_time")
        elif not result.converged:
            result = run(problem, solver, limits, result.start, history, began, since)
            solved_on = finer
    return result, solved_on


def _certified_anew(
    problem: Problem,
    solver: Solver,
    limits: Limits,
    result: Result,
    began: float,
    finest: bool = False,
) -> Result:
    """Return the same point with a certificate from another bank, as one more line of history."""
    certificate, alpha = recompute(
        prepared(problem, solver), result.d, result.alpha, result.intercept, result.witness
    )
    last = result.history[-1]
    result.history.append(
        replace(
            last,
            iteration=last.iteration + 1,
            seconds=time.perf_counter() - began,
            primal=certificate.primal,
            dual=certificate.dual,
            gap=certificate.gap,
        )
    )
    converged = certificate.gap <= tolerance(problem, limits, certificate, finest)
    return replace(
        result,
        alpha=alpha,
        intercept=certificate.intercept,
        certificate=certificate,
        converged=converged,
        reason="converged" if converged else result.reason,
    )


def reason_for_gap(result: Result, limits: Limits) -> str:
    """Say that the tolerance was not met, why, and what to do; "" where there is nothing to say."""
    if result.converged or result.reason in ("interrupted", "callback"):
        return ""
    advice = {
        "max_iter": f"max_iter={limits.max_iter} was reached; raise it or tol",
        "max_time": f"max_time={limits.max_time} s was reached; raise it or tol",
        "stuck": "rounding stops further progress; rescale the data, lower C or raise tol",
        "steps": "a single kernel takes too many steps with C this large; lower C, scale the data, "
        "or take a loss without corners ('squared_hinge', 'squared')",
        "rounds": "the rounds of the solver are done; raise its max_iter, lower its eps or, if its "
        "target omega is given, leave that to omega='auto'",
        "bank": "the bank is not exact enough; use bank='dense' or raise tol",
    }
    what = {
        "duality": "relative duality gap",
        "projected_gradient": "relative projected gradient",
    }[result.certificate.kind]
    return (
        f"the {what} is {result.certificate.gap:.2g}, above {_told_tolerance(limits)}: "
        f"{advice.get(result.reason, result.reason)}."
    )


def _told_tolerance(limits: Limits) -> str:
    return f"tol={limits.tol:g}" if limits.tol > 0 else "what float64 can resolve (tol=0)"
