"""Kernel weights as bars."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from kernelweave.inspect.learnt import Bar, find_estimator, rank_kernels, weight_bars
from kernelweave.inspect.words import shorten
from kernelweave.plot.style import (
    BLACK,
    COLOURS,
    GREY,
    VERMILLION,
    check_top,
    new_axes,
    rows_with_names,
    tidy,
    title_and_legend,
    write,
)
from kernelweave.regularizers.block_norm import partition

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

    check_top(top)
    estimator = find_estimator(model)
    kernels = rank_kernels(estimator)
    bars, rest = weight_bars(kernels, top)
    colours, by_group = _group_colours(groups, estimator.kernel_names_)
    shown = [colours[kernel.place] for kernel in kernels[:top]]
    names, texts = [shorten(bar.name) for bar in bars], [f"{bar.right:.3f}" for bar in bars]
    if rest is not None:
        bars, shown, spread = [*bars, rest], [*shown, GREY], kernels[0].std is not None
        names.append(f"{rest.name} kernels {'in this range' if spread else 'together'}")
        texts.append(f"{rest.left:.3f} to {rest.right:.3f}" if spread else f"{rest.right:.3f}")
    if ax is None:
        ax = new_axes(6.4, max(1.6, 0.9 + 0.27 * len(names)))
    handles: list[Any] = [Patch(color=colour, label=name) for name, colour in by_group.items()]
    handles += _draw_bars(ax, bars, shown, texts)
    n_classes = len(kernels[0].by_class) if kernels else 1
    if n_classes > 1:
        for row, kernel in enumerate(kernels[:top]):
            dots = ax.plot(kernel.by_class, [row] * n_classes, "o", color=VERMILLION, markersize=4)
            dots[0].set_label("one class")
        handles.append(dots[0])
    title = f"{len(kernels)} of {len(estimator.kernel_names_)} kernels kept"
    title_and_legend(ax, title, handles, right=True)
    rows_with_names(ax, names)
    ax.margins(x=0.14)
    if any(bar.low < 0 for bar in bars):
        ax.axvline(0.0, color=GREY, lw=0.8, zorder=0.5)
    else:
        ax.set_xlim(left=0)
    ax.set_xlabel("weight")
    tidy(ax)
    return ax


def _draw_bars(ax: Axes, bars: list[Bar], colours: list[str], texts: list[str]) -> list[Any]:
    """Draw bars with their numbers and error bars; returns what a legend explains."""
    left = [bar.left for bar in bars]
    widths = [bar.right - bar.left for bar in bars]
    drawn = ax.barh(np.arange(len(bars)), widths, left=left, color=colours, height=0.72)
    for row, (bar, shape, text) in enumerate(zip(bars, drawn, texts, strict=True)):
        if bar.doubtful:
            shape.set_alpha(_PALE)
        # On the side that the bar points to.
        up = bar.right >= 0
        end = (bar.high if up else bar.low, row)
        write(ax, text, end, (4 if up else -4, 0), ha="left" if up else "right")
    known = [(bar.right, row, bar.reach) for row, bar in enumerate(bars) if bar.reach is not None]
    if not known:
        return []
    weights, places, reach = zip(*known, strict=True)
    how: Any = {"fmt": "none", "ecolor": BLACK, "elinewidth": 1.1, "label": "2 standard deviations"}
    return [ax.errorbar(weights, places, xerr=reach, **how)]


def _group_colours(groups: Any, names: list[str]) -> tuple[list[str], dict[str, str]]:
    """The colour of every kernel, and that of every group; no groups: one colour."""
    if groups is None:
        return [COLOURS[0]] * len(names), {}
    parts = partition(groups, len(names), names)
    own = [COLOURS[g % len(COLOURS)] for g in range(len(parts.names))]
    return [own[label] for label in parts.labels], dict(zip(parts.names, own, strict=True))
