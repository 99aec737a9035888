"""Two-stage learning: weights against NumPy and a general convex solver, and the second stage."""

from __future__ import annotations

from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest
from referee import make
from same_numbers import AFTER_A_FIT, assert_same_numbers
from sklearn.datasets import load_iris, make_classification
from sklearn.svm import SVC

from kernelweave import MKLClassifier, MKLClassifierCV, MKLOneClass, MKLRegressor
from kernelweave.bank import DenseBank, FactoredBank
from kernelweave.combine import WeightedSum
from kernelweave.errors import InvalidInputError, MemoryBudgetError
from kernelweave.kernels import RBF, Linear, RBFBatch, simplemkl_family
from kernelweave.losses import get_loss
from kernelweave.operators import ComputedOperator, bind_kernels
from kernelweave.problem import Problem
from kernelweave.regularizers import Fixed, Simplex
from kernelweave.solvers import (
    MWU,
    SPG,
    ActiveSet,
    Align,
    Limits,
    Solver,
    baselines,
    solve,
    solve_path,
)
from kernelweave.solvers.baselines import (
    METHODS,
    alignment_weights,
    independent_weights,
    joint_weights,
)


def problem_of(name="hinge", n_tasks=1):
    loss = get_loss(name)
    Ks, y, C = make(loss, n_tasks)
    return Problem(DenseBank().from_matrices(Ks), y, C, loss, Simplex(), WeightedSum())


def centred_matrices(bank):
    H = np.eye(bank.n) - 1.0 / bank.n
    return [H @ K @ H for K in bank.block(np.arange(bank.n))]


def alignment(Kc, Y):
    """Centred alignment, as Cortes et al. 2012 define it."""
    H = np.eye(len(Y)) - 1.0 / len(Y)
    Yc = H @ Y @ H
    return np.sum(Kc * Yc) / np.linalg.norm(Kc) / np.linalg.norm(Yc)


@pytest.mark.parametrize("n_tasks", [1, 3])
@pytest.mark.parametrize("name", ["hinge", "squared"])
class TestWeights:
    def test_independent_ones_are_the_alignments(self, name, n_tasks):
        problem = problem_of(name, n_tasks)
        rho = [alignment(Kc, problem.y.T @ problem.y) for Kc in centred_matrices(problem.bank)]
        d = alignment_weights(problem, "independent")
        np.testing.assert_allclose(d, np.array(rho) / np.sum(rho), rtol=1e-9)

    def test_joint_ones_solve_the_quadratic_program(self, name, n_tasks):
        problem = problem_of(name, n_tasks)
        Ks = [Kc.ravel() for Kc in centred_matrices(problem.bank)]
        v = cp.Variable(problem.m, nonneg=True)
        Y = (problem.y.T @ problem.y).ravel()
        cp.Problem(cp.Minimize(cp.sum_squares(np.array(Ks).T @ v - Y))).solve(solver=cp.CLARABEL)
        d = alignment_weights(problem, "joint")
        np.testing.assert_allclose(d, v.value / v.value.sum(), atol=3e-5)

    def test_no_other_combination_is_better_aligned(self, name, n_tasks):
        problem = problem_of(name, n_tasks)
        Ks = np.array(centred_matrices(problem.bank))
        Y = problem.y.T @ problem.y
        best = alignment(np.tensordot(alignment_weights(problem, "joint"), Ks, 1), Y)
        rng = np.random.default_rng(0)
        others = [np.eye(problem.m)[k] for k in range(problem.m)]
        others += list(rng.dirichlet(np.full(problem.m, 0.5), 200))
        others.append(alignment_weights(problem, "independent"))
        for d in others:
            assert alignment(np.tensordot(d, Ks, 1), Y) <= best + 1e-12


