"""BayesianMKLRegressor: the same promises, for real outputs."""

from __future__ import annotations

import inspect
import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_allclose
from same_numbers import assert_same_numbers
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score

from kernelweave import BayesianMKLClassifier, BayesianMKLRegressor, sample_ids
from kernelweave.bank import DenseBank
from kernelweave.bayes import Hyperparameters, Outputs, Settings, infer
from kernelweave.kernels import RBF, from_matrices
from kernelweave.operators import ComputedOperator
from kernelweave.solvers import Limits

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

KERNELS = [RBF(width=0.7).on(0), RBF(width=0.7).on(1), RBF(width=3.0)]
QUICK = {"kernels": KERNELS, "max_iter": 20, "bank": "dense"}


def test_signature_is_the_classifiers_without_classes():
    own = inspect.signature(BayesianMKLRegressor).parameters
    other = inspect.signature(BayesianMKLClassifier).parameters
    assert set(other) - set(own) == {"margin", "multi_class", "unlabeled"}
    assert set(own) - set(other) == {"normalize_y"} and own["normalize_y"].default is True
    shared = set(own) & set(other)
    assert {k: own[k].default for k in shared} == {k: other[k].default for k in shared}


@pytest.mark.parametrize("normalize_y", [True, False])
def test_everything_reaches_the_solver_and_comes_back(curve, normalize_y):
    X, y = curve
    Y = np.column_stack([y, 7.0 - 20.0 * X[:, 1]])
    model = BayesianMKLRegressor(
        **QUICK, sigma_g=0.5, hyperparameters={"beta_upsilon": 2.0}, normalize_y=normalize_y
    ).fit(X[:70], Y[:70])
    shift = Y[:70].mean(axis=0) if normalize_y else np.zeros(2)
    scale = Y[:70].std(axis=0) if normalize_y else np.ones(2)
    kernels = ComputedOperator.build(KERNELS, X[:70], normalize="diagonal")
    posterior = infer(
        DenseBank("float32").build(kernels),
        Outputs(((Y[:70] - shift) / scale).T),
        Settings(Hyperparameters(beta_upsilon=2.0), 0.5),
        Limits(tol=1e-5, max_iter=20),
        0,
    )
    assert_allclose(model.weights_, posterior.e_mean)
    assert_allclose(model.weights_std_, posterior.e_std)
    assert_allclose(model.intercept_, shift + scale * posterior.b_mean)
    assert_allclose(model.intercept_std_, scale * posterior.b_std)
    assert_allclose(model.noise_std_, scale * np.sqrt(posterior.noise_variance))
    assert model.lower_bound_ == pytest.approx(posterior.lower_bound)
    cross = kernels.against(X[70:]).block()
    mean, std = model.predict(X[70:], return_std=True)
    assert mean.shape == std.shape == (20, 2)
    assert_allclose(mean, shift + scale * posterior.mean(cross, np.arange(3)).T)
    assert_allclose(std, scale * np.sqrt(posterior.variance(cross, np.arange(3)).T))
    assert_allclose(model.predict(X[70:]), mean)


def test_the_curve_and_its_noise_are_found():
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, size=(200, 2))
    y = 50.0 + 10.0 * np.sin(2 * X[:, 0]) + 2.0 * rng.normal(size=200)
    model = BayesianMKLRegressor(KERNELS, sigma_g=0.1).fit(X[:150], y[:150])
    assert np.abs(model.weights_).argmax() == 0
    assert model.noise_std_.shape == (1,)
    assert model.noise_std_[0] == pytest.approx(2.0, rel=0.35)
    mean, std = model.predict(X[150:], return_std=True)
    assert mean.shape == std.shape == (50,)
    assert model.score(X[150:], y[150:]) > 0.85
    inside = np.abs(y[150:] - mean) < 1.96 * std
    assert inside.mean() > 0.85 and std.mean() < 5.0


def test_predictions_keep_the_units_of_y(curve):
    X, y = curve
    plain = BayesianMKLRegressor(**QUICK).fit(X, y)
    mean, std = plain.predict(X, return_std=True)
    for unit, origin in ((1e-6, 0.0), (1e6, -3e6), (2.0, 1e5)):
        model = BayesianMKLRegressor(**QUICK).fit(X, unit * y + origin)
        other, other_std = model.predict(X, return_std=True)
        assert_allclose((other - origin) / unit, mean, atol=1e-6)
        assert_allclose(other_std / unit, std, rtol=1e-6)
        assert_allclose(model.noise_std_ / unit, plain.noise_std_, rtol=1e-6)


