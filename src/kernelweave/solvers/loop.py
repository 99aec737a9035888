"""The only outer loop: time, history, stopping, progress, callbacks, Ctrl-C."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from kernelweave.compiled.threads import between_blocks, one_blas_thread
from kernelweave.deadline import Deadline, TimeUp
from kernelweave.errors import InterruptedFitWarning, InvalidInputError
from kernelweave.problem import Array, Problem
from kernelweave.solvers.base import Solver, State
from kernelweave.solvers.certificate import (
    Certificate,
    Witness,
    best_intercepts,
    certify,
    recompute,
)
from kernelweave.solvers.feasible import feasible_alpha
from kernelweave.solvers.inner import Point, owed_by_alpha
from kernelweave.solvers.kept import Numbers
from kernelweave.solvers.resume import numbers_of
from kernelweave.solvers.screening import Screening
from kernelweave.solvers.settings import check_settings
from kernelweave.solvers.watch import Limits, Progress, Watch

__all__ = [
    "OWN_SHARE",
    "Record",
    "Result",
    "certified_as_it_is",
    "last_passes",
    "prepared",
    "run",
    "warn_of_interruption",
]


@dataclass(frozen=True)
class Record:
    """One line of a fit's history; callbacks are given the newest one."""

    iteration: int
    seconds: float
    primal: float
    dual: float
    gap: float
    active_kernels: int
    inner_iterations: int
    inner_solves: int

    @classmethod
    def of(
        cls,
        iteration: int,
        seconds: float,
        certificate: Certificate,
        d: Array,
        steps: int = 0,
        solves: int = 0,
    ) -> Record:
        """Return the line of a point with weights `d`."""
        found = certificate.primal, certificate.dual, certificate.gap
        return cls(iteration, seconds, *found, int(np.count_nonzero(d)), steps, solves)

    def told(self) -> str:
        """Return what progress shows of it."""
        return f"objective {self.primal:.6g}  gap {self.gap:.2e}  kernels {self.active_kernels}"


# A little below the tolerance, so that the last certificate, taken anew, meets it too.
_MARGIN = 0.99
# Part of the tolerance that a solver may use up on a bank that is not exact.
OWN_SHARE = 0.9


@dataclass(frozen=True)
class Result:
    """The end of a fit.

    `witness` are dual variables that bound the optimum better than alpha, `extra` what the solver
    needs to go on where another bank has to take over, `last` is where it stood in the end.
    """

    d: Array
    alpha: Array
    intercept: Array
    certificate: Certificate
    converged: bool
    reason: str
    history: list[Record] = field(repr=False)
    witness: Array | None = field(default=None, repr=False)
    extra: Numbers = field(default_factory=dict, repr=False)
    last: Point | None = field(default=None, repr=False)

    @property
    def start(self) -> Point:
        """This result as the starting point of another fit."""
        return Point.start(self.d, self.alpha, self.intercept, self.extra)


class _Best:
    """The best point so far: smallest gap, or lowest objective where there is no duality gap.

    What the bank leaves open is not the point's fault and does not count.
    """

    def __init__(self) -> None:
        self.point: Point | None = None
        self.state: State | None = None
        self.certificate: Certificate | None = None
        self.witness: Array | None = None
        self.gap = np.inf
        self._score = np.inf

    def offer(self, state: State, certificate: Certificate, tol: float, unit: float) -> bool:
        """Take the state's point if it is better; returns whether the fit has converged with it.

        A stationary point above another point seen is not the end; `unit` is that of objectives.
        """
        duality = certificate.kind == "duality"
        score = certificate.gap - certificate.approximation if duality else certificate.primal
        converged = certificate.gap <= _MARGIN * tol
        if not duality:
            converged &= score <= self._score + tol * unit
        if converged or state.last_counts or score < self._score:
            self.point, self.certificate = state.point, certificate
            self.state = state
            self.witness = None if state.witness is None else state.witness.alpha
            self.gap, self._score = certificate.gap, score
        return converged


def prepared(problem: Problem, solver: Solver) -> Problem:
    """Return the problem that `solver` really solves, its regularizer told about the kernels.

    The entry to every fit: the settings of the solver are checked here.
    """
    check_settings(solver)
    return solver.prepare(problem.bound())


