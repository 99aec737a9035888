"""The same problem written in another way has the same answer, and the same certificate.

Other units (kernels, loss weights, targets), other orders of samples and kernels, a kernel given
twice, a sample split in two of half the weight: decision values, weights and the objective in its
units agree to what the tolerance allows, and so does `converged`. ``KERNELWEAVE_HARD=full`` takes
every loss with every regularizer, every solver and more units.
"""

from __future__ import annotations

import warnings
from copy import copy
from dataclasses import replace

import numpy as np
import pytest
from hard_problems import FULL
from sklearn.exceptions import ConvergenceWarning
from thinned import thinned

from kernelweave.bank import DenseBank
from kernelweave.combine import Product, WeightedSum
from kernelweave.errors import InvalidInputError
from kernelweave.losses import get_loss
from kernelweave.operators import DistanceOperator
from kernelweave.problem import Problem
from kernelweave.regularizers import (
    L1,
    BlockNorm,
    ElasticNet,
    Entropy,
    LogDet,
    LpBall,
    Simplex,
    SquaredLp,
)
from kernelweave.solvers import SOLVERS, Limits, solve

TOL = 1e-5
LIMITS = Limits(tol=TOL, max_iter=3000)
N = 40
CLASSIFICATION = ["hinge", "squared_hinge", "logistic", "smooth_hinge"]
REGRESSION = ["squared", "epsilon_insensitive"]
REGULARIZERS = [
    Simplex(),
    L1(0.7),
    LpBall(2.0),
    SquaredLp(2.0, 0.5),
    ElasticNet(0.5),
    BlockNorm(groups=[0, 0, 1, 1, 2, 2]),
    Entropy(0.5),
]
WITHOUT_A_BOUND = [L1(0.7), SquaredLp(2.0, 0.5), ElasticNet(0.5, 0.0), REGULARIZERS[5]]
LEARNING = ["active-set", "silp", "silp-chunking", "spg", "spicy", "mwu"]
UNITS = [1e-9, 1e-4, 3.0, 1e4, 1e9] if FULL else [1e-9, 1e9]


def matrices():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(N, 4))
    X[:, 3] *= 0.1

    def rbf(columns, width):
        Z = X[:, columns]
        return np.exp(-np.sum((Z[:, None] - Z) ** 2, axis=2) / (2 * width**2))

    wide = [rbf([0, 1, 2], 0.5), rbf([0, 1, 2], 2.0), rbf([0], 1.0), rbf([1], 1.0)]
    return X, [*wide, X @ X.T, (1.0 + X @ X.T) ** 2 / 5.0]


def problem_of(name, regularizer, C=1.0):
    X, Ks = matrices()
    loss = get_loss(name)
    y = X[:, 0] + np.sin(2 * X[:, 1]) + 0.2 * np.random.default_rng(4).normal(size=N)
    weight = C * np.random.default_rng(5).uniform(0.5, 2.0, size=(1, N))
    if loss.task == "classification":
        y = np.sign(y)
    if loss.task == "one_class":
        y, weight = np.ones(N), np.full((1, N), 1.0 / (0.4 * N))
    return Problem(DenseBank().from_matrices(Ks), y[None], weight, loss, regularizer, WeightedSum())


def at_price(regularizer, factor):
    """The regularizer with `factor` times the price; the indicator of a set has none."""
    other = copy(regularizer)
    if hasattr(other, "weight"):
        other.weight = factor * other.weight
    return other


def matrices_of(bank):
    return [np.array(K) for K in bank.block(np.arange(bank.n))]


def scaled_kernels(problem, t):
    """Kernels times t; alpha is divided by t, and so is the objective. (Not of one class.)"""
    Ks = [t * K for K in matrices_of(problem.bank)]
    scaled = replace(problem, bank=DenseBank().from_matrices(Ks))
    if problem.loss.task == "one_class":
        return scaled.with_regularizer(at_price(problem.regularizer, t)), t
    scaled = scaled.with_regularizer(at_price(problem.regularizer, 1.0 / t))
    return replace(scaled, C=problem.C / t), 1.0 / t


