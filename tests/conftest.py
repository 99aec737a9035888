"""Fixtures that several rooms of tests share."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def dask_client():
    """A client of a real cluster: two worker processes on this machine, started once."""
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(
            processes=True,
            n_workers=2,
            threads_per_worker=1,
            memory_limit="4GB",
            dashboard_address=":0",
        ) as cluster,
        distributed.Client(cluster, direct_to_workers=True) as client,
    ):
        yield client
