"""One line for the user when Numba compiles for long: the first fit on a fresh install."""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from numba.core import event

__all__ = ["CompileClock", "compile_notice", "mark_told", "told_elsewhere"]

# Seconds of compiling after which it is worth a word.
LONG_COMPILE = 1.0
_TEXT = (
    "kernelweave: compiling its inner loops, once on this machine (up to half a minute); later "
    "fits and processes start at once. KERNELWEAVE_QUIET=1 silences this line."
)


class CompileClock(event.Listener):
    """Counts the seconds in which Numba compiles what its cache on disk does not have.

    Numba compiles under a lock of its own, so that its methods are called by one thread at a time.

    Attributes
    ----------
    seconds : float
        Spent so far, in functions that are done.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self._depth = 0  # one function compiles those it calls
        self._since = 0.0

    def on_start(self, event: Any) -> None:
        """Begin a function."""
        now = time.perf_counter()
        if self._depth == 0:
            self._since = now
        self._depth += 1
        if self.seconds + now - self._since > LONG_COMPILE:
            self.takes_long()

    def on_end(self, event: Any) -> None:
        """End a function."""
        self._depth -= 1
        if self._depth == 0:
            if self.counts():
                self.seconds += time.perf_counter() - self._since
            self.is_done()

    def counts(self) -> bool:
        """Whether what is compiled now is to be counted."""
        return True

    def takes_long(self) -> None:
        """Called, often, when compiling has become worth a word."""

    def is_done(self) -> None:
        """Called when other work goes on."""


class _Notice(CompileClock):
    """Says once that Numba compiles."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()
        self.registered = False
        self.told = False
        self.fits = 0  # that are running
        self.elsewhere = 0

    def counts(self) -> bool:
        return self.fits > 0

    def takes_long(self) -> None:
        if self.told or not self.fits or self.elsewhere or not _may_speak():
            return
        self.told = True
        print(_TEXT, file=sys.stderr, flush=True)


_NOTICE = _Notice()


def _may_speak() -> bool:
    """Whether the user wants to hear of it, and has not heard it from the process that asked."""
    quiet = os.environ.get("KERNELWEAVE_QUIET", "").strip().lower()
    return quiet in ("", "0", "false") and multiprocessing.current_process().name == "MainProcess"


@contextmanager
def compile_notice() -> Iterator[None]:
    """Say on stderr, once in a process, if Numba compiles for more than a second in here.

    Workers of joblib, multiprocessing and Dask stay silent, and so does everybody where the
    environment variable ``KERNELWEAVE_QUIET`` is set.
    """
    with _NOTICE.lock:
        if not _NOTICE.registered:
            event.register("numba:compile", _NOTICE)
            _NOTICE.registered = True
        _NOTICE.fits += 1
    try:
        yield
    finally:
        with _NOTICE.lock:
            _NOTICE.fits -= 1


@contextmanager
def told_elsewhere() -> Iterator[None]:
    """Keep the line back in here: a progress display says it in its own way."""
    with _NOTICE.lock:
        _NOTICE.elsewhere += 1
    try:
        yield
    finally:
        with _NOTICE.lock:
            _NOTICE.elsewhere -= 1


def mark_told() -> None:
    """Keep the line back from now on: the user has heard it."""
    _NOTICE.told = True
