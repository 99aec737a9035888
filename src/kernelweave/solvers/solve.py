"""From a problem to a certified result: the solver, the loop, a finer bank if it is needed."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from operator import methodcaller
from typing import Any

from sklearn.exceptions import ConvergenceWarning

from kernelweave.compiled.threads import between_blocks
from kernelweave.deadline import NEVER, Deadline, TimeUp
from kernelweave.operators.base import KernelOperator
from kernelweave.problem import Problem
from kernelweave.solvers.base import SOLVERS, Solver, check_settings
from kernelweave.solvers.certificate import recompute
from kernelweave.solvers.checkpoint import Session, about, header_of, result_numbers
from kernelweave.solvers.coarse import first_weights
from kernelweave.solvers.inner import Point
from kernelweave.solvers.kept import Progress
from kernelweave.solvers.loop import (
    OWN_SHARE,
    Limits,
    Record,
    Result,
    certified_anew,
    prepared,
    run_to_the_end,
    warn_of_interruption,
)
from kernelweave.solvers.silp import SILP, ActiveSet
from kernelweave.solvers.spg import SPG
from kernelweave.solvers.spicy import Spicy
from kernelweave.validation import unknown_name

# Most kernels whose curvature, a matrix of 200 MB, SILP takes where all of them have weight.
_MANY_KERNELS = 5000
# SpicyMKL solves linear systems of this size, each in less than a second, and pays with more
# kernels than this if they are to have sparse weights (``benchmarks/papers/spicy.py``).
_FEW_SAMPLES, _MANY_FOR_SPICY = 1500, 1000
# While a bank is off by so little that this part of the tolerance is left to the solver, the fit
# goes on with it; then a more exact one takes over.
_LEAST_SHARE = 0.2


def check_solver(spec: str | Solver) -> None:
    """Raise if `spec` is neither a solver, of allowed settings, nor the name of one."""
    if isinstance(spec, Solver):
        check_settings(spec)
    elif spec not in ("auto", *SOLVERS):
        raise unknown_name("solver", spec, ["auto", *SOLVERS])


def get_solver(spec: str | Solver, problem: Problem) -> Solver:
    """Return the solver of that name with its default settings, or `spec` itself.

    "auto" is the solver that was fastest for such problems. Outside linear combinations and convex
    regularizers there is only SPG. Sparse weights (simplex, l1) go to second-order steps. Under the
    lp ball SPG is as good as any and takes any number of kernels; the other regularizers go to
    SILP, which needs a fraction of the single-kernel solves
    (``benchmarks/papers/silp_solvers.py``). Where losses have no corners and samples are few,
    SpicyMKL is faster than either on more than 1,000 kernels, under the elastic net and under
    block norms (``benchmarks/papers/spicy.py``).
    """
    check_solver(spec)
    if isinstance(spec, Solver):
        return spec
    if spec != "auto":
        return SOLVERS[spec]()
    regularizer = problem.regularizer
    if not problem.convex:
        return SPG()
    if problem.loss.task == "one_class":
        # Several alphas can be best, as for columns of few distinct values: second-order steps
        # know of one only, and get stuck.
        return SPG()
    few_samples = problem.n * problem.n_tasks <= _FEW_SAMPLES and problem.loss.steep
    if regularizer.sparse and regularizer.polyhedral:
        return Spicy() if few_samples and problem.m > _MANY_FOR_SPICY else ActiveSet()
    if regularizer.sparse and regularizer.proximal and few_samples:
        return Spicy()
    if regularizer.bounded and regularizer.proximal:
        return SILP() if regularizer.polyhedral else SPG()
    return SILP() if problem.m <= _MANY_KERNELS else SPG()


def solve(problem: Problem, solver: Solver, limits: Limits, start: Point | None = None) -> Result:
    """Run `solver` to the tolerance, on a more exact bank if the first one stands in the way.

    Warns when the tolerance was not met, saying why and what to do.
    """
    result, _ = settle(problem, solver, limits, start, methodcaller("refined"))
    told = reason_for_gap(result, limits)
    if told:
        warnings.warn(told, ConvergenceWarning, stacklevel=2)
    return result


def settle(
    problem: Problem,
    solver: Solver,
    limits: Limits,
    start: Point | None,
    refine: Callable[[Any], KernelOperator | None],
) -> tuple[Result, KernelOperator]:
    """Do what :func:`solve` does, without a warning; also returns the last bank it solved on.

    `refine` gives the more exact bank of a bank, if there is one.
    """
    since = Progress() if start is None or start.progress is None else start.progress
    now = time.perf_counter()
    began = now - since.seconds
    with Session(limits.callbacks, header_of(problem)) as session:
        limits = session.limits(limits, 0, partial(about, problem, solver))
        if problem.deadline is NEVER:
            problem = replace(problem, deadline=Deadline.after(limits.max_time, now, limits.stop))
        problem = problem.as_sum()
        if start is None and solver.starts_coarse():
            start = first_weights(problem, solver, limits)
        # Once: weights that a solver learns beforehand must not change with a more exact bank.
        problem = prepared(problem, solver)
        result = None
        if start is not None and since.gap <= limits.target():
            # The fit that is taken up had ended; as a rule there is nothing left to do.
            result = _certified_as_it_is(problem, limits, start, since)
        history: list[Record] = [] if result is None else result.history
        course = history, began, since
        if result is None:
            result, solver = run_to_the_end(problem, solver, limits, start, *course)
        solved_on, share = problem.bank, OWN_SHARE
        try:
            while result.reason in ("bank", "stuck"):
                # Often the point is good enough and only its proof was not: look before solving
                # again.
                found = result.certificate
                result = certified_exactly(problem, solver, limits, result)
                if result.certificate is not found:
                    last, seconds = history[-1], time.perf_counter() - began
                    at = last.iteration + 1, seconds, result.certificate, result.d
                    history.append(Record.of(*at, last.inner_iterations, last.inner_solves))
                if result.converged:
                    break
                problem.deadline.check()
                # What the bank is off by in truth, which is far less than it could be as a rule.
                off = max(0.0, result.certificate.gap - (found.gap - found.approximation))
                left = OWN_SHARE - 1.5 * off / limits.tol if limits.tol > 0 else 0.0
                share = min(0.5 * share, left)
                if share < _LEAST_SHARE or result.reason == "stuck":
                    with between_blocks(problem.deadline.look(graces=0)):
                        finer, share = refine(problem.bank), OWN_SHARE
                    if finer is None:
                        return result, solved_on
                    problem, solved_on = problem.with_bank(finer), finer
                before = result
                result, solver = run_to_the_end(
                    problem, solver, limits, before.start, *course, share
                )
                cut = result.reason in ("max_time", "interrupted")
                if cut and before.certificate.gap < result.certificate.gap:
                    result = replace(before, reason=result.reason)
            # Where the problem is not convex, what the bank is off by has not been counted.
            if not result.converged or not problem.convex:
                result = certified_exactly(problem, solver, limits, result)
        except TimeUp:
            result = replace(result, reason="max_time")
        except KeyboardInterrupt:
            # Between two runs, or before a first point of the second one.
            warn_of_interruption(history, result.certificate.gap)
            if not result.converged:
                result = replace(result, reason="interrupted")
        if result.converged:
            session.end(0, result.history[-1], result_numbers(result))
    return result, solved_on


def _certified_as_it_is(
    problem: Problem, limits: Limits, start: Point, since: Progress
) -> Result | None:
    """Return `start`, at which a fit ended, as the result if it needs no step, as far as is known.

    A bank that leaves too much open for any certificate is not the one that the fit ended on.
    """
    began = time.perf_counter()
    certificate, alpha = recompute(problem, start.d, start.alpha, start.intercept, since.witness)
    reason = "converged" if limits.met_by(certificate) else "bank"
    if reason == "bank" and certificate.approximation <= limits.target(certificate.rounding):
        return None
    seconds = since.seconds + time.perf_counter() - began
    record = Record.of(since.iteration, seconds, certificate, start.d)
    return Result(start.d, alpha, certificate, reason, [record], since.witness)


def certified_exactly(problem: Problem, solver: Solver, limits: Limits, result: Result) -> Result:
    """Return the same point certified by the kernels themselves, if the bank is not exact.

    Where there is no time for that, the certificate that counts the bank's errors stays.
    """
    exact = problem.with_bank(problem.bank.exact())
    if exact.bank is problem.bank:
        return result
    try:
        certificate, alpha = certified_anew(
            prepared(exact, solver), result, result.witness, result.reason
        )
    except TimeUp:
        return result
    reason = "bank" if result.converged else result.reason
    if limits.met_by(certificate):
        reason = "converged"
    return replace(result, alpha=alpha, certificate=certificate, reason=reason)


def reason_for_gap(result: Result, limits: Limits) -> str:
    """Say that the tolerance was not met, why, and what to do; "" where there is nothing to say."""
    if result.converged or result.reason in ("interrupted", "callback"):
        return ""
    advice = {
        "max_iter": f"max_iter={limits.max_iter} was reached; raise it or tol",
        "max_time": f"max_time={limits.max_time} s was reached; raise it or tol",
        "stuck": "rounding stops further progress; rescale the data, lower C or raise tol"
        if result.certificate.at_rounding
        else "the solver finds no better weights, though rounding is not in the way; use another "
        "solver or raise tol",
        "steps": "a single kernel takes too many steps with C this large; lower C, scale the data, "
        "or take a loss without corners ('squared_hinge', 'squared')",
        "rounds": "the rounds of the solver are done; raise its max_iter, lower its eps or, if its "
        "target omega is given, leave that to omega='auto'",
        "bank": "the bank is not exact enough; use bank='dense' or raise tol",
    }
    what = "duality gap" if result.certificate.kind == "duality" else "projected gradient"
    tolerance = f"tol={limits.tol:g}" if limits.tol > 0 else "what float64 can resolve (tol=0)"
    return (
        f"the relative {what} is {result.certificate.gap:.2g}, above {tolerance}: "
        f"{advice.get(result.reason, result.reason)}."
    )
