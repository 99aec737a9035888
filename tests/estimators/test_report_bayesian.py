"""Reports of Bayesian models: weights with error bars, and the lower bound."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest
from matplotlib.colors import to_hex
from numpy.testing import assert_allclose
from sklearn.datasets import load_iris

from kernelweave import BayesianMKLClassifier, BayesianMKLRegressor, MKLClassifier, plot
from kernelweave.errors import InvalidInputError
from kernelweave.inspect.ranking import rank_kernels
from kernelweave.kernels import RBF, Linear, WeightedDegree
from kernelweave.plot.style import COLOURS
from kernelweave.report import (
    kmer_scores,
    plot_length_position_weights,
    plot_position_weights,
    summary_text,
)

KERNELS = [Linear(), RBF(width=1.0), RBF(width=3.0)]


@dataclass
class Record:
    iteration: int
    seconds: float
    lower_bound: float
    change: float


def bayesian(weights, std=0.05, bounds=(-90.0, -50.0, -42.5), tol=1e-5):
    """A fitted model without a fit: these reports only read attributes."""
    weights = np.asarray(weights, dtype=float)
    return SimpleNamespace(
        weights_=weights,
        weights_std_=np.broadcast_to(np.asarray(std, dtype=float), weights.shape),
        kernel_names_=[f"kernel {k}" for k in range(weights.shape[-1])],
        history_=[Record(i + 1, 0.1 * i, b, 10.0**-i) for i, b in enumerate(bounds)],
        lower_bound_=bounds[-1],
        n_iter_=len(bounds),
        converged_=True,
        tol=tol,
    )


@pytest.fixture(scope="module")
def iris():
    X, y = load_iris(return_X_y=True)
    return X[::2], y[::2], X[1::2], y[1::2]


def labels_of(ax):
    return [label.get_text() for label in ax.get_yticklabels()]


def error_bars(ax):
    """Ends of the error bars, from the top row on."""
    return [segment[:, 0].tolist() for segment in ax.collections[0].get_segments()]


# Weights


def test_kernels_are_ranked_by_size_whatever_the_sign():
    ranked = rank_kernels(bayesian([0.2, -0.5, 0.0, 0.3], std=[0.1, 0.2, 0.3, 0.4]))
    assert [kernel.name for kernel in ranked] == ["kernel 1", "kernel 3", "kernel 0"]
    assert [kernel.weight for kernel in ranked] == [-0.5, 0.3, 0.2]
    assert [kernel.std for kernel in ranked] == [0.2, 0.4, 0.1]


def test_a_kernel_with_opposite_signs_in_two_classes_is_heavy():
    ranked = rank_kernels(bayesian([[0.1, 0.5], [0.1, -0.5]], std=[[0.3, 0.1], [0.4, 0.1]]))
    assert [kernel.name for kernel in ranked] == ["kernel 1", "kernel 0"]
    assert ranked[0].weight == 0.0
    # The fits of the classes are independent, so variances add up.
    assert ranked[1].std == pytest.approx(0.25)


def test_a_weight_has_an_error_bar_of_two_standard_deviations():
    ax = plot.weights(bayesian([0.1, -0.5, 0.3], std=[0.1, 0.2, 0.05]))
    assert labels_of(ax) == ["kernel 1", "kernel 2", "kernel 0"]
    assert_allclose(error_bars(ax), [[-0.9, -0.1], [0.2, 0.4], [-0.1, 0.3]])
    assert_allclose([bar.get_width() for bar in ax.containers[0]], [-0.5, 0.3, 0.1])


def test_bars_that_could_be_zero_are_pale():
    ax = plot.weights(bayesian([0.5, -0.4, -0.3, 0.1], std=[0.2, 0.1, 0.2, 0.04]))
    assert [bar.get_alpha() is None for bar in ax.containers[0]] == [True, True, False, True]


@pytest.mark.parametrize("weights", [[0.5, 0.4, 0.1], [0.5, -0.4, 0.1], [-0.5, -0.4, -0.1]])
def test_all_of_an_error_bar_is_inside_the_axes(weights):
    ax = plot.weights(bayesian(weights, std=[0.3, 0.01, 0.02]))
    low, high = ax.get_xlim()
    assert low <= np.min(error_bars(ax))
    assert np.max(error_bars(ax)) < high


def test_weights_beyond_top_are_a_range_because_they_would_cancel():
    ax = plot.weights(bayesian([0.5, 0.04, -0.03, 0.02]), top=1)
    assert labels_of(ax) == ["kernel 0", "3 more kernels in this range"]
    rest = ax.containers[0][1]
    assert (rest.get_x(), rest.get_x() + rest.get_width()) == pytest.approx((-0.03, 0.04))
    assert len(error_bars(ax)) == 1
    assert "-0.030 to 0.040" in [text.get_text() for text in ax.texts]


def test_groups_have_colours_and_a_legend():
    model = bayesian([0.2, 0.5, 0.3])
    ax = plot.weights(model, groups=["gene", "protein", "gene"])
    faces = [to_hex(bar.get_facecolor()).upper() for bar in ax.containers[0]]
    assert faces == [COLOURS[1], COLOURS[0], COLOURS[0]]
    legend = [text.get_text() for text in ax.get_legend().get_texts()]
    assert legend == ["gene", "protein", "2 standard deviations"]
    with pytest.raises(InvalidInputError, match="one label for each of the 3 kernels"):
        plot.weights(model, groups=["gene"])


def test_weights_without_distributions_have_no_error_bars(iris):
    ax = plot.weights(MKLClassifier(KERNELS).fit(*iris[:2]))
    assert len(ax.containers) == 1
    assert ax.get_legend() is None


# The lower bound


def test_summary_has_the_bound_and_standard_deviations():
    text = summary_text(bayesian([0.25, -0.5], std=[0.01, 0.02]))
    assert "bound      -42.5 (lower bound on the log evidence)" in text
    assert "change     1.0e-02 (a sample, tolerance 1.0e-05)" in text
    assert text.splitlines()[-2:] == [
        "     -0.5000 +- 0.0200  kernel 1",
        "      0.2500 +- 0.0100  kernel 0",
    ]
    assert "objective" not in text and "gap" not in text


def test_summary_gives_a_range_of_what_it_does_not_list():
    text = summary_text(bayesian([0.5, 0.04, -0.03, 0.02]), top=1)
    assert text.splitlines()[-1] == "    3 more from -0.0300 to 0.0400"


def test_summary_of_one_fit_a_class_tells_the_largest_change():
    model = bayesian([[0.5, 0.1], [0.2, 0.2]])
    model.history_ = [*model.history_[:2], *model.history_]
    assert "change     1.0e-01" in summary_text(model)


def test_the_bound_rises_on_a_linear_axis():
    ax = plot.convergence(bayesian([0.5]))
    (line,) = ax.lines
    assert line.get_ydata().tolist() == [-90.0, -50.0, -42.5]
    assert ax.get_yscale() == "linear"
    assert ax.get_ylabel() == "lower bound on the log evidence"


def test_every_class_with_a_fit_of_its_own_has_a_bound():
    model = bayesian([[0.5, 0.1], [0.2, 0.2]])
    model.history_ = model.history_ * 2
    assert [len(line.get_xdata()) for line in plot.convergence(model).lines] == [3, 3]


@pytest.mark.parametrize("sparsity", ["dense", "sparse"])
@pytest.mark.parametrize("multi_class", ["shared", "ovr"])
def test_reports_of_real_fits(iris, sparsity, multi_class):
    model = BayesianMKLClassifier(KERNELS, sparsity=sparsity, multi_class=multi_class, tol=1e-2)
    model.fit(*iris[:2])
    left, right = plot.fit_figure(model).axes
    used = np.flatnonzero(np.atleast_2d(model.weights_).any(axis=0))
    assert len(error_bars(left)) == len(used)
    assert len(right.lines) == (3 if multi_class == "ovr" else 1)
    assert f"{model.lower_bound_:.6g}" in summary_text(model)


def test_reports_of_a_real_regression(iris):
    X, _, _, _ = iris
    model = BayesianMKLRegressor(KERNELS, tol=1e-2).fit(X[:, :3], X[:, 3])
    assert summary_text(model).startswith("BayesianMKLRegressor: converged")
    assert len(plot.fit_figure(model).axes) == 2


# Sequences


@pytest.fixture(scope="module")
def by_position():
    rng = np.random.default_rng(0)
    X = ["".join(rng.choice(list("ACGT"), 6)) for _ in range(40)]
    model = BayesianMKLClassifier(WeightedDegree(2).by_length().by_position(2), tol=1e-2)
    model.fit(X, [s[2] in "AC" for s in X])
    model.weights_ = np.where(np.arange(len(model.weights_)) % 2, -1.0, 1.0) * model.weights_
    return model


def test_negative_weights_of_parts_are_below_zero(by_position):
    ax = plot_position_weights(by_position)
    heights = [bar.get_height() for bar in ax.patches]
    assert sum(heights) == pytest.approx(by_position.weights_.sum())
    assert min(heights) < 0
    assert ax.get_ylim()[0] < min(heights)


def test_zero_has_no_colour_in_a_map_of_signed_weights(by_position):
    image = plot_length_position_weights(by_position).collections[0]
    low, high = image.get_clim()
    assert low == -high
    assert image.cmap(image.norm(0.0))[3] < 0.01


def test_scores_of_kmers_are_refused(by_position):
    with pytest.raises(InvalidInputError, match=r"dual coefficients.*got BayesianMKLClassifier"):
        kmer_scores(by_position, 2)
