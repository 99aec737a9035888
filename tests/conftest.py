"""Fixtures that several rooms of tests share."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def dask_client():
    """A client of a cluster of two workers on this machine, started once.

    The workers are threads, which start at once, but everything travels through sockets as it does
    between machines. Workers that are processes: `test_dask_fits.py`.
    """
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(
            processes=False,
            protocol="tcp",
            n_workers=2,
            threads_per_worker=1,
            memory_limit="4GB",
            dashboard_address=":0",
        ) as cluster,
        distributed.Client(cluster, direct_to_workers=True) as client,
    ):
        yield client
