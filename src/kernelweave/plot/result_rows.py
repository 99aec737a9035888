"""Results in rows, with panels beside them: solvers compared, and the stability of weights."""

from __future__ import annotations

from textwrap import shorten as cut
from typing import Any

import numpy as np

from kernelweave.errors import InvalidInputError
from kernelweave.inspect.words import number, shorten
from kernelweave.plot.style import (
    BLUE,
    GREY,
    LIGHT_BLUE,
    VERMILLION,
    Axes,
    check_top,
    new_axes,
    rows_with_names,
    tidy,
    title_and_legend,
    write,
)

# Shares of the width. Of a comparison scores end at the first, their means at the second, then
# come times and kernels; of stability weights end at the first, and frequencies begin.
_SCORES_END, _MEANS_END, _TIMES, _KERNELS = 0.38, 0.445, (0.48, 0.25), (0.77, 0.23)
_WEIGHTS_END, _FREQUENCIES = 0.74, (0.79, 0.21)
_STRIPE, _DARK_GREY = "#f6f6f6", "#555555"
_ERROR_LETTERS = 100
# Means of scores: whether all fits reached their tolerance, the colour inside, and what it means.
_MARKS = ((True, BLUE, "mean"), (False, "white", "tolerance not reached"))


def compare(comparison: Any, ax: Axes | None = None) -> Axes:
    """Draw a comparison of solvers: the scores, the seconds of a fit, the kernels kept.

    Parameters
    ----------
    comparison : Comparison
        What :func:`kernelweave.compare` returned.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure (not known to pyplot) when left out.

    Returns
    -------
    matplotlib.axes.Axes
        A row for each solver. Small dots are the splits, the large mark is their mean, with a bar
        of one standard deviation to each side; it is hollow where a fit did not reach its
        tolerance. Times are on a logarithmic axis. A solver that did not take the problem says so.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from kernelweave import compare, plot
    >>> X, y = load_iris(return_X_y=True)
    >>> ax = plot.compare(compare(X, y, ["silp", "uniform"], n_splits=2))
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['silp', 'uniform']
    """
    rows = getattr(comparison, "rows", None)
    if not rows:
        raise InvalidInputError(
            "plot.compare draws what kernelweave.compare returned; got "
            f"{type(comparison).__name__}."
        )
    count = len(rows)
    ax = ax or new_axes(9.2, max(1.8, 1.25 + 0.36 * count))
    ax.set_yticks(np.arange(count), [shorten(row.solver, 30) for row in rows])
    ax.set_ylim(count - 0.5, -0.5)
    ax.tick_params(axis="y", length=0)
    for row in range(0, count, 2):
        ax.axhspan(row - 0.5, row + 0.5, color=_STRIPE, lw=0, zorder=0)
    fitted = {place: row for place, row in enumerate(rows) if row.fits}
    _draw_scores(ax, fitted, count, comparison.metric)
    _draw_times(_side_panel(ax, *_TIMES), fitted)
    _draw_kernels(_side_panel(ax, *_KERNELS), fitted, comparison.n_kernels)
    for place, row in enumerate(rows):
        if not row.fits:
            # Over the line of the best mean.
            box = {"fc": "white" if place % 2 else _STRIPE, "ec": "none", "pad": 1}
            how = {"fontstyle": "italic", "color": _DARK_GREY, "bbox": box, "zorder": 6}
            text = cut(row.error or "not run", _ERROR_LETTERS, placeholder=" …")
            write(ax, text, (0.01, place), (0, 0), xycoords=("axes fraction", "data"), **how)
    title_and_legend(ax, comparison.title, ax.get_legend_handles_labels()[0])
    return ax


def _draw_scores(ax: Axes, fitted: dict[int, Any], count: int, metric: str) -> None:
    rows, places = list(fitted.values()), np.array(list(fitted))
    mean, spread = np.array([(row.score, row.score_std) for row in rows]).reshape(-1, 2).T
    every = np.concatenate([mean - spread, mean + spread, *(row.scores for row in rows)])
    low, high = (float(every.min()), float(every.max())) if rows else (0.0, 1.0)
    margin = 0.06 * (high - low) or 0.05
    _end_axis_at(ax, _SCORES_END, low - margin, high + margin)
    ax.set_xlabel("R squared" if metric == "R2" else metric, x=0.5 * _SCORES_END)
    for converged, face, label in _MARKS:
        own = np.array([row.converged == converged for row in rows], dtype=bool)
        if own.any():
            how: Any = {"color": BLUE, "mfc": face, "mew": 1.5, "zorder": 4, "label": label}
            ax.plot(mean[own], places[own], "o", ms=7, **how)
    label = "one split"
    for place, row in fitted.items():
        where = ("axes fraction", "data")
        write(ax, f"{row.score:.3f}", (_MEANS_END, place), (0, 0), xycoords=where, ha="right")
        if len(row.scores) > 1:
            # Splits with the same score lie one above the other.
            shift = np.linspace(-0.2, 0.2, len(row.scores))
            ax.plot(row.scores, place + shift, ".", color=_DARK_GREY, ms=4, zorder=3, label=label)
            label = ""
    if not label:
        ends, label = (mean - spread, mean + spread), "1 standard deviation"
        ax.hlines(places, *ends, color=LIGHT_BLUE, lw=6, zorder=2, label=label)
    if rows and count > 1:
        best = [mean.max()] * 2
        ax.plot(best, [-0.5, count - 0.5], color=GREY, lw=0.8, ls=":", zorder=1, label="best mean")


