"""The parts of the cutting-plane solvers, each held to what it says it does.

Their bounds against whole fits are in `tests/equivalence/test_cutting_planes.py`.
"""

from __future__ import annotations

import os
from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest
from scipy.optimize import linprog

import kernelweave.solvers.cutting_planes as cutting_planes
from kernelweave.bank import DenseBank, FactoredBank
from kernelweave.combine import WeightedSum
from kernelweave.kernels import RBF, KernelSet
from kernelweave.losses import get_loss
from kernelweave.problem import Problem
from kernelweave.regularizers import L1, ElasticNet, Entropy, LpBall, Simplex, SquaredLp
from kernelweave.solvers import SILP, SPG, Limits, State, solve
from kernelweave.solvers.certificate import Witness, certify, dual_value, recompute
from kernelweave.solvers.curvature import (
    curvature_root,
    minimise_model,
    minimise_penalised_model,
)
from kernelweave.solvers.cut_dual import solve_dual
from kernelweave.solvers.cut_lp import CutLP, nearest_below
from kernelweave.solvers.cuts import _PATIENCE, Cuts
from kernelweave.solvers.cutting_planes import CuttingPlanes, Proposal
from kernelweave.solvers.feasible import feasible_alpha
from kernelweave.solvers.inner import Evaluator, Point
from kernelweave.solvers.screening import Screening

N, M = 16, 4
LOSSES = ["hinge", "squared_hinge", "logistic", "smooth_hinge", "squared", "epsilon_insensitive"]


def make(name, regularizer=None, n_tasks=1, C=1.0, seed=0, ranks=(2, 3, 5, 20)):
    rng = np.random.default_rng(seed)
    Ks = [A @ A.T / A.shape[1] for A in (rng.normal(size=(N, r)) for r in ranks)]
    loss = get_loss(name)
    y = rng.normal(size=(n_tasks, N)) + Ks[1] @ rng.normal(size=N)
    if loss.task == "classification":
        y = np.where(y > np.median(y), 1.0, -1.0)
    weights = C * rng.uniform(0.5, 2.0, y.shape)
    if name == "one_class":
        weights = np.full(y.shape, 1.0 / (0.4 * N))
    bank = DenseBank().from_matrices(Ks)
    return Problem(bank, y, weights, loss, regularizer or Simplex(), WeightedSum())


def random_alpha(problem, rng):
    scale = 10.0 ** rng.uniform(-2, 1)
    return feasible_alpha(problem, scale * rng.normal(size=problem.y.shape))


def stored(constants, quads):
    """Cuts with these numbers, whatever alpha would have them."""
    m = quads.shape[1]
    bank = DenseBank().from_matrices([np.eye(2)] * m)
    ones = np.ones((1, 2))
    cuts = Cuts(Problem(bank, ones, ones, get_loss("hinge"), Simplex(), WeightedSum()))
    for c, q in zip(constants, quads, strict=True):
        cuts.add(np.zeros((1, 2)), q)
        cuts.constants[-1] = c
    return cuts


def random_cuts(rng, count, m, size=1.0):
    quads = size * np.abs(rng.normal(size=(count, m)))
    return stored(size * rng.normal(size=count), quads)


# Cuts


@pytest.mark.parametrize("n_tasks", [1, 2])
@pytest.mark.parametrize("name", [*LOSSES, "one_class"])
def test_a_cut_touches_where_its_alpha_is_best_and_is_below_elsewhere(name, n_tasks):
    problem = make(name, n_tasks=n_tasks)
    rng = np.random.default_rng(1)
    weights = rng.dirichlet(np.ones(M), size=4)
    cuts, best = Cuts(problem), []
    for d in weights:
        point = Evaluator(problem).evaluate(d, 1e-10)
        cuts.add(point.alpha, problem.bank.quad(point.alpha))
        best.append(point.value)
    for _ in range(4):
        alpha = random_alpha(problem, rng)
        cuts.add(alpha, problem.bank.quad(alpha))
    for j, (d, value) in enumerate(zip(weights, best, strict=True)):
        values = cuts.values(d)
        slack = 1e-8 * max(1.0, abs(value))
        assert values[j] == pytest.approx(value, abs=slack)
        assert np.all(values <= value + slack)


