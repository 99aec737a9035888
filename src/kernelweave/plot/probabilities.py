"""Figures of what a Bayesian classifier says of new samples, and where it is not sure."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import Any

import numpy as np

from kernelweave.arrays import Array, Flags, Index
from kernelweave.errors import InvalidInputError
from kernelweave.inspect.uncertainty import Forecast, check_sure, forecast
from kernelweave.inspect.words import shorten
from kernelweave.plot.style import (
    BLACK,
    COLOURS,
    GREY,
    Axes,
    check_top,
    new_axes,
    rows_with_names,
    tidy,
    title_and_legend,
    write,
)

_ZONE = "#FBF0D9"
# Free places between two classes, and most names written, so that neighbours do not overlap.
_GAP = 3
_NAMED = 24


def plot_probabilities(
    model: Any,
    X: Any,
    y: Any = None,
    ax: Axes | None = None,
    *,
    sure: float = 0.8,
    target: Any = None,
    names: Sequence[Any] | None = None,
) -> Axes:
    """Draw the predicted probability of every sample, how far it may move, and who is in doubt.

    With two classes it is the probability of the second, the samples from the least to the most
    likely. With more it is that of the predicted class, one block for each class.

    Parameters
    ----------
    model : BayesianMKLClassifier, or a pipeline or search that ends in one
        Fitted.
    X : array, frame or sequence
        Samples, as for `predict`.
    y : array-like of shape (n,), optional
        Their true classes: they give the colours, and wrong predictions get a ring. Without them
        the predicted class gives the colour.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure (not known to pyplot) when left out.
    sure : float, default=0.8
        Probability of the predicted class from which it is sure. Below is the zone of doubt; the
        samples in it are named.
    target : class label, or number of a column of y, optional
        This class against all others. For several labels at once (2-D y) it is needed.
    names : sequence, optional
        What to call the samples; by default the index of a frame, else the numbers of the rows.

    Returns
    -------
    matplotlib.axes.Axes
        A dot is the probability of `predict_proba`. The line through it reaches as far as the
        parameters leave open: from two of their standard deviations below to two above, the noise
        of the model kept. See :func:`doubtful` for the table.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from kernelweave import BayesianMKLClassifier
    >>> from kernelweave.report import plot_probabilities
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = BayesianMKLClassifier().fit(X[:200], y[:200])
    >>> plot_probabilities(model, X[200:260], y[200:260]).get_ylabel()
    'probability of 1'
    """
    from matplotlib.patches import Patch

    sure = check_sure(sure)
    seen = forecast(model, X, target=target, names=names)
    truth = _codes(seen, y, target)
    ax = ax or new_axes(7.6, 4.0)
    two = len(seen.classes) == 2
    ax.axhspan(1.0 - sure if two else 0.0, sure, color=_ZONE, lw=0, zorder=0)
    for edge in {sure, 1.0 - sure if two else sure}:
        ax.axhline(edge, color=GREY, lw=0.8, ls=":", zorder=0.5)
    shown = seen.proba[:, 1] if two else seen.certainty
    # From the least to the most likely: all of them, or those of each predicted class.
    block = np.zeros(len(shown), int) if two else np.unique(seen.predicted, return_inverse=True)[1]
    order = np.lexsort((shown, block))
    place = np.empty(len(shown))
    place[order] = np.arange(len(shown)) + _GAP * block[order]
    _draw_samples(ax, seen, place, shown, truth)
    _write_names(ax, seen, place, shown, sure)
    if two:
        ax.set_xticks([])
        ax.set_xlabel(f"{len(shown)} samples, from the least to the most likely")
        ax.set_ylabel(f"probability of {seen.classes[1]}")
    else:
        counts = np.bincount(block)
        found = seen.classes[np.unique(seen.predicted)]
        texts = [f"{c}\n{n}" for c, n in zip(found, counts, strict=True)]
        ax.set_xticks(np.bincount(block, place) / counts, texts)
        ax.tick_params(axis="x", length=0)
        ax.set_xlabel("predicted class, and number of samples")
        ax.set_ylabel("probability of the predicted class")
    ax.set_xlim(-1.5, place.max() + 1.5)
    # Names hang below the lowest sample.
    ax.set_ylim(-0.03 if two else max(0.0, seen.low.min() - 0.25), 1.03)
    handles = [*ax.get_legend_handles_labels()[0], Patch(color=_ZONE, label="zone of doubt")]
    title_and_legend(ax, _title(seen, truth, seen.certainty >= sure), handles)
    tidy(ax)
    return ax


def plot_doubts(
    model: Any,
    X: Any,
    y: Any = None,
    ax: Axes | None = None,
    *,
    sure: float = 0.8,
    top: int = 15,
    target: Any = None,
    names: Sequence[Any] | None = None,
) -> Axes:
    """Draw what each sample in doubt may be, the most doubtful on top.

    Parameters
    ----------
    model : BayesianMKLClassifier, or a pipeline or search that ends in one
        Fitted.
    X : array, frame or sequence
        Samples, as for `predict`.
    y : array-like of shape (n,), optional
        Their true classes: each becomes a dot beside its bar.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure (not known to pyplot) when left out.
    sure : float, default=0.8
        Probability of the predicted class from which it is sure.
    top : int, default=15
        How many samples to show.
    target : class label, or number of a column of y, optional
        This class against all others. For several labels at once (2-D y) it is needed.
    names : sequence, optional
        What to call the samples; by default the index of a frame, else the numbers of the rows.

    Returns
    -------
    matplotlib.axes.Axes
        A bar for each sample, divided as the probabilities are.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from kernelweave import BayesianMKLClassifier
    >>> from kernelweave.report import plot_doubts
    >>> X, y = load_iris(return_X_y=True)
    >>> model = BayesianMKLClassifier().fit(X[::2], y[::2])
    >>> plot_doubts(model, X[1::2], y[1::2]).get_xlabel()
    'probability'
    """
    check_top(top)
    sure = check_sure(sure)
    seen = forecast(model, X, target=target, names=names)
    truth = _codes(seen, y, target)
    doubted = seen.doubted(sure)
    rows = doubted[:top]
    ax = ax or new_axes(6.4, max(1.8, 1.3 + 0.27 * len(rows)))
    height = np.arange(len(rows))
    left = np.zeros(len(rows))
    for c, name in enumerate(seen.classes):
        part = seen.proba[rows, c]
        colour = COLOURS[c % len(COLOURS)]
        ax.barh(height, part, left=left, height=0.72, color=colour, edgecolor="w", label=str(name))
        left = left + part
    if truth is not None:
        own = [COLOURS[c % len(COLOURS)] for c in truth[rows]]
        ax.scatter(np.full(len(rows), 1.035), height, c=own, s=34, clip_on=False)
        if len(rows):
            ax.text(1.035, -0.72, "true", ha="center", va="bottom", fontsize=8, color=BLACK)
    rows_with_names(ax, [shorten(label, 30) for label in seen.labels[rows]])
    ax.set_xlim(0.0, 1.0)
    ax.set_xlabel("probability")
    most = f", the {top} most doubtful" if len(doubted) > top else ""
    title = f"{len(doubted)} of {len(seen.labels)} samples in doubt{most}"
    title_and_legend(ax, title, ax.get_legend_handles_labels()[0])
    tidy(ax)
    return ax


def _codes(seen: Forecast, y: Any, target: Any) -> Index | None:
    """Numbers of the true classes, or None if they are not known."""
    if y is None:
        return None
    given = np.asarray(y)
    table = given.ndim == 2 and isinstance(target, Integral) and target < given.shape[1]
    if not (given.ndim == 1 or table) or len(given) != len(seen.labels):
        raise InvalidInputError(
            f"y must have one entry for each of the {len(seen.labels)} samples; got shape "
            f"{given.shape}."
        )
    if target is not None:
        own = given[:, target] > 0 if table else given == target
        return own.astype(np.intp)
    strange = given[~np.isin(given, seen.classes)].tolist()
    if strange:
        shown = ", ".join(repr(c) for c in seen.classes.tolist())
        raise InvalidInputError(
            f"y must hold classes that the model knows ({shown}); got {strange[0]!r}."
        )
    return np.searchsorted(seen.classes, given)


def _title(seen: Forecast, truth: Index | None, is_sure: Flags) -> str:
    parts = []
    for name, rows in (("sure", is_sure), ("in doubt", ~is_sure)):
        right = ""
        if truth is not None and rows.any():
            right = f" ({100 * np.mean(truth[rows] == seen.predicted[rows]):.0f} % right)"
        parts.append(f"{rows.sum()} {name}{right}")
    return ", ".join(parts)


def _draw_samples(
    ax: Axes, seen: Forecast, place: Array, shown: Array, truth: Index | None
) -> None:
    wrong = np.zeros(len(shown), dtype=bool) if truth is None else truth != seen.predicted
    groups = seen.predicted if truth is None else truth
    styles = [(str(c), COLOURS[k % len(COLOURS)]) for k, c in enumerate(seen.classes)]
    if len(seen.classes) > len(COLOURS):
        # Too many to tell apart: only right and wrong have colours.
        groups, styles = wrong.astype(np.intp), [("right", COLOURS[0]), ("wrong", COLOURS[1])]
        styles = styles[: 1 if truth is None else 2]
    for k, (name, colour) in enumerate(styles):
        own = groups == k
        ax.vlines(place[own], seen.low[own], seen.high[own], color=colour, lw=2.2, alpha=0.35)
        label = name if truth is not None or len(styles) > 1 else None
        ax.scatter(place[own], shown[own], s=20, color=colour, zorder=3, label=label)
    if wrong.any():
        ring: Any = {"facecolors": "none", "edgecolors": BLACK, "linewidths": 1.1, "zorder": 4}
        ax.scatter(place[wrong], shown[wrong], s=66, label="predicted wrongly", **ring)


def _write_names(ax: Axes, seen: Forecast, place: Array, shown: Array, sure: float) -> None:
    """Name the doubtful samples, the most doubtful first, where there is room for it."""
    inches = ax.get_window_extent().width / ax.figure.dpi
    # Before the layout is known axes are reported smaller than they will be.
    room = 0.085 * (place.max() + 3.0) / inches
    taken: dict[bool, list[float]] = {False: [], True: []}
    for i in seen.doubted(sure):
        # On the side where the other samples are not.
        above = bool(len(seen.classes) == 2 and shown[i] < 0.5)
        near = any(abs(place[i] - other) < room for other in taken[above])
        if near or sum(map(len, taken.values())) == _NAMED:
            continue
        taken[above].append(place[i])
        end = max(seen.high[i], shown[i]) if above else min(seen.low[i], shown[i])
        how = {"rotation": 90, "ha": "center", "va": "bottom" if above else "top", "fontsize": 7}
        write(ax, shorten(seen.labels[i], 12), (place[i], end), (0, 6 if above else -6), **how)
