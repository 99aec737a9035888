"""A figure of a path: weights and scores against C."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from kernelweave.errors import InvalidInputError
from kernelweave.inspect.ranking import find_estimator
from kernelweave.inspect.words import shorten
from kernelweave.plot.style import (
    BLACK,
    BLUE,
    COLOURS,
    LIGHT_BLUE,
    RULE,
    VERMILLION,
    Axes,
    check_top,
    log_axis,
    tidy,
    write,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's palette without the vermillion of the chosen C; lines beyond it are dashed.
_COLOURS = (BLUE, *COLOURS[2:], BLACK)
_DASHES = ("-", "--", ":")
# Lines that cross stay apart without colours too.
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<")
_FAINT = "#d0d0d0"


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
    panels = _panels() if ax is None else tuple(np.atleast_1d(ax))
    if len(panels) > 2:
        raise InvalidInputError(
            "ax must be one matplotlib Axes (the weights) or two (the weights and the score); got "
            f"{len(panels)}."
        )
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
    return path(model, _panels(figure), top)[0].figure


def _panels(figure: Figure | None = None) -> tuple[Axes, ...]:
    """Axes for the weights and for the score, in a new figure when none is given."""
    if figure is None:
        from matplotlib.figure import Figure

        figure = Figure(figsize=(8.0, 5.6), layout="constrained")
    return tuple(figure.subplots(2, 1, sharex=True, height_ratios=[2.0, 1.0]))


def _draw_weights(ax: Axes, estimator: Any, top: int) -> None:
    Cs, weights = estimator.Cs_, estimator.path_weights_
    if weights.ndim == 3:
        weights = weights.mean(axis=1)
    peak = weights.max(axis=0)
    order = np.argsort(-peak, kind="stable")
    order = order[peak[order] > 0]
    shown, rest = order[:top], order[top:]
    every = max(1, len(Cs) // 7)
    for i, k in enumerate(shown):
        ax.plot(
            Cs,
            weights[:, k],
            _DASHES[i // len(_COLOURS) % len(_DASHES)],
            color=_COLOURS[i % len(_COLOURS)],
            label=shorten(str(estimator.kernel_names_[k])),
            lw=1.8,
            marker=_MARKERS[i % len(_MARKERS)],
            markersize=4,
            # Of many points those of neighbours in different places.
            markevery=(i % every, every),
            zorder=2.5,
        )
    if len(rest):
        lines = ax.plot(Cs, weights[:, rest], color=_FAINT, lw=0.8, zorder=1.2)
        lines[0].set_label(f"{len(rest)} more kernels")
    ax.set_ylim(0.0, 1.05 * float(peak.max(initial=0.0)) or 1.0)
    ax.set_ylabel("weight")
    if len(order):
        ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize=8)
    # The number of kernels in use, along the upper edge.
    counts = np.count_nonzero(weights, axis=1)
    step = max(1, -(-len(Cs) // 10))
    for C, count in list(zip(Cs, counts, strict=True))[::step]:
        how = {"xycoords": ("data", "axes fraction"), "ha": "center", "va": "bottom"}
        write(ax, f"{count}", (C, 1.0), (0, 6), **how)
    write(ax, "kernels", (0.0, 1.0), (-6, 6), xycoords="axes fraction", ha="right", va="bottom")
    kept = f"{counts[estimator.best_index_]} of {weights.shape[1]} kernels"
    ax.set_title(f"C = {estimator.C_:.3g}: {kept}", fontsize=11, pad=22)


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
