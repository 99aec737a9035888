"""Every registered combination keeps the promises of `Combination`."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from sklearn.base import clone

from kernelweave.bank import DenseBank, build_bank
from kernelweave.combine import (
    Combination,
    PolynomialMixture,
    Product,
    WeightedSum,
    get_combination,
)
from kernelweave.compiled.threads import use_threads
from kernelweave.errors import InvalidInputError, UnknownNameError
from kernelweave.kernels import Polynomial
from kernelweave.losses import get_loss
from kernelweave.operators import ComputedOperator
from kernelweave.problem import Problem
from kernelweave.regularizers import L1
from kernelweave.solvers import recompute
from kernelweave.solvers.certificate import smooth_gradient
from kernelweave.solvers.inner import Evaluator

N, M = 30, 4
COMBINATIONS = [c for name in Combination.names() for c in Combination.registry[name].examples()]
every_combination = pytest.mark.parametrize("combination", COMBINATIONS, ids=repr)


def base_matrices(combination, n=N):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, M))
    if combination.base == "distances":
        return [np.subtract.outer(x, x) ** 2 for x in X.T]
    return [A @ A.T / A.shape[1] for A in (rng.normal(size=(n, r)) for r in (1, 3, 6, 40))]


def bank_of(combination, n=N):
    return DenseBank().from_matrices(base_matrices(combination, n))


def dense_derivative(combination, bank, d, k):
    step = 1e-6
    up, down = d.copy(), d.copy()
    up[k] += step
    down[k] -= step
    return (combination.matrix(bank, up) - combination.matrix(bank, down)) / (2 * step)


D = np.array([0.3, 0.0, 0.7, 0.2])


@every_combination
def test_the_matrix_is_a_kernel_and_tiles_are_its_parts(combination):
    bank = bank_of(combination)
    K = combination.matrix(bank, D)
    np.testing.assert_array_equal(K, K.T)
    assert np.linalg.eigvalsh(K).min() > -1e-10 * np.abs(K).max()
    rows, columns = np.array([3, 17, 4]), np.array([0, 29])
    np.testing.assert_allclose(
        combination.values(bank.part(rows, columns), D), K[rows][:, columns], rtol=1e-12
    )


@every_combination
def test_the_derivative_is_that_of_the_matrix(combination):
    bank = bank_of(combination)
    d = D + 0.1
    rng = np.random.default_rng(1)
    W = rng.normal(size=(N, N))
    W = W + W.T
    alpha = rng.normal(size=(2, N)) * (rng.random(N) < 0.5)
    slopes = [dense_derivative(combination, bank, d, k) for k in range(M)]
    expected = np.array([np.sum(W * slope) for slope in slopes])
    np.testing.assert_allclose(combination.contract(bank, d, W), expected, rtol=1e-6, atol=1e-6)
    quad = np.array([np.einsum("ti,ij,tj", alpha, slope, alpha) for slope in slopes])
    np.testing.assert_allclose(
        combination.derivative_quad(bank, d, alpha), quad, rtol=1e-6, atol=1e-6
    )
    fitted, again = combination.evaluate(bank, d, alpha)
    np.testing.assert_allclose(fitted, alpha @ combination.matrix(bank, d), atol=1e-10)
    np.testing.assert_allclose(again, quad, rtol=1e-6, atol=1e-6)


@every_combination
def test_shares_sum_to_what_the_weights_have_gained(combination):
    bank = bank_of(combination)
    tile = bank.part(np.arange(7), np.arange(5, N))
    coef = np.random.default_rng(3).normal(size=(2, N - 5))
    gained = combination.values(tile, D) - combination.at_zero(tile)
    used = np.flatnonzero(D)
    shares = combination.shares(tile, D, coef, used)
    assert shares.shape == (len(used), 7, 2)
    np.testing.assert_allclose(shares.sum(axis=0), gained @ coef.T, rtol=1e-12, atol=1e-13)
    assert np.ptp(combination.at_zero(tile)) == 0.0  # the same for all pairs: a baseline
    # What a combination that says nothing of it gets is the same formula.
    own = combination.mean_slope(tile, D)
    S = tile.weighted(D)
    slope = Combination.mean_slope(combination, tile, D)[S != 0]
    np.testing.assert_allclose(slope, 1.0 if own is None else own[S != 0], rtol=1e-9)


@every_combination
def test_shares_of_more_kernels_than_are_held_at_a_time(combination):
    bank = bank_of(combination, 1200)
    coef = np.random.default_rng(3).normal(size=(1, 1200))
    d, some = D + 0.1, np.array([3, 900])
    shares = combination.shares(bank.part(), d, coef, np.arange(M))
    few = combination.shares(bank.part(some), d, coef, np.arange(M))
    np.testing.assert_allclose(shares[:, some], few, rtol=1e-9, atol=1e-9 * np.abs(few).max())


@every_combination
def test_shares_are_those_of_weights_that_grow_together(combination):
    """Aumann and Shapley: the integral of d_k dK/dd_k along t d, here by quadrature."""
    bank = bank_of(combination)
    rows, columns = np.array([2, 11]), np.array([2, 7, 29])  # a pair of equal samples among them
    tile = bank.part(rows, columns)
    coef = np.array([[0.5, -1.0, 2.0]])
    shares = combination.shares(tile, D, coef, np.arange(M))
    nodes, weights = np.polynomial.legendre.leggauss(40)
    for i in range(len(rows)):
        m_i = np.zeros((len(rows), len(columns)))
        m_i[i] = coef[0]
        slopes = [combination.derivative(tile, t * D, m_i) for t in 0.5 * (nodes + 1.0)]
        np.testing.assert_allclose(shares[:, i, 0], D * (0.5 * weights @ slopes), atol=1e-9)


@every_combination
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_gram_answers_the_same_formed_or_not(combination, dtype):
    bank = bank_of(combination)
    K = combination.matrix(bank, D)
    atol = (1e-12 if dtype is np.float64 else 1e-5) * np.abs(K).max() * N
    idx, delta = np.array([2, 11, 28]), np.array([1.0, -3.0, 0.5])
    grams = [combination.gram(bank, D, dtype)]
    grams.append(combination.gram(bank, D, dtype, reuse=combination.gram(bank, D + 1.0, dtype)))
    bank.matrix_limit = 10
    bank.cache_mb = 5 * N * 8 / 1e6  # five rows: some are thrown out and computed again
    grams.append(combination.gram(bank, D, dtype))
    grams.append(combination.gram(bank, D, dtype, reuse=combination.gram(bank, D + 1.0, dtype)))
    for formed, gram in zip((True, True, False, False), grams, strict=True):
        assert (gram.dense() is not None) == formed
        assert gram.n == N
        np.testing.assert_allclose(gram.diagonal(), K.diagonal(), atol=atol)
        np.testing.assert_allclose(gram.block(idx), K[np.ix_(idx, idx)], atol=atol)
        for _ in range(2):
            np.testing.assert_allclose(gram.product(idx, delta), K[:, idx] @ delta, atol=atol)
        many = np.arange(N)
        np.testing.assert_allclose(gram.product(many, many * 1.0), K @ many, atol=N * atol)


@every_combination
@pytest.mark.parametrize("loss", ["hinge", "logistic"])
def test_the_gradient_of_the_objective(combination, loss):
    """Danskin (SPG-GMKL eq. 4): the derivative of T is that of its inner maximum."""
    bank = bank_of(combination)
    rng = np.random.default_rng(2)
    y = np.where(rng.random((1, N)) < 0.5, 1.0, -1.0)
    problem = Problem(bank, y, np.full((1, N), 0.7), get_loss(loss), L1(0.3), combination)
    d = D + 0.2

    def objective(d):
        return Evaluator(problem).evaluate(d, 1e-12)

    point = objective(d)
    gradient = smooth_gradient(problem, d, Evaluator(problem).quad(point))
    for k in range(M):
        unit = np.zeros(M)
        unit[k] = 1e-5
        numeric = (objective(d + unit).value - objective(d - unit).value) / 2e-5
        assert gradient[k] == pytest.approx(numeric, rel=1e-3, abs=1e-4)


@every_combination
def test_the_same_bits_on_any_number_of_threads(combination):
    bank = bank_of(combination, n=700)
    alpha = np.random.default_rng(3).normal(size=(1, 700))
    answers = []
    for n_jobs in (1, 2):
        with use_threads(n_jobs):
            K = combination.matrix(bank, D)
            answers.append((K, *combination.evaluate(bank, D, alpha)))
    for one, two in zip(*answers, strict=True):
        np.testing.assert_array_equal(one, two)


def test_a_stationary_point_is_certified_as_one():
    """One weight: the minimum of T along a line, found by a search, has a gap near zero."""
    from scipy.optimize import minimize_scalar

    combination = Product()
    rng = np.random.default_rng(4)
    x = rng.normal(size=N)
    bank = DenseBank().from_matrices([np.subtract.outer(x, x) ** 2])
    y = np.where(np.abs(x) > 0.7, 1.0, -1.0)[None]
    problem = Problem(bank, y, np.full((1, N), 5.0), get_loss("hinge"), L1(1.0), combination)

    def objective(d):
        return Evaluator(problem).evaluate(np.array([d]), 1e-12).value

    best = minimize_scalar(objective, bounds=(0.05, 20.0), options={"xatol": 1e-10}).x
    for d, stationary in ((best, True), (0.5 * best, False), (2.0 * best, False)):
        point = Evaluator(problem).evaluate(np.array([d]), 1e-12)
        certificate, _ = recompute(problem, point.d, point.alpha, point.intercept)
        assert certificate.kind == "projected_gradient"
        assert certificate.dual <= certificate.primal
        assert (certificate.gap < 1e-4) == stationary


@every_combination
def test_value_semantics(combination):
    assert clone(combination) == combination
    assert pickle.loads(pickle.dumps(combination)) == combination
    assert get_combination(combination) is combination


def test_names_and_bad_input():
    assert {"sum", "product", "polynomial_mixture"} <= set(Combination.names())
    assert get_combination("product") == Product()
    assert get_combination("sum") == WeightedSum()
    with pytest.raises(UnknownNameError, match="unknown combination 'prodct'; did you mean"):
        get_combination("prodct")
    with pytest.raises(InvalidInputError, match="combination must be a name or a Combination"):
        get_combination(3)
    bank = bank_of(WeightedSum())
    for bad in ((), (0.0, 0.0), (1.0, -1.0), (np.nan,), ((1.0,),)):
        with pytest.raises(InvalidInputError, match="coefficients of PolynomialMixture"):
            PolynomialMixture(bad).matrix(bank, D)


def test_rows_of_a_sum_beyond_float32_are_kept_in_float64():
    """In float32 the squares would be infinite already on the way."""
    X = 1e12 * np.random.default_rng(0).normal(size=(N, 2))
    kernels = ComputedOperator.build([Polynomial(2).on(0), Polynomial(2).on(1)], X, normalize=None)
    bank = build_bank("lazy", kernels, tol=1e-2)
    bank.matrix_limit = 10
    gram = WeightedSum().gram(bank, np.array([1.0, 0.5]), np.float32)
    found = gram.product(np.array([3, 5]), np.array([1.0, -1.0]))
    K = kernels.weighted(np.array([1.0, 0.5]))
    assert gram.dense() is None
    np.testing.assert_allclose(found, K[3] - K[5], rtol=1e-12)