@pytest.mark.parametrize("n_tasks", [1, 2])
@pytest.mark.parametrize("regularizer", [Simplex(), LpBall(2.0), Entropy(0.5)], ids=repr)
def test_a_mean_of_cuts_proves_at_least_the_mean_of_their_bounds(regularizer, n_tasks):
    problem = make("logistic", regularizer, n_tasks)
    optimum = solve(problem, SPG(), Limits(tol=1e-8)).certificate.primal
    cuts, rng = Cuts(problem), np.random.default_rng(2)
    for _ in range(6):
        alpha = random_alpha(problem, rng)
        cuts.add(alpha, problem.bank.quad(alpha))
    for _ in range(5):
        multipliers = rng.dirichlet(np.ones(6)) * (rng.random(6) < 0.7) + 1e-3
        multipliers /= multipliers.sum()
        witness = cuts.witness(multipliers)
        np.testing.assert_array_equal(feasible_alpha(problem, witness.alpha), witness.alpha)
        assert np.all(problem.bank.quad(witness.alpha) <= witness.quad * (1 + 1e-12))
        value = dual_value(problem, witness.alpha, witness.quad)
        mean = multipliers @ cuts.constants
        mean -= regularizer.dual_penalty(multipliers @ cuts.quads)
        assert mean - 1e-12 * abs(mean) <= value <= optimum + 1e-7 * abs(optimum)


def rows_of(lp):
    return lp._highs.getNumRow() - 1  # one is on the sum of the weights


def test_idle_cuts_go_after_the_stated_patience_and_the_program_keeps_step():
    cuts = random_cuts(np.random.default_rng(3), 9, M)
    lp = CutLP(cuts, None)
    value = lp.solve().value
    assert rows_of(lp) == len(cuts) == 9
    kept = cuts.quads[[0, 2, 3, 4, 5, 6, 7]]
    used = np.ones(9)
    used[[1, 8]] = 0.0
    for _ in range(_PATIENCE - 1):
        assert len(cuts.used(used)) == 0
    np.testing.assert_array_equal(cuts.used(used), [1, 8])
    # A cut that came after the last solve is in the store but not yet in the program.
    cuts.add(np.zeros((1, 2)), np.full(M, 0.1))
    cuts.constants[-1] = -5.0
    lp.drop(np.array([1, 8]))
    assert (rows_of(lp), len(cuts)) == (7, 8)
    np.testing.assert_array_equal(cuts.quads[:-1], kept)
    assert lp.solve().value == pytest.approx(CutLP(cuts, None).solve().value, rel=1e-9)
    assert rows_of(lp) == len(cuts) == 8
    assert lp.solve().value <= value + 1e-12
    for _ in range(_PATIENCE - 1):
        cuts.used(np.zeros(8))
    cuts.used(np.ones(8))
    assert len(cuts.used(np.zeros(8))) == 0  # one use, and patience starts anew


# The linear program


def reference(cuts, price, limit):
    m, J = cuts.quads.shape[1], len(cuts)
    A = np.hstack([-0.5 * cuts.quads, -np.ones((J, 1))])
    b = -cuts.constants
    sums = np.append(np.ones(m), 0.0)[None]
    cost = np.append(np.full(m, price or 0.0), 1.0)
    bounds = [(0, None)] * m + [(None, None)]
    if price is None:
        found = linprog(cost, A, b, sums, [limit], bounds=bounds)
    else:
        found = linprog(cost, np.vstack([A, sums]), np.append(b, limit), bounds=bounds)
    return found.fun


