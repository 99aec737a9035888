"""Solvers against each other on the same problem: one way to run them, one way to show them."""

import time
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from benchmarks.timing import Budget, seconds_of
from kernelweave.problem import Problem
from kernelweave.solvers import Limits, Result, Solver, solve


class Limited(NamedTuple):
    """A solver on a problem, and the seconds that a fit may take."""

    problem: Problem
    solver: Solver
    max_time: float


@dataclass
class Entry:
    """The fastest run of one solver; `noted` is what was counted meanwhile."""

    seconds: float
    result: Result
    noted: Any

    @property
    def converged(self) -> bool:
        return self.result.converged

    @property
    def last(self) -> Any:
        return self.result.history[-1]

    @property
    def in_use(self) -> int:
        return int(np.count_nonzero(self.result.d))

    def text(self) -> str:
        """Seconds, or how many were not enough, and the gap that is left."""
        if self.converged:
            return f"{self.seconds:.3f}"
        return f"> {self.seconds:.0f} (gap {self.result.certificate.gap:.0e})"


def fit(
    limited: Limited, tol: float, clock: Callable[[], float], callbacks: tuple[Any, ...] = ()
) -> tuple[float, Result]:
    """Fit as the first on its bank; `max_time` counts by the same clock as the seconds.

    What a fit learns of a bank (bounds on eigenvalues, for screening) serves later fits on it.
    """
    problem, solver, max_time = limited
    fresh = problem.with_bank(copy(problem.bank))
    limits = Limits(tol=tol, max_iter=100_000, max_time=max_time, callbacks=callbacks)
    if clock is time.process_time:
        limits = replace(limits, max_time=None, callbacks=(*callbacks, Budget(max_time)))
    return seconds_of(lambda: solve(fresh, solver, limits), clock)


def contest(
    contestants: dict[Any, Limited],
    tol: float,
    rounds: int,
    clock: Callable[[], float] = time.perf_counter,
    noted: Callable[[], Any] = lambda: None,
    patience: float = np.inf,
    shortest: float = 0.0,
) -> dict[Any, Entry]:
    """Fastest run of each over interleaved rounds; one that does not converge has one run.

    A fit is given its seconds, or less if a rival on the same problem was far faster: `patience`
    times as long, but `shortest` seconds at least. `noted` returns what was counted since it was
    last called.
    """
    best: dict[Any, Entry] = {}
    for _ in range(rounds):
        for label, limited in contestants.items():
            if label in best and not best[label].converged:
                continue
            rivals = [
                entry.seconds
                for other, entry in best.items()
                if entry.converged and contestants[other].problem is limited.problem
            ]
            allowed = max(shortest, patience * min(rivals, default=np.inf))
            noted()
            given = limited._replace(max_time=min(limited.max_time, allowed))
            seconds, result = fit(given, tol, clock)
            if label not in best or seconds < best[label].seconds:
                best[label] = Entry(seconds, result, noted())
    return best
