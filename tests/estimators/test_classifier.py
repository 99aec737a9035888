"""MKLClassifier: what it learns, what it shows, how it fits into scikit-learn."""

from __future__ import annotations

import inspect
import pickle

import joblib
import numpy as np
import pandas as pd
import polars as pl
import pytest
from same_numbers import assert_same_numbers
from scipy import sparse
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, LeaveOneOut, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import kernelweave
from kernelweave import MKLClassifier, sample_ids
from kernelweave.kernels import (
    RBF,
    Linear,
    Polynomial,
    Precomputed,
    RBFBatch,
    from_matrices,
    simplemkl_family,
)
from kernelweave.kernels.evaluate import Plan
from kernelweave.regularizers import LpBall
from kernelweave.solvers import SPG


def test_signature_is_the_promised_one():
    parameters = inspect.signature(MKLClassifier).parameters
    expected = {
        "kernels": "default", "C": 1.0, "loss": "hinge", "regularizer": "simplex",
        "combination": "sum", "solver": "auto", "normalize": "trace", "tol": 1e-3,
        "max_iter": 1000, "multi_class": "shared", "class_weight": None, "bank": "auto",
        "cache_mb": 1000, "n_jobs": None, "random_state": None, "verbose": 0, "callbacks": (),
    }  # fmt: skip
    assert {name: parameters[name].default for name in expected} == expected
    assert [name for name, p in parameters.items() if p.kind is p.POSITIONAL_OR_KEYWORD] == [
        "kernels"
    ]


def test_fitted_attributes(two_classes):
    X, y = two_classes
    model = MKLClassifier([RBF(width=1.0), RBF(width=3.0), Linear()]).fit(X, y)
    assert model.weights_.shape == (3,)
    assert model.weights_.sum() == pytest.approx(1.0)
    assert model.kernel_names_ == ["rbf(width=1)", "rbf(width=3)", "linear"]
    assert model.dual_coef_.shape == (1, len(model.support_))
    assert model.dual_coef_.sum() == pytest.approx(0.0, abs=1e-9)
    assert np.all(np.sign(model.dual_coef_[0]) == np.where(y[model.support_] == 1, 1, -1))
    assert model.intercept_.shape == (1,)
    assert model.dual_objective_ <= model.objective_
    assert 0 <= model.gap_ <= 1e-3 and model.converged_
    assert model.n_iter_ >= 1
    assert list(model.classes_) == [0, 1]
    assert model.n_features_in_ == 6


def test_history_can_be_read_as_a_table(two_classes):
    X, y = two_classes
    model = MKLClassifier().fit(X, y)
    table = pd.DataFrame(model.history_)
    assert list(table.columns) == [
        "iteration", "seconds", "primal", "dual", "gap", "active_kernels", "inner_iterations",
        "inner_solves",
    ]  # fmt: skip
    assert (table.seconds.diff().dropna() >= 0).all()
    assert table.gap.iloc[-1] <= 1e-3


def test_one_kernel_is_an_svm(two_classes):
    X, y = two_classes
    model = MKLClassifier(RBF(gamma=0.2), tol=1e-7).fit(X, y)
    svc = SVC(kernel="rbf", gamma=0.2, tol=1e-8).fit(X, y)
    np.testing.assert_allclose(model.decision_function(X), svc.decision_function(X), atol=2e-4)
    assert model.weights_.tolist() == [1.0]


def test_one_kernel_with_class_and_sample_weights_is_an_svm(two_classes):
    X, y = two_classes
    weight = np.random.default_rng(0).uniform(0.0, 3.0, size=len(y))
    weight[:10] = 0.0
    model = MKLClassifier(RBF(gamma=0.2), class_weight={0: 1.0, 1: 4.0}, tol=1e-7)
    model.fit(X, y, sample_weight=weight)
    svc = SVC(gamma=0.2, class_weight={0: 1.0, 1: 4.0}, tol=1e-8).fit(X, y, sample_weight=weight)
    np.testing.assert_allclose(model.decision_function(X), svc.decision_function(X), atol=2e-3)
    assert not set(model.support_) & set(range(10))


def test_balanced_classes(two_classes):
    X, y = two_classes
    keep = np.r_[np.flatnonzero(y == 0), np.flatnonzero(y == 1)[:8]]
    plain = MKLClassifier(C=0.1).fit(X[keep], y[keep])
    balanced = MKLClassifier(C=0.1, class_weight="balanced").fit(X[keep], y[keep])
    assert (balanced.predict(X) == 1).sum() > (plain.predict(X) == 1).sum()


def test_the_good_kernel_is_found():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 8))
    y = X[:, 3] ** 2 > 0.5
    model = MKLClassifier([Polynomial(2).on(j) for j in range(8)], C=10).fit(X, y)
    assert model.weights_.argmax() == 3
    assert model.weights_[3] > 0.9
    assert model.kernel_names_[3] == "polynomial(degree=2) on column 3"