@pytest.mark.parametrize("sparsity", ["dense", "sparse"])
@pytest.mark.parametrize("value", [0.0, 0.1, -1e9])
def test_constant_y(curve, sparsity, value):
    X, _ = curve
    model = BayesianMKLRegressor(**QUICK, sparsity=sparsity).fit(X, np.full(90, value))
    mean, std = model.predict(X, return_std=True)
    assert_allclose(mean, value, atol=1e-6)
    # One unit of y, where nothing says what its size is; not that of the last digit.
    assert np.all(std > 0.01) and np.all(std < 1)


class TestShapes:
    @pytest.mark.parametrize(
        "convert",
        [np.asarray, list, pd.Series, pl.Series, lambda y: y.astype(np.float32)],
        ids=["array", "list", "pandas", "polars", "float32"],
    )
    def test_one_output(self, curve, convert):
        X, y = curve
        model = BayesianMKLRegressor(**QUICK).fit(X, convert(y))
        assert model.predict(X).shape == (90,)
        assert model.predict(X).dtype == np.float64
        expected = BayesianMKLRegressor(**QUICK).fit(X, y).predict(X)
        assert_allclose(model.predict(X), expected, atol=1e-5)

    @pytest.mark.parametrize(
        "convert", [np.asarray, np.ndarray.tolist, pd.DataFrame, pl.DataFrame], ids=str
    )
    @pytest.mark.parametrize("count", [1, 3])
    def test_as_many_dimensions_as_y(self, curve, convert, count):
        X, y = curve
        Y = np.column_stack([y, X[:, 1], y - X[:, 0]])[:, :count]
        model = BayesianMKLRegressor(**QUICK).fit(X, convert(Y))
        assert model.predict(X).shape == (90, count)
        assert model.predict(X, return_std=True)[1].shape == (90, count)
        assert model.weights_.shape == (3,)
        assert model.intercept_.shape == model.noise_std_.shape == (count,)
        assert model.score(X, Y) > 0.3

    @pytest.mark.parametrize(
        ("y", "match"),
        [
            (None, "requires y"),
            ([1.0, np.nan, 2.0], "NaN"),
            ([1.0, np.inf, 2.0], "infinity"),
            ([1.0, 2.0], "inconsistent numbers of samples"),
            (["a", "b", "c"], "could not convert"),
            (np.zeros((3, 2, 2)), "dim 3"),
        ],
        ids=str,
    )
    def test_errors(self, y, match):
        with pytest.raises(ValueError, match=match):
            BayesianMKLRegressor("rbf").fit([[1.0], [2.0], [4.0]], y)


class TestScikitLearn:
    def test_before_fit(self, curve):
        with pytest.raises(NotFittedError):
            BayesianMKLRegressor().predict(curve[0])

    def test_dropped_kernels(self, curve):
        X, y = curve
        model = BayesianMKLRegressor(KERNELS, sparsity="sparse", sigma_g=0.1).fit(X, y)
        assert model.weights_[0] != 0 and model.weights_[1] == 0
        assert model.score(X, y) > 0.9

    def test_clone_and_pickle(self, curve):
        X, y = curve
        model = BayesianMKLRegressor(**QUICK).fit(X, y)
        assert clone(model).get_params() == model.get_params()
        again = pickle.loads(pickle.dumps(model))
        assert_same_numbers(again.predict(X, return_std=True), model.predict(X, return_std=True))

    def test_transform_has_names(self, curve):
        X, y = curve
        model = BayesianMKLRegressor(**QUICK).set_output(transform="pandas").fit(X, y)
        frame = model.transform(X[:2])
        assert frame.shape == (2, 90) and frame.columns[-1] == "kernel_to_row_89"
        assert_allclose(frame.to_numpy(), model.combined_kernel(X[:2], X))

    def test_precomputed_in_a_grid_search(self, curve):
        X, y = curve
        matrices = [RBF(width=w)(X) for w in (0.7, 3.0)]
        model = BayesianMKLRegressor(from_matrices(matrices), max_iter=20)
        search = GridSearchCV(model, {"sigma_g": [0.1, 1.0]}, cv=3).fit(sample_ids(90), y)
        assert search.best_score_ > 0.3
        assert search.predict(sample_ids(90)[:4]).shape == (4,)

    def test_cross_validation_of_several_outputs(self, curve):
        X, y = curve
        scores = cross_val_score(
            BayesianMKLRegressor(**QUICK), X, np.column_stack([y, X[:, 1]]), cv=3
        )
        assert np.all(scores > 0.3)