# One BLAS thread: the threads are ours, and sums keep their order whatever n_jobs is.
@one_blas_thread()
def run(
    problem: Problem,
    solver: Solver,
    limits: Limits,
    start: Point | None,
    history: list[Record],
    began: float,
    since: Progress | None = None,
    own_share: float = OWN_SHARE,
) -> Result:
    """Drive `solver` until the certificate, a limit, a callback or the user says stop.

    Appends to `history`, keeps the best point, and certifies it from scratch at the end. `since`
    says how far a fit had come that this one goes on with; iterations count on from there. On a
    bank that is not exact the run ends, with the reason "bank", when the gap but for the bank's
    errors is `own_share` of the tolerance: the kernels themselves then have to say how large it is.
    The time limit is the problem's deadline.
    """
    problem = prepared(problem, solver)
    screening = Screening.for_problem(problem) if solver.tries_weights else None
    best = _Best()
    since = since or Progress()
    watch = Watch(limits, history, began, since, problem.deadline)
    # Work counts on from what another solver, or this one on another bank, did for the same fit.
    steps, solves = 0, 0
    if history:
        steps, solves = history[-1].inner_iterations, history[-1].inner_solves
    reason = "interrupted"
    state: State | None = None
    proof: tuple[Certificate, Array] | None = None
    try:
        with between_blocks(problem.deadline.look()):
            state = solver.init(problem, start)
        while True:
            certificate = _certify_state(problem, state, resolve=not limits.tol)
            tol = limits.target(certificate.rounding)
            converged = best.offer(state, certificate, tol, problem.unit(certificate.primal))
            record = Record.of(
                since.iteration + len(history),
                watch.seconds,
                certificate,
                state.point.d,
                steps + state.evaluator.n_steps,
                solves + state.evaluator.n_solves,
            )
            watch.note(record, partial(numbers_of, solver, state, best.point, best.witness))
            open_part, proven = certificate.gap - certificate.approximation, False
            if converged and (state.ended or not state.to_the_end):
                # The last certificate decides: it takes K alpha from the kernels, not from the
                # solver's sum of many steps, and counts what float64 can lose. Where that is most
                # of the tolerance no step would help.
                proof = _certified_anew(problem, state.point, best.witness, "converged")
                whole, _ = proof
                tol = limits.target(whole.rounding)
                proven = whole.gap <= tol or whole.rounding > 0.5 * tol
                open_part = max(open_part, whole.gap - whole.approximation)
            reason = "converged"
            if not proven:
                reason = _reason_to_stop(own_share * tol, watch, state, certificate)
            if reason:
                break
            if screening is not None:
                screening.look(certificate, state)
            inner_gap = _inner_gap(problem, certificate, state.point)
            with between_blocks(problem.deadline.look()):
                state = solver.step(problem, state, open_part, inner_gap)
    except TimeUp:
        # In the middle of a step, at a point that would not have been accepted.
        reason = "max_time"
        if best.point is None:
            history.append(_offer_constant(problem, best, since, watch))
    except KeyboardInterrupt:
        if best.point is None:
            raise
        warn_of_interruption(history, best.gap)
        reason = "interrupted"
    result = _finish(problem, limits, best, reason, history, proof)
    if state is None:
        return result
    extra = solver.remember(state) if result.reason == "bank" else {}
    return replace(result, extra=extra, last=state.point)


def warn_of_interruption(history: list[Record], gap: float) -> None:
    """Tell that Ctrl-C has ended a fit, which keeps a point with this gap."""
    warnings.warn(
        f"the fit was interrupted after {len(history)} iterations; keeping the best point so far "
        f"(relative gap {gap:.2g}).",
        InterruptedFitWarning,
        stacklevel=4,
    )


def certified_as_it_is(
    problem: Problem, solver: Solver, limits: Limits, start: Point, since: Progress
) -> Result | None:
    """Return `start`, at which a fit ended, as the result if it needs no step, as far as is known.

    A bank that leaves too much open for any certificate is not the one that the fit ended on.
    """
    began = time.perf_counter()
    problem = prepared(problem, solver)
    certificate, alpha = recompute(problem, start.d, start.alpha, start.intercept, since.witness)
    tol = limits.target(certificate.rounding)
    converged = certificate.gap <= tol
    if not converged and certificate.approximation <= tol:
        return None
    seconds = since.seconds + time.perf_counter() - began
    record = Record.of(since.iteration, seconds, certificate, start.d)
    reason, b = "converged" if converged else "bank", certificate.intercept
    return Result(start.d, alpha, b, certificate, converged, reason, [record], since.witness)


@contextmanager
def last_passes(problem: Problem, reason: str) -> Iterator[None]:
    """End the passes inside, with `TimeUp`, soon after a deadline or Ctrl-C that ended a fit."""
    look = problem.deadline.look(graces=2)
    if reason == "interrupted":
        # There may be two of them: of the bank's kernels, and of those that it keeps nearly.
        look = Deadline(time.perf_counter()).look()
    with between_blocks(look):
        yield


