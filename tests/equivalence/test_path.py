"""A path over the loss weight: the same optima as single fits, and where it starts."""

from __future__ import annotations

import warnings
from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest
from referee import M, N, make, matrices
from sklearn.exceptions import ConvergenceWarning
from thinned import thinned

from kernelweave.bank import DenseBank, FactoredBank
from kernelweave.combine import WeightedSum, get_combination
from kernelweave.errors import InvalidInputError
from kernelweave.losses import get_loss
from kernelweave.operators import DistanceOperator, FactorOperator, bind_kernels
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
from kernelweave.solvers import (
    SOLVERS,
    SPG,
    ActiveSet,
    Limits,
    entry_factor,
    recompute,
    solve,
    solve_path,
)
from kernelweave.solvers.checkpoint import neighbour_start
from kernelweave.solvers.path import first_factor, intercept_only, walk_path

SMOOTH = ["logistic", "squared_hinge", "smooth_hinge", "squared"]
ENTERING = [L1(0.7), ElasticNet(0.7, l1_ratio=0.6), BlockNorm(2, weight=0.7, p=2.0)]
ALWAYS = [Simplex(), LpBall(1.5), Entropy(1.0), SquaredLp(1.5)]
FINE = Limits(tol=1e-6, max_iter=5000)


def problem_of(name, regularizer, n_tasks=1):
    loss = get_loss(name)
    Ks, y, C = make(loss, n_tasks)
    return Problem(DenseBank().from_matrices(Ks), y, C, loss, regularizer, WeightedSum())


def takes(solver, problem):
    try:
        solve(problem, solver, Limits(tol=1.0, max_iter=1))
    except (InvalidInputError, NotImplementedError):
        return False
    return True


@pytest.mark.parametrize("name", sorted(SOLVERS))
@pytest.mark.parametrize(
    ("loss", "regularizer"), [("hinge", Simplex()), ("logistic", L1(0.7))], ids=str
)
def test_a_path_has_the_optima_of_single_fits(name, loss, regularizer):
    problem, solver = problem_of(loss, regularizer), SOLVERS[name]()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        if not takes(solver, problem):
            pytest.skip(f"{name} does not take this problem")
    tol = 1e-3 if name == "pgd" else 1e-5
    limits = Limits(tol=tol, max_iter=20_000)
    factors = first_factor(problem) * np.array([0.5, 20.0, 6.0])
    results = solve_path(problem, factors, solver, limits)
    assert len(results) == len(factors)
    for factor, result in zip(factors, results, strict=True):
        alone = solve(replace(problem, C=factor * problem.C), solver, limits)
        assert result.converged
        primal = alone.certificate.primal
        assert result.certificate.primal == pytest.approx(primal, rel=2 * tol, abs=2 * tol)
        np.testing.assert_allclose(result.d, alone.d, atol=30 * np.sqrt(tol) * alone.d.max() + 1e-9)


def assert_enters(problem, entry, later=None):
    """No kernel just below `entry`, one just above `later` (or `entry`)."""
    point = intercept_only(problem)
    here = replace(problem, C=entry * problem.C).bound()
    certificate, _ = recompute(here, point.d, entry * point.alpha, point.intercept)
    assert certificate.gap <= 1e-9
    factors = np.array([0.999 * entry, 1.01 * (later or entry)])
    below, above = solve_path(problem, factors, SPG(), FINE)
    assert below.converged and above.converged
    # A tolerance leaves room for a little weight.
    assert above.d.max() > 1e-3
    assert below.d.max() <= 0.1 * above.d.max()
    # Above it no weights is not optimal: the objective is lower with some.
    here = replace(problem, C=factors[1] * problem.C)
    z = np.repeat(point.intercept[:, None], N, axis=1)
    assert above.certificate.primal < here.loss.value(here.y, z, here.C).sum() - 1e-9


@pytest.mark.parametrize(
    ("name", "regularizer", "n_tasks"),
    thinned([*SMOOTH, "epsilon_insensitive"], ENTERING, [1, 2]),
    ids=str,
)
def test_the_first_kernel_enters_at_the_entry_factor(name, regularizer, n_tasks):
    problem = problem_of(name, regularizer, n_tasks)
    entry = entry_factor(problem)
    assert 0 < entry < np.inf
    assert_enters(problem, entry)


def test_of_equal_classes_the_hinge_is_exact_too():
    problem = problem_of("hinge", L1(0.7))
    y = np.where(np.arange(N) % 2, 1.0, -1.0)[None]
    problem = replace(problem, y=y, C=np.ones((1, N)))
    np.testing.assert_array_equal(intercept_only(problem).alpha, y)
    assert_enters(problem, entry_factor(problem))


@pytest.mark.parametrize("n_positive", [3, 9, 15])
def test_of_unequal_classes_no_kernel_enters_before(n_positive):
    Ks = matrices(np.random.default_rng(1))
    y = np.where(np.arange(N) < n_positive, 1.0, -1.0)[None]
    C = np.random.default_rng(2).uniform(0.5, 2.0, size=(1, N))
    bank = DenseBank().from_matrices(Ks)
    problem = Problem(bank, y, C, get_loss("hinge"), L1(0.7), WeightedSum())
    point = intercept_only(problem)
    a = (y * point.alpha)[0]
    assert point.alpha.sum() == pytest.approx(0.0, abs=1e-12)
    assert np.all((a >= 0) & (a <= C[0]))
    # It is a best alpha without kernels: the dual value is the loss of the intercept.
    loss = problem.loss.value(y, np.full((1, N), point.intercept[0]), C).sum()
    assert -problem.dual_loss(point.alpha) == pytest.approx(loss, rel=1e-12)
    # Every sample of the larger class counts by its weight.
    larger = y[0] == np.sign(point.intercept[0])
    assert np.ptp(a[larger] / C[0][larger]) <= 1e-12
    entry = entry_factor(problem)
    # The exact one is that of the best alpha_0 of all; found here by a general convex solver.
    alpha = cp.Variable(N)
    forms = cp.hstack([cp.quad_form(alpha, cp.psd_wrap(K)) for K in Ks])
    ends = problem.loss.domain(y[0], C[0])
    same = [cp.sum(alpha) == 0, alpha >= ends[0], alpha <= ends[1], y[0] @ alpha >= loss - 1e-9]
    smallest = cp.Problem(cp.Minimize(cp.max(forms)), same).solve(solver=cp.CLARABEL)
    exact = np.sqrt(2 * 0.7 / smallest)
    assert entry <= exact * (1 + 1e-6)
    assert_enters(problem, entry, later=exact)


