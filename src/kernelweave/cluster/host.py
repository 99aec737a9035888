"""The actor that lives on a worker and holds one shard."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kernelweave.compiled.threads import one_blas_thread, use_threads

__all__ = ["Host"]


class Host:
    """One shard on a worker of `dask.distributed`.

    Whatever the shard raises is returned, so that an exception of the call itself can only mean
    that the worker cannot be reached.
    """

    def __init__(self) -> None:
        self._shard: Any = None

    def room(self) -> float:
        """Bytes this worker may take; infinity if nobody set a limit."""
        from distributed import get_worker

        return float(get_worker().memory_manager.memory_limit or float("inf"))

    def do(self, name: str, args: tuple[Any, ...]) -> tuple[bool, Any]:
        """Call a method of the shard; returns (True, answer) or (False, exception)."""
        return self._guarded(lambda: getattr(self._shard, name)(*args))

    def load(self, make: Callable[..., Any], args: tuple[Any, ...]) -> tuple[bool, Any]:
        """Make the shard."""

        def work() -> None:
            self._shard = make(*args)

        return self._guarded(work)

    def _guarded(self, work: Callable[[], Any]) -> tuple[bool, Any]:
        from distributed import get_worker

        try:
            # As many threads as the worker was given, whatever else runs on its machine.
            with use_threads(get_worker().state.nthreads), one_blas_thread():
                return True, work()
        except Exception as error:
            return False, error
