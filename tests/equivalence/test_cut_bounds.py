"""Cutting planes: every bound they give is one, and nothing HiGHS says is taken on trust."""

from __future__ import annotations

from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest
from scipy.optimize import linprog

import kernelweave.solvers.bundle as bundle
from kernelweave.bank import DenseBank
from kernelweave.combine import PolynomialMixture, WeightedSum
from kernelweave.errors import InvalidInputError
from kernelweave.losses import get_loss
from kernelweave.problem import Problem
from kernelweave.regularizers import L1, ElasticNet, LogDet, LpBall, Simplex
from kernelweave.regularizers.fixed import Fixed
from kernelweave.solvers import SILP, SPG, Limits, recompute, solve
from kernelweave.solvers.certificate import Witness, certify, feasible_alpha
from kernelweave.solvers.cuts import CutLP, Cuts, solve_dual
from kernelweave.solvers.inner import Evaluator

N, M = 30, 6
LOSSES = ["hinge", "squared_hinge", "logistic", "squared", "epsilon_insensitive", "one_class"]


def make(name, regularizer=None, seed=0, n_tasks=1):
    rng = np.random.default_rng(seed)
    Ks = [A @ A.T / A.shape[1] for A in (rng.normal(size=(N, r)) for r in (2, 3, 4, 6, 9, 30))]
    loss = get_loss(name)
    y = rng.normal(size=(n_tasks, N)) + (Ks[1] @ rng.normal(size=N))[None]
    if loss.task == "classification":
        y = np.where(y > np.median(y), 1.0, -1.0)
    C = np.full(y.shape, 1 / (0.3 * N)) if name == "one_class" else rng.uniform(0.5, 2.0, y.shape)
    bank = DenseBank().from_matrices(Ks)
    return Problem(bank, y, C, loss, regularizer or Simplex(), WeightedSum())


def random_alpha(problem, rng):
    scale = 10.0 ** rng.uniform(-2, 1)
    return feasible_alpha(problem, scale * rng.normal(size=problem.y.shape))


def filled_cuts(problem, count, seed=1):
    rng = np.random.default_rng(seed)
    cuts = Cuts(problem)
    for _ in range(count):
        alpha = random_alpha(problem, rng)
        cuts.add(alpha, problem.bank.quad(alpha))
    return cuts


@pytest.mark.parametrize("n_tasks", [1, 3])
@pytest.mark.parametrize("name", LOSSES)
def test_a_cut_is_below_the_best_objective_at_all_weights(name, n_tasks):
    problem = make(name, n_tasks=n_tasks)
    cuts = filled_cuts(problem, 5)
    rng = np.random.default_rng(2)
    for _ in range(3):
        d = rng.dirichlet(np.ones(M))
        best = solve(problem.with_regularizer(Fixed(d)), SPG(), Limits(tol=1e-8)).certificate
        assert np.all(cuts.values(d) <= best.primal + 1e-7 * max(1, abs(best.primal)))


@pytest.mark.parametrize("regularizer", [Simplex(), L1(0.7), LpBall(2.0)], ids=repr)
def test_any_mean_of_cuts_is_a_witness(regularizer):
    problem = make("hinge", regularizer)
    optimum = solve(problem, SPG(), Limits(tol=1e-7, max_iter=5000)).certificate.primal
    cuts = filled_cuts(problem, 6)
    rng = np.random.default_rng(3)
    d = regularizer.start(M)
    for _ in range(5):
        witness = cuts.witness(rng.dirichlet(np.ones(6)))
        assert np.all(problem.bank.quad(witness.alpha) <= witness.quad * (1 + 1e-12))
        alone, _ = recompute(problem, d, np.zeros((1, N)), np.zeros(1))
        certificate, _ = recompute(problem, d, np.zeros((1, N)), np.zeros(1), witness.alpha)
        assert alone.dual <= certificate.dual <= optimum * (1 + 1e-6)
        assert certificate.primal == pytest.approx(alone.primal, rel=1e-12)


