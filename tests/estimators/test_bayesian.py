"""BayesianMKLClassifier: what it learns, what it shows, how it fits into scikit-learn."""

from __future__ import annotations

import inspect
import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from same_numbers import AFTER_A_FIT, assert_same_numbers
from scipy import sparse
from scipy.stats import norm
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from kernelweave import BayesianMKLClassifier, sample_ids
from kernelweave.bank import DenseBank
from kernelweave.bayes import Hyperparameters, Labels, Settings, infer
from kernelweave.kernels import RBF, Linear, RBFBatch, Spectrum, from_matrices
from kernelweave.operators import ComputedOperator
from kernelweave.solvers import Limits

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

KERNELS = [RBF(width=1.0), RBF(width=3.0), Linear()]
QUICK = {"kernels": KERNELS, "max_iter": 20, "bank": "dense"}
# Only the first column counts, so that a sparse fit has something to drop.
SPARSE = {"kernels": [RBF(width=1.0).on(j) for j in range(6)], "sparsity": "sparse"}


@pytest.fixture(scope="module")
def one_column():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(90, 6))
    return X, (X[:, 0] > 0).astype(int)


def test_signature_is_the_promised_one():
    parameters = inspect.signature(BayesianMKLClassifier).parameters
    expected = {
        "kernels": "default", "sparsity": "dense", "margin": 1.0, "multi_class": "shared",
        "max_iter": 200, "tol": 5e-4, "normalize": "diagonal", "sigma_g": 1.0,
        "hyperparameters": None, "unlabeled": None, "bank": "auto", "cache_mb": 1000,
        "n_jobs": None, "random_state": None, "verbose": 0, "callbacks": (), "max_time": None,
        "warm_start_from": None,
    }  # fmt: skip
    assert {name: p.default for name, p in parameters.items()} == expected
    assert [name for name, p in parameters.items() if p.kind is p.POSITIONAL_OR_KEYWORD] == [
        "kernels"
    ]


def test_fitted_attributes(two_classes):
    X, y = two_classes
    model = BayesianMKLClassifier(**QUICK).fit(X, y)
    assert model.weights_.shape == model.weights_std_.shape == (3,)
    assert np.all(model.weights_std_ > 0)
    assert model.intercept_.shape == model.intercept_std_.shape == (1,)
    assert model.kernel_names_ == ["rbf(width=1)", "rbf(width=3)", "linear"]
    assert model.n_iter_ == 20 and not model.converged_
    assert list(model.classes_) == [0, 1]
    assert model.n_features_in_ == 6
    table = pd.DataFrame(model.history_)
    assert list(table.columns) == [
        "iteration", "seconds", "lower_bound", "change", "active_kernels",
    ]  # fmt: skip
    assert model.lower_bound_ == table.lower_bound.iloc[-1]
    assert (table.lower_bound.diff().dropna() > 0).all()
    assert model.score(X, y) > 0.85


def test_everything_reaches_the_solver_and_comes_back(two_classes):
    X, y = two_classes
    settings = {"margin": 0.5, "sigma_g": 0.3, "max_iter": 9, "random_state": 3}
    model = BayesianMKLClassifier(
        KERNELS, bank="dense", hyperparameters={"alpha_omega": 3.0}, **settings
    ).fit(X[:80], y[:80])
    kernels = ComputedOperator.build(KERNELS, X[:80], normalize="diagonal")
    labels = Labels(np.where(y[:80] == 1, 1.0, -1.0)[None], 0.5)
    seed = np.random.RandomState(3).randint(2**31)
    posterior = infer(
        DenseBank("float32").build(kernels),
        labels,
        Settings(Hyperparameters(alpha_omega=3.0), 0.3),
        Limits(tol=1e-5, max_iter=9),
        seed,
    )
    assert_allclose(model.weights_, posterior.e_mean)
    assert_allclose(model.weights_std_, posterior.e_std)
    assert_allclose(model.intercept_, posterior.b_mean)
    assert_allclose(model.intercept_std_, posterior.b_std)
    assert model.lower_bound_ == pytest.approx(posterior.lower_bound)
    cross = kernels.against(X[80:]).block()
    mean, std = model.decision_function(X[80:], return_std=True)
    assert_allclose(mean, posterior.mean(cross, np.arange(3))[0])
    assert_allclose(std, np.sqrt(posterior.variance(cross, np.arange(3))[0]))
    assert_allclose(model.decision_function(X[80:]), mean)