@pytest.mark.parametrize("size", [1e-9, 1.0, 1e9])
@pytest.mark.parametrize("price", [None, 0.4])
def test_hot_starts_give_the_cold_answer_whatever_the_scale(price, size):
    """Also when cuts outgrow the scale the program was built in, and after a cut of nothing."""
    rng = np.random.default_rng(4)
    price = None if price is None else price * size
    cuts = random_cuts(rng, 1, 7, size)
    lp = CutLP(cuts, price)
    for step in range(16):
        limit = 1.0 if price is None else 1.0 + 0.3 * step
        found = lp.solve(limit)
        expected = reference(stored(cuts.constants / size, cuts.quads / size), price and 0.4, limit)
        tol = 2e-6 * max(np.abs(cuts.constants).max(), size)
        assert found.value == pytest.approx(size * expected, abs=tol)
        if cuts.quads[-1].any():  # a new program takes its scale from the latest cut
            assert found.value == pytest.approx(CutLP(cuts, price).solve(limit).value, abs=tol)
        above = (price or 0.0) * found.d.sum() + cuts.values(found.d).max()
        assert above == pytest.approx(found.value, abs=tol)
        assert found.multipliers.shape == (len(cuts),) and found.multipliers.min() >= 0
        assert found.multipliers.sum() == pytest.approx(1.0)
        assert found.d.min() >= 0 and found.d.sum() <= limit * (1 + 1e-8)
        assert price is not None or found.d.sum() == pytest.approx(limit)
        if step == 9:
            lp.drop(np.flatnonzero(found.multipliers == 0)[::2])
        grown = size * (1e6 if step == 5 else 0.0 if step == 7 else 1.0)
        cuts.add(np.zeros((1, 2)), grown * np.abs(rng.normal(size=7)))
        cuts.constants[-1] = grown * rng.normal()


def test_no_weights_at_all_are_an_answer_under_l1():
    cuts = stored(np.array([2.0, 1.0]), np.array([[0.1, 0.2], [0.3, 0.1]]))
    found = CutLP(cuts, 5.0).solve(3.0)
    np.testing.assert_array_equal(found.d, [0.0, 0.0])
    assert found.value == pytest.approx(2.0)


def too_short(right):
    return True, right[1][:-1], right[2]


def no_multipliers(right):
    return True, right[1], np.zeros_like(right[2])


def multipliers_not_a_number(right):
    return True, right[1], np.full_like(right[2], np.nan)


def slightly_wrong(right):
    columns = right[1].copy()
    columns[:-1] = 0.5 * columns[:-1] + 0.5 * columns[:-1].mean()
    return True, columns, right[2]


BROKEN = [too_short, no_multipliers, multipliers_not_a_number, slightly_wrong]


@pytest.mark.parametrize("price", [None, 0.2])
@pytest.mark.parametrize("broken", BROKEN)
def test_garbage_from_a_hot_start_is_mended_by_a_cold_one(monkeypatch, broken, price):
    cuts = random_cuts(np.random.default_rng(5), 8, M)
    lp = CutLP(cuts, price)
    lp.solve(2.0 if price else 1.0)
    cuts.add(np.zeros((1, 2)), np.linspace(0.2, 2.0, M))
    cuts.constants[-1] = 1.2
    run, build, calls, builds = CutLP._run, CutLP._build, [], []

    def once(self):
        calls.append(1)
        return broken(run(self)) if len(calls) == 1 else run(self)

    def counted(self, limit):
        builds.append(limit)
        build(self, limit)

    limit = 2.0 if price else 1.0
    expected = CutLP(cuts, price).solve(limit)
    monkeypatch.setattr(CutLP, "_run", once)
    monkeypatch.setattr(CutLP, "_build", counted)
    found = lp.solve(limit)
    assert len(calls) == 2 and builds == [limit]
    assert found.value == pytest.approx(expected.value, rel=1e-9)
    assert rows_of(lp) == len(cuts)
    monkeypatch.setattr(CutLP, "_run", lambda self: broken(run(self)))
    assert lp.solve(limit) is None
    monkeypatch.setattr(CutLP, "_run", run)
    assert lp.solve(limit).value == pytest.approx(expected.value, rel=1e-9)


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="threads are counted on Linux")
def test_highs_is_silent_and_starts_no_threads(capfd):
    cuts = random_cuts(np.random.default_rng(6), 10, 30)
    before = len(os.listdir("/proc/self/task"))
    lp = CutLP(cuts, None)
    lp.solve()
    lp._build(1.0)
    lp._add_rows()
    lp.solve()
    d = np.full(30, 1 / 30)
    assert nearest_below(cuts.constants, -0.5 * cuts.quads, d, np.eye(30), 1.0, True) is not None
    assert len(os.listdir("/proc/self/task")) == before
    assert capfd.readouterr() == ("", "")


