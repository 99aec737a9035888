"""Held-out samples of a classifier: numbers, curves, calibration, confusion."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelweave.report.html.curves import Curve, calibration_figure, rank_figures
from kernelweave.report.html.heldout import HeldOut, Part, number_block
from kernelweave.report.html.intervals import area_under_roc, bootstrap, resamples, wilson
from kernelweave.report.html.svg import SERIES
from kernelweave.report.html.words import count, listed, number, percent, plural, shorten

__all__ = ["class_part", "label_part"]

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

# Classes of a confusion matrix that is still readable, and rows of the lists in its place.
_MATRIX = 15
_LISTED = 15
_LABEL = 40


def class_part(estimator: Any, held: HeldOut) -> Part:
    """What the held-out samples say of a classifier."""
    truth, predicted = np.asarray(held.y), np.asarray(estimator.predict(held.X))
    classes, right = estimator.classes_, predicted == truth
    labels, counts = np.unique(truth, return_counts=True)
    drawn = resamples(held.n)
    accuracy = float(right.mean())
    ends = wilson(int(right.sum()), held.n)
    numbers = [number_block("Accuracy", accuracy, ends, "share that is right", percent)]
    if len(labels) > 1:
        own = np.array([truth == label for label in labels], dtype=float)
        value = float(np.mean(own @ right / own.sum(axis=1)))
        ends_balanced = bootstrap(lambda w: np.mean((w * right) @ own.T / (w @ own.T), 1), drawn)
        small = "mean recall of the classes"
        numbers.append(number_block("Balanced accuracy", value, ends_balanced, small, percent))
    scores = np.asarray(estimator.decision_function(held.X), dtype=float)
    curves, notes = _curves(truth, classes, scores)
    if curves:
        numbers.append(_area(curves, drawn, len(classes)))
    figures = rank_figures(curves[:SERIES]) if curves else []
    if len(curves) > SERIES:
        notes.append(f"The curves are those of the {SERIES} commonest of {len(curves)} classes.")
    strange = np.setdiff1d(labels, classes)
    if len(strange):
        n = int(np.isin(truth, strange).sum())
        notes.append(
            f"{plural(n, 'sample is', 'samples are')} of a class that the model was not trained on "
            f"({listed([str(label) for label in strange])}) and so always wrong."
        )
    figure, why_not = _calibration(estimator, held, truth)
    if figure is not None:
        figures.append(figure)
    else:
        notes.append(why_not)
    blocks = [
        {"kind": "numbers", "numbers": numbers},
        *_confusion(truth, predicted, np.union1d(classes, labels)),
        {"kind": "figures", "figures": figures},
        {"kind": "notes", "notes": notes},
    ]
    guess = f"; guessing the commonest class gives {percent(float(counts.max()) / held.n)}"
    were = "was" if held.n == 1 else "were"
    return Part(
        f"On {plural(held.n, 'held-out sample')} {percent(accuracy)} {were} right"
        f"{guess if len(labels) > 1 else ''}.",
        {
            "head": "Held-out accuracy",
            "text": percent(accuracy),
            "small": f"95 % interval {percent(ends[0])} to {percent(ends[1])}",
        },
        blocks,
    )


def _curves(
    truth: NDArray[Any], classes: NDArray[Any], scores: Floats
) -> tuple[list[Curve], list[str]]:
    """One curve for two classes, else one for each class against the rest, the commonest first."""
    columns = scores[:, None] if scores.ndim == 1 else scores
    kinds = classes[1:] if len(classes) == 2 else classes
    curves: list[Curve] = []
    missing = []
    for label, own in zip(kinds, columns.T, strict=True):
        positive = truth == label
        if 0 < positive.sum() < len(truth):
            curves.append((f"class {shorten(label, _LABEL)}", positive, own))
        else:
            missing.append(str(label))
    present = np.unique(truth)
    if len(present) == 1:
        only = (
            f"All {count(len(truth))} held-out samples are"
            if len(truth) > 1
            else "The only held-out sample is"
        )
        return [], [
            f"{only} of class {present[0]}: ROC, precision and recall need samples of other "
            "classes as well."
        ]
    notes = []
    if missing:
        notes.append(f"No curve for {listed(missing)}: no held-out sample is of that class.")
    return sorted(curves, key=lambda curve: -int(curve[1].sum())), notes


def _area(curves: list[Curve], drawn: Floats, n_classes: int) -> dict[str, str]:
    def mean_area(weights: Floats) -> Floats:
        return np.mean([area_under_roc(own, scores, weights) for _, own, scores in curves], axis=0)

    value = float(mean_area(np.ones((1, drawn.shape[1])))[0])
    small = "of a random pair, how often the order is right"
    if n_classes > 2:
        small = f"mean over {plural(len(curves), 'class', 'classes')}, each against the rest"
    return number_block("Area under ROC", value, bootstrap(mean_area, drawn), small, number)


def _calibration(
    estimator: Any, held: HeldOut, truth: NDArray[Any]
) -> tuple[dict[str, Any] | None, str]:
    """The figure, or why there is none."""
    if not hasattr(estimator, "predict_proba"):
        loss = getattr(estimator, "loss", None)
        why = f" with loss={loss!r}" if isinstance(loss, str) else ""
        return None, (
            f"No calibration: {type(estimator).__name__}{why} gives decision values, not "
            "probabilities. loss='logistic' (MKLClassifier), BayesianMKLClassifier, or "
            "CalibratedClassifierCV around the model would."
        )
    proba = np.asarray(estimator.predict_proba(held.X), dtype=float)
    classes = estimator.classes_
    if len(classes) == 2:
        label = shorten(classes[1], _LABEL)
        return calibration_figure(proba[:, 1], truth == classes[1], f"class {label}"), ""
    best = proba.argmax(axis=1)
    return calibration_figure(proba.max(axis=1), classes[best] == truth, "predicted class"), ""


def _confusion(
    truth: NDArray[Any], predicted: NDArray[Any], labels: NDArray[Any]
) -> list[dict[str, Any]]:
    """Counts of true against predicted classes; of very many classes the commonest mistakes."""
    place = {label: i for i, label in enumerate(labels.tolist())}
    table = np.zeros((len(labels), len(labels)), dtype=int)
    rows = [place[label] for label in truth.tolist()]
    np.add.at(table, (rows, [place[label] for label in predicted.tolist()]), 1)
    names = [shorten(label, _LABEL) for label in labels]
    sums = table.sum(axis=1)
    if len(labels) > _MATRIX:
        return _mistakes(table, names)
    cells = []
    for i, name in enumerate(names):
        total = int(sums[i])
        recall = "no samples"
        if total:
            low, high = wilson(int(table[i, i]), total)
            recall = f"{percent(table[i, i] / total)} ({percent(low)} to {percent(high)})"
        own = [
            {
                "count": int(n),
                "depth": round(float(n) / total, 3) if total else 0,
                "right": i == j,
                "tip": f"{plural(int(n), 'sample')} of class {name}, called {names[j]}",
            }
            for j, n in enumerate(table[i])
        ]
        cells.append({"name": name, "cells": own, "total": total, "recall": recall})
    return [{"kind": "confusion", "names": names, "rows": cells}]


def _mistakes(table: NDArray[np.int64], names: list[str]) -> list[dict[str, Any]]:
    sums, hits = table.sum(axis=1), table.diagonal()
    wrong = table - np.diag(hits)
    order = np.argsort(-wrong.ravel(), kind="stable")[:_LISTED]
    pairs = [np.unravel_index(place, table.shape) for place in order]
    often = [[names[i], names[j], int(wrong[i, j])] for i, j in pairs if wrong[i, j]]
    seen = np.flatnonzero(sums)
    worst = seen[np.argsort(hits[seen] / sums[seen], kind="stable")][:_LISTED]
    recalls = [[names[i], int(sums[i]), percent(hits[i] / sums[i])] for i in worst]
    return [
        {
            "kind": "table",
            "title": f"The commonest mistakes, of {len(names)} classes",
            "heads": ["true", "predicted", "samples"],
            "rows": often,
            "numeric": [2],
        },
        {
            "kind": "table",
            "title": "Classes found least often",
            "heads": ["class", "samples", "recall"],
            "rows": recalls,
            "numeric": [1, 2],
        },
    ]


def label_part(estimator: Any, held: HeldOut) -> Part:
    """What the held-out samples say of a classifier with several labels a sample."""
    truth = np.asarray(held.y)
    predicted = np.asarray(estimator.predict(held.X))
    scores = np.asarray(estimator.decision_function(held.X), dtype=float).reshape(held.n, -1)
    right = predicted == truth
    every = right.all(axis=1)
    curves: list[Curve] = []
    rows = []
    for t in range(truth.shape[1]):
        positive = truth[:, t] == 1
        area = "not defined"
        if 0 < positive.sum() < held.n:
            curves.append((f"label {t}", positive, scores[:, t]))
            one = np.ones((1, held.n))
            area = number(float(area_under_roc(positive, scores[:, t], one)[0]))
        low, high = wilson(int(right[:, t].sum()), held.n)
        interval = f"{percent(low)} to {percent(high)}"
        share = percent(float(right[:, t].mean()))
        rows.append([f"label {t}", int(positive.sum()), share, interval, area])
    each, ends = (
        float(right.mean()),
        bootstrap(lambda w: w @ right.mean(axis=1) / w.sum(axis=1), resamples(held.n)),
    )
    together = float(every.mean())
    numbers = [
        number_block("Labels right", each, ends, "mean over labels", percent),
        number_block(
            "All labels right", together, wilson(int(every.sum()), held.n), "of a sample", percent
        ),
    ]
    blocks: list[dict[str, Any]] = [
        {"kind": "numbers", "numbers": numbers},
        {
            "kind": "table",
            "title": "Label by label",
            "heads": ["label", "samples that have it", "right", "95 % interval", "area under ROC"],
            "rows": rows,
            "numeric": [1, 2, 3, 4],
        },
        {"kind": "figures", "figures": rank_figures(curves[:SERIES]) if curves else []},
    ]
    sentence = f"On {plural(held.n, 'held-out sample')} {percent(each)} of the labels were right."
    head = {"head": "Held-out labels right", "text": percent(each), "small": "mean over labels"}
    return Part(sentence, head, blocks)
