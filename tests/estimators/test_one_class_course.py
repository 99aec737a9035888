"""The course of a one-class fit: history, limits, warm starts, and data that make it hard."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import ConvergenceWarning

from kernelweave import MKLOneClass
from kernelweave.kernels import RBF

VIEWS = [RBF(width=1.0).on(j) for j in range(4)]
NARROW = [RBF(width=0.1).on(j) for j in range(4)]


@pytest.fixture(scope="module")
def blob():
    rng = np.random.default_rng(0)
    return rng.normal(size=(150, 4)) * [0.6, 0.8, 1.0, 2.0]


def test_history_is_in_the_units_of_the_problem_and_callbacks_see_it(blob):
    seen = []
    model = MKLOneClass(NARROW, nu=0.2, callbacks=[lambda record: seen.append(record)]).fit(blob)
    assert seen == model.history_
    last = pd.DataFrame(model.history_).iloc[-1]
    assert last.primal == pytest.approx(model.objective_, rel=2e-3)
    assert last.dual == pytest.approx(model.dual_objective_, rel=2e-3)
    assert last.gap <= 1e-3
    assert model.history_[0].gap > 1e-3


def test_limits(blob):
    with pytest.warns(ConvergenceWarning, match=r"above tol=0\.001: max_iter=1 was reached"):
        short = MKLOneClass(NARROW, nu=0.2, max_iter=1).fit(blob)
    assert not short.converged_ and short.gap_ > 1e-3
    with pytest.warns(ConvergenceWarning, match="max_time=1e-09 s was reached"):
        MKLOneClass(NARROW, nu=0.2, max_time=1e-9).fit(blob)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asked = MKLOneClass(NARROW, nu=0.2, callbacks=[lambda r: r.iteration >= 1]).fit(blob)
    assert len(asked.history_) == 2


def test_a_path_of_nu_warm_started(blob):
    warm = MKLOneClass(VIEWS, warm_start=True, tol=1e-5)
    for nu in (0.5, 0.3, 0.1, 0.4):
        warm.set_params(nu=nu).fit(blob)
        cold = MKLOneClass(VIEWS, nu=nu, tol=1e-5).fit(blob)
        assert warm.converged_
        assert warm.objective_ == pytest.approx(cold.objective_, rel=3e-5)
    again = warm.fit(blob)
    assert len(again.history_) <= 2


@pytest.mark.parametrize("seed", [5, 13, 21])
def test_counts_do_not_stop_the_fit(seed):
    """Kernels of few distinct values have many best alphas, of which second-order steps see one."""
    rng = np.random.default_rng(seed)
    n, m = int(rng.integers(30, 200)), int(rng.integers(3, 30))
    X = rng.poisson(rng.uniform(0.05, 2, m), size=(n, m)).astype(float)
    X = X[:, X.std(axis=0) > 0]
    nu = float(rng.choice([0.05, 0.1, 0.3, 0.5]))
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        model = MKLOneClass([RBF(width=1.0).on(j) for j in range(X.shape[1])], nu=nu).fit(X)
    assert model.converged_ and model.gap_ <= 1e-3
