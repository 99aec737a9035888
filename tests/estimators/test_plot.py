"""Figures show what they are given; alignments are those of the formula."""

from __future__ import annotations

import re
import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest
from matplotlib.figure import Figure
from sklearn.datasets import load_iris
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import kernelweave
from kernelweave import (
    MKLClassifier,
    MKLClassifierCV,
    MKLOneClass,
    NystromMKLClassifier,
    plot,
    sample_ids,
)
from kernelweave.errors import InvalidInputError, UnknownNameError
from kernelweave.inspect import Explanation
from kernelweave.inspect.alignment import Alignment, kernel_alignment
from kernelweave.inspect.comparison_table import SolverFit
from kernelweave.kernels import RBF, Linear, RBFBatch, Spectrum, from_matrices
from kernelweave.plot.style import BLUE, VERMILLION
from kernelweave.plot.svg import figure_svg
from kernelweave.report import Comparison, ComparisonRow, Stability, plot_path

KERNELS = [Linear(), RBF(width=1.0), RBF(width=3.0).on([0, 1])]


@pytest.fixture(scope="module")
def iris():
    X, y = load_iris(return_X_y=True)
    return X[::2], y[::2]


@pytest.fixture(scope="module")
def model(iris):
    return MKLClassifier(KERNELS, regularizer="lp_ball").fit(*iris)


@pytest.fixture(scope="module")
def searched(iris):
    return MKLClassifierCV(KERNELS, Cs=3, cv=2, regularizer="lp_ball").fit(*iris)


@pytest.fixture(scope="module")
def comparison():
    def fits(*scores, converged=True, kernels=4):
        return tuple(
            SolverFit(i, s, 0.1 + i, 0.01, 1e-4, kernels, 3.0, converged)
            for i, s in enumerate(scores)
        )

    rows = [
        ComparisonRow("silp", fits(0.9, 0.8, 1.0)),
        ComparisonRow("a solver with a name that is far too long", fits(0.7, converged=False)),
        ComparisonRow("uniform", fits(0.6, 0.6, kernels=7)),
        ComparisonRow("spicy", (), "does not take this loss, " * 10),
    ]
    return Comparison(rows, "accuracy", 3, 70, 30, 7)


def labels(ax):
    return [label.get_text() for label in ax.get_yticklabels()]


def texts(ax):
    return [text.get_text() for text in ax.texts]


# The room