def test_where_a_kernel_always_has_weight_the_first_factor_moves_decisions_by_half_a_unit():
    for regularizer in ALWAYS:
        problem = problem_of("logistic", regularizer)
        assert entry_factor(problem) == 0.0
        factor, point = first_factor(problem), intercept_only(problem)
        q = problem.bank.quad(point.alpha)
        best = np.argmax(q)
        moved = factor * problem.bank.apply(point.alpha, np.array([best]))[0, 0]
        towards = np.sum(point.alpha * moved) / np.abs(point.alpha).sum()
        assert towards <= 0.5 + 1e-9
        if isinstance(regularizer, Simplex):
            assert towards == pytest.approx(0.5)
    # Targets in other units: the same factor, as function and targets grow together.
    problem = problem_of("squared", Simplex())
    larger = replace(problem, y=1000.0 * problem.y + 5.0)
    assert first_factor(larger) == pytest.approx(first_factor(problem), rel=1e-9)


def test_targets_that_the_intercept_fits_let_no_kernel_enter():
    problem = problem_of("squared", L1(0.7))
    constant = replace(problem, y=np.full((1, N), 3.0))
    assert entry_factor(constant) == np.inf
    assert first_factor(constant) == 1.0


def test_products_start_where_no_distance_has_weight():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 4))
    y = np.where(X[:, 0] * X[:, 1] > 0, 1.0, -1.0)[None]
    bank = DistanceOperator.build("features", X).keep(100, "float64")
    product = get_combination("product")
    C = np.ones((1, 40))
    problem = Problem(bank, y, C, get_loss("logistic"), L1(1.0), product)
    entry = entry_factor(problem)
    assert 0 < entry < np.inf
    below, above = solve_path(problem, entry * np.array([0.99, 1.5]), SPG(), Limits(tol=1e-6))
    assert not below.d.any()
    assert above.d.any()


def test_a_finer_bank_is_built_once():
    X = np.random.default_rng(0).normal(size=(60, 3))
    y = np.where(X[:, 0] > 0.3, 1.0, -1.0)[None]
    kernels = bind_kernels("simplemkl", X, normalize="trace")
    bank = FactoredBank(rtol=1e-3).build(kernels)
    built = []

    class Counting(FactorOperator):
        def refined(self):
            built.append(self.rtol)
            finer = super().refined()
            if finer is not None:
                finer.__class__ = Counting
            return finer

    bank.__class__ = Counting
    problem = Problem(bank, y, np.ones((1, 60)), get_loss("logistic"), Simplex(), WeightedSum())
    results = solve_path(problem, np.geomspace(0.3, 30, 8), ActiveSet(), Limits(tol=1e-5))
    assert all(result.converged for result in results)
    assert built and len(built) == len(set(built))


def test_points_that_do_not_converge_are_told_once():
    problem = problem_of("hinge", Simplex())
    with pytest.warns(ConvergenceWarning) as caught:
        results = solve_path(problem, [0.5, 1.0, 2.0], SPG(), Limits(tol=1e-9, max_iter=1))
    assert len(caught) == 1
    message = str(caught[0].message)
    assert "3 of 3 points" in message and "0.5, 1, 2" in message and "max_iter=1" in message
    assert len(results) == 3


def test_a_callback_can_interrupt_a_path():
    problem = problem_of("hinge", Simplex())
    seen = []

    def press(record):
        seen.append(record)
        if len(seen) == 3:
            raise KeyboardInterrupt

    limits = Limits(tol=1e-9, callbacks=(press,))
    with pytest.warns(UserWarning, match="interrupted"):
        results = list(walk_path(problem, np.array([0.5, 1.0, 2.0]), SPG(), limits))
    assert len(results) < 3
    assert results[-1].reason == "interrupted"


@pytest.mark.parametrize("factors", [[], [0.0], [1.0, -1.0], [np.nan], ["1"]])
def test_factors_are_checked(factors):
    with pytest.raises(InvalidInputError, match="factor"):
        solve_path(problem_of("hinge", Simplex()), factors, SPG(), Limits())


def test_a_neighbour_keeps_bounds_and_forgets_samples_without_weight():
    problem = problem_of("hinge", Simplex())
    result = solve(problem, SPG(), Limits(tol=1e-6))
    C = 3.0 * problem.C
    start = neighbour_start(result, C, problem.C)
    at_bound = np.isclose(np.abs(result.alpha), problem.C)
    assert at_bound.any()
    np.testing.assert_allclose(np.abs(start.alpha[at_bound]), C[at_bound])
    assert len(start.d) == M
    assert neighbour_start(replace(result, d=0.0 * result.d), C, problem.C) is None
    none = problem.C.copy()
    none[0, :5] = 0.0
    assert not neighbour_start(result, C, none).alpha[0, :5].any()
