"""Clusters on this machine whose workers the tests send away."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

__all__ = ["cluster_of_processes", "small_cluster"]

# Seconds after which a cluster is left to the end of the process.
PATIENCE = 20


@contextmanager
def small_cluster(
    n_workers: int = 2, processes: bool = False, memory_limit: str = "auto", **of_client: Any
) -> Iterator[Any]:
    """Start workers of one thread each; the cluster, and a client of it.

    A `LocalCluster` that has lost workers now and then waits for them for ever when it is closed,
    and with it all tests.
    """
    import distributed

    cluster = distributed.LocalCluster(
        n_workers=n_workers,
        processes=processes,
        threads_per_worker=1,
        memory_limit=memory_limit,
        dashboard_address=":0",
    )
    try:
        with distributed.Client(cluster, **of_client) as client:
            yield cluster, client
    finally:
        with suppress(TimeoutError):
            cluster.close(timeout=PATIENCE)


@contextmanager
def cluster_of_processes(folder: Path) -> Iterator[Any]:
    """Start a scheduler and a worker, each a process; that of the scheduler, and a client."""
    import distributed

    file = folder / "scheduler.json"
    where = ["--scheduler-file", str(file), "--no-dashboard"]
    with ExitStack() as stack:

        def start(name: str, *options: str) -> subprocess.Popen[bytes]:
            command = [sys.executable, "-m", f"distributed.cli.{name}", *where, *options]
            process = stack.enter_context(
                subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            )
            stack.callback(process.kill)
            return process

        scheduler = start("dask_scheduler", "--host", "127.0.0.1", "--port", "0")
        start("dask_worker", "--nthreads", "1", "--no-nanny")
        # Waits for the file.
        client = distributed.Client(scheduler_file=str(file))
        stack.callback(client.close, PATIENCE)
        client.wait_for_workers(1)
        yield scheduler, client
