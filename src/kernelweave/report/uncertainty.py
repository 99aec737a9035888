"""What a Bayesian model is not sure about: samples in doubt, probabilities, error bars."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernelweave.inspect.held_out import HeldOut, share, task_of
from kernelweave.inspect.ranking import is_bayesian
from kernelweave.inspect.uncertainty import Doubts, doubtful
from kernelweave.inspect.words import number, percent, plural, shorten
from kernelweave.report.blocks import Block, figures, histogram_figure, section, table

_SURE = 0.8
_ROWS = 15


def doubt_section(estimator: Any, held: HeldOut | None) -> Block | None:
    """How sure a Bayesian model is of the held-out samples; None for other models."""
    task = task_of(estimator)
    if held is None or task == "labels" or not is_bayesian(estimator):
        return None
    say = _of_numbers if task == "numbers" else _of_classes
    lead, *items = say(estimator, held)
    return section("doubt", "How sure it is", lead, figures(*items))


def _of_classes(estimator: Any, held: HeldOut) -> list[Any]:
    doubts = doubtful(estimator, held.X, sure=_SURE, names=held.names.tolist())
    proba = np.asarray(estimator.predict_proba(held.X))
    certainty, n_classes = proba.max(axis=1), proba.shape[1]
    sure = certainty >= _SURE
    lead = (
        f"Of {plural(len(doubts), 'held-out sample')} no class has a probability of "
        f"{percent(_SURE, 0)}; {held.n - len(doubts):,} of {held.n:,} are sure."
    )
    edges = np.linspace(1.0 / n_classes, 1.0, 17)
    # The last bin takes in probabilities that rounding put above 1.
    inside = np.clip(certainty, edges[0], edges[-1])
    groups = [("samples", inside)]
    if held.y is not None:
        right = estimator.classes_[proba.argmax(axis=1)] == held.y
        groups = [("right", inside[right]), ("wrong", inside[~right])]
        if sure.any():
            lead += f" Of the sure ones {percent(float(right[sure].mean()))} are right"
            if not sure.all():
                lead += f", of the others {percent(float(right[~sure].mean()))}"
            lead += "."
    drawn = histogram_figure(
        "Probabilities of the predicted classes",
        "probability of the predicted class",
        groups,
        "A model that knows what it does not know is wrong on the left only.",
        edges,
        (_SURE, "sure"),
    )
    return [lead, drawn, *([_doubt_table(doubts, held)] if len(doubts) else [])]


def _doubt_table(doubts: Doubts, held: HeldOut) -> Block:
    heads, rows = doubts.cells(_ROWS)
    if held.y is not None:
        heads.insert(1, "true")
        for place, row in zip(doubts.rows, rows, strict=False):
            row.insert(1, str(held.y[place]))
    note = "Mean and standard deviation are those of the decision value; entropy is in bits."
    if len(doubts) > len(rows):
        note += f" {len(doubts) - len(rows):,} more."
    short = [[shorten(cell, 30) for cell in row] for row in rows]
    numeric = [j for j, head in enumerate(heads) if head in ("probability", *heads[-3:])]
    return table("The samples most in doubt", heads, short, numeric, note=note)


def _of_numbers(estimator: Any, held: HeldOut) -> list[Any]:
    mean, std = (
        np.asarray(part).reshape(held.n, -1) for part in estimator.predict(held.X, return_std=True)
    )
    noise = float(np.atleast_1d(estimator.noise_std_)[0])
    first = std[:, 0]
    lead = (
        f"Standard deviations of predictions are from {number(float(first.min()))} to "
        f"{number(float(first.max()))}; the noise that was learnt has one of {number(noise)}, "
        "which more samples would not take away."
    )
    if held.y is not None:
        truth = np.asarray(held.y, dtype=float).reshape(held.n, -1)
        inside = np.abs(truth - mean) <= 1.959963984540054 * std
        held_by = share("", int(inside.sum()), inside.size)
        lead += (
            f" The 95 % intervals hold {held_by.text} of the held-out values "
            f"(95 % interval of that share: {held_by.interval})."
        )
    rows = [
        [shorten(held.names[i], 40), number(float(mean[i, 0])), number(float(first[i]))]
        for i in np.argsort(-first, kind="stable")[:_ROWS]
    ]
    drawn = histogram_figure(
        "How sure predictions are",
        "predictive standard deviation",
        [("samples", first)],
        "Small is sure.",
    )
    listed = table("The predictions least sure", ["sample", "predicted", "std"], rows, [1, 2])
    return [lead, drawn, listed]
