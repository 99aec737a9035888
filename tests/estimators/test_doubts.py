"""Which samples a Bayesian classifier is not sure about: the table and the figures."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex
from numpy.testing import assert_allclose
from sklearn.datasets import load_iris, make_classification
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from kernelweave import BayesianMKLClassifier, BayesianMKLRegressor, MKLClassifier
from kernelweave.bayes import class_probability
from kernelweave.errors import InvalidInputError
from kernelweave.inspect.uncertainty import forecast
from kernelweave.kernels import RBF, Linear
from kernelweave.plot.style import COLOURS
from kernelweave.report import doubtful, plot_doubts, plot_probabilities

KERNELS = [Linear(), RBF(width=1.0), RBF(width=3.0)]


class Oracle:
    """A Bayesian classifier whose decision values are the columns of X, with a given std."""

    def __init__(self, classes, std=1.5, margin=1.0, labels=False):
        self.classes_ = [np.array([0, 1])] * classes if labels else np.asarray(classes)
        self.std, self.margin, self.sigma_g = std, margin, 1.0
        self.weights_, self.weights_std_ = np.array([0.6]), np.array([0.3])
        self.kernel_names_, self.lower_bound_ = ["linear"], -1.0

    def fit(self, X, y):
        return self

    def decision_function(self, X, return_std=False):
        mean = np.asarray(X, dtype=float)
        mean = mean[:, 0] if mean.shape[1] == 1 else mean
        return (mean, np.full(mean.shape, self.std)) if return_std else mean

    def predict_proba(self, X):
        mean, std = self.decision_function(X, return_std=True)
        p = class_probability(mean, std, self.margin)
        if p.ndim == 1:
            return np.column_stack([1 - p, p])
        if isinstance(self.classes_, list):
            return p
        p = np.maximum(p, 1e-300)
        return p / p.sum(axis=1, keepdims=True)


TWO = Oracle(["ill", "well"])
# From sure of "ill" to sure of "well", two of them in doubt.
VALUES = np.array([[4.0], [-0.1], [-5.0], [0.3], [3.5], [-3.0]])


@pytest.fixture(scope="module")
def iris():
    X, y = load_iris(return_X_y=True)
    return X[::2], y[::2], X[1::2], y[1::2]


@pytest.fixture(scope="module")
def fitted(iris):
    return BayesianMKLClassifier(KERNELS, max_iter=60, tol=1e-3).fit(*iris[:2])


def labels_of(ax):
    return [label.get_text() for label in ax.get_yticklabels()]


# The table


def test_doubtful_samples_are_told_the_most_doubtful_first():
    table = doubtful(TWO, VALUES)
    p = class_probability(VALUES[:, 0], 1.5, 1.0)
    assert table.rows.tolist() == table.labels.tolist() == [1, 3]
    assert table.predicted.tolist() == ["ill", "well"]
    assert table.runner_up.tolist() == ["well", "ill"]
    assert_allclose(table.probability, [1 - p[1], p[3]])
    assert_allclose(table.mean, [-0.1, 0.3])
    assert_allclose(table.std, 1.5)
    assert_allclose(table.entropy, -(p * np.log2(p) + (1 - p) * np.log2(1 - p))[[1, 3]])
    assert (len(table), table.n_asked) == (2, 6)
    # As probable as asked for is sure.
    assert len(doubtful(TWO, [[0.0]], sure=0.5)) == 0


def test_the_table_reads_well():
    table = doubtful(TWO, pd.DataFrame(VALUES, index=list("ABCDEF")))
    lines = repr(table).splitlines()
    assert lines[0] == "2 of 6 samples in doubt (no class has probability 0.8)"
    assert " ".join(lines[1].split()) == "sample predicted probability or else mean std entropy"
    assert lines[2].split()[:5] == ["B", "ill", "0.54", "well", "-0.10"]
    frame = table.to_frame()
    assert frame.index.tolist() == ["B", "D"]
    assert frame.loc["D", "predicted"] == "well"
    assert repr(doubtful(TWO, VALUES, sure=0.5)).startswith("0 of 6")


def test_a_long_table_is_cut():
    table = doubtful(TWO, np.linspace(-0.3, 0.3, 30)[:, None])
    assert len(table) == 30
    assert repr(table).splitlines()[-1] == "  10 more"


def test_more_than_two_classes_compare_the_two_most_likely():
    model = Oracle([10, 20, 30])
    table = doubtful(model, [[0.4, -3.0, 0.2], [5.0, -5.0, -5.0]])
    assert (table.predicted.tolist(), table.runner_up.tolist()) == ([10], [30])
    assert_allclose(table.mean, 0.4)


def test_names_are_the_index_of_a_frame_or_those_given():
    frame = pd.DataFrame(VALUES, index=list("ABCDEF"))
    assert doubtful(TWO, frame).labels.tolist() == ["B", "D"]
    assert doubtful(TWO, frame, names=list("uvwxyz")).labels.tolist() == ["v", "x"]
    with pytest.raises(InvalidInputError, match="each of the 6 samples; got 2"):
        doubtful(TWO, frame, names=["u", "v"])


def test_one_class_against_all_others():
    model = Oracle(["a", "b", "c"])
    X = [[0.4, -3.0, 0.2], [5.0, -5.0, -5.0]]
    seen = forecast(model, X, target="c")
    assert seen.classes.tolist() == ["not c", "c"]
    assert_allclose(seen.proba[:, 1], model.predict_proba(X)[:, 2])
    assert_allclose(seen.mean, [0.2, -5.0])
    first, second = forecast(TWO, VALUES, target="ill"), forecast(TWO, VALUES)
    assert_allclose(first.proba[:, 1], second.proba[:, 0])
    assert_allclose(first.mean, -second.mean)
    assert_allclose(first.low, 1 - second.high)


def test_one_label_of_several():
    model = Oracle(2, labels=True)
    X = np.array([[0.1, 9.0], [9.0, -0.2], [-9.0, 9.0]])
    assert doubtful(model, X, target=1).rows.tolist() == [1]
    assert doubtful(model, X, target=1).predicted.tolist() == ["not label 1"]
    for target in (None, 2, "a"):
        with pytest.raises(InvalidInputError, match=r"number of a column of y.*one of 0, 1"):
            doubtful(model, X, target=target)


def test_the_model_is_found_inside_pipelines_and_searches(iris):
    X, y, X_new, _ = iris
    frame = pd.DataFrame(X_new, index=[f"s{i}" for i in range(len(X_new))])
    pipeline = make_pipeline(StandardScaler(), BayesianMKLClassifier(KERNELS, tol=1e-2))
    search = GridSearchCV(pipeline, {"bayesianmklclassifier__margin": [1.0]}, cv=2).fit(X, y)
    table = doubtful(search, frame)
    assert 0 < len(table) < len(frame)
    assert_allclose(table.probability, search.predict_proba(X_new)[table.rows].max(axis=1))
    assert table.labels.tolist() == [f"s{i}" for i in table.rows]


def test_probabilities_move_by_what_is_not_known_of_the_parameters():
    # Noise: 1 of f, and 0.6^2 + 0.3^2 of the one intermediate output.
    noise = 1.0 + 0.45
    sure = forecast(Oracle(["a", "b"], std=noise**0.5), VALUES)
    assert_allclose(sure.low, sure.proba[:, 1], rtol=1e-6)
    assert_allclose(sure.high, sure.proba[:, 1], rtol=1e-6)
    seen = forecast(Oracle(["a", "b"], std=(noise + 0.25) ** 0.5), VALUES)
    assert_allclose(seen.low, class_probability(VALUES[:, 0] - 1.0, noise**0.5, 1.0))
    assert_allclose(seen.high, class_probability(VALUES[:, 0] + 1.0, noise**0.5, 1.0))


def test_of_several_classes_only_the_predicted_one_moves():
    noise, X = 1.45, np.array([[0.9, -1.0, 0.2]])
    seen = forecast(Oracle(["a", "b", "c"], std=(noise + 0.25) ** 0.5), X)
    others = class_probability(X[0, 1:], (noise + 0.25) ** 0.5, 1.0).sum()
    for end, value in ((seen.low, -0.1), (seen.high, 1.9)):
        p = class_probability(value, noise**0.5, 1.0)
        assert_allclose(end, p / (p + others))


def test_dropped_kernels_add_no_noise():
    model = Oracle(["a", "b"], std=(1.0 + 0.45) ** 0.5)
    model.weights_, model.weights_std_ = np.array([0.6, 0.0]), np.array([0.3, 9.0])
    seen = forecast(model, VALUES)
    assert_allclose(seen.low, seen.high, rtol=1e-6)


@pytest.mark.parametrize("sparsity", ["dense", "sparse"])
def test_the_noise_is_the_part_of_the_variance_that_all_samples_share(iris, sparsity):
    X, y, X_new, _ = iris
    model = BayesianMKLClassifier(KERNELS, sparsity=sparsity, sigma_g=0.5, tol=1e-3).fit(X, y)
    _, std = model.decision_function(X_new, return_std=True)
    used = model.weights_ != 0
    squares = (model.weights_**2 + model.weights_std_**2)[used].sum()
    assert np.all(std**2 > 1.0 + 0.25 * squares)
    seen = forecast(model, X_new)
    assert np.all(seen.low <= seen.certainty) and np.all(seen.certainty <= seen.high)
    assert np.all(seen.low < seen.high)


def test_far_from_all_classes_there_are_numbers_all_the_same():
    seen = forecast(Oracle(["a", "b", "c"]), [[-90.0, -80.0, -85.0]])
    assert np.isfinite(seen.low).all() and np.isfinite(seen.high).all()


# Figures of probabilities


def dots(ax):
    """Places and heights of the samples, from the left."""
    offsets = [c.get_offsets() for c in ax.collections if c.get_label() in ("ill", "well")]
    every = np.concatenate(offsets)
    return every[np.argsort(every[:, 0])]


def test_samples_stand_from_the_least_to_the_most_likely():
    truth = ["well", "ill", "ill", "ill", "well", "ill"]
    ax = plot_probabilities(TWO, VALUES, truth, names=list("ABCDEF"))
    p = class_probability(np.sort(VALUES[:, 0]), 1.5, 1.0)
    assert_allclose(dots(ax), np.column_stack([np.arange(6), p]))
    assert ax.get_ylabel() == "probability of well"
    assert ax.get_title() == "4 sure (100 % right), 2 in doubt (50 % right)"
    assert sorted(text.get_text() for text in ax.texts) == ["B", "D"]


def test_colours_are_true_classes_and_rings_mistakes():
    truth = ["well", "ill", "ill", "ill", "well", "ill"]
    ax = plot_probabilities(TWO, VALUES, truth)
    sizes = {c.get_label(): len(c.get_offsets()) for c in ax.collections if len(c.get_offsets())}
    assert {k: v for k, v in sizes.items() if not k.startswith("_")} == {
        "ill": 4,
        "well": 2,
        "predicted wrongly": 1,
    }
    legend = [text.get_text() for text in ax.get_legend().get_texts()]
    assert legend == ["ill", "well", "predicted wrongly", "zone of doubt"]


def test_without_true_classes_nothing_is_wrong():
    ax = plot_probabilities(TWO, VALUES)
    legend = [text.get_text() for text in ax.get_legend().get_texts()]
    assert legend == ["ill", "well", "zone of doubt"]
    assert ax.get_title() == "4 sure, 2 in doubt"


def test_the_zone_of_doubt_is_that_of_the_table():
    ax = plot_probabilities(TWO, VALUES, sure=0.9)
    zone = ax.patches[0]
    assert_allclose([zone.get_y(), zone.get_y() + zone.get_height()], [0.1, 0.9])
    assert len(ax.texts) == len(doubtful(TWO, VALUES, sure=0.9))


def test_many_doubtful_samples_do_not_cover_each_other_with_names():
    X = np.linspace(-0.4, 0.4, 400)[:, None]
    names = plot_probabilities(TWO, X).texts
    assert 5 < len(names) <= 24
    places = np.sort([text.xy[0] for text in names if text.get_va() == "top"])
    assert np.diff(places).min() > 3


def test_more_classes_stand_in_blocks(iris, fitted):
    _, _, X, y = iris
    ax = plot_probabilities(fitted, X, y)
    counts = np.bincount(fitted.predict(X), minlength=3)
    ticks = [tick.get_text() for tick in ax.get_xticklabels()]
    assert ticks == [f"{c}\n{n}" for c, n in enumerate(counts)]
    named = {text.get_text() for text in ax.texts}
    assert named <= {str(i) for i in doubtful(fitted, X).labels}
    assert ax.get_ylabel() == "probability of the predicted class"


def test_a_class_that_is_never_predicted_has_no_block():
    ax = plot_probabilities(Oracle(["a", "b", "c"]), [[3.0, -3.0, -3.0], [-3.0, -3.0, 3.0]])
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["a\n1", "c\n1"]


def test_very_many_classes_are_right_or_wrong():
    rng = np.random.default_rng(0)
    truth = np.arange(40) % 10
    X = np.where(truth[:, None] == np.arange(10), 2.0, -2.0) + rng.normal(size=(40, 10))
    ax = plot_probabilities(Oracle(np.arange(10)), X, truth)
    legend = [text.get_text() for text in ax.get_legend().get_texts()]
    assert legend[:2] == ["right", "wrong"]


def test_bars_of_doubtful_samples_are_divided_as_their_probabilities(iris, fitted):
    _, _, X, y = iris
    ax = plot_doubts(fitted, X, y, top=3)
    table = doubtful(fitted, X)
    assert labels_of(ax) == [str(label) for label in table.labels[:3]]
    widths = np.array([[bar.get_width() for bar in bars] for bars in ax.containers]).T
    assert_allclose(widths, fitted.predict_proba(X)[table.rows[:3]])
    assert_allclose([bar.get_x() + bar.get_width() for bar in ax.containers[-1]], 1.0)
    assert ax.get_title() == f"{len(table)} of {len(X)} samples in doubt, the 3 most doubtful"
    shown = [to_hex(colour).upper() for colour in ax.collections[0].get_facecolors()]
    assert shown == [COLOURS[c] for c in y[table.rows[:3]]]


def test_no_doubt_is_an_empty_figure():
    ax = plot_doubts(TWO, [[9.0], [-9.0]], ["well", "ill"])
    assert ax.get_title() == "0 of 2 samples in doubt"
    assert labels_of(ax) == []


def test_axes_given_are_the_axes_drawn_on(fitted, iris):
    from matplotlib.figure import Figure

    left, right = Figure().subplots(1, 2)
    assert plot_probabilities(fitted, iris[2], iris[3], left) is left
    assert plot_doubts(fitted, iris[2], iris[3], right) is right


def test_real_labels_of_several(tmp_path):
    X, y = make_classification(60, 5, random_state=0)
    labels = np.column_stack([y, X[:, 0] > 0]).astype(int)
    model = BayesianMKLClassifier(KERNELS, tol=1e-2).fit(X, labels)
    ax = plot_probabilities(model, X, labels, target=1)
    assert ax.get_ylabel() == "probability of label 1"
    ax.figure.savefig(tmp_path / "one.png")
    with pytest.raises(InvalidInputError, match="number of a column of y"):
        plot_probabilities(model, X, labels)


# What is refused


@pytest.mark.parametrize("ask", [doubtful, plot_probabilities, plot_doubts])
def test_models_without_distributions_are_refused(ask, iris):
    X, y, X_new, _ = iris
    with pytest.raises(InvalidInputError, match="BayesianMKLClassifier has; got MKLClassifier"):
        ask(MKLClassifier(KERNELS, loss="logistic").fit(X, y), X_new)
    regressor = BayesianMKLRegressor(KERNELS, tol=1e-2).fit(X[:, :3], X[:, 3])
    with pytest.raises(InvalidInputError, match="got BayesianMKLRegressor"):
        ask(regressor, X_new[:, :3])
    with pytest.raises(NotFittedError, match="call fit first"):
        ask(BayesianMKLClassifier(), X_new)
    with pytest.raises(InvalidInputError, match="got int"):
        ask(3, X_new)


@pytest.mark.parametrize("sure", [0.4, 1.2, "much", None, True])
def test_sure_must_be_a_probability(sure):
    with pytest.raises(InvalidInputError, match=r"sure must be a probability from 0.5 to 1"):
        doubtful(TWO, VALUES, sure=sure)


def test_true_classes_must_fit_the_samples():
    with pytest.raises(InvalidInputError, match=r"each of the 6 samples; got shape \(2,\)"):
        plot_probabilities(TWO, VALUES, ["ill", "well"])
    with pytest.raises(InvalidInputError, match=r"got shape \(6, 2\)"):
        plot_doubts(TWO, VALUES, np.zeros((6, 2)))
    with pytest.raises(InvalidInputError, match=r"the model knows .'ill', 'well'.; got 'dead'"):
        plot_probabilities(TWO, VALUES, ["ill"] * 5 + ["dead"])
    with pytest.raises(InvalidInputError, match="one of 'ill', 'well'; got 'dead'"):
        doubtful(TWO, VALUES, target="dead")


def test_top_must_be_positive():
    with pytest.raises(InvalidInputError, match="top must be at least 1"):
        plot_doubts(TWO, VALUES, top=0)
