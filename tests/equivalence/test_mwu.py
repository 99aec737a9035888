"""MWU without a given target ends at the certified optimum, within its limits and its memory."""

from __future__ import annotations

import tracemalloc
import warnings
from dataclasses import replace

import numpy as np
import pytest
from mwu_problems import BANKS, N, every_state, numbers, problem_on
from referee import make, referee
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.exceptions import ConvergenceWarning
from thinned import thinned

from kernelweave import MKLClassifier
from kernelweave.bank import DenseBank, LazyBank
from kernelweave.combine import WeightedSum
from kernelweave.errors import InterruptedFitWarning, InvalidInputError
from kernelweave.kernels import RBF
from kernelweave.losses import Loss, get_loss
from kernelweave.operators import ComputedOperator
from kernelweave.problem import Problem
from kernelweave.regularizers import Simplex
from kernelweave.regularizers.fixed import Fixed
from kernelweave.solvers import MWU, ActiveSet, Limits, solve
from kernelweave.solvers.mwu.rounds import Rounds


def same_decisions(result, Ks, decisions, atol):
    mine = result.alpha @ np.tensordot(result.d, Ks, axes=1) + result.intercept[:, None]
    np.testing.assert_allclose(mine, decisions, atol=atol * np.abs(decisions).max())


@pytest.mark.parametrize(
    ("name", "n_tasks", "tol"), thinned(["hinge", "squared_hinge"], [3, 1], [1e-5, 1e-3])
)
def test_same_optimum_as_a_convex_solver(name, n_tasks, tol):
    """Kernels of different sizes and samples of different weights."""
    loss = get_loss(name)
    Ks, y, C = make(loss, n_tasks)
    problem = Problem(DenseBank().from_matrices(Ks), y, C, loss, Simplex(), WeightedSum())
    value, best, decisions = referee(Ks, y, C, loss, Simplex(), n_tasks)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = solve(problem, MWU(), Limits(tol=tol))
    certificate = result.certificate
    assert result.converged and certificate.gap <= tol
    assert certificate.dual <= value + 1e-6 * abs(value)
    assert certificate.primal >= value - 1e-6 * abs(value)
    assert certificate.primal == pytest.approx(value, rel=tol)
    other = solve(problem, ActiveSet(), Limits(tol=tol))
    assert certificate.primal == pytest.approx(other.certificate.primal, rel=2 * tol)
    assert result.d.sum() == pytest.approx(1.0) and result.d.min() >= 0
    # Half the gap bounds a squared norm: weights and decisions are known to its root.
    np.testing.assert_allclose(result.d, best, atol=2 * np.sqrt(tol))
    same_decisions(result, Ks, decisions, 5 * np.sqrt(tol))


def test_many_classes_all_get_their_turn():
    loss = get_loss("hinge")
    Ks, y, C = make(loss, n_tasks=20)
    problem = Problem(DenseBank().from_matrices(Ks), y, C, loss, Simplex(), WeightedSum())
    result = solve(problem, MWU(), Limits(tol=1e-2, max_iter=300))
    other = solve(problem, ActiveSet(), Limits(tol=1e-4))
    assert result.converged and np.all(result.alpha.any(axis=1))
    assert result.certificate.primal == pytest.approx(other.certificate.primal, rel=1e-2)


@pytest.mark.parametrize(
    ("kind", "eps"), [*((kind, 0.2) for kind in BANKS), ("dense", 0.02), ("dense", 0.9)]
)
@pytest.mark.parametrize("name", ["hinge", "squared_hinge"])
def test_every_bank_and_eps_leads_to_the_optimum(name, kind, eps):
    problem = problem_on(kind, name, 1.0)
    result = solve(problem, MWU(eps), Limits(tol=1e-4))
    other = solve(problem, ActiveSet(), Limits(tol=1e-6))
    assert result.converged
    assert result.certificate.primal == pytest.approx(other.certificate.primal, rel=1e-4)
    np.testing.assert_allclose(result.d, other.d, atol=0.06)


