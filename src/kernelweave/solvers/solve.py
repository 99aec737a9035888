"""From a problem to a certified result: solver, first weights, the loop, a finer bank if needed."""

from __future__ import annotations

import time
import warnings
from contextlib import suppress
from dataclasses import replace
from functools import partial

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from kernelweave.compiled.threads import between_blocks
from kernelweave.deadline import NEVER, Deadline, TimeUp
from kernelweave.errors import InterruptedFitWarning
from kernelweave.memory import cache_bytes, square_side
from kernelweave.operators.base import KernelOperator
from kernelweave.problem import Problem
from kernelweave.solvers.base import SOLVERS, Solver, check_settings
from kernelweave.solvers.bundle import MOST_DENSE
from kernelweave.solvers.certificate import recompute
from kernelweave.solvers.checkpoint import about, header_of
from kernelweave.solvers.inner import Point
from kernelweave.solvers.loop import (
    OWN_SHARE,
    Limits,
    Record,
    Result,
    Watch,
    certified_anew,
    prepared,
    run,
    warn_of_interruption,
)
from kernelweave.solvers.silp import SILP, ActiveSet
from kernelweave.solvers.spg import SPG
from kernelweave.solvers.spicy import Spicy
from kernelweave.validation import unknown_name

# SpicyMKL solves linear systems of this size, each in less than a second, and pays with more
# kernels than this if they are to have sparse weights (``benchmarks/papers/spicy.py``).
_FEW_SAMPLES, _MANY_FOR_SPICY = 1500, 1000
# While a bank is off by so little that this part of the tolerance is left to the solver, the fit
# goes on with it; then a more exact one takes over. Where the gap falls by a factor in each step, a
# fifth of a tolerance of 1e-3 takes log 5 / log 1000, a quarter, more steps than all of it.
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
    return SILP() if problem.m <= MOST_DENSE else SPG()


def solve(problem: Problem, solver: Solver, limits: Limits, start: Point | None = None) -> Result:
    """Run `solver` to the tolerance, on a more exact bank if the first one stands in the way.

    Warns when the tolerance was not met, saying why and what to do.
    """
    result, _ = settle(problem, solver, limits, start)
    told = reason_for_gap(result, limits)
    if told:
        warnings.warn(told, ConvergenceWarning, stacklevel=2)
    return result


def settle(
    problem: Problem, solver: Solver, limits: Limits, start: Point | None = None
) -> tuple[Result, KernelOperator]:
    """Do what :func:`solve` does, without a warning; also returns the last bank it solved on."""
    limits = limits.with_checkpoints(partial(header_of, problem))
    if problem.deadline is NEVER:
        deadline = Deadline.after(limits.max_time, time.perf_counter(), limits.stop)
        problem = replace(problem, deadline=deadline)
    watch = Watch(limits, problem.deadline, None if start is None else start.progress)
    with limits.session(partial(about, problem, solver)):
        problem = problem.as_sum()
        if start is None and solver.starts_coarse():
            start = _first_weights(problem, solver, limits)
        # Once: weights that a solver learns beforehand must not change with a more exact bank.
        problem = prepared(problem, solver)
        result = None
        if start is not None and watch.since.gap <= limits.target():
            # The fit that is taken up had ended; as a rule there is nothing left to do.
            result = _certified_as_it_is(problem, start, watch)
        if result is None:
            result, solver = run_to_the_end(problem, solver, start, watch)
        share = OWN_SHARE
        try:
            while result.reason in ("bank", "stuck"):
                # Often the point is good enough and only its proof was not: look before solving
                # again.
                found = result.certificate
                result = certified_exactly(problem, solver, limits, result)
                if result.certificate is not found:
                    line = Record.of(watch, result.certificate, result.d, *watch.work)
                    watch.history.append(line)
                if result.converged:
                    break
                problem.deadline.check()
                # What the bank is off by in truth, which is far less than it could be as a rule.
                off = max(0.0, result.certificate.gap - (found.gap - found.approximation))
                left = OWN_SHARE - 1.5 * off / limits.tol if limits.tol > 0 else 0.0
                share = min(0.5 * share, left)
                if share < _LEAST_SHARE or result.reason == "stuck":
                    with between_blocks(problem.deadline.look(graces=0)):
                        finer, share = problem.bank.refined(), OWN_SHARE
                    if finer is None:
                        return result, problem.bank
                    problem = problem.with_bank(finer)
                before = result
                result, solver = run_to_the_end(problem, solver, before.start, watch, share)
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
            warn_of_interruption(watch.history, result.certificate.gap)
            if not result.converged:
                result = replace(result, reason="interrupted")
        if result.converged and limits.keep is not None:
            limits.keep.end(result)
    return result, problem.bank


