"""Weights, labels and sizes that no fit can work with are refused, with the true reason."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.preprocessing import StandardScaler
from thinned import thinned

from kernelweave import (
    BayesianMKLClassifier,
    BayesianMKLRegressor,
    MKLClassifier,
    MKLClassifierCV,
    MKLOneClass,
    MKLRegressor,
    NystromMKLClassifier,
)
from kernelweave.errors import InvalidInputError
from kernelweave.kernels import RBF, Linear, Polynomial
from kernelweave.linear_systems import cholesky
from kernelweave.regularizers import LpBall, Simplex, SquaredLp
from kernelweave.solvers import MWU

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 3))
y = (X[:, 0] + 0.3 * RNG.normal(size=40) > 0).astype(int)
KERNELS = [RBF(width=1.0), Linear()]
CLASSIFIERS = [MKLClassifier, MKLClassifierCV, NystromMKLClassifier]


class TestWeights:
    @pytest.mark.parametrize("estimator", CLASSIFIERS)
    @pytest.mark.parametrize("weight", [-1.0, np.inf, -np.inf, np.nan])
    def test_of_a_class(self, estimator, weight):
        model = estimator(KERNELS, class_weight={0: 1.0, 1: weight})
        with pytest.raises(InvalidInputError, match=f"class_weight must be .*; got {weight:g}"):
            model.fit(X, y)

    @pytest.mark.parametrize("estimator", CLASSIFIERS)
    def test_too_large_for_the_objective(self, estimator):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(InvalidInputError, match=r"largest is 1e\+308.*C = 1\.|up to inf"):
                estimator(KERNELS, class_weight={0: 1.0, 1: 1e308}).fit(X, y)
            with pytest.raises(InvalidInputError, match="class_weight times sample_weight"):
                estimator(KERNELS, class_weight={0: 1.0, 1: 1e200}).fit(
                    X, y, sample_weight=np.full(40, 1e200)
                )

    def test_times_C(self):
        weight = np.full(40, 1e200)
        with pytest.raises(InvalidInputError, match=r"add up to inf.*C = 1e\+200"):
            MKLClassifier(KERNELS, C=1e200).fit(X, y, sample_weight=weight)
        with pytest.raises(InvalidInputError, match=r"add up to .*C = 1e\+200"):
            MKLRegressor(KERNELS, C=1e200).fit(X, X[:, 0])
        with pytest.raises(InvalidInputError, match="all zero in float64"):
            MKLClassifier(KERNELS, C=1e-200).fit(X, y, sample_weight=weight**-1)
        with pytest.raises(InvalidInputError, match=r"C = 1e\+150"):
            MKLClassifierCV(KERNELS, Cs=[1.0, 1e150]).fit(X, y)
        # The product counts, not its factors.
        model = MKLClassifier(KERNELS, C=1e-200).fit(X, y, sample_weight=weight)
        assert model.gap_ <= 1e-3

    @pytest.mark.parametrize("estimator", CLASSIFIERS)
    def test_a_class_that_does_not_count(self, estimator):
        with pytest.raises(InvalidInputError, match=r"class .*1.* has the weight zero"):
            estimator(KERNELS, class_weight={0: 1.0, 1: 0.0}).fit(X, y)
        with pytest.raises(InvalidInputError, match=r"class .*0.* has the weight zero"):
            estimator(KERNELS).fit(X, y, sample_weight=y)

    def test_one_class_weights_are_relative(self):
        reference = MKLOneClass(KERNELS, nu=0.3).fit(X)
        model = MKLOneClass(KERNELS, nu=0.3).fit(X, sample_weight=np.full(40, 1e308))
        np.testing.assert_allclose(model.weights_, reference.weights_)


class TestLabels:
    WRONG = (
        ([1, "a"], "mixes text .*1, 'a'"),
        ([None, "a"], "missing"),
        ([None, None], "missing"),
        ([np.nan, "a"], "missing"),
        ([("b",), "a"], "mixes text"),
        ([b"a", b"b"], "text or numbers"),
        ([1j, 2j], "text or numbers"),
    )

    @pytest.mark.parametrize(
        ("estimator", "wrong", "array"),
        thinned([*CLASSIFIERS, BayesianMKLClassifier], WRONG, [False, True]),
    )
    def test_of_no_kind(self, estimator, wrong, array):
        labels, told = wrong
        many = labels * 20
        if array:
            many = np.empty(40, dtype=object)
            many[:] = labels * 20
        with pytest.raises(ValueError, match=told):
            estimator(KERNELS).fit(X, many)

    def test_numbers_of_several_types_are_one_kind(self):
        model = MKLClassifier(KERNELS).fit(X, [1, 2.0] * 20)
        np.testing.assert_array_equal(model.classes_, [1.0, 2.0])


class TestSizes:
    @pytest.mark.parametrize(
        ("estimator", "kernels"),
        thinned(
            [*CLASSIFIERS, BayesianMKLClassifier, MKLOneClass],
            ["default", "simplemkl", "features", "rbf", "linear"],
            keep=5,
        ),
    )
    def test_samples_whose_squares_overflow(self, estimator, kernels):
        with pytest.raises(InvalidInputError, match=r"contains .*e\+160.*would overflow"):
            estimator(kernels).fit(1e160 * np.abs(X) + 1e160, y)

    def test_of_frames_and_sparse_matrices(self):
        frame = pd.DataFrame({"a": X[:, 0], "huge": 1e200 * X[:, 1], "text": ["x"] * 40})
        scaled = Linear().on(["a", "huge"], StandardScaler())
        with pytest.raises(InvalidInputError, match="column 'huge'"):
            MKLClassifier(scaled).fit(frame, y)
        with pytest.raises(InvalidInputError, match="column 'huge'"):
            MKLClassifier(Linear().on(["huge"])).fit(frame, y)
        assert MKLClassifier(Linear().on(["a"])).fit(frame, y).converged_
        with pytest.raises(InvalidInputError, match="would overflow"):
            MKLClassifier(Linear()).fit(sparse.csr_matrix(1e200 * X), y)

    @pytest.mark.parametrize("normalize", ["trace", "diagonal"])
    def test_kernels_that_overflow(self, normalize):
        with pytest.raises(InvalidInputError, match=r"'polynomial.*infinite or NaN"):
            MKLClassifier([Polynomial(5)], normalize=normalize).fit(1e90 * X, y)

    def test_new_samples(self):
        model = MKLClassifier(KERNELS).fit(X, y)
        with pytest.raises(InvalidInputError, match="would overflow"):
            model.predict(1e200 * X)

    @pytest.mark.parametrize("size", [1e45, 1e48])
    def test_a_posterior_beyond_float64(self, size):
        # It is refused where it overflows, or where rounding leaves nothing of it.
        with pytest.raises(InvalidInputError, match="posterior"):
            BayesianMKLClassifier([Linear()], normalize=None).fit(size * X, y)

    def test_features_too_large_for_liblinear(self):
        model = NystromMKLClassifier([Linear()], normalize=None, random_state=0)
        with pytest.raises(InvalidInputError, match="would overflow"):
            model.fit(1e60 * X, y)

    def test_targets(self):
        with pytest.raises(InvalidInputError, match=r"targets up to 1e\+308"):
            MKLRegressor(KERNELS, target_scale=None).fit(X, 1e308 * y)
        model = BayesianMKLRegressor(KERNELS).fit(X, 1e200 * X[:, 0])
        reference = BayesianMKLRegressor(KERNELS).fit(X, X[:, 0])
        np.testing.assert_allclose(model.predict(X) / 1e200, reference.predict(X), rtol=1e-6)
        with pytest.raises(InvalidInputError, match="posterior cannot be computed in float64"):
            BayesianMKLRegressor(KERNELS, normalize_y=False).fit(X, 1e200 * X[:, 0])


@pytest.mark.parametrize("solver", ["mwu", MWU(soft_margin="l2"), MWU(omega="paper")], ids=repr)
def test_a_solver_that_cannot_names_those_that_can(solver):
    with pytest.raises(InvalidInputError, match=r"got OneClass\(\). Use solver='auto', 'silp'"):
        MKLOneClass(KERNELS, solver=solver).fit(X)


@pytest.mark.parametrize("curvature", [0.0, np.inf])
def test_a_newton_system_without_kernels(curvature):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        solve = cholesky(np.zeros((3, 3)), np.full(3, curvature))
        np.testing.assert_array_equal(solve(np.ones(3)), np.zeros(3))


def test_screening_that_drops_every_kernel():
    """The bank then passes over no kernel at all."""
    samples = np.random.default_rng(1).normal(size=(300, 4))
    labels = np.where(samples[:, 0] > 0, 1, -1)
    model = MKLClassifier(
        [RBF(width=w) for w in np.linspace(0.5, 3, 25)],
        C=1e-3,
        loss="squared_hinge",
        regularizer="l1",
        solver="spicy",
        bank="lazy",
    ).fit(samples, labels)
    assert model.converged_ and not model.weights_.any()


@pytest.mark.parametrize("regularizer", [Simplex(), LpBall(2.0), SquaredLp(2.0)], ids=str)
def test_a_penalty_that_overflows_is_infinite(regularizer):
    """Solvers may come by such a point; a power of Python's floats ended them by an error."""
    huge = np.array([1e200, 1e200])
    assert regularizer.omega(huge) > 1e200
    assert regularizer.dual_penalty(huge) >= 0.5e200
