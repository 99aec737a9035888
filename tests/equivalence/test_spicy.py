"""SpicyMKL: the same optimum as every other solver, to eight digits, with very few outer steps."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
from referee import make as small
from referee import referee
from scipy import sparse
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.exceptions import ConvergenceWarning
from thinned import thinned

from kernelweave import MKLClassifier, MKLOneClass, MKLRegressor
from kernelweave.bank import DenseBank, FactoredBank, LazyBank, SparseBank
from kernelweave.combine import WeightedSum
from kernelweave.errors import InterruptedFitWarning, InvalidInputError
from kernelweave.kernels import RBF, Linear
from kernelweave.losses import get_loss
from kernelweave.operators import ComputedOperator, StackedOperator
from kernelweave.problem import Problem
from kernelweave.regularizers import (
    L1,
    BlockNorm,
    ElasticNet,
    LpBall,
    Simplex,
    SquaredLp,
    block_l1_to_l1_weight,
    block_l1_to_simplex_C,
    simplex_C_to_block_l1,
)
from kernelweave.solvers import SILP, SPG, ActiveSet, Limits, Spicy, solve
from kernelweave.solvers.inner import Point
from kernelweave.solvers.loop import Result
from kernelweave.solvers.path import entry_factor

LOSSES = ["hinge", "squared_hinge", "logistic", "smooth_hinge", "squared", "epsilon_insensitive"]
SPARSE = [Simplex(), L1(0.7), ElasticNet(1.0, 0.5)]
CURVED = [LpBall(1.5), BlockNorm(2, 2.0, 0.7), SquaredLp(1.5)]
every_loss = pytest.mark.parametrize("name", LOSSES)


def matrices(n=24, m=6, seed=0):
    rng = np.random.default_rng(seed)
    return [A @ A.T / A.shape[1] for A in (rng.normal(size=(n, 2 + k % 9)) for k in range(m))]


def make(name, regularizer, n=24, m=6, C=(0.5, 2.0), n_tasks=1, seed=0, Ks=None):
    rng = np.random.default_rng(seed)
    Ks = matrices(n, m, seed) if Ks is None else Ks
    n = len(Ks[0])
    loss = get_loss(name)
    y = rng.normal(size=(n_tasks, n)) + Ks[0] @ rng.normal(size=n)
    if loss.task == "classification":
        y = np.where(y > np.median(y), 1.0, -1.0)
    weights = rng.uniform(*C, size=y.shape)
    bank = DenseBank().from_matrices(Ks)
    return Problem(bank, y, weights, loss, regularizer, WeightedSum())


def fit(problem, solver=None, start=None, **limits) -> Result:
    """Fit, and check that the result is sound, converged, and silent about it."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = solve(problem, solver or Spicy(), Limits(**{"tol": 1e-6, **limits}), start)
    certificate = result.certificate
    assert result.converged and certificate.gap <= limits.get("tol", 1e-6)
    assert certificate.dual <= certificate.primal + 1e-9 * max(1.0, abs(certificate.primal))
    assert np.all(np.isfinite(result.d)) and result.d.min() >= 0
    return result


def decisions(problem, result):
    return result.alpha @ problem.bank.weighted(result.d) + result.intercept[:, None]


# The same optimum


@pytest.mark.parametrize(
    "regularizer", [LpBall(1.05), LpBall(8.0), BlockNorm(3, 1.2, 0.7)], ids=repr
)
@pytest.mark.parametrize("name", ["hinge", "logistic", "squared"])
def test_exponents_near_one_and_large_ones(name, regularizer):
    """What a convex solver finds; for all other regularizers see test_referee.py."""
    loss = get_loss(name)
    Ks, y, C = small(loss)
    value, weights, z = referee(Ks, y, C, loss, regularizer, 1)
    problem = Problem(DenseBank().from_matrices(Ks), y, C, loss, regularizer, WeightedSum())
    result = fit(problem, tol=1e-8)
    assert result.certificate.primal == pytest.approx(value, rel=1e-6)
    np.testing.assert_allclose(result.d, weights, atol=3e-3 * max(1, weights.max()))
    np.testing.assert_allclose(decisions(problem, result), z, atol=5e-3 * np.abs(z).max())


