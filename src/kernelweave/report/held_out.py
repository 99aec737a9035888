"""What held-out samples say of classifiers, regressors and outlier models."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import average_precision_score, confusion_matrix, roc_auc_score

from kernelweave.arrays import Array
from kernelweave.inspect.held_out import (
    HeldOut,
    Statistic,
    area_under_roc,
    estimate,
    resamples,
    share,
    task_of,
    wilson,
)
from kernelweave.inspect.ranking import is_bayesian
from kernelweave.inspect.words import KeyNumber, listed, number, percent, plural, shorten
from kernelweave.plot import held_out as draw
from kernelweave.plot.style import COLOURS, new_axes
from kernelweave.report.blocks import (
    Block,
    figure,
    figures,
    histogram_figure,
    panel,
    some_of,
    table,
)

Curve = draw.Curve

# Classes of a confusion matrix that is still readable, and rows of the lists in its place.
_MATRIX = 15
_LISTED = 15
_LABEL = 40
# Points of a cloud; more of them hide each other. Outputs that have figures.
_POINTS = 400
_OUTPUTS = 3
_SQUARE = 4.2


class Part(NamedTuple):
    """What a comparison with the truth says; the first number is also a badge."""

    sentence: str
    numbers: list[KeyNumber]
    blocks: list[Block]
    notes: list[str]


def held_out_part(estimator: Any, held: HeldOut | None) -> Part | None:
    """Compare predictions with the truth; None if it is not known."""
    task = task_of(estimator)
    if held is None or (held.y is None and task != "outliers"):
        return None
    tasks = {"classes": _classes, "labels": _labels, "numbers": _numbers, "outliers": _outliers}
    return tasks[task](estimator, held)


def numbers_row(numbers: list[KeyNumber]) -> Block:
    """Return a block of numbers side by side."""
    return {"kind": "numbers", "numbers": numbers}


# Classes


def _classes(estimator: Any, held: HeldOut) -> Part:
    truth, predicted = np.asarray(held.y), np.asarray(estimator.predict(held.X))
    classes, right = estimator.classes_, predicted == truth
    labels, counts = np.unique(truth, return_counts=True)
    drawn = resamples(held.n)
    numbers = [share("Accuracy", int(right.sum()), held.n, "share that is right")]
    guess = ""
    if len(labels) > 1:
        guess = f"; guessing the commonest class gives {percent(float(counts.max()) / held.n)}"
        own = np.array([truth == label for label in labels], dtype=float)
        small = "mean recall of the classes"

        def recall(w: Array) -> Array:
            return np.mean((w * right) @ own.T / (w @ own.T), axis=1)

        numbers.append(estimate("Balanced accuracy", recall, drawn, small, percent))
    scores = np.asarray(estimator.decision_function(held.X), dtype=float)
    curves, notes = _class_curves(truth, classes, scores)
    if curves:
        small = "of a random pair, how often the order is right"
        if len(classes) > 2:
            small = f"mean over {plural(len(curves), 'class', 'classes')}, each against the rest"
        numbers.append(estimate("Area under ROC", _mean_area(curves), drawn, small))
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
    sentence = (
        f"On {plural(held.n, 'held-out sample')} {numbers[0].text} "
        f"{'was' if held.n == 1 else 'were'} right{guess}."
    )
    confusion = _confusion(truth, predicted, np.union1d(classes, labels))
    return Part(sentence, numbers, [figures(*confusion, *items)], notes)


def _class_curves(truth: Array, classes: Array, scores: Array) -> tuple[list[Curve], list[str]]:
    """One curve for two classes, else one for each class against the rest, the commonest first."""
    if (truth == truth[0]).all():
        n = len(truth)
        only = f"All {n:,} held-out samples are" if n > 1 else "The only held-out sample is"
        return [], [
            f"{only} of class {truth[0]}: ROC, precision and recall need samples of other "
            "classes as well."
        ]
    columns = scores[:, None] if scores.ndim == 1 else scores
    kinds = classes[1:] if len(classes) == 2 else classes
    curves = [
        (f"class {shorten(label, _LABEL)}", truth == label, own)
        for label, own in zip(kinds, columns.T, strict=True)
    ]
    missing = [str(k) for k, (_, own, _) in zip(kinds, curves, strict=True) if not own.any()]
    why = f"No curve for {listed(missing)}: no held-out sample is of that class."
    curves = [curve for curve in curves if curve[1].any()]
    return sorted(curves, key=lambda curve: -int(curve[1].sum())), [why] if missing else []


def _mean(values: Array) -> Statistic:
    return lambda w: w @ values / w.sum(axis=1)


def _mean_area(curves: list[Curve]) -> Statistic:
    return lambda w: np.mean([area_under_roc(own, s, w) for _, own, s in curves], axis=0)


def _rank_figures(curves: list[Curve]) -> list[Block]:
    """ROC and precision-recall, one line for each curve; every curve has both kinds of samples."""
    curves = curves[: len(COLOURS)]
    if not curves:
        return []
    rows = [
        [
            label,
            f"{positive.sum():,}",
            number(float(roc_auc_score(positive, scores))),
            number(float(average_precision_score(positive, scores))),
        ]
        for label, positive, scores in curves
    ]
    of = f" of {curves[0][0]}" if len(curves) == 1 else ""
    guess = " The dashed line is guessing."
    heads = ["class", "samples", "area under ROC", "average precision"]
    return [
        figure(
            f"ROC{of}",
            draw.roc(curves, panel(_SQUARE)),
            "Right among those that are it, against wrong among those that are not, for every "
            "threshold." + guess,
            {"heads": heads, "rows": rows},
        ),
        figure(
            f"Precision and recall{of}",
            draw.precision_recall(curves, panel(_SQUARE)),
            "Of those called it, how many are it, against how many of them were found."
            + (guess if len(curves) == 1 else ""),
        ),
    ]


def _calibration(estimator: Any, held: HeldOut, truth: Array) -> Block:
    """Predicted probabilities against how often they came true, in ten bins."""
    proba, classes = np.asarray(estimator.predict_proba(held.X), dtype=float), estimator.classes_
    if len(classes) == 2:
        probability, hit = proba[:, 1], truth == classes[1]
        what = f"class {shorten(classes[1], _LABEL)}"
    else:
        probability, hit = proba.max(axis=1), classes[proba.argmax(axis=1)] == truth
        what = "predicted class"
    which = np.clip((10 * probability).astype(int), 0, 9)
    bins, counts = np.unique(which, return_counts=True)
    said = np.bincount(which, probability)[bins] / counts
    hits = np.bincount(which, hit)[bins].astype(int)
    ends = np.array([wilson(h, n) for h, n in zip(hits, counts, strict=True)]).T
    rows = [
        [
            f"{b / 10:.1f} to {(b + 1) / 10:.1f}",
            f"{counts[i]:,}",
            percent(said[i]),
            percent(hits[i] / counts[i]),
            f"{percent(ends[0, i])} to {percent(ends[1, i])}",
        ]
        for i, b in enumerate(bins)
    ]
    brier = number(float(np.mean((probability - hit) ** 2)))
    return figure(
        f"Calibration: {what}",
        draw.calibration(said, hits / counts, ends, panel(_SQUARE)),
        "On the dashed line, probabilities are what they say. Upright lines are 95 % intervals. "
        f"Brier score {brier} (0 is best).",
        {"heads": ["predicted", "samples", "mean", "came true", "95 % interval"], "rows": rows},
    )


def _confusion(truth: Array, predicted: Array, labels: Array) -> list[Block]:
    """Counts of true against predicted classes; of very many classes the commonest mistakes."""
    codes = [np.searchsorted(labels, own) for own in (truth, predicted)]
    counts = confusion_matrix(*codes, labels=np.arange(len(labels)))
    names = [shorten(label, _LABEL) for label in labels]
    if len(labels) > _MATRIX:
        return _mistakes(counts, names)
    rows = []
    for name, hits, total in zip(names, counts.diagonal(), counts.sum(axis=1), strict=True):
        found = share("", hits, total) if total else KeyNumber("", "no samples")
        rows.append([name, int(total), found.text, found.interval])
    side = 1.6 + 0.55 * len(labels)
    ax = new_axes(max(side + 0.4, 5.3), max(side, 3.4))
    return [
        figure(
            "Confusion",
            draw.confusion(counts, [shorten(name, 18) for name in names], ax),
            "Rows are the true classes, columns the predicted ones.",
            {"heads": ["class", "samples", "recall", "95 % interval"], "rows": rows},
            wide=side > 5.3,
        )
    ]


def _mistakes(counts: NDArray[np.int64], names: list[str]) -> list[Block]:
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
        name, positive = f"label {t}", truth[:, t] == 1
        area = "not defined"
        if 0 < positive.sum() < held.n:
            curves.append((name, positive, scores[:, t]))
            area = number(float(roc_auc_score(positive, scores[:, t])))
        own = share(name, int(right[:, t].sum()), held.n, "")
        rows.append([name, int(positive.sum()), own.text, own.interval, area])

    mean, drawn = _mean(right.mean(axis=1)), resamples(held.n)
    every = int(right.all(axis=1).sum())
    numbers = [
        estimate("Labels right", mean, drawn, "mean over labels", percent),
        share("All labels right", every, held.n, "of a sample"),
    ]
    heads = ["label", "samples that have it", "right", "95 % interval", "area under ROC"]
    blocks = [table("Label by label", heads, rows, [1, 2, 3, 4]), figures(*_rank_figures(curves))]
    sentence = f"On {plural(held.n, 'held-out sample')} {numbers[0].text} of the labels were right."
    return Part(sentence, numbers, blocks, [])


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
    numbers: list[list[KeyNumber]] = []
    items: list[Block] = []
    notes: list[str] = []
    for t in range(min(outputs, _OUTPUTS)):
        of = f" of output {t}" if outputs > 1 else ""
        numbers.append(_errors(truth[:, t], predicted[:, t], drawn, of))
        own = None if std is None else std[:, t]
        items += _error_figures(truth[:, t], predicted[:, t], own, of)
    if outputs > _OUTPUTS:
        notes.append(f"Shown are the first {_OUTPUTS} of {outputs} outputs.")
    if held.n > _POINTS:
        notes.append(f"Figures show {_POINTS} of {held.n:,} samples.")
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
    if outputs > 1:
        ratio = number(float(np.mean(off / np.maximum(constant, 1e-300))))
        sentence = (
            f"On {samples} predictions of {outputs} outputs are off by {ratio} times as much as "
            "their means."
        )
    blocks = [*(numbers_row(own) for own in numbers[1:]), figures(*items)]
    return Part(sentence, numbers[0], blocks, notes)


def _errors(truth: Array, predicted: Array, drawn: Array, of: str) -> list[KeyNumber]:
    error = truth - predicted

    squared, absolute = _mean(error**2), _mean(np.abs(error))
    size, shift = _mean(truth**2), _mean(truth)

    def explained(w: Array) -> Array:
        spread = size(w) - shift(w) ** 2
        # Rounding leaves a little where there is nothing.
        return 1.0 - squared(w) / np.where(spread <= 1e-12 * size(w), np.nan, spread)

    def root(w: Array) -> Array:
        return np.sqrt(squared(w))

    numbers = [
        estimate(f"Mean absolute error{of}", absolute, drawn, "off by so much on average"),
        estimate(f"Root mean squared error{of}", root, drawn, "root of the mean square"),
    ]
    if np.isfinite(explained(np.ones((1, len(truth))))):
        small = "share of the variance explained"
        numbers.insert(0, estimate(f"R²{of}", explained, drawn, small))
    return numbers


def _error_figures(truth: Array, predicted: Array, std: Array | None, of: str) -> list[Block]:
    error = truth - predicted
    varies = np.ptp(truth) and np.ptp(predicted)
    near = f" Correlation {number(float(np.corrcoef(truth, predicted)[0, 1]))}." if varies else ""
    low, high = (number(float(q)) for q in np.quantile(error, [0.25, 0.75]))
    band = "" if std is None else " The band is two predictive standard deviations to each side."
    # Every so many, in the order of the predictions, so that both ends are there.
    keep = np.argsort(predicted, kind="stable")[some_of(len(truth), _POINTS)]
    some = keep[some_of(len(keep), 12)]
    rows = [[number(predicted[i]), number(truth[i]), number(error[i])] for i in some]
    shown = (truth[keep], predicted[keep])
    return [
        figure(
            f"Predicted against true{of}",
            draw.predictions(*shown, panel(_SQUARE)),
            f"On the dashed line, predictions are right.{near}",
            {"heads": ["predicted", "true", "true − predicted"], "rows": rows},
        ),
        figure(
            f"Residuals{of}",
            draw.residuals(*shown, panel(_SQUARE), None if std is None else std[keep]),
            f"Half of them are between {low} and {high}.{band}",
        ),
    ]


# Outliers


def _outliers(estimator: Any, held: HeldOut) -> Part:
    scores = np.asarray(estimator.decision_function(held.X), dtype=float)
    outside = scores < 0
    numbers = [share("Outside", int(outside.sum()), held.n, "share called outliers")]
    sentence = f"Of {plural(held.n, 'held-out sample')} {numbers[0].text} lie outside"
    if held.y is None:
        sentence += f"; nu = {number(float(estimator.nu))} allowed that share in training."
        return Part(sentence, numbers, [figures(_score_figure([("samples", scores)]))], [])
    odd = np.asarray(held.y) == -1
    kinds = [("normal", "normal samples", "False alarms", ~odd)]
    kinds.append(("outliers", "outliers", "Outliers found", odd))
    kinds = [kind for kind in kinds if kind[-1].any()]
    said = []
    for _, kind, head, own in reversed(kinds):
        n = int(own.sum())
        small = f"of {n:,} {kind}, how many lie outside"
        numbers.append(share(head, int(outside[own].sum()), n, small))
        said.append(f"{numbers[-1].text} of the {kind}")
    items = [_score_figure([(name, scores[own]) for name, *_, own in kinds])]
    notes = []
    if len(kinds) == 2:
        small = "an outlier scores below a normal sample so often"
        curves: list[Curve] = [("outliers", odd, -scores)]
        drawn = resamples(held.n)
        numbers.append(estimate("Area under ROC", _mean_area(curves), drawn, small))
        items += _rank_figures(curves)
    else:
        notes.append(
            f"All {held.n:,} held-out samples are {kinds[0][0]}: ROC, precision and recall "
            "need both kinds."
        )
    return Part(f"{sentence}: {' and '.join(said)}.", numbers, [figures(*items)], notes)


def _score_figure(groups: list[tuple[str, Array]]) -> Block:
    scores = np.concatenate([own for _, own in groups])
    bins = int(np.clip(np.sqrt(len(scores)) * 1.5, 6, 40))
    low, high = min(float(scores.min()), 0.0), max(float(scores.max()), 0.0)
    width = (high - low) / bins or 1.0
    # The boundary is an edge, so that no bar has samples of both sides.
    edges = width * np.arange(np.floor(low / width), max(np.floor(high / width), 0) + 2)
    return histogram_figure(
        "Scores",
        "decision value",
        groups,
        "Samples left of the line are called outliers.",
        edges,
        (0.0, "boundary"),
    )
