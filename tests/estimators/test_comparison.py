"""Solvers side by side: one problem on the same rows, honest numbers, no crash of the whole."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pytest
from sklearn.datasets import make_classification
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import kernelweave
from kernelweave import MKLClassifier, MKLOneClass, MKLRegressor, compare, sample_ids
from kernelweave.errors import InterruptedFitWarning, InvalidInputError, UnknownNameError
from kernelweave.inspect.comparison import default_estimator, line_up
from kernelweave.kernels import RBF, Linear, from_matrices
from kernelweave.report import Comparison, ComparisonRow
from kernelweave.solvers import MWU, SPG

KERNELS = [Linear(), RBF(width=1.0), RBF(width=4.0)]
ALL = ["active-set", "silp", "spg", "spicy", "mwu", "bayes", "nystrom", "align", "uniform"]


@pytest.fixture(scope="module")
def data():
    return make_classification(n_samples=80, n_features=5, random_state=0)


@pytest.fixture(scope="module")
def found(data):
    return compare(*data, ALL, estimator=MKLClassifier(KERNELS, C=2.0), n_splits=2)


class Watched(MKLClassifier):
    """Writes down who fits which rows."""

    seen: list = []  # noqa: RUF012

    def fit(self, X, y, **fit_params):
        self.seen.append((self.solver, X[:, 0].tolist()))
        warnings.warn("odd rows", UserWarning, stacklevel=1)
        return super().fit(X, y, **fit_params)


def row_of(found, name):
    return next(row for row in found.rows if row.solver == name)


def test_all_solvers_of_the_problem_find_its_optimum(found):
    certified = [row_of(found, name) for name in ALL[:5]]
    assert all(0 <= row.gap <= 1e-3 and row.converged for row in certified)
    np.testing.assert_allclose([row.objective for row in certified], certified[0].objective, 1e-2)
    assert all(len(row.scores) == 2 and row.error is None for row in found.rows)
    assert all(row.seconds > 0 and row.predict_seconds > 0 for row in found.rows)
    assert found.n_kernels == 3
    assert row_of(found, "uniform").kernels == 3


@pytest.mark.parametrize("name", ["bayes", "nystrom", "align", "uniform"])
def test_a_gap_that_is_not_one_to_the_optimum_is_not_shown(found, name):
    row = row_of(found, name)
    assert row.gap is None
    assert row.objective is None
    assert name in found.notes[0]
    line = next(line for line in found.table().splitlines() if line.startswith(name))
    assert line.split()[-4] == "-"


def test_scores_are_those_of_a_fit_by_hand(found, data):
    rows = []

    class ByHand(MKLClassifier):
        def fit(self, X, y, **fit_params):
            rows.append(X[:, 0])
            return super().fit(X, y, **fit_params)

    X, y = data
    compare(X, y, ["silp"], estimator=ByHand(KERNELS, C=2.0), n_splits=2)
    for train, score in zip(rows[1:], row_of(found, "silp").scores, strict=True):
        inside = np.isin(X[:, 0], train)
        assert inside.sum() == found.n_train == 56
        model = MKLClassifier(KERNELS, C=2.0, solver="silp").fit(X[inside], y[inside])
        assert model.score(X[~inside], y[~inside]) == score


def test_every_solver_gets_the_same_rows_and_the_lead_changes(data):
    Watched.seen = []
    with pytest.warns(UserWarning, match=r"odd rows \(in 4 fits\)"):
        compare(*data, ["silp", "uniform"], estimator=Watched(KERNELS), n_splits=2)
    # Two fits of few rows come first: compiled code is loaded before the clock starts.
    warm, timed = Watched.seen[:2], Watched.seen[2:]
    assert [name for name, _ in warm] == ["silp", "uniform"]
    assert all(len(rows) <= 60 for _, rows in warm)
    assert [name for name, _ in timed] == ["silp", "uniform", "uniform", "silp"]
    assert timed[0][1] == timed[1][1]
    assert timed[2][1] == timed[3][1] != timed[0][1]


def test_a_solver_that_does_not_take_the_problem_says_so(data):
    estimator = MKLClassifier("features", combination="product", regularizer="l1", tol=1e-2)
    found = compare(*data, ["spg", "silp", "bayes"], estimator=estimator, n_splits=1)
    spg, silp, bayes = found.rows
    assert spg.error is None
    assert "projected gradient" in " ".join(found.notes)
    assert "sum" in silp.error
    assert "adds kernels up" in bayes.error
    assert silp.score is silp.seconds is silp.gap is silp.converged is None
    assert silp.error in found.table()


def test_what_stops_all_of_them_is_raised(data):
    X, y = data
    broken = X.copy()
    broken[:, 0] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        compare(broken, y, ["silp", "spg"], n_splits=1)
    alone = compare(X, X[:, 0], ["nystrom"], n_splits=1)
    assert "quantity" in alone.rows[0].error


def test_regression_and_solver_objects(data):
    X, _ = data
    found = compare(X, X[:, 0] + X[:, 1], [SPG(), "bayes", "nystrom"], n_splits=1, test_size=20)
    assert found.metric == "R2"
    assert (found.n_train, found.n_test) == (60, 20)
    assert [row.solver for row in found.rows] == ["SPG()", "bayes", "nystrom"]
    assert found.rows[0].score > 0.9
    assert "classifier" in found.rows[2].error


def test_pipelines_keep_their_first_steps(data):
    X, y = data
    estimator = make_pipeline(StandardScaler(), MKLClassifier(KERNELS, class_weight="balanced"))
    names = np.array(["no", "yes"])[y]
    found = compare(1e6 * X, names, ["silp", "bayes"], estimator=estimator, n_splits=1)
    assert all(row.score > 0.7 for row in found.rows)
    assert "bayes has no class weights." in found.notes
    assert estimator[-1].solver == "auto"


def test_precomputed_kernels(data):
    X, y = data
    kernels = from_matrices([Linear()(X), RBF(width=2.0)(X)], names=["a", "b"])
    ids = sample_ids(len(y))
    found = compare(ids, y, ["silp", "uniform"], estimator=MKLClassifier(kernels), n_splits=1)
    assert min(row.score for row in found.rows) > 0.7


def test_time_limits_and_settings_reach_every_model():
    template = MKLClassifier(KERNELS, C=3.0, loss="squared_hinge", random_state=7)
    models = [one.estimator(template, 9.0) for one in line_up(["spicy", "bayes", "nystrom"])]
    assert [model.kernels for model in models] == [KERNELS] * 3
    assert [model.random_state for model in models] == [7] * 3
    assert models[0].max_time == models[1].max_time == 9.0
    assert (models[2].C, models[2].loss) == (3.0, "squared_hinge")
    assert template.max_time is None


def test_ctrl_c_keeps_what_is_done(data):
    def stop_in_the_fourth(done, total, text):
        if done == 3:
            raise KeyboardInterrupt

    options = {"estimator": MKLClassifier(KERNELS), "n_splits": 2}
    solvers = ["silp", "uniform", "spg"]
    with pytest.warns(InterruptedFitWarning, match="after 3 of 6 fits"):
        found = compare(*data, solvers, on_progress=stop_in_the_fourth, **options)
    assert found.interrupted
    assert [len(row.fits) for row in found.rows] == [1, 1, 1]
    assert found.rows[0].error == "stopped from the keyboard after 1 of 2 splits"


@pytest.mark.parametrize("before", [0, 1])
def test_ctrl_c_inside_a_fit_ends_the_whole(data, before):
    seen = []

    def stop(record):
        seen.append(record.iteration)
        if seen.count(0) > before:
            raise KeyboardInterrupt

    estimator = MKLClassifier(KERNELS, callbacks=[stop])
    solvers = ["silp", "spg", "uniform"]
    if not before:
        with pytest.raises(KeyboardInterrupt):
            compare(*data, solvers, estimator=estimator, n_splits=1)
    else:
        # The fit cut short is not among the results, the one before it is.
        with pytest.warns(InterruptedFitWarning, match="after 1 of 3 fits"):
            found = compare(*data, solvers, estimator=estimator, n_splits=1)
        assert [len(row.fits) for row in found.rows] == [1, 0, 0]
        assert "stopped from the keyboard" in found.table()
    # The fits of a few rows before the first do not call back.
    assert seen.count(0) == before + 1


def test_progress_is_told(data):
    told = []
    compare(
        *data,
        ["silp", "uniform"],
        estimator=MKLClassifier(KERNELS),
        n_splits=1,
        on_progress=lambda *what: told.append(what),
    )
    assert [done for done, _, _ in told] == [0, 0, 1, 2]
    assert {total for _, total, _ in told} == {2}
    assert told[1][2] == "silp, split 1 of 1"


def test_numbers_for_machines(found):
    text = json.dumps(found.to_dict(), allow_nan=False)
    told = json.loads(text)
    assert [row["solver"] for row in told["rows"]] == ALL
    assert told["rows"][0]["scores"] == found.rows[0].scores
    assert told["settings"] == {
        "C": "2.0",
        "loss": "hinge",
        "regularizer": "simplex",
        "tolerance": "0.001",
    }
    frame = found.to_frame()
    assert frame.loc["silp", "score"] == row_of(found, "silp").score
    not_a_number = found.rows[0].fits[0]._replace(score=float("nan"))
    assert ComparisonRow("x", (not_a_number,)).to_dict()["score"] is None


def test_the_table_has_straight_columns(found):
    rows = [ComparisonRow("a rather long name", (), "an error " * 20), *found.rows]
    lines = Comparison(rows, "accuracy", 2, 56, 24, 3).table().splitlines()
    assert lines[2].startswith("a rather long name  an error")
    assert len({len(line) for line in [lines[1], *lines[3:]]}) == 1
    assert str(found) == found.table()


@pytest.mark.parametrize(
    ("y", "kind"),
    [
        (["a", "b"], MKLClassifier),
        ([True, False], MKLClassifier),
        ([0.0, 1.0, 1.0], MKLClassifier),
        (np.arange(20), MKLClassifier),
        (np.arange(21), MKLRegressor),
        ([0.5, 1.0, 1.0], MKLRegressor),
    ],
)
def test_what_kind_of_target(y, kind):
    assert type(default_estimator(y)) is kind


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"solvers": ["slip"]}, UnknownNameError, "did you mean 'silp'"),
        ({"solvers": []}, InvalidInputError, "empty"),
        ({"solvers": ["silp", "silp"]}, InvalidInputError, "twice"),
        ({"estimator": SVC()}, InvalidInputError, "got SVC"),
        ({"estimator": MKLOneClass()}, InvalidInputError, "got MKLOneClass"),
        ({"estimator": MKLClassifier}, InvalidInputError, "the class MKLClassifier"),
        ({"estimator": make_pipeline(StandardScaler())}, InvalidInputError, "got Pipeline"),
        ({"test_size": 0}, InvalidInputError, "test_size"),
        ({"test_size": 80}, InvalidInputError, "number of samples below 80"),
        ({"test_size": 0.999}, InvalidInputError, "leaves 0 of 80"),
        ({"n_splits": 0}, InvalidInputError, "n_splits"),
        ({"time_limit": -1}, InvalidInputError, "time_limit"),
    ],
)
def test_wrong_requests(data, options, error, words):
    with pytest.raises(error, match=words):
        compare(*data, **options)


def test_labels_name_what_differs():
    labels = [one.label for one in line_up([MWU(), MWU(omega="paper"), "mwu"])]
    assert labels == ["MWU()", "MWU(omega='paper')", "mwu"]
    assert [one.certified for one in line_up("align")] == [False]


def test_a_class_with_one_sample_can_be_split(data):
    X, y = data
    rare = y.copy()
    rare[0] = 2
    found = compare(X, rare, ["uniform"], estimator=MKLClassifier(KERNELS), n_splits=1)
    assert found.rows[0].score is not None


def test_it_is_a_public_name():
    assert kernelweave.compare is compare
    assert "compare" in kernelweave.__all__