@pytest.mark.parametrize("method", METHODS)
class TestByHand:
    y = np.array([1.0, -1.0, 1.0, 1.0, -1.0, 1.0])

    def weights(self, Ks, method, y=None):
        y = self.y if y is None else y
        bank = DenseBank().from_matrices(Ks)
        problem = Problem(bank, y[None], np.ones((1, 6)), get_loss("hinge"), Simplex(), None)
        return alignment_weights(problem, method)

    def test_the_perfect_kernel_is_alone_or_ahead(self, method):
        rng = np.random.default_rng(0)
        A, B = rng.normal(size=(2, 6, 3))
        d = self.weights([A @ A.T, np.outer(self.y, self.y), B @ B.T], method)
        assert d.argmax() == 1
        if method == "joint":
            np.testing.assert_allclose(d, [0.0, 1.0, 0.0], atol=1e-12)

    def test_parts_of_the_target_get_what_they_are(self, method):
        """Two orthogonal directions u and w: the target is u + 2 w."""
        u = np.array([1.0, -1.0, 0.0, 0.0, 0.0, 0.0])
        w = np.array([0.0, 0.0, 1.0, -1.0, 0.0, 0.0])
        d = self.weights([np.outer(u, u), np.outer(w, w)], method, u + 2.0 * w)
        np.testing.assert_allclose(d, [0.2, 0.8])

    def test_a_constant_added_to_a_kernel_changes_nothing(self, method):
        A, B = np.random.default_rng(1).normal(size=(2, 6, 3))
        d = self.weights([A @ A.T, B @ B.T], method)
        np.testing.assert_allclose(self.weights([A @ A.T + 100.0, B @ B.T], method), d, rtol=1e-9)

    def test_a_constant_kernel_gets_nothing(self, method):
        A = np.random.default_rng(1).normal(size=(6, 3))
        np.testing.assert_allclose(self.weights([np.ones((6, 6)), A @ A.T], method), [0.0, 1.0])

    def test_nothing_aligned_gives_equal_weights(self, method):
        np.testing.assert_array_equal(self.weights([np.ones((6, 6))] * 4, method), np.full(4, 0.25))
        constant = np.ones(6)
        d = self.weights([np.eye(6), np.eye(6)], method, constant)
        np.testing.assert_array_equal(d, [0.5, 0.5])

    def test_equal_kernels_do_no_harm(self, method):
        A, B = np.random.default_rng(2).normal(size=(2, 6, 3))
        d = self.weights([A @ A.T, B @ B.T], method)
        twice = self.weights([A @ A.T, B @ B.T, A @ A.T], method)
        expected = d[0] if method == "joint" else 2 * d[0] / (1 + d[0])
        assert twice[0] + twice[2] == pytest.approx(expected, rel=1e-6)

    def test_a_scale_counts_as_it_should(self, method):
        """The independent weights do not see it, the joint combination is the same kernel."""
        A, B = np.random.default_rng(1).normal(size=(2, 6, 3))
        d = self.weights([A @ A.T, B @ B.T], method)
        scaled = self.weights([1e6 * A @ A.T, B @ B.T], method)
        expected = d if method == "independent" else d / [1e6, 1.0]
        np.testing.assert_allclose(scaled, expected / expected.sum(), rtol=1e-6)


def test_negative_alignments_count_as_zero():
    np.testing.assert_array_equal(independent_weights(np.array([-1e-9, 2.0]), np.ones(2)), [0, 1])
    np.testing.assert_array_equal(joint_weights(np.array([-1e-9, 2.0]), np.eye(2)), [0, 1])


@pytest.mark.parametrize("method", METHODS)
def test_many_kernels_meet_the_optimality_conditions(method):
    """A hundred times more kernels than the targets need, many of them alike."""
    X, y = make_classification(60, 8, random_state=0)
    kernels = ComputedOperator.build(simplemkl_family(), X)
    M = baselines.centred_products(DenseBank().build(kernels))
    a = DenseBank().build(kernels).quad(np.where(y > 0, 1.0, -1.0) - np.mean(2.0 * y - 1.0))
    if method == "independent":
        np.testing.assert_allclose(
            independent_weights(a, M.diagonal()) * np.sum(a / np.sqrt(M.diagonal())),
            a / np.sqrt(M.diagonal()),
            rtol=1e-9,
        )
        return
    d = joint_weights(a, M)
    v = d * (a @ d) / (d @ M @ d)  # The best multiple of the direction.
    size = np.sqrt(M.diagonal())
    assert 1 < np.count_nonzero(d) < len(d) / 4
    slope = (M @ v - a) / size / np.max(a / size)
    assert slope.min() > -1e-6
    assert np.abs(slope[d > 0]).max() < 1e-6


