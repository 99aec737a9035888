"""Fits end when their time is over, in the middle of a step too, with a true certificate.

The clocks here tick once each time they are looked at, so nothing depends on how fast a machine is.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from dense_gram import DenseGram
from sklearn.datasets import load_breast_cancer
from sklearn.exceptions import ConvergenceWarning
from thinned import thinned

from kernelweave import MKLClassifier
from kernelweave.bank import DenseBank
from kernelweave.combine import WeightedSum
from kernelweave.deadline import NEVER, Deadline, TimeUp
from kernelweave.errors import InterruptedFitWarning
from kernelweave.losses import Logistic, SquaredHinge, get_loss
from kernelweave.operators import ComputedOperator, DenseOperator
from kernelweave.problem import Problem
from kernelweave.regularizers import Simplex
from kernelweave.solvers import (
    MWU,
    PGD,
    SILP,
    SPG,
    ActiveSet,
    Align,
    Limits,
    SILPChunking,
    Solver,
    Spicy,
    State,
    Uniform,
    recompute,
    solve,
)
from kernelweave.solvers.box_qp import solve_box_qp
from kernelweave.solvers.inner import Evaluator
from kernelweave.solvers.newton import solve_smooth
from kernelweave.solvers.solve import settle

SOLVERS = [
    ActiveSet(),
    Align(),
    MWU(),
    MWU(0.05, omega="paper"),
    PGD(),
    SILP(),
    SILPChunking(chunk_size=4),
    SPG(),
    Spicy(),
    Uniform(),
]


class Ticks:
    """A clock that goes on by one second whenever it is looked at."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        self.now += 1.0
        return self.now


def problem_of(loss="hinge", C=10.0, deadline=NEVER, n=120):
    X, y = load_breast_cancer(return_X_y=True)
    bank = DenseBank().build(ComputedOperator.build("mwumkl", X[:n]))
    signs = np.where(y[:n] > 0, 1.0, -1.0)[None]
    weights = np.full(signs.shape, C)
    return Problem(bank, signs, weights, get_loss(loss), Simplex(), WeightedSum(), deadline)


def test_a_deadline():
    clock = Ticks()
    deadline = Deadline(2.0, clock)
    deadline.check()
    assert deadline.passed() and clock.now == 2.0
    with pytest.raises(TimeUp):
        deadline.check()
    assert not NEVER.passed()


@pytest.mark.parametrize(("solver", "at"), thinned(SOLVERS, [1, 4, 9, 20]), ids=repr)
def test_a_fit_ends_soon_after_its_time_with_a_true_certificate(solver, at):
    clock = Ticks()
    problem = problem_of(deadline=Deadline(float(at), clock))
    # Nobody reaches this tolerance so soon.
    with pytest.warns(ConvergenceWarning, match="max_time"):
        result = solve(problem, solver, Limits(tol=1e-14))
    assert result.reason == "max_time" and not result.converged
    # Whoever looked at the clock after the end returned at once.
    assert clock.now <= at + 12
    assert result.history and np.isclose(result.d.sum(), 1.0) and np.all(result.d >= 0)
    if isinstance(solver, MWU):
        return  # Its bound is that of another alpha.
    prepared = solver.prepare(problem)
    again, alpha = recompute(prepared, result.d, result.alpha, result.intercept)
    np.testing.assert_allclose(alpha, result.alpha, atol=1e-12)
    assert result.certificate.primal == pytest.approx(again.primal, rel=1e-9)
    assert result.certificate.dual >= again.dual - 1e-9 * abs(again.dual)
    assert result.certificate.gap <= again.gap + 1e-9
    best = min(record.gap for record in result.history)
    assert result.certificate.gap <= 1.001 * best + 1e-9


def inner_steps(solver, loss="hinge", at=None, record=-1):
    deadline = NEVER if at is None else Deadline(float(at), Ticks())
    with pytest.warns(ConvergenceWarning):
        result = solve(problem_of(loss, deadline=deadline), solver, Limits(tol=1e-12, max_iter=1))
    return result.history[record].inner_iterations


