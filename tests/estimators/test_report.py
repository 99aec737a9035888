"""Summaries and figures say what the model says."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.datasets import make_classification, make_regression
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from kernelweave import MKLClassifier, MKLRegressor, plot
from kernelweave.errors import InvalidInputError
from kernelweave.inspect.ranking import Ranking, find_estimator, rank_kernels
from kernelweave.kernels import RBF, Linear
from kernelweave.report import summary_text

KERNELS = [Linear(), RBF(width=1.0), RBF(width=3.0)]


@dataclass
class Record:
    iteration: int
    seconds: float
    gap: float


def model_with(weights, gaps=(1.0, 1e-2, 1e-4), tol=1e-3):
    """A fitted model without a fit: the reports only read attributes."""
    m = np.shape(weights)[-1]
    return SimpleNamespace(
        weights_=np.asarray(weights, dtype=float),
        kernel_names_=[f"kernel {k}" for k in range(m)],
        history_=[Record(i, 0.1 * i, gap) for i, gap in enumerate(gaps)],
        gap_=gaps[-1],
        objective_=12.5,
        n_iter_=len(gaps),
        converged_=gaps[-1] <= tol,
        tol=tol,
    )


@pytest.fixture(scope="module")
def data():
    return make_classification(n_samples=60, n_features=5, random_state=0)


@pytest.fixture(scope="module")
def fitted(data):
    return MKLClassifier(KERNELS).fit(*data)


def bar_widths(ax):
    return [bar.get_width() for bar in ax.containers[0]]


def test_ranking_drops_zeros_and_puts_the_heaviest_first():
    ranked = rank_kernels(model_with([0.2, 0.0, 0.5, 0.3]))
    assert [kernel.name for kernel in ranked] == ["kernel 2", "kernel 3", "kernel 0"]


def test_ranking_takes_the_mean_over_classes_and_keeps_each():
    model = model_with([[0.0, 1.0, 0.0], [0.5, 0.5, 0.0]])
    ranked = rank_kernels(model)
    assert [kernel.name for kernel in ranked] == ["kernel 1", "kernel 0"]
    assert ranked[0].weight == pytest.approx(0.75)
    assert Ranking.of(model).by_class[:, 1].tolist() == [1.0, 0.5]


def test_a_kernel_used_by_one_class_with_opposite_signs_is_not_lost():
    ranked = rank_kernels(model_with([[0.5, 1.0], [-0.5, 1.0]]))
    assert {kernel.name for kernel in ranked} == {"kernel 0", "kernel 1"}


def test_weights_beyond_top_become_one_bar_and_nothing_is_lost():
    weights = np.linspace(1, 10, 30)
    ax = plot.weights(model_with(weights), top=5)
    widths = bar_widths(ax)
    assert len(widths) == 6
    assert sum(widths) == pytest.approx(weights.sum())
    labels = [label.get_text() for label in ax.get_yticklabels()]
    assert labels[0] == "kernel 29"
    assert labels[-1] == "25 more kernels together"


def test_weights_per_class_are_dots():
    ax = plot.weights(model_with([[0.2, 0.8], [0.6, 0.4]]))
    assert sorted(ax.lines[0].get_xdata()) == [0.4, 0.8]


@pytest.mark.parametrize("top", [0, -1])
def test_top_must_be_positive(top):
    with pytest.raises(InvalidInputError, match="top must be at least 1"):
        plot.weights(model_with([1.0]), top=top)


def test_long_names_are_shortened_in_the_middle():
    model = model_with([1.0])
    model.kernel_names_ = ["rbf(width=2) on " + "a very long column name " * 5 + "end"]
    (label,) = [text.get_text() for text in plot.weights(model).get_yticklabels()]
    assert len(label) <= 44
    assert label.startswith("rbf(width=2)")
    assert label.endswith("end")


def test_convergence_shows_history_best_and_tolerance():
    ax = plot.convergence(model_with([1.0], gaps=(1.0, 1e-2, 0.5, 1e-4)))
    dots, best, tolerance = ax.lines
    assert dots.get_ydata().tolist() == [1.0, 1e-2, 0.5, 1e-4]
    assert best.get_ydata().tolist() == [1.0, 1e-2, 1e-2, 1e-4]
    assert set(tolerance.get_ydata()) == {1e-3}
    assert ax.get_yscale() == "log"


def test_gaps_without_a_logarithm_do_not_break_the_axis():
    ax = plot.convergence(model_with([1.0], gaps=(np.inf, 0.1, 0.0, -1e-17)))
    shown = np.asarray(ax.lines[0].get_ydata())
    assert len(shown) == 3
    assert (shown > 0).all()


def test_every_class_with_its_own_fit_has_its_own_curve():
    model = model_with([[0.5, 0.5], [0.5, 0.5]])
    model.history_ = model.history_ + model.history_
    curves = plot.convergence(model).lines[:-1]
    assert [len(curve.get_xdata()) for curve in curves] == [3] * 4


def test_axes_given_are_the_axes_drawn_on():
    from matplotlib.figure import Figure

    left, right = Figure().subplots(1, 2)
    model = model_with([0.5, 0.5])
    assert plot.weights(model, ax=left) is left
    assert plot.convergence(model, ax=right) is right


def test_figure_of_a_real_fit_is_saved(fitted, tmp_path):
    path = tmp_path / "fit.png"
    plot.fit_figure(fitted).savefig(path)
    assert path.read_bytes().startswith(b"\x89PNG")
    assert path.stat().st_size > 5_000


def test_reports_import_without_pyplot():
    code = "import sys, kernelweave.plot; print('matplotlib.pyplot' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_summary_of_a_real_fit(fitted):
    text = summary_text(fitted)
    assert text.startswith("MKLClassifier: converged after")
    assert f"{fitted.objective_:.6g}" in text
    assert f"{fitted.gap_:.1e}" in text
    heaviest = fitted.kernel_names_[int(np.argmax(fitted.weights_))]
    assert text.splitlines()[4].endswith(heaviest)


def test_summary_counts_what_it_does_not_list():
    text = summary_text(model_with(np.linspace(1, 10, 30), gaps=(1.0, 0.5)), top=3)
    assert "not converged" in text
    assert "30 of 30" in text
    assert text.splitlines()[-1].endswith("27 more")


@pytest.mark.parametrize("multi_class", ["shared", "ovr"])
def test_reports_of_a_multiclass_fit(multi_class):
    X, y = make_classification(
        n_samples=90, n_features=6, n_informative=4, n_classes=3, random_state=0
    )
    model = MKLClassifier(KERNELS, multi_class=multi_class).fit(X, y)
    assert "kernels" in summary_text(model)
    assert len(plot.fit_figure(model).axes) == 2


def test_reports_of_a_regression():
    X, y = make_regression(n_samples=60, n_features=4, noise=0.1, random_state=0)
    model = MKLRegressor(KERNELS).fit(X, y / y.std())
    assert summary_text(model).startswith("MKLRegressor")


def test_the_model_is_found_inside_pipelines_and_searches(data):
    pipeline = make_pipeline(StandardScaler(), MKLClassifier(KERNELS))
    search = GridSearchCV(pipeline, {"mklclassifier__C": [1.0]}, cv=2).fit(*data)
    assert find_estimator(search) is search.best_estimator_[-1]
    assert "MKLClassifier" in summary_text(search)


@pytest.mark.parametrize("model", [MKLClassifier(), make_pipeline(StandardScaler())])
def test_unfitted_models_are_refused(model):
    with pytest.raises(NotFittedError, match="call fit first"):
        summary_text(model)


def test_things_that_are_no_models_are_refused():
    with pytest.raises(InvalidInputError, match="got int"):
        plot.weights(3)