class TestTwoClasses:
    def test_the_second_class_is_the_positive_one(self, two_classes):
        X, y = two_classes
        model = BayesianMKLClassifier(**QUICK).fit(X, y)
        other = BayesianMKLClassifier(**QUICK).fit(X, np.where(y == 1, "a", "b"))
        decisions = model.decision_function(X)
        assert decisions.shape == (120,)
        assert_array_equal(model.predict(X), (decisions > 0).astype(int))
        assert list(other.classes_) == ["a", "b"]
        assert_allclose(other.decision_function(X), -decisions, atol=1e-8)
        assert_array_equal(other.predict(X), np.where(decisions > 0, "a", "b"))

    @pytest.mark.parametrize("margin", [0.0, 1.0])
    def test_probabilities(self, two_classes, margin):
        X, y = two_classes
        model = BayesianMKLClassifier(**QUICK, margin=margin).fit(X, y)
        mean, std = model.decision_function(X, return_std=True)
        above, below = norm.cdf((mean - margin) / std), norm.cdf((-mean - margin) / std)
        p = model.predict_proba(X)
        assert_allclose(p, np.column_stack([below, above]) / (above + below)[:, None])
        assert_array_equal(model.classes_[p.argmax(axis=1)], model.predict(X))

    def test_minus_one_is_a_label_unless_it_is_the_marker(self, two_classes):
        X, y = two_classes
        model = BayesianMKLClassifier(**QUICK).fit(X, 2 * y - 1)
        assert list(model.classes_) == [-1, 1]
        assert_allclose(
            model.decision_function(X),
            BayesianMKLClassifier(**QUICK).fit(X, y).decision_function(X),
        )


class TestSeveralClasses:
    def test_shared_weights(self, three_classes):
        X, y = three_classes
        model = BayesianMKLClassifier(**QUICK).fit(X, y)
        assert model.weights_.shape == (3,) and model.intercept_.shape == (3,)
        mean, std = model.decision_function(X, return_std=True)
        assert mean.shape == std.shape == (150, 3)
        p = model.predict_proba(X)
        above, below = norm.cdf((mean - 1) / std), norm.cdf((-mean - 1) / std)
        each = above / (above + below)
        assert_allclose(p, each / each.sum(axis=1, keepdims=True), rtol=1e-6)
        assert_array_equal(model.predict(X), p.argmax(axis=1))
        assert model.score(X, y) > 0.9

    def test_a_fit_for_each_class(self, three_classes):
        X, y = three_classes
        model = BayesianMKLClassifier(**QUICK, multi_class="ovr").fit(X, y)
        alone = [BayesianMKLClassifier(**QUICK).fit(X, y == c) for c in range(3)]
        assert_allclose(model.weights_, [fit.weights_ for fit in alone])
        assert_allclose(model.weights_std_, [fit.weights_std_ for fit in alone])
        decisions = np.column_stack([fit.decision_function(X) for fit in alone])
        assert_allclose(model.decision_function(X), decisions)
        stds = np.column_stack([fit.decision_function(X, return_std=True)[1] for fit in alone])
        assert_allclose(model.decision_function(X, return_std=True)[1], stds)
        assert model.lower_bound_ == pytest.approx(sum(fit.lower_bound_ for fit in alone))
        assert model.n_iter_ == len(model.history_) == 60

    def test_two_classes_need_no_rest(self, two_classes):
        X, y = two_classes
        one, other = (
            BayesianMKLClassifier(**QUICK, multi_class=how).fit(X, y) for how in ("ovr", "shared")
        )
        assert_same_numbers(one.weights_, other.weights_, AFTER_A_FIT)

    def test_probabilities_far_from_every_class(self, three_classes, monkeypatch):
        X, y = three_classes
        model = BayesianMKLClassifier(**QUICK).fit(X, y)
        mean = np.array([[-200.0, -300.0, -250.0], [-1e4, -1e4, -1e4]])
        monkeypatch.setattr(model, "_mean_and_std", lambda X: (mean, np.ones_like(mean)))
        p = model.predict_proba(X[:2])
        assert_allclose(p, [[1, 0, 0], [1 / 3, 1 / 3, 1 / 3]], atol=1e-9)
        assert model.predict(X[:1])[0] == 0


