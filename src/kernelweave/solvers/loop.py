"""The only outer loop: time, history, stopping, progress, callbacks, Ctrl-C."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from kernelweave.compiled.threads import one_blas_thread
from kernelweave.errors import InterruptedFitWarning
from kernelweave.problem import Array, Problem
from kernelweave.solvers.base import Solver, State
from kernelweave.solvers.certificate import Certificate, certify, recompute
from kernelweave.solvers.inner import Point

__all__ = ["Limits", "Record", "Result", "run", "solve"]


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


# From this many samples on, first weights are learnt on a part of them: as many as the bytes for
# their matrices allow, or none if those are too few to learn from.
_COARSE_FROM = 3000
_COARSE_SAMPLES = 1000
_FEWEST_COARSE = 200
_COARSE_BYTES = 1e9
_COARSE_TOL = 3e-3

Callback = Callable[[Record], object]


@dataclass(frozen=True)
class Limits:
    """When to stop, whom to tell.

    Attributes
    ----------
    tol : float
        Relative duality gap at which the fit has converged.
    max_iter : int
        Most steps of the solver.
    max_time : float or None
        Most seconds.
    callbacks : sequence of callables
        Each is called with the newest :class:`Record`; one that returns True ends the fit.
    verbose : int
        0 is silent, 1 prints about once a second, 2 prints every step.
    """

    tol: float = 1e-3
    max_iter: int = 1000
    max_time: float | None = None
    callbacks: Sequence[Callback] = ()
    verbose: int = 0


@dataclass(frozen=True)
class Result:
    """The end of a fit."""

    d: Array
    alpha: Array
    intercept: Array
    certificate: Certificate
    converged: bool
    reason: str
    history: list[Record] = field(repr=False)

    @property
    def start(self) -> Point:
        """This result as the starting point of another fit."""
        return Point(self.d, self.alpha, np.zeros_like(self.alpha), self.intercept, np.inf, 0)


class _Best:
    """The point with the smallest gap so far."""

    def __init__(self) -> None:
        self.point: Point | None = None
        self.gap = np.inf

    def offer(self, point: Point, gap: float) -> None:
        if self.point is None or gap < self.gap:
            self.point, self.gap = point, gap


def solve(problem: Problem, solver: Solver, limits: Limits, start: Point | None = None) -> Result:
    """Run `solver` to the tolerance, on a more exact bank if the first one stands in the way.

    Warns when the tolerance was not met, saying why and what to do.
    """
    began = time.perf_counter()
    history: list[Record] = []
    n_coarse = int(min(_COARSE_SAMPLES, np.sqrt(_COARSE_BYTES / (8 * problem.m))))
    if start is None and problem.n > _COARSE_FROM and n_coarse >= _FEWEST_COARSE:
        start = _coarse_start(problem, solver, limits, n_coarse)
    result = run(problem, solver, limits, start, history, began)
    while result.reason == "bank":
        finer = problem.bank.refined()
        if finer is None:
            break
        problem = problem.with_bank(finer)
        # Often the point is good enough and only its proof was not: look before solving again.
        result = _certified_anew(problem, solver, limits, result, began)
        if not result.converged:
            result = run(problem, solver, limits, result.start, history, began)
    _warn_if_unconverged(result, limits)
    return result


def _certified_anew(
    problem: Problem, solver: Solver, limits: Limits, result: Result, began: float
) -> Result:
    """Return the same point with a certificate from another bank, as one more line of history."""
    certificate, alpha = recompute(
        solver.prepare(problem), result.d, result.alpha, result.intercept
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


def _coarse_start(problem: Problem, solver: Solver, limits: Limits, n_coarse: int) -> Point:
    """Learn first weights on some of the samples: a pass over all of them costs many times more.

    The loss weights are raised so that the few stand for all.
    """
    chosen = np.sort(np.random.default_rng(0).permutation(problem.n)[:n_coarse])
    few = replace(
        problem,
        bank=problem.bank.take(chosen),
        y=problem.y[:, chosen],
        C=problem.C[:, chosen] * (problem.n / len(chosen)),
    )
    quiet = Limits(max(limits.tol, _COARSE_TOL), limits.max_iter, limits.max_time)
    d = run(few, solver, quiet, None, [], time.perf_counter()).d
    nothing = np.zeros((problem.n_tasks, problem.n))
    return Point(d, nothing, nothing, np.zeros(problem.n_tasks), np.inf, 0)


# One BLAS thread: the threads are ours, and sums keep their order whatever n_jobs is.
@one_blas_thread()
def run(
    problem: Problem,
    solver: Solver,
    limits: Limits,
    start: Point | None,
    history: list[Record],
    began: float,
) -> Result:
    """Drive `solver` until the certificate, a limit, a callback or the user says stop.

    Appends to `history`, keeps the best point, and certifies it from scratch at the end.
    """
    problem = solver.prepare(problem)
    best = _Best()
    report = _Printer(limits.verbose)
    reason = "interrupted"
    try:
        state = solver.init(problem, start)
        while True:
            certificate = _certify_state(problem, state)
            best.offer(state.point, certificate.gap)
            record = Record(
                len(history),
                time.perf_counter() - began,
                certificate.primal,
                certificate.dual,
                certificate.gap,
                int(np.count_nonzero(state.point.d)),
                state.inner_iterations,
            )
            history.append(record)
            report.line(record)
            stops = [bool(callback(record)) for callback in limits.callbacks]
            reason = _reason_to_stop(limits, record, state, certificate, any(stops))
            if reason:
                break
            open_part = certificate.gap - certificate.approximation
            state = solver.step(problem, state, open_part, _inner_gap(certificate, state.point))
    except KeyboardInterrupt:
        if best.point is None:
            raise
        warnings.warn(
            f"the fit was interrupted after {len(history)} iterations; keeping the best point so "
            f"far (relative gap {best.gap:.2g}).",
            InterruptedFitWarning,
            stacklevel=3,
        )
        reason = "interrupted"
    return _finish(problem, limits, best, reason, history)


def _certify_state(problem: Problem, state: State) -> Certificate:
    point = state.point
    return certify(problem, point.d, point.alpha, point.intercept, point.fitted, state.quad)


def _inner_gap(certificate: Certificate, point: Point) -> float:
    """The part of the relative gap that a more exact alpha at the same weights would close."""
    primal = certificate.bank_primal
    return max(0.0, primal - point.value) / max(1.0, abs(primal))


def _reason_to_stop(
    limits: Limits, record: Record, state: State, certificate: Certificate, asked: bool
) -> str:
    # A little below the tolerance, so that the last certificate, taken anew, meets it too.
    if record.gap <= 0.99 * limits.tol:
        return "converged"
    owed_to_solver = certificate.gap - certificate.approximation
    if owed_to_solver <= max(0.3 * limits.tol, 0.1 * certificate.approximation):
        return "bank"  # Only a more exact bank can help now.
    if asked:
        return "callback"
    if limits.max_time is not None and record.seconds >= limits.max_time:
        return "max_time"
    if record.iteration >= limits.max_iter:
        return "max_iter"
    return "stuck" if state.stuck else ""


def _finish(
    problem: Problem, limits: Limits, best: _Best, reason: str, history: list[Record]
) -> Result:
    point = best.point
    if point is None:
        raise RuntimeError("a fit ended without a single point; this is a bug in the solver.")
    certificate, alpha = recompute(problem, point.d, point.alpha, point.intercept)
    converged = certificate.gap <= limits.tol
    if converged:
        reason = "converged"
    return Result(point.d, alpha, certificate.intercept, certificate, converged, reason, history)


def _warn_if_unconverged(result: Result, limits: Limits) -> None:
    """Tell the user that the tolerance was not met, why, and what to do."""
    if result.converged or result.reason in ("interrupted", "callback"):
        return
    advice = {
        "max_iter": f"max_iter={limits.max_iter} was reached; raise it or tol",
        "max_time": f"max_time={limits.max_time} s was reached; raise it or tol",
        "stuck": "rounding stops further progress; rescale the data, lower C or raise tol",
        "bank": "the bank is not exact enough; use bank='dense' or raise tol",
    }
    warnings.warn(
        f"the relative duality gap is {result.certificate.gap:.2g}, above tol={limits.tol:g}: "
        f"{advice.get(result.reason, result.reason)}.",
        ConvergenceWarning,
        stacklevel=3,
    )


class _Printer:
    def __init__(self, verbose: int) -> None:
        self.verbose = verbose
        self._last = -np.inf

    def line(self, record: Record) -> None:
        due = record.seconds - self._last >= 1.0 or self.verbose >= 2
        if not self.verbose or not due:
            return
        self._last = record.seconds
        print(
            f"[kernelweave] {record.seconds:7.2f} s  iteration {record.iteration:4d}  "
            f"objective {record.primal:.6g}  gap {record.gap:.2e}  "
            f"kernels {record.active_kernels}",
            flush=True,
        )
