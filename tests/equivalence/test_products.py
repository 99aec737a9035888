"""Products of kernels: stationary, never worse than plain descent, and the features found."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.metrics import pairwise_distances
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.preprocessing import StandardScaler
from thinned import thinned

from kernelweave import MKLClassifier, MKLRegressor, sample_ids
from kernelweave.combine import Combination, PolynomialMixture, Product
from kernelweave.errors import InvalidInputError
from kernelweave.kernels import RBF, Distance, Linear
from kernelweave.losses import get_loss
from kernelweave.operators import DistanceOperator
from kernelweave.problem import Problem
from kernelweave.regularizers import L1, LogDet, LpBall, Simplex, SquaredLp
from kernelweave.solvers import PGD, SPG, Limits, solve
from kernelweave.solvers.inner import Evaluator


def relevant_features(n=150, p=12, seed=0):
    """The class depends on the first three features only, and not linearly."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    y = np.where(X[:, 0] ** 2 + X[:, 1] ** 2 + X[:, 2] ** 2 > 2.4, 1.0, -1.0)
    return X, y


def product_problem(X, y, regularizer, loss="hinge", C=5.0):
    bank = DistanceOperator.build("features", X).keep()
    y, C = np.atleast_2d(y), np.full(np.atleast_2d(y).shape, C)
    return Problem(bank, y, C, get_loss(loss), regularizer, Product())


@pytest.mark.parametrize(
    ("regularizer", "loss"),
    thinned([L1(0.5), SquaredLp(1.33, 0.5), Simplex()], ["hinge", "squared_hinge", "logistic"]),
    ids=repr,
)
def test_a_stationary_point_not_above_plain_descent(loss, regularizer):
    X, y = relevant_features(n=50, p=5)
    problem = product_problem(X, y, regularizer, loss)
    ours = solve(problem, SPG(), Limits(tol=1e-4))
    assert ours.converged
    assert ours.certificate.kind == "projected_gradient"
    plain = Limits(tol=1e-4, max_iter=100, callbacks=[lambda record: record.iteration >= 100])
    theirs = solve(problem, PGD(), plain)
    assert ours.certificate.primal <= theirs.certificate.primal * (1 + 1e-3)


def test_no_allowed_step_lowers_the_objective():
    X, y = relevant_features(n=80, p=6)
    problem = product_problem(X, y, L1(0.5))
    result = solve(problem, SPG(), Limits(tol=1e-5))
    evaluator = Evaluator(problem)
    here = evaluator.evaluate(result.d, 1e-10).value
    assert here == pytest.approx(result.certificate.primal, rel=1e-4)
    rng = np.random.default_rng(0)
    for _ in range(20):
        d = np.maximum(result.d + 1e-3 * rng.normal(size=len(result.d)), 0.0)
        assert evaluator.evaluate(d, 1e-10).value >= here - 1e-6 * abs(here)


def test_l1_products_find_the_relevant_features():
    X, y = relevant_features(n=200)
    model = MKLClassifier(combination="product", regularizer=L1(10.0), C=0.3).fit(X, y)
    assert model.converged_
    assert model.weights_[:3].min() > 0.1
    assert model.weights_[3:].max() < 0.05 * model.weights_[:3].min()
    assert np.count_nonzero(model.weights_[3:]) <= 2
    everything = MKLClassifier(RBF(gamma=1 / X.shape[1]), C=0.3).fit(X, y)
    X_new, y_new = relevant_features(n=600, seed=1)
    assert model.score(X_new, y_new) > everything.score(X_new, y_new) + 0.05


def test_decision_values_are_those_of_the_combined_kernel():
    X, y = load_breast_cancer(return_X_y=True)
    train, test = np.arange(0, 569, 3), np.arange(1, 569, 3)
    model = MKLClassifier(combination="product", regularizer="l1").fit(X[train], y[train])
    scaler = StandardScaler().fit(X[train])
    Z, Z_new = scaler.transform(X[train]), scaler.transform(X[test])
    root = np.sqrt(model.weights_)
    K = np.exp(-pairwise_distances(Z_new * root, Z * root, metric="sqeuclidean"))
    np.testing.assert_allclose(model.combined_kernel(X[test], X[train]), K, atol=1e-9)
    np.testing.assert_allclose(model.transform(X[test]), K, atol=1e-9)
    decision = K[:, model.support_] @ model.dual_coef_[0] + model.intercept_
    np.testing.assert_allclose(model.decision_function(X[test]), decision, atol=1e-9)
    assert model.kernel_names_[0] == "column 0"


