"""Estimators on hard days: odd matrices with and without normalisation, odd folds, odd labels."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hard_problems import TROUBLES, draw, hard_settings
from hypothesis import given
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning, FitFailedWarning
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from true_certificate import truth

from kernelweave import (
    BayesianMKLClassifier,
    BayesianMKLRegressor,
    MKLClassifier,
    MKLClassifierCV,
    MKLRegressor,
    sample_ids,
)
from kernelweave.errors import InvalidInputError
from kernelweave.kernels import Linear, from_matrices
from kernelweave.losses import get_loss
from kernelweave.regularizers import Simplex
from kernelweave.solvers import SOLVERS

seeds = st.integers(0, 2**20)
some_troubles = st.lists(st.sampled_from(TROUBLES), max_size=3, unique=True)
# Without the kernels that a normalisation has to refuse.
FULL_KERNELS = [name for name in TROUBLES if name not in ("kinds", "rows")]
few_full = st.lists(st.sampled_from(FULL_KERNELS), max_size=3, unique=True)


def quietly(model, X, y):
    """Fit; returns whether the user was told that the tolerance was not met."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(X, y)
    strange = [w for w in caught if not issubclass(w.category, ConvergenceWarning)]
    assert not strange, [str(w.message) for w in strange]
    return bool(caught)


def check_numbers(model, X):
    names = ["weights_", "dual_coef_", "intercept_", "objective_", "dual_objective_", "gap_"]
    for name in names:
        assert np.all(np.isfinite(getattr(model, name))), name
    decide = getattr(model, "decision_function", model.predict)
    assert np.all(np.isfinite(decide(X)))


def scaled(Ks, normalize):
    return [K / np.diag(K).mean() for K in Ks] if normalize == "trace" else Ks


@pytest.mark.parametrize("normalize", ["trace", None])
@hard_settings(25)
@given(seed=seeds, troubles=few_full, solver=st.sampled_from(["auto", *SOLVERS]))
def test_a_fit_is_what_it_says(normalize, seed, troubles, solver):
    """From the attributes alone: objective, feasible dual variables, decision values."""
    problem = draw(seed, troubles, regularizer=Simplex(), loss="hinge")
    Ks = list(problem.bank.block(np.arange(problem.n)))
    C, X = float(problem.C[0, 0]), sample_ids(problem.n)
    model = MKLClassifier(from_matrices(Ks), C=C, normalize=normalize, solver=solver, max_iter=100)
    warned = quietly(model, X, problem.y[0])
    check_numbers(model, X)
    assert model.converged_ != warned and model.converged_ == (model.gap_ <= model.tol)
    alpha = np.zeros((1, problem.n))
    alpha[:, model.support_] = model.dual_coef_
    # Fixed weights (uniform, align) are another problem: there only the losses are the same.
    regularizer = Simplex()
    if solver in ("uniform", "align"):
        return
    true = truth(
        scaled(Ks, normalize),
        problem.y,
        problem.C,
        get_loss("hinge"),
        regularizer,
        model.weights_,
        alpha,
        model.intercept_,
    )
    # The objective counts what rounding may add, by the diagonals of the kernels: a few times this.
    slack = 4.0 * true.slack + 1e-9 * abs(true.primal)
    assert true.outside <= 1e-12
    assert abs(true.primal - model.objective_) <= slack
    # Cutting planes may know a better bound than that of the alpha they return.
    assert true.dual <= model.objective_ + slack and model.dual_objective_ <= true.primal + slack


@hard_settings(25)
@given(seed=seeds, troubles=some_troubles)
def test_zero_kernels_are_refused_by_name_or_do_no_harm(seed, troubles):
    problem = draw(seed, ["kinds", *troubles], loss="squared")
    Ks = list(problem.bank.block(np.arange(problem.n)))
    names = [f"K{k}" for k in range(len(Ks))]
    X, y = sample_ids(problem.n), problem.y[0]
    model = MKLRegressor(from_matrices(Ks, names=names), loss="squared", max_iter=100)
    zero = [name for name, K in zip(names, Ks, strict=True) if not K.any()]
    if zero:
        with pytest.raises(InvalidInputError, match=f"'{zero[0]}' has mean diagonal 0"):
            model.fit(X, y)
    else:
        quietly(model, X, y)
        check_numbers(model, X)
    quietly(model.set_params(normalize=None), X, y)
    check_numbers(model, X)


SORTED = (np.arange(30) >= 20).astype(int)


