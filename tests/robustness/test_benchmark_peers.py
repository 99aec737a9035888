"""The comparison with other packages: problems alike for all, one evaluator, honest tables."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics.pairwise import rbf_kernel

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(autouse=True)
def siblings(monkeypatch):
    """Benchmarks import their neighbours by bare names."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))


@pytest.fixture
def data():
    """Three Gaussian kernels on two classes, 60 rows to train and 20 to test on."""
    from peers_data import TWO_CLASSES, Data

    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 3))
    y = np.where(X[:, 0] + 0.3 * rng.normal(size=80) > 0, 1.0, -1.0)
    kernels = [["rbf", 1.0, [j]] for j in range(3)]
    grams = np.array([rbf_kernel(X[:, [j]], gamma=0.5) for j in range(3)])
    return Data(TWO_CLASSES, grams, X, y, np.arange(60), np.arange(60, 80), 1.0, kernels)


def test_evaluator_puts_the_optimum_below_all_weights_and_reaches_it(data):
    from peers_kernelweave import Given
    from peers_objective import evaluate, optimum

    best = optimum(data)
    learnt = Given(data, tol=1e-6)
    learnt.fit()
    assert evaluate(data, learnt.weights())[0] == pytest.approx(best, rel=1e-5)
    for weights in np.random.default_rng(0).dirichlet(np.ones(3), 5):
        assert evaluate(data, weights)[0] >= best


def test_evaluator_of_the_squared_loss_agrees_with_the_solver(data):
    from dataclasses import replace

    from peers_data import NUMBERS
    from peers_kernelweave import Given
    from peers_objective import evaluate

    numbers = replace(data, kind=NUMBERS, y=data.rows[:, 0] ** 2)
    equal = Given(numbers, solver="uniform", tol=1e-8)
    equal.fit()
    value, _ = evaluate(numbers, np.ones(3))
    assert equal.model.objective_ == pytest.approx(value, rel=1e-6)


def test_weights_of_all_signs_come_onto_the_simplex():
    from peers_objective import onto_simplex

    given = [[3.0, -1.0, 1.0], [1.0, np.nan, 1.0], [-1.0, np.nan, 0.0]]
    rows = onto_simplex(np.array(given))
    assert rows.tolist() == [[0.75, 0.0, 0.25], [0.5, 0.0, 0.5], [1 / 3] * 3]


def test_matrices_are_what_the_described_kernels_compute():
    from peers_kernelweave import FromRows, Given
    from peers_problems import diabetes

    split = diabetes(None).split(0)
    given, rows = Given(split), FromRows(split)
    given.fit()
    rows.fit()
    assert np.allclose(split.grams[:, np.arange(442), np.arange(442)], 1.0)
    assert np.allclose(given.decision(), rows.decision(), atol=0.05)


def test_worker_answers_for_every_split_in_a_process_of_its_own(data, tmp_path):
    paths = [tmp_path / "0.npz", tmp_path / "1.npz"]
    for path in paths:
        data.save(path)
    names = ["SVC, mean", "no such contestant"]
    order = ["sklearn", tmp_path, "30", json.dumps(names), *paths]
    worker = BENCHMARKS / "peers_worker.py"
    subprocess.run([sys.executable, worker, *map(str, order)], check=True)
    first, second = json.loads((tmp_path / "0.json").read_text())
    assert first["predicted"] == second["predicted"]
    assert first["weights"] == pytest.approx([1 / 3] * 3)
    assert first["seconds"] > 0
    assert "no such contestant" in (tmp_path / "1.error").read_text()


def test_a_peer_that_is_not_there_is_named_with_the_reason(tmp_path):
    from peers_environments import Environment
    from peers_run import mean, run
    from peers_text import installed, row

    reason = "ERROR: No matching distribution found for MKLpy"
    nowhere = Environment(None, {}, reason)
    found = run(nowhere, "mklpy", ["EasyMKL"], [tmp_path / "no.npz"], 1.0)
    cells = row({"library": "mklpy", "name": "EasyMKL", **mean(found["EasyMKL"])}, 1)
    assert reason in cells[1]
    said = installed({"MKLpy": {"versions": {}, "note": reason}})
    assert reason in said and "Not here: MKLpy" in said


def test_the_last_line_of_pip_is_its_error_not_its_advice():
    from peers_environments import last_line

    assert last_line("ERROR: no file\n\n[notice] a new release of pip\n") == "ERROR: no file"
    assert last_line("Traceback\nImportError: x\n") == "ImportError: x"
