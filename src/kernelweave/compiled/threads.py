"""Blocks of work on threads, with results that do not depend on how many threads there are."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ContextDecorator, contextmanager
from contextvars import ContextVar, copy_context
from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController

from kernelweave.compiled.blocks import CACHED_ENTRIES, MATRIX_COLUMNS

_INSIDE_WORKER = threading.local()
_THREADS: ContextVar[int | None] = ContextVar("kernelweave_threads", default=None)
_BETWEEN: ContextVar[Callable[[], None] | None] = ContextVar("kernelweave_between", default=None)


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def thread_count() -> int:
    """Return how many threads a pass over the kernels may use here."""
    chosen = _THREADS.get()
    return _cores() if chosen is None else chosen


@contextmanager
def use_threads(n_jobs: int | None) -> Iterator[None]:
    """Limit passes inside the block to `n_jobs` threads.

    None and -1 mean all cores, -2 all but one, and so on.
    """
    count = None
    if n_jobs is not None:
        count = n_jobs if n_jobs > 0 else max(1, _cores() + 1 + n_jobs)
    token = _THREADS.set(count)
    try:
        yield
    finally:
        _THREADS.reset(token)


@cache
def _controller() -> ThreadpoolController:
    # SciPy brings a BLAS of its own, and only libraries that are loaded can be limited.
    import scipy.linalg  # noqa: F401

    return ThreadpoolController()


class _BlasLimit(ContextDecorator):
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.users = 0
        self.limiter: Any = None

    def __enter__(self) -> None:
        with self.lock:
            if self.users == 0:
                self.limiter = _controller().limit(limits=1, user_api="blas")
            self.users += 1

    def __exit__(self, *error: object) -> None:
        with self.lock:
            self.users -= 1
            if self.users == 0:
                self.limiter.restore_original_limits()


_BLAS = _BlasLimit()


def one_blas_thread() -> _BlasLimit:
    """Keep BLAS to one thread: ours are already running, and its sums then have fixed order.

    The limit belongs to the whole process: with several fits at once the first sets it and the
    last one lifts it.
    """
    return _BLAS


@cache
def _pool(workers: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(workers, "kernelweave")


def _start_anew_after_fork() -> None:
    # A forked child inherits the pool object but not its threads, and maybe a held lock.
    _pool.cache_clear()
    _BLAS.__init__()  # type: ignore[misc]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_anew_after_fork)


@contextmanager
def between_blocks(look: Callable[[], None] | None) -> Iterator[None]:
    """Call `look` before every block of the passes inside; what it raises ends a pass.

    So a pass over all kernels, which may take many seconds, ends soon after its time is over.
    """
    token = _BETWEEN.set(look)
    try:
        yield
    finally:
        _BETWEEN.reset(token)


def look_between_blocks() -> None:
    """Call what :func:`between_blocks` was given, for work that takes long inside of a block."""
    look = _BETWEEN.get()
    if look is not None:
        look()


class _Ended(Exception):
    """Another thread of the same pass was interrupted, or failed."""


def rows_of(width: int, entries: int = CACHED_ENTRIES) -> int:
    """Return how many rows of that width make up so many entries, at least one."""
    return max(1, entries // max(1, width))


# A thread takes tens of microseconds to wake: less work than this is done where it is asked for.
_WORTH_A_THREAD = 4e6


def map_blocks(
    func: Callable[[int, int], None], n_items: int, block: int, work: float = float("inf")
) -> None:
    """Call ``func(start, stop)`` for consecutive blocks of ``range(n_items)`` on threads.

    The blocks depend on `block` only, never on the number of threads, so a function that writes
    just its own block gives the same bits whatever that number is. `func` should release the GIL
    (Numba with ``nogil=True``, NumPy, BLAS). A call from inside a block stays in its thread.
    `work` is about how many multiplications there are in all; few of them are not worth a thread.

    Examples
    --------
    >>> import numpy as np
    >>> out = np.zeros(10)
    >>> def fill(start, stop):
    ...     out[start:stop] = np.arange(start, stop)
    >>> map_blocks(fill, 10, block=4)
    >>> out.sum()
    np.float64(45.0)
    """
    block = max(1, block)
    starts = range(0, n_items, block)
    inside = getattr(_INSIDE_WORKER, "yes", False)
    alone = inside or work < _WORTH_A_THREAD
    workers = 1 if alone else min(thread_count(), len(starts))
    look = _BETWEEN.get()
    if workers <= 1:
        with _BLAS:
            for start in starts:
                if look is not None:
                    look()
                func(start, min(start + block, n_items))
        return
    queue = iter(starts)
    lock = threading.Lock()
    ended = False

    def look_at_all() -> None:
        if ended:
            raise _Ended
        if look is not None:
            look()

    def drain() -> None:
        nonlocal ended
        _INSIDE_WORKER.yes = True
        try:
            with between_blocks(look_at_all):
                while True:
                    look_at_all()
                    with lock:
                        start = next(queue, None)
                    if start is None:
                        return
                    func(start, min(start + block, n_items))
        except _Ended:
            return
        except BaseException:
            # After Ctrl-C or an error nobody takes up another block, nor ends a long one.
            ended = True
            raise
        finally:
            _INSIDE_WORKER.yes = False

    # The calling thread works too, so one thread fewer is borrowed from the pool. Each works in a
    # copy of this thread's context, where NumPy keeps what it may warn about.
    with _BLAS:
        pool = _pool(_cores())
        jobs = [pool.submit(copy_context().run, drain) for _ in range(workers - 1)]
        try:
            drain()
            for job in jobs:
                # Those that wait for a thread of the pool would find nothing left to do.
                if not job.cancel():
                    job.result()
        finally:
            # Ctrl-C may also have come while this thread waited.
            ended = not all(job.cancel() or job.done() for job in jobs)
            wait(jobs)


def map_columns(
    work: Callable[[int, int, int], None], count: int, n: int, cost: float, narrow: int = 8
) -> None:
    """Call ``work(k, first, last)`` for each of `count` matrices and each run of their n columns.

    A thread takes one run at a time, or `narrow` matrices that are no wider than a run.
    """
    blocks = -(-n // MATRIX_COLUMNS)

    def run(start: int, stop: int) -> None:
        for item in range(start, stop):
            k, b = divmod(item, blocks)
            work(k, b * MATRIX_COLUMNS, min((b + 1) * MATRIX_COLUMNS, n))

    map_blocks(run, count * blocks, 1 if n > MATRIX_COLUMNS else narrow, cost)