@pytest.mark.parametrize(("name", "regularizer"), thinned(LOSSES, [*SPARSE, *CURVED]), ids=str)
def test_eight_digits_in_a_few_outer_steps(name, regularizer):
    result = fit(make(name, regularizer), tol=1e-8)
    assert len(result.history) <= 12
    if isinstance(regularizer, Simplex):
        assert result.d.sum() == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("first", [3.0, 30.0])
@pytest.mark.parametrize(
    ("name", "regularizer"),
    [
        ("hinge", Simplex()),
        ("logistic", L1(0.7)),
        ("squared", LpBall(2.0)),
        ("squared_hinge", BlockNorm(2, 2.0, 0.7)),
        ("epsilon_insensitive", ElasticNet(1.0, 0.5)),
    ],
    ids=str,
)
def test_gaps_fall_faster_and_faster(name, regularizer, first):
    """Later outer steps gain more digits than the first ones, until rounding is all there is."""
    result = fit(make(name, regularizer, n=40, m=12), Spicy(first_penalty=first), tol=1e-9)
    # Rounding may end below zero.
    digits = -np.log10([max(record.gap, 1e-16) for record in result.history])
    gained = np.diff(digits)
    assert np.max(gained[len(gained) // 2 :]) > 1.2 * gained[0] and np.max(gained) > 2


def test_a_penalty_that_does_not_grow_gives_linear_convergence():
    problem = make("logistic", L1(0.7), n=40, m=12)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        slow = solve(problem, Spicy(3.0, growth=1.0), Limits(tol=1e-8, max_iter=30))
    assert len(slow.history) > 1.5 * len(fit(problem, Spicy(3.0), tol=1e-8).history)


@pytest.mark.parametrize(
    ("name", "regularizer"),
    thinned(
        ["hinge", "logistic", "squared", "epsilon_insensitive"],
        [Simplex(), L1(0.7), LpBall(2.0), ElasticNet()],
    ),
    ids=str,
)
def test_other_solvers_find_the_same(name, regularizer):
    problem = make(name, regularizer, n=30, m=80, seed=1)
    result = fit(problem, tol=1e-7)
    second = {Simplex: [ActiveSet()], L1: [ActiveSet()], LpBall: [SPG()]}
    for solver in [SILP(), *second.get(type(regularizer), [])]:
        other = fit(problem, solver, tol=1e-6)
        assert result.certificate.primal == pytest.approx(other.certificate.primal, rel=2e-6)
        size = max(1.0, other.d.max())
        np.testing.assert_allclose(result.d, other.d, atol=0.01 * size)
        mine, its = decisions(problem, result), decisions(problem, other)
        np.testing.assert_allclose(mine, its, atol=0.01 * np.abs(its).max())


@pytest.mark.parametrize("name", ["hinge", "logistic", "squared"])
def test_simplex_and_block_l1_are_one_problem(name):
    """Eq. 13 of the paper, both ways."""
    C = 3.0
    problem = make(name, Simplex(), m=12, C=(C, C))
    simplex = fit(problem, tol=1e-9)
    norms = simplex.d * np.sqrt(problem.bank.quad(simplex.alpha))
    c = simplex_C_to_block_l1(C, norms)
    unweighted = replace(problem, C=np.ones_like(problem.C))
    block = fit(unweighted.with_regularizer(L1(block_l1_to_l1_weight(c))), tol=1e-9)
    z = decisions(problem, simplex)
    np.testing.assert_allclose(decisions(problem, block), z, atol=1e-3 * np.abs(z).max())
    np.testing.assert_allclose(block.d / block.d.sum(), simplex.d, atol=1e-3)
    norms = block.d * np.sqrt(problem.bank.quad(block.alpha))
    assert block_l1_to_simplex_C(c, norms) == pytest.approx(C, rel=1e-3)


@pytest.mark.parametrize(("name", "regularizer"), thinned(LOSSES, [Simplex(), L1(0.7)]), ids=str)
def test_several_tasks_share_their_weights(name, regularizer):
    problem = make(name, regularizer, n_tasks=3)
    result = fit(problem)
    assert result.certificate.primal == pytest.approx(
        fit(problem, SILP()).certificate.primal, rel=2e-6
    )


def test_classes_of_an_estimator():
    X, y = load_iris(return_X_y=True)
    reference = MKLClassifier("simplemkl", solver="active-set", tol=1e-5).fit(X, y)
    model = MKLClassifier("simplemkl", solver="spicy", tol=1e-5).fit(X, y)
    assert model.converged_ and model.objective_ == pytest.approx(reference.objective_, rel=2e-5)
    np.testing.assert_allclose(model.weights_, reference.weights_, atol=0.02)
    own = MKLClassifier("simplemkl", loss="logistic", solver="spicy", multi_class="ovr").fit(X, y)
    assert own.converged_ and own.weights_.shape[0] == 3
    np.testing.assert_allclose(own.predict_proba(X).sum(axis=1), 1.0)


@pytest.mark.parametrize("loss", ["hinge", "logistic"])
def test_sample_weights_count_as_copies(loss):
    X, y = load_breast_cancer(return_X_y=True)
    X, y = X[:60], y[:60]
    weight = np.arange(60) % 3
    kernels = [RBF(width=30.0), RBF(width=300.0), RBF(width=3.0).on(0)]
    model = MKLClassifier(kernels, loss=loss, solver="spicy", tol=1e-7, normalize=None)
    weighted = model.fit(X, y, sample_weight=weight)
    assert weighted.converged_ and not set(weighted.support_) & set(np.flatnonzero(weight == 0))
    objective = weighted.objective_
    rows = np.repeat(np.arange(60), weight)
    assert objective == pytest.approx(model.fit(X[rows], y[rows]).objective_, rel=1e-6)


def test_regression():
    X, y = load_diabetes(return_X_y=True)
    X, y = X[:80], y[:80]
    for loss in ("epsilon_insensitive", "squared"):
        model = MKLRegressor("simplemkl", loss=loss, solver="spicy", tol=1e-5).fit(X, y)
        other = MKLRegressor("simplemkl", loss=loss, solver="silp", tol=1e-5).fit(X, y)
        assert model.converged_
        assert model.objective_ == pytest.approx(other.objective_, rel=2e-5)


@pytest.mark.parametrize("regularizer", ["simplex", LpBall(2.0)], ids=str)
def test_one_class(regularizer):
    """It has a dual with another sum; so it works like the rest."""
    X, _ = load_diabetes(return_X_y=True)
    kernels = [RBF(width=0.05).on(k) for k in range(5)]
    fits = [
        MKLOneClass(kernels, nu=0.2, regularizer=regularizer, solver=solver, tol=1e-5).fit(X[:90])
        for solver in ("spicy", "silp")
    ]
    assert all(one.converged_ for one in fits)
    assert fits[0].objective_ == pytest.approx(fits[1].objective_, rel=3e-5)


# Banks, and ways to solve for a step


@pytest.fixture(scope="module")
def kernels():
    X, y = load_breast_cancer(return_X_y=True)
    specs = [RBF(width=w) for w in (2.0, 20.0, 200.0)] + [Linear().on(0), RBF(width=3.0).on(1)]
    return ComputedOperator.build(specs, X[:150]), np.where(y[:150] > 0, 1.0, -1.0)[None]


def stacked(kernels):
    parts = [[2, 0], [1, 4], [3]]
    plans = [LazyBank(dtype="float64"), DenseBank(), FactoredBank(1e-9)]
    banks = [plan.build(kernels.select(own)) for plan, own in zip(plans, parts, strict=True)]
    return StackedOperator(banks, parts)


@pytest.mark.parametrize(
    "bank",
    [FactoredBank(1e-9).build, FactoredBank(1e-2).build, LazyBank().build, stacked],
    ids=["factored", "coarse", "lazy", "stacked"],
)
@pytest.mark.parametrize("name", ["hinge", "logistic"])
def test_every_bank_gives_the_dense_optimum(kernels, bank, name):
    """A coarse bank is refined, single precision confirmed."""
    kernel_set, y = kernels
    C = np.full(y.shape, 2.0)
    exact = Problem(DenseBank().build(kernel_set), y, C, get_loss(name), Simplex(), WeightedSum())
    reference = fit(exact, SILP())
    result = fit(exact.with_bank(bank(kernel_set)), tol=1e-5)
    assert result.certificate.primal == pytest.approx(reference.certificate.primal, rel=1e-5)


def test_a_sparse_bank():
    rng = np.random.default_rng(0)
    X = sparse.random_array((80, 60), density=0.1, rng=rng, format="csr")
    kernel_set = ComputedOperator.build(
        [Linear().on(list(range(k, k + 6))) for k in range(0, 60, 6)], X
    )
    y = np.where(X[:, [0]].toarray().ravel() + 0.2 * rng.normal(size=80) > 0.1, 1.0, -1.0)[None]
    problem = Problem(
        SparseBank().build(kernel_set),
        y,
        np.ones((1, 80)),
        get_loss("hinge"),
        L1(0.05),
        WeightedSum(),
    )
    dense = fit(problem.with_bank(DenseBank().build(kernel_set)), SILP())
    assert fit(problem).certificate.primal == pytest.approx(dense.certificate.primal, rel=2e-6)


@pytest.mark.parametrize(
    ("name", "regularizer", "n_tasks"),
    thinned(["hinge", "logistic"], [Simplex(), LpBall(2.0)], [1, 2]),
    ids=str,
)
def test_where_there_is_no_room_for_a_matrix(name, regularizer, n_tasks):
    problem = make(name, regularizer, n=40, m=8, n_tasks=n_tasks)
    dense = fit(problem)
    problem.bank.square_limit = lambda most, copies: 20
    result = fit(problem)
    assert result.certificate.primal == pytest.approx(dense.certificate.primal, rel=2e-6)
    np.testing.assert_allclose(result.d, dense.d, atol=5e-3)


# Many kernels


def hidden(name, regularizer, m=40):
    """Kernels most aligned with y at first are copies of one; those that matter come later."""
    rng = np.random.default_rng(0)
    n = 40
    signals = rng.normal(size=(3, n))
    total = signals.sum(axis=0)
    close = [total + 0.6 * rng.normal(size=n) for _ in range(m - 3)]
    Ks = [np.outer(f, f) for f in [*close, *signals]]
    problem = make(name, regularizer, Ks=Ks, C=(5.0, 5.0))
    return replace(
        problem, y=np.sign(total)[None] if problem.loss.task != "regression" else total[None]
    )


@pytest.mark.parametrize("regularizer", SPARSE, ids=repr)
@pytest.mark.parametrize("name", ["hinge", "logistic"])
def test_a_working_set_that_misses_what_matters(name, regularizer):
    problem = hidden(name, regularizer)
    whole = fit(problem, Spicy(working_set=1000), tol=1e-6)
    some = fit(problem, Spicy(working_set=2), tol=1e-6)
    assert some.certificate.primal == pytest.approx(whole.certificate.primal, rel=2e-6)
    np.testing.assert_allclose(some.d, whole.d, atol=3e-3 * max(1.0, whole.d.max()))


@pytest.mark.parametrize("name", ["logistic", "hinge"])
def test_a_thousand_kernels(name):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 200))
    y = X[:, 3] + X[:, 5] > 0
    kernels = [RBF(width=w).on(j) for j in range(200) for w in (0.3, 0.6, 1.0, 2.0, 4.0)]
    model = MKLClassifier(kernels, loss=name, solver="spicy", tol=1e-6, C=3.0).fit(X, y)
    assert model.converged_ and np.count_nonzero(model.weights_) < 100
    other = MKLClassifier(kernels, loss=name, solver="active-set", tol=1e-5, C=3.0).fit(X, y)
    assert model.objective_ == pytest.approx(other.objective_, rel=2e-5)