def test_the_first_solve_of_chunking_is_cut_in_the_middle():
    solver = SILPChunking(chunk_size=4, inner_tol=1e-6)
    whole = inner_steps(solver, record=0)
    cut = [inner_steps(solver, at=at) for at in (1, 20, 40)]
    assert cut[0] < cut[1] < cut[2] < whole


def test_an_outer_step_of_spicy_is_cut_in_the_middle():
    solver = Spicy(first_penalty=1e6)
    whole = inner_steps(solver, "logistic")
    cut = [inner_steps(solver, "logistic", at=at) for at in range(1, 200, 8)]
    assert cut[0] == 0 and cut == sorted(cut)
    assert any(0 < steps < whole for steps in cut)


@pytest.mark.parametrize("omega", ["auto", "paper"])
def test_the_rounds_of_mwu_are_cut_in_the_middle(omega):
    solver = MWU(0.05, omega=omega)
    whole = inner_steps(solver)
    assert 0 < inner_steps(solver, at=8) < whole


def slow_svm():
    """A support vector machine that takes several hundred thousand steps."""
    rng = np.random.default_rng(0)
    n = 1200
    X = rng.normal(size=(n, 3))
    y = np.where(X[:, 0] + 0.5 * rng.normal(size=n) > 0, 1.0, -1.0)
    return get_loss("hinge").box_qp(y, np.full(n, 1e3)), DenseGram(X @ X.T)


def test_steps_in_blocks_are_those_of_one_go_and_end_in_time():
    qp, gram = slow_svm()
    most = {"tol": 1e-8, "max_iter": 250_000}
    whole = solve_box_qp(qp, gram, **most)
    blocks = solve_box_qp(qp, gram, **most, deadline=Deadline(1e9, Ticks()))
    assert blocks.n_steps == whole.n_steps == 250_000
    np.testing.assert_array_equal(blocks.alpha, whole.alpha)
    clock = Ticks()
    cut = solve_box_qp(qp, gram, **most, deadline=Deadline(2.0, clock))
    assert 0 < cut.n_steps < whole.n_steps and not cut.converged and clock.now <= 4
    assert np.all((cut.a >= 0) & (cut.a <= 1e3)) and abs(cut.alpha.sum()) < 1e-6
    np.testing.assert_allclose(cut.fitted, gram.dense() @ cut.alpha, rtol=1e-6, atol=1e-3)


@pytest.mark.parametrize("loss", [Logistic(), SquaredHinge()], ids=repr)
def test_newton_returns_what_it_has(loss):
    rng = np.random.default_rng(1)
    n = 500  # Enough for conjugate gradients, which are cut too.
    X = rng.normal(size=(n, 40))
    y = np.where(X[:, 0] + rng.normal(size=n) > 0, 1.0, -1.0)
    gram, C = DenseGram(X @ X.T), np.full(n, 10.0)
    whole = solve_smooth(loss, y, C, gram, tol=1e-10)
    seen = []
    for at in (1, 10, 60):
        clock = Ticks()
        cut = solve_smooth(loss, y, C, gram, tol=1e-10, deadline=Deadline(float(at), clock))
        assert clock.now <= at + 3 and not cut.converged and cut.n_steps <= whole.n_steps
        low, high = loss.domain(y, C)
        assert np.all((cut.alpha >= low) & (cut.alpha <= high)) and abs(cut.alpha.sum()) < 1e-8
        np.testing.assert_allclose(cut.fitted, gram.dense() @ cut.alpha, atol=1e-8)
        seen.append(cut.n_steps)
    assert seen[0] == 0 < seen[-1]


