"""Progress of a fit: a live bar in a terminal, plain lines when the output is piped."""

from __future__ import annotations

import math
import threading
import time
from contextlib import ExitStack
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

from kernelweave.compiled.first_run import CompileWatch, watch_compiling

__all__ = ["CountProgress", "FitProgress", "PathProgress"]

COMPILE_SECONDS = 15  # of the first run, measured on two cores
_PLAIN_SECONDS = 2.0  # between two plain lines
_FORESIGHT = 1.0  # seconds of solving after which the time left is worth a guess


class _Progress:
    """A bar in a terminal, and a line now and then elsewhere."""

    def __init__(self, console: Console, title: str, total: float | None, status: str = "") -> None:
        self._console = console
        self._title = title
        self._total = total
        self._status = status
        self._bar: Progress | None = None
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self._start = self._printed = time.perf_counter()
        if self._console.is_terminal:
            columns = (
                TextColumn(" "),
                SpinnerColumn(finished_text="[green]✓[/]"),
                TextColumn("{task.description:<30}"),
                BarColumn(bar_width=14),
                TextColumn("{task.fields[status]}"),
            )
            self._bar = self._stack.enter_context(Progress(*columns, console=self._console))
            self._bar.add_task(self._title, total=self._total, status=self._status)
        else:
            self._console.print(f"  {self._title} ...")
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.close()

    def _update(self, **news: Any) -> None:
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], **news)

    def _line_is_due(self) -> bool:
        return self._bar is None and time.perf_counter() - self._printed >= _PLAIN_SECONDS

    def _print_line(self, text: str) -> None:
        self._console.print(f"    {text}")
        self._printed = time.perf_counter()


def _left(seconds: float) -> str:
    if not math.isfinite(seconds):
        return ""
    if seconds < 90:
        told = f"{max(1, round(seconds))} s"
    else:
        told = f"{round(seconds / 60)} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
    return f"  about {told} left"


class FitProgress(_Progress):
    """A callback for an estimator: the gap falling, the active kernels, the time, and what is left.

    The bar is logarithmic: it is full when the gap has come down to `tol`. The time left is what it
    takes if the gap goes on falling as it did; or until the time limit, if that comes first. For a
    Bayesian fit it is the change of the lower bound that falls.
    """

    def __init__(
        self, console: Console, title: str, tol: float, time_limit: float | None = None
    ) -> None:
        from kernelweave.solvers import Limits

        super().__init__(console, title, None, "building the kernels")
        self._tol = Limits(tol).target()
        self._time_limit = math.inf if time_limit is None else time_limit
        self._notice = f"compiling once, about {COMPILE_SECONDS} s"
        self._compiles = CompileWatch(self._show_compiling, self._show_record)
        self._told = False
        self._first_gap = 0.0
        self._first_seconds = 0.0
        self._gap = math.inf  # the smallest so far: what the fit would keep if it stopped
        self._last: Any = None
        self._pending = False

    def __enter__(self) -> Self:
        super().__enter__()
        self._printed = -math.inf
        self._stack.enter_context(watch_compiling(self._compiles))
        return self

    def __exit__(self, *error: Any) -> None:
        if error[0] is None and self._pending:
            self._print_record()
        super().__exit__(*error)

    def __call__(self, record: Any) -> None:
        """Show one record of the history."""
        if self._last is not None and record.iteration <= self._last.iteration:
            # Each class has a fit of its own, and the next one begins.
            self._first_gap, self._gap = 0.0, math.inf
        self._last = record
        gap = abs(float(record.change if hasattr(record, "change") else record.gap))
        if math.isfinite(gap):
            if not self._first_gap:
                self._first_gap, self._first_seconds = max(gap, self._tol), record.seconds
            self._gap = min(self._gap, gap)
        self._pending = self._bar is None
        if self._bar is not None:
            self._update(total=1.0, completed=self._fraction(), status=self._describe())
        elif self._line_is_due():
            self._print_record()

    @property
    def compile_seconds(self) -> float:
        """Seconds that went into compiling."""
        return self._compiles.seconds

    def _show_compiling(self) -> None:
        """Say that the time goes into compiling and will not be needed again."""
        self._update(status=f"[yellow]{self._notice}[/]")
        if self._bar is None and not self._told:
            self._console.print(f"    {self._notice}")
        self._told = True

    def _show_record(self) -> None:
        """Go back from the compiling notice to the last record."""
        if self._told and self._last is not None:
            self._update(status=self._describe())

    def _fraction(self) -> float:
        if not math.isfinite(self._gap):
            return 0.0
        if self._gap <= self._tol:
            return 1.0
        return math.log(self._first_gap / self._gap) / math.log(self._first_gap / self._tol)

    def _describe(self) -> str:
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
        if spent <= _FORESIGHT or done == 1:
            return ""
        left = spent * (1 - done) / done if done > 0 else math.inf
        return _left(min(left, max(0.0, self._time_limit - self._last.seconds)))

    def _print_record(self) -> None:
        self._print_line(f"iteration {self._last.iteration:>3}  {self._describe()}")
        self._pending = False


class CountProgress(_Progress):
    """A bar for work that consists of a known number of equal parts."""

    _total: int

    def __init__(self, console: Console, title: str, total: int) -> None:
        super().__init__(console, title, total)
        self._done = 0

    def advance_to(self, done: int) -> None:
        """Count all of the first `done` parts as done."""
        self._done = max(done, self._done)
        spent = time.perf_counter() - self._start
        status = f"{self._done} of {self._total}  {spent:.1f} s"
        if spent >= _FORESIGHT and 0 < self._done < self._total:
            status += _left(spent * (self._total - self._done) / self._done)
        self._update(completed=self._done, status=status)
        if self._line_is_due():
            self._print_line(status)

    def advance(self, parts: int = 1) -> None:
        """Count `parts` more as done."""
        self.advance_to(self._done + parts)


class PathProgress(CountProgress):
    """A callback for a cross-validated path: how many of its fits have been begun."""

    def __init__(self, console: Console, title: str, total: int) -> None:
        super().__init__(console, title, total)
        self._lock = threading.Lock()  # folds run in threads
        self._last: dict[int, int] = {}

    def __call__(self, record: Any) -> None:
        """Count a fit when its first record comes."""
        with self._lock:
            own = threading.get_ident()
            if record.iteration <= self._last.get(own, 10**9):
                self.advance()
            self._last[own] = record.iteration