def run_to_the_end(
    problem: Problem,
    solver: Solver,
    start: Point | None,
    watch: Watch,
    own_share: float = OWN_SHARE,
) -> tuple[Result, Solver]:
    """Do what :func:`run` does, with cutting planes where a solver gives up too early.

    They go on from its last weights, and also where a fit is taken up in which they had the lead.
    Also returns the solver of the result.
    """
    if start is not None and solver.hands_over and "planes" in start.extra:
        solver = SOLVERS["silp"]()
    result = run(problem, solver, watch.limits, start, watch, own_share)
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
    planes = SOLVERS["silp"]()
    try:
        other = run(problem, planes, watch.limits, there, watch, own_share)
    except KeyboardInterrupt:
        # Before a first point of these: there is one all the same.
        warn_of_interruption(result.history, found.gap)
        return replace(result, reason="interrupted"), solver
    if other.certificate.gap < found.gap:
        return other, planes
    ended = "interrupted" if other.reason == "interrupted" else result.reason
    return replace(result, reason=ended), solver


def _certified_as_it_is(problem: Problem, start: Point, watch: Watch) -> Result | None:
    """Return `start`, at which a fit ended, as the result if it needs no step, as far as is known.

    A bank that leaves too much open for any certificate is not the one that the fit ended on.
    """
    limits, witness = watch.limits, watch.since.witness
    certificate, alpha = recompute(problem, start.d, start.alpha, start.intercept, witness)
    reason = "converged" if limits.met_by(certificate) else "bank"
    if reason == "bank" and certificate.approximation <= limits.target(certificate.rounding):
        return None
    watch.history.append(Record.of(watch, certificate, start.d))
    return Result(start.d, alpha, certificate, reason, watch.history, witness)


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


# First weights, learnt on some of the samples or some of the kernels, where all are many

# From this many samples on, first weights are learnt on a part of them, then on four times as many
# while those are at most a quarter of all and the bytes for their matrices allow it. A pass goes
# with the square of the samples: all parts together cost a fifteenth of what the whole does.
_MANY_SAMPLES = 3000
_GROWTH = 4
# The mean loss of 1,000 samples is off by about 1 / sqrt(1000), 3%, and solved to a tenth of that.
# That of 200 is off by 7%, and tells too little of the weights.
_SOME_SAMPLES = 1000
_FEWEST_SAMPLES = 200
_ROUGH = 3e-3
# A limit for fits that do not come to that accuracy.
_ROUGH_STEPS = 50
# From this many kernels on, if all of them get a weight, first weights are learnt on a fiftieth, or
# on as many as tell their mean to about 1 / sqrt(5000), 1.4%: passes over them cost a tenth or less
# of those over all. (60,000 Gaussian kernels on 100 samples under the lp ball: 3.5 in place of 6.2
# seconds.)
_MANY_KERNELS = 50_000
_SHARE_OF_KERNELS = 50
_SOME_KERNELS = 5_000


