"""Figures of the learnt weights of a string kernel: by k-mer length and by position."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernelweave.arrays import Array
from kernelweave.errors import InvalidInputError
from kernelweave.inspect.part_weights import PartWeights, length_position_weights
from kernelweave.inspect.stability_result import Stability
from kernelweave.inspect.words import shorten
from kernelweave.plot.style import (
    BLUE,
    GREY,
    VERMILLION,
    Axes,
    new_axes,
    position_axis,
    position_map,
    tidy,
)


def plot_length_weights(
    model: Any,
    ax: Axes | None = None,
    *,
    kernel: str | None = None,
    stability: Stability | None = None,
) -> Axes:
    """Draw the learnt weight of each k-mer length as a bar; those of all positions are added up.

    Parameters
    ----------
    model : MKLClassifier, MKLRegressor, MKLOneClass, or a pipeline or search that ends in one
        Fitted, with kernels such as ``WeightedDegree(8).by_length()``. Where every class has
        weights of its own, the bar is their mean and each class is a dot.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure (not known to pyplot) when left out.
    kernel : str, optional
        Text in the names of the kernels meant, if several were taken apart.
    stability : Stability, optional
        What :func:`kernelweave.stability` says of this model: it adds intervals.

    Returns
    -------
    matplotlib.axes.Axes

    Examples
    --------
    >>> from kernelweave import MKLClassifier
    >>> from kernelweave.kernels import WeightedDegree
    >>> from kernelweave.report import plot_length_weights
    >>> X, y = ["GACA", "CAGT", "GTCC", "CTGT"], [1, 1, 0, 0]
    >>> model = MKLClassifier(WeightedDegree(3).by_length()).fit(X, y)
    >>> plot_length_weights(model).get_xlabel()
    'k-mer length'
    """
    parts = length_position_weights(model, kernel=kernel, stability=stability)
    if len(parts.lengths) < 2:
        raise InvalidInputError(
            f"kernel '{parts.name}' was not taken apart by length; fit kernel.by_length(), or "
            f"draw plot_position_weights."
        )
    ax = ax or new_axes(max(3.6, 1.4 + 0.36 * len(parts.lengths)), 3.0)
    _draw_bars(ax, np.arange(len(parts.lengths) + 1) - 0.5, parts, axis=1, share=0.72)
    _length_axis(ax.xaxis, parts, 16)
    return ax


def plot_position_weights(
    model: Any,
    ax: Axes | None = None,
    *,
    kernel: str | None = None,
    stability: Stability | None = None,
    origin: int = 0,
) -> Axes:
    """Draw the learnt weight of each window of positions as a bar over all of it.

    Those of all k-mer lengths are added up.

    Parameters
    ----------
    model : MKLClassifier, MKLRegressor, MKLOneClass, or a pipeline or search that ends in one
        Fitted, with kernels such as ``WeightedDegree(8).by_position()``. Where every class has
        weights of its own, the bar is their mean and each class is a line.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure (not known to pyplot) when left out.
    kernel : str, optional
        Text in the names of the kernels meant, if several were taken apart.
    stability : Stability, optional
        What :func:`kernelweave.stability` says of this model: it adds intervals.
    origin : int, default=0
        The position that the axis calls 0, such as that of a splice site.

    Returns
    -------
    matplotlib.axes.Axes

    Examples
    --------
    >>> from kernelweave import MKLClassifier
    >>> from kernelweave.kernels import WeightedDegree
    >>> from kernelweave.report import plot_position_weights
    >>> X, y = ["GACA", "CAGT", "GTCC", "CTGT"], [1, 1, 0, 0]
    >>> model = MKLClassifier(WeightedDegree(1).by_position()).fit(X, y)
    >>> plot_position_weights(model).get_xlabel()
    'position'
    """
    parts = length_position_weights(model, kernel=kernel, stability=stability)
    edges = _edges(parts, origin)
    ax = ax or new_axes(7.2, 2.8)
    _draw_bars(ax, edges, parts, axis=0)
    position_axis(ax, edges[0], edges[-1])
    return ax


def plot_length_position_weights(
    model: Any, ax: Axes | None = None, *, kernel: str | None = None, origin: int = 0
) -> Axes:
    """Draw the learnt weights of all k-mer lengths at all positions as a heat map.

    Parameters
    ----------
    model : MKLClassifier, MKLRegressor, MKLOneClass, or a pipeline or search that ends in one
        Fitted, with kernels such as ``WeightedDegree(8).by_length().by_position(5)``. Where every
        class has weights of its own, their mean is shown.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure (not known to pyplot) when left out.
    kernel : str, optional
        Text in the names of the kernels meant, if several were taken apart.
    origin : int, default=0
        The position that the axis calls 0.

    Returns
    -------
    matplotlib.axes.Axes

    Examples
    --------
    >>> from kernelweave import MKLClassifier
    >>> from kernelweave.kernels import WeightedDegree
    >>> from kernelweave.report import plot_length_position_weights
    >>> X, y = ["GACA", "CAGT", "GTCC", "CTGT"], [1, 1, 0, 0]
    >>> model = MKLClassifier(WeightedDegree(2).by_length().by_position()).fit(X, y)
    >>> plot_length_position_weights(model).get_ylabel()
    'k-mer length'
    """
    parts = length_position_weights(model, kernel=kernel)
    edges, rows = _edges(parts, origin), len(parts.lengths)
    ax = ax or new_axes(7.2, max(1.8, 1.1 + 0.22 * rows))
    signed = bool(parts.weights.min() < 0)
    position_map(ax, edges, parts.weights, "weight", 3.0, signed=signed)
    _length_axis(ax.yaxis, parts, 12)
    ax.set_title(shorten(parts.name, 70), fontsize=11)
    return ax


def _length_axis(axis: Any, parts: PartWeights, most: int) -> None:
    """Name the lengths along an axis, so many of them at most."""
    texts = [str(a) if a == b else f"{a}-{b}" for a, b in parts.lengths]
    step = -(-len(texts) // most)
    axis.set_ticks(np.arange(len(texts))[::step], texts[::step])
    axis.set_tick_params(length=0)
    axis.set_label_text("k-mer length")


def _edges(parts: PartWeights, origin: int) -> Array:
    """Where windows meet: half a position before the first k-mer of each, as the axis counts."""
    if parts.windows is None:
        raise InvalidInputError(
            f"kernel '{parts.name}' was not taken apart by position; fit kernel.by_position(), or "
            f"draw plot_length_weights."
        )
    return np.append(parts.windows[:, 0], parts.windows[-1, 1]) - 0.5 - origin


def _draw_bars(ax: Axes, edges: Any, parts: PartWeights, axis: int, share: float = 1.0) -> None:
    """Bars of the weights summed over an axis of the table, with classes and intervals."""
    middle, width = 0.5 * (edges[:-1] + edges[1:]), share * np.diff(edges)
    # Bars that touch have no edges of their own: those of many narrow ones would hide them.
    ax.bar(middle, parts.weights.sum(axis=axis), width=width, color=BLUE, linewidth=0)
    if parts.stability is not None:
        level = f"{100 * parts.stability.level:g} % of replicates"
        ax.vlines(middle, *parts.interval(axis), color=VERMILLION, lw=1.2, zorder=3, label=level)
    elif len(parts.by_class) > 1:
        drawn: Any = None
        for row in parts.by_class.sum(axis=1 + axis):
            if share < 1.0:
                (drawn,) = ax.plot(middle, row, "o", color=VERMILLION, markersize=4)
            else:
                drawn = ax.stairs(row, edges, color=VERMILLION, lw=0.9)
        drawn.set_label("one class")
    if ax.get_legend_handles_labels()[0]:
        ax.legend(frameon=False, fontsize=8)
    if ax.dataLim.y0 < 0:
        ax.axhline(0.0, color=GREY, lw=0.8, zorder=0.5)
    else:
        ax.set_ylim(bottom=0)
    ax.set_ylabel("weight")
    ax.set_title(shorten(parts.name, 60), fontsize=11)
    tidy(ax)
