"""Figures of what was learnt from sequences show the numbers."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from numpy.testing import assert_allclose

from kernelweave import MKLClassifier, MKLRegressor, stability
from kernelweave.errors import InvalidInputError
from kernelweave.kernels import Spectrum, WeightedDegree
from kernelweave.report import (
    kmer_scores,
    length_position_weights,
    letter_scores,
    plot_kmer_scores,
    plot_length_position_weights,
    plot_length_weights,
    plot_position_weights,
    plot_sequence_logo,
    sequence_scores,
)

LENGTH = 14


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    y = np.repeat([1, 0], 20)
    X = ["".join(rng.choice(list("ACGT"), LENGTH)) for _ in y]
    return [x[:5] + "TTGA" + x[9:] if c else x for x, c in zip(X, y, strict=True)], y


def fit(kernels, data, **settings):
    return MKLClassifier(kernels, regularizer="lp_ball", **settings).fit(*data)


@pytest.fixture(scope="module")
def parted(data):
    return fit(WeightedDegree(3).by_length().by_position(4), data)


def rectangles(ax):
    return [(bar.get_x(), bar.get_width(), bar.get_height()) for bar in ax.containers[0]]


def test_bars_over_windows(parted):
    ax = plot_position_weights(parted)
    parts = length_position_weights(parted)
    left, width, height = np.transpose(rectangles(ax))
    assert_allclose(left, [-0.5, 3.5, 7.5, 11.5])
    assert_allclose(width, [4, 4, 4, 2])
    assert_allclose(height, parts.over_positions)
    assert_allclose(ax.get_xlim(), [-0.5, LENGTH - 0.5])
    assert ax.get_title() == "weighted degree(degree=3)"
    moved = plot_position_weights(parted, origin=5)
    assert_allclose(np.transpose(rectangles(moved))[0], left - 5)


def test_bars_of_lengths(parted):
    ax = plot_length_weights(parted, ax=Figure().subplots())
    parts = length_position_weights(parted)
    assert_allclose(np.transpose(rectangles(ax))[2], parts.over_lengths)
    assert [label.get_text() for label in ax.get_xticklabels()] == ["1", "2", "3"]


def test_a_map_of_lengths_and_windows(parted):
    ax = plot_length_position_weights(parted)
    shown = ax.collections[0].get_array().reshape(3, 4)
    assert_allclose(shown, length_position_weights(parted).weights)


def test_classes_and_intervals(data):
    X, y = data
    several = fit(WeightedDegree(3).by_position(5), (X, np.arange(40) % 3), multi_class="ovr")
    ax = plot_position_weights(several)
    stairs = [patch for patch in ax.patches if hasattr(patch, "get_data")]
    assert len(stairs) == 3
    assert_allclose(stairs[1].get_data().values, several.weights_[1])
    by_length = fit(WeightedDegree(3).by_length(), (X, np.arange(40) % 3), multi_class="ovr")
    dots = plot_length_weights(by_length).lines
    assert_allclose([line.get_ydata() for line in dots], by_length.weights_)
    model = fit(WeightedDegree(3).by_position(5), data)
    result = stability(model, X, y, n_bootstrap=4, random_state=0)
    ax = plot_position_weights(model, stability=result)
    ends = np.array([segment[:, 1] for segment in ax.collections[0].get_segments()])
    assert_allclose(ends, np.transpose([result.low, result.high]))
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["95 % of replicates"]


def test_a_figure_of_what_is_not_there(data):
    by_length = fit(WeightedDegree(3).by_length(), data)
    for draw in (plot_position_weights, plot_length_position_weights):
        with pytest.raises(InvalidInputError, match="not taken apart by position"):
            draw(by_length)
    with pytest.raises(InvalidInputError, match="not taken apart by length"):
        plot_length_weights(fit(WeightedDegree(3).by_position(4), data))


def test_a_map_of_kmers(parted):
    ax = plot_kmer_scores(parted, 2, positions=(3, 9), origin=5)
    shown = ax.collections[0].get_array().reshape(16, 6)
    table = kmer_scores(parted, 2)
    assert_allclose(shown, table.scores[:, 3:9])
    low, high = ax.collections[0].get_clim()
    assert low == -high
    assert_allclose(ax.get_xlim(), [-2.5, 3.5])
    assert [label.get_text() for label in ax.get_yticklabels()] == table.kmers.tolist()
    with pytest.raises(InvalidInputError, match="from 0 to 13"):
        table.plot(positions=(3, 20))
    with pytest.raises(InvalidInputError, match="top must be"):
        table.plot(top=0)


def test_of_many_kmers_the_largest_are_shown(data):
    model = fit(WeightedDegree(4), data)
    ax = plot_kmer_scores(model, 4, top=5)
    names = [label.get_text() for label in ax.get_yticklabels()]
    assert len(names) == 5
    assert "TTGA" in names
    assert names == sorted(names)


def test_bars_where_positions_do_not_matter(data):
    model = fit(Spectrum(3), data)
    ax = plot_kmer_scores(model, 3, top=6)
    widths = [bar.get_width() for bar in ax.containers[0]]
    assert widths == sorted(widths, reverse=True)
    table = kmer_scores(model, 3)
    rows = [table.kmers.tolist().index(label.get_text()) for label in ax.get_yticklabels()]
    assert_allclose(widths, table.scores[rows, 0])


def letters_of(ax):
    """Column, lower end, upper end and colour of each letter."""
    out = []
    for patch in ax.patches:
        box = patch.get_path().get_extents()
        middle = round(0.5 * (box.x0 + box.x1))
        out.append((middle, box.y0, box.y1, to_hex(patch.get_facecolor())))
    return out


def test_heights_of_a_logo(data):
    model = fit(WeightedDegree(3), data)
    letters = letters_of(plot_sequence_logo(model, positions=(4, 10)))
    scores = letter_scores(model).scores
    for column in range(4, 10):
        own = [item for item in letters if item[0] == column]
        above = sum(high - low for _, low, high, _ in own if low >= -1e-12)
        below = sum(high - low for _, low, high, _ in own if high <= 1e-12)
        # Letters too flat to be seen are left out.
        least = 4 * 0.002 * np.abs(scores).max()
        assert_allclose(above, np.clip(scores[:, column], 0, None).sum(), atol=least)
        assert_allclose(below, -np.clip(scores[:, column], None, 0).sum(), atol=least)
        assert_allclose(max(high for _, _, high, _ in own), above, atol=1e-9)
    assert {column for column, *_ in letters} == set(range(4, 10))


def test_the_logo_of_one_sequence(data):
    model = fit(WeightedDegree(3), data)
    sequence = "ACGTN" + "TTGA" + "CCCcc"
    ax = plot_sequence_logo(model, sequence=sequence)
    (shares,) = sequence_scores(model, [sequence], per="letter")
    letters = {column: (low, high) for column, low, high, _ in letters_of(ax)}
    assert 4 not in letters
    for column, (low, high) in letters.items():
        assert_allclose([low, high], sorted([0.0, shares[column]]), atol=1e-9)
    colour = {column: colour for column, _, _, colour in letters_of(ax)}
    assert colour[5] == colour[6] != colour[8]
    assert ax.get_title() == "letters for and against class 1"


def test_regression_has_no_class_in_the_title(data):
    model = MKLRegressor(WeightedDegree(2)).fit(*data)
    assert plot_sequence_logo(model, ax=Figure().subplots()).get_title() == "letters"


def test_other_alphabets(data):
    X = [x.translate(str.maketrans("ACGT", "HPHP")) for x in data[0]]
    model = fit(WeightedDegree(2, alphabet="HP"), (X, data[1]))
    assert len({colour for *_, colour in letters_of(plot_sequence_logo(model))}) == 1