@pytest.mark.parametrize("C", [1e-4, 1e-2, 1e2])
@pytest.mark.parametrize("name", ["hinge", "squared_hinge"])
def test_small_and_large_loss_weights(name, C):
    problem = problem_on("dense", name, C)
    result = solve(problem, MWU(), Limits(tol=1e-4))
    other = solve(problem, ActiveSet(), Limits(tol=1e-6))
    assert result.converged
    # The gap is relative to the objective, or to one where that is less.
    value = other.certificate.primal
    assert result.certificate.primal == pytest.approx(value, abs=1e-4 * max(1.0, value))
    inside = problem.y * result.alpha
    assert inside.min() >= 0
    if name == "hinge":
        assert inside.max() <= C * (1 + 1e-12)


def test_the_two_norm_margin_of_a_hinge_is_the_squared_hinge():
    problem = problem_on("dense", "hinge", 1.0)
    turned = solve(problem, MWU(soft_margin="l2"), Limits(tol=1e-6))
    squared = problem_on("dense", "squared_hinge", 1.0)
    plain = solve(squared, MWU(), Limits(tol=1e-6))
    assert turned.converged
    assert turned.certificate.primal == pytest.approx(plain.certificate.primal, rel=1e-6)
    same = solve(problem, MWU(soft_margin="l1"), Limits(tol=1e-6))
    hinge = solve(problem, ActiveSet(), Limits(tol=1e-6))
    assert same.certificate.primal == pytest.approx(hinge.certificate.primal, rel=1e-6)


@pytest.mark.parametrize("n_tasks", [1, 3])
@pytest.mark.parametrize("name", ["hinge", "squared_hinge"])
def test_given_weights_are_kept(name, n_tasks):
    loss = get_loss(name)
    Ks, y, C = make(loss, n_tasks)
    fixed = np.array([0.3, 0.0, 0.5, 0.9, 0.1])  # They need not sum to one.
    bank = DenseBank().from_matrices(Ks)
    problem = Problem(bank, y, C, loss, Fixed(fixed), WeightedSum())
    result = solve(problem, MWU(), Limits(tol=1e-6))
    np.testing.assert_array_equal(result.d, fixed)
    single = [np.tensordot(fixed, Ks, axes=1)]
    value, _, decisions = referee(single, y, C, loss, Simplex(), n_tasks)
    assert result.converged
    assert result.certificate.primal == pytest.approx(value, rel=1e-6)
    same_decisions(result, Ks, decisions, 5e-3)


@pytest.mark.parametrize("name", ["hinge", "squared_hinge"])
def test_one_kernel_is_an_svm(name):
    loss = get_loss(name)
    Ks, y, C = make(loss)
    Ks = Ks[3:4]
    problem = Problem(DenseBank().from_matrices(Ks), y, C, loss, Simplex(), WeightedSum())
    value, _, decisions = referee(Ks, y, C, loss, Simplex(), 1)
    result = solve(problem, MWU(), Limits(tol=1e-6))
    assert result.converged and result.d.tolist() == [1.0]
    assert result.certificate.primal == pytest.approx(value, rel=1e-6)
    same_decisions(result, Ks, decisions, 5e-3)


@pytest.mark.parametrize(
    "change",
    [
        lambda Ks: [*Ks[:4], np.zeros_like(Ks[0])],
        lambda Ks: [Ks[0], Ks[0], Ks[1], Ks[1], Ks[1]],
        lambda Ks: [Ks[0] * 1e-3, Ks[1], Ks[2] * 1e3],
        lambda Ks: [np.ones_like(Ks[0]), Ks[1]],
        lambda Ks: [np.eye(len(Ks[0])), 1e3 + Ks[1]],
    ],
    ids=["zero", "copies", "sizes", "constant", "far from the origin"],
)
@pytest.mark.parametrize("name", ["hinge", "squared_hinge"])
def test_odd_kernels(name, change):
    loss = get_loss(name)
    Ks, y, C = make(loss)
    Ks = change(Ks)
    bank = DenseBank().from_matrices(Ks)
    problem = Problem(bank, y, C, loss, Simplex(), WeightedSum())
    result = solve(problem, MWU(), Limits(tol=1e-4))
    value, _, _ = referee(Ks, y, C, loss, Simplex(), 1)
    assert result.converged
    assert result.certificate.primal == pytest.approx(value, rel=2e-4)
    # And algorithm 4 has sound numbers on them too.
    *_, state = every_state(problem, MWU(0.5, "paper"))
    assert np.isfinite(state.point.alpha).all() and np.isfinite(state.point.d).all()
    assert state.point.d.sum() == pytest.approx(1.0) and state.point.d.min() >= 0


