"""Progress of a fit: a live bar in a terminal, plain lines when the output is piped."""

from __future__ import annotations

import math
import threading
import time
from typing import Any, Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

_PLAIN_SECONDS = 2.0  # between two plain lines


class _Progress:
    """A bar in a terminal, and a line now and then elsewhere."""

    def __init__(
        self, console: Console, title: str, total: float | None = None, status: str = ""
    ) -> None:
        self._console, self._title = console, title
        self.bar = Progress(
            TextColumn(" "),
            SpinnerColumn(finished_text="[green]✓[/]"),
            TextColumn("{task.description}"),
            BarColumn(bar_width=14),
            TextColumn("{task.fields[status]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(compact=True),
            TextColumn("left"),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self.bar.add_task(title, total=total, status=status)
        self._line = ""  # The last that was not printed.

    def __enter__(self) -> Self:
        self._start = self._printed = time.perf_counter()
        if self.bar.disable:
            self._console.print(f"  {self._title} ...")
        self.bar.start()
        return self

    def __exit__(self, *error: Any) -> None:
        self.bar.stop()
        if self._line and error[0] is None:
            self._console.print(self._line)

    def _show(self, completed: float, total: float, status: str, before: str = "") -> None:
        self.bar.update(self._task, completed=completed, total=total, status=status)
        if not self.bar.disable:
            return
        now = time.perf_counter()
        self._line = f"    {before}{status}  {now - self._start:.1f} s"
        if now - self._printed >= _PLAIN_SECONDS:
            self._console.print(self._line)
            self._line, self._printed = "", now


class FitProgress(_Progress):
    """A callback for an estimator: the gap falling and the active kernels.

    The bar is logarithmic: it is full when the gap has come down to `tol`, or when the time is
    over. For a Bayesian fit it is the change of the lower bound that falls.
    """

    def __init__(
        self, console: Console, title: str, tol: float, time_limit: float | None = None
    ) -> None:
        from kernelweave.solvers import Limits

        super().__init__(console, title, None, "building the kernels")
        self._tol = Limits(tol).target()
        self._time_limit = math.inf if time_limit is None else time_limit
        self._iteration = math.inf
        # The first gap, and the smallest so far: what the fit would keep if it stopped.
        self._first = self._gap = math.inf

    def __enter__(self) -> Self:
        super().__enter__()
        self._printed = -math.inf  # The first record is shown at once.
        return self

    def __call__(self, record: Any) -> None:
        if record.iteration <= self._iteration:
            # Each class has a fit of its own, and the next one begins.
            self._first = self._gap = math.inf
        self._iteration = record.iteration
        what = "change" if hasattr(record, "change") else "gap"
        gap = abs(float(getattr(record, what)))
        if math.isfinite(gap):
            self._first = max(gap, self._tol) if math.isinf(self._first) else self._first
            self._gap = min(self._gap, gap)
        fraction = record.seconds / self._time_limit
        if self._gap <= self._tol:
            fraction = 1.0
        elif math.isfinite(self._gap):
            whole = math.log(self._first / self._tol)
            fraction = max(fraction, math.log(self._first / self._gap) / whole)
        kernels = "kernel" if record.active_kernels == 1 else "kernels"
        status = f"{what} {self._gap:.1e}  {record.active_kernels} {kernels}"
        self._show(min(1.0, fraction), 1.0, status, f"iteration {record.iteration:>3}  ")


class CountProgress(_Progress):
    """A bar for work that consists of a known number of equal parts."""

    def __init__(self, console: Console, title: str, total: int) -> None:
        super().__init__(console, title, total)
        self._total, self._done = total, 0

    def advance_to(self, done: int) -> None:
        """Count all of the first `done` parts as done."""
        self._done = max(done, self._done)
        self._show(self._done, self._total, f"{self._done} of {self._total}")


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
                self.advance_to(self._done + 1)
            self._last[own] = record.iteration