class TestSparse:
    def test_dropped_kernels_have_weight_zero_and_are_never_evaluated(
        self, one_column, monkeypatch
    ):
        X, y = one_column
        model = BayesianMKLClassifier(**SPARSE).fit(X, y)
        used = np.flatnonzero(model.weights_)
        assert 0 in used and len(used) < 6
        largest = np.abs(model.weights_).max()
        assert np.all(np.abs(model.weights_[used]) > 1e-3 * largest)
        assert np.all(model.weights_std_ > 0)
        asked = []
        original = ComputedOperator.block

        def spy(self, rows=None, columns=None, kernels=None):
            asked.append(np.array(kernels))
            return original(self, rows, columns, kernels)

        monkeypatch.setattr(ComputedOperator, "block", spy)
        for ask in (model.predict, model.predict_proba, model.decision_function, model.transform):
            ask(X[:5])
        model.decision_function(X[:5], return_std=True)
        assert len(asked) == 5
        for kernels in asked:
            assert_array_equal(kernels, used)

    def test_each_class_drops_its_own(self, three_classes):
        X, y = three_classes
        kernels = [RBF(width=0.5).on(j) for j in range(4)]
        model = BayesianMKLClassifier(kernels, sparsity="sparse", multi_class="ovr").fit(X, y)
        used = model.weights_ != 0
        assert not used.all() and len({tuple(row) for row in used}) > 1
        mean, std = model.decision_function(X, return_std=True)
        alone = BayesianMKLClassifier(kernels, sparsity="sparse").fit(X, y == 2)
        expected = alone.decision_function(X, return_std=True)
        assert_allclose(mean[:, 2], expected[0])
        assert_allclose(std[:, 2], expected[1])

    def test_nothing_is_dropped_otherwise(self, one_column):
        X, y = one_column
        model = BayesianMKLClassifier(**{**SPARSE, "sparsity": "dense"}).fit(X, y)
        assert np.all(model.weights_ != 0)


def test_more_rows_than_are_taken_at_a_time(three_classes):
    X, y = three_classes
    model = BayesianMKLClassifier(**QUICK).fit(X, y)
    found = model.decision_function(np.tile(X, (150, 1)), return_std=True)
    for many, few in zip(found, model.decision_function(X, return_std=True), strict=True):
        assert_allclose(many, np.tile(few, (150, 1)))


