"""The only outer loop: time, history, stopping, progress, callbacks, Ctrl-C."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from kernelweave.arrays import Array
from kernelweave.compiled.threads import between_blocks, one_blas_thread
from kernelweave.deadline import Deadline, TimeUp
from kernelweave.errors import InterruptedFitWarning, InvalidInputError
from kernelweave.problem import Problem
from kernelweave.solvers.base import Solver, State, check_settings
from kernelweave.solvers.certificate import (
    Certificate,
    Screening,
    Witness,
    best_intercepts,
    certify,
    feasible_alpha,
    recompute,
)
from kernelweave.solvers.checkpoint import Checkpoint, Header, Session, numbers_of
from kernelweave.solvers.inner import Point, owed_by_alpha
from kernelweave.solvers.kept import Numbers, Progress

# What tol=0 means: a hundred units in the last place, or this many times what rounding may do.
_LEAST = 100.0 * float(np.finfo(np.float64).eps)
_ROUNDINGS = 10.0
# A little below the tolerance, so that the last certificate, taken anew, meets it too.
_MARGIN = 0.99
# Part of the tolerance that a solver may use up on a bank that is not exact, whose errors have the
# rest. Where the gap falls by a factor in each step, that takes 2% more steps at 1e-3.
OWN_SHARE = 0.9


@dataclass(frozen=True)
class Limits:
    """When to stop, whom to tell.

    Attributes
    ----------
    tol : float
        Relative duality gap at which the fit has converged; of a Bayesian fit, change of the lower
        bound in one iteration, for each sample and task. Zero means what float64 can resolve.
    max_iter : int
        Most steps of the solver, those of a fit that is taken up among them.
    max_time : float or None
        Most seconds, not counting those of a fit that is taken up.
    callbacks : sequence of callables and checkpoints
        Each is called with the newest line of the history; one that returns True ends the fit.
    verbose : int
        0 is silent, 1 prints about once a second, 2 prints every step.
    stop : callable or None
        Asked often, in the middle of steps too: whether the fit shall end as if time were over.
    keep : Session or None
        Writes the checkpoints, once :meth:`with_checkpoints` has taken them from the callbacks.
    group : int
        Which group of tasks it is that is fitted, in a checkpoint.
    """

    tol: float = 1e-3
    max_iter: int = 1000
    max_time: float | None = None
    callbacks: Sequence[Any] = ()
    verbose: int = 0
    stop: Callable[[], bool] | None = None
    keep: Session | None = None
    group: int = 0

    def with_checkpoints(
        self, header: Callable[[], Header], known: Mapping[int, Numbers] | None = None
    ) -> Limits:
        """Return these limits with a session for the checkpoints among the callbacks."""
        found = [c for c in self.callbacks if isinstance(c, Checkpoint)]
        if not found:
            return self
        others = [c for c in self.callbacks if not isinstance(c, Checkpoint)]
        return replace(self, callbacks=others, keep=Session(found, header(), known or {}))

    def session(self, about: Callable[[], Numbers]) -> AbstractContextManager[None]:
        """Return the context of one fit, of what `about` says: it writes checkpoints at its end."""
        return nullcontext() if self.keep is None else self.keep.of(self.group, about())

    def target(self, rounding: float = 0.0) -> float:
        """Return the tolerance a fit is held to: `tol`, or for zero what float64 can resolve.

        `rounding` is what rounding may have done to the number compared with it.
        """
        return self.tol if self.tol > 0 else max(_LEAST, _ROUNDINGS * rounding)

    def met_by(self, certificate: Certificate) -> bool:
        """Whether a fit with this certificate has converged."""
        return certificate.gap <= self.target(certificate.rounding)


class Watch:
    """Keeps the history of a fit, shows progress, and says when a limit is reached.

    Iterations and seconds count on from the fit that is taken up, `since`.
    """

    def __init__(self, limits: Limits, deadline: Deadline, since: Progress | None = None) -> None:
        self.limits, self.deadline, self.since = limits, deadline, since or Progress()
        self.history: list[Any] = []
        self._began = time.perf_counter()
        self._printed = -np.inf
        self._asked = False

    @property
    def seconds(self) -> float:
        """Time since the fit began."""
        return self.since.seconds + time.perf_counter() - self._began

    @property
    def iteration(self) -> int:
        """Number of the next line of history, from zero on."""
        return self.since.iteration + len(self.history)

    @property
    def work(self) -> tuple[int, int]:
        """Steps and solves of single-kernel problems so far."""
        last = self.history[-1] if self.history else None
        return (last.inner_iterations, last.inner_solves) if last else (0, 0)

    def note(self, line: Any, numbers: Callable[[], Numbers]) -> None:
        """Take down a line of history, show it if it is time to, and tell whoever wants to know."""
        self.history.append(line)
        verbose = self.limits.verbose
        if verbose > 1 or (verbose and line.seconds - self._printed >= 1.0):
            self._printed = line.seconds
            told = f"{line.seconds:7.2f} s  iteration {line.iteration:4d}  {line.told()}"
            print(f"[kernelweave] {told}", flush=True)
        # Before the callbacks: these may raise. All are told, whatever the others say.
        if self.limits.keep is not None:
            self.limits.keep(line, numbers())
        self._asked = any([bool(callback(line)) for callback in self.limits.callbacks])

    def reason_to_stop(self, ahead: float = 0.0) -> str:
        """Name the limit that is reached: "callback", "max_time", "max_iter", or none by "".

        `ahead` are the seconds of the next step, if it cannot be cut.
        """
        if self._asked:
            return "callback"
        if self.deadline.later(-ahead).passed():
            return "max_time"
        return "max_iter" if self.history[-1].iteration >= self.limits.max_iter else ""


@dataclass(frozen=True)
class Record:
    """One line of a fit's history; callbacks are given the newest one."""

    iteration: int
    seconds: float
    primal: float
    dual: float
    gap: float
    active_kernels: int
    inner_iterations: int = 0
    inner_solves: int = 0

    @classmethod
    def of(cls, watch: Watch, at: Certificate, d: Array, *inner: int) -> Record:
        """Return the next line, of a point with weights `d`; `inner` are the last two numbers."""
        used = int(np.count_nonzero(d))
        return cls(watch.iteration, watch.seconds, at.primal, at.dual, at.gap, used, *inner)

    def told(self) -> str:
        """Return what progress shows of it."""
        return f"objective {self.primal:.6g}  gap {self.gap:.2e}  kernels {self.active_kernels}"