@pytest.mark.parametrize("solver", ["spg", "active-set"])
@pytest.mark.parametrize("bank", ["dense", "lazy", "factored", "auto"])
def test_banks_and_solvers_agree(two_classes, bank, solver):
    X, y = two_classes
    kernels = [*(RBF(width=w).on(j) for j in range(3) for w in (0.5, 2.0)), RBF(width=2.0)]
    model = MKLClassifier(kernels, bank=bank, solver=solver, tol=1e-5).fit(X, y)
    reference = MKLClassifier(kernels, bank="dense", solver="spg", tol=1e-6).fit(X, y)
    assert model.objective_ == pytest.approx(reference.objective_, rel=2e-5)
    np.testing.assert_allclose(model.weights_, reference.weights_, atol=0.02)


def test_uniform_keeps_equal_weights_and_is_worse(two_classes):
    X, y = two_classes
    uniform = MKLClassifier(solver="uniform").fit(X, y)
    learnt = MKLClassifier().fit(X, y)
    assert np.ptp(uniform.weights_) == 0
    assert uniform.converged_ and uniform.gap_ <= 1e-3
    assert learnt.objective_ < uniform.objective_


def test_lp_weights_are_dense(two_classes):
    X, y = two_classes
    model = MKLClassifier(regularizer=LpBall(2.0)).fit(X, y)
    assert np.all(model.weights_ > 0)
    assert np.linalg.norm(model.weights_) == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge", "logistic", "smooth_hinge"])
def test_losses(two_classes, loss):
    X, y = two_classes
    model = MKLClassifier(loss=loss).fit(X, y)
    assert model.converged_ and model.score(X, y) > 0.85


class TestSeveralClasses:
    def test_shared_weights(self, three_classes):
        X, y = three_classes
        model = MKLClassifier().fit(X, y)
        assert model.weights_.ndim == 1
        assert model.dual_coef_.shape[0] == 3
        assert model.decision_function(X).shape == (150, 3)
        assert model.score(X, y) > 0.95 and model.gap_ <= 1e-3

    def test_weights_per_class(self, three_classes):
        X, y = three_classes
        model = MKLClassifier(multi_class="ovr").fit(X, y)
        assert model.weights_.shape == (3, 7)
        np.testing.assert_allclose(model.weights_.sum(axis=1), 1.0)
        single = MKLClassifier().fit(X, y == 1)
        np.testing.assert_allclose(model.weights_[1], single.weights_, atol=1e-6)
        np.testing.assert_allclose(
            model.decision_function(X)[:, 1], single.decision_function(X), atol=1e-6
        )

    def test_labels_of_any_kind(self, three_classes):
        X, y = three_classes
        names = np.array(["setosa", "versicolor", "virginica"])[y]
        model = MKLClassifier().fit(X, names)
        assert set(model.predict(X)) == set(names)


class TestProbabilities:
    def test_logistic(self, three_classes):
        X, y = three_classes
        p = MKLClassifier(loss="logistic").fit(X, y).predict_proba(X)
        np.testing.assert_allclose(p.sum(axis=1), 1.0)
        assert (p.argmax(axis=1) == y).mean() > 0.9

    def test_two_classes(self, two_classes):
        X, y = two_classes
        model = MKLClassifier(loss="logistic").fit(X, y)
        p = model.predict_proba(X)
        np.testing.assert_allclose(p[:, 1], 1 / (1 + np.exp(-model.decision_function(X))))

    def test_otherwise_the_error_says_what_to_do(self, two_classes):
        X, y = two_classes
        model = MKLClassifier().fit(X, y)
        assert not hasattr(model, "predict_proba")
        with pytest.raises(AttributeError, match="CalibratedClassifierCV"):
            model.predict_proba(X)
        calibrated = CalibratedClassifierCV(MKLClassifier(), cv=3).fit(X, y)
        assert calibrated.predict_proba(X).shape == (120, 2)


