"""A figure of a path: weights and scores against C."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.isotonic import isotonic_regression

from kernelweave.errors import InvalidInputError
from kernelweave.inspect.learnt import find_estimator
from kernelweave.inspect.words import shorten
from kernelweave.plot.style import (
    BLACK,
    BLUE,
    COLOURS,
    GREY,
    LIGHT_BLUE,
    RULE,
    VERMILLION,
    Axes,
    check_top,
    log_axis,
    tidy,
    write,
)
from kernelweave.problem import Array

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["path", "plot_path", "spread_apart"]

# Okabe and Ito's palette without the vermillion of the chosen C; lines beyond it are dashed.
_COLOURS = (BLUE, *COLOURS[2:], BLACK)
_DASHES = ("-", "--", ":")
# Lines that cross stay apart without colours too.
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<")
_FAINT = "#d0d0d0"
# Shares of a panel's height between two labels.
_LABEL_GAP = 0.062


def path(model: Any, ax: Any = None, top: int = 8) -> Any:
    """Draw the kernel weights along the path of C, and the cross-validated score below them.

    Parameters
    ----------
    model : MKLClassifierCV, MKLRegressorCV, or a pipeline that ends in one
        Fitted. Where every class has weights of its own, their mean is drawn.
    ax : matplotlib.axes.Axes or two of them, optional
        Where to draw: one for the weights only, or one for the weights and one for the score. A
        new figure (not known to pyplot) with both when left out.
    top : int, default=8
        How many kernels to draw in colour and name, those with the largest weight anywhere on the
        path; the others are grey.

    Returns
    -------
    matplotlib.axes.Axes or tuple of two
        What was drawn on: one if one was given, else two. The first has the weights, with the
        number of kernels that have any along the upper edge; the second the mean score over the
        folds and a band of one standard deviation to each side. The line through both is the
        chosen C.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from kernelweave import MKLClassifierCV, plot
    >>> X, y = load_iris(return_X_y=True)
    >>> upper, lower = plot.path(MKLClassifierCV(Cs=4, cv=3).fit(X, y))
    >>> upper.get_ylabel(), lower.get_xlabel()
    ('weight', 'C')
    """
    check_top(top)
    estimator = find_estimator(model)
    if not hasattr(estimator, "path_weights_"):
        raise InvalidInputError(
            "a path is what MKLClassifierCV and MKLRegressorCV have; got "
            f"{type(estimator).__name__}."
        )
    panels = _panels(ax)
    _draw_weights(panels[0], estimator, top)
    if len(panels) > 1:
        _draw_scores(panels[1], estimator)
    Cs = estimator.Cs_
    # One value of C has no range; give it one.
    spare = (Cs[-1] / Cs[0]) ** 0.02 if Cs[-1] > Cs[0] else 2.0
    for panel in panels:
        panel.axvline(estimator.C_, color=VERMILLION, lw=1.2, ls="--", zorder=1.5)
        tidy(panel)
        log_axis(panel, "x")
        panel.set_xlim(Cs[0] / spare, Cs[-1] * spare)
    panels[-1].set_xlabel("C")
    return panels[0] if len(panels) == 1 else panels


def plot_path(model: Any, top: int = 8, figure: Figure | None = None) -> Figure:
    """Draw the kernel weights along the path of C, and the cross-validated score below them.

    The same as :func:`kernelweave.plot.path`, which takes axes and returns them.

    Parameters
    ----------
    model : MKLClassifierCV, MKLRegressorCV, or a pipeline that ends in one
        Fitted.
    top : int, default=8
        How many kernels to draw in colour and name.
    figure : matplotlib.figure.Figure, optional
        Where to draw; a new one (not known to pyplot) when left out.

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from kernelweave import MKLClassifierCV
    >>> from kernelweave.report import plot_path
    >>> X, y = load_iris(return_X_y=True)
    >>> figure = plot_path(MKLClassifierCV(Cs=4, cv=3).fit(X, y))
    >>> [ax.get_xscale() for ax in figure.axes]
    ['log', 'log']
    """
    if figure is None:
        return path(model, top=top)[0].figure
    panels = figure.subplots(2, 1, sharex=True, height_ratios=[2.0, 1.0])
    return path(model, panels, top)[0].figure


def _panels(ax: Any) -> tuple[Axes, ...]:
    """The axes to draw on: those given, or two of a new figure."""
    if ax is None:
        from matplotlib.figure import Figure

        figure = Figure(figsize=(8.0, 5.6), layout="constrained")
        return tuple(figure.subplots(2, 1, sharex=True, height_ratios=[2.0, 1.0]))
    panels = tuple(ax) if isinstance(ax, Sequence | np.ndarray) else (ax,)
    if len(panels) not in (1, 2):
        raise InvalidInputError(
            "ax must be one matplotlib Axes (the weights) or two (the weights and the score); got "
            f"{len(panels)}."
        )
    return panels


def _draw_weights(ax: Axes, estimator: Any, top: int) -> None:
    Cs, weights = estimator.Cs_, estimator.path_weights_
    if weights.ndim == 3:
        weights = weights.mean(axis=1)
    peak = weights.max(axis=0)
    order = np.argsort(-peak, kind="stable")
    order = order[peak[order] > 0]
    shown, rest = order[:top], order[top:]
    if len(rest):
        ax.plot(Cs, weights[:, rest], color=_FAINT, lw=0.8, zorder=1.2)
    colours = []
    every = max(1, len(Cs) // 7)
    for i, k in enumerate(shown):
        colour = _COLOURS[i % len(_COLOURS)]
        dash = _DASHES[i // len(_COLOURS) % len(_DASHES)]
        ax.plot(
            Cs,
            weights[:, k],
            dash,
            color=colour,
            lw=1.8,
            marker=_MARKERS[i % len(_MARKERS)],
            markersize=4,
            # Of many points those of neighbours in different places.
            markevery=(i % every, every),
            zorder=2.5,
        )
        colours.append(colour)
    ax.set_ylim(0.0, 1.05 * float(peak.max(initial=0.0)) or 1.0)
    ax.set_ylabel("weight")
    names = [shorten(str(estimator.kernel_names_[k])) for k in shown]
    _write_names(ax, names, weights[-1, shown], colours)
    if len(rest):
        last = Cs[-1]
        how = {"xycoords": ("data", "axes fraction"), "color": GREY, "annotation_clip": False}
        write(ax, f"grey: {len(rest)} more kernels", (last, 0.0), (12, -10), **how)
    _write_counts(ax, Cs, np.count_nonzero(weights, axis=1))
    total = weights.shape[1]
    ax.set_title(
        f"C = {estimator.C_:.3g}: {np.count_nonzero(weights[estimator.best_index_])} of {total} "
        "kernels",
        fontsize=11,
        pad=22,
    )


def _write_names(ax: Axes, names: list[str], ends: Array, colours: list[str]) -> None:
    """Write each name at the right end of its line, moved apart where lines end close together."""
    height = ax.get_ylim()[1]
    places = spread_apart(np.asarray(ends) / height, _LABEL_GAP)
    for name, end, place, colour in zip(names, ends, places, colours, strict=True):
        ax.annotate(
            name,
            xy=(1.0, end / height),
            xycoords="axes fraction",
            xytext=(1.03, place),
            textcoords="axes fraction",
            va="center",
            fontsize=8,
            color=colour,
            annotation_clip=False,
            # From the left end of the text, so that no line crosses a name.
            arrowprops={
                "arrowstyle": "-",
                "color": colour,
                "lw": 0.6,
                "shrinkA": 0,
                "shrinkB": 0,
                "relpos": (0.0, 0.5),
            },
        )


def spread_apart(places: Array, gap: float) -> Array:
    """Return places in [0, 1] at least `gap` apart, in the same order and near those given.

    Examples
    --------
    >>> spread_apart(np.array([0.5, 0.5, 0.0]), 0.1).round(2).tolist()
    [0.55, 0.45, 0.0]
    """
    count = len(places)
    if not count:
        return np.empty(0)
    # Of equal ones the first was the largest: it stays on top.
    order = np.lexsort((-np.arange(count), places))
    steps = min(gap, 1.0 / max(1, count - 1)) * np.arange(count)
    # Without the gaps between them the places only have to be in order, none below zero.
    near = isotonic_regression(np.asarray(places)[order] - steps, y_min=0.0, y_max=1.0 - steps[-1])
    out = np.empty(count)
    out[order] = near + steps
    return out


def _write_counts(ax: Axes, Cs: Array, counts: Array) -> None:
    """Write the number of kernels in use along the upper edge."""
    step = max(1, -(-len(Cs) // 10))
    for C, count in list(zip(Cs, counts, strict=True))[::step]:
        how = {"xycoords": ("data", "axes fraction"), "ha": "center", "va": "bottom"}
        write(ax, f"{count}", (C, 1.0), (0, 6), **how)
    how = {"xycoords": "axes fraction", "ha": "right", "va": "bottom"}
    write(ax, "kernels", (0.0, 1.0), (-6, 6), **how)


def _draw_scores(ax: Axes, estimator: Any) -> None:
    Cs, table = estimator.Cs_, estimator.cv_results_
    mean, spread = table["mean_test_score"], table["std_test_score"]
    ax.fill_between(Cs, mean - spread, mean + spread, color=LIGHT_BLUE, alpha=0.45, lw=0)
    ax.plot(Cs, mean, "o-", color=BLUE, lw=1.8, markersize=3.5)
    ax.plot(estimator.C_, estimator.best_score_, "o", color=VERMILLION, markersize=7, zorder=3)
    scoring = estimator.scoring
    default = "accuracy" if hasattr(estimator, "classes_") else "R squared"
    label = default if scoring is None else scoring if isinstance(scoring, str) else "score"
    ax.set_ylabel(f"{label}, {len(estimator.scores_)} folds")
    ax.grid(True, axis="y", color=RULE, lw=0.8)
    text = f"{estimator.best_score_:.3g} at C = {estimator.C_:.3g}"
    write(ax, text, (estimator.C_, estimator.best_score_), (8, -10), color=VERMILLION)