class TestSecondStage:
    @pytest.mark.parametrize("method", METHODS)
    def test_the_svm_is_that_of_the_combined_kernel(self, method):
        X, y = make_classification(120, 6, random_state=0)
        model = MKLClassifier(C=2.0, solver=Align(method), tol=1e-7).fit(X, y)
        assert model.converged_
        assert model.weights_.sum() == pytest.approx(1.0)
        K = model.combined_kernel(X)
        svm = SVC(C=2.0, kernel="precomputed", tol=1e-8).fit(K, y)
        np.testing.assert_allclose(model.decision_function(X), svm.decision_function(K), atol=1e-3)

    @pytest.mark.parametrize("name", ["hinge", "squared_hinge", "logistic", "squared"])
    @pytest.mark.parametrize("then", [None, SPG()], ids=repr)
    def test_any_solver_for_fixed_weights_does(self, name, then):
        problem = problem_of(name)
        result = solve(problem, Align(then=then), Limits(tol=1e-6))
        fixed = problem.with_regularizer(Fixed(alignment_weights(problem, "joint")))
        expected = solve(fixed, SPG(), Limits(tol=1e-6))
        assert result.converged
        assert_same_numbers(result.d, expected.d, AFTER_A_FIT)
        primal = expected.certificate.primal
        assert result.certificate.primal == pytest.approx(primal, rel=3e-6)

    @pytest.mark.parametrize("name", ["hinge", "squared_hinge"])
    def test_multiplicative_weights_as_the_second_stage(self, name):
        problem = problem_of(name)
        result = solve(problem, Align(then=MWU()), Limits(tol=1e-4))
        expected = solve(problem, Align(), Limits(tol=1e-6))
        assert result.converged
        assert_same_numbers(result.d, expected.d, AFTER_A_FIT)
        primal = expected.certificate.primal
        assert result.certificate.primal == pytest.approx(primal, rel=2e-4)

    def test_what_the_second_solver_cannot_take_it_says(self):
        with pytest.raises(InvalidInputError, match="active-set"):
            solve(problem_of(), Align(then=ActiveSet()), Limits())

    def test_numbers_to_remember_are_those_of_the_second_solver(self):
        class Remembering(SPG):
            def remember(self, state):
                return {"seen": state.point.d}

        problem = problem_of()
        solver = Align(then=Remembering())
        prepared = solver.prepare(problem)
        state = solver.init(prepared, None)
        np.testing.assert_array_equal(solver.remember(state)["seen"], state.point.d)

    def test_weights_of_samples_count_only_here(self):
        X, y = make_classification(120, 6, flip_y=0.2, random_state=0)
        weight = np.where(np.arange(120) < 60, 0.0, 1.0)
        plain = MKLClassifier(solver="align").fit(X, y)
        weighted = MKLClassifier(solver="align").fit(X, y, sample_weight=weight)
        assert_same_numbers(weighted.weights_, plain.weights_, AFTER_A_FIT)
        assert not np.any(weighted.support_ < 60)
        assert np.any(plain.support_ < 60)

    def test_fixed_weights_are_kept(self):
        problem = problem_of().with_regularizer(Fixed([0.0, 2.0, 0.0, 1.0, 0.5]))
        result = solve(problem, Align(), Limits())
        np.testing.assert_array_equal(result.d, [0.0, 2.0, 0.0, 1.0, 0.5])


class TestOnce:
    """The first stage is done once, whatever happens afterwards."""

    @pytest.fixture
    def counted(self, monkeypatch):
        calls = []
        inside = baselines.alignment_weights

        def counting(problem, method):
            calls.append(problem.bank)
            return inside(problem, method)

        monkeypatch.setattr(baselines, "alignment_weights", counting)
        return calls

    def test_on_a_path(self, counted):
        problem = problem_of()
        results = solve_path(problem, [0.5, 1.0, 3.0], Align(), Limits())
        assert len(counted) == 1
        assert len({result.d.tobytes() for result in results}) == 1

    def test_if_a_finer_bank_is_needed(self, counted):
        X, y = make_classification(100, 4, random_state=0)
        kernels = ComputedOperator.build([RBF(width=w) for w in (1.0, 3.0, 9.0)], X)
        coarse = FactoredBank(1e-2).build(kernels)
        signs = np.where(y > 0, 1.0, -1.0)[None]
        problem = Problem(
            coarse, signs, np.full(signs.shape, 5.0), get_loss("hinge"), Simplex(), WeightedSum()
        )
        result = solve(problem, Align(), Limits(tol=1e-5))
        assert result.converged and np.isfinite(result.certificate.primal)
        assert counted == [coarse]
        exact = problem.with_bank(DenseBank().build(kernels))
        assert not np.array_equal(alignment_weights(exact, "joint"), result.d)

    def test_of_many_samples_all_are_looked_at(self, counted):
        X, y = make_classification(3100, 3, n_informative=3, n_redundant=0, random_state=0)
        model = MKLClassifier([RBF(width=2.0).on(0), Linear()], solver="align").fit(X, y)
        assert model.converged_
        assert [bank.n for bank in counted] == [3100]


