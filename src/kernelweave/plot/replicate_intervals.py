"""A figure of kernel weights over replicates: intervals, and how often a kernel was selected."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelweave.inspect.words import shorten
from kernelweave.plot.style import (
    BLUE,
    GREY,
    LIGHT_BLUE,
    VERMILLION,
    Axes,
    check_top,
    legend_above,
    new_axes,
    rows_with_names,
    tidy,
    write,
)
from kernelweave.problem import Array

__all__ = ["stability"]

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
    frequency = result.frequency[shown]
    if len(rest):
        names.append(f"{len(rest)} more kernels together")
        any_of_them = result.selected(result.replicates[:, rest]).any(axis=1).mean()
        frequency = np.append(frequency, any_of_them)
    ax = ax or new_axes(7.4, max(2.2, 1.35 + 0.27 * len(names)))
    explained = _draw_weights(ax, result, shown)
    if len(rest):
        _write_rest(ax, result, rest, len(shown))
    rows_with_names(ax, names)
    _draw_frequencies(ax, frequency, len(shown))
    sure = np.count_nonzero(result.frequency >= result.often)
    share = f"{100 * result.often:g} % of replicates or more"
    title = f"{sure} of {len(result.names)} kernels in {share}"
    # The legend stands between the title and the axes, where no kernel can be in its way.
    ax.set_title(title, fontsize=11, pad=22)
    legend_above(ax, explained, 3)
    return ax


def _draw_weights(ax: Axes, result: Any, shown: NDArray[np.intp]) -> list[Any]:
    """Draw intervals and marks; returns what the legend explains, in order."""
    rows = np.arange(len(shown))
    whole, mean = result.weights[shown], result.mean[shown]
    low, high = result.low[shown], result.high[shown]
    interval = f"{100 * result.level:g} % of replicates"
    bars = ax.barh(rows, high - low, left=low, height=0.4, color=LIGHT_BLUE, label=interval)
    (dots,) = ax.plot(mean, rows, "o", color=BLUE, markersize=5, label="their mean")
    (diamonds,) = ax.plot(whole, rows, "D", color=VERMILLION, markersize=5, label="fit on all rows")
    diamonds.set_fillstyle("none")
    values = np.concatenate([[0.0], low, high, mean, whole])
    left, right = float(values.min()), float(values.max())
    _keep_room(ax, left, right if right > left else 1.0)
    ax.set_xlabel("weight", x=0.5 * _WEIGHTS_END)
    tidy(ax)
    return [bars, dots, diamonds]


def _keep_room(ax: Axes, left: float, right: float) -> None:
    """Let the weights and their axis end where the frequencies begin."""
    from matplotlib.ticker import MaxNLocator

    margin = 0.02 * (right - left)
    start, end = left - margin, right + margin
    ax.set_xlim(start, start + (end - start) / _WEIGHTS_END)
    ticks = np.asarray(MaxNLocator(5).tick_values(start, end))
    ax.set_xticks(ticks[(ticks >= start) & (ticks <= end)])
    ax.spines["bottom"].set_bounds(start, end)
    ax.spines["left"].set_visible(False)
    ax.axvline(0.0, color=GREY, lw=0.8, zorder=0.5)


def _write_rest(ax: Axes, result: Any, rest: NDArray[np.intp], row: int) -> None:
    # In words: a sum of hundreds of weights would squeeze the others against the left end.
    total = result.replicates[:, rest].sum(axis=1)
    low, high = result.interval(total)
    text = f"sum of their weights {total.mean():.4f} ({low:.4f} to {high:.4f})"
    write(ax, text, (0.0, row), (5, 0), color=_DARK_GREY)


def _draw_frequencies(ax: Axes, frequency: Array, own: int) -> None:
    # Inside the axes, so that it works in any layout of the caller's figure.
    panel = ax.inset_axes((_BARS_START, 0.0, 1.0 - _BARS_START, 1.0), sharey=ax)
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
    panel.set_xlabel("selected in")
    panel.tick_params(axis="y", left=False, labelleft=False)
    panel.spines[:].set_visible(False)
    panel.patch.set_visible(False)
