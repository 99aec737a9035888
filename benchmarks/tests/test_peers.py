"""The comparison with other packages: problems alike for all, one evaluator, honest tables."""

import sys
from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics.pairwise import rbf_kernel

from benchmarks.peers.data import NUMBERS, TWO_CLASSES, Data
from benchmarks.peers.kernelweave import from_rows, given
from benchmarks.peers.objective import evaluate, onto_simplex, optimum
from benchmarks.peers.problems import diabetes
from benchmarks.peers.run import Environment, mean, run
from benchmarks.peers.text import row


@pytest.fixture
def data():
    """Three Gaussian kernels on two classes, 60 rows to train and 20 to test on."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 3))
    y = np.where(X[:, 0] + 0.3 * rng.normal(size=80) > 0, 1.0, -1.0)
    kernels = [["rbf", 1.0, [j]] for j in range(3)]
    grams = np.array([rbf_kernel(X[:, [j]], gamma=0.5) for j in range(3)])
    return Data(TWO_CLASSES, grams, X, y, np.arange(60), np.arange(60, 80), 1.0, kernels)


def test_evaluator_puts_the_optimum_below_all_weights_and_reaches_it(data):
    best = optimum(data)
    learnt = given(data, tol=1e-6)
    learnt.fit()
    assert evaluate(data, learnt.weights())[0] == pytest.approx(best, rel=1e-5)
    for weights in np.random.default_rng(0).dirichlet(np.ones(3), 5):
        assert evaluate(data, weights)[0] >= best


def test_evaluator_of_the_squared_loss_agrees_with_the_solver(data):
    numbers = replace(data, kind=NUMBERS, y=data.rows[:, 0] ** 2)
    equal = given(numbers, solver="uniform", tol=1e-8)
    equal.fit()
    value, _ = evaluate(numbers, np.ones(3))
    assert equal.model.objective_ == pytest.approx(value, rel=1e-6)


def test_weights_of_all_signs_come_onto_the_simplex():
    weights = [[3.0, -1.0, 1.0], [1.0, np.nan, 1.0], [-1.0, np.nan, 0.0]]
    rows = onto_simplex(np.array(weights))
    assert rows.tolist() == [[0.75, 0.0, 0.25], [0.5, 0.0, 0.5], [1 / 3] * 3]


def test_matrices_are_what_the_described_kernels_compute():
    split = diabetes(None).split(0)
    matrices, rows = given(split), from_rows(split)
    matrices.fit()
    rows.fit()
    assert np.allclose(split.grams[:, np.arange(442), np.arange(442)], 1.0)
    assert np.allclose(matrices.decision(), rows.decision(), atol=0.05)


def test_worker_answers_for_every_split_in_a_process_of_its_own(data, tmp_path):
    paths = [tmp_path / "0.npz", tmp_path / "1.npz"]
    for path in paths:
        data.save(path)
    here = Environment(sys.executable, {})
    found = run(here, "sklearn", ["SVC, mean", "no such contestant"], paths, 30.0)
    first, second = found["SVC, mean"]
    assert first["predicted"] == second["predicted"]
    assert first["weights"] == pytest.approx([1 / 3] * 3)
    assert first["seconds"] > 0
    assert "no such contestant" in found["no such contestant"][0]["error"]
    (gone,) = run(here, "no_such_library", ["SVC, mean"], paths, 30.0)["SVC, mean"]
    assert "no_such_library" in gone["error"]


def test_a_peer_that_is_not_there_has_the_reason_in_its_row(tmp_path):
    reason = "ERROR: No matching distribution found for MKLpy"
    nowhere = Environment(None, {}, reason)
    found = run(nowhere, "mklpy", ["EasyMKL"], [tmp_path / "no.npz"], 1.0)
    assert reason in row({"library": "mklpy", "name": "EasyMKL", **mean(found["EasyMKL"])}, 1)[1]