# The quadratic programs


def referee_level(constants, slopes, d, metric, limit, exact_sum):
    x, level = cp.Variable(len(d), nonneg=True), cp.Variable()
    rows = [level >= c + g @ x for c, g in zip(constants, slopes, strict=True)]
    rows.append(cp.sum(x) == limit if exact_sum else cp.sum(x) <= limit)
    objective = level + 0.5 * cp.quad_form(x - d, cp.psd_wrap(metric))
    problem = cp.Problem(cp.Minimize(objective), rows)
    problem.solve(solver=cp.CLARABEL)
    return problem.value


@pytest.mark.parametrize("exact_sum", [True, False])
@pytest.mark.parametrize("size", [1e-4, 1.0, 1e4])
def test_the_level_step_against_a_convex_solver(size, exact_sum):
    rng = np.random.default_rng(7)
    for _ in range(3):
        R = rng.normal(size=(5, 6))
        metric = R.T @ R + 1e-6 * np.eye(6)
        constants, slopes = rng.normal(size=5), rng.normal(size=(5, 6))
        d = rng.dirichlet(np.ones(6))
        limit = 1.0 if exact_sum else 2.0
        expected = referee_level(constants, slopes, d, metric, limit, exact_sum)
        weights, shares = nearest_below(
            size * constants, size * slopes, d, size * metric, limit, exact_sum
        )
        assert weights.min() >= 0 and shares.min() >= 0
        assert shares.sum() == pytest.approx(1.0)
        total = weights.sum()
        assert total == pytest.approx(1.0) if exact_sum else total <= limit * (1 + 1e-9)
        level = (constants + slopes @ weights).max()
        value = level + 0.5 * (weights - d) @ metric @ (weights - d)
        assert value == pytest.approx(expected, abs=1e-5)
        # Only cuts that are highest there have a share.
        assert shares @ (constants + slopes @ weights) == pytest.approx(level, abs=1e-5)


def test_a_level_step_beyond_the_reach_of_highs_is_not_asked_for():
    """HiGHS 1.15 writes beyond its arrays where the metric is 1e15 times the slopes."""
    slopes = np.array([[-1.0, 0.0], [1.0, 0.0]])
    args = np.zeros(2), slopes, np.full(2, 0.5)
    assert nearest_below(*args, np.eye(2), 1.0, True) is not None
    for metric in (1e20 * np.eye(2), np.full((2, 2), np.nan), np.full((2, 2), np.inf)):
        assert nearest_below(*args, metric, 1.0, True) is None