# Starts


@every_loss
def test_its_own_solution_needs_no_step(name):
    problem = make(name, L1(0.7), n=40, m=12)
    cold = fit(problem, tol=1e-8)
    again = fit(problem, start=cold.start, tol=1e-6)
    assert len(again.history) == 1
    finer = fit(problem, start=fit(problem, tol=1e-3).start, tol=1e-8)
    assert finer.certificate.primal == pytest.approx(cold.certificate.primal, rel=2e-8)


@pytest.mark.parametrize("loss", ["hinge", "logistic"])
def test_starts_from_another_C(loss):
    X, y = load_breast_cancer(return_X_y=True)
    X, y = X[::10], y[::10]
    warm = MKLClassifier("simplemkl", loss=loss, solver="spicy", warm_start=True, tol=1e-5)
    for C in (1.0, 0.3):
        warm.set_params(C=C).fit(X, y)
        cold = MKLClassifier("simplemkl", loss=loss, solver="spicy", C=C, tol=1e-5).fit(X, y)
        assert warm.converged_ and warm.objective_ == pytest.approx(cold.objective_, rel=2e-5)


# Where no kernel is worth its price


@pytest.mark.parametrize("regularizer", [L1(0.7), ElasticNet(1.0, 0.5), BlockNorm(2)], ids=repr)
@pytest.mark.parametrize("name", ["hinge", "logistic", "epsilon_insensitive"])
def test_below_the_entry_point_nothing_is_learnt(name, regularizer):
    problem = make(name, regularizer)
    entry = entry_factor(problem.bound())
    below = fit(replace(problem, C=0.99 * entry * problem.C), tol=1e-9)
    assert not below.d.any() and np.ptp(decisions(problem, below)) < 1e-12
    # With corners in the loss this is a bound: at the best constant alpha is not unique.
    assert fit(replace(problem, C=3.0 * entry * problem.C), tol=1e-6).d.any()