def test_large_n_needs_no_matrix():
    """Rows on demand give the same fit as a matrix."""
    X, y = relevant_features(n=150, p=5)
    fits = []
    for limit in (1000, 50):
        problem = product_problem(X, y, L1(0.5))
        problem.bank.matrix_limit = limit
        problem.bank.cache_mb = 0.1
        fits.append(solve(problem, SPG(), Limits(tol=1e-4)))
    np.testing.assert_allclose(fits[0].d, fits[1].d, atol=2e-2 * fits[0].d.max())
    assert fits[1].certificate.primal == pytest.approx(fits[0].certificate.primal, rel=1e-3)


def test_given_distances_and_grid_search():
    X, y = load_iris(return_X_y=True)
    D = [pairwise_distances(X[:, [j]]) for j in range(4)]
    kernels = [Distance(matrix, name=f"d{j}") for j, matrix in enumerate(D)]
    model = MKLClassifier(kernels, combination="product", regularizer="l1")
    search = GridSearchCV(model, {"C": [0.1, 10.0]}, cv=3).fit(sample_ids(len(y)), y)
    assert search.best_score_ > 0.9
    best = search.best_estimator_
    assert best.kernel_names_ == ["d0", "d1", "d2", "d3"]
    K = np.exp(-np.tensordot(best.weights_, [d / d.mean() for d in D], axes=1))
    np.testing.assert_allclose(best.combined_kernel(sample_ids(len(y))), K, atol=1e-6)


@pytest.mark.parametrize("loss", ["squared", "epsilon_insensitive"])
def test_regression(loss):
    X, y = load_diabetes(return_X_y=True)
    y = (y - y.mean()) / y.std()
    model = MKLRegressor(combination="product", regularizer=L1(10.0), loss=loss, C=0.3)
    assert cross_val_score(model, X, y, cv=3).mean() > 0.4
    model = clone(model).fit(X, y)
    assert model.converged_ and model.gap_kind_ == "projected_gradient"


def test_shared_weights_over_several_classes():
    X, y = load_iris(return_X_y=True)
    model = MKLClassifier(combination="product", regularizer="l1", C=10).fit(X, y)
    assert model.weights_.shape == (4,)
    assert model.dual_coef_.shape[0] == 3
    assert model.score(X, y) > 0.95


def test_an_evidence_like_objective():
    """Squared loss and log det: the log evidence of a Gaussian process, up to constants."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    y = np.sin(2 * X[:, 0]) + 0.1 * rng.normal(size=60)
    kernels = [RBF(gamma=0.5).on(j) for j in range(3)]
    model = MKLRegressor(kernels, loss="squared", regularizer=LogDet(0.5, 0.1), C=5.0)
    model.fit(X, y)
    assert model.gap_kind_ == "projected_gradient"
    assert model.weights_[0] > 10 * max(model.weights_[1:].max(), 1e-12)


@pytest.mark.parametrize("regularizer", [LpBall(2.0), Simplex()], ids=repr)
def test_a_mixture_of_polynomials_holds_products_of_kernels(regularizer):
    """An interaction of two columns is out of reach for a sum of kernels on single columns."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    y = np.where(X[:, 0] * X[:, 1] > 0, 1, -1)
    kernels = [Linear().on(j) for j in range(3)]
    split = slice(0, 100), slice(100, 200)
    scores = {}
    for combination in ("sum", PolynomialMixture((1.0, 1.0))):
        model = MKLClassifier(
            kernels, combination=combination, regularizer=regularizer, C=10.0, max_iter=5000
        ).fit(X[split[0]], y[split[0]])
        scores[str(combination)] = model.score(X[split[1]], y[split[1]])
    assert scores["sum"] < 0.7 < 0.85 < scores["PolynomialMixture(coefficients=(1.0, 1.0))"]


def test_a_plug_in_combination_is_two_functions():
    class Squared(Combination):
        """K(d) = sum_k d_k^2 K_k."""

        def values(self, tile, d):
            return tile.weighted(d**2)

        def derivative(self, tile, d, M):
            return 2 * d * tile.contract(M)

    X, y = load_iris(return_X_y=True)
    model = MKLClassifier(combination=Squared(), regularizer="lp_ball").fit(X, y)
    assert model.converged_
    assert model.score(X, y) > 0.9


def test_bad_input():
    X, y = load_iris(return_X_y=True)
    with pytest.raises(InvalidInputError, match="linear"):
        MKLClassifier([RBF(width=1.0), Linear()], combination="product").fit(X, y)
    with pytest.raises(InvalidInputError, match="center"):
        MKLClassifier(combination="product", normalize="center").fit(X, y)
    with pytest.raises(InvalidInputError, match=r"bank must be 'auto' or 'lazy'; got 'dense'"):
        MKLClassifier(combination="product", bank="dense").fit(X, y)
    with pytest.raises(InvalidInputError, match=r"active-set.*sums of kernels"):
        MKLClassifier(combination="product", solver="active-set").fit(X, y)