def scaled_targets(problem, t):
    """Targets times t, and with them decision values and alpha."""
    loss, C = problem.loss, problem.C
    if loss.name == "epsilon_insensitive":
        loss, C = type(loss)(epsilon=t * loss.epsilon), t * C
    other = replace(problem, y=t * problem.y, C=C, loss=loss)
    return other.with_regularizer(at_price(problem.regularizer, t**2)), t**2


def scaled_weights(problem, t):
    """Kernels times t under a regularizer of d that is the given one of t d."""
    Ks = [t * K for K in matrices_of(problem.bank)]
    degree = 2 if isinstance(problem.regularizer, SquaredLp | ElasticNet) else 1
    other = replace(problem, bank=DenseBank().from_matrices(Ks))
    return other.with_regularizer(at_price(problem.regularizer, t**degree))


def fit(problem, solver):
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        return solve(problem, SOLVERS[solver](), LIMITS)


def values(problem, result):
    gram = problem.combination.matrix(problem.bank, result.d)
    return result.alpha @ gram + result.intercept[:, None]


def assert_same(problem, result, other, twin, objective=1.0, decision=1.0, d=None, rows=None):
    """Compare `result` of `problem` with `twin` of `other`, `d` and `rows` being the twin's."""
    assert result.converged and twin.converged, (result.certificate, twin.certificate)
    assert twin.certificate.gap <= TOL
    primal, dual = twin.certificate.primal / objective, twin.certificate.dual / objective
    # Two brackets of the same optimum overlap; at a stationary point there is no bracket.
    room = (1e-9 if problem.convex else TOL) * abs(result.certificate.primal)
    assert dual <= result.certificate.primal + room
    assert result.certificate.dual <= primal + room
    here, there = values(problem, result), values(other, twin) / decision
    there = there if rows is None else there[:, rows]
    room = 30 * np.sqrt(TOL) * np.ptp(here)
    np.testing.assert_allclose(there, here, rtol=0, atol=room)
    d = twin.d if d is None else d
    np.testing.assert_allclose(d, result.d, rtol=0, atol=50 * np.sqrt(TOL) * result.d.max())


def takes(name, regularizer, solver):
    try:
        SOLVERS[solver]().prepare(problem_of(name, regularizer).bound())
    except InvalidInputError:
        return False
    return name != "one_class" or regularizer.bounded


def cases(keep, names=(*CLASSIFICATION, *REGRESSION, "one_class"), regularizers=REGULARIZERS):
    every = thinned(names, regularizers, LEARNING, keep=1 if FULL else keep)
    return [case for case in every if takes(*case)]


@pytest.mark.parametrize(("name", "regularizer", "solver"), cases(3), ids=str)
def test_kernels_in_other_units(name, regularizer, solver):
    problem = problem_of(name, regularizer)
    result = fit(problem, solver)
    for t in UNITS:
        other, objective = scaled_kernels(problem, t)
        decision = t if name == "one_class" else 1.0
        assert_same(problem, result, other, fit(other, solver), objective, decision)


@pytest.mark.parametrize(("name", "regularizer", "solver"), cases(2, REGRESSION), ids=str)
def test_targets_in_other_units(name, regularizer, solver):
    problem = problem_of(name, regularizer)
    result = fit(problem, solver)
    for t in UNITS:
        other, objective = scaled_targets(problem, t)
        assert_same(problem, result, other, fit(other, solver), objective, t)


@pytest.mark.parametrize(
    ("name", "regularizer", "solver"), cases(2, regularizers=WITHOUT_A_BOUND), ids=str
)
def test_weights_in_other_units(name, regularizer, solver):
    """Nothing bounds them, so they have the size that the price and the kernels give them."""
    problem = problem_of(name, regularizer)
    result = fit(problem, solver)
    for t in UNITS:
        other = scaled_weights(problem, t)
        twin = fit(other, solver)
        assert_same(problem, result, other, twin, d=t * twin.d)


