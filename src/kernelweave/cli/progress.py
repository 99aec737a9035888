"""Progress of a fit: a live bar in a terminal, plain lines when the output is piped."""

from __future__ import annotations

import math
import threading
import time
from contextlib import ExitStack
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn

from kernelweave.compiled.first_run import CompileWatch, watch_compiling

__all__ = ["CountProgress", "FitProgress", "PathProgress"]

COMPILE_SECONDS = 15  # of the first run, measured on two cores
_PLAIN_SECONDS = 2.0  # between two plain lines
_FORESIGHT = 1.0  # seconds of solving after which the time left is worth a guess


def _distance(record: Any) -> float:
    """How far a fit is from its end: the gap, or the change of a Bayesian fit's lower bound."""
    return float(record.change if hasattr(record, "change") else record.gap)


def _duration(seconds: float) -> str:
    """Return a time as people say it.

    Examples
    --------
    >>> _duration(7.2), _duration(200), _duration(9000)
    ('7 s', '3 min', '2.5 h')
    """
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _live_bar(console: Console) -> Progress:
    return Progress(
        TextColumn(" "),
        SpinnerColumn(finished_text="[green]✓[/]"),
        TextColumn("{task.description:<30}"),
        BarColumn(bar_width=14),
        TextColumn("{task.fields[status]}"),
        console=console,
    )


class FitProgress:
    """A callback for an estimator: the gap falling, the active kernels, the time, and what is left.

    The bar is logarithmic: it is full when the gap has come down to `tol`. The time left is what it
    takes if the gap goes on falling as it did; or until the time limit, if that comes first. For a
    Bayesian fit it is the change of the lower bound that falls.

    Parameters
    ----------
    console : rich.console.Console
        Where to write; live if it is a terminal, otherwise a line now and then.
    title : str
        What is being fitted.
    tol : float
        The gap at which the fit ends.
    time_limit : float, optional
        The seconds after which it ends.
    """

    def __init__(
        self, console: Console, title: str, tol: float, time_limit: float | None = None
    ) -> None:
        from kernelweave.solvers import Limits

        self._console = console
        self._title = title
        self._tol = Limits(tol).target()
        self._time_limit = time_limit
        self._notice = f"compiling once, about {COMPILE_SECONDS} s"
        self._compiles = CompileWatch(self._show_compiling, self._show_record)
        self._told = False
        self._first_gap = 0.0
        self._first_seconds = 0.0
        self._gap = math.inf  # the smallest so far: what the fit would keep if it stopped
        self._last: Any = None
        self._start = 0.0
        self._printed = -math.inf
        self._pending = False
        self._stack = ExitStack()
        self._bar: Progress | None = None
        self._task = TaskID(0)

    def __enter__(self) -> FitProgress:
        self._start = time.perf_counter()
        if self._console.is_terminal:
            self._bar = self._stack.enter_context(_live_bar(self._console))
            self._task = self._bar.add_task(self._title, total=None, status="building the kernels")
        else:
            self._console.print(f"  {self._title} ...")
        self._stack.enter_context(watch_compiling(self._compiles))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None and self._bar is None and self._pending:
            self._print_line()
        self._stack.close()

    def __call__(self, record: Any) -> None:
        """Show one record of the history."""
        if self._last is not None and record.iteration <= self._last.iteration:
            # Each class has a fit of its own, and the next one begins.
            self._first_gap, self._gap = 0.0, math.inf
        self._last = record
        gap = abs(_distance(record))
        if math.isfinite(gap):
            if not self._first_gap:
                self._first_gap, self._first_seconds = max(gap, self._tol), record.seconds
            self._gap = min(self._gap, gap)
        if self._bar is None:
            self._pending = True
            if time.perf_counter() - self._printed >= _PLAIN_SECONDS:
                self._print_line()
            return
        self._bar.update(self._task, total=1.0, completed=self._fraction(), status=self._status())

    @property
    def compile_seconds(self) -> float:
        """Seconds that went into compiling."""
        return self._compiles.seconds

    def _show_compiling(self) -> None:
        """Say that the time goes into compiling and will not be needed again."""
        if self._bar is not None:
            self._bar.update(self._task, status=f"[yellow]{self._notice}[/]")
        elif not self._told:
            self._console.print(f"    {self._notice}")
        self._told = True

    def _show_record(self) -> None:
        """Go back from the compiling notice to the last record."""
        if self._bar is not None and self._told and self._last is not None:
            self._bar.update(self._task, status=self._status())

    def _fraction(self) -> float:
        if not math.isfinite(self._gap):
            return 0.0
        if self._gap <= self._tol:
            return 1.0
        return math.log(self._first_gap / self._gap) / math.log(self._first_gap / self._tol)

    def _status(self) -> str:
        record = self._last
        kernels = "kernel" if record.active_kernels == 1 else "kernels"
        # Not the record's own clock, which starts when the kernels have been built.
        seconds = time.perf_counter() - self._start
        what = "change" if hasattr(record, "change") else "gap"
        return (
            f"{what} {self._gap:.1e}  {record.active_kernels} {kernels}  {seconds:.1f} s"
            f"{self._time_left()}"
        )

    def _time_left(self) -> str:
        """Seconds until the tolerance is met at the pace so far, or until the limit."""
        spent = self._last.seconds - self._first_seconds
        done = self._fraction()
        left = math.inf
        if spent > _FORESIGHT and done > 0:
            left = spent * (1 - done) / done
        if self._time_limit is not None and spent > _FORESIGHT:
            left = min(left, max(0.0, self._time_limit - self._last.seconds))
        return "" if not math.isfinite(left) or done == 1 else f"  about {_duration(left)} left"

    def _print_line(self) -> None:
        self._console.print(f"    iteration {self._last.iteration:>3}  {self._status()}")
        self._printed = time.perf_counter()
        self._pending = False