def _certify_state(problem: Problem, state: State, resolve: bool) -> Certificate:
    """Certify the point; with `resolve`, `approximation` counts what float64 can lose too."""
    point = state.point
    return certify(
        problem,
        point.d,
        point.alpha,
        point.intercept,
        point.fitted,
        state.quad,
        state.witness,
        rounding=resolve,
    )


def _inner_gap(problem: Problem, certificate: Certificate, point: Point) -> float:
    """The part of the relative gap that a more exact alpha at the same weights would close."""
    owed = owed_by_alpha(problem, point, certificate.intercept)
    return max(0.0, owed) / problem.unit(certificate.bank_primal)


def _reason_to_stop(own_tol: float, watch: Watch, state: State, certificate: Certificate) -> str:
    if watch.time_is_up:
        return "max_time"  # Not even for a more exact bank.
    # What rounding does is not the bank's.
    bank_part = certificate.approximation - certificate.rounding
    if bank_part > 0 and certificate.gap - certificate.approximation <= own_tol:
        return "bank"
    if certificate.kind != "duality" and np.isnan(certificate.gap):
        return "stuck"  # A gradient that overflows leads nowhere.
    asked = watch.reason_to_stop() or state.ended
    if asked or not state.stuck:
        return asked
    return "steps" if getattr(state.evaluator, "cut_short", False) else "stuck"


def _certified_anew(
    problem: Problem, point: Point, witness: Array | None, reason: str
) -> tuple[Certificate, Array]:
    """Certify from the kernels, and return the alpha that was used, see :func:`last_passes`."""
    with last_passes(problem, reason):
        return recompute(problem, point.d, point.alpha, point.intercept, witness)


def _finish(
    problem: Problem,
    limits: Limits,
    best: _Best,
    reason: str,
    history: list[Record],
    proof: tuple[Certificate, Array] | None,
) -> Result:
    """Return the best point, certified from the kernels: of a fit that has converged, `proof`."""
    point = best.point
    if point is None or best.certificate is None or best.state is None:
        raise _not_a_number(problem)
    d, alpha, witness = point.d, point.alpha, best.witness
    if reason == "bank":
        # Another bank will certify this point.
        last = best.certificate
        return Result(d, alpha, last.intercept, last, False, reason, history, witness)
    try:
        if reason != "converged" or proof is None:
            proof = _certified_anew(problem, point, best.witness, reason)
        certificate, alpha = proof
    except TimeUp:
        # From the products that the solver has kept; what they may have rounded is counted.
        certificate = _certify_state(problem, best.state, True)
        reason = "interrupted" if reason == "interrupted" else "max_time"
    if not np.isfinite([certificate.primal, certificate.gap]).all():
        raise _not_a_number(problem)
    converged = certificate.gap <= limits.target(certificate.rounding)
    if converged:
        reason = "converged"
    elif reason == "converged":
        # Rounding can do most of what the tolerance allows.
        reason = "bank" if best.certificate.approximation > 0 else "stuck"
    b = certificate.intercept
    return Result(d, alpha, b, certificate, converged, reason, history, witness)


def _offer_constant(problem: Problem, best: _Best, since: Progress, watch: Watch) -> Record:
    """Take the best constant, which needs no kernel, where time was too short for a first point.

    Zero is no dual point of a one-class problem: there the alpha that is spread most evenly bounds
    the optimum, by the diagonals of the kernels.
    """
    d, zero = problem.regularizer.start(problem.m), np.zeros(problem.y.shape)
    witness = None
    if problem.loss.alpha_sum:
        spread = feasible_alpha(problem, zero)
        witness = Witness(spread, problem.bank.largest_quad(spread))
    intercept = best_intercepts(problem, zero, np.zeros(problem.n_tasks))
    point = Point(d, zero, zero, intercept, problem.inner_value(d, zero, zero))
    state = State(point, np.zeros(problem.m), None, False, None, witness)
    certificate = _certify_state(problem, state, True)
    best.offer(state, certificate, 0.0, problem.unit(certificate.primal))
    return Record.of(since.iteration, watch.seconds, certificate, d)


def _not_a_number(problem: Problem) -> InvalidInputError:
    return InvalidInputError(
        "the objective cannot be computed in float64: with targets up to "
        f"{float(np.abs(problem.y).max()):g}, loss weights (C times the weights of samples and "
        f"classes) up to {float(problem.C.max()):g} and kernels of the size "
        f"{problem.kernel_size:g} it is not a finite number. Normalise the kernels, scale the "
        "samples or the targets, or lower C."
    )