def test_a_witness_only_lifts_the_dual_value():
    problem = make("hinge")
    best = solve(problem, SPG(), Limits(tol=1e-7, max_iter=5000))
    d, poor = np.full(M, 1 / M), np.zeros((1, N))
    zero = np.zeros((1, N)), np.zeros(M)
    witness = Witness(best.alpha, problem.bank.quad(best.alpha))
    lifted = certify(problem, d, poor, np.zeros(1), *zero, witness)
    assert lifted.dual == pytest.approx(best.certificate.dual, rel=1e-9)
    useless = certify(problem, d, poor, np.zeros(1), *zero, Witness(poor, 1e3 * np.ones(M)))
    plain = certify(problem, d, poor, np.zeros(1), *zero)
    assert useless.dual == pytest.approx(plain.dual, rel=1e-12)
    garbage, _ = recompute(problem, d, poor, np.zeros(1), 1e9 * np.ones((1, N)))
    assert garbage.dual <= best.certificate.primal * (1 + 1e-6)


def reference(cuts, price, limit):
    """The linear program by SciPy."""
    J = len(cuts)
    A = np.hstack([-0.5 * cuts.quads, -np.ones((J, 1))])
    sums = np.append(np.ones(M), 0.0)[None]
    cost = np.append(np.full(M, price or 0.0), 1.0)
    bounds = [(0, None)] * M + [(None, None)]
    exact = {"A_eq": sums, "b_eq": [limit]} if price is None else {}
    rows = A if price is None else np.vstack([A, sums])
    upper = -cuts.constants if price is None else np.append(-cuts.constants, limit)
    return linprog(cost, A_ub=rows, b_ub=upper, bounds=bounds, **exact).fun


@pytest.mark.parametrize("price", [None, 0.5])
def test_the_linear_program_row_by_row_with_drops(price):
    problem = make("hinge")
    cuts, rng = Cuts(problem), np.random.default_rng(4)
    lp = CutLP(cuts, price)
    for step in range(25):
        alpha = random_alpha(problem, rng)
        cuts.add(alpha, problem.bank.quad(alpha))
        limit = 1.0 if price is None else 1.0 + 0.1 * step
        solution = lp.solve(limit)
        assert solution.value == pytest.approx(reference(cuts, price, limit), rel=1e-6, abs=1e-7)
        assert solution.multipliers.sum() == pytest.approx(1.0)
        assert np.all(solution.d >= 0)
        if price is None:
            assert solution.d.sum() == pytest.approx(1.0)
        if step % 7 == 6:
            lp.drop(np.flatnonzero(solution.multipliers == 0)[:3])
            again = lp.solve(limit)
            assert again.value == pytest.approx(solution.value, rel=1e-9)


def test_cuts_of_no_use_are_dropped(monkeypatch):
    sizes = []
    solved = CutLP.solve

    def watched(self, limit=1.0):
        sizes.append(len(self._cuts))
        return solved(self, limit)

    monkeypatch.setattr(CutLP, "solve", watched)
    rng = np.random.default_rng(5)
    bank = DenseBank().from_matrices([A @ A.T for A in rng.normal(size=(20, N, 4))])
    problem = replace(make("hinge"), bank=bank)
    result = solve(problem, SILP(stabilise=False), Limits(tol=1e-6, max_iter=500))
    assert result.converged
    assert max(sizes) < len(sizes)


def wrong_status(right):
    return False, right[1], right[2]


def not_a_number(right):
    return True, np.full_like(right[1], np.nan), right[2]


def another_vertex(right):
    columns = np.zeros_like(right[1])
    columns[0] = 1.0
    return True, columns, right[2]


def wrong_multipliers(right):
    return True, right[1], np.roll(right[2], 1) + 0.1


@pytest.mark.parametrize("broken", [wrong_status, not_a_number, another_vertex, wrong_multipliers])
def test_a_wrong_answer_of_highs_is_seen_and_the_program_built_again(monkeypatch, broken):
    cuts = filled_cuts(make("hinge"), 8)
    expected = CutLP(cuts, None).solve().value
    run, calls = CutLP._run, []

    def once(self, limit):
        calls.append(1)
        return broken(run(self, limit)) if len(calls) == 1 else run(self, limit)

    monkeypatch.setattr(CutLP, "_run", once)
    assert CutLP(cuts, None).solve().value == pytest.approx(expected, rel=1e-9)
    assert len(calls) == 2
    monkeypatch.setattr(CutLP, "_run", lambda self, limit: broken(run(self, limit)))
    assert CutLP(cuts, None).solve() is None