def ordered_data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 3))
    X[:, 0] += SORTED
    return X, SORTED


def test_a_fold_of_one_class_is_an_error_that_says_so():
    """The last of three unshuffled folds trains on one class only."""
    X, y = ordered_data()
    message = r"one class only \(.*0.*\); at least two classes are needed"
    with pytest.raises(InvalidInputError, match=message):
        cross_val_score(MKLClassifier(), X, y, cv=KFold(3), error_score="raise")
    with pytest.warns(FitFailedWarning, match="one class only"):
        scores = cross_val_score(MKLClassifier(), X, y, cv=KFold(3))
    assert np.isnan(scores[2]) and np.all(np.isfinite(scores[:2]))
    with pytest.raises(InvalidInputError, match="one class only"):
        GridSearchCV(MKLClassifier(), {"C": [1.0, 10.0]}, cv=KFold(3), error_score="raise").fit(
            X, y
        )
    with pytest.raises(InvalidInputError, match="class"):
        MKLClassifierCV(Cs=3, cv=KFold(3)).fit(X, y)


def test_a_fold_with_constant_targets_is_fitted_by_the_constant():
    X, y = ordered_data()
    scores = cross_val_score(
        MKLRegressor(), X, y.astype(float), cv=KFold(3), scoring="neg_mean_absolute_error"
    )
    assert np.all(np.isfinite(scores)) and scores[2] == pytest.approx(-1.0, abs=0.11)


def test_a_gap_just_above_the_tolerance_is_not_called_converged():
    X, y = ordered_data()
    model = MKLClassifier(from_matrices([np.outer(x, x) for x in X.T]), C=10.0, max_iter=1)
    assert quietly(model, sample_ids(30), y)
    assert model.tol < model.gap_ < 5 * model.tol and not model.converged_


@pytest.mark.parametrize("scale", [1e-12, 1e12])
def test_precomputed_kernels_of_any_size_in_a_grid_search(scale):
    X, y = ordered_data()
    Ks = [scale * np.outer(x, x) for x in X.T]
    model = MKLClassifier(from_matrices(Ks))
    one = MKLClassifier(from_matrices([K / scale for K in Ks]))
    ids, grid = sample_ids(30), {"C": [1e-4, 1.0, 1e2]}
    searches = [GridSearchCV(m, grid, cv=3).fit(ids, y) for m in (model, one)]
    scores = [search.cv_results_["mean_test_score"] for search in searches]
    np.testing.assert_allclose(scores[0], scores[1], atol=0.05)


def test_a_C_beyond_reach_ends_and_says_so():
    """Steps in proportion to C: the weights wait for a machine that no one can train."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 2))
    y = (X[:, 0] + 2.0 * rng.normal(size=30) > 0).astype(int)
    model = MKLClassifier([Linear().on([0]), Linear().on([1])], C=1e9)
    with pytest.warns(ConvergenceWarning, match="too many steps with C this large"):
        model.fit(X, y)
    assert not model.converged_ and np.all(np.isfinite(model.decision_function(X)))
    # Newton's method does not mind.
    smooth = model.set_params(loss="squared_hinge").fit(X, y)
    assert smooth.converged_


@hard_settings(20)
@given(seed=seeds, troubles=some_troubles, normalize=st.sampled_from(["diagonal", None]))
def test_the_bayesian_bound_never_falls(seed, troubles, normalize):
    for loss, estimator in (("hinge", BayesianMKLClassifier), ("squared", BayesianMKLRegressor)):
        problem = draw(seed, troubles, loss)
        Ks = list(problem.bank.block(np.arange(problem.n)))
        X, y = sample_ids(problem.n), problem.y[0]
        model = estimator(from_matrices(Ks), normalize=normalize, max_iter=60, random_state=0)
        if normalize and not all(K.any() for K in Ks):
            with pytest.raises(InvalidInputError, match=r"k\(x, x\) = 0 for all"):
                model.fit(X, y)
            continue
        quietly(model, X, y)
        bounds = np.array([line.lower_bound for line in model.history_])
        assert np.all(np.isfinite(bounds))
        assert np.all(np.diff(bounds) >= -1e-9 * np.maximum(1.0, np.abs(bounds[1:])))
        for name in ("weights_", "weights_std_", "lower_bound_"):
            assert np.all(np.isfinite(getattr(model, name))), name
        predicted = model.predict_proba(X) if loss == "hinge" else model.predict(X)
        assert np.all(np.isfinite(predicted))
