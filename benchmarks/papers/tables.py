"""Tables of papers, here and there: contestants over splits, the published numbers beside them.

A table is data: sets, contestants (functions from a split to what was measured), and the published
numbers, which are in ``published.toml``. What scripts share is here: `over_splits` runs all
contestants on the same splits, `beside` puts mean and deviation next to the paper's, and `contest`
lets solvers race on one problem. A new table needs an entry in that file and a loop over its rows.
"""

import time
import tomllib
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.show import spread
from benchmarks.timing import Budget, seconds_of
from kernelweave.problem import Problem
from kernelweave.solvers import Limits, Result, Solver, solve

# By paper; what a number is, is said there.
PUBLISHED: dict[str, Any] = tomllib.loads((Path(__file__).parent / "published.toml").read_text())

# What was measured on one split, and of every measure the values over the splits.
Measures = dict[str, float]
Scores = dict[str, list[float]]


def over_splits(
    splits: Iterable[Any], contestants: dict[Any, Callable[[Any], Measures | None]]
) -> dict[Any, Scores]:
    """Run all contestants on each split; one that returns None takes no further part.

    Splits may be made while they are asked for, so that only one is held.
    """
    found: dict[Any, Scores] = {name: {} for name in contestants}
    out = set()
    for split in splits:
        for name, measure in contestants.items():
            measured = None if name in out else measure(split)
            if measured is None:
                out.add(name)
                continue
            for what, value in measured.items():
                found[name].setdefault(what, []).append(value)
    return found


def scored_fit(model: Any, split: Any) -> Measures:
    """Fit on the training rows: seconds, and accuracy on the test rows, per cent."""
    train, test, y_train, y_test = split
    seconds, _ = seconds_of(lambda: model.fit(train, y_train))
    return {"seconds": seconds, "accuracy": 100.0 * model.score(test, y_test)}


def beside(values: list[float], told: float | str | None, digits: int = 1) -> str:
    """The mean here, and the paper's number in brackets."""
    theirs = "-" if told is None else told if isinstance(told, str) else f"{told:.{digits}f}"
    return f"{np.mean(values):.{digits}f} ({theirs})"


def spread_beside(values: list[float], told: tuple[float, float] | None) -> str:
    """Mean and deviation, here and in the paper."""
    theirs = "-" if told is None else "{:.2f} ± {:.2f}".format(*told)
    return f"{spread(values)} ({theirs})"


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
    watch: Callable[[], AbstractContextManager[Any]] = nullcontext,
    patience: float = np.inf,
    shortest: float = 0.0,
) -> dict[Any, Entry]:
    """Fastest run of each over interleaved rounds; one that does not converge has one run.

    A fit is given its seconds, or less if a rival on the same problem was far faster: `patience`
    times as long, but `shortest` seconds at least. Every fit runs inside `watch`, which gives what
    is noted of it.
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
            given = limited._replace(max_time=min(limited.max_time, allowed))
            with watch() as noted:
                seconds, result = fit(given, tol, clock)
            if label not in best or seconds < best[label].seconds:
                best[label] = Entry(seconds, result, noted)
    return best
