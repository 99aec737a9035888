"""Under a limit of memory a fit takes less, or says how much it needs; it never breaks down."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from kernelweave import MKLClassifier
from kernelweave.bank import build_bank
from kernelweave.errors import MemoryBudgetError
from kernelweave.estimators.decisions import LearntKernel
from kernelweave.kernels import RBF, Distance
from kernelweave.operators import ComputedOperator, DenseOperator, StackedOperator

SCRIPT = Path(__file__).parents[1] / "helpers" / "short_of_memory.py"
LIMITS = (
    ["5", "20", "40", "60", "80", "100", "150", "200"]
    if os.environ.get("KERNELWEAVE_HARD") == "full"
    else ["30", "100"]
)


@pytest.fixture(scope="module")
def told():
    """What came of each work under each limit of megabytes."""
    if sys.platform != "linux":
        pytest.skip("limits as Linux has them")
    env = {**os.environ, "KERNELWEAVE_QUIET": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, SCRIPT, *LIMITS], capture_output=True, text=True, timeout=1200, env=env
    )
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return {(case, limit): (said, value) for case, limit, said, value in lines}


def test_nothing_breaks_down(told):
    assert len(told) == 6 * len(LIMITS)
    for key, (said, value) in told.items():
        assert not said.startswith("UNEXPECTED"), (key, said)
        assert value is not None or "of memory" in said, (key, said)


def test_the_automatic_bank_takes_what_there_is(told):
    """Eight matrices and their sum do not fit; rows on demand do."""
    assert told["auto", 100.0][0] == "done" and told["auto", 100.0][1] <= 1e-2
    assert "8 dense 1200 x 1200 kernel matrices need 115 MB" in told["dense", 100.0][0]


def test_matrices_that_are_there_need_no_more(told):
    assert told["precomputed", 30.0][0] == told["precomputed", 100.0][0] == "done"


def test_predictions_need_no_more_for_more_samples(told):
    """A matrix between 120,000 new samples and the support vectors would be 300 MB."""
    said, difference = told["predict", 100.0]
    assert said == "done" and difference == pytest.approx(0.0, abs=1e-6)


# The parts, without a process of their own


def few_kernels(n=300):
    X = np.random.default_rng(0).normal(size=(n, 4))
    return ComputedOperator.build([Distance("cityblock", w) for w in (0.3, 0.5, 1.0)], X)


def parts(bank):
    return {type(part) for part in (bank.parts if isinstance(bank, StackedOperator) else [bank])}


def test_what_is_free_decides_and_not_only_cache_mb(monkeypatch):
    kernels = few_kernels()
    assert DenseOperator in parts(build_bank("auto", kernels))
    # Building them takes 3.6 MB, and half of what is free is for others.
    monkeypatch.setattr("kernelweave.memory.available_bytes", lambda: 5e6)
    bank = build_bank("auto", kernels)
    assert DenseOperator not in parts(bank) and ComputedOperator in parts(bank)
    monkeypatch.setattr("kernelweave.memory.available_bytes", lambda: 1e6)
    # All rows of the sum are 0.7 MB.
    lazy = build_bank("lazy", kernels)
    assert lazy.bytes_for_rows < 0.4e6
    with pytest.raises(MemoryBudgetError, match="3 dense 300 x 300 kernel matrices need"):
        build_bank("dense", kernels)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (MemoryError(), "an array could not be made"),
        (MemoryError("Unable to allocate 3 GiB."), "Unable to allocate 3 GiB"),
    ],
)
def test_memory_that_runs_out_in_the_middle_is_told(monkeypatch, error, reason):
    X = np.random.default_rng(0).normal(size=(30, 3))
    model = MKLClassifier().fit(X, X[:, 0] > 0)

    def breaks(*args):
        raise error

    monkeypatch.setattr(LearntKernel, "products", breaks)
    told = rf"MKLClassifier ran out of memory: {reason}\. \d.* are free"
    with pytest.raises(MemoryBudgetError, match=told):
        model.predict(X)


@pytest.mark.parametrize(("free", "most"), [(1e12, 64e6), (8e6, 16e6)])
def test_predictions_do_not_form_a_matrix_of_all_samples(monkeypatch, free, most):
    """The whole matrix would have more than 80 MB; where memory is short, far less is in use."""
    X = np.random.default_rng(0).normal(size=(200, 3))
    model = MKLClassifier([RBF(width=1.0)], C=1e-3).fit(X, X[:, 0] > 0)
    new = np.tile(X, (300, 1))
    assert 8 * len(new) * len(model.support_) > 80e6
    monkeypatch.setattr("kernelweave.estimators.decisions.available_bytes", lambda: free)
    tracemalloc.start()
    try:
        found = model.decision_function(new)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < most
    np.testing.assert_allclose(found, np.tile(model.decision_function(X), 300), rtol=1e-9)