class TestLearntKernel:
    def test_combined_kernel_is_the_weighted_sum(self, two_classes):
        X, y = two_classes
        kernels = [RBF(width=1.0), Linear()]
        model = MKLClassifier(kernels, normalize=None).fit(X, y)
        expected = sum(w * k(X[:5], X[5:9]) for w, k in zip(model.weights_, kernels, strict=True))
        np.testing.assert_allclose(model.combined_kernel(X[:5], X[5:9]), expected)

    @pytest.mark.parametrize("normalize", ["trace", "diagonal", ("center", "trace"), None], ids=str)
    def test_transform_is_the_kernel_against_training_rows(self, two_classes, normalize):
        X, y = two_classes
        model = MKLClassifier(normalize=normalize).fit(X[:80], y[:80])
        K = model.transform(X)
        assert K.shape == (120, 80)
        np.testing.assert_allclose(K, model.combined_kernel(X, X[:80]), atol=1e-10)
        np.testing.assert_allclose(K[:80], K[:80].T, atol=1e-10)
        decision = K[:, model.support_] @ model.dual_coef_[0] + model.intercept_[0]
        np.testing.assert_allclose(decision, model.decision_function(X), atol=1e-8)

    def test_as_a_step_before_a_precomputed_estimator(self, two_classes):
        X, y = two_classes
        pipe = make_pipeline(StandardScaler(), MKLClassifier(), SVC(kernel="precomputed"))
        assert pipe.fit(X[:80], y[:80]).score(X[80:], y[80:]) > 0.7

    def test_as_kernel(self, two_classes):
        X, y = two_classes
        model = MKLClassifier(tol=1e-6).fit(X, y)
        svc = SVC(kernel=model.as_kernel(), tol=1e-6).fit(X, y)
        np.testing.assert_allclose(svc.decision_function(X), model.decision_function(X), atol=0.02)

    def test_set_output(self, two_classes):
        X, y = two_classes
        model = MKLClassifier().set_output(transform="pandas").fit(X, y)
        frame = model.transform(X[:4])
        assert isinstance(frame, pd.DataFrame) and frame.shape == (4, 120)
        assert list(frame.columns) == [f"kernel_to_row_{i}" for i in range(120)]
        assert list(model.get_feature_names_out()) == list(frame.columns)

    def test_feature_names_ask_for_a_fit(self):
        with pytest.raises(NotFittedError):
            MKLClassifier().get_feature_names_out()


class TestTables:
    def test_frames_by_name(self, three_classes):
        X, y = three_classes
        names = ["sepal length", "sepal width", "petal length", "petal width"]
        kernels = [RBF(width=2).on("petal length"), Linear().on(names[:2], StandardScaler())]
        results = []
        for frame in (pd.DataFrame(X, columns=names), pl.DataFrame(X, schema=names)):
            model = MKLClassifier(kernels).fit(frame, y)
            assert model.kernel_names_[0] == "rbf(width=2) on petal length"
            assert list(model.feature_names_in_) == names
            results.append(model.decision_function(frame))
        np.testing.assert_allclose(*results)

    def test_sparse_equals_dense(self, two_classes):
        X, y = two_classes
        X = np.where(np.abs(X) > 0.5, X, 0.0)
        kernels = [RBF(width=2.0), Polynomial(2), Linear()]
        dense = MKLClassifier(kernels, bank="dense").fit(X, y)
        thin = MKLClassifier(kernels, bank="dense").fit(sparse.csr_array(X), y)
        np.testing.assert_allclose(
            thin.decision_function(sparse.csr_array(X)), dense.decision_function(X), atol=1e-4
        )

    def test_default_kernels_do_not_care_about_units(self, two_classes):
        X, y = two_classes
        scale = 10.0 ** np.arange(-3, 3)
        one = MKLClassifier().fit(X, y)
        other = MKLClassifier().fit(X * scale + 7, y)
        np.testing.assert_allclose(
            one.decision_function(X), other.decision_function(X * scale + 7), atol=1e-3
        )


class TestPrecomputed:
    @pytest.fixture
    def grams(self, two_classes):
        X, y = two_classes
        return [RBF(width=w)(X) for w in (0.5, 2.0)] + [Linear()(X)], y

    def test_same_as_the_kernels_themselves(self, two_classes, grams):
        X, y = two_classes
        matrices, _ = grams
        model = MKLClassifier(from_matrices(matrices), tol=1e-6).fit(sample_ids(120)[:90], y[:90])
        kernels = [RBF(width=0.5), RBF(width=2.0), Linear()]
        direct = MKLClassifier(kernels, tol=1e-6, bank="dense").fit(X[:90], y[:90])
        np.testing.assert_allclose(model.weights_, direct.weights_, atol=1e-3)
        np.testing.assert_allclose(
            model.decision_function(sample_ids(120)[90:]),
            direct.decision_function(X[90:]),
            atol=1e-2,
        )

    def test_grid_search_and_leave_one_out(self, grams):
        matrices, y = grams
        model = MKLClassifier(from_matrices(matrices, names=["a", "b", "c"]))
        search = GridSearchCV(model, {"C": [0.1, 1.0]}, cv=3).fit(sample_ids(120), y)
        assert search.best_score_ > 0.7
        assert search.best_estimator_.kernel_names_ == ["a", "b", "c"]
        scores = cross_val_score(model, sample_ids(120)[:20], y[:20], cv=LeaveOneOut())
        assert len(scores) == 20

    def test_beside_other_kernels_in_a_frame(self, two_classes, grams):
        X, y = two_classes
        frame = pd.DataFrame(X, columns=list("abcdef")).assign(id=np.arange(120))
        kernels = [Precomputed(grams[0][1], name="omics").on("id"), RBF(width=1.0).on(list("abc"))]
        model = MKLClassifier(kernels).fit(frame[:90], y[:90])
        assert model.kernel_names_ == ["omics", "rbf(width=1) on a, b, c"]
        assert model.score(frame[90:], y[90:]) > 0.7

    def test_required_columns_are_those_of_support_vectors(self, grams):
        matrices, y = grams
        ids = sample_ids(120)[10:100]
        model = MKLClassifier(from_matrices(matrices)).fit(ids, y[10:100])
        needed = model.required_columns_
        used = [name for name, w in zip(model.kernel_names_, model.weights_, strict=True) if w > 0]
        assert list(needed) == used
        assert np.array_equal(needed[used[0]], ids[model.support_, 0])
        blank = [K.copy() for K in matrices]
        others = np.setdiff1d(np.arange(120), needed[used[0]])
        for K in blank:
            K[np.ix_(np.arange(100, 120), others)] = np.nan
        for kernel, K in zip(model._kernel_set.kernels, blank, strict=True):
            kernel._checked = (K, None)
        assert np.isfinite(model.decision_function(sample_ids(120)[100:])).all()


