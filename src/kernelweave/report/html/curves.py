"""ROC and precision-recall curves, and calibration."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import average_precision_score, precision_recall_curve, roc_curve

from kernelweave.report.html.intervals import area_under_roc, wilson
from kernelweave.report.html.svg import Axis, Chart, fewer
from kernelweave.report.html.words import count, number, percent

__all__ = ["Curve", "calibration_figure", "rank_figures"]

Floats = NDArray[np.float64]

# (label, which samples are it, scores): one curve.
Curve = tuple[str, NDArray[np.bool_], Floats]

_UNIT = (0.0, 0.25, 0.5, 0.75, 1.0)


def _unit(label: str) -> Axis:
    return Axis(-0.01, 1.01, label, ticks=_UNIT, texts=("0", "0.25", "0.5", "0.75", "1"))


def rank_figures(curves: list[Curve]) -> list[dict[str, Any]]:
    """ROC and precision-recall, one line for each curve; every curve has both kinds of samples."""
    roc = Chart(_unit("false positive rate"), _unit("true positive rate"), height=300)
    pr = Chart(_unit("recall"), _unit("precision"), height=300)
    roc.diagonal()
    areas, precisions, rows = [], [], []
    for i, (label, positive, scores) in enumerate(curves):
        false, true, _ = roc_curve(positive, scores)
        keep = fewer(len(false))
        roc.line(false[keep], true[keep], f"s{i}")
        exact, found, _ = precision_recall_curve(positive, scores)
        keep = fewer(len(found))
        # From the threshold that takes all samples to the one that takes none; the step to
        # precision 1 at recall 0 is a convention and no sample.
        pr.line(found[keep], exact[keep], f"s{i}")
        areas.append(float(area_under_roc(positive, scores, np.ones((1, len(scores))))[0]))
        precisions.append(float(average_precision_score(positive, scores)))
        share = float(positive.mean())
        if len(curves) == 1:
            pr.rule(y=share, kind="faint")
        rows.append([label, count(int(positive.sum())), number(areas[-1]), number(precisions[-1])])
    legend = [] if len(curves) == 1 else [label for label, _, _ in curves]
    of = f" of {curves[0][0]}" if len(curves) == 1 else ""
    table = {"heads": ["class", "samples", "area under ROC", "average precision"], "rows": rows}
    return [
        {
            "title": f"ROC{of}",
            "svg": roc.render(_told("ROC curve, area under it", curves, areas)),
            "caption": "Right among those that are it, against wrong among those that are not, "
            "for every threshold. The dashed line is guessing.",
            "legend": legend,
            "table": table,
        },
        {
            "title": f"Precision and recall{of}",
            "svg": pr.render(
                _told("Precision-recall curve, average precision", curves, precisions)
            ),
            "caption": "Of those called it, how many are it, against how many of them were found."
            + (" The dashed line is guessing." if len(curves) == 1 else ""),
            "legend": legend,
            "table": None,
        },
    ]


def _told(what: str, curves: list[Curve], values: list[float]) -> str:
    said = ", ".join(
        f"{label} {number(v)}" for (label, _, _), v in zip(curves, values, strict=True)
    )
    return f"{what}: {said}."


def calibration_figure(probability: Floats, hit: NDArray[np.bool_], what: str) -> dict[str, Any]:
    """Predicted probabilities against how often they came true, in ten bins."""
    edges = np.linspace(0.0, 1.0, 11)
    which = np.clip(np.digitize(probability, edges[1:-1]), 0, 9)
    chart = Chart(_unit("predicted probability"), _unit("how often it came true"), height=300)
    chart.diagonal()
    rows, xs, ys, low, high, tips = [], [], [], [], [], []
    for b in range(10):
        own = which == b
        n = int(own.sum())
        if not n:
            continue
        hits = int(hit[own].sum())
        ends = wilson(hits, n)
        said, came = float(probability[own].mean()), hits / n
        xs.append(said)
        ys.append(came)
        low.append(ends[0])
        high.append(ends[1])
        tips.append(f"{count(n)} samples: said {percent(said)}, came true {percent(came)}")
        rows.append(
            [
                f"{edges[b]:.1f} to {edges[b + 1]:.1f}",
                count(n),
                percent(said),
                percent(came),
                f"{percent(ends[0])} to {percent(ends[1])}",
            ]
        )
    chart.whiskers(xs, low, high, "s0")
    chart.dots(xs, ys, "s0", tips=tips, radius=4)
    brier = float(np.mean((probability - hit) ** 2))
    return {
        "title": f"Calibration: {what}",
        "svg": chart.render(
            f"Predicted probability of {what} against how often it came true, in "
            f"{len(rows)} bins; Brier score {number(brier)}."
        ),
        "caption": f"On the dashed line, probabilities are what they say. Upright lines are 95 % "
        f"intervals. Brier score {number(brier)} (0 is best).",
        "table": {
            "heads": ["predicted", "samples", "mean", "came true", "95 % interval"],
            "rows": rows,
        },
    }
