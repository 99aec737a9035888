"""How sure the weights are: replicates of the rows, what is counted over them, how it is told."""

from __future__ import annotations

import warnings

import joblib
import numpy as np
import pandas as pd
import polars as pl
import pytest
from same_numbers import AFTER_A_FIT, assert_same_numbers
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import kernelweave
from kernelweave import MKLClassifier, MKLOneClass, MKLRegressor, sample_ids, stability
from kernelweave.errors import InterruptedFitWarning, InvalidInputError, UnknownNameError
from kernelweave.inspect.ranking import find_estimator
from kernelweave.inspect.stability import align_weights
from kernelweave.kernels import RBF, Linear, default_family, from_matrices

KERNELS = [RBF(width=1.0).on(j) for j in range(6)]


class Counter(BaseEstimator):
    """A model without a fit: kernel k is row k, and its weight says how often the row was drawn."""

    def __init__(self, n=20, n_jobs=None):
        self.n = n
        self.n_jobs = n_jobs

    def fit(self, X, y=None, sample_weight=None, tag=None):
        ids = np.asarray(X)[:, 0].astype(int)
        if y is not None:
            assert np.array_equal(np.asarray(y), TARGETS[ids])
        if sample_weight is not None:
            assert np.array_equal(sample_weight, 10.0 * ids)
        assert tag in (None, "as it is")
        assert (np.diff(ids) >= 0).all()  # Copies are neighbours.
        self.weights_ = np.bincount(ids, minlength=self.n).astype(float)
        self.kernel_names_ = [f"row {i}" for i in range(self.n)]
        self.converged_ = True
        self.happen()
        return self

    def happen(self):
        pass


class CountingClassifier(ClassifierMixin, Counter):
    pass


# One row of class "a", four of "b", fifteen of "c".
TARGETS = np.array(["c"] * 5 + ["a"] + ["b"] * 4 + ["c"] * 10)
IDS = sample_ids(20)