class TestEstimators:
    def test_one_set_of_weights_for_each_class(self):
        X, y = load_iris(return_X_y=True)
        kernels = [RBF(width=1.0).on(j) for j in range(4)]
        shared = MKLClassifier(kernels, solver="align").fit(X, y)
        apart = MKLClassifier(kernels, solver="align", multi_class="ovr").fit(X, y)
        assert shared.weights_.shape == (4,) and apart.weights_.shape == (3, 4)
        np.testing.assert_allclose(apart.weights_.sum(axis=1), 1.0)
        one = MKLClassifier(kernels, solver="align").fit(X, y == 2)
        np.testing.assert_allclose(one.weights_, apart.weights_[2], rtol=1e-9)
        assert shared.score(X, y) > 0.9

    @pytest.mark.parametrize("method", METHODS)
    def test_regression_finds_the_column(self, method):
        X = np.random.default_rng(0).normal(size=(100, 3))
        kernels = [RBF(width=1.0).on(j) for j in range(3)]
        solver = Align(method)
        model = MKLRegressor(kernels, solver=solver, C=10.0).fit(X, np.sin(2 * X[:, 1]) + 50.0)
        assert model.weights_.argmax() == 1
        assert model.score(X, np.sin(2 * X[:, 1]) + 50.0) > 0.5
        moved = MKLRegressor(kernels, solver=solver, C=10.0).fit(X, np.sin(2 * X[:, 1]))
        np.testing.assert_allclose(model.weights_, moved.weights_, rtol=1e-6)

    def test_kernels_of_one_spread_do_well(self):
        X, y = make_classification(300, 6, random_state=0)
        model = MKLClassifier("simplemkl", solver="align", normalize=("center", "trace"))
        score = model.fit(X[:200], y[:200]).score(X[200:], y[200:])
        uniform = MKLClassifier("simplemkl", solver="uniform").fit(X[:200], y[:200])
        assert score > uniform.score(X[200:], y[200:]) - 0.05

    def test_a_path_over_C(self):
        X, y = make_classification(80, 5, random_state=0)
        model = MKLClassifierCV(solver="align", Cs=3, cv=3).fit(X, y)
        assert model.converged_

    def test_very_many_kernels(self):
        X, y = make_classification(60, 6, random_state=0)
        batch = RBFBatch.random(20_000, n_features=6, sizes=(1, 3), random_state=0)
        model = MKLClassifier(batch, solver=Align("independent")).fit(X, y)
        assert model.converged_ and len(model.weights_) == 20_000
        few = np.array([0, 777, 19_999])
        problem = Problem(
            DenseBank().from_matrices(list(bind_kernels(batch, X).block(np.arange(60), None, few))),
            np.where(y > 0, 1.0, -1.0)[None],
            np.ones((1, 60)),
            get_loss("hinge"),
            Simplex(),
            WeightedSum(),
        )
        d = alignment_weights(problem, "independent")
        found = model.weights_[few]
        np.testing.assert_allclose(found / found.sum(), d, rtol=1e-4)

    def test_too_many_kernels_for_joint_are_refused(self, monkeypatch):
        X, y = make_classification(60, 6, random_state=0)
        monkeypatch.setattr("kernelweave.memory.available_bytes", lambda: 1e5)
        batch = RBFBatch.random(2_000, n_features=6, sizes=(1, 3), random_state=0)
        with pytest.raises(MemoryBudgetError, match="method='independent'"):
            MKLClassifier(batch, solver="align").fit(X, y)


def test_what_it_does_not_take():
    X, y = make_classification(40, 4, random_state=0)
    with pytest.raises(InvalidInputError, match="sums of kernels"):
        MKLClassifier(combination="product", solver="align").fit(X, y)
    with pytest.raises(InvalidInputError, match="one-class"):
        MKLOneClass(solver="align").fit(X)


def test_it_is_a_solver_with_settings():
    assert isinstance(Align(), Solver)
    assert replace(Align(), method="independent") == Align("independent")
    assert repr(Align()) == "Align(method='joint', then=None)"
