"""From a problem to a certified result: first weights, the loop, a finer bank if it is needed."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from sklearn.exceptions import ConvergenceWarning

from kernelweave.bank.protocol import MatrixBank
from kernelweave.problem import Problem
from kernelweave.solvers.base import Solver
from kernelweave.solvers.certificate import recompute
from kernelweave.solvers.coarse import first_weights
from kernelweave.solvers.inner import Point
from kernelweave.solvers.loop import Record, Result, prepared, run
from kernelweave.solvers.watch import Limits

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
    began = time.perf_counter()
    history: list[Record] = []
    if start is None:
        start = first_weights(problem, solver, limits)
    result = run(problem, solver, limits, start, history, began)
    solved_on = problem.bank
    while result.reason == "bank":
        finer = refine(problem.bank)
        if finer is None:
            result = _certified_anew(problem, solver, limits, result, began)
            break
        problem = problem.with_bank(finer)
        # Often the point is good enough and only its proof was not: look before solving again.
        result = _certified_anew(problem, solver, limits, result, began)
        if not result.converged:
            result = run(problem, solver, limits, result.start, history, began)
            solved_on = finer
    return result, solved_on


def _certified_anew(
    problem: Problem, solver: Solver, limits: Limits, result: Result, began: float
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
    converged = certificate.gap <= limits.tol
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
        "bank": "the bank is not exact enough; use bank='dense' or raise tol",
    }
    what = {
        "duality": "relative duality gap",
        "projected_gradient": "relative projected gradient",
    }[result.certificate.kind]
    return (
        f"the {what} is {result.certificate.gap:.2g}, above tol={limits.tol:g}: "
        f"{advice.get(result.reason, result.reason)}."
    )