@pytest.fixture(scope="module")
def planted():
    """Columns 0 and 1 decide the class, the other four are noise."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 6))
    return X, np.where(X[:, 0] + X[:, 1] + 0.3 * rng.normal(size=150) > 0, "yes", "no")


# What is counted


@pytest.mark.parametrize("sampling", ["bootstrap", "subsample"])
def test_planted_kernels_are_selected_and_noise_is_not(planted, sampling):
    X, y = planted
    model = MKLClassifier(KERNELS, C=0.1)
    result = stability(model, X, y, n_bootstrap=30, sampling=sampling, random_state=0)
    assert result.frequency[:2].min() >= 0.9
    assert result.frequency[2:].max() <= 0.1
    assert result.low[:2].max() > 0.0 and result.high[2:].max() < 0.1
    assert_same_numbers(
        result.weights, MKLClassifier(KERNELS, C=0.1).fit(X, y).weights_, AFTER_A_FIT
    )
    assert result.sampling == sampling
    assert not hasattr(model, "weights_")


def test_planted_kernels_of_a_regression_are_selected(planted):
    X, _ = planted
    y = np.sin(2 * X[:, 0]) + X[:, 1]
    result = stability(MKLRegressor(KERNELS), X, y, n_bootstrap=15, random_state=0)
    assert result.frequency[:2].min() == 1.0
    assert result.mean[2:].max() < 0.01


def test_level_and_threshold_reach_the_result():
    result = stability(Counter(), IDS, n_bootstrap=200, level=0.5, threshold=1.5, random_state=0)
    assert (result.level, result.threshold) == (0.5, 1.5)
    assert np.array_equal(result.frequency, (result.replicates > 1.5).mean(axis=0))
    quartiles = np.quantile(result.replicates, [0.25, 0.75], axis=0)
    assert np.array_equal([result.low, result.high], quartiles)


def test_weights_of_every_class_are_averaged(three_classes):
    X, y = three_classes
    kernels = [RBF(width=1.0).on(j) for j in range(4)]
    model = MKLClassifier(kernels, multi_class="ovr")
    result = stability(model, X, y, n_bootstrap=3, random_state=0)
    assert result.replicates.shape == (3, 4)
    assert_same_numbers(result.weights, model.fit(X, y).weights_.mean(axis=0), AFTER_A_FIT)


# Rows


def test_a_bootstrap_replicate_has_n_rows_with_copies():
    result = stability(Counter(), IDS, n_bootstrap=50, random_state=0)
    assert np.array_equal(result.weights, np.ones(20))
    assert (result.replicates.sum(axis=1) == 20).all()
    assert (result.replicates.max(axis=1) > 1).all()
    assert result.replicates.mean(axis=0) == pytest.approx(np.ones(20), abs=0.5)


def test_a_subsample_has_half_of_the_rows_once():
    result = stability(Counter(), IDS, n_bootstrap=50, sampling="subsample", random_state=0)
    assert (result.replicates.sum(axis=1) == 10).all()
    assert result.replicates.max() == 1
    assert result.frequency == pytest.approx(np.full(20, 0.5), abs=0.3)


def test_classes_keep_their_sizes():
    result = stability(CountingClassifier(), IDS, TARGETS, n_bootstrap=50, random_state=0)
    for label, size in (("a", 1), ("b", 4), ("c", 15)):
        assert (result.replicates[:, label == TARGETS].sum(axis=1) == size).all()
    half = stability(
        CountingClassifier(), IDS, TARGETS, n_bootstrap=50, sampling="subsample", random_state=0
    )
    # A class of one row keeps it.
    for label, size in (("a", 1), ("b", 2), ("c", 7)):
        assert (half.replicates[:, label == TARGETS].sum(axis=1) == size).all()


@pytest.mark.parametrize("model, stratify", [(CountingClassifier(), False), (Counter(), True)])
def test_classes_are_ignored_on_request_and_by_other_estimators(model, stratify):
    result = stability(model, IDS, TARGETS, n_bootstrap=50, stratify=stratify, random_state=0)
    assert len(set(result.replicates[:, TARGETS == "b"].sum(axis=1))) > 1


def test_arguments_of_fit_are_drawn_with_the_rows():
    params = {"sample_weight": 10.0 * np.arange(20), "tag": "as it is"}
    stability(Counter(), IDS, TARGETS, n_bootstrap=5, fit_params=params, random_state=0)
    with pytest.raises(AssertionError):
        params = {"sample_weight": np.arange(20)}
        stability(Counter(), IDS, TARGETS, n_bootstrap=5, fit_params=params, random_state=0)


def test_sample_weights_change_the_weights(planted):
    X, y = planted
    weight = np.where(X[:, 2] > 0, 1.0, 0.01)
    given = {"fit_params": {"sample_weight": weight}, "n_bootstrap": 2, "random_state": 0}
    model = MKLClassifier(KERNELS, C=0.1)
    result = stability(model, X, y, **given)
    assert_same_numbers(result.weights, model.fit(X, y, sample_weight=weight).weights_, AFTER_A_FIT)
    inside = {"fit_params": {"mklclassifier__sample_weight": weight}}
    again = stability(make_pipeline(model), X, y, **(given | inside))
    assert_same_numbers(result.replicates, again.replicates, AFTER_A_FIT)


def test_a_replicate_is_the_fit_on_its_rows(planted):
    X, y = planted
    y_number = np.where(y == "yes", 1.0, 0.0)
    seen = []

    class Listener(MKLRegressor):
        def fit(self, X, y, **fit_params):
            seen.append((X, y))
            return super().fit(X, y, **fit_params)

    result = stability(Listener(KERNELS), X, y_number, n_bootstrap=2, random_state=0)
    for (rows, targets), weights in zip(seen[1:], result.replicates, strict=True):
        assert_same_numbers(MKLRegressor(KERNELS).fit(rows, targets).weights_, weights, AFTER_A_FIT)


# Seeds and jobs


def test_the_seed_decides_and_the_number_of_replicates_does_not():
    first = stability(Counter(), IDS, n_bootstrap=5, random_state=3)
    longer = stability(Counter(), IDS, n_bootstrap=9, random_state=3)
    other = stability(Counter(), IDS, n_bootstrap=5, random_state=4)
    assert np.array_equal(first.replicates, longer.replicates[:5])
    assert not np.array_equal(first.replicates, other.replicates)
    assert len(np.unique(longer.replicates, axis=0)) == 9
    state = stability(Counter(), IDS, n_bootstrap=5, random_state=np.random.RandomState(3))
    assert np.array_equal(first.replicates, state.replicates)


def test_processes_give_the_same_result(planted):
    X, y = planted
    given = {"n_bootstrap": 4, "random_state": 0}
    alone = stability(MKLClassifier(KERNELS), X, y, n_jobs=1, **given)
    many = stability(MKLClassifier(KERNELS), X, y, n_jobs=2, **given)
    assert_same_numbers(alone.replicates, many.replicates, AFTER_A_FIT)


def test_fits_beside_each_other_have_one_thread_each():
    seen = []

    class Listener(Counter):
        def happen(self):
            seen.append(self.n_jobs)

    with joblib.parallel_config(backend="threading"):
        result = stability(make_pipeline(Listener(n_jobs=5)), IDS, n_bootstrap=4, n_jobs=2)
    assert seen == [5, 1, 1, 1, 1]
    assert result.n_bootstrap == 4
    seen.clear()
    stability(Listener(n_jobs=5), IDS, n_bootstrap=2)
    assert seen == [5, 5, 5]


# Data and models of every kind


@pytest.mark.parametrize("kind", ["pandas", "polars", "csr", "coo", "list"])
def test_every_kind_of_X_gives_the_same(planted, kind):
    X, y = planted
    names = [f"x{j}" for j in range(6)]
    other = {
        "pandas": lambda: pd.DataFrame(X, columns=names, index=np.arange(150)[::-1]),
        "polars": lambda: pl.DataFrame(X, schema=names),
        "csr": lambda: sparse.csr_matrix(X),
        "coo": lambda: sparse.coo_matrix(X),
        "list": X.tolist,
    }[kind]()
    model = MKLClassifier([RBF(width=1.0), RBF(width=3.0), Linear()])
    given = {"n_bootstrap": 2, "random_state": 0}
    expected = stability(model, X, y, **given)
    labels = pd.Series(y, index=np.arange(150)[::-1]) if kind == "pandas" else list(y)
    got = stability(model, other, labels, **given)
    assert got.replicates == pytest.approx(expected.replicates, abs=1e-6)


def test_precomputed_kernels_on_sample_ids(planted):
    X, y = planted
    matrices = [RBF(width=1.0)(X[:, [j]]) for j in range(6)]
    given = {"n_bootstrap": 4, "random_state": 0}
    expected = stability(MKLClassifier(KERNELS, C=0.1), X, y, **given)
    kernels = from_matrices(matrices, names=list("abcdef"))
    got = stability(MKLClassifier(kernels, C=0.1), sample_ids(150), y, **given)
    # Two fits agree to the tolerance, not to the last bit.
    assert got.replicates == pytest.approx(expected.replicates, abs=0.02)
    assert list(got.names) == list("abcdef")


def test_matrices_are_checked_once(planted, monkeypatch):
    X, y = planted
    seen = []
    check = kernelweave.kernels.precomputed.check_kernel

    def spy(K, name):
        seen.append(name)
        return check(K, name)

    monkeypatch.setattr(kernelweave.kernels.precomputed, "check_kernel", spy)
    kernels = from_matrices([RBF(width=w)(X) for w in (1.0, 4.0)])
    stability(MKLClassifier(kernels), sample_ids(150), y, n_bootstrap=3, random_state=0)
    assert seen == ["K1", "K2"]


def test_pipelines_and_searches(planted):
    X, y = planted
    model = make_pipeline(StandardScaler(), MKLClassifier(KERNELS))
    search = GridSearchCV(model, {"mklclassifier__C": [0.1, 1.0]}, cv=2)
    result = stability(search, X, y, n_bootstrap=2, random_state=0)
    assert result.replicates.shape == (2, 6)
    assert result.title == "MKLClassifier"
    assert_same_numbers(result.weights, find_estimator(search.fit(X, y)).weights_, AFTER_A_FIT)


def test_texts_in_front_of_a_vectorizer():
    texts = ["red apple", "red plum", "green pear", "green leaf"] * 5
    model = make_pipeline(CountVectorizer(), MKLClassifier([Linear(), RBF(width=1.0)]))
    result = stability(model, texts, [0, 0, 1, 1] * 5, n_bootstrap=2, random_state=0)
    assert result.replicates.shape == (2, 2)


def test_one_class_has_no_targets(planted):
    X, _ = planted
    result = stability(MKLOneClass(KERNELS), X, n_bootstrap=2, random_state=0)
    assert result.title == "MKLOneClass"
    assert result.replicates.sum(axis=1) == pytest.approx(np.ones(2))


# Which kernel is which


def test_numbers_learnt_from_the_rows_are_no_other_kernel(planted):
    X, y = planted
    result = stability(MKLClassifier(["rbf", "linear"]), X, y, n_bootstrap=3, random_state=0)
    assert result.matched_by == "position"
    assert "matched by position" in str(result)
    assert result.replicates.sum(axis=1) == pytest.approx(np.ones(3))
    fixed = stability(MKLClassifier("default"), X, y, n_bootstrap=2, random_state=0)
    assert fixed.matched_by == "name"
    assert "position" not in str(fixed)


def test_a_kernel_that_a_replicate_leaves_out_has_weight_zero(planted):
    X, y = planted
    X = X[:, :2].copy()
    X[:, 1] = np.arange(150) == 0  # constant wherever row 0 was not drawn
    model = MKLClassifier(default_family(per_feature=True))
    result = stability(model, X, y, n_bootstrap=6, sampling="subsample", random_state=0)
    assert "linear on column 1" in result.names
    assert result.matched_by == "name"
    assert result.replicates.shape == (6, 21)
    assert result.replicates.sum(axis=1) == pytest.approx(np.ones(6))


@pytest.mark.parametrize(
    "names, reference, message",
    [
        (["a", "d"], ["a", "b"], "'d' is not among them"),
        (["a"], ["a", "a"], "several have the same name"),
        (["a", "b", "b"], ["b", "a", "a"], "several have the same name"),
        (["rbf(gamma=1) on column 3"], ["rbf(gamma=2) on column 5"], "column 3' is not among"),
        (["rbf(gamma=1)"], ["rbf(gamma=2)", "linear"], "is not among"),
    ],
)
def test_kernels_that_cannot_be_matched_are_refused(names, reference, message):
    with pytest.raises(InvalidInputError, match=message):
        align_weights(np.ones(len(names)), names, reference)


def test_kernels_in_another_order_are_matched_by_name():
    names, reference = ["rbf(gamma=2)", "rbf(gamma=1)"], ["rbf(gamma=1)", "rbf(gamma=2)"]
    aligned, matched_by = align_weights(np.array([0.2, 0.8]), names, reference)
    assert aligned.tolist() == [0.8, 0.2] and matched_by == "name"


# When things go wrong


@pytest.mark.parametrize(
    "wrong, message",
    [
        ({"n_bootstrap": 1}, "n_bootstrap must be an integer >= 2; got 1"),
        ({"n_bootstrap": 2.5}, "n_bootstrap must be an integer >= 2; got 2.5"),
        ({"n_bootstrap": True}, "got True"),
        ({"level": 95}, "level must be a number between 0 and 1, such as 0.95; got 95"),
        ({"level": 1.0}, "level must be"),
        ({"level": "high"}, "level must be"),
        ({"threshold": -0.1}, "threshold must be a finite number >= 0; got -0.1"),
        ({"threshold": np.nan}, "threshold must be"),
        ({"n_jobs": 0}, "n_jobs must be None or an integer other than 0; got 0"),
        ({"sampling": "bootstap"}, "did you mean 'bootstrap'"),
        ({"sampling": ["bootstrap"]}, "unknown sampling"),
    ],
)
def test_bad_arguments_are_refused_before_any_fit(wrong, message):
    class Never(Counter):
        def happen(self):
            raise AssertionError("fitted")

    with pytest.raises((InvalidInputError, UnknownNameError), match=message):
        stability(Never(), IDS, **wrong)


@pytest.mark.parametrize(
    "model", [SVC(), make_pipeline(StandardScaler(), SVC()), GridSearchCV(SVC(), {"C": [1.0]})]
)
def test_estimators_without_weights_are_refused(planted, model):
    with pytest.raises(InvalidInputError, match="learns no kernel weights"):
        stability(model, *planted, n_bootstrap=2)


@pytest.mark.parametrize("model", [3, MKLClassifier, "MKLClassifier"])
def test_things_that_are_no_estimators_are_refused(planted, model):
    with pytest.raises(InvalidInputError, match="stability refits an MKL estimator"):
        stability(model, *planted, n_bootstrap=2)


def test_rows_and_targets_must_agree(planted):
    X, y = planted
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        stability(MKLClassifier(KERNELS), X, y[:-1])


@pytest.mark.parametrize("backend", ["sequential", "threading"])
def test_a_replicate_that_fails_says_which_and_why(backend):
    class Fragile(Counter):
        def happen(self):
            if self.weights_[7] > 1:
                raise ValueError("row 7 twice")

    with joblib.parallel_config(backend=backend, n_jobs=1), pytest.raises(RuntimeError) as caught:
        stability(Fragile(), IDS, n_bootstrap=30, random_state=0)
    assert "of 30 (20 rows, " in str(caught.value)
    assert "failed: ValueError: row 7 twice" in str(caught.value)


def test_a_lost_class_is_told_and_stratification_prevents_it(planted):
    X, _ = planted
    rare = np.where(np.arange(150) == 3, "yes", "no")
    model, given = MKLClassifier(KERNELS), {"n_bootstrap": 8, "random_state": 0}
    with pytest.raises(RuntimeError, match="one class only"):
        stability(model, X, rare, stratify=False, **given)
    assert stability(model, X, rare, **given).n_bootstrap == 8


@pytest.mark.parametrize("backend", ["sequential", "threading"])
def test_fits_that_do_not_converge_are_counted_in_one_warning(planted, backend):
    X, y = planted
    model = MKLClassifier(KERNELS, tol=1e-9, max_iter=1)
    with (
        joblib.parallel_config(backend=backend, n_jobs=2),
        pytest.warns(ConvergenceWarning) as caught,
    ):
        result = stability(model, X, y, n_bootstrap=5, random_state=0)
    assert result.n_unconverged == 5
    assert "5 replicates did not reach the tolerance" in str(result)
    (message,) = [str(warning.message) for warning in caught]
    assert message.startswith("5 of 5 replicates did not reach the tolerance, nor did the fit")
    assert caught[0].filename == __file__


def test_fits_that_converge_are_silent(planted, capfd):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = stability(MKLClassifier(KERNELS), *planted, n_bootstrap=2, random_state=0)
    assert result.n_unconverged == 0
    assert capfd.readouterr() == ("", "")


def test_other_warnings_are_told_once_of_each_kind():
    class Talker(Counter):
        def happen(self):
            warnings.warn("the same for all", RuntimeWarning, stacklevel=1)
            if self.weights_.max() > 1:
                warnings.warn(
                    f"rows up to {self.weights_.max():g} times", UserWarning, stacklevel=1
                )

    with pytest.warns(Warning) as caught:
        stability(Talker(), IDS, n_bootstrap=10, random_state=0)
    told = sorted((warning.category.__name__, str(warning.message)) for warning in caught)
    assert [kind for kind, _ in told] == ["RuntimeWarning", "UserWarning"]
    assert told[0][1] == "the same for all"
    assert told[1][1].startswith("rows up to") and "(and 9 more like this" in told[1][1]


def interrupted_at(fit_number, how):
    """A model whose fit of that number meets Ctrl-C, seen by the fit itself or not."""
    count = []

    class Interrupted(Counter):
        def happen(self):
            count.append(1)
            if len(count) == fit_number and how == "raised":
                raise KeyboardInterrupt
            if len(count) == fit_number:
                warnings.warn("kept the best point", InterruptedFitWarning, stacklevel=1)

    return Interrupted()


@pytest.mark.parametrize("how", ["raised", "kept"])
def test_ctrl_c_keeps_the_replicates_that_are_done(how):
    with pytest.warns(InterruptedFitWarning, match="after 4 of 10 replicates") as caught:
        result = stability(interrupted_at(6, how), IDS, n_bootstrap=10, random_state=0)
    assert len(caught) == 1
    expected = stability(Counter(), IDS, n_bootstrap=4, random_state=0)
    assert np.array_equal(result.replicates, expected.replicates)


@pytest.mark.parametrize("how", ["raised", "kept"])
@pytest.mark.parametrize("fit_number", [1, 2, 3])
def test_ctrl_c_with_too_little_done_is_passed_on(how, fit_number):
    with pytest.raises(KeyboardInterrupt):
        stability(interrupted_at(fit_number, how), IDS, n_bootstrap=10, random_state=0)


# How it is told


def test_progress_is_shown_on_request(capfd):
    stability(Counter(), IDS, n_bootstrap=3, verbose=True, random_state=0)
    out, err = capfd.readouterr()
    assert out == ""
    assert "bootstrap replicates" in err and "100%" in err


def test_names_of_the_house():
    assert kernelweave.stability is kernelweave.report.stability
    assert "stability" in kernelweave.__all__
