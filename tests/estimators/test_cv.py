"""MKLClassifierCV and MKLRegressorCV: C chosen by cross-validation along a path."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold, ShuffleSplit, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from kernelweave import MKLClassifier, MKLClassifierCV, MKLRegressor, MKLRegressorCV, sample_ids
from kernelweave.errors import InterruptedFitWarning, InvalidInputError
from kernelweave.kernels import RBF, Linear, Spectrum, from_matrices
from kernelweave.regularizers import L1, LpBall
from kernelweave.report import plot_path, summary_text
from kernelweave.solvers.path import entry_factor

FOLDS = StratifiedKFold(3, shuffle=True, random_state=0)
KERNELS = [Linear(), RBF(width=0.7), RBF(width=3.0)]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"loss": "logistic", "regularizer": L1(0.5), "scoring": "neg_log_loss"},
        {"class_weight": "balanced", "regularizer": LpBall(1.5), "scoring": "balanced_accuracy"},
        {"solver": "uniform", "loss": "squared_hinge"},
    ],
    ids=str,
)
def test_scores_are_those_of_a_grid_search_on_the_same_folds(two_classes, options):
    X, y = two_classes
    Cs = [0.03, 0.3, 3.0]
    options = {"kernels": KERNELS, "tol": 1e-5} | options
    model = MKLClassifierCV(Cs=Cs, cv=FOLDS, **options).fit(X, y)
    scoring = options.pop("scoring", None)
    search = GridSearchCV(MKLClassifier(**options), {"C": Cs}, cv=FOLDS, scoring=scoring).fit(X, y)
    theirs = np.array([search.cv_results_[f"split{i}_test_score"] for i in range(3)])
    assert_allclose(model.scores_, theirs, atol=5e-3 if scoring else 0)
    mean = model.cv_results_["mean_test_score"]
    assert_allclose(mean, theirs.mean(axis=0), atol=5e-3 if scoring else 1e-12)
    assert model.best_score_ == mean.max()
    assert Cs[int(mean.argmax())] == model.C_
    # The model kept is that of C_ on all samples.
    alone = clone(search.best_estimator_).set_params(C=model.C_).fit(X, y)
    assert model.objective_ == pytest.approx(alone.objective_, rel=2e-5)
    decisions = alone.decision_function(X)
    assert_allclose(model.decision_function(X), decisions, atol=3e-2)
    np.testing.assert_array_equal(model.weights_, model.path_weights_[model.best_index_])
    assert model.gap_ == model.path_gaps_[model.best_index_] <= 1e-5


def test_attributes_and_table(two_classes):
    X, y = two_classes
    model = MKLClassifierCV(KERNELS, Cs=6, cv=4, regularizer="l1", C_ratio=100).fit(X, y)
    assert model.Cs_.shape == (6,)
    assert model.Cs_[-1] / model.Cs_[0] == pytest.approx(100)
    assert_allclose(np.diff(np.log(model.Cs_)), np.log(100) / 5)
    assert model.scores_.shape == (4, 6)
    assert model.path_weights_.shape == (6, 3)
    assert np.all(model.path_gaps_ <= 1e-3)
    assert model.path_weights_[0].max() < 1e-3 < model.path_weights_[-1].max()
    table = pd.DataFrame(model.cv_results_)
    assert len(table) == 6
    for name in ("param_C", "params", "split3_test_score", "std_test_score", "rank_test_score"):
        assert name in table
    assert table.rank_test_score[model.best_index_] == 1
    assert table.max_gap.max() <= 1e-3
    assert table.mean_n_kernels.iloc[-1] >= 1
    assert (table.mean_fit_time > 0).all()
    assert_allclose(table.param_C, model.Cs_)
    assert "MKLClassifierCV: converged" in summary_text(model)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


def test_the_path_starts_where_the_first_kernel_enters(two_classes):
    X, y = two_classes
    model = MKLClassifierCV(KERNELS, Cs=2, cv=3, regularizer="l1", loss="logistic").fit(X, y)
    tasks = model._tasks(X, y, {})
    problem = model._set_up(tasks, 1.0).problems[0]
    assert model.Cs_[0] == pytest.approx(entry_factor(problem), rel=1e-9)


@pytest.mark.parametrize("multi_class", ["shared", "ovr"])
def test_several_classes(three_classes, multi_class):
    X, y = three_classes
    model = MKLClassifierCV(
        KERNELS, Cs=3, cv=3, loss="logistic", scoring="neg_log_loss", multi_class=multi_class
    ).fit(X, np.array(["a", "b", "c"])[y])
    assert model.path_weights_.shape == ((3, 3) if multi_class == "shared" else (3, 3, 3))
    assert model.score(X, np.array(["a", "b", "c"])[y]) > 0.9
    assert model.best_score_ > -0.3
    assert_allclose(model.predict_proba(X).sum(axis=1), 1.0)
    figure = plot_path(model)
    assert "neg_log_loss" in figure.axes[1].get_ylabel()


def test_regression(curve):
    X, y = curve
    folds = KFold(3, shuffle=True, random_state=0)
    options = {"kernels": KERNELS, "epsilon": 0.05, "tol": 1e-5}
    model = MKLRegressorCV(Cs=[0.1, 1.0, 10.0], cv=folds, **options).fit(X, y)
    search = GridSearchCV(MKLRegressor(**options), {"C": [0.1, 1.0, 10.0]}, cv=folds).fit(X, y)
    assert_allclose(
        model.cv_results_["mean_test_score"], search.cv_results_["mean_test_score"], atol=2e-3
    )
    assert search.best_params_["C"] == model.C_
    automatic = MKLRegressorCV(KERNELS, Cs=8, cv=folds, loss="squared").fit(X, y)
    assert automatic.best_score_ > 0.9
    # The units of y change the units of nothing else.
    larger = MKLRegressorCV(KERNELS, Cs=8, cv=folds, loss="squared").fit(X, 100 * y + 7)
    assert_allclose(larger.Cs_, automatic.Cs_, rtol=1e-6)


def test_the_number_of_threads_changes_nothing(two_classes):
    X, y = two_classes
    one, two = (
        MKLClassifierCV(KERNELS, Cs=4, cv=3, n_jobs=jobs, loss="logistic").fit(X, y)
        for jobs in (1, 2)
    )
    np.testing.assert_array_equal(one.scores_, two.scores_)
    np.testing.assert_array_equal(one.path_weights_, two.path_weights_)
    np.testing.assert_array_equal(one.dual_coef_, two.dual_coef_)


def test_sample_weights_go_with_their_samples(two_classes):
    X, y = two_classes
    weight = np.random.default_rng(0).uniform(0.2, 3.0, size=len(y))
    options = {"kernels": KERNELS, "tol": 1e-5}
    model = MKLClassifierCV(Cs=[0.1, 1.0], cv=FOLDS, **options)
    model.fit(X, y, sample_weight=weight)
    theirs = np.empty((3, 2))
    for i, (train, test) in enumerate(FOLDS.split(X, y)):
        for j, C in enumerate([0.1, 1.0]):
            alone = MKLClassifier(C=C, **options).fit(
                X[train], y[train], sample_weight=weight[train]
            )
            theirs[i, j] = alone.score(X[test], y[test], sample_weight=weight[test])
    assert_allclose(model.scores_, theirs, rtol=1e-12)
    plain = MKLClassifierCV(Cs=[0.1, 1.0], cv=FOLDS, scoring=lambda m, X, y: m.score(X, y))
    assert plain.fit(X, y, sample_weight=weight).scores_.max() <= 1.0
    # Twice the weights are twice the C, so the path starts at half of it.
    first = MKLClassifierCV(KERNELS, Cs=2, cv=3).fit(X, y, sample_weight=weight).Cs_
    half = MKLClassifierCV(KERNELS, Cs=2, cv=3).fit(X, y, sample_weight=2 * weight).Cs_
    assert_allclose(half, first / 2, rtol=1e-9)


def test_groups_splitters_frames_pipelines_and_sample_ids(two_classes):
    X, y = two_classes
    seen = []

    class Watching(GroupKFold):
        def split(self, X, y=None, groups=None):
            seen.append(np.asarray(groups))
            yield from super().split(X, y, groups)

    groups = np.arange(len(y)) % 6
    MKLClassifierCV(KERNELS, Cs=[1.0], cv=Watching(3)).fit(X, y, groups=groups)
    np.testing.assert_array_equal(seen[0], groups)
    splits = list(ShuffleSplit(2, random_state=0).split(X))
    frame = pd.DataFrame(X, columns=[f"c{j}" for j in range(X.shape[1])])
    views = [RBF(width=1.0).on(["c0", "c1"], StandardScaler()), Linear().on("c2")]
    model = MKLClassifierCV(views, Cs=3, cv=splits).fit(frame, y)
    assert model.scores_.shape == (2, 3)
    assert list(model.feature_names_in_) == list(frame.columns)
    pipeline = make_pipeline(StandardScaler(), MKLClassifierCV(KERNELS, Cs=2, cv=3)).fit(X, y)
    assert len(plot_path(pipeline).axes) == 2
    matrices = from_matrices([Linear()(X), RBF(width=1.0)(X)], names=["one", "two"])
    by_id = MKLClassifierCV(matrices, Cs=[0.1, 1.0], cv=FOLDS).fit(sample_ids(len(y)), y)
    direct = MKLClassifierCV([Linear(), RBF(width=1.0)], Cs=[0.1, 1.0], cv=FOLDS).fit(X, y)
    assert_allclose(by_id.scores_, direct.scores_, atol=0.03)


def test_sequences():
    rng = np.random.default_rng(0)
    y = np.arange(40) % 2
    sequences = ["".join(rng.choice(list("ACGT"), 20)) + ("GATTACA" if c else "") for c in y]
    model = MKLClassifierCV(Spectrum(3).by_length(), Cs=3, cv=3).fit(sequences, y)
    assert model.best_score_ > 0.9
    assert model.predict(sequences[:4]).tolist() == [0, 1, 0, 1]


def test_fits_that_do_not_converge_are_told_once(two_classes):
    X, y = two_classes
    model = MKLClassifierCV(KERNELS, Cs=3, cv=3, max_iter=1, tol=1e-9, solver="spg")
    with pytest.warns(ConvergenceWarning) as caught:
        model.fit(X, y)
    assert len(caught) == 1
    message = str(caught[0].message)
    assert "all samples, C = " in message and "more fits" in message and "max_iter=1" in message


def test_progress(two_classes, capsys):
    X, y = two_classes
    MKLClassifierCV(KERNELS, Cs=2, cv=3, verbose=1, n_jobs=1).fit(X, y)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4
    assert lines[0].startswith("[kernelweave] all samples: 2 values of C")
    assert "fold 3 of 3" in lines[3] and "best score" in lines[3]
    MKLClassifierCV(KERNELS, Cs=2, cv=3, verbose=2, n_jobs=1).fit(X, y)
    assert len(capsys.readouterr().out.splitlines()) == 4 + 2 * 4


@pytest.mark.parametrize(("press_at", "n_jobs"), [(1, 1), (40, 1), (40, 2)])
def test_an_interrupted_search_keeps_what_it_has(two_classes, press_at, n_jobs):
    X, y = two_classes
    calls = []

    def press(record):
        calls.append(record)
        if len(calls) == press_at:
            raise KeyboardInterrupt

    model = MKLClassifierCV(KERNELS, Cs=5, cv=3, n_jobs=n_jobs, tol=1e-8, callbacks=press)
    with pytest.warns(InterruptedFitWarning, match="interrupted"):
        if press_at == 1:
            # Not one C was fitted to the tolerance.
            with pytest.raises(KeyboardInterrupt):
                model.fit(X, y)
            with pytest.raises(NotFittedError):
                model.predict(X)
            return
        model.fit(X, y)
    assert len(calls) < 200
    assert model.C_ in model.Cs_ and len(model.Cs_) <= 5
    assert model.gap_ <= 1e-8
    alone = MKLClassifier(KERNELS, C=model.C_, tol=1e-8).fit(X, y)
    assert_allclose(model.objective_, alone.objective_, rtol=1e-6)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"Cs": 0}, ["Cs", "0", ">= 2"]),
        ({"Cs": 1}, ["Cs", ">= 2"]),
        ({"Cs": [-1.0]}, ["Cs", "-1.0", "> 0"]),
        ({"Cs": [1.0, np.inf]}, ["Cs", "inf", "finite"]),
        ({"Cs": []}, ["Cs"]),
        ({"Cs": "many"}, ["Cs", "many"]),
        ({"Cs": True}, ["Cs", "True"]),
        ({"C_ratio": 1.0}, ["C_ratio", "above 1"]),
        ({"C_ratio": -2.0}, ["C_ratio", "-2.0"]),
        ({"cv": 1}, ["cv", "1", ">= 2"]),
        ({"cv": 200}, ["cv=200", "120 samples", "smallest class"]),
        ({"cv": "five"}, ["cv='five'"]),
        ({"cv": []}, ["no folds"]),
        ({"n_jobs": 0}, ["n_jobs", "0"]),
    ],
    ids=str,
)
def test_bad_settings(two_classes, options, words):
    X, y = two_classes
    with pytest.raises(InvalidInputError) as caught:
        MKLClassifierCV(KERNELS, **({"Cs": [1.0]} | options)).fit(X, y)
    for word in words:
        assert word in str(caught.value)


def test_bad_data(two_classes, three_classes):
    X, y = two_classes
    sorted_folds = KFold(2)
    order = np.argsort(y, kind="stable")
    with pytest.raises(InvalidInputError, match=r"fold 1 of 2 has no sample of class .*0"):
        MKLClassifierCV(KERNELS, Cs=[1.0], cv=sorted_folds).fit(X[order], y[order])
    with pytest.raises(TypeError, match="sample_wight"):
        MKLClassifierCV(KERNELS).fit(X, y, sample_wight=np.ones(len(y)))
    with pytest.raises(AttributeError, match="predict_proba"):
        MKLClassifierCV(KERNELS, Cs=[1.0], cv=3, scoring="neg_log_loss").fit(X, y)
    undefined = MKLRegressorCV(KERNELS, Cs=[1.0], cv=[(np.arange(1, 120), np.array([0]))])
    with (
        pytest.warns(UserWarning),
        pytest.raises(InvalidInputError, match="gave no number for any C"),
    ):
        undefined.fit(X, X[:, 0])
    with pytest.raises(InvalidInputError, match="MKLClassifierCV and MKLRegressorCV"):
        plot_path(MKLClassifier(KERNELS).fit(X, y))
    with pytest.raises(InvalidInputError, match="top"):
        plot_path(MKLClassifierCV(KERNELS, Cs=[1.0], cv=3).fit(X, y), top=0)


def test_nothing_to_learn():
    X = np.random.default_rng(0).normal(size=(30, 2))
    model = MKLRegressorCV(KERNELS, Cs=3, cv=3, scoring="neg_mean_absolute_error")
    model.fit(X, np.full(30, 2.5))
    assert_allclose(model.predict(X), 2.5, atol=0.2)


def test_products_have_a_path_too(two_classes):
    X, y = two_classes
    model = MKLClassifierCV(Cs=4, cv=3, combination="product", regularizer="l1").fit(X, y)
    assert model.gap_kind_ == "projected_gradient"
    assert not model.path_weights_[0].any()
    assert model.best_score_ > 0.7


def test_the_figure_shows_what_was_found(two_classes):
    X, y = two_classes
    model = MKLClassifierCV("features", Cs=5, cv=3, regularizer="l1", loss="logistic")
    figure = plot_path(model.fit(X, y), top=2)
    upper, lower = figure.axes
    in_use = int(np.count_nonzero(model.path_weights_.any(axis=0)))
    lines = [line for line in upper.lines if len(line.get_xdata()) == 5]
    assert len(lines) == in_use
    texts = [text.get_text() for text in upper.get_legend().get_texts()]
    assert f"{in_use - 2} more kernels" in texts
    heaviest = model.kernel_names_[int(model.path_weights_.max(axis=0).argmax())]
    assert heaviest in texts
    marked = [line for line in lower.lines if line.get_xdata()[0] == model.C_]
    assert marked
    figure.savefig(pytest.importorskip("io").BytesIO(), format="png")


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("unit", [1e200, np.inf])
def test_scores_whose_squares_overflow(two_classes, unit):
    X, y = two_classes

    def score(model, X, y):
        return -unit * abs(X[0, 0])

    model = MKLClassifierCV(KERNELS, Cs=[0.1, 1.0], cv=FOLDS, scoring=score, tol=0.1).fit(X, y)
    expected = unit * (model.scores_ / unit).std(axis=0) if unit < np.inf else np.nan
    assert_allclose(model.cv_results_["std_test_score"], expected)