def test_without_kernels_the_majority_is_predicted():
    X, y = load_breast_cancer(return_X_y=True)
    model = MKLClassifier("simplemkl", C=1e-7, regularizer="l1", loss="logistic", solver="spicy")
    model.fit(X[:100], y[:100])
    assert not model.weights_.any() and model.gap_ <= 1e-9
    majority = np.bincount(y[:100]).argmax()
    assert np.all(model.predict(X) == majority)


# Refusals


def test_what_is_not_supported_is_refused_with_what_is():
    X, y = load_iris(return_X_y=True)
    with pytest.raises(InvalidInputError, match=r"'spicy' takes sums of kernels.*spg"):
        MKLClassifier(solver="spicy", combination="product", regularizer="l1").fit(X, y)
    for regularizer in ("entropy", "log_det"):
        with pytest.raises(InvalidInputError, match=r"'elastic_net', 'l1'.*'simplex'.*silp"):
            MKLClassifier("rbf", solver="spicy", regularizer=regularizer).fit(X, y)


# Stopping


def test_limits_are_kept_and_said():
    problem = make("hinge", Simplex(), n=40, m=12)
    with pytest.warns(ConvergenceWarning, match="max_iter=2"):
        short = solve(problem, Spicy(), Limits(tol=1e-9, max_iter=2))
    assert len(short.history) == 3 and short.reason == "max_iter"
    with pytest.warns(ConvergenceWarning, match="max_time"):
        quick = solve(problem, Spicy(), Limits(tol=1e-9, max_time=1e-9))
    assert len(quick.history) == 1
    value = fit(problem).certificate
    for result in (short, quick):
        assert result.certificate.dual <= value.primal and value.dual <= result.certificate.primal