class TestScikitLearn:
    def test_grid_search_over_kernels(self, two_classes):
        X, y = two_classes
        grid = {"kernels": [[Linear()], [RBF(width=1.0), Linear()], simplemkl_family()], "C": [1.0]}
        search = GridSearchCV(MKLClassifier(), grid, cv=3).fit(X, y)
        assert len(search.cv_results_["mean_test_score"]) == 3

    def test_grid_search_over_a_regularizer_parameter(self, two_classes):
        X, y = two_classes
        model = MKLClassifier(regularizer=LpBall(2.0))
        search = GridSearchCV(model, {"regularizer__p": [1.5, 2.0]}, cv=2).fit(X, y)
        assert search.best_params_["regularizer__p"] in (1.5, 2.0)

    def test_clone_and_pickle(self, two_classes):
        X, y = two_classes
        model = MKLClassifier(
            [RBF(width=1.0).on([0, 1], StandardScaler()), Linear()], solver=SPG()
        ).fit(X, y)
        fresh = clone(model)
        assert not hasattr(fresh, "weights_")
        again = pickle.loads(pickle.dumps(model))
        assert_same_numbers(again.decision_function(X), model.decision_function(X))

    @pytest.mark.parametrize("batch", [[], [RBFBatch([[0, 1], [1, -1]], [1.0, 0.5])]])
    def test_predicts_from_memory_that_cannot_be_written(self, two_classes, batch, tmp_path):
        X, y = two_classes
        kernels = [RBF(width=1.0), RBF(width=3.0), Linear(), *batch]
        model = MKLClassifier(kernels, solver="uniform").fit(X, y)
        joblib.dump(model, tmp_path / "model")
        again = joblib.load(tmp_path / "model", mmap_mode="r")
        assert_same_numbers(again.decision_function(X), model.decision_function(X))

    def test_two_fits_give_the_same_bits(self, two_classes):
        X, y = two_classes
        one, two = (MKLClassifier(n_jobs=j, random_state=0).fit(X, y) for j in (1, 2))
        assert np.array_equal(one.weights_, two.weights_)
        assert np.array_equal(one.decision_function(X), two.decision_function(X))

    def test_parameters_are_left_alone(self, two_classes):
        X, y = two_classes
        kernels = [RBF(width=1.0), Linear()]
        model = MKLClassifier(kernels)
        before = dict(model.get_params())
        model.fit(X, y)
        assert model.get_params() == before
        assert kernels == [RBF(width=1.0), Linear()]


def test_prediction_touches_only_support_vectors_and_used_kernels(two_classes, monkeypatch):
    X, y = two_classes
    model = MKLClassifier("simplemkl").fit(X, y)
    seen = []
    original = Plan.weighted

    def spy(self, weights, left, right, out):
        seen.append((self.m, right.n))
        return original(self, weights, left, right, out)

    monkeypatch.setattr(Plan, "weighted", spy)
    model.decision_function(X[:3])
    ((kernels, samples),) = seen
    used = [model.kernel_names_[k] for k in np.flatnonzero(model.weights_)]
    assert len(used) < len(model.weights_)
    # Those of degree 1 are looked up by their features.
    assert kernels == sum("degree=1" not in name for name in used)
    assert samples == len(model.support_) < 120


def test_version_and_public_names():
    assert kernelweave.__version__
    for name in kernelweave.__all__:
        assert getattr(kernelweave, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        kernelweave.nothing  # noqa: B018
