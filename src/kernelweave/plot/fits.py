"""A fitted model: its kernel weights as bars, and its way to the tolerance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kernelweave.inspect.certificate import measure_of
from kernelweave.inspect.ranking import (
    Ranking,
    find_estimator,
    is_bayesian,
    lighter,
    split_fits,
)
from kernelweave.inspect.words import percent, shorten
from kernelweave.plot.style import (
    BLACK,
    BLUE,
    COLOURS,
    GREY,
    RULE,
    VERMILLION,
    Axes,
    bars,
    check_top,
    log_axis,
    new_axes,
    rows_with_names,
    tidy,
    title_and_legend,
    write,
)
from kernelweave.regularizers.block_norm import partition

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PALE = 0.4
# Iterations that are drawn as dots at most.
_MOST_DOTS = 300


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
    found = Ranking.of(estimator)
    colours, handles = _group_colours(groups, estimator.kernel_names_)
    ax = kernel_bars(found, top, ax, colours, handles)
    title_and_legend(ax, f"{len(found.used)} of {found.total} kernels kept", handles, right=True)
    return ax


def kernel_bars(
    found: Ranking,
    top: int,
    ax: Axes | None = None,
    colours: Sequence[str] = (),
    handles: list[Any] | None = None,
    above: bool = False,
) -> Axes:
    """Draw a bar for each of the heaviest kernels; adds to what a legend has to explain.

    Names are beside the bars, with one more for the other kernels, or `above` them, where a narrow
    figure has room for long ones.
    """
    handles = [] if handles is None else handles
    shown, rest = found.used[:top], found.used[top:]
    names = [shorten(found.estimator.kernel_names_[k], 56 if above else 44) for k in shown]
    colours = [colours[k] if colours else BLUE for k in shown]
    weights, by_class = found.weights[shown], found.by_class[:, shown]
    reach = np.zeros(len(shown)) if found.std is None else 2.0 * found.std[shown]
    # The ends of all that is drawn of each.
    drawn = np.vstack([0.0 * weights, by_class, weights - reach, weights + reach])
    lows, highs = list(drawn.min(axis=0)), list(drawn.max(axis=0))
    texts = [f"{weight:.3f}" for weight in weights]
    lefts, rights = [0.0] * len(shown), list(weights)
    if len(rest) and not above:
        left, right = lighter(found.weights[rest], found.std is not None)
        names.append(
            f"{len(rest)} more kernels {'together' if found.std is None else 'in this range'}"
        )
        texts.append(f"{right:.3f}" if found.std is None else f"{left:.3f} to {right:.3f}")
        for ends, end in ((lefts, left), (lows, left), (rights, right), (highs, right)):
            ends.append(end)
        colours.append(GREY)
    ax = ax or new_axes(6.4, max(1.6, 0.9 + 0.27 * len(names)))
    sizes = np.subtract(rights, lefts)
    height = 0.44 if above else 0.72
    rows = np.arange(len(names))
    patches = ax.barh(rows, sizes, left=lefts, color=colours, height=height)
    for row, (right, low, high, text) in enumerate(zip(rights, lows, highs, texts, strict=True)):
        # On the side that the bar points to.
        end, by, side = (high, 4, "left") if right >= 0 else (low, -4, "right")
        write(ax, text, (end, row), (by, 0), ha=side)
    own = rows[: len(shown)]
    if len(shown) and found.std is not None:
        how: Any = {"fmt": "none", "ecolor": BLACK, "elinewidth": 1.1}
        handles.append(ax.errorbar(weights, own, xerr=reach, label="2 standard deviations", **how))
        for patch, doubtful in zip(patches, np.abs(weights) <= reach, strict=False):
            patch.set_alpha(_PALE if doubtful else None)
    if len(shown) and len(by_class) > 1:
        rows = np.broadcast_to(own, by_class.shape)
        dots = ax.plot(by_class, rows, "o", color=VERMILLION, markersize=4, label="one class")
        handles.append(dots[0])
    rows_with_names(ax, [""] * len(names) if above else names)
    if above:
        ax.set_ylim(top=-0.9)
        for row, name in enumerate(names):
            write(ax, name, (0.0, row - 0.48), (2, 0), xycoords=("axes fraction", "data"))
    ax.margins(x=0.14)
    if min(lows, default=0.0) < 0:
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
        return [], []
    parts = partition(groups, len(names), names)
    own = [COLOURS[g % len(COLOURS)] for g in range(len(parts.names))]
    handles = [Patch(color=c, label=name) for name, c in zip(parts.names, own, strict=True)]
    return [own[label] for label in parts.labels], handles


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
    ax = ax or new_axes(5.2, 3.6)
    if not is_bayesian(estimator):
        _draw_gap(ax, estimator)
    else:
        for records in split_fits(estimator.history_):
            times = [record.seconds for record in records]
            bounds = [record.lower_bound for record in records]
            ax.plot(times, bounds, color=BLUE, lw=1.8, marker="o", markersize=5, markevery=[-1])
            write(ax, f"{bounds[-1]:.6g}", (times[-1], bounds[-1]), (0, -6), ha="right", va="top")
        ax.set_ylabel("lower bound on the log evidence")
    ax.set_title(f"{int(np.max(estimator.n_iter_))} iterations", fontsize=11)
    return _finish(ax)


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
    >>> from kernelweave.plot import fit_figure
    >>> X, y = load_iris(return_X_y=True)
    >>> model = MKLClassifier([Linear(), RBF(width=1.0)]).fit(X, y)
    >>> len(fit_figure(model).axes)
    2
    """
    from matplotlib.figure import Figure

    estimator = find_estimator(model)
    rows = min(top + 1, len(Ranking.of(estimator).used))
    figure = Figure(figsize=(11.0, max(3.6, 1.0 + 0.27 * rows)), layout="constrained")
    left, right = figure.subplots(1, 2)
    weights(estimator, ax=left, top=top)
    convergence(estimator, ax=right)
    return figure