def test_a_callback_and_ctrl_c_end_a_fit_with_the_best_so_far(capsys):
    problem = make("logistic", Simplex(), n=40, m=12)
    seen = []

    def second(record):
        seen.append(record)
        return record.iteration == 2

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        stopped = solve(problem, Spicy(), Limits(tol=1e-9, callbacks=[second], verbose=2))
    assert stopped.reason == "callback" and len(stopped.history) == len(seen) == 3
    assert seen[2].inner_iterations > seen[1].inner_iterations > 0 == seen[0].inner_solves
    assert capsys.readouterr().out.count("[kernelweave]") == 3

    def interrupt(record):
        if record.iteration == 2:
            raise KeyboardInterrupt

    with pytest.warns(InterruptedFitWarning, match="best point so far"):
        result = solve(problem, Spicy(), Limits(tol=1e-9, callbacks=[interrupt]))
    assert result.reason == "interrupted" and not result.converged
    assert result.certificate.gap <= min(r.gap for r in result.history) * (1 + 1e-6)


@pytest.mark.parametrize("name", ["hinge", "squared"])
def test_what_rounding_forbids_is_given_up_in_time(name):
    problem = make(name, Simplex(), n=40, m=12, C=(50.0, 200.0))
    with pytest.warns(ConvergenceWarning, match="rounding"):
        result = solve(problem, Spicy(), Limits(tol=1e-18))
    assert result.reason == "stuck" and result.certificate.gap < 1e-8
    assert len(result.history) < 300


def test_only_a_good_start_raises_the_first_penalty():
    """A large one would leave a single kernel to a rough start, and its inner problem unsolved."""
    problem = make("hinge", Simplex(), n=40, m=8)
    best, solver = fit(problem), Spicy()
    unit = solver.first_penalty
    good = solver.init(problem, Point.start(best.d, best.alpha, best.intercept))
    assert good.memory.dual.penalty == pytest.approx(solver.growth * unit * best.d.max())
    equal = np.full(8, 1 / 8)
    rough = solver.init(problem, Point.start(equal, np.zeros_like(best.alpha), best.intercept))
    assert rough.memory.dual.penalty < 0.5 * solver.growth * unit / 8
