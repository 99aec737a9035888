"""A fit on its way to the tolerance: the gap, or the lower bound, against time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from kernelweave.describe.learnt import find_estimator, is_bayesian, split_fits
from kernelweave.plot.style import BLACK, BLUE, LIGHT_BLUE, VERMILLION, new_axes, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["convergence"]


def convergence(model: Any, ax: Axes | None = None) -> Axes:
    r"""Draw the relative duality gap :math:`(P - D) / \max(|P|, |D|)` against time.

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
    >>> from kernelweave import plot
    >>> X, y = load_iris(return_X_y=True)
    >>> model = MKLClassifier([Linear(), RBF(width=1.0)]).fit(X, y)
    >>> plot.convergence(model).get_yscale()
    'log'
    """
    estimator = find_estimator(model)
    if ax is None:
        ax = new_axes(5.2, 3.6)
    if is_bayesian(estimator):
        _draw_bound(ax, estimator)
    else:
        _draw_gap(ax, estimator)
    ax.set_xlim(left=0)
    ax.set_xlabel("seconds of solving")
    ax.set_title(f"{int(np.max(estimator.n_iter_))} iterations", fontsize=11)
    ax.grid(True, axis="y", which="major", color="#e5e5e5", lw=0.8)
    tidy(ax)
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