def _first_weights(problem: Problem, solver: Solver, limits: Limits) -> Point | None:
    """Return a point to start from, or None where the problem is small enough as it is.

    Also None, or what there is, where the problem's time is over first.
    """
    start = None
    with suppress(TimeUp), between_blocks(problem.deadline.look()):
        for size in _sizes(problem):
            problem.deadline.check()
            start = _from_some_samples(problem, solver, limits, size, start)
        known = problem.regularizer.sparse or problem.regularizer.fixed
        if start is None and problem.m > _MANY_KERNELS and problem.convex and not known:
            start = _from_some_kernels(problem, solver, limits)
    return start


def _sizes(problem: Problem) -> list[int]:
    """Numbers of samples to learn first weights on, growing."""
    bank = problem.bank
    if problem.n <= _MANY_SAMPLES:
        return []
    most = problem.n / _GROWTH
    if problem.combination.linear:
        # A part of the samples of such a bank is kept as matrices, and two more of that size.
        most = min(most, square_side(cache_bytes(bank.cache_mb), problem.m + 2))
    if most < _FEWEST_SAMPLES:
        return []
    sizes = [int(min(_SOME_SAMPLES, most))]
    while _GROWTH * sizes[-1] <= most:
        sizes.append(_GROWTH * sizes[-1])
    return sizes


def _from_some_samples(
    problem: Problem, solver: Solver, limits: Limits, size: int, start: Point | None
) -> Point:
    """Learn weights on some of the samples: a pass over all of them costs many times more.

    The loss weights are raised so that the few stand for all. Less so, by the root, if the weights
    decide how local the kernel is, as in a product: few samples under large loss weights would be
    learnt by heart, with a far too narrow kernel.
    """
    factor = problem.n / size
    chosen = np.sort(np.random.default_rng(0).permutation(problem.n)[:size])
    few = replace(
        problem,
        bank=problem.bank.take(chosen),
        y=problem.y[:, chosen],
        C=problem.C[:, chosen] * (factor if problem.combination.linear else np.sqrt(factor)),
    )
    if start is not None:
        start = Point.start(start.d, np.zeros_like(few.y), np.zeros(few.n_tasks))
    d = _learnt(few, solver, limits, start).d
    return Point.start(d, np.zeros_like(problem.y), np.zeros(problem.n_tasks))


def _from_some_kernels(problem: Problem, solver: Solver, limits: Limits) -> Point | None:
    """Learn alpha with some of the kernels, and take for all kernels the weights it asks for.

    All kernels get a weight, so a part of them adds up to nearly the same kernel but for a factor:
    that by which the weights of all, taken equal, add up to more than those of the part. A larger
    kernel is the same as a larger loss weight.
    """
    regularizer = problem.regularizer
    count = max(_SOME_KERNELS, problem.m // _SHARE_OF_KERNELS)
    chosen = np.sort(np.random.default_rng(0).permutation(problem.m)[:count])
    factor = float(regularizer.start(problem.m).sum() / regularizer.start(len(chosen)).sum())
    few = replace(problem, bank=problem.bank.select(chosen), C=problem.C * factor)
    result = _learnt(few, solver, limits, None)
    alpha = result.alpha / factor
    d = regularizer.dual_weights(problem.bank.quad(alpha))
    return None if d is None else Point.start(d, alpha, result.intercept)


def _learnt(few: Problem, solver: Solver, limits: Limits, start: Point | None) -> Result:
    """Solve the smaller problem roughly; Ctrl-C, which it would end with, ends the whole fit."""
    rough = Limits(max(limits.tol, _ROUGH), min(limits.max_iter, _ROUGH_STEPS))
    with warnings.catch_warnings():
        # What is kept then is no model of the whole problem.
        warnings.simplefilter("ignore", InterruptedFitWarning)
        result, _ = run_to_the_end(few, solver, start, Watch(rough, few.deadline))
    if result.reason == "interrupted":
        raise KeyboardInterrupt("interrupted while first weights were learnt.")
    return result
