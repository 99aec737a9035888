"""The first run on a machine: a folder for compiled code, and a word where compiling takes long."""

from __future__ import annotations

import multiprocessing
import os
import stat
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numba
from numba.core import event

# Seconds of compiling after which it is worth a word.
LONG_COMPILE = 1.0
_TEXT = (
    "kernelweave: compiling its inner loops, once on this machine (up to half a minute); later "
    "fits and processes start at once. KERNELWEAVE_QUIET=1 silences this line."
)


def ensure_cache_folder() -> Path | None:
    """Give Numba a folder for compiled code if it finds none, and warn.

    Numba keeps compiled code beside the source or in the user's cache folder, and refuses to
    compile (with ``cache=True``) where it can write neither: a read-only install and no home, as
    in some containers. Then a private one in the temporary folder takes their place, for this
    process and those it starts. Returns the folder, if one was needed.
    """
    try:
        # Never compiled: to decorate a function is to look for a folder.
        numba.njit(cache=True)(_private_folder)
        return None
    except RuntimeError:
        folder = _private_folder()
    os.environ["NUMBA_CACHE_DIR"] = str(folder)
    numba.config.CACHE_DIR = str(folder)  # type: ignore[attr-defined]
    warnings.warn(
        "neither the folder of kernelweave nor your cache folder can be written, so compiled code "
        f"is kept in {folder} and may have to be compiled again when that is cleared. Set the "
        "environment variable NUMBA_CACHE_DIR to a folder that stays.",
        RuntimeWarning,
        stacklevel=2,
    )
    return folder


def _private_folder() -> Path:
    """Return a folder that nobody else can write: what Numba loads from it is code."""
    user = os.getuid() if hasattr(os, "getuid") else "user"
    folder = Path(tempfile.gettempdir()) / f"kernelweave-numba-{user}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
        own = not hasattr(os, "getuid") or (
            found.st_uid == os.getuid() and not stat.S_IMODE(found.st_mode) & 0o022
        )
        if stat.S_ISDIR(found.st_mode) and own:
            return folder
    except OSError:
        pass
    return Path(tempfile.mkdtemp(prefix="kernelweave-numba-"))


@dataclass(eq=False)
class CompileWatch:
    """Somebody who wants to know of compiling."""

    takes_long: Callable[[], None]  # Called, often, when compiling has become worth a word.
    is_done: Callable[[], None] = lambda: None  # Called when other work goes on.
    seconds: float = 0.0  # Spent on functions that were compiled while this was watching.


class _Clock(event.Listener):
    """Counts the seconds in which Numba compiles what its cache on disk does not have.

    Numba compiles under a lock of its own, so that its methods are called by one thread at a time.
    Of several who watch the first is told: a fit leaves it to the progress display around it.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.registered = self.told = False
        self.watches: list[CompileWatch] = []
        self.notice = CompileWatch(self._print)
        self._depth = 0  # one function compiles those it calls
        self._since = 0.0

    def on_start(self, event: Any) -> None:
        now = time.perf_counter()
        if self._depth == 0:
            self._since = now
        self._depth += 1
        for watch in self.watches[:1]:
            if watch.seconds + now - self._since > LONG_COMPILE:
                watch.takes_long()
                self.told = True

    def on_end(self, event: Any) -> None:
        self._depth -= 1
        if self._depth == 0 and self.watches:
            for watch in set(self.watches):  # fits in several threads share the notice
                watch.seconds += time.perf_counter() - self._since
            self.watches[0].is_done()

    def _print(self) -> None:
        """Print the notice, unless the user has seen it or does not want to."""
        quiet = os.environ.get("KERNELWEAVE_QUIET", "").strip().lower() not in ("", "0", "false")
        main = multiprocessing.current_process().name == "MainProcess"
        if main and not quiet and not self.told:
            print(_TEXT, file=sys.stderr, flush=True)


_CLOCK = _Clock()


@contextmanager
def watch_compiling(watch: CompileWatch) -> Iterator[None]:
    """Tell `watch` if Numba compiles for more than a second in here."""
    with _CLOCK.lock:
        if not _CLOCK.registered:
            event.register("numba:compile", _CLOCK)
            _CLOCK.registered = True
        _CLOCK.watches.append(watch)
    try:
        yield
    finally:
        with _CLOCK.lock:
            _CLOCK.watches.remove(watch)


def compile_notice() -> AbstractContextManager[None]:
    """Say on stderr, once in a process, if Numba compiles for more than a second in here.

    Workers of joblib, multiprocessing and Dask stay silent, and so does everybody where the
    environment variable ``KERNELWEAVE_QUIET`` is set.
    """
    return watch_compiling(_CLOCK.notice)
