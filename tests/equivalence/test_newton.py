"""Newton's method for smooth losses against scikit-learn, a conic solver and itself."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
from dense_gram import DenseGram
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression, Ridge
from thinned import thinned

from kernelweave.errors import InvalidInputError
from kernelweave.losses import Hinge, Logistic, Loss, SmoothHinge, Squared, SquaredHinge, get_loss
from kernelweave.solvers.certificate import centre
from kernelweave.solvers.newton import NewtonResult, solve_smooth

SMOOTH = [loss for cls in Loss.registry.values() for loss in cls.examples() if loss.smooth]
every_smooth_loss = pytest.mark.parametrize("loss", SMOOTH, ids=repr)


class ProductsOnly(DenseGram):
    """A kernel that shows only products and blocks, and counts the products."""

    n_products = 0

    def dense(self) -> None:  # type: ignore[override]
        return None

    def product(self, idx: np.ndarray, delta: np.ndarray) -> np.ndarray:
        self.n_products += 1
        return super().product(idx, delta)


def problem(
    loss: Loss, n: int = 40, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Features, targets, sample weights and an RBF kernel."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    y = np.sin(X[:, 0]) + 0.3 * rng.normal(size=n)
    if loss.task == "classification":
        y = np.where(y > 0, 1.0, -1.0)
    squared = ((X[:, None] - X[None]) ** 2).sum(axis=-1)
    return X, y, rng.uniform(0.2, 3.0, n), np.exp(-squared / 4)


def check(loss: Loss, y: np.ndarray, C: np.ndarray, K: np.ndarray, result: NewtonResult) -> None:
    """The result is feasible, consistent, and its violation is its duality gap."""
    lo, hi = loss.domain(y, C)
    assert np.all(result.alpha >= lo)
    assert np.all(result.alpha <= hi)
    assert abs(result.alpha.sum()) <= 1e-12 * max(1.0, np.abs(result.alpha).sum())
    np.testing.assert_allclose(result.fitted, K @ result.alpha, atol=1e-9)
    quad = result.alpha @ K @ result.alpha
    primal = loss.value(y, K @ result.alpha + result.intercept, C).sum() + quad / 2
    dual = -loss.conjugate(y, result.alpha, C).sum() - quad / 2
    assert (primal - dual) / primal == pytest.approx(result.violation, abs=1e-9)


def primal_by_cone(loss: Loss, y: np.ndarray, C: np.ndarray, K: np.ndarray) -> float:
    """Optimum of the primal in weights on the eigenfeatures of K, by Clarabel."""
    values, vectors = np.linalg.eigh(K)
    F = vectors * np.sqrt(np.maximum(values, 0.0))
    w, b = cp.Variable(F.shape[1]), cp.Variable()
    z = F @ w + b
    if isinstance(loss, SquaredHinge):
        losses = cp.square(cp.pos(1 - cp.multiply(y, z)))
    elif isinstance(loss, Squared):
        losses = cp.square(y - z)
    elif isinstance(loss, SmoothHinge):
        losses = cp.logistic(loss.sigma * (1 - cp.multiply(y, z))) / loss.sigma
    elif isinstance(loss, Logistic):
        losses = cp.logistic(-cp.multiply(y, z))
    else:
        pytest.skip(f"no conic form of {loss!r} is written here")
    task = cp.Problem(cp.Minimize(C @ losses + cp.sum_squares(w) / 2))
    return float(task.solve(solver="CLARABEL"))


@every_smooth_loss
@pytest.mark.parametrize("weight", [0.1, 10.0])
@pytest.mark.parametrize("gram", [DenseGram, ProductsOnly])
def test_agrees_with_a_conic_solver(loss: Loss, weight: float, gram: type[DenseGram]) -> None:
    _, y, C, K = problem(loss)
    result = solve_smooth(loss, y, weight * C, gram(K), tol=1e-10)
    assert result.converged
    check(loss, y, weight * C, K, result)
    quad = result.alpha @ K @ result.alpha
    losses = loss.value(y, result.fitted + result.intercept, weight * C)
    expected = primal_by_cone(loss, y, weight * C, K)
    assert losses.sum() + quad / 2 == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("weight", [0.1, 1.0, 100.0])
def test_logistic_agrees_with_scikit_learn(weight: float) -> None:
    X, y, C, _ = problem(Logistic())
    reference = LogisticRegression(C=weight, tol=1e-10, max_iter=10_000)
    reference.fit(X, y, sample_weight=C)
    result = solve_smooth(Logistic(), y, weight * C, DenseGram(X @ X.T), tol=1e-13)
    np.testing.assert_allclose(X.T @ result.alpha, reference.coef_[0], rtol=1e-4, atol=1e-5)
    assert result.intercept == pytest.approx(reference.intercept_[0], abs=1e-4)


@pytest.mark.parametrize("weight", [0.01, 1.0, 1e4])
def test_squared_agrees_with_ridge_in_one_step(weight: float) -> None:
    X, y, C, _ = problem(Squared())
    # Ridge minimises sum C r^2 + alpha |w|^2: half of our objective with alpha = 1 / (2 weight).
    reference = Ridge(alpha=0.5 / weight).fit(X, y, sample_weight=C)
    result = solve_smooth(Squared(), y, weight * C, DenseGram(X @ X.T), tol=1e-9)
    assert result.n_steps == 1
    np.testing.assert_allclose(X.T @ result.alpha, reference.coef_, rtol=1e-6)
    assert result.intercept == pytest.approx(reference.intercept_, rel=1e-6)


@every_smooth_loss
def test_sample_weights_count_samples(loss: Loss) -> None:
    """A weight of two is the sample twice; a weight of zero is no sample."""
    _, y, _, K = problem(loss, n=20)
    C = np.repeat([2.0, 1.0, 0.0, 1.0], 5)
    twice = np.concatenate([np.arange(5), np.arange(10), np.arange(15, 20)])
    weighted = solve_smooth(loss, y, C, DenseGram(K), tol=1e-12)
    repeated = DenseGram(K[np.ix_(twice, twice)])
    plain = solve_smooth(loss, y[twice], np.ones(20), repeated, tol=1e-12)
    # Decision values are known to the square root of the relative gap.
    there = (weighted.fitted + weighted.intercept)[twice]
    np.testing.assert_allclose(there, plain.fitted + plain.intercept, atol=1e-5)
    assert np.all(weighted.alpha[10:15] == 0)


@every_smooth_loss
def test_both_ways_to_a_step_agree(loss: Loss) -> None:
    _, y, C, K = problem(loss, n=300)
    dense = solve_smooth(loss, y, 20 * C, DenseGram(K), tol=1e-11)
    products = solve_smooth(loss, y, 20 * C, ProductsOnly(K), tol=1e-11)
    single = solve_smooth(loss, y, 20 * C, DenseGram(K.astype(np.float32)), tol=1e-6)
    assert dense.converged
    assert products.converged
    assert single.converged
    decision = dense.fitted + dense.intercept
    np.testing.assert_allclose(products.fitted + products.intercept, decision, atol=1e-4)
    np.testing.assert_allclose(single.fitted + single.intercept, decision, atol=2e-2)


def test_the_low_rank_preconditioner_spares_products() -> None:
    _, y, _, K = problem(Squared(), n=600)
    gram = ProductsOnly(K)
    assert solve_smooth(Squared(), y, np.full(600, 1e4), gram, tol=1e-10).converged
    # Under the diagonal alone they are over three thousand.
    assert gram.n_products < 1000


@every_smooth_loss
@pytest.mark.parametrize("gram", [DenseGram, ProductsOnly])
def test_a_warm_start_takes_fewer_steps(loss: Loss, gram: type[DenseGram]) -> None:
    _, y, C, K = problem(loss, n=120)
    cold = solve_smooth(loss, y, C, gram(K), tol=1e-8)
    again = solve_smooth(
        loss,
        y,
        C,
        gram(K),
        tol=1e-8,
        alpha=cold.alpha,
        fitted=cold.fitted,
        intercept=cold.intercept,
    )
    assert again.n_steps == 0
    assert again.converged
    nearby = K + 0.02 * np.eye(120)
    fresh = solve_smooth(loss, y, C, gram(nearby), tol=1e-8)
    warm = solve_smooth(
        loss, y, C, gram(nearby), tol=1e-8, alpha=cold.alpha, intercept=cold.intercept
    )
    assert warm.n_steps <= fresh.n_steps
    np.testing.assert_allclose(
        warm.fitted + warm.intercept, fresh.fitted + fresh.intercept, atol=5e-3
    )


@every_smooth_loss
def test_a_bad_warm_start_does_no_harm(loss: Loss) -> None:
    _, y, C, K = problem(loss)
    bad = 1e8 * np.random.default_rng(0).normal(size=40)
    cold = solve_smooth(loss, y, C, DenseGram(K), tol=1e-9)
    warm = solve_smooth(loss, y, C, DenseGram(K), tol=1e-9, alpha=bad, intercept=1e6)
    assert warm.converged
    assert warm.n_steps == cold.n_steps


def kernels(n: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(n)
    X = rng.normal(size=(n, 4))
    rbf = np.exp(-((X[:, None] - X[None]) ** 2).sum(axis=-1) / 8)
    return {
        "rbf": rbf,
        "singular": X @ X.T,
        "rank one": np.outer(X[:, 0], X[:, 0]),
        "zero": np.zeros((n, n)),
        "constant": np.full((n, n), 1e4),
        "far from centred": (X @ X.T + 100) ** 2 / 1e2,
        "tiny": 1e-9 * rbf,
        "duplicates": np.kron(rbf[: n // 2, : n // 2], np.ones((2, 2))),
    }


@pytest.mark.parametrize(
    ("loss", "n", "weight"), thinned(SMOOTH, [2, 30], [1e-6, 1.0, 1e4, 1e6]), ids=str
)
@pytest.mark.filterwarnings("error")
def test_hard_kernels_and_extreme_weights(loss: Loss, n: int, weight: float) -> None:
    rng = np.random.default_rng(3)
    for name, K in kernels(n).items():
        C = weight * rng.uniform(0.5, 2.0, n)
        random = rng.normal(size=n)
        random[:2] = [1.0, -1.0]
        separable = K[:, 0] - np.median(K[:, 0]) + 1e-9
        for y in (random, separable, np.ones(n)):
            target = np.where(y > 0, 1.0, -1.0) if loss.task == "classification" else y
            result = solve_smooth(loss, target, C, DenseGram(K), tol=1e-5)
            assert result.converged, (name, result)
            assert np.all(np.isfinite(result.alpha)), name
            assert np.all(np.isfinite(result.fitted)), name
            assert np.isfinite(result.intercept), name


def test_separable_logistic_with_large_weight() -> None:
    X = np.vstack([np.random.default_rng(0).normal(size=(50, 2)) + c for c in (-6, 6)])
    y = np.repeat([-1.0, 1.0], 50)
    result = solve_smooth(Logistic(), y, np.full(100, 1e4), DenseGram(X @ X.T), tol=1e-8)
    assert result.converged
    assert result.n_steps < 40
    assert np.all(y * (result.fitted + result.intercept) > 1)


def test_squared_hinge_ends_in_few_steps_exactly() -> None:
    _, y, C, K = problem(SquaredHinge(), n=200)
    result = solve_smooth(SquaredHinge(), y, 10 * C, DenseGram(K), tol=1e-13)
    assert result.converged
    assert result.n_steps <= 25
    assert 0 < np.count_nonzero(result.alpha) < 200


@pytest.mark.parametrize("seed", range(6))
def test_squared_hinge_with_all_samples_on_the_margin(seed: int) -> None:
    """Rounding puts samples just behind the corner, where there is no curvature to go by."""
    X = np.random.default_rng(seed).normal(size=(2, 5))
    y, C = np.array([1.0, -1.0]), np.array([5e5, 2e6])
    result = solve_smooth(SquaredHinge(), y, C, DenseGram(X @ X.T), tol=1e-8)
    assert result.converged
    assert result.n_steps <= 5
    np.testing.assert_allclose(y * (result.fitted + result.intercept), 1.0, atol=1e-5)


def test_stops_and_says_so() -> None:
    _, y, C, K = problem(Logistic())
    result = solve_smooth(Logistic(), y, 1e3 * C, DenseGram(K), tol=1e-10, max_iter=1)
    assert not result.converged
    assert result.violation > 1e-10
    assert result.n_steps == 1
    check(Logistic(), y, 1e3 * C, K, result)
    impossible = solve_smooth(Logistic(), y, C, DenseGram(K), tol=0.0, max_iter=100)
    assert impossible.violation < 1e-12
    assert impossible.n_steps < 40


def test_only_smooth_losses() -> None:
    _, y, C, K = problem(Hinge())
    with pytest.raises(TypeError, match="needs a smooth loss"):
        solve_smooth(Hinge(), y, C, DenseGram(K), tol=1e-3)
    assert get_loss("logistic").smooth


@pytest.mark.parametrize("weight", [1.0, 1e5])
def test_larger_matrices_try_conjugate_gradients_and_fall_back(weight: float) -> None:
    _, y, C, K = problem(Logistic(), n=500)
    result = solve_smooth(Logistic(), y, weight * C, DenseGram(K), tol=1e-9)
    assert result.converged
    check(Logistic(), y, weight * C, K, result)


@pytest.mark.parametrize("weight", [1e2, 1e4])
def test_squared_by_products_needs_few_steps(weight: float) -> None:
    _, y, C, K = problem(Squared(), n=60)
    result = solve_smooth(Squared(), y, weight * C, ProductsOnly(K), tol=1e-8)
    assert result.converged
    assert result.n_steps <= 15


@pytest.mark.parametrize("seed", range(12))
def test_a_small_matrix_is_formed_when_products_alone_are_too_rough(seed: int) -> None:
    """Alpha is huge where K does not see it, and so is what rounding of K alpha does with it."""
    X = np.random.default_rng(seed).normal(size=(30, 5))
    K, y = (X @ X.T + 1e3) ** 3 / 1e6, X[:, 0] + 0.1 * X[:, 1] ** 2
    for matrix in (K, np.outer(X[:, 0], X[:, 0])):
        result = solve_smooth(Squared(), y, np.full(30, 1e6), ProductsOnly(matrix), tol=1e-6)
        assert result.converged


def test_short_of_memory_conjugate_gradients_are_chosen() -> None:
    """They take many products, of which a step by a factor takes two."""
    _, y, C, K = problem(Logistic(), n=60)

    class Counted(DenseGram):
        n_products = 0

        def product(self, idx: np.ndarray, delta: np.ndarray) -> np.ndarray:
            self.n_products += 1
            return super().product(idx, delta)

    class ShortOfMemory(Counted):
        def square_limit(self, most: int, copies: float) -> int:
            return 5  # rows, of 60

    # (Products with a matrix in float64 are not asked of the source.)
    enough, short = Counted(K.astype(np.float32)), ShortOfMemory(K.astype(np.float32))
    expected = solve_smooth(Logistic(), y, 100 * C, enough, tol=1e-8)
    found = solve_smooth(Logistic(), y, 100 * C, short, tol=1e-8)
    np.testing.assert_allclose(found.alpha, expected.alpha, atol=1e-2)
    assert short.n_products > 2 * enough.n_products


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_centre_is_the_nearest_feasible_point(data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 20))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    scale = data.draw(st.sampled_from([1e-6, 1.0, 1e6]))
    alpha = rng.normal(size=n) * scale
    lo = np.where(rng.uniform(size=n) < 0.2, -np.inf, -rng.uniform(size=n) * scale)
    hi = np.where(rng.uniform(size=n) < 0.2, np.inf, rng.uniform(size=n) * scale)
    inside = np.clip(rng.normal(size=n) * scale, lo, hi)
    total = float(inside.sum())
    point = centre(alpha, lo, hi, total)
    assert np.all(point >= lo)
    assert np.all(point <= hi)
    assert abs(point.sum() - total) <= 1e-13 * (
        np.abs(point).sum() + abs(total) + np.abs(alpha).max()
    )
    # Nearest: no feasible point lies at an acute angle.
    for other in (inside, centre(rng.normal(size=n) * scale, lo, hi, total)):
        assert (alpha - point) @ (other - point) <= 1e-10 * scale**2 * n


def test_centre_leaves_a_feasible_point_alone() -> None:
    alpha = np.array([0.3, -0.1, -0.2])
    alpha -= alpha.mean()
    found = centre(alpha, -np.ones(3), np.ones(3), 0.0)
    assert np.array_equal(found, alpha)
    assert np.array_equal(centre(found, -np.ones(3), np.ones(3), 0.0), found)


def test_centre_at_the_ends_of_the_box() -> None:
    ones = np.ones(4)
    np.testing.assert_array_equal(centre(np.arange(4.0), 0 * ones, ones, 4.0), ones)
    np.testing.assert_array_equal(centre(np.arange(4.0), 0 * ones, ones, 0.0), 0 * ones)
    np.testing.assert_allclose(centre([5.0, -5.0], [-np.inf] * 2, [np.inf] * 2, 1.0), [5.5, -4.5])
    with pytest.raises(InvalidInputError, match=r"sum 5: .* from 0 to 4"):
        centre(np.zeros(4), 0 * ones, ones, 5.0)


def test_centre_of_a_million() -> None:
    rng = np.random.default_rng(0)
    alpha = rng.normal(size=1_000_000)
    point = centre(alpha, np.full(alpha.shape, -0.5), np.full(alpha.shape, 1.0), 0.0)
    assert abs(point.sum()) < 1e-8