@dataclass(frozen=True)
class Result:
    """The end of a fit.

    `witness` are dual variables that bound the optimum better than alpha, `last` is where the
    solver stood in the end, with what it needs to go on where another bank has to take over.
    """

    d: Array
    alpha: Array
    certificate: Certificate
    reason: str
    history: list[Record] = field(repr=False)
    witness: Array | None = field(default=None, repr=False)
    last: Point | None = field(default=None, repr=False)

    @property
    def intercept(self) -> Array:
        """The intercepts, shape (T,)."""
        return self.certificate.intercept

    @property
    def converged(self) -> bool:
        """Whether the certificate meets the tolerance."""
        return self.reason == "converged"

    @property
    def start(self) -> Point:
        """This result as the starting point of another fit."""
        extra = None if self.last is None else self.last.extra
        return Point.start(self.d, self.alpha, self.intercept, extra)


@dataclass
class _Best:
    """The best state so far: smallest gap but for the bank's part, or else lowest objective."""

    state: State | None = None
    certificate: Certificate | None = None
    score: float = np.inf
    # The certificate of a converged fit, taken from the kernels, and its alpha.
    proof: tuple[Certificate, Array] | None = None

    def offer(self, state: State, certificate: Certificate, tol: float, unit: float) -> bool:
        """Take the state if it is better; returns whether the fit has converged with it."""
        duality = certificate.kind == "duality"
        score = certificate.gap - certificate.approximation if duality else certificate.primal
        converged = certificate.gap <= _MARGIN * tol
        if not duality:
            # A stationary point above another point seen is not the end.
            converged &= score <= self.score + tol * unit
        if converged or state.last_counts or score < self.score:
            self.state, self.certificate, self.score = state, certificate, score
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
    start: Point | None = None,
    watch: Watch | None = None,
    own_share: float = OWN_SHARE,
) -> Result:
    """Drive `solver` until the certificate, the deadline, a limit or a callback says stop.

    Keeps the best point, and certifies it from scratch at the end. The history is that of `watch`,
    where this is not all of a fit. On a bank that is not exact the run ends, with the reason
    "bank", when the gap but for the bank's errors is `own_share` of the tolerance: the kernels
    themselves then have to say how large it is.
    """
    problem = prepared(problem, solver)
    screening = Screening.for_problem(problem) if solver.tries_weights else None
    best = _Best()
    watch = watch or Watch(limits, problem.deadline)
    history = watch.history
    # Work counts on from what another solver, or this one on another bank, did for the same fit.
    steps, solves = watch.work
    reason = "interrupted"
    state: State | None = None
    try:
        with between_blocks(problem.deadline.look()):
            state = solver.init(problem, start)
        while True:
            certificate = _certify_state(problem, state, rounding=not limits.tol)
            tol = limits.target(certificate.rounding)
            converged = best.offer(state, certificate, tol, problem.unit(certificate.primal))
            work = steps + state.evaluator.n_steps, solves + state.evaluator.n_solves
            record = Record.of(watch, certificate, state.point.d, *work)
            watch.note(record, partial(numbers_of, solver, state, best.state or state))
            open_part, proven = certificate.gap - certificate.approximation, False
            if converged and (state.ended or not state.to_the_end):
                # The last certificate decides: it takes K alpha from the kernels, not from the
                # solver's sum of many steps, and counts what float64 can lose. Where that is most
                # of the tolerance no step would help.
                witness = state.witness_alpha
                best.proof = certified_anew(problem, state.point, witness, "converged")
                whole, _ = best.proof
                tol = limits.target(whole.rounding)
                proven = whole.gap <= tol or whole.rounding > 0.5 * tol
                open_part = max(open_part, whole.gap - whole.approximation)
            stop = _reason_to_stop(own_share * tol, watch, state, certificate)
            reason = "converged" if proven else stop
            if reason:
                break
            point = state.point
            if screening and screening.look(certificate, point.d, point.alpha, state.quad):
                state.evaluator.keep_only(screening.kept)
            inner_gap = _inner_gap(problem, certificate, point)
            with between_blocks(problem.deadline.look()):
                state = solver.step(problem, state, open_part, inner_gap)
    except TimeUp:
        # In the middle of a step, at a point that would not have been accepted.
        reason = "max_time"
        if best.state is None:
            history.append(_offer_constant(problem, best, watch))
    except KeyboardInterrupt:
        if best.certificate is None:
            raise
        warn_of_interruption(history, best.certificate.gap)
        reason = "interrupted"
    result = _finish(problem, best, reason, watch)
    if state is None:
        return result
    extra = solver.remember(state) if result.reason == "bank" else {}
    return replace(result, last=replace(state.point, extra=extra))


