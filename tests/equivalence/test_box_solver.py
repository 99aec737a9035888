"""Our SMO against scikit-learn's, and against the optimality conditions themselves."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
from dense_gram import DenseGram
from sklearn.svm import SVC, SVR, OneClassSVM
from thinned import thinned

from kernelweave.compiled.threads import use_threads
from kernelweave.losses import get_loss
from kernelweave.solvers.box_qp import solve_box_qp

TIGHT = 1e-7


class RowsOnly:
    """A kernel that has no full matrix to give away, and room for blocks of a certain size."""

    def __init__(self, K, round_size=None, room=10**9):
        self._gram = DenseGram(K)
        self.n, self.round_size, self._room = self._gram.n, round_size, room
        self.largest = 0

    def diagonal(self):
        return self._gram.diagonal()

    def block(self, idx):
        self.largest = max(self.largest, idx.size)
        return self._gram.block(idx)

    def product(self, idx, delta):
        return self._gram.product(idx, delta)

    def dense(self):
        return None

    def square_limit(self, most, copies):
        return min(most, self._room)


# How a problem is solved: the kind of kernel, and the most variables of a round.
PATHS = {
    "whole": (DenseGram, None),
    "rounds": (DenseGram, 32),
    "rows only": (partial(RowsOnly, room=48), None),
    "rounds, then all that can move": (partial(RowsOnly, round_size=40, room=100), None),
}


@pytest.fixture(params=PATHS)
def solve(request):
    """Solve a problem on one of the paths."""
    kind, most = PATHS[request.param]
    return lambda qp, K, **settings: solve_box_qp(qp, kind(K), most=most, **settings)


def rbf(X, gamma=0.3):
    square = (X**2).sum(1)
    return np.exp(-gamma * np.maximum(square[:, None] + square - 2 * X @ X.T, 0.0))


def classes(n=240, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    y = np.where(X[:, 0] + 0.5 * X[:, 1] ** 2 - 0.3 + 0.7 * rng.normal(size=n) > 0, 1.0, -1.0)
    return rbf(X), y


def regression(n=200, seed=1):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    return rbf(X), np.sin(2 * X[:, 0]) + X[:, 1] + 0.3 * rng.normal(size=n)


def objective(qp, K, a):
    alpha = qp.signed(a)
    return 0.5 * alpha @ K @ alpha + qp.linear @ a


def check(qp, K, result, tol):
    """Feasible, consistent, optimal: recomputed from the problem, not from the solver."""
    a = result.a
    assert np.all(np.isfinite(a)) and np.isfinite(result.intercept)
    assert np.all(a >= 0) and np.all(a <= qp.upper)
    assert abs(math.fsum(qp.sign * a) - qp.total) <= 4e-16 * max(a.max(), abs(qp.total))
    np.testing.assert_array_equal(result.alpha, qp.signed(a))
    fitted = K.astype(float) @ result.alpha
    noise = 1e-10 + 1e-13 * (np.abs(K) @ np.abs(result.alpha)).max()
    np.testing.assert_allclose(result.fitted, fitted, atol=noise, rtol=0)
    slope = -qp.sign * qp.linear - fitted[qp.sample]
    up = np.where(qp.sign > 0, a < qp.upper, a > 0)
    low = np.where(qp.sign > 0, a > 0, a < qp.upper)
    violation = max(0.0, slope[up].max(initial=-np.inf) - slope[low].min(initial=np.inf))
    assert result.converged
    assert violation <= tol + noise
    assert result.violation == pytest.approx(violation, abs=2 * noise)
    if up.any() and low.any():
        # The intercept lies between the two ends, up to the violation.
        assert slope[up].max() - violation - tol <= result.intercept
        assert result.intercept <= slope[low].min() + violation + tol


def same_value(qp, K, result, reference_alpha):
    mine = objective(qp, K, result.a)
    theirs = objective(qp, K, qp.split(reference_alpha))
    assert mine == pytest.approx(theirs, rel=1e-6)


def dual_of(model, n):
    alpha = np.zeros(n)
    alpha[model.support_] = model.dual_coef_[0]
    return alpha


@pytest.mark.parametrize(("C", "weights"), thinned([0.05, 1.0, 300.0], [None, "sample", "class"]))
def test_hinge_against_svc(solve, C, weights):
    K, y = classes()
    upper = np.full(y.size, C)
    fit_args, model = {}, SVC(C=C, kernel="precomputed", tol=TIGHT)
    if weights == "sample":
        sample = np.random.default_rng(5).uniform(0, 2, y.size)
        upper, fit_args = C * sample, {"sample_weight": sample}
    elif weights == "class":
        model.set_params(class_weight={-1.0: 0.3, 1.0: 4.0})
        upper = C * np.where(y > 0, 4.0, 0.3)
    model.fit(K, y, **fit_args)
    qp = get_loss("hinge").box_qp(y, upper)
    result = solve(qp, K, tol=TIGHT)
    check(qp, K, result, TIGHT)
    same_value(qp, K, result, dual_of(model, y.size))
    decision = result.fitted + result.intercept
    # LIBSVM keeps rows in float32, so its decision values are this good:
    np.testing.assert_allclose(decision, model.decision_function(K), atol=2e-5 + 1e-6 * C)


def test_samples_without_weight_do_not_count(solve):
    K, y = classes()
    upper = np.where(np.arange(y.size) % 3 == 0, 0.0, 2.0)
    keep = upper > 0
    result = solve(get_loss("hinge").box_qp(y, upper), K, tol=TIGHT)
    part = get_loss("hinge").box_qp(y[keep], upper[keep])
    alone = solve(part, K[np.ix_(keep, keep)], tol=TIGHT)
    assert not result.a[~keep].any()
    np.testing.assert_allclose(result.a[keep], alone.a, atol=1e-4)
    assert result.intercept == pytest.approx(alone.intercept, abs=1e-6)


@pytest.mark.parametrize(
    ("case", "weighted"),
    thinned([(0.1, 0.1), (3.0, 0.3), (50.0, 0.0), (1.0, 5.0)], [False, True]),
    ids=str,
)
def test_epsilon_insensitive_against_svr(solve, case, weighted):
    (C, epsilon), (K, y) = case, regression()
    sample = np.random.default_rng(6).uniform(0.1, 2, y.size) if weighted else np.ones(y.size)
    model = SVR(C=C, epsilon=epsilon, kernel="precomputed", tol=TIGHT)
    model.fit(K, y, sample_weight=sample if weighted else None)
    qp = get_loss("epsilon_insensitive", epsilon=epsilon).box_qp(y, C * sample)
    result = solve(qp, K, tol=TIGHT)
    check(qp, K, result, TIGHT)
    same_value(qp, K, result, dual_of(model, y.size))
    if model.support_.size:
        np.testing.assert_allclose(
            result.fitted + result.intercept, model.predict(K), atol=2e-5 + 1e-5 * C
        )


@pytest.mark.parametrize("nu", [0.03, 0.4, 0.9])
def test_one_class_against_sklearn(solve, nu):
    K, y = classes()
    n = y.size
    model = OneClassSVM(nu=nu, kernel="precomputed", tol=TIGHT).fit(K)
    qp = get_loss("one_class").box_qp(np.ones(n), np.full(n, 1 / (nu * n)))
    # scikit-learn's variables are nu * n times ours, so its tolerance is for other slopes.
    tol = TIGHT / (nu * n)
    result = solve(qp, K, tol=tol)
    check(qp, K, result, tol)
    same_value(qp, K, result, dual_of(model, n) / (nu * n))
    assert result.alpha.sum() == pytest.approx(1.0, abs=1e-14)


def test_warm_start_takes_fewer_steps_to_the_same_optimum(solve):
    K, y = classes()
    loss = get_loss("hinge")
    qp = loss.box_qp(y, np.full(y.size, 10.0))
    cold = solve(qp, K, tol=1e-5)
    near = loss.box_qp(y, np.full(y.size, 10.05))
    again = solve(near, K, tol=1e-5)
    warm = solve(near, K, tol=1e-5, a=cold.a, fitted=cold.fitted)
    check(near, K, warm, 1e-5)
    assert warm.n_steps < 0.8 * again.n_steps
    assert objective(near, K, warm.a) == pytest.approx(objective(near, K, again.a), rel=1e-7)
    same = solve(qp, K, tol=1e-5, a=cold.a, fitted=cold.fitted)
    assert same.n_steps == 0 and same.converged
    np.testing.assert_array_equal(same.a, cold.a)


def test_start_may_be_any_point(solve):
    K, y = regression(120)
    qp = get_loss("epsilon_insensitive", epsilon=0.1).box_qp(y, np.full(y.size, 2.0))
    best = solve(qp, K, tol=1e-6)
    outside = np.random.default_rng(3).uniform(-1, 5, qp.upper.size)
    for start in (outside, qp.upper, np.full(qp.upper.size, 1.5)):
        fitted = np.full(y.size, 7.0) if start is outside else None  # must not be believed
        result = solve(qp, K, tol=1e-6, a=start, fitted=fitted)
        check(qp, K, result, 1e-6)
        assert objective(qp, K, result.a) == pytest.approx(objective(qp, K, best.a), rel=1e-7)


def test_one_class_with_every_variable_at_its_bound(solve):
    K, y = classes()
    n = y.size
    qp = get_loss("one_class").box_qp(np.ones(n), np.full(n, 1 / n))
    result = solve(qp, K, tol=1e-6)
    np.testing.assert_allclose(result.a, 1 / n, rtol=1e-12)
    assert result.converged
    # Nothing can grow; the intercept is the least that what can fall asks for.
    assert result.intercept == pytest.approx(-(K.sum(1) / n).max(), abs=1e-9)


def test_warm_start_does_not_change_the_callers_arrays(solve):
    K, y = classes(200)
    qp = get_loss("hinge").box_qp(y, np.full(200, 1.0))
    a, fitted = np.zeros(200), np.zeros(200)
    solve(qp, K, tol=1e-3, a=a, fitted=fitted)
    assert not a.any() and not fitted.any()


def test_duplicate_rows(solve):
    K, y = classes(60)
    K = np.tile(K, (3, 3))
    y = np.concatenate([y, y, -y])
    qp = get_loss("hinge").box_qp(y, np.full(y.size, 5.0))
    result = solve(qp, K, tol=TIGHT)
    check(qp, K, result, TIGHT)
    model = SVC(C=5.0, kernel="precomputed", tol=TIGHT).fit(K, y)
    same_value(qp, K, result, dual_of(model, y.size))


def test_zero_kernel(solve):
    y = np.where(np.arange(50) % 3 == 0, 1.0, -1.0)
    K = np.zeros((50, 50))
    qp = get_loss("hinge").box_qp(y, np.full(50, 2.0))
    result = solve(qp, K, tol=1e-6)
    check(qp, K, result, 1e-6)
    # Without curvature every variable of the smaller class goes to its bound.
    assert result.a[y > 0] == pytest.approx(2.0)
    assert result.intercept == pytest.approx(-1.0)


@pytest.mark.parametrize("y, a", [([1.0, -1.0], [1.0, 1.0]), ([1.0, 1.0], [0.0, 0.0])])
def test_two_samples(solve, y, a):
    K = np.array([[2.0, 1.0], [1.0, 2.0]])
    qp = get_loss("hinge").box_qp(np.array(y), np.full(2, 10.0))
    result = solve(qp, K, tol=1e-9)
    check(qp, K, result, 1e-9)
    np.testing.assert_allclose(result.a, a)


def test_one_sided_problem_stays_at_zero(solve):
    K, _ = classes(40)
    qp = get_loss("hinge").box_qp(np.ones(40), np.full(40, 1.0))
    result = solve(qp, K, tol=1e-6)
    assert not result.a.any() and result.converged and result.n_steps == 0
    # Only one side can move: the intercept is what that side asks for.
    assert result.intercept == pytest.approx(1.0)


@pytest.mark.parametrize("name", ["hinge", "epsilon_insensitive"])
def test_float32_matrix(solve, name):
    K, y = classes() if name == "hinge" else regression()
    K = K.astype(np.float32)
    qp = get_loss(name).box_qp(y, np.full(y.size, 2.0))
    result = solve(qp, K, tol=1e-5)
    check(qp, K, result, 1e-5)
    exact = solve_box_qp(qp, DenseGram(K.astype(float)), tol=1e-7)
    value = objective(qp, K.astype(float), exact.a)
    assert objective(qp, K.astype(float), result.a) == pytest.approx(value, rel=1e-6)


def test_nearly_equal_samples_of_both_classes(solve):
    # Pairs of nearly equal samples with opposite labels: huge variables, so that a block rounded
    # to float32 gives slopes wrong by more than the tolerance.
    rng = np.random.default_rng(9)
    X = rng.normal(size=(60, 2))
    K = rbf(np.vstack([X, X + 1e-3 * rng.normal(size=X.shape)]))
    y = np.repeat([1.0, -1.0], 60)
    qp = get_loss("hinge").box_qp(y, np.full(120, 1e6))
    result = solve(qp, K, tol=1e-3, max_iter=2_000_000)
    check(qp, K, result, 1e-3)


def test_blocks_in_float32_do_not_spoil_the_fitted_values():
    class Rounded(RowsOnly):
        def block(self, idx):
            return super().block(idx).astype(np.float32)

    K, y = classes(200)
    qp = get_loss("hinge").box_qp(y, np.full(200, 100.0))
    check(qp, K, solve_box_qp(qp, Rounded(K), tol=1e-4), 1e-4)


@pytest.mark.parametrize("size, C", [(1.0, 1e6), (2e5, 0.7)])
def test_fitted_values_belong_to_alpha_after_very_many_steps(size, C):
    """A kernel of rank 10 on 30 samples takes more steps than it is given."""
    for seed in range(6):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(30, 10))
        K, y = size * X @ X.T, rng.permutation(np.repeat([1.0, -1.0], 15))
        qp = get_loss("hinge").box_qp(y, np.full(30, C))
        result = solve_box_qp(qp, DenseGram(K), tol=1e-8, max_iter=300_000)
        assert result.n_steps == 300_000
        # What a single product may be off by.
        rounding = np.finfo(float).eps * (abs(K) @ abs(result.alpha)).max()
        assert abs(K @ result.alpha - result.fitted).max() <= 3.0 * rounding
        assert abs(math.fsum(result.alpha)) <= np.finfo(float).eps * C


@pytest.mark.parametrize("where", [(slice(None), 5), slice(None)])
def test_nan_in_the_kernel_ends_without_a_claim(solve, where):
    K, y = classes(100)
    K[where] = np.nan
    qp = get_loss("hinge").box_qp(y, np.full(100, 1.0))
    assert not solve(qp, K, tol=1e-6, max_iter=100_000).converged


def test_a_kernel_that_contradicts_itself_ends():
    class Noisy(RowsOnly):
        rng = np.random.default_rng(0)

        def product(self, idx, delta):
            return super().product(idx, delta) + 1e-5 * self.rng.normal(size=self.n)

    K, y = classes(200)
    qp = get_loss("hinge").box_qp(y, np.full(200, 1.0))
    result = solve_box_qp(qp, Noisy(K, room=48), tol=1e-9)
    assert not result.converged and result.n_rounds < 1000
    assert objective(qp, K, result.a) == pytest.approx(
        objective(qp, K, solve_box_qp(qp, DenseGram(K), tol=1e-6).a), rel=1e-3
    )


def test_large_targets(solve):
    K, y = regression()
    qp = get_loss("epsilon_insensitive", epsilon=10.0).box_qp(1e4 * y, np.full(y.size, 1e5))
    result = solve(qp, K, tol=1e-2)
    check(qp, K, result, 1e-2)


def test_tolerance_far_below_the_size_of_the_slopes(solve):
    # All slopes lie within 1e-8 of 1e3: only exact comparisons can tell them apart.
    n = 64
    y = 1e3 + 1e-8 * np.random.default_rng(8).normal(size=n)
    K = 1e-3 * np.eye(n)
    qp = get_loss("epsilon_insensitive", epsilon=0.0).box_qp(y, np.full(n, 1.0))
    result = solve(qp, K, tol=1e-11)
    assert result.converged and result.violation <= 1e-11
    np.testing.assert_allclose(result.alpha, (y - y.mean()) / 1e-3, atol=2e-8)


def test_max_iter_stops_early_and_says_so(solve):
    K, y = classes()
    qp = get_loss("hinge").box_qp(y, np.full(y.size, 300.0))
    result = solve(qp, K, tol=1e-9, max_iter=25)
    assert result.n_steps == 25
    assert not result.converged and result.violation > 1e-9
    assert abs(qp.sign @ result.a) <= 1e-10


def test_unreachable_tolerance_ends(solve):
    K, y = classes(80)
    qp = get_loss("hinge").box_qp(y, np.full(80, 1e4))
    result = solve(qp, K, tol=0.0, max_iter=300_000)
    assert np.isfinite(result.a).all()
    assert result.violation < 1e-6


def test_paths_agree():
    K, y = classes(600, seed=4)
    qp = get_loss("hinge").box_qp(y, np.full(600, 20.0))
    values, rounds, largest = [], [], []
    for kind, most in PATHS.values():
        gram = kind(K)
        result = solve_box_qp(qp, gram, tol=1e-6, most=most)
        check(qp, K, result, 1e-6)
        values.append(objective(qp, K, result.a))
        rounds.append(result.n_rounds)
        largest.append(getattr(gram, "largest", 0))
    np.testing.assert_allclose(values, values[0], rtol=1e-9)
    assert rounds[0] < 10 < min(rounds[1:])
    assert largest[2] <= 48 and 40 < largest[3] <= 100


@pytest.mark.parametrize("most", [None, 2048], ids=["shrinking", "rounds and shrinking"])
def test_usual_sizes_reach_rounds_and_shrinking(most):
    K, y = classes(4500, seed=2)
    K = K.astype(np.float32)
    qp = get_loss("hinge").box_qp(y, np.full(4500, 1.0))
    results = []
    for n_jobs in (1, 2):
        with use_threads(n_jobs):
            results.append(solve_box_qp(qp, DenseGram(K), tol=1e-3, most=most))
    check(qp, K, results[0], 1e-3)
    assert results[0].n_rounds > 1
    # Same bits whatever the number of threads.
    np.testing.assert_array_equal(results[0].a, results[1].a)
