"""Kernel weights as bars."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from kernelweave.describe.learnt import find_estimator, rank_kernels
from kernelweave.errors import InvalidInputError
from kernelweave.plot.style import (
    BLACK,
    COLOURS,
    GREY,
    VERMILLION,
    new_axes,
    shorten,
    tidy,
    title_and_legend,
)
from kernelweave.plot.weight_bars import Bar, group_colours, weight_bars

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["weights"]

_PALE = 0.4


def weights(model: Any, ax: Axes | None = None, top: int = 20, *, groups: Any = None) -> Axes:
    """Draw the learnt kernel weights as bars, the heaviest on top.

    Parameters
    ----------
    model : MKLClassifier, MKLRegressor, BayesianMKLClassifier, BayesianMKLRegressor, ...
        Fitted; or a pipeline or search that ends in one. Where every class has weights of its own,
        the bar is their mean and each class is a dot. Bayesian models get error bars of two
        standard deviations to each side, and a pale bar where these reach zero.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure (not known to pyplot) when left out.
    top : int, default=20
        How many kernels to show; the others become one grey bar. It is their sum; for weights that
        may be negative, which would cancel, it reaches from the smallest to the largest.
    groups : "columns", int, sequence or dict, optional
        Kernels that get the same colour, said as in
        :class:`~kernelweave.regularizers.BlockNorm`: those on the same columns, neighbours, one
        label for each kernel, or lists of kernels by the name of their group.

    Returns
    -------
    matplotlib.axes.Axes

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from kernelweave import MKLClassifier
    >>> from kernelweave.kernels import RBF, Linear
    >>> from kernelweave import plot
    >>> X, y = load_iris(return_X_y=True)
    >>> model = MKLClassifier([Linear(), RBF(width=1.0)]).fit(X, y)
    >>> plot.weights(model).get_xlabel()
    'weight'
    """
    from matplotlib.patches import Patch

    if top < 1:
        raise InvalidInputError(f"top must be at least 1; got {top!r}.")
    estimator = find_estimator(model)
    kernels = rank_kernels(estimator)
    shown, rest = kernels[:top], kernels[top:]
    names = [shorten(kernel.name) for kernel in shown]
    if rest:
        together = "together" if rest[0].std is None else "in this range"
        names.append(f"{len(rest)} more kernels {together}")
    if ax is None:
        ax = new_axes(6.4, max(1.6, 0.9 + 0.27 * len(names)))
    colours, by_group = group_colours(groups, estimator.kernel_names_, COLOURS)
    handles: list[Any] = [Patch(color=colour, label=name) for name, colour in by_group.items()]
    bars = weight_bars(shown, rest, colours, GREY)
    handles += _draw_weights(ax, bars)
    n_classes = len(kernels[0].by_class) if kernels else 1
    if n_classes > 1:
        for row, kernel in enumerate(shown):
            dots = ax.plot(kernel.by_class, [row] * n_classes, "o", color=VERMILLION, markersize=4)
            dots[0].set_label("one class")
        handles.append(dots[0])
    title = f"{len(kernels)} of {len(estimator.kernel_names_)} kernels kept"
    title_and_legend(ax, title, handles, right=True)
    ax.set_yticks(np.arange(len(names)), names)
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.margins(x=0.14)
    if any(bar.low < 0 for bar in bars):
        ax.axvline(0.0, color=GREY, lw=0.8, zorder=0.5)
    else:
        ax.set_xlim(left=0)
    ax.set_xlabel("weight")
    ax.tick_params(axis="y", length=0)
    tidy(ax)
    return ax


def _draw_weights(ax: Axes, bars: list[Bar]) -> list[Any]:
    """Draw bars with their numbers and error bars; returns what a legend explains."""
    rows = np.arange(len(bars))
    drawn = ax.barh(
        rows,
        [bar.right - bar.left for bar in bars],
        left=[bar.left for bar in bars],
        color=[bar.colour for bar in bars],
        height=0.72,
    )
    for row, (bar, shape) in enumerate(zip(bars, drawn, strict=True)):
        if bar.doubtful:
            shape.set_alpha(_PALE)
        # On the side that the bar points to.
        up = bar.right >= 0
        ax.annotate(
            bar.text,
            (bar.high if up else bar.low, row),
            xytext=(4 if up else -4, 0),
            textcoords="offset points",
            ha="left" if up else "right",
            va="center",
            fontsize=8,
            color=BLACK,
        )
    known = [(bar.right, row, bar.reach) for row, bar in enumerate(bars) if bar.reach is not None]
    if not known:
        return []
    weights, places, reach = zip(*known, strict=True)
    errors = ax.errorbar(
        weights,
        places,
        xerr=reach,
        fmt="none",
        ecolor=BLACK,
        elinewidth=1.1,
        label="2 standard deviations",
    )
    return [errors]
