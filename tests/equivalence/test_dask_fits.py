"""Fits on a cluster end where those on one machine do, also when a worker dies on the way."""

from __future__ import annotations

import os
import pickle
import signal
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import make_classification
from small_clusters import small_cluster

from kernelweave import BayesianMKLRegressor, MKLClassifier, MKLOneClass, MKLRegressor
from kernelweave.bank import DaskBank, LazyBank, build_bank
from kernelweave.kernels import RBF, Linear, RBFBatch
from kernelweave.operators import base as protocol

pytest.importorskip("distributed")

KERNELS = [RBF(width=w).on(s) for w in (1.0, 3.0) for s in ([0, 1], [1, 2], [3])] + [Linear()]


class OneMachine:
    """The plan of a local bank as exact as the one on the cluster."""

    def build(self, kernels):
        bank = build_bank(LazyBank(dtype="float64"), kernels)
        bank.round_size = protocol.round_size_of(bank.n)
        return bank


@dataclass
class NoMatrix:
    """The plan of a bank that answers as one of many samples does: no matrix is formed."""

    plan: Any

    def build(self, kernels):
        bank = self.plan.build(kernels)
        bank.matrix_limit = 10
        return bank


@pytest.fixture(scope="module")
def data():
    return make_classification(
        120, 4, n_informative=3, n_redundant=0, class_sep=0.7, random_state=1
    )


def compare(model, reference, X):
    assert model.n_iter_ == reference.n_iter_
    np.testing.assert_allclose(model.weights_, reference.weights_, atol=1e-10)
    np.testing.assert_array_equal(model.support_, reference.support_)
    np.testing.assert_allclose(model.dual_coef_, reference.dual_coef_, atol=1e-10)
    np.testing.assert_allclose(
        model.decision_function(X), reference.decision_function(X), atol=1e-10
    )
    assert abs(model.gap_ - reference.gap_) <= 1e-10


BATCH = RBFBatch.random(40, 4, sizes=(1, 3))
FITS = {
    "mwu": {"solver": "mwu"},
    "mwu-l2": {"solver": "mwu", "loss": "squared_hinge"},
    "mwu-batch": {"solver": "mwu", "kernels": BATCH},
    "spg": {"solver": "spg"},
    "spg-mixed": {"solver": "spg", "kernels": [*KERNELS[:3], RBFBatch.random(20, 4, sizes=(1, 3))]},
    "spicy": {"solver": "spicy", "loss": "logistic"},
}
# Both ways to cut a bank for all of them, but for two of the long ones.
SHARDS = {"mwu-l2": ["points"], "mwu-batch": ["kernels"]}


@pytest.mark.parametrize(
    ("name", "shard"),
    [(name, shard) for name in FITS for shard in SHARDS.get(name, ["points", "kernels"])],
)
def test_fits_end_where_those_on_one_machine_do(dask_client, data, name, shard):
    X, y = data
    model = MKLClassifier(**{"kernels": KERNELS, "tol": 0.1, **FITS[name]})
    reference = clone(model).set_params(bank=OneMachine()).fit(X, y)
    found = clone(model.set_params(bank=DaskBank(dask_client, shard))).fit(X, y)
    assert found.converged_
    compare(found, reference, X)


@pytest.mark.parametrize("shard", ["points", "kernels"])
def test_spg_asks_for_rows_where_no_matrix_is_formed(dask_client, data, shard):
    # As with more samples than a matrix is formed for: products and blocks come from the workers.
    X, y = data
    model = MKLClassifier(KERNELS, solver="spg", tol=1e-2)
    reference = clone(model).set_params(bank=NoMatrix(OneMachine())).fit(X, y)
    bank = NoMatrix(DaskBank(dask_client, shard))
    found = clone(model).set_params(bank=bank).fit(X, y)
    if shard == "points":  # By kernels the working sets are the local default.
        compare(found, reference, X)
    assert abs(found.objective_ - reference.objective_) <= 1e-2 * reference.objective_


def test_regression_and_one_class(dask_client, data):
    X, _ = data
    bank = DaskBank(dask_client)
    for model, y in (
        (MKLRegressor(KERNELS, C=10.0, tol=1e-10), X[:, 0] * X[:, 1]),
        (MKLOneClass(KERNELS, tol=1e-10), None),
    ):
        # Products of shards are rounded in another way: the optimum is the same, no step is.
        reference = clone(model).set_params(bank=OneMachine()).fit(X, y)
        found = model.set_params(bank=bank).fit(X, y)
        np.testing.assert_allclose(found.weights_, reference.weights_, atol=1e-5)
        np.testing.assert_allclose(
            found.decision_function(X) if y is None else found.predict(X),
            reference.decision_function(X) if y is None else reference.predict(X),
            atol=1e-5 * np.abs(reference.dual_coef_).sum(),
        )


