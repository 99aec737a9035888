"""What a `Stability` says: numbers, text, a frame and a figure."""

from __future__ import annotations

import dataclasses
import sys

import numpy as np
import pytest

from kernelweave.errors import InvalidInputError
from kernelweave.report import Stability


@pytest.fixture(scope="module")
def known():
    """Replicates whose frequencies, means and intervals are known: 1, 2, .. 101, and others."""
    steps = np.arange(1.0, 102.0)
    replicates = np.column_stack([steps, np.where(steps > 91, 5.0, 0.0), 0.0 * steps])
    return Stability(["all", "ten", "none"], np.array([50.0, 0.0, 0.0]), replicates, level=0.9)


def test_counts_means_and_intervals_are_what_they_say(known):
    assert known.n_bootstrap == 101
    assert known.frequency.tolist() == [1.0, 10 / 101, 0.0]
    assert known.mean == pytest.approx([51.0, 50 / 101, 0.0])
    # 5 % of the replicates below, 5 % above.
    assert known.low[0] == pytest.approx(6.0) and known.high[0] == pytest.approx(96.0)
    inside = (known.replicates >= known.low) & (known.replicates <= known.high)
    assert inside[:, 0].mean() == pytest.approx(0.9, abs=0.01)
    assert known.low[1] == 0.0 and known.high[1] == 5.0


def test_other_levels_and_thresholds_need_no_fit(known):
    half = dataclasses.replace(known, level=0.5, threshold=51.0)
    assert (half.low[0], half.high[0]) == pytest.approx((26.0, 76.0))
    assert half.frequency.tolist() == [50 / 101, 0.0, 0.0]
    with pytest.raises(InvalidInputError, match="level must be"):
        dataclasses.replace(known, level=95)
    with pytest.raises(dataclasses.FrozenInstanceError):
        known.level = 0.5


def test_frame_has_one_row_for_each_kernel(known):
    frame = known.to_frame()
    assert list(frame.index) == ["all", "ten", "none"]
    assert list(frame.columns) == ["weight", "mean", "low", "high", "frequency"]
    for column in ("mean", "low", "high", "frequency"):
        assert np.array_equal(frame[column], getattr(known, column))
    assert np.array_equal(frame["weight"], known.weights)


def test_frame_without_pandas_is_one_of_polars(known, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    frame = known.to_frame()
    assert frame.columns == ["kernel", "weight", "mean", "low", "high", "frequency"]
    assert frame["kernel"].to_list() == ["all", "ten", "none"]


def test_text_lists_the_heaviest_first_and_counts_the_rest(known):
    lines = repr(known).splitlines()
    assert lines[0] == "101 bootstrap replicates"
    assert "1 of 3 kernels selected (weight > 0) in 90 % of them or more" in lines[1]
    assert "90 % interval" in lines[2]
    assert lines[3].split() == ["100", "%", "50.0000", "51.0000", "6.0000", "to", "96.0000", "all"]
    assert lines[4].split()[-1] == "ten"
    assert len(lines) == 5  # A kernel that never had a weight is not listed.
    many = Stability([f"k{j}" for j in range(30)], np.ones(30), np.ones((2, 30)))
    assert repr(many).splitlines()[-1].strip() == "20 more with a weight in some fit"


def test_figure_shows_the_numbers(known):
    ax = known.plot()
    (panel,) = ax.child_axes
    assert [label.get_text() for label in ax.get_yticklabels()] == ["all", "ten"]
    intervals = [(bar.get_x(), bar.get_x() + bar.get_width()) for bar in ax.patches]
    assert intervals == [pytest.approx((6.0, 96.0)), pytest.approx((0.0, 5.0))]
    marks = {line.get_label(): list(line.get_xdata()) for line in ax.lines}
    assert marks["their mean"] == pytest.approx([51.0, 50 / 101])
    assert marks["fit on all rows"] == [50.0, 0.0]
    assert [bar.get_width() for bar in panel.containers[1]] == pytest.approx([1.0, 10 / 101])
    assert [text.get_text() for text in panel.texts] == ["100 %", "10 %"]
    legend = [text.get_text() for text in ax.get_legend().get_texts()]
    assert legend == ["90 % of replicates", "their mean", "fit on all rows"]
    assert ax.get_title() == "1 of 3 kernels in 90 % of replicates or more"


def test_figure_puts_the_others_into_one_row():
    replicates = np.tile(np.arange(30.0, 0.0, -1.0), (5, 1))
    replicates[0, 28] = replicates[1, 29] = 4.0
    result = Stability([f"k{j}" for j in range(30)], replicates[2], replicates, threshold=3.0)
    ax = result.plot(top=28)
    labels = [label.get_text() for label in ax.get_yticklabels()]
    assert labels[0] == "k0" and labels[-1] == "2 more kernels together"
    # The sums are 5, 6, 3, 3, 3; in the first two one of the kernels is above the threshold.
    (text,) = [text.get_text() for text in ax.texts]
    assert text == "sum of their weights 4.0000 (3.0000 to 5.9000)"
    assert ax.child_axes[0].texts[-1].get_text() == "40 %"
    with pytest.raises(InvalidInputError, match="top must be at least 1; got 0"):
        result.plot(top=0)


def test_figure_draws_on_given_axes_and_is_saved(known, tmp_path):
    from matplotlib.figure import Figure

    figure = Figure(layout="constrained")
    ax = figure.subplots()
    assert known.plot(ax=ax) is ax
    figure.savefig(tmp_path / "stability.png")
    assert (tmp_path / "stability.png").stat().st_size > 5_000


def test_figure_is_not_known_to_pyplot(known):
    import matplotlib.pyplot as plt

    before = plt.get_fignums()
    known.plot()
    assert plt.get_fignums() == before


@pytest.mark.parametrize("weights", [[[0.0, 0.0]] * 3, [[-1.0, 1.0]] * 3])
def test_figure_of_nothing_and_of_negative_weights(weights):
    result = Stability(["a", "b"], np.array(weights[0]), np.array(weights))
    ax = result.plot()
    left, right = ax.get_xlim()
    assert left < min(0.0, np.min(weights)) and right > np.max(weights)
    ax.figure.canvas.draw()
