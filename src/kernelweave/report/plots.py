"""Figures of a fitted model: matplotlib axes in and out, without pyplot (so without a screen)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from kernelweave.errors import InvalidInputError
from kernelweave.report.learnt import find_estimator, is_bayesian, rank_kernels, split_fits
from kernelweave.report.weight_bars import Bar, group_colours, weight_bars

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["fit_figure", "plot_convergence", "plot_weights"]

# Okabe and Ito's palette: the colours stay apart for every kind of colour vision.
BLUE, LIGHT_BLUE, VERMILLION = "#0072B2", "#9BCBEB", "#D55E00"
GREY, BLACK = "#999999", "#222222"
# For classes, groups and lines that need more than two.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C6D1F")
_PALE = 0.4


def _new_axes(width: float, height: float) -> Axes:
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained").subplots()


def _tidy(ax: Axes) -> None:
    ax.spines[["top", "right"]].set_visible(False)
    ax.set_axisbelow(True)


def _title_and_legend(ax: Axes, title: str, handles: list[Any], right: bool = False) -> None:
    """Title, and between it and the axes a legend, where nothing is in its way."""
    columns = 6
    rows = -(-len(handles) // columns)
    ax.set_title(title, fontsize=11, pad=8 + 16 * rows if rows else None)
    if not handles:
        return
    ax.legend(
        handles=handles,
        loc="lower right" if right else "lower center",
        bbox_to_anchor=(1.0 if right else 0.5, 1.0),
        ncols=columns,
        frameon=False,
        fontsize=8,
        borderaxespad=0.3,
        columnspacing=1.4,
        handletextpad=0.5,
    )


def _shorten(name: str, limit: int = 44) -> str:
    if len(name) <= limit:
        return name
    keep = (limit - 1) // 2
    return f"{name[:keep]}…{name[-keep:]}"


def plot_weights(model: Any, ax: Axes | None = None, top: int = 20, *, groups: Any = None) -> Axes:
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
    >>> from kernelweave.report.plots import plot_weights
    >>> X, y = load_iris(return_X_y=True)
    >>> model = MKLClassifier([Linear(), RBF(width=1.0)]).fit(X, y)
    >>> plot_weights(model).get_xlabel()
    'weight'
    """
    from matplotlib.patches import Patch

    if top < 1:
        raise InvalidInputError(f"top must be at least 1; got {top!r}.")
    estimator = find_estimator(model)
    kernels = rank_kernels(estimator)
    shown, rest = kernels[:top], kernels[top:]
    names = [_shorten(kernel.name) for kernel in shown]
    if rest:
        together = "together" if rest[0].std is None else "in this range"
        names.append(f"{len(rest)} more kernels {together}")
    if ax is None:
        ax = _new_axes(6.4, max(1.6, 0.9 + 0.27 * len(names)))
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
    _title_and_legend(ax, title, handles, right=True)
    ax.set_yticks(np.arange(len(names)), names)
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.margins(x=0.14)
    if any(bar.low < 0 for bar in bars):
        ax.axvline(0.0, color=GREY, lw=0.8, zorder=0.5)
    else:
        ax.set_xlim(left=0)
    ax.set_xlabel("weight")
    ax.tick_params(axis="y", length=0)
    _tidy(ax)
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


def plot_convergence(model: Any, ax: Axes | None = None) -> Axes:
    r"""Draw the relative duality gap :math:`(P - D) / \max(1, |P|)` against time.

    For Bayesian models it is the lower bound on the log evidence.

    Parameters
    ----------
    model : MKLClassifier, MKLRegressor, BayesianMKLClassifier, BayesianMKLRegressor, ...
        Fitted; or a pipeline or search that ends in one.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure (not known to pyplot) when left out.

    Returns
    -------
    matplotlib.axes.Axes
        Dots are the gaps of the single iterations, the line is the smallest so far, on a
        logarithmic axis; the dashed line is the tolerance asked for. A lower bound rises on a
        linear axis. Where every class has weights of its own, each has its own line.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from kernelweave import MKLClassifier
    >>> from kernelweave.kernels import RBF, Linear
    >>> from kernelweave.report.plots import plot_convergence
    >>> X, y = load_iris(return_X_y=True)
    >>> model = MKLClassifier([Linear(), RBF(width=1.0)]).fit(X, y)
    >>> plot_convergence(model).get_yscale()
    'log'
    """
    estimator = find_estimator(model)
    if ax is None:
        ax = _new_axes(5.2, 3.6)
    if is_bayesian(estimator):
        _draw_bound(ax, estimator)
    else:
        _draw_gap(ax, estimator)
    ax.set_xlim(left=0)
    ax.set_xlabel("seconds of solving")
    ax.set_title(f"{int(np.max(estimator.n_iter_))} iterations", fontsize=11)
    ax.grid(True, axis="y", which="major", color="#e5e5e5", lw=0.8)
    _tidy(ax)
    return ax