@pytest.mark.parametrize("free_sum", [False, True])
@pytest.mark.parametrize("rank", [1, 4, 9])
def test_the_model_of_a_polyhedral_step_against_a_convex_solver(rank, free_sum):
    rng = np.random.default_rng(8)
    for _ in range(3):
        R = rng.normal(size=(rank, 7))
        d = rng.dirichlet(np.ones(7)) * (rng.random(7) < 0.6)
        d[0] += 0.1
        gradient = rng.normal(size=7)
        x = cp.Variable(7, nonneg=True)
        objective = gradient @ (x - d) + 0.5 * cp.sum_squares(R @ (x - d))
        most = 2 * d.sum() + 1
        rows = [cp.sum(x) <= most] if free_sum else [cp.sum(x) == d.sum()]
        expected = cp.Problem(cp.Minimize(objective), rows).solve(solver=cp.CLARABEL)
        found = minimise_model(R.T @ R, gradient, d, 1e-7, free_sum)
        value = gradient @ (found - d) + 0.5 * np.sum((R @ (found - d)) ** 2)
        assert found.min() >= 0
        assert found.sum() <= most + 1e-9 if free_sum else found.sum() == pytest.approx(d.sum())
        assert value == pytest.approx(expected, abs=1e-5)


def price(regularizer, x):
    s = regularizer.weight
    if isinstance(regularizer, ElasticNet):
        rho = regularizer.l1_ratio
        return s * rho * cp.sum(x) + 0.5 * s * (1 - rho) * cp.sum_squares(x), []
    if isinstance(regularizer, Entropy):
        return s * (np.log(x.size) - cp.sum(cp.entr(x))), [cp.sum(x) == 1]
    return 0.5 * s * cp.square(cp.pnorm(x, regularizer.p, approx=False)), []


@pytest.mark.parametrize("damping", [0.0, 0.3])
@pytest.mark.parametrize("regularizer", [ElasticNet(0.8, 0.5), Entropy(0.3)], ids=repr)
def test_the_model_with_a_curved_price_against_a_convex_solver(regularizer, damping):
    rng = np.random.default_rng(9)
    for rank in (2, 8):
        R = rng.normal(size=(rank, 6))
        d, gradient = rng.dirichlet(np.ones(6)), -np.abs(rng.normal(size=6))
        rho = damping * np.linalg.norm(R, 2) ** 2
        x = cp.Variable(6, nonneg=True)
        cost, rows = price(regularizer, x)
        model = gradient @ (x - d) + 0.5 * cp.sum_squares(R @ (x - d))
        objective = cost + model + 0.5 * rho * cp.sum_squares(x - d)
        expected = cp.Problem(cp.Minimize(objective), rows).solve(solver=cp.CLARABEL)
        found = minimise_penalised_model(R, gradient, d, regularizer, damping)
        move = found - d
        value = regularizer.value(found) + gradient @ move + 0.5 * np.sum((R @ move) ** 2)
        assert value + 0.5 * rho * move @ move == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("regularizer", [ElasticNet(0.8, 0.5), Entropy(0.3)], ids=repr)
def test_without_curvature_the_price_alone_bends_the_model(regularizer):
    """All alpha at their bounds: a step must be taken all the same."""
    gradient = -np.array([3.0, 2.0, 0.1])
    d = regularizer.start(3)

    def value(x):
        return regularizer.value(x) + gradient @ x

    best = regularizer.dual_weights(-2 * gradient)
    found = minimise_penalised_model(np.zeros((1, 3)), gradient, d, regularizer, 0.0)
    for _ in range(20):
        found = minimise_penalised_model(np.zeros((1, 3)), gradient, found, regularizer, 0.0)
    assert value(found) == pytest.approx(value(best), abs=1e-6)
    short = minimise_penalised_model(np.zeros((1, 3)), gradient, d, regularizer, 1e6)
    assert 0 < np.abs(short - d).max() < 1e-3


@pytest.mark.parametrize(
    "regularizer", [SquaredLp(2.0, 1.5), SquaredLp(1.5), Entropy(0.7)], ids=repr
)
def test_the_smooth_master_under_other_prices(regularizer):
    cuts = random_cuts(np.random.default_rng(10), 7, 5)
    d, theta = cp.Variable(5, nonneg=True), cp.Variable()
    cost, rows = price(regularizer, d)
    rows += [theta >= c - 0.5 * (q @ d) for c, q in zip(cuts.constants, cuts.quads, strict=True)]
    expected = cp.Problem(cp.Minimize(cost + theta), rows).solve(solver=cp.CLARABEL)
    found = solve_dual(cuts, regularizer, np.eye(7)[-1], accuracy=1e-8)
    assert found.value <= expected + 1e-7
    assert found.value == pytest.approx(expected, abs=1e-5)
    assert regularizer.value(found.d) + cuts.values(found.d).max() == pytest.approx(
        expected, abs=1e-3
    )
    np.testing.assert_allclose(found.d, d.value, atol=1e-3)


