"""Every solver reaches the optimum that a convex solver finds, for every loss and regularizer."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
from referee import M, N, RefereeError, make, referee
from thinned import thinned

from kernelweave.bank import DenseBank
from kernelweave.combine import WeightedSum
from kernelweave.losses import get_loss
from kernelweave.operators import FactorOperator
from kernelweave.problem import Problem
from kernelweave.regularizers import (
    L1,
    BlockNorm,
    ElasticNet,
    Entropy,
    LpBall,
    Simplex,
    SquaredLp,
)
from kernelweave.solvers import SILP, SPG, ActiveSet, Limits, Spicy, Uniform, recompute, solve

LOSSES = ["hinge", "squared_hinge", "logistic", "smooth_hinge", "squared", "epsilon_insensitive"]
REGULARIZERS = [
    Simplex(),
    LpBall(1.33),
    LpBall(2.0),
    L1(0.7),
    SquaredLp(2.0, 1.5),
    SquaredLp(1.5),
    ElasticNet(1.0, 0.6),
    BlockNorm(2, 2.0, 0.7),
    BlockNorm(3, 1.5, 0.7),
    Entropy(3.0),
]


@pytest.mark.parametrize("name", ["hinge", "squared_hinge", "logistic", "squared"])
def test_the_referee_asks_another_solver_if_one_fails(name):
    """And believes none that cannot prove its answer."""
    loss = get_loss(name)
    Ks, y, C = make(loss)
    problem = Ks, y, C, loss, LpBall(2.0), 1
    useless = cp.SCS, {"max_iters": 3}
    with pytest.raises(RefereeError, match="no solver of cvxpy found the optimum"):
        referee(*problem, solvers=[useless])
    value, weights, decisions = referee(*problem)
    for second in ((cp.CLARABEL, {}), (cp.SCS, {"eps_abs": 1e-10, "eps_rel": 1e-10})):
        again = referee(*problem, solvers=[useless, second])
        assert again[0] == pytest.approx(value, rel=4e-7)
        np.testing.assert_allclose(again[1], weights, atol=1e-3)
        np.testing.assert_allclose(again[2], decisions, atol=1e-2 * np.abs(decisions).max())


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("name", ["hinge", "squared_hinge"])
def test_the_referee_answers_in_any_unit(name, unit):
    loss = get_loss(name)
    Ks, y, C = make(loss)
    value, weights, _ = referee(Ks, y, C, loss, Simplex(), 1)
    found = referee([unit * K for K in Ks], y, C / unit, loss, Simplex(), 1)
    assert found[0] == pytest.approx(value / unit, rel=4e-7)
    np.testing.assert_allclose(found[1], weights, atol=1e-3)


def solvers_for(regularizer):
    second_order = [ActiveSet()] if isinstance(regularizer, Simplex | L1) else []
    return [SPG(), SILP(), *second_order, *([Spicy()] if regularizer.proximal else [])]


@pytest.mark.parametrize(("name", "regularizer"), thinned(LOSSES, REGULARIZERS), ids=str)
def test_same_optimum_as_a_convex_solver(name, regularizer):
    loss = get_loss(name)
    Ks, y, C = make(loss)
    value, weights, decisions = referee(Ks, y, C, loss, regularizer, 1)
    problem = Problem(DenseBank().from_matrices(Ks), y, C, loss, regularizer, WeightedSum())
    for solver in solvers_for(regularizer):
        result = solve(problem, solver, Limits(tol=1e-7, max_iter=3000))
        assert result.converged, solver
        certificate = result.certificate
        assert certificate.dual <= value + 1e-6 * abs(value)
        assert certificate.primal >= value - 1e-6 * abs(value)
        assert certificate.primal == pytest.approx(value, rel=1e-6)
        np.testing.assert_allclose(result.d, weights, atol=3e-3 * max(1, weights.max()))
        K = np.tensordot(result.d, Ks, axes=1)
        mine = result.alpha @ K + result.intercept[:, None]
        # Where a smooth loss is flat far from the margin, decision values are less determined.
        np.testing.assert_allclose(mine, decisions, atol=5e-3 * np.abs(decisions).max())


@pytest.mark.parametrize("name", ["hinge", "logistic"])
@pytest.mark.parametrize("regularizer", [Simplex(), LpBall(2.0)], ids=repr)
def test_shared_weights_over_several_tasks(name, regularizer):
    loss = get_loss(name)
    Ks, y, C = make(loss, n_tasks=3)
    value, weights, _ = referee(Ks, y, C, loss, regularizer, 3)
    problem = Problem(DenseBank().from_matrices(Ks), y, C, loss, regularizer, WeightedSum())
    for solver in solvers_for(regularizer):
        result = solve(problem, solver, Limits(tol=1e-7))
        assert result.certificate.primal == pytest.approx(value, rel=1e-6)
        np.testing.assert_allclose(result.d, weights, atol=2e-3)


def test_equal_weights_are_a_problem_of_their_own():
    loss = get_loss("hinge")
    Ks, y, C = make(loss)
    problem = Problem(DenseBank().from_matrices(Ks), y, C, loss, Simplex(), WeightedSum())
    result = solve(problem, Uniform(), Limits(tol=1e-6))
    np.testing.assert_array_equal(result.d, np.full(M, 1 / M))
    mean = [np.mean(Ks, axis=0)]
    single = Problem(DenseBank().from_matrices(mean), y, C, loss, Simplex(), WeightedSum())
    alone = solve(single, SPG(), Limits(tol=1e-6))
    assert result.certificate.primal == pytest.approx(alone.certificate.primal, rel=1e-5)
    best = solve(problem, SPG(), Limits(tol=1e-6))
    assert best.certificate.primal < result.certificate.primal


@pytest.mark.parametrize("name", LOSSES)
def test_the_certificate_brackets_the_optimum_at_any_point(name):
    """A certificate is true whatever it is asked about, not only at the end of a fit."""
    loss = get_loss(name)
    Ks, y, C = make(loss)
    rng = np.random.default_rng(3)
    for regularizer in REGULARIZERS:
        value, _, _ = referee(Ks, y, C, loss, regularizer, 1)
        problem = Problem(DenseBank().from_matrices(Ks), y, C, loss, regularizer, WeightedSum())
        for _ in range(3):
            d = regularizer.project(rng.random(M))
            certificate, _ = recompute(problem, d, rng.normal(size=(1, N)), np.zeros(1))
            assert certificate.dual <= value + 1e-6 * abs(value)
            assert certificate.primal >= value - 1e-6 * abs(value)


def test_a_coarse_bank_still_certifies_the_exact_problem():
    """With factors that leave out 1 % of the trace, the bounds are those of the exact kernels."""
    from kernelweave.kernels import RBF
    from kernelweave.operators import ComputedOperator

    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 3))
    kernels = ComputedOperator.build([RBF(width=w) for w in (0.7, 1.5, 4.0)], X)
    Ks = list(kernels.block(np.arange(N)))
    loss = get_loss("hinge")
    y = np.where(X[:, 0] * X[:, 1] > 0, 1.0, -1.0)[None]
    C = np.full((1, N), 2.0)
    value, _, _ = referee(Ks, y, C, loss, Simplex(), 1)
    coarse = FactorOperator.of(kernels, 1e-2)
    problem = Problem(coarse, y, C, loss, Simplex(), WeightedSum())
    solved = solve(problem, SPG(), Limits(tol=1e-4))
    assert solved.converged
    assert solved.certificate.dual <= value <= solved.certificate.primal * (1 + 1e-9)
    rough, _ = recompute(problem, solved.d, solved.alpha, solved.intercept)
    assert rough.approximation > 1e-3
    assert rough.dual <= value <= rough.primal * (1 + 1e-9)