def warn_of_interruption(history: list[Record], gap: float) -> None:
    """Tell that Ctrl-C has ended a fit, which keeps a point with this gap."""
    warnings.warn(
        f"the fit was interrupted after {len(history)} iterations; keeping the best point so far "
        f"(relative gap {gap:.2g}).",
        InterruptedFitWarning,
        stacklevel=4,
    )


def _certify_state(problem: Problem, state: State, rounding: bool) -> Certificate:
    at, (quad, witness) = state.point, (state.quad, state.witness)
    return certify(problem, at.d, at.alpha, at.intercept, at.fitted, quad, witness, rounding)


def _inner_gap(problem: Problem, certificate: Certificate, point: Point) -> float:
    """The part of the relative gap that a more exact alpha at the same weights would close."""
    owed = owed_by_alpha(problem, point, certificate.intercept)
    return max(0.0, owed) / problem.unit(certificate.bank_primal)


def _reason_to_stop(own_tol: float, watch: Watch, state: State, certificate: Certificate) -> str:
    if watch.deadline.passed():
        return "max_time"  # Not even for a more exact bank.
    # What rounding does is not the bank's.
    bank_part = certificate.approximation - certificate.rounding
    if bank_part > 0 and certificate.gap - certificate.approximation <= own_tol:
        return "bank"
    if certificate.kind != "duality" and np.isnan(certificate.gap):
        return "stuck"  # A gradient that overflows leads nowhere.
    reason = watch.reason_to_stop() or state.ended
    if state.stuck and not reason:
        reason = "steps" if getattr(state.evaluator, "cut_short", False) else "stuck"
    return reason


