"""What every fit owes its user, whatever it maximises: time, history, progress, callbacks."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from kernelweave.deadline import Deadline
from kernelweave.problem import Array
from kernelweave.solvers.kept import Numbers

__all__ = ["Limits", "Note", "Progress", "Watch"]

# What tol=0 means: a hundred units in the last place, or this many times what rounding may do.
_LEAST = 100.0 * float(np.finfo(np.float64).eps)
_ROUNDINGS = 10.0


class Note(Protocol):
    """One line of a fit's history; callbacks are given the newest one."""

    @property
    def iteration(self) -> int:
        """Steps so far."""

    @property
    def seconds(self) -> float:
        """Time so far."""

    def told(self) -> str:
        """Return what progress shows of it."""


@dataclass(frozen=True)
class Progress:
    """How far a fit had come that another one goes on with; at first nowhere.

    Attributes
    ----------
    iteration : int
    seconds : float
    gap : float
        What its last record called the gap.
    witness : ndarray of shape (T, n) or None
        Dual variables that bound the optimum better than its alpha.
    """

    iteration: int = 0
    seconds: float = 0.0
    gap: float = np.inf
    witness: Array | None = None


@dataclass(frozen=True)
class Limits:
    """When to stop, whom to tell.

    Attributes
    ----------
    tol : float
        Relative duality gap at which the fit has converged; of a Bayesian fit, change of the lower
        bound in one iteration, for each sample and task. Zero means what float64 can resolve
        (:meth:`target`).
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
    keep : callable or None
        Given the newest line and the numbers that the fit could be taken up from.
    """

    tol: float = 1e-3
    max_iter: int = 1000
    max_time: float | None = None
    callbacks: Sequence[Any] = ()
    verbose: int = 0
    stop: Callable[[], bool] | None = None
    keep: Callable[[Note, Numbers], None] | None = None

    def target(self, rounding: float = 0.0) -> float:
        """Return the tolerance a fit is held to: `tol`, or for zero what float64 can resolve.

        `rounding` is what rounding may have done to the number compared with it.
        """
        return self.tol if self.tol > 0 else max(_LEAST, _ROUNDINGS * rounding)


class Watch:
    """Keeps the history of a fit, shows progress, and says when a limit is reached.

    Parameters
    ----------
    limits : Limits
    history : list
        Lines are appended to it.
    began : float
        When the fit began, by `time.perf_counter`; earlier by the seconds of `since`.
    since : Progress
        How far the fit had come that this one goes on with.
    deadline : Deadline, optional
        When the fit has to end; by default `limits.max_time` after it began.
    """

    def __init__(
        self,
        limits: Limits,
        history: list[Any],
        began: float,
        since: Progress | None = None,
        deadline: Deadline | None = None,
    ) -> None:
        self._limits, self._history, self._began = limits, history, began
        start = began + (since or Progress()).seconds
        self._deadline = deadline or Deadline.after(limits.max_time, start, limits.stop)
        self._printed = -np.inf
        self._asked = False

    @property
    def seconds(self) -> float:
        """Time since the fit began."""
        return time.perf_counter() - self._began

    def note(self, line: Note, numbers: Callable[[], Numbers]) -> None:
        """Take down a line of history, show it if it is time to, and tell whoever wants to know."""
        self._history.append(line)
        self._show(line)
        # Before the callbacks: these may raise. All are told, whatever the others say.
        if self._limits.keep is not None:
            self._limits.keep(line, numbers())
        answers = [bool(callback(line)) for callback in self._limits.callbacks]
        self._asked = any(answers)

    @property
    def time_is_up(self) -> bool:
        """Whether the deadline has passed."""
        return self._deadline.passed()

    def reason_to_stop(self, ahead: float = 0.0) -> str:
        """Name the limit that is reached: "callback", "max_time", "max_iter", or none by "".

        `ahead` are the seconds of the next step, if it cannot be cut.
        """
        line = self._history[-1]
        if self._asked:
            return "callback"
        if self._deadline.later(-ahead).passed():
            return "max_time"
        return "max_iter" if line.iteration >= self._limits.max_iter else ""

    def _show(self, line: Note) -> None:
        verbose = self._limits.verbose
        if not verbose or (verbose < 2 and line.seconds - self._printed < 1.0):
            return
        self._printed = line.seconds
        print(
            f"[kernelweave] {line.seconds:7.2f} s  iteration {line.iteration:4d}  {line.told()}",
            flush=True,
        )
