"""A loss of three methods, value, gradient and conjugate, trains like one with all formulas."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from dense_gram import DenseGram
from own_losses import (
    Absolute,
    Exponential,
    FullHuber,
    Huber,
    LogCosh,
    Poisson,
    Quartic,
    SmoothQuantile,
)
from scipy.special import expit
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from thinned import thinned

from kernelweave import MKLClassifier, MKLRegressor
from kernelweave.bank import build_bank
from kernelweave.combine import WeightedSum
from kernelweave.errors import InvalidInputError
from kernelweave.kernels import simplemkl_family
from kernelweave.losses import Hinge, Logistic, Loss, Squared, check_loss, get_loss
from kernelweave.losses.numeric import gradient_limits, jump_of, point_of_slope, slope_of
from kernelweave.operators import ComputedOperator
from kernelweave.problem import Problem
from kernelweave.regularizers import L1, ElasticNet, LpBall, Simplex
from kernelweave.solvers.certificate import Screening
from kernelweave.solvers.newton import solve_smooth

SMOOTH = [loss for cls in Loss.registry.values() for loss in cls.examples() if loss.smooth]


def three_methods(loss: Loss) -> Loss:
    """The same loss, and nothing known of it but three methods."""
    methods = {
        "task": loss.task,
        "value": lambda self, y, z, C: loss.value(y, z, C),
        "gradient": lambda self, y, z, C: loss.gradient(y, z, C),
        "conjugate": lambda self, y, alpha, C: loss.conjugate(y, alpha, C),
    }
    return type("Only" + type(loss).__name__, (Loss,), methods)()


REGRESSION = [Huber(0.5), LogCosh(), SmoothQuantile(), Quartic(), Poisson()]


@pytest.fixture(scope="module")
def numbers():
    """Regression with outliers."""
    X, y = load_diabetes(return_X_y=True)
    y = (y - y.mean()) / y.std()
    y[::9] += 5.0
    return X[:80, :3], y[:80]


@pytest.fixture(scope="module")
def classes():
    X, y = load_breast_cancer(return_X_y=True)
    return X[::7, :3], y[::7]


def data(loss: Loss, scale: float = 1.0, n: int = 300):
    rng = np.random.default_rng(0)
    y = rng.choice([-1.0, 1.0], n) if loss.task == "classification" else scale * rng.normal(size=n)
    z = rng.normal(scale=1.5 if loss.task == "classification" else 1.5 * scale, size=n)
    return y, z, rng.uniform(0.2, 3.0, n)


# The defaults against the formulas


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e6])
@pytest.mark.parametrize("loss", [*SMOOTH, FullHuber(0.5)], ids=repr)
def test_curvature_domain_and_conjugate_gradient(loss: Loss, scale: float) -> None:
    bare = three_methods(loss)
    y, z, C = data(loss, scale)
    np.testing.assert_allclose(
        bare.curvature(y, z, C), loss.curvature(y, z, C), rtol=2e-5, atol=2e-7 * C.max()
    )
    (lo, hi), found = loss.domain(y, C), bare.domain(y, C)
    np.testing.assert_array_equal(found, (lo, hi))
    cut = 3.0 * scale if loss.task == "regression" else 3.0
    lo, hi = np.maximum(lo, -cut), np.minimum(hi, cut)
    alpha = lo + np.random.default_rng(1).uniform(0.05, 0.95, y.shape) * (hi - lo)
    np.testing.assert_allclose(
        bare.conjugate_gradient(y, alpha, C),
        loss.conjugate_gradient(y, alpha, C),
        rtol=1e-12,
        atol=1e-13 * cut,
    )
    assert np.all(np.isinf(bare.lipschitz(C)))


@pytest.mark.parametrize("scale", [1e-12, 1e-6, 1e3, 1e9])
def test_curvature_in_other_units(scale: float) -> None:
    """In the units of the targets a corner is as sharp as in any others."""
    y, z, C = data(Huber(), scale)
    y[:20] = 0.0
    exact = FullHuber(0.5 * scale).curvature(y, z, C)
    np.testing.assert_allclose(Huber(0.5 * scale).curvature(y, z, C), exact, atol=1e-4)


@pytest.mark.parametrize("loss", [*SMOOTH, *REGRESSION, Exponential()], ids=repr)
@pytest.mark.filterwarnings("error")
def test_samples_of_weight_zero(loss: Loss) -> None:
    bare = three_methods(loss)
    y, z, _ = data(loss)
    zero = np.zeros_like(y)
    assert np.all(bare.curvature(y, z, zero) == 0)
    assert np.all(np.array(bare.domain(y, zero)) == 0)
    assert np.all(bare.conjugate_gradient(y, zero, zero) == 0)


def test_a_corner_gives_the_slopes_on_its_sides_and_a_mean_in_it() -> None:
    y, C = np.zeros(5), np.full(5, 2.0)
    z = np.array([0.5 - 1e-7, 0.5 - 1e-9, 0.5, 0.5 + 1e-9, 0.5 + 1e-7])
    found = Huber(0.5).curvature(y, z, C)
    np.testing.assert_allclose(found[[0, 2, 4]], [2.0, 1.0, 0.0], atol=1e-6)
    assert 0.0 < found[3] < 1.0 < found[1] < 2.0


def test_no_slope_is_made_of_rounding() -> None:
    """Far out the logistic gradient is constant to rounding, and its curvature 1e-9 or less."""
    y, z, C = np.ones(200), np.linspace(-40, -20, 200), np.ones(200)
    exact, found = Logistic().curvature(y, z, C), three_methods(Logistic()).curvature(y, z, C)
    assert np.all(np.abs(found - exact) <= 1e-3 * exact + 3e-10)
    assert np.all(slope_of(np.exp, np.array([1e6, np.inf]), 1.0) == 0)


@pytest.mark.parametrize("width", [1e-10, 1e-3, 1.0, 3e5, 1e9])
@pytest.mark.filterwarnings("error")
def test_limits_of_a_gradient(width: float) -> None:
    def check(formula, low, high):
        found = gradient_limits(lambda z: formula(z / width), (1,))
        np.testing.assert_allclose(np.ravel(found), [low, high], rtol=1e-9, atol=1e-9)

    check(np.tanh, -1, 1)
    check(lambda r: r / np.sqrt(1 + r * r), -1, 1)
    check(lambda r: np.clip(r, -2, 3), -2, 3)
    check(lambda r: r, -np.inf, np.inf)
    check(lambda r: np.sign(r) * np.sqrt(np.abs(r)), -np.inf, np.inf)
    check(lambda r: np.sign(r) * np.log1p(np.abs(r)), -np.inf, np.inf)
    check(lambda r: np.exp(r) - 4, -4, np.inf)
    check(lambda r: -1 / (1 + np.maximum(r, 0)), -1, 0)
    # Formulas that break far out: inf / inf, and r / inf = 0.
    check(lambda r: np.exp(r) / (1 + np.exp(r)), 0, 1)
    check(lambda r: r**3 / np.sqrt(1 + r**6), -1, 1)
    check(lambda r: r**9 / np.sqrt(1 + r**18), -1, 1)


def test_point_of_slope_at_every_size_and_beyond_the_range() -> None:
    target = np.array([-1e50, -2.0, -1e-50, 0.0, 1e-9, 3.0, 1e50])
    np.testing.assert_allclose(point_of_slope(lambda z: z, target), target, rtol=1e-14)
    found = point_of_slope(np.tanh, np.array([-1.5, 1.5]))
    np.testing.assert_array_equal(found, [-np.inf, np.inf])
    # Over a jump, and at the end of a flat part.
    assert point_of_slope(lambda z: np.sign(z - 2.5), np.array([0.3])) == pytest.approx(2.5)
    assert point_of_slope(lambda z: np.clip(z - 4, -1, 1), np.array([1.0])) == pytest.approx(5)
    # A formula that is inf / inf for large z.
    naive = point_of_slope(lambda z: np.exp(z) / (1 + np.exp(z)), np.array([0.9]))
    assert naive == pytest.approx(np.log(9))


@pytest.mark.parametrize("place", [-7e5, -1.0, 0.0, 1e-8, 0.1, 33.3])
def test_jumps_are_found_and_steep_slopes_are_none(place: float) -> None:
    centre = np.zeros(2)
    jump = jump_of(lambda z: z / 1e3 + np.sign(z - place), centre)
    assert jump is not None
    assert jump[1] == pytest.approx(place, rel=1e-14, abs=1e-14)
    assert jump[3] - jump[2] >= 0.99
    assert jump_of(lambda z: np.tanh(1e8 * (z - place / 1e6)), centre) is None
    assert jump_of(lambda z: np.maximum(z - place, 0.0), centre) is None
    assert jump_of(lambda z: (z - place) ** 3, centre) is None
    assert jump_of(lambda z: np.exp(z - place), centre) is None
    assert jump_of(lambda z: expit(7.4 * z - place), centre) is None


def test_the_intercept_is_found_from_where_a_gradient_overflows() -> None:
    y, f = np.array([1.0, 1.0, -1.0]), np.array([0.2, -0.1, 0.3])
    loss = Exponential()
    with np.errstate(over="ignore"):
        b = loss.best_intercept(y, f, np.ones(3), -2000.0)
        again = loss.best_intercept(y, f, np.ones(3), 2000.0)
    assert abs(loss.gradient(y, f + b, np.ones(3)).sum()) < 1e-12
    assert again == pytest.approx(b)


# Whole fits


@pytest.mark.parametrize(
    ("loss", "regularizer"),
    thinned(SMOOTH, [Simplex(), LpBall(2.0), ElasticNet(1.0)]),
    ids=repr,
)
def test_a_fit_ends_at_the_same_optimum(loss, regularizer, numbers, classes) -> None:
    solver = "spg" if isinstance(regularizer, LpBall) else "auto"
    regression = loss.task == "regression"
    estimator = MKLRegressor if regression else MKLClassifier
    objectives = []
    for one in (loss, three_methods(loss)):
        model = estimator(
            simplemkl_family(), loss=one, C=3.0, solver=solver, regularizer=regularizer, tol=1e-6
        )
        model.fit(*(numbers if regression else classes))
        assert model.converged_
        objectives.append(model.objective_)
    # Each is within its gap of the optimum.
    assert objectives[1] == pytest.approx(objectives[0], rel=1e-6)


@pytest.mark.parametrize("weight", [1e-6, 1.0, 1e4])
@pytest.mark.parametrize("loss", [*SMOOTH, FullHuber(0.5)], ids=repr)
@pytest.mark.filterwarnings("error")
def test_newton_takes_as_few_steps(loss: Loss, weight: float) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    y = np.sin(X[:, 0]) + 0.3 * rng.normal(size=60)
    y = np.where(y > 0, 1.0, -1.0) if loss.task == "classification" else y
    K = np.exp(-((X[:, None] - X[None]) ** 2).sum(axis=-1) / 4)
    C = weight * rng.uniform(0.2, 3.0, 60)
    exact = solve_smooth(loss, y, C, DenseGram(K), tol=1e-8)
    bare = solve_smooth(three_methods(loss), y, C, DenseGram(K), tol=1e-8)
    assert exact.converged
    assert bare.converged
    assert bare.n_steps <= exact.n_steps + 2


@pytest.mark.filterwarnings("error")
def test_a_warm_start_at_which_the_loss_overflows() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2))
    y, C, K = rng.poisson(np.exp(X[:, 0])).astype(float), np.ones(40), X @ X.T
    cold = solve_smooth(Poisson(), y, C, DenseGram(K), tol=1e-9)
    bad = 1e3 * rng.normal(size=40)
    warm = solve_smooth(Poisson(), y, C, DenseGram(K), tol=1e-9, alpha=bad, intercept=-1e4)
    assert warm.converged
    np.testing.assert_allclose(warm.fitted, cold.fitted, atol=1e-3)


@pytest.mark.parametrize(
    ("loss", "regularizer", "weighted"),
    thinned(REGRESSION, [Simplex(), LpBall(1.5), L1(1.0)], [False, True]),
    ids=repr,
)
def test_other_losses_train_for_regression(loss, regularizer, weighted, numbers) -> None:
    X, y = numbers
    solver = "spg" if isinstance(regularizer, LpBall) else "auto"
    options = {}
    if isinstance(loss, Poisson):
        y = np.floor(2.0 * np.abs(y))
        options["target_scale"] = None
    check_loss(loss, np.unique(y)[:5])
    params = {"sample_weight": np.random.default_rng(0).integers(0, 3, len(y))} if weighted else {}
    model = MKLRegressor(
        simplemkl_family(),
        loss=loss,
        C=3.0,
        solver=solver,
        regularizer=regularizer,
        tol=1e-6,
        **options,
    ).fit(X, y, **params)
    assert model.converged_
    assert -1e-12 <= model.gap_ <= 1e-6


@pytest.mark.parametrize("C", [0.01, 1.0, 100.0])
@pytest.mark.parametrize(("solver", "regularizer"), [("auto", L1(1.0)), ("spg", LpBall(1.5))])
def test_the_exponential_loss_trains(solver, regularizer, C, classes) -> None:
    check_loss(Exponential())
    X, y = classes
    weight = np.random.default_rng(0).integers(0, 3, len(y))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = MKLClassifier(
            simplemkl_family(), loss=Exponential(), C=C, solver=solver, regularizer=regularizer
        ).fit(X, y, sample_weight=weight)
    assert model.converged_
    assert C < 1.0 or model.score(X, y) > 0.85


def test_several_classes() -> None:
    X, y = load_iris(return_X_y=True)
    exact, bare = (
        MKLClassifier(loss=loss, tol=1e-6).fit(X, y)
        for loss in (Logistic(), three_methods(Logistic()))
    )
    assert bare.converged_
    assert bare.objective_ == pytest.approx(exact.objective_, rel=1e-6)


def test_huber_has_the_optimum_of_its_definition(numbers) -> None:
    """As the infimal convolution of |.| and the squared loss: r = s + t, delta |s| + t^2 / 2."""
    import cvxpy as cp

    X, y = numbers
    K = np.exp(-((X[:, None] - X[None]) ** 2).sum(axis=-1) / 0.01)
    found = solve_smooth(Huber(0.5), y, np.full(len(y), 2.0), DenseGram(K), tol=1e-9)
    values, vectors = np.linalg.eigh(K)
    F = vectors * np.sqrt(np.maximum(values, 0.0))
    w, b, s = cp.Variable(len(y)), cp.Variable(), cp.Variable(len(y))
    rest = y - F @ w - b - s
    objective = 2.0 * (0.5 * cp.norm1(s) + cp.sum_squares(rest) / 2) + cp.sum_squares(w) / 2
    expected = cp.Problem(cp.Minimize(objective)).solve(solver="CLARABEL")
    primal = Huber(0.5).value(y, found.fitted + found.intercept, 2.0).sum()
    primal += 0.5 * found.alpha @ found.fitted
    assert primal == pytest.approx(expected, rel=1e-6)


# What cannot be done, and says so


def test_counts_are_not_standardised(numbers) -> None:
    with pytest.raises(InvalidInputError, match=r"Poisson\(\).*target_scale=None"):
        MKLRegressor(loss=Poisson()).fit(numbers[0], np.floor(np.abs(numbers[1])))


def test_no_screening_without_a_lipschitz_constant() -> None:
    X, y = load_diabetes(return_X_y=True)
    bank = build_bank("auto", ComputedOperator.build("simplemkl", X[:50]))
    y, C = y[None, :50], np.ones((1, 50))
    for loss, screened in ((Squared(), True), (three_methods(Squared()), False)):
        problem = Problem(bank, y, C, loss, Simplex(), WeightedSum())
        assert (Screening.for_problem(problem) is not None) == screened


def test_a_kinked_loss_is_refused_at_fit(numbers) -> None:
    with pytest.raises(
        InvalidInputError,
        match=r"gradient of Absolute\(\) jumps from .*z = -1, .* Supported are losses",
    ):
        MKLRegressor(loss=Absolute()).fit(*numbers)
    honest = type("Honest", (Absolute,), {"smooth": False})()
    with pytest.raises(InvalidInputError, match=r"smooth = False but has no box_qp\. Supported"):
        MKLRegressor(loss=honest).fit(*numbers)
    assert get_loss(Hinge()) == Hinge()


def test_a_loss_without_a_task_is_refused() -> None:
    aimless = type("Aimless", (Huber,), {"task": None})()
    with pytest.raises(InvalidInputError, match=r"say what it is for: task = 'classification'"):
        get_loss(aimless)
