"""What a cluster lacks is said, and nothing hangs."""

from __future__ import annotations

import pickle
import sys
import time
from operator import methodcaller

import numpy as np
import pytest
from small_clusters import cluster_of_processes, small_cluster

from kernelweave import MKLClassifier
from kernelweave.bank import DaskBank
from kernelweave.cluster import team
from kernelweave.errors import (
    ClusterError,
    InvalidInputError,
    MemoryBudgetError,
    UnknownNameError,
)
from kernelweave.kernels import RBF, Linear, Precomputed, RBFBatch
from kernelweave.operators import ComputedOperator, bind_kernels
from kernelweave.solvers.mwu.rounds import BoxConstraints, rounds_of

distributed = pytest.importorskip("distributed")
dask = pytest.importorskip("dask")

X = np.random.default_rng(0).normal(size=(30, 3))
y = X[:, 0] > 0


@pytest.fixture(scope="module")
def threads():
    """A client of a cluster inside this process."""
    with distributed.Client(
        processes=False, n_workers=2, threads_per_worker=1, dashboard_address=":0"
    ) as client:
        yield client


def model(bank, **params):
    return MKLClassifier([RBF(width=1.0), Linear()], bank=bank, **params)


def test_a_cluster_without_workers():
    with (
        small_cluster(n_workers=0) as (_, client),
        pytest.raises(ClusterError, match="has no workers"),
    ):
        model(DaskBank(client)).fit(X, y)


def test_a_closed_client():
    client = distributed.Client(processes=False, n_workers=1, dashboard_address=":0")
    bank = DaskBank(client).build(ComputedOperator.build([Linear()], X))
    client.close()
    with pytest.raises(ClusterError, match="client of the bank is closed"):
        bank.quad(np.ones(30))
    with pytest.raises(ClusterError, match="client of the bank is closed"):
        model(DaskBank(client)).fit(X, y)


@pytest.mark.parametrize("client", ["tcp://127.0.0.1:8786", 3, object()])
def test_something_else_than_a_client(client):
    with pytest.raises(InvalidInputError, match=r"needs a dask\.distributed\.Client"):
        model(DaskBank(client)).fit(X, y)


def test_settings(threads):
    with pytest.raises(UnknownNameError, match="unknown shard 'point'; did you mean 'points'"):
        model(DaskBank(threads, "point")).fit(X, y)
    with pytest.raises(InvalidInputError, match="cache_mb"):
        model(DaskBank(threads, cache_mb=0)).fit(X, y)
    with pytest.raises(InvalidInputError, match="patience"):
        model(DaskBank(threads, patience=-1)).fit(X, y)
    assert repr(DaskBank(threads)) == "DaskBank(shard='points')"


def test_without_dask(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ImportError, match=r"pip install 'kernelweave\[dask\]'"):
        model(DaskBank(None)).fit(X, y)


def test_a_state_that_does_not_fit(dask_client):
    # 10^5 kernels on 20,000 samples: 8 GB on each of two workers that may take 4.
    many = RBFBatch(np.zeros((100_000, 1), np.int32), np.ones(100_000))
    samples = np.random.default_rng(1).normal(size=(20_000, 1))
    bank = DaskBank(dask_client).build(bind_kernels(many, samples))
    rules = BoxConstraints(*np.zeros((4, 20_000)))
    with pytest.raises(MemoryBudgetError, match=r"shard 0 of 2 with the state .* memory limit"):
        rounds_of(bank, rules)


@pytest.mark.parametrize("shard", ["points", "kernels"])
def test_a_shard_that_does_not_fit(shard):
    # Less than the process takes already, for which Dask would let a worker rest.
    rules = [f"distributed.worker.memory.{rule}" for rule in ("target", "spill", "pause")]
    with (
        dask.config.set(dict.fromkeys(rules, False)),
        small_cluster(memory_limit="1 kB") as (_, client),
        pytest.raises(MemoryBudgetError, match="shard 0 of 2 with its shard needs"),
    ):
        model(DaskBank(client, shard)).fit(X, y)


def test_workers_without_kernelweave(threads, monkeypatch):
    class Missing:
        def __init__(self):
            raise ModuleNotFoundError("No module named 'kernelweave'")

    monkeypatch.setattr(team, "Host", Missing)
    with pytest.raises(ClusterError, match="cannot import kernelweave"):
        model(DaskBank(threads)).fit(X, y)


def test_no_worker_left():
    with small_cluster() as (cluster, client):
        bank = DaskBank(client, patience=0.3).build(ComputedOperator.build([Linear()], X))
        assert bank.quad(np.ones(30)) > 0
        for worker in list(cluster.workers.values()):
            cluster.sync(worker.close)
        with pytest.raises(ClusterError, match=r"none has come in its place within 0\.3 s"):
            bank.quad(np.ones(30))


def test_a_scheduler_that_has_ended():
    with small_cluster() as (cluster, client):
        bank = DaskBank(client).build(ComputedOperator.build([Linear()], X))
        assert bank.quad(np.ones(30)) > 0
        cluster.sync(cluster.scheduler.close)
        began = time.monotonic()
        with pytest.raises(ClusterError, match="scheduler"):
            # Workers that are still there may answer some calls before they end too.
            while time.monotonic() < began + 60:
                bank.quad(np.ones(30))
        with pytest.raises(ClusterError, match="scheduler"):
            model(DaskBank(client)).fit(X, y)
        assert time.monotonic() < began + 30


def test_a_scheduler_that_is_killed_in_mid_fit(tmp_path):
    """SIGKILL: it cannot say goodbye."""
    with cluster_of_processes(tmp_path) as (scheduler, client):
        ended = []

        def kill(record):
            if not ended:
                scheduler.kill()
                scheduler.wait()
                ended.append(time.monotonic())

        # So many steps that the worker's answers cannot suffice for all of them.
        long = {"solver": "spg", "regularizer": "lp_ball", "tol": 1e-300, "max_iter": 10**8}
        with pytest.raises(ClusterError, match="scheduler"):
            model(DaskBank(client), callbacks=[kill], **long).fit(X, y)
        with pytest.raises(ClusterError, match="scheduler"):
            model(DaskBank(client)).fit(X, y)
        assert time.monotonic() < ended[0] + 30


def test_errors_of_workers_come_here(threads):
    K = 2.0 * np.eye(30) - 1.0
    kernel = Precomputed(np.eye(30))
    kernels = ComputedOperator.build([kernel], np.arange(30)[:, None])
    kernel._checked = (K, None)  # Gone bad after the check at the door.
    bank = DaskBank(threads).build(kernels)
    with pytest.raises(InvalidInputError, match="not positive semi-definite"):
        bank.quad(np.ones(30))
    with pytest.raises(InvalidInputError, match="kernel indices must be"):
        bank.team.ask_all("ask", np.array([7]), methodcaller("diagonal"))


def test_a_pickled_bank_has_no_client(threads):
    fitted = model(DaskBank(threads)).fit(X, y)
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict(X), fitted.predict(X))
    with pytest.raises(InvalidInputError, match="has no client"):
        again.fit(X, y)


def test_samples_have_to_be_in_memory_for_a_fit(threads):
    da = pytest.importorskip("dask.array")
    blocks = da.from_array(X, chunks=(10, 3))
    with pytest.raises(InvalidInputError, match=r"Dask Array.*bank=DaskBank\(client\)"):
        model(DaskBank(threads)).fit(blocks, y)
    fitted = model("auto").fit(X, y)
    with pytest.raises(InvalidInputError, match=r"X\.compute\(\)"):
        fitted.transform(blocks)
