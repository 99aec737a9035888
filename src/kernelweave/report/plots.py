"""Figures of a fitted model: matplotlib axes in and out, without pyplot (so without a screen)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kernelweave.errors import InvalidInputError
from kernelweave.report.learnt import KernelWeight, find_estimator, rank_kernels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["fit_figure", "plot_convergence", "plot_weights"]

# Okabe and Ito's palette: the colours stay apart for every kind of colour vision.
BLUE, LIGHT_BLUE, VERMILLION = "#0072B2", "#9BCBEB", "#D55E00"
GREY, BLACK = "#999999", "#222222"


def _new_axes(width: float, height: float) -> Axes:
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained").subplots()


def _tidy(ax: Axes) -> None:
    ax.spines[["top", "right"]].set_visible(False)
    ax.set_axisbelow(True)


def _shorten(name: str, limit: int = 44) -> str:
    if len(name) <= limit:
        return name
    keep = (limit - 1) // 2
    return f"{name[:keep]}…{name[-keep:]}"


def _weight_bars(kernels: list[KernelWeight], top: int) -> tuple[list[str], list[float], list[str]]:
    shown, rest = kernels[:top], kernels[top:]
    names = [_shorten(kernel.name) for kernel in shown]
    weights = [kernel.weight for kernel in shown]
    colours = [BLUE] * len(shown)
    if rest:
        names.append(f"{len(rest)} more kernels together")
        weights.append(sum(kernel.weight for kernel in rest))
        colours.append(GREY)
    return names, weights, colours


def plot_weights(model: Any, ax: Axes | None = None, top: int = 20) -> Axes:
    """Draw the learnt kernel weights as bars, the heaviest on top.

    Parameters
    ----------
    model : MKLClassifier, MKLRegressor, or a pipeline or search that ends in one
        Fitted. Where every class has weights of its own, the bar is their mean and each class
        is a dot.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure (not known to pyplot) when left out.
    top : int, default=20
        How many kernels to show; the others become one grey bar.

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
    if top < 1:
        raise InvalidInputError(f"top must be at least 1; got {top!r}.")
    estimator = find_estimator(model)
    kernels = rank_kernels(estimator)
    names, weights, colours = _weight_bars(kernels, top)
    if ax is None:
        ax = _new_axes(6.4, max(1.6, 0.9 + 0.27 * len(names)))
    rows = np.arange(len(names))
    bars = ax.barh(rows, weights, color=colours, height=0.72)
    ax.bar_label(bars, labels=[f"{w:.3f}" for w in weights], padding=3, fontsize=8, color=BLACK)
    n_classes = len(kernels[0].by_class) if kernels else 1
    if n_classes > 1:
        for row, kernel in enumerate(kernels[:top]):
            ax.plot(
                kernel.by_class,
                [row] * n_classes,
                "o",
                color=VERMILLION,
                markersize=4,
                label="one class" if row == 0 else None,
            )
        ax.legend(frameon=False, fontsize=8, loc="lower right")
    ax.set_yticks(rows, names)
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.margins(x=0.14)
    ax.set_xlim(left=0)
    ax.set_xlabel("weight")
    ax.set_title(f"{len(kernels)} of {len(estimator.kernel_names_)} kernels kept", fontsize=11)
    ax.tick_params(axis="y", length=0)
    _tidy(ax)
    return ax


def _fits(history: Sequence[Any]) -> list[list[Any]]:
    """Split a history into its fits: one, or one per class when each has its own weights."""
    fits: list[list[Any]] = []
    for record in history:
        if not fits or record.iteration <= fits[-1][-1].iteration:
            fits.append([])
        fits[-1].append(record)
    return fits


def plot_convergence(model: Any, ax: Axes | None = None) -> Axes:
    r"""Draw the relative duality gap :math:`(P - D) / \max(1, |P|)` against time.

    Parameters
    ----------
    model : MKLClassifier, MKLRegressor, or a pipeline or search that ends in one
        Fitted.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure (not known to pyplot) when left out.

    Returns
    -------
    matplotlib.axes.Axes
        Dots are the gaps of the single iterations, the line is the smallest so far, on a
        logarithmic axis; the dashed line is the tolerance asked for. Where every class has
        weights of its own, each has its own line.

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
    for records in _fits(estimator.history_):
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
    ax.set_xlim(left=0)
    ax.set_xlabel("seconds of solving")
    kind = getattr(estimator, "gap_kind_", "duality")
    ax.set_ylabel(f"relative {'duality gap' if kind == 'duality' else 'projected gradient'}")
    ax.set_title(f"{int(np.max(estimator.n_iter_))} iterations", fontsize=11)
    ax.grid(True, axis="y", which="major", color="#e5e5e5", lw=0.8)
    _tidy(ax)
    return ax


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
