"""The one loop: stopping, history, callbacks, progress, interrupts, warm starts."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer
from sklearn.exceptions import ConvergenceWarning

from kernelweave import MKLClassifier
from kernelweave.bank import DenseBank, FactoredBank
from kernelweave.combine import WeightedSum
from kernelweave.errors import InterruptedFitWarning, InvalidInputError
from kernelweave.kernels import RBF
from kernelweave.losses import Hinge
from kernelweave.operators import ComputedOperator
from kernelweave.problem import Problem
from kernelweave.regularizers import L1, Fixed, LpBall, Simplex
from kernelweave.solvers import SILP, SOLVERS, SPG, ActiveSet, Limits, solve


@pytest.fixture(scope="module")
def data():
    X, y = load_breast_cancer(return_X_y=True)
    return X[:150], y[:150]


@pytest.fixture(scope="module")
def problem(data):
    X, y = data
    kernels = ComputedOperator.build("simplemkl", X)
    signs = np.where(y > 0, 1.0, -1.0)[None]
    bank = FactoredBank(1e-9).build(kernels)
    return Problem(bank, signs, np.full(signs.shape, 5.0), Hinge(), Simplex(), WeightedSum())


@pytest.fixture(scope="module")
def easy(problem):
    """With little weight on the loss, where plain descent does not take thousands of steps."""
    return replace(problem, C=0.1 * problem.C)


@pytest.mark.parametrize("name", sorted(SOLVERS))
def test_every_solver_keeps_the_contract(easy, name):
    problem = easy
    result = solve(problem, SOLVERS[name](), Limits(tol=1e-2, max_iter=300))
    assert result.converged and result.reason == "converged"
    assert result.d.shape == (problem.m,) and np.all(result.d >= 0)
    assert result.alpha.shape == problem.y.shape
    assert abs(result.alpha.sum()) < 1e-8
    lo, hi = problem.loss.domain(problem.y, problem.C)
    assert np.all((result.alpha >= lo - 1e-9) & (result.alpha <= hi + 1e-9))
    certificate = result.certificate
    assert certificate.dual <= certificate.primal
    assert certificate.gap == pytest.approx(
        (certificate.primal - certificate.dual) / max(1, abs(certificate.primal))
    )
    iterations = [record.iteration for record in result.history]
    assert iterations == list(range(len(iterations)))
    inner = [record.inner_iterations for record in result.history]
    assert inner == sorted(inner) and inner[-1] > 0


def test_max_iter_warns_with_the_gap_and_the_remedy(problem):
    with pytest.warns(ConvergenceWarning, match=r"gap is .* above tol=1e-06.*max_iter=3"):
        result = solve(problem, SPG(), Limits(tol=1e-6, max_iter=3))
    assert not result.converged and result.reason == "max_iter"
    assert len(result.history) == 4


def test_max_time(problem):
    with pytest.warns(ConvergenceWarning, match="max_time=1e-09"):
        result = solve(problem, SPG(), Limits(tol=1e-6, max_time=1e-9))
    assert len(result.history) == 1


class TooGoodToBeTrue(SILP):
    """Hands out decision values that are a little better than those of its alpha."""

    def step(self, problem, state, gap, inner_gap):
        state = super().step(problem, state, gap, inner_gap)
        better = state.point.fitted + 1e-4 * problem.y
        return replace(state, point=replace(state.point, fitted=better))


@pytest.mark.parametrize("tol", [1e-5, 1e-6])
def test_a_fit_goes_on_until_the_kernels_themselves_prove_its_gap(problem, tol):
    bank = DenseBank().from_matrices(list(problem.bank.block(range(150))))
    result = solve(
        replace(problem, bank=bank, C=0.01 * problem.C), TooGoodToBeTrue(), Limits(tol=tol)
    )
    assert result.converged and result.reason == "converged"
    claimed = [line.iteration for line in result.history if line.gap < 0]
    assert claimed[0] < result.history[-1].iteration


def test_a_callback_sees_every_record_and_can_stop(problem):
    seen = []

    def stop_at_two(record):
        seen.append(record)
        return record.iteration == 2

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = solve(problem, SPG(), Limits(tol=1e-8, callbacks=[stop_at_two]))
    assert result.reason == "callback" and not result.converged
    assert seen == result.history and len(seen) == 3


def test_ctrl_c_keeps_the_best_so_far(data):
    X, y = data

    def interrupt(record):
        if record.iteration == 3:
            raise KeyboardInterrupt

    with pytest.warns(InterruptedFitWarning, match="best point so far"):
        model = MKLClassifier("simplemkl", tol=1e-9, callbacks=[interrupt]).fit(X, y)
    assert not model.converged_
    assert len(model.history_) == 4
    assert model.gap_ <= min(record.gap for record in model.history_) * (1 + 1e-6) + 1e-9
    assert model.score(X, y) > 0.8


def test_ctrl_c_before_the_first_point_is_passed_on(problem, monkeypatch):
    def interrupted(self, problem, start):
        raise KeyboardInterrupt

    monkeypatch.setattr(SPG, "init", interrupted)
    with pytest.raises(KeyboardInterrupt):
        solve(problem, SPG(), Limits())


def test_verbose_prints_progress(problem, capsys):
    solve(problem, ActiveSet(), Limits(tol=1e-2, verbose=2))
    lines = capsys.readouterr().out.strip().splitlines()
    assert len(lines) >= 2
    assert all("gap" in line and "kernels" in line for line in lines)
    solve(problem, ActiveSet(), Limits(tol=1e-2))
    assert capsys.readouterr().out == ""


def test_a_warm_start_is_cheaper(problem):
    first = solve(problem, SPG(), Limits(tol=1e-3))
    again = solve(problem, SPG(), Limits(tol=1e-3), start=first.start)
    assert len(again.history) < len(first.history)
    assert again.history[-1].inner_iterations < first.history[-1].inner_iterations / 2


def test_a_bank_that_is_too_coarse_is_refined(data):
    X, y = data
    kernels = ComputedOperator.build([RBF(width=w) for w in (2.0, 20.0, 200.0)], X)
    signs = np.where(y > 0, 1.0, -1.0)[None]
    coarse = FactoredBank(1e-2).build(kernels)
    problem = Problem(coarse, signs, np.full(signs.shape, 5.0), Hinge(), Simplex(), WeightedSum())
    result = solve(problem, SPG(), Limits(tol=1e-4))
    assert result.converged and result.certificate.gap <= 1e-4
    exact = problem.with_bank(DenseBank().build(kernels))
    reference = solve(exact, SPG(), Limits(tol=1e-5))
    assert result.certificate.primal == pytest.approx(reference.certificate.primal, rel=2e-4)


def test_a_bank_that_cannot_be_refined_is_said_so(data):
    X, y = data
    bank = (
        FactoredBank(1e-1).build(ComputedOperator.build([RBF(width=20.0)], X)).take(np.arange(100))
    )
    signs = np.where(y[:100] > 0, 1.0, -1.0)[None]
    problem = Problem(bank, signs, np.full(signs.shape, 5.0), Hinge(), Simplex(), WeightedSum())
    with pytest.warns(ConvergenceWarning, match="bank is not exact enough"):
        result = solve(problem, SPG(), Limits(tol=1e-4))
    assert not result.converged and result.reason == "bank"


def test_active_set_says_which_regularizers_it_takes(problem):
    with pytest.raises(InvalidInputError, match=r"'simplex' and 'l1'.*LpBall"):
        solve(problem.with_regularizer(LpBall(2.0)), ActiveSet(), Limits())


@pytest.mark.parametrize("weight", [1e-6, 1e6])
@pytest.mark.parametrize("solver", [SPG(), ActiveSet()], ids=["spg", "active-set"])
def test_extreme_l1_weights(problem, solver, weight):
    """From kernels at any price to none at all; the certificate stays true."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        result = solve(problem.with_regularizer(L1(weight)), solver, Limits(max_iter=60))
    certificate = result.certificate
    assert np.isfinite(result.alpha).all() and np.isfinite(certificate.gap)
    assert certificate.dual <= certificate.primal * (1 + 1e-12)
    assert result.converged == (certificate.gap <= 1e-3)
    if weight > 1:
        assert result.d.sum() < 1e-3 and result.converged


def test_fixed_weights(problem):
    weights = np.zeros(problem.m)
    weights[:3] = 0.5
    result = solve(problem.with_regularizer(Fixed(weights)), SPG(), Limits(tol=1e-4))
    np.testing.assert_array_equal(result.d, weights)
    assert result.converged
    with pytest.raises(InvalidInputError, match="2 fixed weights were given for"):
        solve(problem.with_regularizer(Fixed([1.0, 2.0])), SPG(), Limits())
    with pytest.raises(InvalidInputError, match=">= 0"):
        Fixed([-1.0]).start(1)
