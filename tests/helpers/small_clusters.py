"""Clusters on this machine whose workers the tests send away."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

__all__ = ["small_cluster"]

# Seconds after which a cluster is left to the end of the process.
PATIENCE = 20


@contextmanager
def small_cluster(n_workers: int = 2, processes: bool = False, **of_client: Any) -> Iterator[Any]:
    """Start workers of one thread each; the cluster, and a client of it.

    A `LocalCluster` that has lost workers now and then waits for them for ever when it is closed,
    and with it all tests.
    """
    import distributed

    cluster = distributed.LocalCluster(
        n_workers=n_workers, processes=processes, threads_per_worker=1, dashboard_address=":0"
    )
    try:
        with distributed.Client(cluster, **of_client) as client:
            yield cluster, client
    finally:
        with suppress(TimeoutError):
            cluster.close(timeout=PATIENCE)
