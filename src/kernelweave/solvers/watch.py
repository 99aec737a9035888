"""What every fit owes its user, whatever it maximises: time, history, progress, callbacks."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

__all__ = ["Limits", "Note", "Watch"]


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


Callback = Callable[[Any], object]


@dataclass(frozen=True)
class Limits:
    """When to stop, whom to tell.

    Attributes
    ----------
    tol : float
        Relative duality gap at which the fit has converged; of a Bayesian fit, change of the lower
        bound in one iteration, for each sample and task.
    max_iter : int
        Most steps of the solver.
    max_time : float or None
        Most seconds.
    callbacks : sequence of callables
        Each is called with the newest line of the history; one that returns True ends the fit.
    verbose : int
        0 is silent, 1 prints about once a second, 2 prints every step.
    """

    tol: float = 1e-3
    max_iter: int = 1000
    max_time: float | None = None
    callbacks: Sequence[Callback] = ()
    verbose: int = 0


class Watch:
    """Keeps the history of a fit, shows progress, and says when a limit is reached.

    Parameters
    ----------
    limits : Limits
    history : list
        Lines are appended to it.
    began : float
        When the fit began, by `time.perf_counter`.
    """

    def __init__(self, limits: Limits, history: list[Any], began: float) -> None:
        self._limits, self._history, self._began = limits, history, began
        self._printed = -np.inf
        self._asked = False

    @property
    def seconds(self) -> float:
        """Time since the fit began."""
        return time.perf_counter() - self._began

    def note(self, line: Note) -> None:
        """Take down a line of history, show it if it is time to, and tell the callbacks."""
        self._history.append(line)
        self._show(line)
        # All of them are told, whatever the others say.
        answers = [bool(callback(line)) for callback in self._limits.callbacks]
        self._asked = any(answers)

    def reason_to_stop(self) -> str:
        """Name the limit that the last line reached: "callback", "max_time", "max_iter" or ""."""
        line = self._history[-1]
        if self._asked:
            return "callback"
        if self._limits.max_time is not None and line.seconds >= self._limits.max_time:
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