def test_a_regularizer_that_cannot_tell_its_weights_has_no_master():
    cuts = random_cuts(np.random.default_rng(11), 3, 4)
    assert solve_dual(cuts, SquaredLp(1.0), np.eye(3)[-1], 1e-6) is None


# Curvature


def hessian_and_differences(problem, d, step):
    kernels = np.arange(problem.m)

    def at(weights):
        evaluator = Evaluator(problem)
        point = evaluator.evaluate(weights, 1e-13)
        return evaluator, point, -0.5 * evaluator.quad(point)

    evaluator, point, _ = at(d)
    root = curvature_root(problem, point, kernels, *evaluator.curvature_parts(point))
    differences = np.empty((problem.m, problem.m))
    for k in kernels:
        move = step * np.eye(problem.m)[k]
        differences[k] = (at(d + move)[2] - at(d - move)[2]) / (2 * step)
    return point, root.T @ root, differences


@pytest.mark.parametrize("name", ["hinge", "one_class"])
def test_curvature_of_a_box_where_the_free_set_stays(name):
    problem = make(name, C=3.0, seed=2, ranks=(20, 20, 30, 40))
    point, hessian, differences = hessian_and_differences(problem, np.full(M, 0.25), 1e-6)
    inside = np.abs(point.alpha[0]), problem.C[0]
    assert np.sum((inside[0] > 1e-3 * inside[1]) & (inside[0] < 0.999 * inside[1])) >= 3
    scale = np.abs(differences).max()
    np.testing.assert_allclose(hessian, differences, rtol=1e-3, atol=1e-3 * scale)