def kernels_in_use(model: Any, ax: Axes | None = None) -> Axes:
    """Draw how many kernels had a weight, against time."""
    ax = ax or new_axes(5.2, 3.6)
    for i, records in enumerate(split_fits(find_estimator(model).history_)):
        seconds = [record.seconds for record in records]
        used = [record.active_kernels for record in records]
        colour = COLOURS[i % len(COLOURS)]
        ax.plot(seconds, used, color=colour, lw=1.8, drawstyle="steps-post")
    ax.set_ylim(bottom=0)
    ax.locator_params(axis="y", integer=True)
    ax.set_ylabel("kernels in use")
    return _finish(ax)


def _finish(ax: Axes) -> Axes:
    ax.set_xlim(left=0)
    ax.locator_params(axis="x", nbins=6)
    ax.set_xlabel("seconds of solving")
    ax.grid(True, axis="y", which="major", color=RULE, lw=0.8)
    tidy(ax)
    return ax


def _draw_gap(ax: Axes, estimator: Any) -> None:
    for i, records in enumerate(split_fits(estimator.history_)):
        colour = COLOURS[i % len(COLOURS)]
        seconds = np.array([record.seconds for record in records], dtype=float)
        # An infinite gap has no place on a logarithmic axis; nor has zero, or rounding below it.
        gaps = np.maximum([record.gap for record in records], np.finfo(float).eps)
        known = np.isfinite(gaps)
        seconds, gaps = seconds[known], gaps[known]
        # More dots than this would only lie on one another, and each has its place in a file.
        some = np.unique(np.linspace(0, len(gaps) - 1, min(len(gaps), _MOST_DOTS)).astype(int))
        ax.plot(seconds[some], gaps[some], "o", color=colour, alpha=0.4, markersize=4, zorder=3)
        # A fit keeps its best point, so this is the gap it would return if it stopped here.
        # A projected gradient is the size of a step, and need not fall.
        falls = getattr(estimator, "gap_kind_", "duality") == "duality"
        best = np.minimum.accumulate(gaps) if falls else gaps
        ax.plot(seconds, best, color=colour, lw=1.8, drawstyle="steps-post")
    log_axis(ax, "y")
    tolerance = getattr(estimator, "tol", None)
    if tolerance:
        ax.axhline(tolerance, color=VERMILLION, ls="--", lw=1.2)
        # On the left: the curve meets the line on the right.
        how = {"xycoords": ("axes fraction", "data"), "va": "bottom", "color": VERMILLION}
        write(ax, f"tolerance {tolerance:g}", (0.0, tolerance), (4, 3), **how)
    ax.set_ylabel(f"relative {measure_of(estimator)}")


def share_bars(shares: Sequence[tuple[str, float]], ax: Axes) -> Axes:
    """Draw a bar for each share of one, the first on top."""
    names, sizes = zip(*shares, strict=True)
    bars(ax, [shorten(name) for name in names], sizes, [percent(share) for share in sizes])
    ax.margins(x=0.16)
    ax.xaxis.set_major_formatter(lambda value, _: percent(value, 0))
    ax.set_xlabel("share of all weights")
    return ax
