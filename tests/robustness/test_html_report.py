"""The HTML report without a browser: what it says, how large it is, what it refuses."""

from __future__ import annotations

import json
import os
import re
import warnings
from html.parser import HTMLParser
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from same_numbers import AFTER_A_FIT, assert_same_numbers
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.exceptions import NotFittedError
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from kernelweave import (
    BayesianMKLClassifier,
    BayesianMKLRegressor,
    MKLClassifier,
    MKLClassifierCV,
    MKLOneClass,
    MKLRegressor,
    NystromMKLClassifier,
    sample_ids,
)
from kernelweave.errors import InvalidInputError
from kernelweave.inspect.held_out import area_under_roc, bootstrap, resamples, wilson
from kernelweave.inspect.recipe import recipe
from kernelweave.kernels import RBF, Linear, RBFBatch, Spectrum, WeightedDegree, from_matrices
from kernelweave.report import write_html

EVIL = "</script><script>document.title='broken'</script><b title=\"&\">$x^$"
VOID = {"meta", "link", "input", "br", "img", "hr"}


class Page(HTMLParser):
    """A page taken apart: its elements, its text, and whether they are nested as they should be."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.open, self.problems = [], [], []
        self.texts, self.scripts = [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.problems.append(tag)

    def handle_data(self, data):
        where = self.open[-1] if self.open else ""
        (self.scripts if where == "script" else self.texts).append(data)

    @property
    def text(self):
        return re.sub(r"\s+", " ", " ".join(self.texts))

    @property
    def data(self):
        return json.loads(next(s for s in self.scripts if s.startswith("{")))

    def all(self, tag):
        return [attrs for name, attrs in self.elements if name == tag]


def read(path):
    page = Page(path.read_text(encoding="utf-8"))
    assert page.problems == []
    return page


def report(model, tmp_path, *held, **settings):
    return read(write_html(model, tmp_path / "report.html", *held, **settings))


@pytest.fixture(scope="module")
def cancer():
    X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    X = X.iloc[::5, :6]
    names = np.array(["malignant", "benign"])
    return X.iloc[:80], names[y[::5]][:80], X.iloc[80:], names[y[::5]][80:]


@pytest.fixture(scope="module")
def classifier(cancer):
    X, y, _, _ = cancer
    kernels = [
        RBF(width=1.0).on([name], StandardScaler()) for name in ("mean radius", "mean texture")
    ]
    kernels += [Linear().on(["mean radius", "mean area"], StandardScaler(), label="size")]
    return MKLClassifier([*kernels, RBF(width=3.0)]).fit(X, y)


def sequences():
    rng = np.random.default_rng(0)
    X = ["".join(rng.choice(list("ACGT"), 20)) for _ in range(80)]
    y = np.arange(80) % 2
    return [x[:8] + "TTC" + x[11:] if own else x for x, own in zip(X, y, strict=True)], y


def kinds():
    """Every kind of model, with held-out samples and what its page must say."""
    X, y = load_iris(return_X_y=True, as_frame=True)
    train, test = slice(0, None, 2), slice(1, None, 2)
    X1, y1, X2, y2 = X[train], y[train], X[test], y[test]
    pairs = [RBF(width=1.0), Linear()]
    sepals = X1["sepal length (cm)"], X2["sepal length (cm)"]
    S, t = sequences()
    halves = [RBF(width=1.0).on(slice(0, 2)), RBF(width=1.0).on(slice(2, 4))]
    K = np.asarray(Linear()(X))
    two = np.arange(150) % 50 < 40
    several = np.column_stack([y1 == 0, y1 == 1]).astype(int)
    return {
        "ovr": (
            lambda: MKLClassifier(multi_class="ovr", loss="logistic").fit(X1, y1),
            (X2, y2),
            ["Calibration: predicted class", "One line for each of 3 fits", "class 2"],
        ),
        "regressor": (
            lambda: MKLRegressor(halves, C=10.0).fit(X1, sepals[0]),
            (X2, sepals[1]),
            ["R²", "Mean absolute error", "Residuals", "predicting the mean"],
        ),
        "path": (
            lambda: MKLClassifierCV(pairs, Cs=4, cv=2).fit(X1, y1),
            (X2, y2),
            ["How C was chosen", "Of 4 values of C", "Weights against C"],
        ),
        "search": (
            lambda: GridSearchCV(
                make_pipeline(StandardScaler(), MKLClassifier(pairs)),
                {"mklclassifier__C": [0.1, 1.0]},
                cv=2,
            ).fit(X1, y1),
            (X2, y2),
            ["How the settings were chosen", "mklclassifier__C=", "Steps before the model"],
        ),
        "one class": (
            lambda: MKLOneClass(halves, nu=0.2).fit(X1[y1 == 0]),
            (X2, np.where(y2 == 0, 1, -1)),
            ["Outliers found", "False alarms", "boundary"],
        ),
        "one class without truth": (
            lambda: MKLOneClass(halves, nu=0.2).fit(X1[y1 == 0]),
            (X2,),
            ["share called outliers", "nu = 0.2 allowed that share"],
        ),
        "bayesian": (
            lambda: BayesianMKLClassifier(pairs, max_iter=40, tol=0.01).fit(X1, y1),
            (X2, y2),
            ["lower bound on the log evidence", "How sure it is", "most in doubt", "Std"],
        ),
        "bayesian labels": (
            lambda: BayesianMKLClassifier(pairs, tol=0.1).fit(X1, several),
            (X2, np.column_stack([y2 == 0, y2 == 1]).astype(int)),
            ["Label by label", "All labels right"],
        ),
        "bayesian outputs": (
            lambda: BayesianMKLRegressor(pairs, tol=0.1).fit(X1, X1.iloc[:, :2]),
            (X2, X2.iloc[:, :2]),
            ["of output 1", "95 % intervals hold", "two predictive standard deviations"],
        ),
        "unlabelled": (
            lambda: BayesianMKLClassifier(pairs, unlabeled=-1, tol=0.1).fit(
                X1, np.where(y1 == 2, -1, y1)
            ),
            (X2, np.where(y2 == 2, -1, y2)),
            ["25 samples without a label were left out"],
        ),
        "nystrom": (
            lambda: NystromMKLClassifier(pairs, n_components=20).fit(X1, y1),
            (X2, y2),
            ["none: a baseline", "No weights were learnt"],
        ),
        "product": (
            lambda: MKLClassifier(combination="product", regularizer="l1", tol=0.01).fit(X1, y1),
            (X2, y2),
            ["stationary point", "not a proven optimum", "projected gradient"],
        ),
        "aligned sequences": (
            lambda: MKLClassifier(WeightedDegree(3).by_length().by_position(5)).fit(S, t),
            (S, t),
            ["Weights by k-mer length and position", "K-mers with most to say", "Letters"],
        ),
        "windows": (
            lambda: MKLClassifier(WeightedDegree(2).by_position(5)).fit(S, t),
            (S, t),
            ["Weight of each window of positions"],
        ),
        "spectrum": (
            lambda: MKLClassifier([Spectrum(1), Spectrum(2)]).fit(S, t),
            (S, t),
            ["Weight of each k-mer length", "for class 1"],
        ),
        "matrices": (
            lambda: MKLClassifier(from_matrices([K, K**2], names=["one", "two"])).fit(
                sample_ids(150)[two], y[two]
            ),
            (sample_ids(150)[~two], y[~two]),
            ["precomputed"],
        ),
        "numbers": (
            lambda: MKLClassifier(pairs).fit(X1.to_numpy(), y1),
            (X2.to_numpy(), y2),
            ["Confusion", "linear"],
        ),
    }


@pytest.mark.parametrize("kind", list(kinds()))
def test_every_kind_of_model_has_a_report(kind, tmp_path):
    make, held, expected = kinds()[kind]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = make()
    page = report(model, tmp_path, *held)
    for words in expected:
        assert words in page.text, words
    assert "nan" not in re.findall(r"[a-z]+", page.text.lower())
    check_structure(page)
    assert (tmp_path / "report.html").stat().st_size < 300_000


def check_structure(page):
    """What every page owes its readers, whatever the model."""
    levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch("h[1-6]", tag)]
    assert levels.count(1) == 1
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    ids = [attrs["id"] for _, attrs in page.elements if "id" in attrs]
    assert len(ids) == len(set(ids))
    for attrs in page.all("svg"):
        assert attrs["role"] == "img"
        assert len(attrs["aria-label"]) > 10
    targets = [attrs["href"] for attrs in page.all("a")] + [a["href"] for a in page.all("use")]
    assert all(target.startswith("#") and target[1:] in ids for target in targets)
    named = {attrs.get(key) for _, attrs in page.elements for key in ("aria-labelledby", "for")}
    named |= {attrs.get("aria-controls") for _, attrs in page.elements}
    assert named - {None} <= set(ids)


def test_the_sentence_says_what_was_learnt(classifier, cancer, tmp_path):
    _, _, X, y = cancer
    page = report(classifier, tmp_path, X, y)
    used = np.count_nonzero(classifier.weights_)
    best = classifier.kernel_names_[classifier.weights_.argmax()]
    share = 100 * classifier.weights_.max() / classifier.weights_.sum()
    assert f"{used} of 4 kernels have weight; the heaviest, {best}, " in page.text
    assert f"has {share:.0f} % of it." in page.text
    right = 100 * classifier.score(X, y)
    common = 100 * pd.Series(y).value_counts().max() / len(y)
    assert f"On {len(y)} held-out samples {right:.1f} % were right; guessing" in page.text
    assert f"{common:.1f} %." in page.text
    assert f"within {100 * classifier.gap_:.2g} % of the best" in page.text


def test_data_settings_and_versions(classifier, tmp_path):
    about = [("Rows", "80 of 114"), ("Missing values", "none")]
    page = report(classifier, tmp_path, title="Tumours", about=about)
    import sklearn

    import kernelweave

    for words in ("80 of 114", "Missing values", kernelweave.__version__, sklearn.__version__):
        assert words in page.text
    assert "held-out" not in page.text.replace("held-out samples,", "")
    assert page.all("title") and "Tumours" in page.text
    assert "No calibration" not in page.text


def test_settings_hold_no_address_in_memory(tmp_path):
    X, y = load_iris(return_X_y=True)
    model = MKLClassifier([Linear()], callbacks=[lambda record: None]).fit(X, y)
    assert " at 0x" in repr(model.callbacks)
    page = report(model, tmp_path)
    assert "<lambda>" in page.text and "0x" not in page.text


def test_kernels_without_weight_have_no_figure_of_their_parts(tmp_path):
    S, t = sequences()
    model = MKLClassifier([Spectrum(1), Spectrum(2), WeightedDegree(4)]).fit(S, t)
    assert not model.weights_[:2].any()
    text = report(model, tmp_path).text
    assert "Letters" in text and "Weight of each k-mer length" not in text


def test_weights_of_views_columns_and_families(classifier, tmp_path):
    page = report(classifier, tmp_path)
    labels = [attrs["aria-label"] for attrs in page.all("svg")]
    assert labels[0].startswith("The heaviest kernels. ")
    assert {"By column", "By family"} <= {label.split(".")[0] for label in labels}
    assert "By view" not in page.text  # Each view has one kernel: its bar says it already.
    data = page.data
    assert data["names"] == [
        classifier.kernel_names_[k] for k in np.argsort(-classifier.weights_, kind="stable")
    ]
    assert set(data["families"]) == {"rbf", "linear"}
    assert {"size", "mean radius", "mean texture", "all columns"} == set(data["views"])
    np.testing.assert_allclose(data["weight"], np.sort(classifier.weights_)[::-1], rtol=1e-4)
    np.testing.assert_allclose(sum(data["share"]), 1.0, rtol=1e-3)


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("one class", "are of class benign: ROC, precision and recall need samples of other"),
        ("one sample", "On 1 held-out sample 100 % was right."),
        ("unseen class", "of a class that the model was not trained on (unseen)"),
        ("no truth", "The truth was not given"),
    ],
)
def test_held_out_samples_that_show_little(classifier, cancer, tmp_path, case, words):
    X, y = cancer[0], cancer[1].astype(object)
    if case == "one class":
        X, y = X[y == "benign"], y[y == "benign"]
    if case == "one sample":
        right = np.flatnonzero(classifier.predict(X) == y)[:1]
        X, y = X.iloc[right], y[right]
    if case == "unseen class":
        y[:3] = "unseen"
    page = report(classifier, tmp_path, X, None if case == "no truth" else y)
    assert words in page.text


def test_a_class_that_no_held_out_sample_has(tmp_path):
    X, y = load_iris(return_X_y=True)
    model = MKLClassifier([Linear()]).fit(X[::3], y[::3])
    page = report(model, tmp_path, X[1::3][:33], y[1::3][:33])
    assert "No curve for 2: no held-out sample is of that class." in page.text
    assert "mean over 2 classes, each against the rest" in page.text
    assert "no samples" in page.text


def test_targets_that_do_not_vary_have_no_r2(tmp_path):
    X = np.arange(12.0)[:, None]
    model = MKLRegressor([Linear()]).fit(X, X[:, 0])
    page = report(model, tmp_path, X[:3], [2.0, 2.0, 2.0])
    assert "R² is not defined" in page.text
    assert "Held-out mean absolute error" in page.text


def test_whose_objective_it_is(tmp_path):
    X = np.arange(12.0)[:, None]
    standardised = report(MKLRegressor([Linear()]).fit(X, 1e6 * X[:, 0]), tmp_path)
    assert "The objective of the standardised targets is" in standardised.text
    raw = report(MKLRegressor([Linear()], target_scale=None).fit(X, X[:, 0]), tmp_path)
    assert "The objective is" in raw.text


def test_outliers_only(tmp_path):
    X = np.random.default_rng(0).normal(size=(40, 2))
    model = MKLOneClass([RBF(width=1.0)], nu=0.2).fit(X)
    page = report(model, tmp_path, X[:5] + 50.0, [-1] * 5)
    assert "All 5 held-out samples are outliers" in page.text
    assert "100 % of the outliers" in page.text


def test_a_fit_that_did_not_converge_says_so(cancer, tmp_path):
    X, y, _, _ = cancer
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = MKLClassifier(tol=1e-9, max_iter=1).fit(X, y)
    page = report(model, tmp_path)
    assert "only within" in page.text
    assert "was not reached" in page.text


def test_names_cannot_break_out(cancer, tmp_path):
    X, _, _, _ = cancer
    X = X.iloc[:, :2].set_axis([EVIL, "plain"], axis=1)
    y = np.where(np.arange(80) % 2, EVIL, "other")
    kernels = [RBF(width=1.0, name=EVIL), Linear().on([EVIL], label=f"view {EVIL}")]
    model = MKLClassifier(kernels).fit(X, y)
    about = [(EVIL, EVIL)]
    page = report(model, tmp_path, X, y, title=EVIL, about=about)
    assert len(page.all("script")) == 2
    assert not [attrs for attrs in page.all("b")]
    assert EVIL in page.data["names"]
    assert page.text.count("document.title='broken'") > 5  # shown, and nothing but shown
    check_structure(page)


def test_very_many_kernels_stay_small(tmp_path):
    X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    X, y = X[::16], y[::16]
    batch = RBFBatch.random(5001, n_features=30, transformer=StandardScaler(), random_state=0)
    model = MKLClassifier(batch, tol=0.1).fit(X, y)
    used = np.count_nonzero(model.weights_)
    page = report(model, tmp_path, X, y)
    assert f"{5001 - used:,} kernels of weight zero left out" in page.text
    assert len(page.data["names"]) == used
    page = report(model, tmp_path, max_kernels=5001)
    assert len(page.data["names"]) == 5001
    assert (tmp_path / "report.html").stat().st_size < 3_000_000
    page = report(model, tmp_path, max_kernels=2)
    assert len(page.data["names"]) == 2
    assert f"{used - 2} lighter kernels left out" in page.text


def test_nothing_is_loaded(classifier, cancer, tmp_path):
    page = report(classifier, tmp_path, cancer[2], cancer[3])
    policy = next(a["content"] for a in page.all("meta") if "content" in a and "http-equiv" in a)
    assert policy.startswith("default-src 'none'")
    links = [
        value
        for _, attrs in page.elements
        for key, value in attrs.items()
        if key in ("src", "href", "action") and not value.startswith("#")
    ]
    assert links == []
    assert "http" not in (tmp_path / "report.html").read_text().replace("http-equiv", "")


REFUSED = {
    "not fitted": (NotFittedError, "call fit first", {"model": MKLClassifier()}),
    "no model": (InvalidInputError, "needs a fitted MKL estimator", {"model": 3}),
    "no folder": (InvalidInputError, "does not exist", {"path": "missing/report.html"}),
    "a folder": (InvalidInputError, "is a folder", {"path": "."}),
    "no path": (InvalidInputError, "path of a file; got None", {"path": None}),
    "y alone": (InvalidInputError, "y was given without X", {"y": [0, 1]}),
    "no rows": (InvalidInputError, "no samples", {"X": np.empty((0, 2)), "y": []}),
    "lengths": (ValueError, "inconsistent numbers", {"X": np.ones((2, 2)), "y": [0]}),
    "strange labels": (InvalidInputError, "no held-out label is among", {"y": ["a", "b"]}),
    "max_kernels": (InvalidInputError, "max_kernels must be", {"max_kernels": 0}),
    "about": (InvalidInputError, r"pairs of \(label, text\)", {"about": ["lines"]}),
    "title": (InvalidInputError, "title must be text", {"title": 3}),
}


@pytest.mark.parametrize("case", list(REFUSED))
def test_what_is_refused_leaves_no_file(case, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    error, words, changed = REFUSED[case]
    X = np.array([[0.0, 1.0], [1.0, 0.0], [2.0, 2.0], [3.0, 1.0]])
    given = {"model": None, "path": "report.html", "X": X[:2], "y": [0, 1], **changed}
    if case == "y alone":
        given["X"] = None
    if given["model"] is None:
        given["model"] = MKLClassifier([Linear()]).fit(X, [0, 0, 1, 1])
    with pytest.raises(error, match=words):
        write_html(given.pop("model"), given.pop("path"), **given)
    assert os.listdir(tmp_path) == []


def test_labels_of_outliers_are_plus_and_minus_one():
    X = np.random.default_rng(0).normal(size=(30, 2))
    model = MKLOneClass([RBF(width=1.0)]).fit(X)
    with pytest.raises(InvalidInputError, match="must be \\+1"):
        write_html(model, "report.html", X, np.arange(30))


def test_a_report_is_replaced_only_by_a_whole_one(classifier, tmp_path, monkeypatch):
    path = tmp_path / "report.html"
    path.write_text("the old one")

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(OSError, match="disk full"):
        write_html(classifier, path)
    assert path.read_text() == "the old one"
    assert os.listdir(tmp_path) == ["report.html"]
    monkeypatch.undo()
    assert write_html(classifier, str(path)) == path
    assert path.read_text().startswith("<!doctype html>")


def test_the_recipe_makes_the_same_fit(cancer):
    X, y, _, _ = cancer
    kernels = [
        RBF(width=2.0).on(["mean radius"], StandardScaler()),
        RBF(width=5.0, name="wide (1)"),
    ]
    for model in (
        MKLClassifier(kernels, C=3.0, loss="logistic", class_weight={"benign": 2.0}),
        make_pipeline(StandardScaler(), MKLClassifier(C=2.0)),
        MKLClassifier(),
    ):
        model.fit(X, y)
        known = {"X_train": X, "y_train": y}
        exec(compile(recipe(model), "recipe", "exec"), known)
        again = known["model"]
        last, other = (m[-1] if hasattr(m, "steps") else m for m in (model, again))
        assert_same_numbers(last.weights_, other.weights_, AFTER_A_FIT)


def test_a_recipe_says_what_it_cannot_write(cancer):
    X, y, _, _ = cancer
    K = np.asarray(Linear()(X))
    text = recipe(MKLClassifier(from_matrices([K])).fit(sample_ids(80), y))
    assert "kernels=...,  # as you made it" in text


def test_intervals():
    # Brown, Cai and DasGupta (2001): 0 of 10 and 5 of 10.
    np.testing.assert_allclose(wilson(0, 10), (0.0, 0.2775), atol=1e-4)
    np.testing.assert_allclose(wilson(5, 10), (0.2366, 0.7634), atol=1e-4)
    rng = np.random.default_rng(0)
    truth, scores = rng.random(60) < 0.4, rng.integers(0, 9, 60).astype(float)
    drawn = resamples(60)
    areas = area_under_roc(truth, scores, drawn)
    exact = [roc_auc_score(truth, scores, sample_weight=own) for own in drawn[:20]]
    np.testing.assert_allclose(areas[:20], exact)
    low, high = bootstrap(lambda w: area_under_roc(truth, scores, w), drawn)
    assert low < roc_auc_score(truth, scores) < high
    # A statistic that most replicates do not have gets no interval.
    assert bootstrap(lambda w: np.full(len(w), np.nan), drawn) is None
