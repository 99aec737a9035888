"""Regression does not depend on the units of y: targets are standardised, answers are not."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.model_selection import KFold
from sklearn.svm import SVR

from kernelweave import Checkpoint, MKLRegressor, MKLRegressorCV, load, save
from kernelweave.errors import InvalidInputError, UnknownNameError
from kernelweave.inspect import summary_text
from kernelweave.kernels import RBF, Linear
from kernelweave.losses import EpsilonInsensitive

KERNELS = [RBF(gamma=0.7), RBF(gamma=0.05), Linear()]
FACTORS = [(1e-9, 0.0), (1e-4, 3.0), (1e9, -5e8), (1.0, 1e6), (-1.0, 0.0), (-2e5, 1e6)]


def same_up_to_units(model, reference, X, factor, shift):
    """Whether a fit to factor * y + shift is the fit to y in other units."""
    size = reference.target_scale_
    # What adding the shift has rounded away of the targets.
    lost = 1e-13 * (1.0 + abs(shift / factor) / size)
    # Solvers may go another way round where all signs change.
    near = 1e-3 if factor < 0 else 1e3 * lost
    back = (model.predict(X) - shift) / factor
    assert_allclose(back, reference.predict(X), rtol=0, atol=10 * near * size)
    assert_allclose(model.weights_, reference.weights_, atol=near)
    assert model.gap_ == pytest.approx(reference.gap_, abs=near)
    assert model.converged_ and reference.converged_
    assert_allclose(model.target_scale_, abs(factor) * size, rtol=10 * lost)


@pytest.mark.parametrize(("factor", "shift"), FACTORS)
@pytest.mark.parametrize("loss", ["epsilon_insensitive", "squared"])
def test_units_and_shifts_change_nothing_else(curve, loss, factor, shift):
    X, y = curve
    reference = MKLRegressor(KERNELS, loss=loss).fit(X, y)
    model = MKLRegressor(KERNELS, loss=loss).fit(X, factor * y + shift)
    same_up_to_units(model, reference, X, factor, shift)
    if factor > 0:
        assert np.array_equal(model.support_, reference.support_)


@pytest.mark.parametrize("size", [1e-200, 1e-100, 1e100, 1e200])
def test_sizes_whose_squares_are_no_numbers(curve, size):
    X, y = curve
    weight = np.linspace(0.5, 2.0, len(y)) * 1e-200
    reference = MKLRegressor(KERNELS, C=1e200).fit(X, y, sample_weight=weight)
    with np.errstate(over="raise", divide="raise", invalid="raise"):
        model = MKLRegressor(KERNELS, C=1e200).fit(X, size * y, sample_weight=weight)
    same_up_to_units(model, reference, X, size, 0.0)
    assert_allclose(model.explain(X[:3]).values / size, reference.explain(X[:3]).values, rtol=1e-6)


def test_small_targets_are_learnt(curve):
    X, y = curve
    model = MKLRegressor(KERNELS).fit(X, 1e-4 * y)
    assert len(model.support_) > 0
    assert model.score(X, 1e-4 * y) > 0.8


@pytest.mark.parametrize("value", [0.0, 0.1, -7e9, 1e200, 1e-200])
def test_constant_targets(curve, value):
    X, _ = curve
    model = MKLRegressor(KERNELS).fit(X, np.full(len(X), value))
    assert model.target_shift_ == value and model.target_scale_ == 1.0
    assert np.array_equal(model.predict(X), np.full(len(X), value))
    assert not len(model.support_) and model.converged_ and model.objective_ == 0.0


def test_targets_that_only_rounding_tells_apart_are_constant(curve):
    X, _ = curve
    y = np.where(X[:, 0] > 0, 0.1 + 0.2, 0.3)
    assert len(set(y)) == 2
    model = MKLRegressor(KERNELS).fit(X, y)
    assert model.target_scale_ == 1.0 and not len(model.support_)
    assert_allclose(model.predict(X), 0.3)
    # A single step in the last digits that can be relied on is not.
    assert MKLRegressor(KERNELS).fit(X, 1e6 + (X[:, 0] > 2.9)).target_scale_ < 0.5


# Weights of samples


def test_weights_count_in_mean_and_deviation(curve):
    X, y = curve
    weight = np.random.default_rng(1).integers(0, 4, len(y)).astype(float)
    model = MKLRegressor(KERNELS, normalize=None, tol=1e-7).fit(X, y, sample_weight=weight)
    mean = np.average(y, weights=weight)
    assert model.target_shift_ == pytest.approx(mean)
    deviation = np.sqrt(np.average((y - mean) ** 2, weights=weight))
    assert model.target_scale_ == pytest.approx(deviation)
    rows = np.repeat(np.arange(len(y)), weight.astype(int))
    repeated = MKLRegressor(KERNELS, normalize=None, tol=1e-7).fit(X[rows], y[rows])
    assert_allclose(model.predict(X), repeated.predict(X), atol=5e-3)
    assert model.objective_ == pytest.approx(repeated.objective_, rel=1e-6)


def test_targets_without_weight_count_nowhere(curve):
    X, y = curve
    weight = np.where(np.arange(len(y)) % 5 == 0, 0.0, 1.0)
    reference = MKLRegressor(KERNELS).fit(X, y, sample_weight=weight)
    other = MKLRegressor(KERNELS).fit(X, np.where(weight > 0, y, 1e250), sample_weight=weight)
    assert_allclose(other.predict(X), reference.predict(X))
    assert other.target_scale_ == pytest.approx(reference.target_scale_)


# What the numbers mean


def test_C_and_epsilon_refer_to_the_standardised_targets(curve):
    X, y = curve
    y = 50.0 + 20.0 * y
    z = (y - y.mean()) / y.std()
    model = MKLRegressor(RBF(gamma=0.7), C=5.0, epsilon=0.05, tol=1e-8).fit(X, y)
    svr = SVR(gamma=0.7, C=5.0, epsilon=0.05, tol=1e-9).fit(X, z)
    assert_allclose(model.predict(X), y.mean() + y.std() * svr.predict(X), atol=2e-2)
    by_object = MKLRegressor(RBF(gamma=0.7), C=5.0, loss=EpsilonInsensitive(0.05), tol=1e-8)
    assert_allclose(by_object.fit(X, y).predict(X), model.predict(X))


def test_an_epsilon_wider_than_the_targets_is_named(curve):
    X, y = curve
    small = 1e-4 * y
    with pytest.warns(UserWarning, match=r"epsilon=0\.1 of one value.*nothing is learnt"):
        model = MKLRegressor(target_scale=None).fit(X, small)
    assert len(model.support_) == 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        MKLRegressor().fit(X, small)
        MKLRegressor(target_scale=None).fit(X, np.full(len(y), 7.0))  # a constant is right here


def test_raw_targets(curve):
    X, y = curve
    y = 50.0 + 20.0 * y
    model = MKLRegressor(RBF(gamma=0.7), C=5.0, epsilon=1.0, target_scale=None, tol=1e-8)
    svr = SVR(gamma=0.7, C=5.0, epsilon=1.0, tol=1e-9).fit(X, y)
    assert_allclose(model.fit(X, y).predict(X), svr.predict(X), atol=2e-2)
    assert model.target_shift_ == 0.0 and model.target_scale_ == 1.0


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("loss", ["epsilon_insensitive", "squared"])
def test_the_certificate_can_be_recomputed_from_the_attributes(curve, loss, weighted):
    X, y = curve
    y = 1e4 * y + 3e3
    C, epsilon = 3.0, 0.05
    weight = np.linspace(0.2, 2.0, len(y)) if weighted else np.ones(len(y))
    model = MKLRegressor(KERNELS, C=C, epsilon=epsilon, loss=loss, normalize=None, tol=1e-6)
    model.fit(X, y, sample_weight=weight)

    matrices = np.array([kernel(X) for kernel in KERNELS])
    own = matrices[:, :, model.support_]
    by_formula = np.einsum("k,kij,j->i", model.weights_, own, model.dual_coef_[0])
    by_formula += model.intercept_[0]
    assert_allclose(by_formula, model.predict(X), rtol=1e-6, atol=1e-2)

    t = (y - model.target_shift_) / model.target_scale_
    z = (model.predict(X) - model.target_shift_) / model.target_scale_
    alpha = np.zeros(len(y))
    alpha[model.support_] = model.dual_coef_[0] / model.target_scale_
    q = np.einsum("i,kij,j->k", alpha, matrices, alpha)
    C = C * weight
    if loss == "squared":
        losses, conjugates = C * (t - z) ** 2, alpha**2 / (4 * C) - alpha * t
    else:
        losses = C * np.maximum(0, np.abs(t - z) - epsilon)
        conjugates = epsilon * np.abs(alpha) - alpha * t
        assert np.all(np.abs(alpha) <= C * (1 + 1e-12))
    assert abs(alpha.sum()) < 1e-9 * np.abs(alpha).sum()
    primal = losses.sum() + 0.5 * (model.weights_ @ np.sqrt(q)) ** 2
    dual = -conjugates.sum() - 0.5 * q.max()
    assert model.objective_ == pytest.approx(primal, rel=1e-5)
    assert model.dual_objective_ == pytest.approx(dual, rel=1e-5)
    assert primal - dual <= 2e-6 * max(1.0, primal)


def test_explanations_are_in_units_of_y(curve):
    X, y = curve
    model = MKLRegressor(KERNELS).fit(X, 1e3 * y + 7e3)
    told = model.explain(X)
    assert_allclose(told.values.sum(axis=1) + told.baseline, model.predict(X))
    assert told.baseline == pytest.approx(model.intercept_[0])
    assert 6e3 < told.baseline < 8e3


def test_the_summary_says_whose_objective_it_is(curve):
    model = MKLRegressor(KERNELS).fit(*curve)
    assert f"objective  {model.objective_:.6g} (of the standardised targets)" in summary_text(model)
    raw = MKLRegressor(KERNELS, target_scale=None).fit(*curve)
    assert "standardised" not in summary_text(raw)


@pytest.mark.parametrize("estimator", [MKLRegressor(), MKLRegressorCV()])
@pytest.mark.parametrize("given", ["Standardize", "minmax", 2.0, True, np.array(["standardize"])])
def test_other_scales_are_refused(curve, estimator, given):
    model = clone(estimator).set_params(target_scale=given)
    with pytest.raises(InvalidInputError, match=r"target_scale must be 'standardize' .*None.*got"):
        model.fit(*curve)


# From one fit to the next


@pytest.mark.parametrize("loss", ["epsilon_insensitive", "squared"])
def test_a_warm_start_across_units(curve, loss):
    X, y = curve
    model = MKLRegressor(KERNELS, loss=loss, warm_start=True).fit(X, y)
    reference = model.predict(X)
    model.fit(X, 1e6 * y - 4e6)
    assert len(model.history_) <= 2
    assert_allclose((model.predict(X) + 4e6) / 1e6, reference, atol=1e-2)
    # Raw targets are another problem, and the numbers a start all the same.
    raw = clone(model).set_params(target_scale=None)
    model.set_params(target_scale=None).fit(X, y)
    assert model.converged_
    assert_allclose(model.predict(X), raw.fit(X, y).predict(X), atol=5e-2)


def test_from_a_fitted_estimator_of_other_units(curve):
    X, y = curve
    first = MKLRegressor(KERNELS, tol=1e-5).fit(X, y)
    model = MKLRegressor(KERNELS, tol=1e-5, warm_start_from=first).fit(X, 3e6 + 1e5 * y)
    # Both weights and dual variables are those of the optimum.
    assert model.history_[0].gap < 1e-4
    assert model.history_[-1].inner_iterations < 0.1 * first.history_[-1].inner_iterations


@pytest.mark.parametrize("scales", [("standardize",) * 2, ("standardize", None), (None,) * 2])
def test_from_a_fitted_estimator(curve, scales):
    X, y = curve
    y = 30 * y + 500
    factor = 1e5 if None not in scales else 1.0
    for one, two in (scales, scales[::-1]):
        first = MKLRegressor(KERNELS, loss="squared", target_scale=one, tol=1e-5).fit(X, y)
        model = clone(first).set_params(target_scale=two, warm_start_from=first)
        model.fit(X, factor * y)
        # The squared loss has the same weights in any units, so this is a start at the optimum.
        assert model.converged_ and model.history_[0].gap < 1e-3
        assert_allclose(model.predict(X) / factor, first.predict(X), atol=0.3)


def test_a_model_without_units_is_a_start_too(curve):
    """As those of model files that were written before there was `target_scale`."""
    X, y = curve
    y = 30 * y + 500
    old = MKLRegressor(KERNELS, loss="squared", target_scale=None, tol=1e-5).fit(X, y)
    state = old.__getstate__()
    older = {k: v for k, v in state.items() if not k.startswith("target_")}
    before = MKLRegressor.__new__(MKLRegressor)
    before.__setstate__(older)
    assert before.get_params()["target_scale"] is None
    assert before.target_shift_ == 0.0 and before.target_scale_ == 1.0
    assert np.array_equal(before.predict(X), old.predict(X))
    model = MKLRegressor(KERNELS, loss="squared", warm_start_from=before).fit(X, y)
    assert model.converged_ and model.history_[0].gap < 1e-3


@pytest.mark.parametrize("scales", [("standardize",) * 2, ("standardize", None)])
def test_from_a_checkpoint(curve, tmp_path, scales):
    X, y = curve
    y = 30 * y + 500
    path = tmp_path / "fit.npz"
    factor = 1e5 if None not in scales else 1.0
    for one, two in (scales, scales[::-1]):
        first = MKLRegressor(KERNELS, loss="squared", target_scale=one, tol=1e-5)
        first.set_params(callbacks=[Checkpoint(path)]).fit(X, y)
        model = MKLRegressor(KERNELS, loss="squared", target_scale=two, warm_start_from=path)
        model.fit(X, factor * y)
        assert model.converged_ and model.history_[0].gap < 1e-3
        assert_allclose(model.predict(X) / factor, first.predict(X), atol=0.3)


def test_a_fit_that_fails_leaves_the_units_of_the_one_before(curve):
    X, y = curve
    model = MKLRegressor(KERNELS).fit(X, y)
    scale, predicted = model.target_scale_, model.predict(X)
    with pytest.raises(UnknownNameError):
        model.set_params(solver="no such solver").fit(X, 1e3 * y)
    assert model.target_scale_ == scale
    assert np.array_equal(model.predict(X), predicted)


@pytest.mark.parametrize("estimator", [MKLRegressor(KERNELS), MKLRegressorCV(KERNELS, Cs=2, cv=2)])
def test_files_and_pickles_keep_the_units(curve, tmp_path, estimator):
    X, y = curve
    model = clone(estimator).fit(X, 1e3 * y + 7e3)
    save(model, tmp_path / "model.skops")
    for again in (load(tmp_path / "model.skops"), pickle.loads(pickle.dumps(model))):
        assert_allclose(again.predict(X), model.predict(X))
        assert again.target_shift_ == model.target_shift_
        assert again.target_scale_ == model.target_scale_
        assert again.target_scale == "standardize"


# Cross-validation


def test_every_fold_is_standardised_by_its_own_targets(curve):
    X, y = curve
    y = y * np.geomspace(1.0, 1e3, len(y))  # the folds differ widely
    folds = KFold(3)
    model = MKLRegressorCV(KERNELS, Cs=[0.3, 3.0], cv=folds, tol=1e-5).fit(X, y)
    for fold, (train, test) in enumerate(folds.split(X)):
        for place, C in enumerate(model.Cs_):
            alone = MKLRegressor(KERNELS, C=C, tol=1e-5).fit(X[train], y[train])
            score = alone.score(X[test], y[test])
            assert model.scores_[fold, place] == pytest.approx(score, rel=1e-2, abs=1e-2)
    whole = MKLRegressor(KERNELS, C=model.C_, tol=1e-5).fit(X, y)
    assert model.target_scale_ == pytest.approx(y.std())
    assert_allclose(model.predict(X), whole.predict(X), atol=1e-2 * y.std())


@pytest.mark.parametrize(("factor", "shift"), [(1e-9, 0.0), (1e6, 5e6)])
def test_paths_do_not_depend_on_units(curve, factor, shift):
    X, y = curve
    options = {"Cs": 4, "cv": 3, "scoring": "neg_mean_absolute_error"}
    one = MKLRegressorCV(KERNELS, **options).fit(X, y)
    two = MKLRegressorCV(KERNELS, **options).fit(X, factor * y + shift)
    assert_allclose(two.Cs_, one.Cs_, rtol=1e-6)
    assert two.best_index_ == one.best_index_
    assert_allclose(two.path_weights_, one.path_weights_, atol=1e-6)
    assert_allclose(two.scores_ / factor, one.scores_, rtol=1e-6)  # in units of y
    same_up_to_units(two, one, X, factor, shift)
