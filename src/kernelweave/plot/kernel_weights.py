"""Kernel weights as bars."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernelweave.inspect.learnt import find_estimator, lighter, rank_kernels
from kernelweave.inspect.words import shorten
from kernelweave.plot.style import (
    BLACK,
    COLOURS,
    GREY,
    VERMILLION,
    Axes,
    check_top,
    new_axes,
    rows_with_names,
    tidy,
    title_and_legend,
    write,
)
from kernelweave.regularizers.groups import partition

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
    check_top(top)
    estimator = find_estimator(model)
    kernels = rank_kernels(estimator)
    shown, rest = kernels[:top], kernels[top:]
    names = [shorten(kernel.name) for kernel in shown]
    colours, handles = _group_colours(groups, estimator.kernel_names_)
    # Where bars start and end, all that is drawn of each, and its number.
    bars = [
        (0.0, kernel.weight, kernel.ends, colours[kernel.place], f"{kernel.weight:.3f}")
        for kernel in shown
    ]
    if rest:
        left, right = lighter(rest)
        spread = rest[0].std is not None
        names.append(f"{len(rest)} more kernels {'in this range' if spread else 'together'}")
        text = f"{left:.3f} to {right:.3f}" if spread else f"{right:.3f}"
        bars.append((left, right, (left, right), GREY, text))
    ax = ax or new_axes(6.4, max(1.6, 0.9 + 0.27 * len(names)))
    drawn = ax.barh(
        np.arange(len(bars)),
        [right - left for left, right, *_ in bars],
        left=[left for left, *_ in bars],
        color=[colour for *_, colour, _ in bars],
        height=0.72,
    )
    for row, (_, right, ends, _, text) in enumerate(bars):
        # On the side that the bar points to.
        up = right >= 0
        write(ax, text, (ends[up], row), (4 if up else -4, 0), ha="left" if up else "right")
    rows = np.arange(len(shown))
    if shown and shown[0].std is not None:
        how: Any = {"fmt": "none", "ecolor": BLACK, "elinewidth": 1.1}
        values, reach = zip(*((kernel.weight, kernel.reach) for kernel in shown), strict=True)
        handles.append(ax.errorbar(values, rows, xerr=reach, label="2 standard deviations", **how))
        for kernel, bar in zip(shown, drawn, strict=False):
            bar.set_alpha(_PALE if kernel.doubtful else None)
    if shown and len(shown[0].by_class) > 1:
        for row, kernel in enumerate(shown):
            own = kernel.by_class
            dots = ax.plot(own, [row] * len(own), "o", color=VERMILLION, markersize=4)
        dots[0].set_label("one class")
        handles += dots
    title = f"{len(kernels)} of {len(estimator.kernel_names_)} kernels kept"
    title_and_legend(ax, title, handles, right=True)
    rows_with_names(ax, names)
    ax.margins(x=0.14)
    if any(low < 0 for _, _, (low, _), *_ in bars):
        ax.axvline(0.0, color=GREY, lw=0.8, zorder=0.5)
    else:
        ax.set_xlim(left=0)
    ax.set_xlabel("weight")
    tidy(ax)
    return ax


def _group_colours(groups: Any, names: list[str]) -> tuple[list[str], list[Any]]:
    """The colour of every kernel, and what a legend explains; no groups: one colour."""
    from matplotlib.patches import Patch

    if groups is None:
        return [COLOURS[0]] * len(names), []
    parts = partition(groups, len(names), names)
    own = [COLOURS[g % len(COLOURS)] for g in range(len(parts.names))]
    handles = [Patch(color=c, label=name) for name, c in zip(parts.names, own, strict=True)]
    return [own[label] for label in parts.labels], handles