def certified_anew(
    problem: Problem, point: Point | Result, witness: Array | None, reason: str
) -> tuple[Certificate, Array]:
    """Certify from the kernels; `TimeUp` soon after a deadline or Ctrl-C that was the `reason`."""
    look = problem.deadline.look(graces=2)
    if reason == "interrupted":
        # There may be two certificates: of the bank's kernels, and of those that it keeps nearly.
        look = Deadline(time.perf_counter()).look()
    with between_blocks(look):
        return recompute(problem, point.d, point.alpha, point.intercept, witness)


def _finish(problem: Problem, best: _Best, reason: str, watch: Watch) -> Result:
    """Return the best point, certified from the kernels."""
    if best.certificate is None or best.state is None:
        raise _not_a_number(problem)
    certificate, point, witness = best.certificate, best.state.point, best.state.witness_alpha
    alpha = point.alpha
    if reason == "bank":
        # Another bank will certify this point.
        return Result(point.d, alpha, certificate, reason, watch.history, witness)
    try:
        if reason != "converged" or best.proof is None:
            best.proof = certified_anew(problem, point, witness, reason)
        certificate, alpha = best.proof
    except TimeUp:
        # From the products that the solver has kept; what they may have rounded is counted.
        certificate = _certify_state(problem, best.state, True)
        reason = "interrupted" if reason == "interrupted" else "max_time"
    if not np.isfinite([certificate.primal, certificate.gap]).all():
        raise _not_a_number(problem)
    if watch.limits.met_by(certificate):
        reason = "converged"
    elif reason == "converged":
        # Rounding can do most of what the tolerance allows.
        reason = "bank" if best.certificate.approximation > 0 else "stuck"
    return Result(point.d, alpha, certificate, reason, watch.history, witness)


def _offer_constant(problem: Problem, best: _Best, watch: Watch) -> Record:
    """Take the best constant, which needs no kernel, where time was too short for a first point."""
    d, zero = problem.regularizer.start(problem.m), np.zeros(problem.y.shape)
    witness = None
    if problem.loss.alpha_sum:
        # Zero is no dual point of a one-class problem; an even alpha is, by the kernels' diagonals.
        spread = feasible_alpha(problem, zero)
        witness = Witness(spread, problem.bank.largest_quad(spread))
    intercept = best_intercepts(problem, zero, np.zeros(problem.n_tasks))
    point = Point(d, zero, zero, intercept, problem.inner_value(d, zero, zero))
    state = State(point, np.zeros(problem.m), None, False, None, witness)
    certificate = _certify_state(problem, state, True)
    best.offer(state, certificate, 0.0, problem.unit(certificate.primal))
    return Record.of(watch, certificate, d)


def _not_a_number(problem: Problem) -> InvalidInputError:
    return InvalidInputError(
        "the objective cannot be computed in float64: with targets up to "
        f"{float(np.abs(problem.y).max()):g}, loss weights (C times the weights of samples and "
        f"classes) up to {float(problem.C.max()):g} and kernels of the size "
        f"{problem.kernel_size:g} it is not a finite number. Normalise the kernels, scale the "
        "samples or the targets, or lower C."
    )
