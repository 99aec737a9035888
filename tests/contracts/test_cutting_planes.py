"""The parts of the cutting-plane solvers, each held to what it says it does.

The programs they solve are in `test_cut_programs.py`, whole fits in `tests/equivalence/`.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kernelweave.bank import DenseBank, FactoredBank
from kernelweave.combine import WeightedSum
from kernelweave.kernels import RBF
from kernelweave.losses import get_loss
from kernelweave.operators import ComputedOperator, DenseOperator
from kernelweave.problem import Problem
from kernelweave.regularizers import L1, BlockNorm, ElasticNet, Entropy, LpBall, Simplex
from kernelweave.solvers import SILP, SPG, Limits, solve
from kernelweave.solvers.bundle import CuttingPlanes, Proposal, curvature_root
from kernelweave.solvers.certificate import (
    Screening,
    Witness,
    certify,
    dual_value,
    feasible_alpha,
    recompute,
)
from kernelweave.solvers.cuts import Cuts
from kernelweave.solvers.inner import Evaluator, Point

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
    alphas = [random_alpha(problem, rng) for _ in range(6)]
    for alpha in alphas:
        cuts.add(alpha, problem.bank.quad(alpha))
    for j in range(6):
        np.testing.assert_array_equal(cuts.witness(np.eye(6)[j]).quad, cuts.quads[j])
    for _ in range(5):
        multipliers = rng.dirichlet(np.ones(6)) * (rng.random(6) < 0.7) + 1e-3
        multipliers /= multipliers.sum()
        witness = cuts.witness(multipliers)
        np.testing.assert_allclose(witness.alpha, np.tensordot(multipliers, alphas, axes=1))
        np.testing.assert_array_equal(feasible_alpha(problem, witness.alpha), witness.alpha)
        assert np.all(problem.bank.quad(witness.alpha) <= witness.quad * (1 + 1e-12))
        value = dual_value(problem, witness.alpha, witness.quad)
        mean = multipliers @ cuts.constants
        mean -= regularizer.dual_penalty(multipliers @ cuts.quads)
        assert mean - 1e-12 * abs(mean) <= value <= optimum + 1e-7 * abs(optimum)


# Curvature


def hessian_and_differences(problem, d, step):
    kernels = np.arange(problem.m)

    def at(weights):
        evaluator = Evaluator(problem)
        point = evaluator.evaluate(weights, 1e-13)
        return evaluator, point, -0.5 * evaluator.quad(point)

    evaluator, point, _ = at(d)
    root = curvature_root(evaluator, point, kernels)
    differences = np.empty((problem.m, problem.m))
    for k in kernels:
        move = step * np.eye(problem.m)[k]
        differences[k] = (at(d + move)[2] - at(d - move)[2]) / (2 * step)
    return point, root.T @ root, differences


@pytest.mark.parametrize("n_tasks", [1, 2])
@pytest.mark.parametrize("name", ["hinge", "one_class"])
def test_curvature_of_a_box_where_the_free_set_stays(name, n_tasks):
    problem = make(name, n_tasks=n_tasks, C=3.0, seed=2, ranks=(20, 20, 30, 40))
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


def planes_at(problem, d=None, stabilise=True):
    evaluator = Evaluator(problem)
    point = evaluator.evaluate(problem.regularizer.start(problem.m) if d is None else d, 1e-9)
    planes = CuttingPlanes(evaluator, stabilise, 64)
    planes.put_centre(point, evaluator.quad(point))
    return planes, point, planes.quad


class Counted(DenseOperator):
    """A dense bank that counts how often it is asked for products with some of the samples."""

    asked = 0

    def apply(self, v, kernels=None, rows=None):
        self.asked += rows is not None
        return super().apply(v, kernels, rows)


@pytest.mark.parametrize(("n", "asked"), [(2001, [1, 1, 1, 2, 3, 3]), (500, [1, 2, 3, 4, 5, 6])])
def test_the_curvature_of_many_samples_is_kept_while_the_gap_falls_fivefold(n, asked):
    """It is taken from the products K_k alpha at the samples whose alpha can move."""
    rng = np.random.default_rng(15)
    Ks = [np.outer(v, v) for v in rng.normal(size=(2, n))]
    y = np.where(rng.normal(size=(1, n)) > 0, 1.0, -1.0)
    bank = Counted(Ks)
    problem = Problem(bank, y, np.ones((1, n)), get_loss("hinge"), Simplex(), WeightedSum())
    planes, point, quad = planes_at(problem)
    before, seen = bank.asked, []
    for gap in (1.0, 0.1, 0.01, 0.005, 0.004, 0.0001):
        planes.put_centre(replace(point), quad)
        planes.curvature(np.arange(2), gap)
        planes.curvature(np.arange(2), gap)  # nothing new at the same point
        seen.append(bank.asked - before)
    assert seen == asked
    planes.put_centre(replace(point), quad)
    planes.curvature(np.arange(1), 1e-9)
    assert bank.asked - before == asked[-1] + 1  # for other kernels it is another one


@pytest.mark.parametrize("name", ["hinge", "logistic"])
def test_under_l1_a_bound_is_one_even_if_the_weights_must_grow_a_lot(name):
    """A master's value holds only for weights up to its limit; the optimum lies far beyond."""
    problem = make(name, L1(1e-3), C=0.1)
    best = solve(problem, SILP(), Limits(tol=1e-6))
    assert best.converged and best.d.sum() > 30
    planes, *_ = planes_at(problem, stabilise=False)
    for _ in range(3):
        proposal = planes.propose(1.0)
        evaluator = Evaluator(problem)
        point = evaluator.evaluate(proposal.d, 1e-9)
        planes.add(proposal, point, 0.0, evaluator.quad(point))
        own = Witness(planes.centre.alpha, planes.quad)
        known, bound = (
            dual_value(problem, one.alpha, one.quad) for one in (own, planes.witness or own)
        )
        assert known <= bound <= best.certificate.primal * (1 + 1e-6)


