"""Progress of a fit: a live bar in a terminal, plain lines when the output is piped."""

from __future__ import annotations

import math
import time
from contextlib import ExitStack
from types import TracebackType
from typing import Any

from numba.core import event
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn

__all__ = ["CountProgress", "FitProgress"]

_PLAIN_SECONDS = 2.0  # between two plain lines
_LONG_COMPILE = 1.0  # seconds of compiling after which it is worth a word


def _live_bar(console: Console) -> Progress:
    return Progress(
        TextColumn(" "),
        SpinnerColumn(finished_text="[green]✓[/]"),
        TextColumn("{task.description:<30}"),
        BarColumn(bar_width=14),
        TextColumn("{task.fields[status]}"),
        console=console,
    )


class _CompileListener(event.Listener):
    """Hears Numba compile the functions that its disk cache does not have."""

    def __init__(self, progress: FitProgress) -> None:
        self.seconds = 0.0
        self._progress = progress
        self._depth = 0  # one function compiles those it calls
        self._since = 0.0

    def on_start(self, event: Any) -> None:
        now = time.perf_counter()
        if self._depth == 0:
            self._since = now
        self._depth += 1
        if self.seconds + now - self._since > _LONG_COMPILE:
            self._progress.show_compiling()

    def on_end(self, event: Any) -> None:
        self._depth -= 1
        if self._depth == 0:
            self.seconds += time.perf_counter() - self._since
            self._progress.show_record()


class FitProgress:
    """A callback for an estimator that shows the gap falling, the active kernels and the time.

    The bar is logarithmic: it is full when the gap has come down to `tol`.

    Parameters
    ----------
    console : rich.console.Console
        Where to write; live if it is a terminal, otherwise a line now and then.
    title : str
        What is being fitted.
    tol : float
        The gap at which the fit ends.
    compile_seconds : int
        About how long the first run compiles, for the message.
    """

    def __init__(self, console: Console, title: str, tol: float, compile_seconds: int) -> None:
        self._console = console
        self._title = title
        self._tol = tol
        self._notice = f"compiling once, about {compile_seconds} s"
        self._compiles = _CompileListener(self)
        self._told = False
        self._first_gap = 0.0
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
        self._stack.enter_context(event.install_listener("numba:compile", self._compiles))
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
        self._last = record
        if math.isfinite(record.gap):
            self._first_gap = self._first_gap or max(record.gap, self._tol)
            self._gap = min(self._gap, record.gap)
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

    def show_compiling(self) -> None:
        """Say that the time goes into compiling and will not be needed again."""
        if self._bar is not None:
            self._bar.update(self._task, status=f"[yellow]{self._notice}[/]")
        elif not self._told:
            self._console.print(f"    {self._notice}")
        self._told = True

    def show_record(self) -> None:
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
        return f"gap {self._gap:.1e}  {record.active_kernels} {kernels}  {seconds:.1f} s"

    def _print_line(self) -> None:
        self._console.print(f"    iteration {self._last.iteration:>3}  {self._status()}")
        self._printed = time.perf_counter()
        self._pending = False


class CountProgress:
    """A bar for work that consists of a known number of equal parts; silent when piped.

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

    def __enter__(self) -> CountProgress:
        self._start = time.perf_counter()
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
        if self._bar is not None:
            seconds = time.perf_counter() - self._start
            self._bar.update(self._task, advance=parts, status=f"{seconds:.1f} s")
