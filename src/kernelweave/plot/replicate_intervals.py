"""A figure of kernel weights over replicates: intervals, and how often a kernel was selected."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernelweave.inspect.words import shorten
from kernelweave.plot.style import (
    BLUE,
    GREY,
    LIGHT_BLUE,
    VERMILLION,
    Axes,
    check_top,
    end_axis_at,
    new_axes,
    rows_with_names,
    side_panel,
    title_and_legend,
    write,
)
from kernelweave.problem import Array

# Shares of the width: the weights end at the first, the frequencies start at the second.
_WEIGHTS_END, _BARS_START = 0.74, 0.79
_DARK_GREY = "#666666"


def stability(result: Any, ax: Axes | None = None, top: int = 20) -> Axes:
    """Draw the weights with their intervals, and how often each kernel was selected.

    Parameters
    ----------
    result : Stability
        What :func:`kernelweave.stability` returned.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure (not known to pyplot) when left out.
    top : int, default=20
        How many kernels to show, those with the largest mean weight; the others become one row:
        the sum of their weights, and how often any of them was selected.

    Returns
    -------
    matplotlib.axes.Axes
        The light bar is the interval, the dot the mean over the replicates, the diamond the
        weight of the fit on all rows; the bars on the
        right are selection frequencies.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave import plot
    >>> from kernelweave.report import Stability
    >>> weights = np.array([[0.7, 0.3], [0.9, 0.1], [1.0, 0.0]])
    >>> ax = plot.stability(Stability(["a", "b"], np.array([0.8, 0.2]), weights))
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['a', 'b']
    """
    check_top(top)
    shown, rest = result.ranked[:top], result.ranked[top:]
    names = [shorten(str(result.names[k])) for k in shown]
    if len(rest):
        names.append(f"{len(rest)} more kernels together")
    ax = ax or new_axes(7.4, max(2.2, 1.35 + 0.27 * len(names)))
    rows = np.arange(len(shown))
    mean, whole = result.mean[shown], result.weights[shown]
    low, high = result.low[shown], result.high[shown]
    interval = f"{100 * result.level:g} % of replicates"
    bars = ax.barh(rows, high - low, left=low, height=0.4, color=LIGHT_BLUE, label=interval)
    (dots,) = ax.plot(mean, rows, "o", color=BLUE, markersize=5, label="their mean")
    (diamonds,) = ax.plot(whole, rows, "D", color=VERMILLION, markersize=5, label="fit on all rows")
    diamonds.set_fillstyle("none")
    values = np.concatenate([[0.0], low, high, mean, whole])
    left, right = float(values.min()), float(values.max())
    right = right if right > left else 1.0
    margin = 0.02 * (right - left)
    end_axis_at(ax, _WEIGHTS_END, left - margin, right + margin)
    ax.axvline(0.0, color=GREY, lw=0.8, zorder=0.5)
    ax.set_xlabel("weight", x=0.5 * _WEIGHTS_END)
    frequency = result.frequency[shown]
    if len(rest):
        # In words: a sum of hundreds of weights would squeeze the others against the left end.
        total = result.replicates[:, rest].sum(axis=1)
        low, high = result.interval(total)
        text = f"sum of their weights {total.mean():.4f} ({low:.4f} to {high:.4f})"
        write(ax, text, (0.0, len(shown)), (5, 0), color=_DARK_GREY)
        any_of_them = result.selected(result.replicates[:, rest]).any(axis=1).mean()
        frequency = np.append(frequency, any_of_them)
    rows_with_names(ax, names)
    _draw_frequencies(side_panel(ax, _BARS_START, 1.0 - _BARS_START), frequency, len(shown))
    sure = np.count_nonzero(result.frequency >= result.often)
    share = f"{100 * result.often:g} % of replicates or more"
    title = f"{sure} of {len(result.names)} kernels in {share}"
    title_and_legend(ax, title, [bars, dots, diamonds])
    return ax


def _draw_frequencies(panel: Axes, frequency: Array, own: int) -> None:
    rows = np.arange(len(frequency))
    panel.barh(rows, np.ones(len(rows)), color="#f2f2f2", height=0.6)
    colours = [BLUE] * own + [GREY] * (len(rows) - own)
    panel.barh(rows, frequency, color=colours, height=0.6)
    for row, share in zip(rows, frequency, strict=True):
        panel.text(1.72, float(row), f"{100 * share:.0f} %", ha="right", va="center", fontsize=8)
    panel.set_xlim(0, 1.74)
    # A blank label as high as those of the weights keeps the two captions on one line.
    panel.set_xticks([0.87], [" "])
    panel.tick_params(axis="x", color="none")
    panel.spines["bottom"].set_visible(False)
    panel.set_xlabel("selected in")