def _draw_times(ax: Axes, fitted: dict[int, Any]) -> None:
    ax.set_xlabel("seconds of a fit")
    ax.set_xscale("log")
    if not fitted:
        ax.set_xticks([])
        return
    # A clock may not see a fit of microseconds.
    times = {place: max(row.seconds, 1e-4) for place, row in fitted.items()}
    start, end = 0.6 * min(times.values()), 1.6 * max(times.values())
    # Two powers of ten at least, and room for the numbers.
    end = max(end, 30.0 * start)
    ax.set_xlim(start, end * (end / start) ** 0.28)
    for place, seconds in times.items():
        ax.plot([start, seconds], [place, place], color=LIGHT_BLUE, lw=3, solid_capstyle="butt")
        face = BLUE if fitted[place].converged else "white"
        ax.plot(seconds, place, "D", ms=5.5, color=BLUE, mfc=face, mew=1.5)
        write(ax, f"{number(seconds, 2)} s", (seconds, place), (6, 0))
    ax.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    ax.minorticks_off()


def _draw_kernels(ax: Axes, fitted: dict[int, Any], total: int | None) -> None:
    ax.set_xlim(0, 1.35 * max([1.0, *(row.kernels for row in fitted.values())]))
    _without_scale(ax, "kernels kept" + ("" if total is None else f" of {total}"))
    for place, row in fitted.items():
        everything = total is not None and row.kernels >= total
        colour, hatch = ("white", "////") if everything else (BLUE, None)
        how: Any = {"height": 0.45, "edgecolor": BLUE, "lw": 1}
        ax.barh(place, row.kernels, color=colour, hatch=hatch, **how)
        write(ax, f"{row.kernels:.1f}".removesuffix(".0"), (row.kernels, place), (6, 0))


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
    _end_axis_at(ax, _WEIGHTS_END, left - margin, right + margin)
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
    panel, rows = _side_panel(ax, *_FREQUENCIES), np.arange(len(frequency))
    panel.barh(rows, np.ones(len(rows)), color="#f2f2f2", height=0.6)
    panel.barh(rows, frequency, color=[*[BLUE] * len(shown), GREY][: len(rows)], height=0.6)
    for row, share in enumerate(frequency):
        panel.text(1.72, row, f"{100 * share:.0f} %", ha="right", va="center", fontsize=8)
    panel.set_xlim(0, 1.74)
    _without_scale(panel, "selected in")
    sure = np.count_nonzero(result.frequency >= result.often)
    share = f"{100 * result.often:g} % of replicates or more"
    title = f"{sure} of {len(result.names)} kernels in {share}"
    title_and_legend(ax, title, [bars, dots, diamonds])
    return ax


def _end_axis_at(ax: Axes, share: float, start: float, end: float) -> None:
    """Let the horizontal axis show `start` to `end` on a share of the width, and end there."""
    from matplotlib.ticker import MaxNLocator

    ax.set_xlim(start, start + (end - start) / share)
    ticks = np.asarray(MaxNLocator(5).tick_values(start, end))
    ax.set_xticks(ticks[(ticks >= start) & (ticks <= end)])
    tidy(ax)
    ax.spines["bottom"].set_bounds(start, end)
    ax.spines["left"].set_visible(False)


def _side_panel(ax: Axes, start: float, width: float) -> Axes:
    """Return axes for more of the same rows: inside `ax`, so that they work in any layout."""
    panel = ax.inset_axes((start, 0.0, width, 1.0), sharey=ax)
    panel.tick_params(axis="y", left=False, labelleft=False)
    panel.spines["left"].set_visible(False)
    panel.patch.set_visible(False)
    tidy(panel)
    return panel


def _without_scale(panel: Axes, caption: str) -> None:
    """Take the scale from a panel whose bars have their numbers; its caption stays in line."""
    # A blank label as high as those of the others.
    panel.set_xticks([0.5 * sum(panel.get_xlim())], [" "])
    panel.tick_params(axis="x", color="none")
    panel.spines["bottom"].set_visible(False)
    panel.set_xlabel(caption)
