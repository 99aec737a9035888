"""tol=0 is "as far as float64 can tell", for every solver, estimator and the command line."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import StandardScaler
from typer.testing import CliRunner

from kernelweave import (
    BayesianMKLClassifier,
    BayesianMKLRegressor,
    MKLClassifier,
    MKLClassifierCV,
    MKLOneClass,
    MKLRegressor,
    MKLRegressorCV,
    NystromMKLClassifier,
)
from kernelweave.bank import DenseBank, FactoredBank
from kernelweave.cli.app import app
from kernelweave.combine import WeightedSum
from kernelweave.losses import get_loss
from kernelweave.operators import ComputedOperator
from kernelweave.problem import Problem
from kernelweave.regularizers import L1, LpBall, Simplex
from kernelweave.solvers import (
    MWU,
    SILP,
    SPG,
    ActiveSet,
    Align,
    Limits,
    SILPChunking,
    Spicy,
    Uniform,
    solve,
)

X, y = load_breast_cancer(return_X_y=True)
X, y = StandardScaler().fit_transform(X)[:100, :8], y[:100]


def problem_of(loss, regularizer, bank=None, scale=1.0):
    signs = np.where(y > 0, 1.0, -1.0)[None]
    made = (bank or DenseBank()).build(ComputedOperator.build("mwumkl", X))
    C = np.full(signs.shape, scale)
    return Problem(made, signs, C, get_loss(loss), regularizer, WeightedSum())


@pytest.mark.parametrize(
    ("solver", "loss", "regularizer"),
    [
        *((s, "hinge", Simplex()) for s in (ActiveSet(), SILP(), SPG(), Spicy(), MWU(), Align())),
        *((s, "squared_hinge", Simplex()) for s in (ActiveSet(), SILP(), Spicy(), Uniform())),
        *((s, "hinge", LpBall(2.0)) for s in (SILP(), SPG(), SILPChunking())),
        (Spicy(), "logistic", L1(0.5)),
    ],
    ids=repr,
)
def test_solvers_end_at_the_resolution_of_float64(solver, loss, regularizer):
    result = solve(problem_of(loss, regularizer), solver, Limits(tol=0))
    assert result.converged and result.reason == "converged"
    assert result.certificate.gap < 1e-9
    # All of the gap but a small multiple of what rounding may have done to it is closed.
    assert result.certificate.gap <= 10 * result.certificate.approximation


@pytest.mark.parametrize("bank", [FactoredBank(1e-3), DenseBank("float32")], ids=["factors", "32"])
def test_a_rough_bank_is_refined_first(bank):
    result = solve(problem_of("squared_hinge", Simplex(), bank), SILP(), Limits(tol=0))
    exact = solve(problem_of("squared_hinge", Simplex()), SILP(), Limits(tol=0))
    assert result.converged and result.certificate.gap < 1e-8
    assert result.certificate.primal == pytest.approx(exact.certificate.primal, rel=1e-8)


def test_what_cannot_be_reached_is_told():
    with pytest.warns(ConvergenceWarning, match=r"above what float64 can resolve \(tol=0\)"):
        result = solve(problem_of("hinge", Simplex()), SPG(), Limits(tol=0, max_iter=2))
    assert not result.converged and result.reason == "max_iter"


@pytest.mark.parametrize(
    "kind",
    [MKLClassifier, MKLRegressor, MKLOneClass, MKLClassifierCV, MKLRegressorCV],
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_estimators_take_it(kind):
    # A solver may get stuck just above what could be resolved.
    assert kind("mwumkl", tol=0).fit(X, y).gap_ < 1e-9


def test_a_classifier_converges():
    model = MKLClassifier("mwumkl", tol=0).fit(X, y)
    assert model.converged_ and model.gap_ < 1e-10


@pytest.mark.parametrize("kind", [BayesianMKLClassifier, BayesianMKLRegressor])
def test_bayesian_fits_go_on_until_the_bound_stands_still(kind):
    model = kind("mwumkl", tol=0, max_iter=100_000).fit(X[:40], y[:40])
    assert model.converged_
    rough = kind("mwumkl", tol=1e-3).fit(X[:40], y[:40])
    assert model.n_iter_ > rough.n_iter_
    bound = np.abs(np.sum(model.lower_bound_))
    assert np.sum(model.lower_bound_) >= np.sum(rough.lower_bound_) - 1e-9 * bound
    with pytest.warns(ConvergenceWarning, match="max_iter=3"):
        assert kind("mwumkl", tol=0, max_iter=3).fit(X[:40], y[:40]).n_iter_ == 3


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_nystrom_takes_it():
    exact = NystromMKLClassifier("mwumkl", tol=0, random_state=0).fit(X, y)
    usual = NystromMKLClassifier("mwumkl", random_state=0).fit(X, y)
    np.testing.assert_allclose(exact.decision_function(X), usual.decision_function(X), atol=0.05)


def test_the_command_line_takes_it(tmp_path):
    table = tmp_path / "cells.csv"
    names = ",".join(f"f{i}" for i in range(X.shape[1]))
    rows = "\n".join(",".join(map(str, [*row, label])) for row, label in zip(X, y, strict=True))
    table.write_text(f"{names},label\n{rows}\n")
    out = CliRunner().invoke(app, ["fit", str(table), "-t", "label", "--tol", "0"])
    assert out.exit_code == 0, out.output
    assert "what float64 can resolve" in " ".join(out.output.split())


@pytest.mark.parametrize("regularizer", ["l1", "squared_lp"])
def test_a_product_ends_where_float64_does(regularizer):
    """Its distances are kept in float64 then; that they were not ended in an AttributeError."""
    model = MKLClassifier(combination="product", regularizer=regularizer, tol=1e-13, max_iter=300)
    with pytest.warns(ConvergenceWarning):
        model.fit(X[:40, :2], y[:40])
    assert model.gap_ < 1e-5