class PathProgress:
    """A callback for a cross-validated path: how many of its fits have been begun.

    Parameters
    ----------
    console : rich.console.Console
        Where to draw; a line now and then if it is no terminal.
    title : str
        What is being fitted.
    total : int
        How many fits there are.
    """

    def __init__(self, console: Console, title: str, total: int) -> None:
        self._bar = CountProgress(console, title, total)
        self._lock = threading.Lock()  # folds run in threads
        self._last: dict[int, int] = {}

    def __enter__(self) -> PathProgress:
        self._bar.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._bar.__exit__(*error)

    def __call__(self, record: Any) -> None:
        """Count a fit when its first record comes."""
        with self._lock:
            own = threading.get_ident()
            if record.iteration <= self._last.get(own, 10**9):
                self._bar.advance()
            self._last[own] = record.iteration


class CountProgress:
    """A bar for work that consists of a known number of equal parts; piped, a line now and then.

    Parameters
    ----------
    console : rich.console.Console
        Where to draw the bar, if it is a terminal.
    title : str
        What is being done.
    total : int
        How many parts there are.
    """

    def __init__(self, console: Console, title: str, total: int) -> None:
        self._console = console
        self._title = title
        self._total = total
        self._bar: Progress | None = None
        self._task = TaskID(0)
        self._start = 0.0
        self._done = 0
        self._printed = 0.0

    def __enter__(self) -> CountProgress:
        self._start = self._printed = time.perf_counter()
        if self._console.is_terminal:
            self._bar = _live_bar(self._console).__enter__()
            self._task = self._bar.add_task(self._title, total=self._total, status="")
        else:
            self._console.print(f"  {self._title} ...")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.__exit__(kind, error, trace)

    def advance(self, parts: int = 1) -> None:
        """Count `parts` more as done."""
        now = time.perf_counter()
        self._done += parts
        status = f"{self._done} of {self._total}  {now - self._start:.1f} s{self._time_left(now)}"
        if self._bar is not None:
            self._bar.update(self._task, advance=parts, status=status)
        elif now - self._printed >= _PLAIN_SECONDS:
            self._console.print(f"    {status}")
            self._printed = now

    def advance_to(self, done: int) -> None:
        """Count all of the first `done` parts as done."""
        if done > self._done:
            self.advance(done - self._done)

    def _time_left(self, now: float) -> str:
        spent = now - self._start
        if spent < _FORESIGHT or self._done >= self._total:
            return ""
        return f"  about {_duration(spent * (self._total - self._done) / self._done)} left"