@pytest.mark.parametrize("spread", [1.0, 1e6])
def test_curvature_where_samples_are_of_very_different_stiffness(spread):
    """A sample that hardly moves must not soften those that do."""
    problem = make("squared", seed=3)
    C = problem.C.copy()
    C[:, : N // 2] /= spread
    problem = replace(problem, C=C)
    _, hessian, differences = hessian_and_differences(problem, np.full(M, 0.25), 1e-5)
    scale = np.abs(differences).max()
    np.testing.assert_allclose(hessian, differences, rtol=1e-3, atol=1e-4 * scale)


# Where to go next


def planes_at(problem, d=None):
    evaluator = Evaluator(problem)
    point = evaluator.evaluate(problem.regularizer.start(problem.m) if d is None else d, 1e-9)
    quad = evaluator.quad(point)
    parts = evaluator.curvature_parts(point)
    roots = []

    def root(kernels):
        roots.append(kernels)
        return curvature_root(problem, point, kernels, *parts)

    planes = CuttingPlanes(problem, True)
    planes.start(point, quad, root)
    return planes, point, quad, root, roots


def test_the_curvature_is_kept_only_while_the_gap_falls_fivefold(monkeypatch):
    problem = make("logistic")
    monkeypatch.setattr(cutting_planes, "_KEEP_FROM", 0)
    planes, point, quad, root, roots = planes_at(problem)
    seen = []
    for gap in (1.0, 0.1, 0.01, 0.005, 0.004, 0.0001):
        planes.replace_centre(point, quad, root, gap)
        seen.append(len(roots))
    assert seen == [1, 1, 1, 2, 3, 3]
    monkeypatch.setattr(cutting_planes, "_KEEP_FROM", 10**9)
    planes, point, quad, root, roots = planes_at(problem)
    for gap in (1.0, 0.1, 0.01):
        planes.replace_centre(point, quad, root, gap)
    assert len(roots) == 4


@pytest.mark.parametrize("name", ["hinge", "logistic"])
def test_under_l1_a_bound_is_one_even_if_the_weights_must_grow_a_lot(name):
    """A master's value holds only for weights up to its limit; the optimum lies far beyond."""
    problem = make(name, L1(1e-3), C=0.1)
    best = solve(problem, SILP(), Limits(tol=1e-6))
    assert best.converged and best.d.sum() > 30
    planes, *_ = planes_at(problem)
    for _ in range(3):
        proposal = planes.propose(1.0)
        evaluator = Evaluator(problem)
        point = evaluator.evaluate(proposal.d, 1e-9)
        planes.add(
            proposal, point, evaluator.quad(point), lambda kernels: np.eye(len(kernels)), 1.0
        )
        assert planes._lower <= best.certificate.primal * (1 + 1e-6)
        witness = planes.witness
        value = dual_value(problem, witness.alpha, witness.quad)
        assert value == pytest.approx(planes._lower)


def test_a_closed_form_step_that_descends_is_taken_whatever_it_promised():
    problem = make("squared", LpBall(2.0))
    planes, point, quad, root, _ = planes_at(problem)
    slightly_better = replace(point, value=point.value - 1e-3)
    boast = Proposal(point.d, 1e6, "closed-form")
    assert planes.add(boast, slightly_better, quad, root, 1.0)
    assert planes.centre is slightly_better and planes.failed == 0
    assert not planes.add(replace(boast, kind="dual"), slightly_better, quad, root, 1.0)
    # One that does not descend is not promised a second time: alpha is sharpened instead.
    assert planes.propose(1.0).promised > 0
    assert not planes.add(boast, slightly_better, quad, root, 1.0)
    again = planes.propose(1.0)
    assert again.kind == "closed-form" and again.promised == 0.0


# Certificates with a witness


@pytest.mark.parametrize(
    ("name", "regularizer"),
    [
        ("hinge", Simplex()),
        ("hinge", L1(0.7)),
        ("squared", L1(0.7)),
        ("squared", ElasticNet(1.0, 0.6)),
        ("one_class", Simplex()),
        ("one_class", LpBall(2.0)),
    ],
    ids=str,
)
def test_the_dual_value_is_the_better_of_the_two_and_never_above_the_optimum(name, regularizer):
    problem = make(name, regularizer, n_tasks=2)
    optimum = solve(problem, SPG(), Limits(tol=1e-7, max_iter=5000)).certificate.primal
    rng = np.random.default_rng(12)
    nothing = np.zeros(2)
    for _ in range(6):
        d = regularizer.project(rng.random(M))
        one, other = random_alpha(problem, rng), random_alpha(problem, rng)
        alone = [recompute(problem, d, alpha, nothing)[0] for alpha in (one, other)]
        both, used = recompute(problem, d, one, nothing, other)
        assert both.dual == pytest.approx(max(alone[0].dual, alone[1].dual), rel=1e-12)
        slack = 1e-6 * max(1.0, abs(optimum))
        assert both.dual <= optimum + slack
        assert both.primal == alone[0].primal
        np.testing.assert_array_equal(used, one)
        fitted, quad = problem.combination.evaluate(problem.bank, d, one)
        rough = Witness(other, 2.0 * problem.bank.quad(other))
        assert certify(problem, d, one, nothing, fitted, quad, rough).dual <= optimum + slack


@pytest.mark.parametrize("name", ["hinge", "squared_hinge", "logistic"])
def test_a_garbage_witness_is_made_feasible_first(name):
    problem = make(name)
    optimum = solve(problem, SPG(), Limits(tol=1e-7)).certificate.primal
    rng = np.random.default_rng(13)
    d, nothing = np.full(M, 0.25), np.zeros(1)
    for scale in (1e-9, 1.0, 1e9):
        garbage = scale * rng.normal(size=(1, N))
        certificate, _ = recompute(problem, d, np.zeros((1, N)), nothing, garbage)
        assert np.isfinite(certificate.dual)
        assert certificate.dual <= optimum + 1e-6 * abs(optimum)
        mended = recompute(problem, d, feasible_alpha(problem, garbage), nothing)[0]
        assert certificate.dual >= mended.dual


def test_screening_goes_by_the_gap_of_the_alpha_it_looks_at():
    """A witness closes the gap of the certificate, but tells nothing about where alpha is."""
    rng = np.random.default_rng(14)
    n, good = 40, 2
    factors = [rng.normal(size=(n, 2)) for _ in range(good)]
    factors += [0.3 * rng.normal(size=(n, 1)) for _ in range(30)]
    Ks = [A @ A.T for A in factors]
    y = factors[0][:, 0] + factors[1][:, 0] + 0.01 * rng.normal(size=n)
    C = np.full((1, n), 0.5)
    bank = DenseBank().from_matrices(Ks)
    problem = Problem(bank, y[None], C, get_loss("squared"), Simplex(), WeightedSum())
    best = solve(problem, SPG(), Limits(tol=1e-9, max_iter=5000))
    used = np.flatnonzero(best.d)
    # Add to alpha what the kernels in use do not see and another one does.
    seen = np.column_stack([np.ones(n), *(factors[k] for k in used)])
    other = next(k for k in range(problem.m) if k not in used)
    unseen = factors[other][:, 0] - seen @ np.linalg.lstsq(seen, factors[other][:, 0])[0]
    top = np.sqrt(bank.quad(best.alpha).max())
    far = best.alpha + 3.0 * top / (unseen @ factors[other][:, 0]) * unseen
    fitted, quad = problem.combination.evaluate(bank, best.d, far)
    witness = Witness(best.alpha, bank.quad(best.alpha))
    certificate = certify(problem, best.d, far, best.intercept, fitted, quad, witness)
    assert certificate.gap < 1e-6
    evaluator = Evaluator(problem)
    point = Point(best.d, far, fitted, best.intercept, best.certificate.primal)
    screening = Screening(problem)
    screening.look(certificate, State(point, quad, evaluator, False, None, witness))
    assert np.isin(used, screening.kept).all()
    # The same certificate at the alpha it belongs to does prove something.
    fitted, quad = problem.combination.evaluate(bank, best.d, best.alpha)
    certificate = certify(problem, best.d, best.alpha, best.intercept, fitted, quad, witness)
    point = Point(best.d, best.alpha, fitted, best.intercept, best.certificate.primal)
    screening.look(certificate, State(point, quad, evaluator, False, None, witness))
    assert np.isin(used, screening.kept).all() and len(screening.kept) < problem.m


@pytest.mark.parametrize("name", ["logistic", "squared"])
def test_products_stay_those_of_alpha_when_a_solve_changes_nothing(name):
    """Solving again at the same weights, as a sharpened centre does, takes products too."""
    rng = np.random.default_rng(15)
    X = rng.normal(size=(40, 3))
    y = np.sign(X[:, 0] * X[:, 1])[None]
    kernels = KernelSet.build([RBF(width=w) for w in (0.5, 1.0, 3.0)], X)
    bank = FactoredBank(1e-9).build(kernels)
    bank.matrix_limit = 0  # as for many samples: no matrix is formed
    C = np.ones((1, 40))
    problem = Problem(bank, y, C, get_loss(name), Simplex(), WeightedSum())
    evaluator, d = Evaluator(problem), np.full(3, 1 / 3)
    for tol in (1e-2, 1e-2, 1e-2, 1e-8):
        point = evaluator.evaluate(d, tol)
        exact = np.tensordot(d, bank.matvec(point.alpha), axes=1)
        np.testing.assert_allclose(point.fitted, exact, atol=1e-9)
        np.testing.assert_allclose(evaluator.quad(point), bank.quad(point.alpha), atol=1e-9)