@pytest.mark.parametrize(("name", "regularizer", "solver"), cases(4), ids=str)
def test_samples_and_kernels_in_another_order(name, regularizer, solver):
    problem = problem_of(name, regularizer)
    rng = np.random.default_rng(0)
    order, places = rng.permutation(problem.m), rng.permutation(N)
    if isinstance(regularizer, BlockNorm):
        order = np.arange(problem.m)
    Ks = [K[np.ix_(places, places)] for K in matrices_of(problem.bank)]
    other = replace(
        problem,
        bank=DenseBank().from_matrices([Ks[k] for k in order]),
        y=problem.y[:, places],
        C=problem.C[:, places],
    )
    result, twin = fit(problem, solver), fit(other, solver)
    d = np.empty_like(twin.d)
    d[order] = twin.d
    assert_same(problem, result, other, twin, d=d, rows=np.argsort(places))


@pytest.mark.parametrize(
    ("name", "regularizer", "solver"), cases(3, regularizers=[Simplex(), L1(0.7)]), ids=str
)
def test_a_kernel_given_twice(name, regularizer, solver):
    problem = problem_of(name, regularizer)
    Ks = matrices_of(problem.bank)
    other = replace(problem, bank=DenseBank().from_matrices([*Ks, Ks[1]]))
    result, twin = fit(problem, solver), fit(other, solver)
    d = twin.d[:-1].copy()
    d[1] += twin.d[-1]
    assert_same(problem, result, other, twin, d=d)


@pytest.mark.parametrize(("name", "regularizer", "solver"), cases(4), ids=str)
def test_a_sample_split_in_two(name, regularizer, solver):
    problem = problem_of(name, regularizer)
    twice = np.append(np.arange(N), 7)
    Ks = [K[np.ix_(twice, twice)] for K in matrices_of(problem.bank)]
    C = problem.C[:, twice].copy()
    C[:, [7, -1]] *= 0.5
    other = replace(problem, bank=DenseBank().from_matrices(Ks), y=problem.y[:, twice], C=C)
    result, twin = fit(problem, solver), fit(other, solver)
    assert_same(problem, result, other, twin, rows=np.arange(N))


# Without a duality gap


@pytest.mark.parametrize("solver", ["spg", "pgd"] if FULL else ["spg"])
@pytest.mark.parametrize("regularizer", [L1(0.3), SquaredLp(2.0, 0.3), Simplex()], ids=repr)
@pytest.mark.parametrize("name", REGRESSION)
def test_products_in_other_units_of_the_targets(name, regularizer, solver):
    X, _ = matrices()
    bank = DistanceOperator.build("default", X, normalize=None).keep()
    plain = problem_of(name, regularizer)
    problem = replace(plain, bank=bank, combination=Product())
    result = fit(problem, solver)
    assert result.certificate.kind == "projected_gradient"
    for t in UNITS:
        other, objective = scaled_targets(problem, t)
        assert_same(problem, result, other, fit(other, solver), objective, t)


@pytest.mark.parametrize("name", ["hinge", "squared"])
def test_the_log_det_in_other_units(name):
    problem = problem_of(name, LogDet(0.5))
    result = fit(problem, "spg")
    for t in UNITS:
        other, objective = scaled_kernels(problem, t)
        other = other.with_regularizer(LogDet(0.5 / t, ridge=problem.regularizer.ridge * t))
        assert_same(problem, result, other, fit(other, "spg"), objective)


# What was wrong


def test_a_small_objective_is_not_a_small_gap():
    problem, _ = scaled_kernels(problem_of("hinge", Simplex()), 1e9)
    rough = solve(problem, SOLVERS["spg"](), Limits(tol=10.0))
    assert rough.certificate.primal < 1e-6
    certificate = rough.certificate
    true = (certificate.primal - certificate.dual) / certificate.primal
    assert certificate.gap == pytest.approx(true, rel=1e-12)
    assert certificate.gap > 1e-3


@pytest.mark.parametrize("value", [0.0, 3.0, -1e9, 1e-200])
@pytest.mark.parametrize("name", REGRESSION)
def test_an_optimum_of_zero_is_called_zero(name, value):
    problem = problem_of(name, Simplex())
    problem = replace(problem, y=np.full_like(problem.y, value))
    result = fit(problem, "spg")
    assert result.converged and result.certificate.gap == 0.0
    assert abs(result.certificate.primal) <= result.certificate.floor