def test_the_room_opens_by_itself_and_without_matplotlib():
    code = (
        "import sys, kernelweave; kernelweave.plot.weights, kernelweave.inspect, "
        "kernelweave.plot.compare; print('matplotlib' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_descriptions_keep_their_first_name():
    from kernelweave import describe, inspect

    assert describe.__all__ == inspect.__all__
    assert all(getattr(describe, name) is getattr(inspect, name) for name in inspect.__all__)
    assert kernelweave.describe is describe


def test_every_name_is_a_function_that_takes_axes():
    drawn_on = {"alignment", "compare", "contributions", "convergence", "stability", "weights"}
    assert set(plot.__all__) == drawn_on | {"path", "fit_figure"}
    for name in plot.__all__:
        # A module of the same name would hide the function.
        assert callable(getattr(kernelweave.plot, name))


def test_axes_in_and_out(model, searched, comparison, iris):
    known = Stability(["a", "b"], np.array([0.6, 0.4]), np.array([[0.5, 0.5], [0.7, 0.3]]))
    explanation = model.explain(iris[0][:4])
    given = {
        plot.weights: model,
        plot.convergence: model,
        plot.alignment: model,
        plot.contributions: explanation,
        plot.path: searched,
        plot.stability: known,
        plot.compare: comparison,
    }
    for draw, what in given.items():
        ax = Figure().subplots()
        assert draw(what, ax=ax) is ax
        ax.figure.canvas.draw()


# Paths


def test_a_path_has_one_panel_or_two(searched):
    upper, lower = plot.path(searched)
    assert lower.get_xlabel() == "C"
    assert upper.figure is lower.figure
    pair = Figure().subplots(2, 1)
    assert plot.path(searched, pair) == tuple(pair)
    alone = Figure().subplots()
    plot.path(searched, alone)
    assert alone.get_xlabel() == "C"
    assert alone.get_xscale() == "log"
    # Lines that cross have marks of their own.
    marks = [line.get_marker() for line in alone.lines if len(line.get_xdata()) == 3]
    assert len(set(marks)) == len(marks) > 1
    with pytest.raises(InvalidInputError, match=r"one matplotlib Axes .* got 3"):
        plot.path(searched, Figure().subplots(3, 1))


def test_the_first_name_of_a_path_returns_the_figure(searched):
    figure = Figure()
    assert plot_path(searched, top=1, figure=figure) is figure
    assert len(figure.axes) == 2


# Alignment


def by_hand(K, L):
    n = len(K)
    H = np.eye(n) - 1.0 / n
    K, L = H @ K @ H, H @ L @ H
    return (K * L).sum() / np.sqrt((K * K).sum() * (L * L).sum())


def expected(matrices):
    return np.array([[by_hand(K, L) for L in matrices] for K in matrices])


def test_alignment_is_that_of_the_formula(model, iris):
    found = kernel_alignment(model)
    np.testing.assert_allclose(found.values, expected([k(iris[0]) for k in KERNELS]), atol=1e-10)
    assert (found.values == found.values.T).all()
    assert (found.values.diagonal() == 1.0).all()
    assert found.n_samples == 75
    assert found.names == list(model.kernel_names_)
    np.testing.assert_array_equal(kernel_alignment(model, kernels=[2, 0]).kernels, [2, 0])


def test_kernels_without_a_model(iris):
    found = kernel_alignment(KERNELS, X=iris[0])
    np.testing.assert_allclose(found.values, expected([k(iris[0]) for k in KERNELS]), atol=1e-10)
    few = kernel_alignment(KERNELS, max_samples=20, seed=1, X=iris[0])
    assert few.n_samples == 20
    rows = np.sort(np.random.default_rng(1).choice(75, 20, replace=False))
    np.testing.assert_allclose(
        few.values, expected([k(iris[0][rows]) for k in KERNELS]), atol=1e-10
    )


def test_alignment_of_every_kind_of_kernels(iris):
    X, y = iris
    batch = RBFBatch.random(40, n_features=4, sizes=(1, 3))
    mixed = MKLClassifier([Linear(), batch], solver="uniform").fit(X, y)
    found = kernel_alignment(mixed)
    assert (len(found.names), found.n_left_out) == (30, 11)
    assert "11 more kernels" in str(found)
    inside = kernel_alignment(make_pipeline(StandardScaler(), mixed).fit(X, y))
    assert np.isfinite(inside.values).all()

    sites = ["ACGT" * 3, "AACC" * 3, "GGTT" * 3, "ACAC" * 3, "TTTT" * 3, "CCGG" * 3]
    strings = MKLClassifier([Spectrum(1), Spectrum(2)], solver="uniform").fit(sites, [0, 1] * 3)
    matrices = [K(np.array(sites)[:, None]) for K in (Spectrum(1), Spectrum(2))]
    np.testing.assert_allclose(kernel_alignment(strings).values, expected(matrices), atol=1e-10)

    given = from_matrices([Linear()(X), RBF(width=1.0)(X)], names=["a", "b"])
    ids = MKLClassifier(given, solver="uniform").fit(sample_ids(len(y)), y)
    assert kernel_alignment(ids).values[0, 1] == pytest.approx(
        by_hand(Linear()(X), RBF(width=1.0)(X))
    )
    for other in (NystromMKLClassifier(KERNELS).fit(X, y), MKLOneClass(KERNELS).fit(X)):
        assert (kernel_alignment(other).values.diagonal() == 1.0).all()


def test_of_a_product_the_learnt_factors_are_compared(iris):
    X, y = iris
    model = MKLClassifier(
        [RBF(gamma=1.0).on(j) for j in range(4)], combination="product", regularizer="l1", C=3.0
    ).fit(X, y)
    used = np.flatnonzero(model.weights_)
    assert len(used) >= 2
    factors = [np.exp(-model.weights_[j] * (X[:, [j]] - X[:, j]) ** 2) for j in used]
    np.testing.assert_allclose(kernel_alignment(model).values, expected(factors), atol=1e-8)


def test_constant_kernels_have_no_alignment(iris):
    X = np.column_stack([iris[0], np.ones(75)])
    found = kernel_alignment([RBF(width=1.0).on(4), Linear(), RBF(width=1.0)], X=X)
    assert np.isnan(found.values[0]).all()
    assert np.isnan(found.values[:, 0]).all()
    assert np.isfinite(found.values[1:, 1:]).all()
    assert "constant on these samples: rbf(width=1) on column 4" in str(found)
    assert found.order()[-1] == 0
    ax = plot.alignment(found)
    assert sum(patch.get_hatch() is not None for patch in ax.patches) == 5
    # A number for every pair that has one.
    assert len(texts(ax)) == 4


def test_kernels_alike_are_neighbours_in_the_map():
    rng = np.random.default_rng(0)
    group = np.array([0, 1, 2] * 4)
    values = np.where(group[:, None] == group, 0.9, 0.1) + 0.001 * rng.random((12, 12))
    values = 0.5 * (values + values.T)
    np.fill_diagonal(values, 1.0)
    found = Alignment([f"k{k}" for k in range(12)], values, np.arange(12), 50)
    shown = group[found.order()]
    assert np.count_nonzero(np.diff(shown)) == 2
    assert found.pairs()[0][2] == values[np.triu_indices(12, 1)].max()
    ax = plot.alignment(found)
    assert labels(ax) == [f"k{k}" for k in found.order()]
    np.testing.assert_array_equal(
        ax.collections[0].get_array(), values[np.ix_(found.order(), found.order())]
    )


@pytest.mark.parametrize("count", [0, 1, 40, 70])
def test_maps_of_any_size(count):
    found = Alignment([f"kernel {k}" for k in range(count)], np.eye(count), np.arange(count), 9)
    ax = plot.alignment(found)
    ax.figure.canvas.draw()
    assert len(labels(ax)) == (count if count <= 60 else 0)
    assert str(found).startswith(f"centred alignment of {count} kernel")


def test_kernels_that_are_no_kernels_get_two_colours():
    found = Alignment(["a", "b"], np.array([[1.0, -0.5], [-0.5, 1.0]]), np.arange(2), 9)
    assert plot.alignment(found).collections[0].get_clim() == (-1.0, 1.0)


def test_wrong_requests_for_alignments(model, iris):
    with pytest.raises(InvalidInputError, match="without X"):
        kernel_alignment(KERNELS)
    with pytest.raises(InvalidInputError, match="its own training samples"):
        kernel_alignment(model, X=iris[0])
    with pytest.raises(InvalidInputError, match=r"0\.\.2"):
        kernel_alignment(model, kernels=[3])
    with pytest.raises(InvalidInputError, match="max_samples"):
        kernel_alignment(model, max_samples=1)


# Contributions


def test_steps_lead_from_the_intercept_to_the_decision(model, iris):
    explanation = model.explain(iris[0][:4])
    ax = plot.contributions(explanation, sample=2)
    which = int(explanation.decision[2].argmax())
    bars = ax.patches
    steps = [bar.get_width() for bar in bars]
    assert steps[0] == pytest.approx(explanation.baseline[which])
    assert sum(steps[:-1]) == pytest.approx(explanation.decision[2, which])
    assert steps[-1] == pytest.approx(explanation.decision[2, which])
    for before, after in pairwise(bars[:-1]):
        assert after.get_x() == pytest.approx(before.get_x() + before.get_width())
    assert ax.get_title() == f"sample 2, {which}"
    assert plot.contributions(explanation, -1, output="1").get_title() == "sample 3, 1"


def test_steps_down_differ_in_more_than_colour():
    explanation = Explanation(
        values=np.array([[0.5, -2.0, 0.25, 0.125]]),
        baseline=1.0,
        decision=np.array([-0.125]),
        kernel_names=("a", "b", "c", "d"),
        kernels=np.arange(4),
        infos=(),
        outputs=("decision",),
        meaning="",
        samples=range(1),
    )
    ax = plot.contributions(explanation, top=2)
    assert labels(ax) == ["intercept", "b", "a", "2 more together", "decision value"]
    down, up = ax.patches[1], ax.patches[2]
    assert (down.get_hatch(), up.get_hatch()) == ("////", None)
    assert [down.get_facecolor(), up.get_facecolor()] == [
        Figure().add_subplot().barh(0, 1, color=colour)[0].get_facecolor()
        for colour in (VERMILLION, BLUE)
    ]
    assert [bar.get_width() for bar in ax.patches] == [1.0, -2.0, 0.5, 0.375, -0.125]


def test_sizes_over_all_samples(model, iris):
    explanation = model.explain(iris[0][:6])
    ax = plot.contributions(explanation, None)
    sizes = np.sort(np.abs(explanation.values).mean(axis=(0, 1)))[::-1]
    np.testing.assert_allclose([bar.get_width() for bar in ax.patches], sizes)
    one = plot.contributions(explanation.by("view"), None, output=2)
    assert one.get_title() == "6 samples, 2"


def test_wrong_requests_for_contributions(model, iris):
    explanation = model.explain(iris[0][:4])
    with pytest.raises(InvalidInputError, match="from 0 to 3"):
        plot.contributions(explanation, sample=4)
    with pytest.raises(UnknownNameError, match="output"):
        plot.contributions(explanation, output="four")
    with pytest.raises(InvalidInputError, match="top"):
        plot.contributions(explanation, top=0)


# Comparisons


def test_a_comparison_shows_scores_times_kernels_and_errors(comparison):
    ax = plot.compare(comparison)
    times, kernels = ax.child_axes
    names = labels(ax)
    assert names[0] == "silp"
    assert len(names[1]) <= 30
    written = texts(ax)
    assert written[:3] == ["0.900", "0.700", "0.600"]
    assert written[-1].startswith("does not take this loss")
    assert written[-1].endswith("…")
    assert times.get_xscale() == "log"
    assert texts(times) == ["1.1 s", "0.1 s", "0.6 s"]
    assert texts(kernels) == ["4", "4", "7"]
    # All kernels in use is a hatched bar; a fit that did not converge has a hollow mark.
    assert [bar.get_hatch() for bar in kernels.patches] == [None, None, "////"]
    marks = [line for line in ax.lines if line.get_marker() == "o"]
    inside = {line.get_markerfacecolor(): list(line.get_ydata()) for line in marks}
    assert inside == {BLUE: [0, 2], "white": [1]}
    assert "tolerance not reached" in [text.get_text() for text in ax.get_legend().get_texts()]
    ax.figure.canvas.draw()
    assert comparison.plot().get_title() == comparison.title


def test_comparisons_of_one_solver_and_of_none(comparison):
    one = Comparison([ComparisonRow("silp", comparison.rows[0].fits[:1])], "R2", 1, 7, 3, 1)
    ax = plot.compare(one)
    assert ax.get_xlabel() == "R squared"
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["mean"]
    failed = Comparison([ComparisonRow("silp", (), "no")], "accuracy", 1, 7, 3)
    plot.compare(failed).figure.canvas.draw()
    with pytest.raises(InvalidInputError, match="got list"):
        plot.compare([1, 2])


# Figures on a page


def test_a_page_gives_a_figure_its_colours_and_fonts(model, searched):
    for ax in (plot.weights(model), plot.convergence(model), plot.path(searched)[0]):
        svg = figure_svg(ax.figure, 'a "label" & more')
        assert 'aria-label="a &quot;label&quot; &amp; more"' in svg
        assert re.findall(r"#[0-9a-f]{6}\b(?!-)", svg) == [], "a colour that the page does not know"
        assert "font-family" not in svg
        assert "http" not in svg


def test_no_two_figures_share_an_id(model):
    drawn = [figure_svg(plot.convergence(model).figure, label) for label in ("one", "two")]
    one, two = (set(re.findall(r' id="([^"]+)"', svg)) for svg in drawn)
    assert one and not one & two
    used = set(re.findall(r'(?:href="|url\()#([^")]+)', drawn[0]))
    assert used == one


def test_every_pair_of_a_map_has_its_own_tip():
    values = np.array([[1.0, 0.25], [0.25, 1.0]])
    svg = figure_svg(plot.alignment(Alignment(["a<", "b"], values, np.arange(2), 9)).figure, "map")
    tips = re.findall(r'data-tip="([^"]+)"', svg)
    assert (
        sorted(tip.split("\n")[-1] for tip in tips)
        == ["alignment 0.25"] * 2 + ["alignment 1.00"] * 2
    )
    assert tips[0].startswith("a&lt;\na&lt;") or tips[0].startswith("b\nb")
