"""What held-out samples say of classifiers, regressors and outlier models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import average_precision_score, confusion_matrix

from kernelweave.inspect.certificate import Badge
from kernelweave.inspect.heldout import (
    HeldOut,
    area_under_roc,
    bootstrap,
    resamples,
    task_of,
    wilson,
)
from kernelweave.inspect.learnt import is_bayesian
from kernelweave.inspect.words import count, listed, number, percent, plural, shorten
from kernelweave.plot.held_out import (
    Curve,
    calibration,
    histogram,
    precision_recall,
    predictions,
    residuals,
    roc,
)
from kernelweave.plot.style import COLOURS
from kernelweave.report.html.blocks import (
    figure,
    figures,
    histogram_rows,
    panel,
    section,
    some_of,
    table,
)

__all__ = ["Part", "held_out_part", "held_out_section"]

Floats = NDArray[np.float64]
Interval = tuple[float, float] | None

# Classes of a confusion matrix that is still readable, and rows of the lists in its place.
_MATRIX = 15
_LISTED = 15
_LABEL = 40
# Points of a cloud; more of them hide each other. Outputs that have figures.
_POINTS = 400
_OUTPUTS = 3
_SQUARE = 4.2


class Part(NamedTuple):
    """A sentence and a badge for the top of the page, and blocks for a section."""

    sentence: str
    badge: Badge
    blocks: list[dict[str, Any]]


def held_out_part(estimator: Any, held: HeldOut | None) -> Part | None:
    """Compare predictions with the truth; None if it is not known."""
    task = task_of(estimator)
    if held is None or (held.y is None and task != "outliers"):
        return None
    parts = {"classes": _classes, "labels": _labels, "numbers": _numbers, "outliers": _outliers}
    return parts[task](estimator, held)


def held_out_section(
    estimator: Any, held: HeldOut | None, part: Part | None
) -> dict[str, Any] | None:
    """The section; without the truth it shows what was predicted."""
    if held is None:
        return None
    lead = f"{plural(held.n, 'sample')} that the model has not seen. {held.note}".strip()
    blocks = _predicted(estimator, held) if part is None else part.blocks
    return section("held-out", "On held-out samples", lead, *blocks)


def _predicted(estimator: Any, held: HeldOut) -> list[dict[str, Any]]:
    predicted = np.asarray(estimator.predict(held.X))
    note = _notes(["The truth was not given, so this is what was predicted."])
    if task_of(estimator) == "classes":
        labels, counts = np.unique(predicted, return_counts=True)
        rows = [
            [shorten(a, 60), count(b), percent(b / held.n)]
            for a, b in zip(labels, counts, strict=True)
        ]
        return [table("Predicted classes", ["class", "samples", "share"], rows, [1, 2]), note]
    values = predicted.reshape(held.n, -1)[:, 0].astype(float)
    edges = np.histogram_bin_edges(values, int(np.clip(np.sqrt(held.n) * 1.5, 5, 40)))
    ax = histogram([("samples", values)], edges, "predicted", panel())
    caption = f"From {number(float(values.min()))} to {number(float(values.max()))}."
    told = "Histogram of the predicted values."
    return [figures(figure("Predicted values", ax, told, caption)), note]


def _number(
    head: str, value: float, ends: Interval, small: str, say: Callable[[float], str]
) -> dict[str, str]:
    """One number with its interval, in words."""
    between = "" if ends is None else f"{say(ends[0])} to {say(ends[1])}"
    return {"head": head, "text": say(value), "interval": between, "small": small}


def _badge(found: dict[str, str]) -> Badge:
    small = f"95 % interval {found['interval']}" if found["interval"] else ""
    head = found["head"] if found["head"].isupper() else found["head"].lower()
    return Badge(f"Held-out {head}", found["text"], small)


def _numbers_block(numbers: list[dict[str, str]]) -> dict[str, Any]:
    return {"kind": "numbers", "numbers": numbers}


def _notes(notes: list[str]) -> dict[str, Any]:
    return {"kind": "notes", "notes": notes}


# Classes


def _classes(estimator: Any, held: HeldOut) -> Part:
    truth, predicted = np.asarray(held.y), np.asarray(estimator.predict(held.X))
    classes, right = estimator.classes_, predicted == truth
    labels, counts = np.unique(truth, return_counts=True)
    drawn = resamples(held.n)
    hits = int(right.sum())
    small = "share that is right"
    numbers = [_number("Accuracy", hits / held.n, wilson(hits, held.n), small, percent)]
    badge = _badge(numbers[0])
    if len(labels) > 1:
        own = np.array([truth == label for label in labels], dtype=float)
        value = float(np.mean(own @ right / own.sum(axis=1)))
        ends = bootstrap(lambda w: np.mean((w * right) @ own.T / (w @ own.T), 1), drawn)
        small = "mean recall of the classes"
        numbers.append(_number("Balanced accuracy", value, ends, small, percent))
    scores = np.asarray(estimator.decision_function(held.X), dtype=float)
    curves, notes = _class_curves(truth, classes, scores)
    if curves:
        numbers.append(_area(curves, drawn, len(classes)))
    items = _rank_figures(curves)
    if len(curves) > len(COLOURS):
        notes.append(
            f"The curves are those of the {len(COLOURS)} commonest of {len(curves)} classes."
        )
    strange = np.setdiff1d(labels, classes)
    if len(strange):
        n = int(np.isin(truth, strange).sum())
        notes.append(
            f"{plural(n, 'sample is', 'samples are')} of a class that the model was not trained on "
            f"({listed([str(label) for label in strange])}) and so always wrong."
        )
    if hasattr(estimator, "predict_proba"):
        items.append(_calibration(estimator, held, truth))
    else:
        loss = getattr(estimator, "loss", None)
        why = f" with loss={loss!r}" if isinstance(loss, str) else ""
        notes.append(
            f"No calibration: {type(estimator).__name__}{why} gives decision values, not "
            "probabilities. loss='logistic' (MKLClassifier), BayesianMKLClassifier, or "
            "CalibratedClassifierCV around the model would."
        )
    blocks = [
        _numbers_block(numbers),
        *_confusion(truth, predicted, np.union1d(classes, labels)),
        figures(*items),
        _notes(notes),
    ]
    guess = f"; guessing the commonest class gives {percent(float(counts.max()) / held.n)}"
    sentence = (
        f"On {plural(held.n, 'held-out sample')} {percent(hits / held.n)} "
        f"{'was' if held.n == 1 else 'were'} right{guess if len(labels) > 1 else ''}."
    )
    return Part(sentence, badge, blocks)


def _class_curves(
    truth: NDArray[Any], classes: NDArray[Any], scores: Floats
) -> tuple[list[Curve], list[str]]:
    """One curve for two classes, else one for each class against the rest, the commonest first."""
    columns = scores[:, None] if scores.ndim == 1 else scores
    kinds = classes[1:] if len(classes) == 2 else classes
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
    curves = [
        (f"class {shorten(label, _LABEL)}", truth == label, own)
        for label, own in zip(kinds, columns.T, strict=True)
    ]
    missing = [str(k) for k, (_, own, _) in zip(kinds, curves, strict=True) if not own.any()]
    notes = []
    if missing:
        notes.append(f"No curve for {listed(missing)}: no held-out sample is of that class.")
    curves = [curve for curve in curves if curve[1].any()]
    return sorted(curves, key=lambda curve: -int(curve[1].sum())), notes


def _area(curves: list[Curve], drawn: Floats, n_classes: int) -> dict[str, str]:
    def mean_area(weights: Floats) -> Floats:
        return np.mean([area_under_roc(own, scores, weights) for _, own, scores in curves], axis=0)

    value = float(mean_area(np.ones((1, drawn.shape[1])))[0])
    small = "of a random pair, how often the order is right"
    if n_classes > 2:
        small = f"mean over {plural(len(curves), 'class', 'classes')}, each against the rest"
    return _number("Area under ROC", value, bootstrap(mean_area, drawn), small, number)


def _rank_figures(curves: list[Curve]) -> list[dict[str, Any]]:
    """ROC and precision-recall, one line for each curve; every curve has both kinds of samples."""
    curves = curves[: len(COLOURS)]
    if not curves:
        return []
    rows = []
    for label, positive, scores in curves:
        area = float(area_under_roc(positive, scores, np.ones((1, len(scores))))[0])
        precision = float(average_precision_score(positive, scores))
        rows.append([label, count(int(positive.sum())), number(area), number(precision)])
    of = f" of {curves[0][0]}" if len(curves) == 1 else ""
    guess = " The dashed line is guessing."
    heads = ["class", "samples", "area under ROC", "average precision"]
    areas = ", ".join(f"{row[0]} {row[2]}" for row in rows)
    precisions = ", ".join(f"{row[0]} {row[3]}" for row in rows)
    return [
        figure(
            f"ROC{of}",
            roc(curves, panel(_SQUARE)),
            f"ROC curve, area under it: {areas}.",
            "Right among those that are it, against wrong among those that are not, for every "
            "threshold." + guess,
            {"heads": heads, "rows": rows},
        ),
        figure(
            f"Precision and recall{of}",
            precision_recall(curves, panel(_SQUARE)),
            f"Precision-recall curve, average precision: {precisions}.",
            "Of those called it, how many are it, against how many of them were found."
            + (guess if len(curves) == 1 else ""),
        ),
    ]


def _calibration(estimator: Any, held: HeldOut, truth: NDArray[Any]) -> dict[str, Any]:
    """Predicted probabilities against how often they came true, in ten bins."""
    proba, classes = np.asarray(estimator.predict_proba(held.X), dtype=float), estimator.classes_
    if len(classes) == 2:
        probability, hit = proba[:, 1], truth == classes[1]
        what = f"class {shorten(classes[1], _LABEL)}"
    else:
        probability, hit = proba.max(axis=1), classes[proba.argmax(axis=1)] == truth
        what = "predicted class"
    edges = np.linspace(0.0, 1.0, 11)
    which = np.clip(np.digitize(probability, edges[1:-1]), 0, 9)
    bins = np.unique(which)
    counts = np.bincount(which)[bins]
    said = np.bincount(which, probability)[bins] / counts
    hits = np.bincount(which, hit)[bins]
    ends = np.array([wilson(h, n) for h, n in zip(hits, counts, strict=True)]).T
    rows = [
        [
            f"{edges[b]:.1f} to {edges[b + 1]:.1f}",
            count(counts[i]),
            percent(said[i]),
            percent(hits[i] / counts[i]),
            f"{percent(ends[0, i])} to {percent(ends[1, i])}",
        ]
        for i, b in enumerate(bins)
    ]
    brier = number(float(np.mean((probability - hit) ** 2)))
    return figure(
        f"Calibration: {what}",
        calibration(said, hits / counts, ends, panel(_SQUARE)),
        f"Predicted probability of {what} against how often it came true, in {len(rows)} bins; "
        f"Brier score {brier}.",
        "On the dashed line, probabilities are what they say. Upright lines are 95 % intervals. "
        f"Brier score {brier} (0 is best).",
        {"heads": ["predicted", "samples", "mean", "came true", "95 % interval"], "rows": rows},
    )


def _confusion(
    truth: NDArray[Any], predicted: NDArray[Any], labels: NDArray[Any]
) -> list[dict[str, Any]]:
    """Counts of true against predicted classes; of very many classes the commonest mistakes."""
    place = {label: i for i, label in enumerate(labels.tolist())}
    codes = [[place[label] for label in own.tolist()] for own in (truth, predicted)]
    counts = confusion_matrix(*codes, labels=np.arange(len(labels)))
    names = [shorten(label, _LABEL) for label in labels]
    if len(labels) > _MATRIX:
        return _mistakes(counts, names)
    rows = []
    for i, (name, total) in enumerate(zip(names, counts.sum(axis=1).tolist(), strict=True)):
        recall = "no samples"
        if total:
            low, high = wilson(int(counts[i, i]), total)
            recall = f"{percent(counts[i, i] / total)} ({percent(low)} to {percent(high)})"
        cells = [
            {
                "count": int(n),
                "depth": round(float(n) / max(total, 1), 3),
                "right": i == j,
                "tip": f"{plural(int(n), 'sample')} of class {name}, called {names[j]}",
            }
            for j, n in enumerate(counts[i])
        ]
        rows.append({"name": name, "cells": cells, "total": total, "recall": recall})
    return [{"kind": "confusion", "names": names, "rows": rows}]


def _mistakes(counts: NDArray[np.int64], names: list[str]) -> list[dict[str, Any]]:
    sums, hits = counts.sum(axis=1), counts.diagonal()
    wrong = counts - np.diag(hits)
    order = np.argsort(-wrong.ravel(), kind="stable")[:_LISTED]
    pairs = [np.unravel_index(place, counts.shape) for place in order]
    often = [[names[i], names[j], int(wrong[i, j])] for i, j in pairs if wrong[i, j]]
    seen = np.flatnonzero(sums)
    worst = seen[np.argsort(hits[seen] / sums[seen], kind="stable")][:_LISTED]
    recalls = [[names[i], int(sums[i]), percent(hits[i] / sums[i])] for i in worst]
    title = f"The commonest mistakes, of {len(names)} classes"
    return [
        table(title, ["true", "predicted", "samples"], often, [2]),
        table("Classes found least often", ["class", "samples", "recall"], recalls, [1, 2]),
    ]


# Several labels a sample


def _labels(estimator: Any, held: HeldOut) -> Part:
    truth = np.asarray(held.y)
    right = np.asarray(estimator.predict(held.X)) == truth
    scores = np.asarray(estimator.decision_function(held.X), dtype=float).reshape(held.n, -1)
    curves: list[Curve] = []
    rows = []
    for t in range(truth.shape[1]):
        positive, hits = truth[:, t] == 1, int(right[:, t].sum())
        area = "not defined"
        if 0 < positive.sum() < held.n:
            curves.append((f"label {t}", positive, scores[:, t]))
            area = number(float(area_under_roc(*curves[-1][1:], np.ones((1, held.n)))[0]))
        low, high = wilson(hits, held.n)
        interval = f"{percent(low)} to {percent(high)}"
        rows.append([f"label {t}", int(positive.sum()), percent(hits / held.n), interval, area])
    each, every = float(right.mean()), int(right.all(axis=1).sum())
    ends = bootstrap(lambda w: w @ right.mean(axis=1) / w.sum(axis=1), resamples(held.n))
    together = wilson(every, held.n)
    numbers = [
        _number("Labels right", each, ends, "mean over labels", percent),
        _number("All labels right", every / held.n, together, "of a sample", percent),
    ]
    heads = ["label", "samples that have it", "right", "95 % interval", "area under ROC"]
    blocks = [
        _numbers_block(numbers),
        table("Label by label", heads, rows, [1, 2, 3, 4]),
        figures(*_rank_figures(curves)),
    ]
    sentence = f"On {plural(held.n, 'held-out sample')} {percent(each)} of the labels were right."
    return Part(sentence, _badge(numbers[0]), blocks)


# Numbers


def _numbers(estimator: Any, held: HeldOut) -> Part:
    std = None
    if is_bayesian(estimator):
        predicted, std = (np.asarray(part) for part in estimator.predict(held.X, return_std=True))
        std = std.reshape(held.n, -1)
    else:
        predicted = np.asarray(estimator.predict(held.X), dtype=float)
    truth = np.asarray(held.y, dtype=float).reshape(held.n, -1)
    predicted = predicted.reshape(held.n, -1)
    drawn, outputs = resamples(held.n), truth.shape[1]
    blocks: list[dict[str, Any]] = []
    items: list[dict[str, Any]] = []
    notes: list[str] = []
    for t in range(min(outputs, _OUTPUTS)):
        of = f" of output {t}" if outputs > 1 else ""
        blocks.append(_numbers_block(_errors(truth[:, t], predicted[:, t], drawn, of)))
        own = None if std is None else std[:, t]
        items += _error_figures(truth[:, t], predicted[:, t], own, of)
    if outputs > _OUTPUTS:
        notes.append(f"Shown are the first {_OUTPUTS} of {outputs} outputs.")
    if held.n > _POINTS:
        notes.append(f"Figures show {_POINTS} of {count(held.n)} samples.")
    if np.ptp(truth, axis=0).min() == 0:
        notes.append(
            "All held-out samples have the same target, so there is no variance to explain and R² "
            "is not defined."
        )
    off = np.abs(truth - predicted).mean(axis=0)
    constant = np.abs(truth - truth.mean(axis=0)).mean(axis=0)
    samples = plural(held.n, "held-out sample")
    sentence = (
        f"On {samples} predictions are off by {number(float(off[0]))} on average; predicting the "
        f"mean of them all is off by {number(float(constant[0]))}."
    )
    badge = _badge(blocks[0]["numbers"][0])
    if outputs > 1:
        ratio = number(float(np.mean(off / np.maximum(constant, 1e-300))))
        sentence = (
            f"On {samples} predictions of {outputs} outputs are off by {ratio} times as much as "
            "their means."
        )
        badge = badge._replace(head=f"{badge.head} of output 0")
    return Part(sentence, badge, [*blocks, figures(*items), _notes(notes)])


def _errors(truth: Floats, predicted: Floats, drawn: Floats, of: str) -> list[dict[str, str]]:
    error = truth - predicted

    def explained(w: Floats) -> Floats:
        total = w.sum(axis=1)
        mean = w @ truth / total
        spread = w @ truth**2 - total * mean**2
        # Rounding leaves a little where there is nothing.
        nothing = spread <= 1e-12 * (w @ truth**2)
        return 1.0 - w @ error**2 / np.where(nothing, np.nan, spread)

    def absolute(w: Floats) -> Floats:
        return w @ np.abs(error) / w.sum(axis=1)

    def squared(w: Floats) -> Floats:
        return np.sqrt(w @ error**2 / w.sum(axis=1))

    kinds = [
        ("R²", explained, "share of the variance explained"),
        ("Mean absolute error", absolute, "off by so much on average"),
        ("Root mean squared error", squared, "root of the mean square"),
    ]
    out = []
    for head, measure, small in kinds:
        with np.errstate(divide="ignore", invalid="ignore"):
            value = float(measure(np.ones((1, len(truth))))[0])
        if np.isfinite(value):
            out.append(_number(head, value, bootstrap(measure, drawn), small + of, number))
    return out


def _error_figures(
    truth: Floats, predicted: Floats, std: Floats | None, of: str
) -> list[dict[str, Any]]:
    error = truth - predicted
    varies = np.ptp(truth) and np.ptp(predicted)
    near = f" Correlation {number(float(np.corrcoef(truth, predicted)[0, 1]))}." if varies else ""
    quartiles = [number(float(q)) for q in np.quantile(error, [0.25, 0.5, 0.75])]
    band = "" if std is None else " The band is two predictive standard deviations to each side."
    # Every so many, in the order of the predictions, so that both ends are there.
    keep = np.argsort(predicted, kind="stable")[some_of(len(truth), _POINTS)]
    rows = [
        [number(predicted[i]), number(truth[i]), number(error[i])]
        for i in keep[some_of(len(keep), 12)]
    ]
    shown = (truth[keep], predicted[keep])
    return [
        figure(
            f"Predicted against true{of}",
            predictions(*shown, panel(_SQUARE)),
            f"True against predicted values{of}.{near}",
            f"On the dashed line, predictions are right.{near}",
            {"heads": ["predicted", "true", "true − predicted"], "rows": rows},
        ),
        figure(
            f"Residuals{of}",
            residuals(*shown, panel(_SQUARE), None if std is None else std[keep]),
            f"True minus predicted against predicted values{of}; quartiles {', '.join(quartiles)}.",
            f"Half of them are between {quartiles[0]} and {quartiles[2]}.{band}",
        ),
    ]


# Outliers


def _outliers(estimator: Any, held: HeldOut) -> Part:
    scores = np.asarray(estimator.decision_function(held.X), dtype=float)
    outside = scores < 0
    share = float(outside.mean())
    ends = wilson(int(outside.sum()), held.n)
    numbers = [_number("Outside", share, ends, "share called outliers", percent)]
    badge = _badge(numbers[0])
    items, notes = [_score_figure(scores, held.y)], []
    sentence = f"Of {plural(held.n, 'held-out sample')} {percent(share)} lie outside"
    if held.y is None:
        sentence += f"; nu = {number(float(estimator.nu))} allowed that share in training."
    else:
        odd = np.asarray(held.y) == -1
        found, more = _known_outliers(scores, odd, outside)
        numbers += more
        sentence += f": {found}."
        if 0 < odd.sum() < held.n:
            items += _rank_figures([("outliers", odd, -scores)])
        else:
            kind = "outliers" if odd.all() else "normal"
            notes.append(
                f"All {count(held.n)} held-out samples are {kind}: ROC, precision and recall need "
                "both kinds."
            )
    return Part(sentence, badge, [_numbers_block(numbers), figures(*items), _notes(notes)])


def _known_outliers(scores: Any, odd: Any, outside: Any) -> tuple[str, list[dict[str, str]]]:
    said, numbers = [], []
    kinds = ((odd, "outliers", "Outliers found"), (~odd, "normal samples", "False alarms"))
    for own, kind, head in kinds:
        n = int(own.sum())
        if n:
            hits = int(outside[own].sum())
            said.append(f"{percent(hits / n)} of the {kind}")
            small = f"of {count(n)} {kind}, how many lie outside"
            numbers.append(_number(head, hits / n, wilson(hits, n), small, percent))
    if len(said) == 2:
        value = float(area_under_roc(odd, -scores, np.ones((1, len(odd))))[0])
        ends = bootstrap(lambda w: area_under_roc(odd, -scores, w), resamples(len(odd)))
        small = "an outlier scores below a normal sample so often"
        numbers.append(_number("Area under ROC", value, ends, small, number))
    return " and ".join(said), numbers


def _score_figure(scores: Any, y: Any) -> dict[str, Any]:
    bins = int(np.clip(np.sqrt(len(scores)) * 1.5, 6, 40))
    low, high = min(float(scores.min()), 0.0), max(float(scores.max()), 0.0)
    width = (high - low) / bins or 1.0
    # The boundary is an edge, so that no bar has samples of both sides.
    edges = width * np.arange(np.floor(low / width), max(np.floor(high / width), 0) + 2)
    groups = [("samples", scores)]
    if y is not None:
        odd = np.asarray(y) == -1
        groups = [
            (n, own) for n, own in (("normal", scores[~odd]), ("outliers", scores[odd])) if len(own)
        ]
    ax = histogram(groups, edges, "decision value", panel(), (0.0, "boundary"))
    quartiles = [number(float(q)) for q in np.quantile(scores, [0.25, 0.5, 0.75])]
    heads = ["decision value", *(name for name, _ in groups)]
    return figure(
        "Scores",
        ax,
        f"Histogram of decision values, negative outside; quartiles {', '.join(quartiles)}.",
        "Samples left of the line are called outliers.",
        {"heads": heads, "rows": histogram_rows(groups, edges, number)},
    )