class TestSettings:
    @pytest.mark.parametrize(
        ("setting", "match"),
        [
            ({"sparsity": "sparce"}, "sparsity 'sparce'; did you mean 'sparse'"),
            ({"multi_class": "ova"}, "multi_class 'ova'.*'ovr', 'shared'"),
            ({"margin": -0.1}, "margin must be a finite number >= 0; got -0.1"),
            ({"margin": "wide"}, "margin must be"),
            ({"sigma_g": 0.0}, "sigma_g must be a finite number > 0; got 0.0"),
            ({"hyperparameters": {"alpha": 1.0}}, "'alpha'.*Allowed: .*'alpha_lambda'"),
            ({"hyperparameters": {"alpha_omega": -1.0}}, r"alpha_omega.*> 0; got -1.0"),
            ({"hyperparameters": 3}, "dictionary"),
            ({"tol": -1.0}, "tol must be a finite number >= 0"),
            ({"max_iter": 0}, "max_iter must be an integer >= 1"),
            ({"max_time": -1}, "max_time"),
            ({"n_jobs": 0}, "n_jobs"),
            ({"bank": "shelf"}, "bank 'shelf'"),
            ({"callbacks": 3}, "callbacks must be a sequence"),
        ],
        ids=str,
    )
    def test_errors(self, two_classes, setting, match):
        with pytest.raises(ValueError, match=match):
            BayesianMKLClassifier(**setting).fit(*two_classes)

    def test_hyperparameters_as_an_object(self, two_classes):
        X, y = two_classes
        given = {"alpha_lambda": 2.0, "beta_gamma": 0.5}
        one = BayesianMKLClassifier(**QUICK, hyperparameters=given).fit(X, y)
        other = BayesianMKLClassifier(**QUICK, hyperparameters=Hyperparameters(**given)).fit(X, y)
        plain = BayesianMKLClassifier(**QUICK).fit(X, y)
        assert_same_numbers(one.weights_, other.weights_, AFTER_A_FIT)
        assert not np.allclose(one.weights_, plain.weights_, rtol=1e-3)

    def test_callbacks_and_limits(self, two_classes):
        X, y = two_classes
        seen = []
        model = BayesianMKLClassifier(
            KERNELS, callbacks=[lambda line: seen.append(line), lambda line: line.iteration == 4]
        ).fit(X, y)
        assert model.n_iter_ == 4 and seen == model.history_ and not model.converged_
        with pytest.warns(ConvergenceWarning, match="max_iter=3"):
            BayesianMKLClassifier(KERNELS, max_iter=3).fit(X, y)
        assert BayesianMKLClassifier(KERNELS, tol=0.1).fit(X, y).converged_

    def test_the_seed_draws_the_start(self, two_classes):
        X, y = two_classes
        a, b, c, d = (
            BayesianMKLClassifier(KERNELS, max_iter=2, random_state=seed).fit(X, y).weights_
            for seed in (None, None, 1, np.random.RandomState(1))
        )
        assert_same_numbers(a, b, AFTER_A_FIT)
        assert_same_numbers(c, d, AFTER_A_FIT)
        assert not np.allclose(a, c)

    def test_threads_change_nothing(self, three_classes):
        X, y = three_classes
        one, two = (BayesianMKLClassifier(max_iter=5, n_jobs=jobs).fit(X, y) for jobs in (1, 2))
        assert_array_equal(one.weights_, two.weights_)
        assert_array_equal(one.predict_proba(X), two.predict_proba(X))

    def test_before_fit(self, two_classes):
        X, _ = two_classes
        model = BayesianMKLClassifier()
        for name in ("predict", "predict_proba", "decision_function", "transform"):
            with pytest.raises(NotFittedError):
                getattr(model, name)(X)


class TestLearntKernel:
    def test_combined_kernel_and_transform(self, two_classes):
        X, y = two_classes
        model = BayesianMKLClassifier(**QUICK).fit(X[:80], y[:80])
        cross = ComputedOperator.build(KERNELS, X[:80], normalize="diagonal").against(X).block()
        expected = np.tensordot(model.weights_, cross, axes=1)
        assert_allclose(model.transform(X), expected)
        assert_allclose(model.combined_kernel(X, X[:80]), expected)
        assert_allclose(model.as_kernel()(X, X[:80]), expected)

    def test_as_a_step_with_names(self, two_classes):
        X, y = two_classes
        model = BayesianMKLClassifier(**QUICK).set_output(transform="pandas")
        assert model.fit(X, y).transform(X[:4]).columns[0] == "kernel_to_row_0"
        pipe = make_pipeline(
            StandardScaler(), BayesianMKLClassifier(**QUICK), SVC(kernel="precomputed")
        )
        assert pipe.fit(X[:80], y[:80]).score(X[80:], y[80:]) > 0.7


