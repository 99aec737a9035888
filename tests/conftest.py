"""Fixtures that several rooms of tests share, and how many threads a worker may use."""

from __future__ import annotations

import os
from zlib import crc32

import pytest
from threadpoolctl import threadpool_limits

# Two workers of pytest with two BLAS threads each wait for one another on two cores: up to three
# times the work. Variables for SciPy, scikit-learn and processes yet to come; a limit for NumPy,
# which pytest has imported already for the filters of warnings. Threads of kernelweave's own, which
# the tests about threads are for, are not touched.
for name in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(name, "1")
threadpool_limits(int(os.environ["OPENBLAS_NUM_THREADS"]), "blas")


def pytest_addoption(parser):
    parser.addoption(
        "--part",
        default="0/1",
        help="k/n runs the k-th of n parts of the tests, of about equal size and always the same.",
    )


def pytest_collection_modifyitems(config, items):
    part, parts = map(int, config.getoption("--part").split("/"))
    others = [item for item in items if crc32(item.nodeid.encode()) % parts != part]
    if others:
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if crc32(item.nodeid.encode()) % parts == part]


@pytest.fixture(scope="module")
def dask_client():
    """A client of a cluster of two workers on this machine, started once for a file of tests.

    Not for all of them: its threads draw from `random`, and Hypothesis takes that for a fault of
    whatever test it is running.

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