@pytest.mark.parametrize("change", ["zero", "constant"])
def test_kernels_that_tell_nothing_apart(change):
    """Every kernel is zero for any alpha of sum zero: all of C is paid."""
    K = np.zeros((N, N)) if change == "zero" else np.ones((N, N))
    _, y = numbers()
    C = np.full((1, N), 0.5)
    bank = DenseBank().from_matrices([K, 2.0 * K])
    problem = Problem(bank, y[None], C, get_loss("hinge"), Simplex(), WeightedSum())
    result = solve(problem, MWU(), Limits(tol=1e-4))
    assert result.converged
    few = min((y > 0).sum(), (y < 0).sum())
    assert result.certificate.primal == pytest.approx(2 * 0.5 * few)
    *_, state = every_state(problem, MWU(0.5, "paper"))
    assert np.isfinite(state.point.alpha).all() and np.isfinite(state.point.d).all()


# Estimators


def cancer():
    X, y = load_breast_cancer(return_X_y=True)
    return X[::4], y[::4]


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_the_same_classifier_as_by_second_order_steps(loss):
    X, y = cancer()
    kwargs = {"loss": loss, "tol": 1e-4, "kernels": "mwumkl"}
    model = MKLClassifier(solver="mwu", **kwargs).fit(X, y)
    other = MKLClassifier(solver="active-set", **kwargs).fit(X, y)
    assert model.converged_ and model.gap_ <= 1e-4
    assert model.objective_ == pytest.approx(other.objective_, rel=2e-4)
    one, two = model.decision_function(X), other.decision_function(X)
    np.testing.assert_allclose(one, two, atol=0.03 * np.abs(two).max())
    assert model.weights_.sum() == pytest.approx(1.0)


def test_several_classes():
    X, y = (part[::2] for part in load_iris(return_X_y=True))
    model = MKLClassifier("mwumkl", solver="mwu").fit(X, y)
    other = MKLClassifier("mwumkl", solver="active-set").fit(X, y)
    assert model.converged_
    assert model.objective_ == pytest.approx(other.objective_, rel=2e-3)
    assert np.mean(model.predict(X) == other.predict(X)) > 0.98
    own = MKLClassifier("mwumkl", solver="mwu", multi_class="ovr").fit(X, y)
    assert own.converged_ and own.weights_.shape == (3, len(model.weights_))
    with pytest.warns(ConvergenceWarning, match="rounds"):
        paper = MKLClassifier(
            "mwumkl", solver=MWU(omega="paper"), multi_class="ovr", loss="squared_hinge", tol=1e-6
        ).fit(X, y)
    assert paper.weights_.shape == own.weights_.shape
    np.testing.assert_allclose(paper.weights_.sum(axis=1), 1.0)


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_sample_weights_count_as_copies(loss):
    X, y = load_breast_cancer(return_X_y=True)
    X, y = X[:60], y[:60]
    weight = np.arange(60) % 3
    kernels = [RBF(width=30.0), RBF(width=300.0), RBF(width=3.0).on(0)]
    model = MKLClassifier(kernels, solver="mwu", tol=1e-5, normalize=None, loss=loss)
    weighted = model.fit(X, y, sample_weight=weight)
    assert weighted.converged_
    assert not np.isin(np.flatnonzero(weight == 0), weighted.support_).any()
    value, rows = weighted.objective_, np.repeat(np.arange(60), weight)
    assert value == pytest.approx(model.fit(X[rows], y[rows]).objective_, rel=2e-5)


# Stopping