def _draw_gap(ax: Axes, estimator: Any) -> None:
    for records in split_fits(estimator.history_):
        seconds = np.array([record.seconds for record in records], dtype=float)
        # An infinite gap has no place on a logarithmic axis; nor has zero, or rounding below it.
        gaps = np.maximum([record.gap for record in records], np.finfo(float).eps)
        known = np.isfinite(gaps)
        seconds, gaps = seconds[known], gaps[known]
        ax.plot(seconds, gaps, "o", color=LIGHT_BLUE, markersize=4, zorder=3)
        # A fit keeps its best point, so this is the gap it would return if it stopped here.
        best = np.minimum.accumulate(gaps)
        ax.plot(seconds, best, color=BLUE, lw=1.8, drawstyle="steps-post")
    ax.set_yscale("log")
    tolerance = getattr(estimator, "tol", None)
    if tolerance:
        ax.axhline(tolerance, color=VERMILLION, ls="--", lw=1.2)
        ax.annotate(
            f"tolerance {tolerance:g}",
            # On the left: the curve meets the line on the right.
            xy=(0.0, tolerance),
            xycoords=("axes fraction", "data"),
            xytext=(4, 3),
            textcoords="offset points",
            va="bottom",
            fontsize=8,
            color=VERMILLION,
        )
    kind = getattr(estimator, "gap_kind_", "duality")
    ax.set_ylabel(f"relative {'duality gap' if kind == 'duality' else 'projected gradient'}")


def _draw_bound(ax: Axes, estimator: Any) -> None:
    for records in split_fits(estimator.history_):
        seconds = [record.seconds for record in records]
        bounds = [record.lower_bound for record in records]
        ax.plot(seconds, bounds, color=BLUE, lw=1.8, marker="o", markersize=5, markevery=[-1])
        ax.annotate(
            f"{bounds[-1]:.6g}",
            (seconds[-1], bounds[-1]),
            xytext=(0, -6),
            textcoords="offset points",
            ha="right",
            va="top",
            fontsize=8,
            color=BLACK,
        )
    ax.set_ylabel("lower bound on the log evidence")


def fit_figure(model: Any, top: int = 20) -> Figure:
    """Draw the weights and the convergence of a fitted model side by side.

    Parameters
    ----------
    model : MKLClassifier, MKLRegressor, or a pipeline or search that ends in one
        Fitted.
    top : int, default=20
        How many kernels to show.

    Returns
    -------
    matplotlib.figure.Figure
        Save it with ``figure.savefig("fit.png")``; a notebook shows it by itself.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from kernelweave import MKLClassifier
    >>> from kernelweave.kernels import RBF, Linear
    >>> from kernelweave.report.plots import fit_figure
    >>> X, y = load_iris(return_X_y=True)
    >>> model = MKLClassifier([Linear(), RBF(width=1.0)]).fit(X, y)
    >>> len(fit_figure(model).axes)
    2
    """
    from matplotlib.figure import Figure

    estimator = find_estimator(model)
    bars = min(top + 1, len(rank_kernels(estimator)))
    figure = Figure(figsize=(11.0, max(3.6, 1.0 + 0.27 * bars)), layout="constrained")
    left, right = figure.subplots(1, 2)
    plot_weights(estimator, ax=left, top=top)
    plot_convergence(estimator, ax=right)
    return figure
