"""Solvers side by side: how good, how fast, how many kernels."""

from __future__ import annotations

from textwrap import shorten as cut
from typing import Any

import numpy as np

from kernelweave.errors import InvalidInputError
from kernelweave.inspect.words import shorten, two_digits
from kernelweave.plot.style import (
    BLUE,
    GREY,
    LIGHT_BLUE,
    Axes,
    end_axis_at,
    new_axes,
    side_panel,
    title_and_legend,
    write,
)

# Shares of the width: scores end at the first, their means at the second, then times and kernels.
_SCORES_END, _MEANS_END = 0.38, 0.445
_TIMES = (0.48, 0.25)
_KERNELS = (0.77, 0.23)
_STRIPE = "#f6f6f6"
_DARK_GREY = "#555555"
_ERROR_LETTERS = 100


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
    _draw_times(side_panel(ax, *_TIMES), fitted)
    _draw_kernels(side_panel(ax, *_KERNELS), fitted, comparison.n_kernels)
    for place, row in enumerate(rows):
        if not row.fits:
            # Over the line of the best mean.
            box = {"fc": "white" if place % 2 else _STRIPE, "ec": "none", "pad": 1}
            how = {"fontstyle": "italic", "color": _DARK_GREY, "bbox": box, "zorder": 6}
            text = cut(row.error or "not run", _ERROR_LETTERS, placeholder=" …")
            write(ax, text, (0.01, place), (0, 0), xycoords=("axes fraction", "data"), **how)
    title_and_legend(ax, comparison.title, _marks(list(fitted.values()), count))
    return ax


def _draw_scores(ax: Axes, fitted: dict[int, Any], count: int, metric: str) -> None:
    scores = [score for row in fitted.values() for score in row.scores]
    ends = [row.score + s * row.score_std for row in fitted.values() for s in (-1, 1)]
    low, high = min([*scores, *ends], default=0.0), max([*scores, *ends], default=1.0)
    margin = 0.06 * (high - low) or 0.05
    end_axis_at(ax, _SCORES_END, low - margin, high + margin)
    ax.set_xlabel("R squared" if metric == "R2" else metric, x=0.5 * _SCORES_END)
    for place, row in fitted.items():
        around = row.score - row.score_std, row.score + row.score_std
        ax.hlines(place, *around, color=LIGHT_BLUE, lw=6, zorder=2)
        # Splits with the same score lie one above the other.
        shift = np.linspace(-0.2, 0.2, len(row.scores)) if len(row.scores) > 1 else np.zeros(1)
        ax.plot(row.scores, place + shift, ".", color=_DARK_GREY, ms=4, zorder=3)
        ax.plot(row.score, place, "o", ms=7, zorder=4, **_mark(row))
        where = ("axes fraction", "data")
        write(ax, f"{row.score:.3f}", (_MEANS_END, place), (0, 0), xycoords=where, ha="right")
    if fitted and count > 1:
        best = max(row.score for row in fitted.values())
        ax.plot([best, best], [-0.5, count - 0.5], color=GREY, lw=0.8, ls=":", zorder=1)


def _mark(row: Any) -> dict[str, Any]:
    return {"color": BLUE, "mfc": BLUE if row.converged else "white", "mew": 1.5}


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
        ax.plot(seconds, place, "D", ms=5.5, **_mark(fitted[place]))
        write(ax, f"{two_digits(seconds)} s", (seconds, place), (6, 0))
    ax.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    ax.minorticks_off()


def _draw_kernels(ax: Axes, fitted: dict[int, Any], total: int | None) -> None:
    ax.set_xlabel("kernels kept" + ("" if total is None else f" of {total}"))
    ax.spines["bottom"].set_visible(False)
    # A blank label as high as those of the others keeps the captions on one line.
    ax.tick_params(axis="x", color="none")
    ax.set_xticks([0.0], [" "])
    ax.set_xlim(0, 1.35 * max([1.0, *(row.kernels for row in fitted.values())]))
    for place, row in fitted.items():
        everything = total is not None and row.kernels >= total
        colour, hatch = ("white", "////") if everything else (BLUE, None)
        how: Any = {"height": 0.45, "edgecolor": BLUE, "lw": 1}
        ax.barh(place, row.kernels, color=colour, hatch=hatch, **how)
        write(ax, f"{row.kernels:.1f}".removesuffix(".0"), (row.kernels, place), (6, 0))


def _marks(fitted: list[Any], count: int) -> list[Any]:
    """What a legend explains, as far as it is there."""
    from matplotlib.lines import Line2D

    if not fitted:
        return []
    circle: Any = {"marker": "o", "ls": "", "ms": 7, "color": BLUE}
    handles = [Line2D([], [], label="mean", **circle)]
    if max(len(row.fits) for row in fitted) > 1:
        handles.append(Line2D([], [], marker=".", ls="", ms=5, color=_DARK_GREY, label="one split"))
        handles.append(Line2D([], [], color=LIGHT_BLUE, lw=6, label="1 standard deviation"))
    if not all(row.converged for row in fitted):
        hollow = "tolerance not reached"
        handles.append(Line2D([], [], mfc="white", mew=1.5, label=hollow, **circle))
    if count > 1:
        handles.append(Line2D([], [], color=GREY, lw=0.9, ls=":", label="best mean"))
    return handles