@pytest.mark.parametrize("regularizer", [Simplex(), LpBall(2.0), ElasticNet()], ids=repr)
def test_only_a_fall_beyond_what_alpha_owes_moves_the_centre(regularizer):
    problem = make("squared", regularizer)
    planes, point, quad = planes_at(problem)
    boast = Proposal(point.d, 1e6, "curved")
    better = replace(point, value=point.value - 1e-3)
    # A cut that is far above what the model promised teaches something all the same.
    assert planes.add(boast, better, 2e-3, quad)
    assert planes.centre is point
    assert planes.add(boast, better, 0.0, quad)
    assert planes.centre is better


@pytest.mark.parametrize("regularizer", [Simplex(), LpBall(2.0), ElasticNet()], ids=repr)
def test_a_step_that_teaches_nothing_is_followed_by_one_without_curvature(regularizer):
    problem = make("squared", regularizer)
    planes, point, quad = planes_at(problem)
    first = planes.propose(1.0)
    assert first.kind in ("curved", "closed-form") and first.promised > 0
    # As low as the model is there, but owing as much: neither lower for sure nor above the model.
    useless = replace(point, d=first.d, value=point.value - first.promised)
    assert not planes.add(first, useless, 2.0 * first.promised, quad)
    second = planes.propose(1.0)
    assert second.kind == "safe" and planes.centre is point


def test_a_step_that_failed_is_followed_by_shorter_ones():
    """Also where its cut, here that of no alpha at all, tells nothing of T near the centre."""
    problem = make("squared")
    planes, point, _ = planes_at(problem)
    first = planes.propose(1.0)
    nearer = planes.half_way(first)
    np.testing.assert_allclose(nearer.d, 0.5 * (point.d + first.d))
    # Half the way brings half as much, to rounding, or more.
    assert nearer.promised >= 0.5 * (1 - 1e-9) * first.promised > 0
    far = replace(point, alpha=np.zeros_like(point.alpha), value=1.1 * point.value)
    assert planes.add(nearer, far, 0.0, np.zeros(M))
    second = planes.propose(1.0)
    assert planes.centre is point and second.kind == "curved"
    assert np.linalg.norm(second.d - point.d) < 0.4 * np.linalg.norm(first.d - point.d)


@pytest.mark.parametrize("regularizer", [Simplex(), ElasticNet(), BlockNorm(2)], ids=repr)
@pytest.mark.parametrize("name", ["hinge", "squared"])
def test_steps_without_curvature_alone_get_there(name, regularizer):
    problem = make(name, regularizer).bound()
    planes, *_ = planes_at(problem)
    optimum = solve(problem, SPG(), Limits(tol=1e-7, max_iter=5000)).certificate.primal
    unit = max(1.0, abs(optimum))
    for _ in range(300):
        planes._blind = True
        proposal = planes.propose(1.0)
        assert proposal.kind == "safe"
        evaluator = Evaluator(problem)
        point = evaluator.evaluate(proposal.d, 1e-11)
        assert planes.add(proposal, point, 0.0, evaluator.quad(point))
        if planes.centre.value <= optimum + 1e-5 * unit:
            break
    assert planes.centre.value == pytest.approx(optimum, abs=1e-5 * unit)


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
        assert both.primal == pytest.approx(alone[0].primal, rel=1e-12)
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
    point = Point(best.d, far, fitted, best.intercept, best.certificate.primal)
    screening = Screening(problem)
    screening.look(certificate, point.d, point.alpha, quad)
    assert np.isin(used, screening.kept).all()
    # The same certificate at the alpha it belongs to does prove something.
    fitted, quad = problem.combination.evaluate(bank, best.d, best.alpha)
    certificate = certify(problem, best.d, best.alpha, best.intercept, fitted, quad, witness)
    point = Point(best.d, best.alpha, fitted, best.intercept, best.certificate.primal)
    screening.look(certificate, point.d, point.alpha, quad)
    assert np.isin(used, screening.kept).all() and len(screening.kept) < problem.m


@pytest.mark.parametrize("name", ["logistic", "squared"])
def test_products_stay_those_of_alpha_when_a_solve_changes_nothing(name):
    """Solving again at the same weights, as a sharpened centre does, takes products too."""
    rng = np.random.default_rng(15)
    X = rng.normal(size=(40, 3))
    y = np.sign(X[:, 0] * X[:, 1])[None]
    kernels = ComputedOperator.build([RBF(width=w) for w in (0.5, 1.0, 3.0)], X)
    bank = FactoredBank(1e-9).build(kernels)
    bank.matrix_limit = 0  # as for many samples: no matrix is formed
    C = np.ones((1, 40))
    problem = Problem(bank, y, C, get_loss(name), Simplex(), WeightedSum())
    evaluator, d = Evaluator(problem), np.full(3, 1 / 3)
    for tol in (1e-2, 1e-2, 1e-2, 1e-8):
        point = evaluator.evaluate(d, tol)
        exact = np.tensordot(d, bank.apply(point.alpha), axes=1)
        np.testing.assert_allclose(point.fitted, exact, atol=1e-9)
        np.testing.assert_allclose(evaluator.quad(point), bank.quad(point.alpha), atol=1e-9)