def test_limits_are_kept_and_said():
    problem = problem_on("dense", "hinge", 10.0)
    optimum = solve(problem, ActiveSet(), Limits(tol=1e-7)).certificate.primal
    with pytest.warns(ConvergenceWarning, match="round"):
        few = solve(problem, MWU(max_iter=37), Limits(tol=1e-9))
    assert few.history[-1].inner_iterations == 37
    with pytest.warns(ConvergenceWarning, match="max_iter=2"):
        short = solve(problem, MWU(), Limits(tol=1e-9, max_iter=2))
    assert len(short.history) == 3 and short.reason == "max_iter"
    with pytest.warns(ConvergenceWarning, match="max_time"):
        quick = solve(problem, MWU(), Limits(tol=1e-9, max_time=1e-9))
    assert len(quick.history) == 1
    for result in (few, short, quick):
        assert result.certificate.dual <= optimum * (1 + 1e-6)
        assert result.certificate.primal >= optimum * (1 - 1e-6)


def test_limits_of_several_classes():
    loss = get_loss("hinge")
    Ks, y, C = make(loss, n_tasks=3)
    problem = Problem(DenseBank().from_matrices(Ks), y, C, loss, Simplex(), WeightedSum())
    with pytest.warns(ConvergenceWarning, match="round"):
        few = solve(problem, MWU(max_iter=37), Limits(tol=1e-9))
    assert few.history[-1].inner_iterations == 37


@pytest.mark.parametrize("solver", [MWU(), MWU(omega="paper")], ids=["auto", "paper"])
def test_a_callback_and_ctrl_c_end_a_fit_with_the_best_so_far(solver):
    problem = problem_on("dense", "squared_hinge", 1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        stopped = solve(
            problem, solver, Limits(tol=1e-9, callbacks=[lambda record: record.iteration == 2])
        )
    assert stopped.reason == "callback" and len(stopped.history) == 3

    def interrupt(record):
        if record.iteration == 3:
            raise KeyboardInterrupt

    with pytest.warns(InterruptedFitWarning, match="best point so far"):
        result = solve(problem, solver, Limits(tol=1e-9, callbacks=[interrupt]))
    assert result.reason == "interrupted" and not result.converged
    assert result.certificate.gap <= min(r.gap for r in result.history) * (1 + 1e-6)


def test_ctrl_c_inside_a_round(monkeypatch):
    problem = problem_on("dense", "hinge", 1.0)
    advance, calls = Rounds.advance, []

    def interrupted(self, *args):
        calls.append(1)
        if len(calls) == 60:
            raise KeyboardInterrupt
        return advance(self, *args)

    monkeypatch.setattr(Rounds, "advance", interrupted)
    with pytest.warns(InterruptedFitWarning):
        result = solve(problem, MWU(), Limits(tol=1e-9))
    assert result.certificate.gap <= min(r.gap for r in result.history) * (1 + 1e-6)


class OwnMargin(Loss):
    """The squared hinge loss, as somebody else might write it."""

    task = "classification"
    soft_margin = "l2"

    def __init__(self) -> None:
        self._same = get_loss("squared_hinge")

    def value(self, y, z, C):
        return self._same.value(y, z, C)

    def gradient(self, y, z, C):
        return self._same.gradient(y, z, C)

    def conjugate(self, y, alpha, C):
        return self._same.conjugate(y, alpha, C)

    def domain(self, y, C):
        return self._same.domain(y, C)

    def lipschitz(self, C):
        return self._same.lipschitz(C)


def test_any_loss_that_is_a_soft_margin():
    problem = problem_on("dense", "squared_hinge", 1.0)
    own = replace(problem, loss=OwnMargin())
    for solver, tol in ((MWU(), 1e-5), (MWU(0.3, 20.0), 0.5)):
        found, expected = (solve(p, solver, Limits(tol=tol)) for p in (own, problem))
        assert found.converged == expected.converged
        assert found.certificate.primal == pytest.approx(expected.certificate.primal, rel=1e-4)


# Going on


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_a_fit_that_goes_on_from_another_costs_few_rounds(loss):
    problem = problem_on("dense", loss, 1.0)
    cold = solve(problem, MWU(), Limits(tol=1e-5))
    again = solve(problem, MWU(), Limits(tol=1e-5), cold.start)
    spent = cold.history[-1].inner_iterations
    assert again.converged and cold.converged
    assert again.history[-1].inner_iterations < 0.5 * spent
    rough = solve(problem, MWU(), Limits(tol=1e-3))
    finer = solve(problem, MWU(), Limits(tol=1e-5), rough.start)
    assert finer.converged
    assert finer.certificate.primal == pytest.approx(cold.certificate.primal, rel=2e-5)
    # From a point of another solver, and from one of another C whose box is smaller.
    other = solve(problem, ActiveSet(), Limits(tol=1e-6))
    after = solve(problem, MWU(), Limits(tol=1e-5), other.start)
    assert after.converged and after.history[-1].inner_iterations < 0.5 * spent
    smaller = replace(problem, C=0.3 * problem.C)
    moved = solve(smaller, MWU(), Limits(tol=1e-5), cold.start)
    alone = solve(smaller, ActiveSet(), Limits(tol=1e-5))
    assert moved.converged
    assert moved.certificate.primal == pytest.approx(alone.certificate.primal, rel=2e-5)


def test_warm_starts_of_an_estimator():
    X, y = cancer()
    model = MKLClassifier("mwumkl", solver="mwu", warm_start=True, tol=1e-4).fit(X, y)
    first = model.history_[-1].inner_iterations
    model.fit(X, y)
    assert model.converged_ and model.history_[-1].inner_iterations < 0.5 * first
    model.set_params(C=2.0).fit(X, y)
    cold = MKLClassifier("mwumkl", solver="mwu", C=2.0, tol=1e-4).fit(X, y)
    assert model.objective_ == pytest.approx(cold.objective_, rel=2e-4)


# Memory


@pytest.mark.parametrize("solver", [MWU(), MWU(omega="paper"), MWU(omega=40.0)], ids=str)
def test_memory_is_m_times_n(solver):
    n, cache_mb = 2500, 1.0
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 4))
    y = np.where(X[:, 0] + 0.3 * rng.normal(size=n) > 0, 1.0, -1.0)
    kernels = ComputedOperator.build([RBF(width=w) for w in (0.5, 1.0, 2.0, 4.0)], X)
    C = np.full((1, n), 1.0)
    warnings.simplefilter("ignore", ConvergenceWarning)
    # Twice, the second time counted: what is compiled in between is no part of a fit.
    for counted in (False, True):
        bank = LazyBank(cache_mb).build(kernels)
        problem = Problem(bank, y[None], C, get_loss("hinge"), Simplex(), WeightedSum())
        if counted:
            tracemalloc.start()
        try:
            solve(problem, solver, Limits(tol=1e-12, max_iter=12))
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    state = bank.m * n * 8
    assert peak < 40 * state + 3e6 * cache_mb  # 6 MB where one matrix of n^2 numbers is 25 or 50.