class TestInput:
    def test_frames_by_name(self, three_classes):
        X, y = three_classes
        names = ["sepal length", "sepal width", "petal length", "petal width"]
        kernels = [RBF(width=2).on("petal length"), Linear().on(names[:2], StandardScaler())]
        results = []
        for frame in (pd.DataFrame(X, columns=names), pl.DataFrame(X, schema=names)):
            model = BayesianMKLClassifier(kernels, max_iter=10).fit(frame, y)
            assert model.kernel_names_[0] == "rbf(width=2) on petal length"
            assert list(model.feature_names_in_) == names
            results.append(model.predict_proba(frame))
        assert_allclose(*results)

    def test_sparse_matrices(self, two_classes):
        X, y = two_classes
        X = np.where(np.abs(X) > 0.5, X, 0.0)
        X[:, 0] = 1.0
        dense = BayesianMKLClassifier(**QUICK).fit(X, y)
        thin = BayesianMKLClassifier(**QUICK).fit(sparse.csr_array(X), y)
        assert_allclose(thin.predict_proba(sparse.csr_array(X)), dense.predict_proba(X), atol=1e-6)

    def test_sequences(self):
        rng = np.random.default_rng(0)
        y = np.repeat([0, 1], 15)
        texts = ["".join(rng.choice(list("AACGT" if c else "ACGTT"), size=15)) for c in y]
        model = BayesianMKLClassifier([Spectrum(k=1), Spectrum(k=2)], max_iter=20).fit(texts, y)
        # Means come from look-ups of k-mers, and with standard deviations from kernel values.
        assert_allclose(
            model.decision_function(texts), model.decision_function(texts, return_std=True)[0]
        )
        assert_array_equal(model.predict(texts), model.predict(np.array(texts)))

    def test_batches_beside_other_kernels(self, two_classes):
        X, y = two_classes
        batch = RBFBatch([[0], [1], [2]], [0.5, 0.5, 0.5])
        model = BayesianMKLClassifier([batch, Linear()], max_iter=20).fit(X, y)
        same = [*(RBF(gamma=0.5).on(j) for j in range(3)), Linear()]
        plain = BayesianMKLClassifier(same, max_iter=20).fit(X, y)
        assert_allclose(model.weights_, plain.weights_, rtol=1e-6)
        assert_allclose(model.predict_proba(X), plain.predict_proba(X), rtol=1e-5)

    def test_precomputed_in_a_grid_search(self, two_classes):
        X, y = two_classes
        matrices = [kernel(X) for kernel in KERNELS]
        model = BayesianMKLClassifier(from_matrices(matrices, names=list("abc")), max_iter=20)
        ids = sample_ids(120)
        model.fit(ids[:90], y[:90])
        direct = BayesianMKLClassifier(KERNELS, max_iter=20, bank="dense").fit(X[:90], y[:90])
        assert_allclose(model.predict_proba(ids[90:]), direct.predict_proba(X[90:]), atol=1e-6)
        search = GridSearchCV(model, {"sparsity": ["dense", "sparse"]}, cv=3).fit(ids, y)
        assert search.best_score_ > 0.7
        assert search.best_estimator_.kernel_names_ == ["a", "b", "c"]


class TestScikitLearn:
    def test_cross_validation_with_probabilities(self, three_classes):
        X, y = three_classes
        scores = cross_val_score(BayesianMKLClassifier(**QUICK), X, y, cv=3, scoring="neg_log_loss")
        assert np.all(scores > -0.5)

    def test_clone_and_pickle(self, two_classes):
        X, y = two_classes
        model = BayesianMKLClassifier(**QUICK, hyperparameters={"alpha_gamma": 2.0}).fit(X, y)
        fresh = clone(model)
        assert not hasattr(fresh, "weights_") and fresh.get_params() == model.get_params()
        again = pickle.loads(pickle.dumps(model))
        assert_same_numbers(again.predict_proba(X), model.predict_proba(X))