@pytest.mark.parametrize("regularizer", [Simplex(), L1(0.7)], ids=repr)
def test_a_fit_goes_on_without_highs(monkeypatch, regularizer):
    problem = make("hinge", regularizer)
    expected = solve(problem, SPG(), Limits(tol=1e-6, max_iter=5000)).certificate.primal
    monkeypatch.setattr(CutLP, "_run", lambda self, limit: (False, np.empty(0), np.empty(0)))
    monkeypatch.setattr(bundle, "nearest_below", lambda *args: None)
    result = solve(problem, SILP(), Limits(tol=1e-5))
    assert result.converged
    assert result.certificate.primal == pytest.approx(expected, rel=2e-5)


@pytest.mark.parametrize("regularizer", [Simplex(), L1(0.7)], ids=repr)
@pytest.mark.parametrize("name", ["hinge", "logistic", "epsilon_insensitive"])
def test_plain_cutting_planes_get_there_too(monkeypatch, name, regularizer):
    problem = make(name, regularizer)
    best = solve(problem, SILP(), Limits(tol=1e-7)).certificate
    thetas = []
    solved = CutLP.solve

    def watched(self, limit=1.0):
        solution = solved(self, limit)
        thetas.append((limit, solution.value))
        return solution

    monkeypatch.setattr(CutLP, "solve", watched)
    plain = solve(problem, SILP(stabilise=False), Limits(tol=1e-5, max_iter=2000))
    assert plain.converged
    assert plain.certificate.primal == pytest.approx(best.primal, rel=2e-5)
    if isinstance(regularizer, Simplex):
        values = np.array([value for _, value in thetas])
        slack = 1e-6 * abs(best.primal)
        assert np.all(np.diff(values) >= -slack)
        assert values.max() <= best.primal + slack


@pytest.mark.parametrize("regularizer", [LpBall(2.0), LpBall(1.33), ElasticNet(1.0, 0.5)], ids=repr)
def test_the_smooth_master_against_a_convex_solver(regularizer):
    cuts = filled_cuts(make("hinge"), 7)
    d, theta = cp.Variable(M, nonneg=True), cp.Variable()
    rows = [theta >= c - 0.5 * (q @ d) for c, q in zip(cuts.constants, cuts.quads, strict=True)]
    if isinstance(regularizer, LpBall):
        rows.append(cp.pnorm(d, regularizer.p, approx=False) <= 1)
        objective = theta
    else:
        objective = theta + 0.5 * cp.sum(d) + 0.25 * cp.sum_squares(d)
    problem = cp.Problem(cp.Minimize(objective), rows)
    problem.solve(solver=cp.CLARABEL)
    start = np.full(7, 1 / 7)
    found = solve_dual(cuts, regularizer, start, problem.value + 1e-6)
    assert found.value <= problem.value + 1e-6 * abs(problem.value)
    above = float(regularizer.value(found.d)) + cuts.values(found.d).max()
    assert found.value == pytest.approx(problem.value, rel=1e-5)
    assert above == pytest.approx(problem.value, rel=1e-3)


@pytest.mark.parametrize("n_tasks", [1, 2])
@pytest.mark.parametrize("name", ["logistic", "squared"])
def test_curvature_against_differences_of_the_gradient(name, n_tasks):
    problem = make(name, n_tasks=n_tasks)
    d, kernels = np.full(M, 1 / M), np.arange(M)

    def at(weights):
        evaluator = Evaluator(problem)
        point = evaluator.evaluate(weights, 1e-12)
        return evaluator, point, -0.5 * evaluator.quad(point)

    evaluator, point, _ = at(d)
    root = bundle.curvature_root(evaluator, point, kernels)
    step, differences = 1e-4, np.empty((M, M))
    for k in range(M):
        up, down = d.copy(), d.copy()
        up[k] += step
        down[k] -= step
        differences[k] = (at(up)[2] - at(down)[2]) / (2 * step)
    np.testing.assert_allclose(root.T @ root, differences, rtol=2e-3, atol=1e-3 * differences.max())


def test_what_cutting_planes_cannot_take_is_said_with_what_they_can():
    with pytest.raises(InvalidInputError, match="'simplex', 'l1', 'lp_ball'"):
        solve(make("hinge", LogDet()), SILP(), Limits())
    mixture = replace(make("hinge"), combination=PolynomialMixture((1.0, 0.5)))
    with pytest.raises(InvalidInputError, match="sums of kernels"):
        solve(mixture, SILP(), Limits())