# What is not possible


def test_what_is_not_supported_is_refused_with_what_is():
    X, y = load_iris(return_X_y=True)
    pair = y < 2
    with pytest.raises(InvalidInputError, match=r"mwu.*simplex.*product|mwu.*combination='sum'"):
        MKLClassifier(solver="mwu", combination="product", regularizer="l1").fit(X[pair], y[pair])
    with pytest.raises(InvalidInputError, match=r"mwu.*simplex.*LpBall"):
        MKLClassifier("rbf", solver="mwu", regularizer="lp_ball").fit(X, y)
    with pytest.raises(InvalidInputError, match=r"mwu.*'hinge' or 'squared_hinge'.*Logistic"):
        MKLClassifier("rbf", solver="mwu", loss="logistic").fit(X, y)
    with pytest.raises(InvalidInputError, match=r"soft_margin='l1'.*squared_hinge"):
        MKLClassifier("rbf", solver=MWU(soft_margin="l1"), loss="squared_hinge").fit(X, y)
    with pytest.raises(InvalidInputError, match=r"two classes.*ovr"):
        MKLClassifier("mwumkl", solver=MWU(omega="paper")).fit(X, y)
    bank = DenseBank().from_matrices([np.eye(4)])
    fixed = Problem(
        bank,
        np.array([[1.0, 1, -1, -1]]),
        np.ones((1, 4)),
        get_loss("hinge"),
        Fixed([1.0]),
        WeightedSum(),
    )
    with pytest.raises(InvalidInputError, match=r"held fixed.*auto"):
        solve(fixed, MWU(omega="paper"), Limits())
