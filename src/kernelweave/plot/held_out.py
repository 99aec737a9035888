"""Held-out samples: ROC, precision and recall, calibration, residuals, histograms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.calibration import CalibrationDisplay
from sklearn.metrics import (
    ConfusionMatrixDisplay,
    PrecisionRecallDisplay,
    PredictionErrorDisplay,
    RocCurveDisplay,
    precision_recall_curve,
    roc_curve,
)

from kernelweave.arrays import Array, Flags
from kernelweave.inspect.words import shorten
from kernelweave.plot.style import (
    BLACK,
    BLUE,
    COLOURS,
    GREY,
    LIGHT_BLUE,
    RULE,
    VERMILLION,
    heat_map,
    tidy,
    write,
)

# (label, which samples are it, scores): one curve.
Curve = tuple[str, Flags, Array]


def roc(curves: Sequence[Curve], ax: Any) -> Any:
    """Draw ROC curves, and the line of guessing."""
    for _, positive, scores in curves:
        false, true, _ = roc_curve(positive, scores)
        RocCurveDisplay(fpr=false, tpr=true).plot(ax=ax)
    ax.plot([0, 1], [0, 1], "--", color=GREY, lw=1.1)
    _name_curves(ax, curves, "lower right")
    return _finish(ax, "false positive rate", "true positive rate")


def precision_recall(curves: Sequence[Curve], ax: Any) -> Any:
    """Draw precision against recall; of a single curve with the line of guessing."""
    for _, positive, scores in curves:
        exact, found, _ = precision_recall_curve(positive, scores)
        PrecisionRecallDisplay(exact, found).plot(ax=ax)
    if len(curves) == 1:
        ax.axhline(curves[0][1].mean(), ls="--", color=GREY, lw=1.1)
    _name_curves(ax, curves, "lower left")
    return _finish(ax, "recall", "precision")


def _name_curves(ax: Any, curves: Sequence[Curve], corner: str) -> None:
    lines = ax.lines[: len(curves)]
    for line, (label, *_), colour in zip(lines, curves, COLOURS, strict=False):
        line.set(color=colour, lw=1.8, label=shorten(label))
    if ax.get_legend():
        ax.get_legend().remove()
    if len(curves) > 1:
        ax.legend(handles=lines, frameon=False, fontsize=8, loc=corner)


def _finish(ax: Any, across: str, up: str) -> Any:
    ax.set_xlabel(across)
    ax.set_ylabel(up)
    ax.grid(True, axis="y", color=RULE, lw=0.8)
    tidy(ax)
    return ax


def calibration(said: Array, came: Array, ends: Array, ax: Any) -> Any:
    """Draw how often predicted probabilities came true, with the ends of their intervals."""
    CalibrationDisplay(came, said, said).plot(ax=ax, color=BLUE, ls="", marker="o")
    ax.vlines(said, *ends, color=BLUE, lw=1.4)
    ax.lines[0].set(color=GREY, ls="--", lw=1.1)
    ax.get_legend().remove()
    ax.set_aspect("equal")
    return _finish(ax, "predicted probability", "how often it came true")


def confusion(counts: NDArray[np.int64], names: Sequence[str], ax: Any) -> Any:
    """Draw how often each true class (rows) was called which; mistakes have another colour."""
    drawn = ConfusionMatrixDisplay(counts, display_labels=names).plot(
        ax=ax, colorbar=False, values_format="d", text_kw={"color": BLACK, "fontsize": 9}
    )
    # In place of an image: squares, whose colours a page may choose.
    drawn.im_.remove()
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    signs = 2.0 * np.eye(len(counts)) - 1.0
    edges = np.arange(len(counts) + 1) - 0.5
    heat_map(ax, edges, signs * shares, most=1.6)
    ax.set(xlabel="predicted", ylabel="true")
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)
    if max(map(len, names)) > 6:
        ax.set_xticks(ax.get_xticks(), names, rotation=45, ha="right", rotation_mode="anchor")
    return ax


def predictions(truth: Array, predicted: Array, ax: Any) -> Any:
    """Draw true against predicted values, and the line on which they are the same."""
    return _cloud(truth, predicted, ax, "actual_vs_predicted", "true")


def residuals(truth: Array, predicted: Array, ax: Any, std: Array | None = None) -> Any:
    """Draw true minus predicted values; the band is two standard deviations to each side."""
    if std is not None:
        order = np.argsort(predicted, kind="stable")
        reach = 2 * std[order]
        ax.fill_between(predicted[order], -reach, reach, color=LIGHT_BLUE, alpha=0.4, lw=0)
    return _cloud(truth, predicted, ax, "residual_vs_predicted", "true − predicted")


def _cloud(truth: Array, predicted: Array, ax: Any, kind: Any, up: str) -> Any:
    from matplotlib.ticker import MaxNLocator

    PredictionErrorDisplay(y_true=truth, y_pred=predicted).plot(
        ax=ax,
        kind=kind,
        scatter_kwargs={"color": BLUE, "alpha": 0.7, "s": 14, "linewidths": 0},
        line_kwargs={"color": GREY, "lw": 1.1},
    )
    # Round numbers, in place of the ends of the values.
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(MaxNLocator(6))
    return _finish(ax, "predicted", up)


def histogram(
    groups: Sequence[tuple[str, Array]],
    edges: Array,
    label: str,
    ax: Any,
    mark: tuple[float, str] | None = None,
) -> Any:
    """Draw how many samples have which values, groups one above the other; `mark` is a line."""
    names, values = zip(*groups, strict=True)
    colours = list(COLOURS[: len(groups)])
    ax.hist(values, edges, stacked=True, color=colours, label=names, rwidth=0.94)
    if mark is not None:
        place, text = mark
        ax.axvline(place, color=VERMILLION, ls="--", lw=1.1)
        # On the side where there is more room.
        left = place > edges.mean()
        how = {"ha": "right" if left else "left", "va": "top", "xycoords": ax.get_xaxis_transform()}
        write(ax, text, (place, 1.0), (-4 if left else 4, 0), color=VERMILLION, **how)
    if len(groups) > 1:
        ax.legend(frameon=False, fontsize=8)
    return _finish(ax, label, "samples")