def test_a_worker_process_that_is_killed_is_replaced(data):
    """Before that, a fit by kernels: nothing that a shard needs is in the memory of the caller."""
    X, y = data
    model = MKLClassifier(KERNELS, solver="mwu", tol=0.1)
    reference = clone(model).set_params(bank=OneMachine()).fit(X, y)
    with small_cluster(processes=True, direct_to_workers=True) as (_, client):
        alive = list(client.run(os.getpid).values())
        other = MKLClassifier(KERNELS, solver="spg", tol=0.1, bank=DaskBank(client, "kernels"))
        alone = clone(other).set_params(bank=OneMachine()).fit(X, y)
        compare(other.fit(X, y), alone, X)

        def kill(record):
            if record.iteration == 3:
                os.kill(alive.pop(), signal.SIGKILL)

        # Without patience its shard moves to a worker that has one already.
        bank = DaskBank(client, patience=0)
        found = clone(model).set_params(bank=bank, callbacks=[kill]).fit(X, y)
    assert len(alive) == 1
    compare(found, reference, X)


@pytest.mark.parametrize(("solver", "shard"), [("mwu", "points"), ("spg", "kernels")])
def test_a_worker_that_goes_is_replaced_by_one_that_comes(data, solver, shard):
    X, y = data
    # Kernels are frozen on the way: what they have missed has to be restored, too.
    kernels = RBFBatch.random(40, 4, sizes=(1, 3))
    model = MKLClassifier(kernels, solver=solver, tol=1e-2)
    reference = clone(model).set_params(bank=OneMachine()).fit(X, y)
    with small_cluster() as (cluster, client):
        gone = []

        def go(record):
            if record.iteration in (2, 5):
                number = min(set(cluster.workers) - set(gone))
                gone.append(number)
                cluster.sync(cluster.workers[number].close)
                cluster.scale(2 + len(gone))

        found = clone(model).set_params(bank=DaskBank(client, shard), callbacks=[go]).fit(X, y)
    assert len(gone) == 2
    compare(found, reference, X)


@pytest.mark.parametrize("frame", [False, True], ids=["array", "frame"])
def test_predictions_of_dask_collections(data, frame):
    da, dd = pytest.importorskip("dask.array"), pytest.importorskip("dask.dataframe")
    X, y = data
    samples = pd.DataFrame(X, columns=list("abcd")) if frame else X
    names = np.array(["no", "yes"])[y]
    models = [
        MKLClassifier([RBF(width=1.0), Linear()]).fit(samples, names),
        MKLClassifier([RBF(width=1.0), Linear()], loss="logistic").fit(samples, y + (X[:, 0] > 1)),
        MKLRegressor([RBF(width=1.0)]).fit(samples, X[:, 0]),
        MKLOneClass([RBF(width=1.0)]).fit(samples),
    ]
    # Blocks of rows and of columns; and a partition that a filter has emptied.
    blocks = da.from_array(X, chunks=(50, 3))
    if frame:
        whole = dd.from_pandas(samples, npartitions=3)
        blocks = whole.map_partitions(lambda part: part[part.index >= 40])
        samples = samples[samples.index >= 40]
    for model in models:
        for name in ("predict", "decision_function", "predict_proba", "score_samples"):
            if not hasattr(model, name):
                continue
            expected = getattr(model, name)(samples)
            lazy = getattr(model, name)(blocks)
            assert isinstance(lazy, da.Array)
            assert lazy.dtype == expected.dtype
            found = lazy.compute(scheduler="synchronous")
            assert found.shape == expected.shape
            if expected.dtype.kind == "f":
                np.testing.assert_allclose(found, expected, atol=1e-12)
            else:
                np.testing.assert_array_equal(found, expected)


def test_predictions_with_standard_deviations_and_on_the_cluster(dask_client, data):
    da = pytest.importorskip("dask.array")
    X, y = data
    model = BayesianMKLRegressor([RBF(width=1.0)]).fit(X, X[:, 0])
    mean, std = model.predict(da.from_array(X, chunks=(50, 4)), return_std=True)
    expected = model.predict(X, return_std=True)
    np.testing.assert_allclose(mean.compute(scheduler="synchronous"), expected[0], atol=1e-12)
    np.testing.assert_allclose(std.compute(scheduler="synchronous"), expected[1], atol=1e-12)
    # A model that was fitted on a cluster predicts there, too.
    model = MKLClassifier(KERNELS[:2], bank=DaskBank(dask_client)).fit(X, y)
    lazy = model.decision_function(da.from_array(X, chunks=(50, 4)))
    found = dask_client.compute(lazy).result()
    np.testing.assert_allclose(found, model.decision_function(X), atol=1e-12)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