class Eager(Solver):
    """Solves many times before it has a first state."""

    def init(self, problem, start):
        evaluator = Evaluator(problem, start)
        for _ in range(5):
            point = evaluator.evaluate(problem.regularizer.start(problem.m), 1e-3)
        return State(point, evaluator.quad(point), evaluator, False, None)

    def step(self, problem, state, gap, inner_gap):
        state.evaluator.evaluate(state.point.d, 1e-3)
        raise AssertionError("the time was over before this step's first solve")


def test_a_solver_that_solves_many_times_at_first_has_a_first_point():
    clock = Ticks()
    with pytest.warns(ConvergenceWarning, match="max_time"):
        result = solve(problem_of(deadline=Deadline(3.0, clock)), Eager(), Limits(tol=1e-12))
    assert result.reason == "max_time" and len(result.history) == 1


def test_a_step_that_begins_in_time_and_solves_after_it_keeps_the_best_point():
    class Later(Eager):
        def init(self, problem, start):
            # Passes between the look of the loop and that of the next solve.
            state = super().init(replace(problem, deadline=NEVER), start)
            state.evaluator.problem = replace(problem, deadline=Deadline(0.0, lambda: 1.0))
            return state

    with pytest.warns(ConvergenceWarning, match="max_time"):
        result = solve(problem_of(), Later(), Limits(tol=1e-12))
    assert result.reason == "max_time" and len(result.history) == 1


def test_max_time_of_an_estimator():
    X, y = load_breast_cancer(return_X_y=True)
    model = MKLClassifier("mwumkl", tol=1e-12, max_time=1e-9)
    with pytest.warns(ConvergenceWarning, match="max_time=1e-09 s was reached"):
        model.fit(X, y)
    assert not model.converged_ and len(model.history_) == 1
    assert model.gap_ > 1e-12 and np.isclose(model.weights_.sum(), 1.0)


@pytest.mark.parametrize("solver", [ActiveSet(), SILPChunking(chunk_size=4), Spicy()], ids=repr)
def test_a_fit_that_is_told_to_stop_ends_in_mid_step(solver):
    """As those of a cross-validation are by Ctrl-C."""
    asked = []

    def stop():
        asked.append(True)
        return len(asked) > 9

    found, _ = settle(problem_of(), solver, Limits(tol=1e-14, stop=stop))
    assert len(asked) <= 9 + 12 and not found.converged and len(found.history) <= 9


def refined_by(refined):
    """A problem whose bank has to be refined, as float32 leaves too much open, and how it is."""
    X, _ = load_breast_cancer(return_X_y=True)
    bank = DenseBank("float32").build(ComputedOperator.build("mwumkl", X[:120]))
    bank.__class__ = type("Refined", (DenseOperator,), {"refined": refined})
    return replace(problem_of(), bank=bank)


def ended_by(error):
    """Return what is left of a fit that is ended while its bank is refined."""

    def refined(bank):
        raise error

    return settle(refined_by(refined), ActiveSet(), Limits(tol=1e-9))[0]


def test_a_bank_that_is_not_refined_in_time_leaves_the_model_of_the_first_one():
    found = ended_by(TimeUp())
    assert found.reason == "max_time" and 0 < found.certificate.gap < 1e-3


def test_ctrl_c_while_a_bank_is_refined_keeps_the_model_of_the_first_one():
    with pytest.warns(InterruptedFitWarning, match="keeping the best point"):
        found = ended_by(KeyboardInterrupt())
    assert found.reason == "interrupted" and 0 < found.certificate.gap < 1e-3


def test_a_finer_bank_without_time_for_a_step_leaves_the_model_of_the_first_one():
    clock = [0.0]

    def refined(bank):
        clock[0] = 2.0
        return DenseOperator.refined(bank)

    problem = replace(refined_by(refined), deadline=Deadline(1.0, lambda: clock[0]))
    found, _ = settle(problem, ActiveSet(), Limits(tol=1e-9))
    assert found.reason == "max_time" and 0 < found.certificate.gap < 1e-3
