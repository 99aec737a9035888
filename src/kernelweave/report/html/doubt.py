"""What a Bayesian model is not sure about: samples in doubt, probabilities, error bars."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from kernelweave.describe.learnt import is_bayesian
from kernelweave.report.doubts import Doubts, doubtful
from kernelweave.report.html.heldout import HeldOut, task_of
from kernelweave.report.html.intervals import wilson
from kernelweave.report.html.svg import Axis, Chart
from kernelweave.report.html.words import count, number, percent, plural, shorten

__all__ = ["doubt_section"]

_SURE = 0.8
_ROWS = 15


def doubt_section(estimator: Any, held: HeldOut | None) -> dict[str, Any] | None:
    """How sure a Bayesian model is of the held-out samples; None for other models."""
    if held is None or not is_bayesian(estimator):
        return None
    task = task_of(estimator)
    if task == "labels":
        return None
    found = _of_numbers(estimator, held) if task == "numbers" else _of_classes(estimator, held)
    return {"id": "doubt", "title": "How sure it is", **found}


def _of_classes(estimator: Any, held: HeldOut) -> dict[str, Any]:
    doubts = doubtful(estimator, held.X, sure=_SURE, names=held.names.tolist())
    proba = np.asarray(estimator.predict_proba(held.X))
    certainty = proba.max(axis=1)
    right = None
    if held.y is not None:
        right = estimator.classes_[proba.argmax(axis=1)] == held.y
    lead = (
        f"Of {plural(len(doubts), 'held-out sample')} no class has a probability of "
        f"{percent(_SURE, 0)}; {count(held.n - len(doubts))} of {count(held.n)} are sure."
    )
    sure = certainty >= _SURE
    if right is not None and sure.any():
        lead += f" Of the sure ones {percent(float(right[sure].mean()))} are right"
        lead += f", of the others {percent(float(right[~sure].mean()))}." if (~sure).any() else "."
    blocks: list[dict[str, Any]] = [
        {
            "kind": "figures",
            "figures": [
                _certainty_figure(certainty, right, len(estimator.classes_)),
                *([_doubt_table(doubts, held, len(estimator.classes_))] if len(doubts) else []),
            ],
        }
    ]
    return {"lead": lead, "blocks": blocks}


def _doubt_table(doubts: Doubts, held: HeldOut, n_classes: int) -> dict[str, Any]:
    shown = range(min(len(doubts), _ROWS))
    columns: dict[str, list[str]] = {
        "sample": [shorten(doubts.labels[i], 30) for i in shown],
        "true": [] if held.y is None else [shorten(held.y[doubts.rows[i]], 24) for i in shown],
        "predicted": [shorten(doubts.predicted[i], 24) for i in shown],
        # With two classes it is the other one.
        "or else": [shorten(doubts.runner_up[i], 24) for i in shown] if n_classes > 2 else [],
        "probability": [f"{doubts.probability[i]:.2f}" for i in shown],
        "decision": [f"{doubts.mean[i]:+.2f} ± {doubts.std[i]:.2f}" for i in shown],
    }
    known = {head: cells for head, cells in columns.items() if cells}
    more = len(doubts) - len(shown)
    return {
        "kind": "table",
        "title": "The samples most in doubt",
        "heads": list(known),
        "rows": [list(row) for row in zip(*known.values(), strict=True)],
        "numeric": [len(known) - 2, len(known) - 1],
        "note": "The decision value with its standard deviation."
        + (f" {count(more)} more." if more > 0 else ""),
    }


def _certainty_figure(certainty: Any, right: Any, n_classes: int) -> dict[str, Any]:
    edges = np.linspace(1.0 / n_classes, 1.0, 17)
    groups = [("samples", np.ones(len(certainty), dtype=bool), "s0")]
    if right is not None:
        groups = [("right", right, "s0"), ("wrong", ~right, "s1")]
    # The last bin takes in probabilities that rounding put above 1.
    inside = np.clip(certainty, edges[0], edges[-1])
    counts = [np.histogram(inside[own], edges)[0] for _, own, _ in groups]
    chart = Chart(
        Axis(float(edges[0]), 1.0, "probability of the predicted class"),
        Axis.around([0, np.sum(counts, axis=0).max()], "samples", zero=True),
    )
    base = np.zeros(len(edges) - 1)
    for (name, _, colour), own in zip(groups, counts, strict=True):
        tips = [
            f"{count(int(n))} {name} from {a:.2f} to {b:.2f}"
            for n, a, b in zip(own, edges[:-1], edges[1:], strict=True)
        ]
        chart.bars(edges, own, colour, tips=tips, base=base)
        base = base + own
    chart.rule(x=_SURE, text="sure")
    rows = [
        [f"{a:.2f} to {b:.2f}", *(int(own[i]) for own in counts)]
        for i, (a, b) in enumerate(pairwise(edges))
        if any(own[i] for own in counts)
    ]
    return {
        "title": "Probabilities of the predicted classes",
        "svg": chart.render("Histogram of the probabilities of the predicted classes."),
        "caption": "A model that knows what it does not know is wrong on the left only.",
        "legend": [name for name, _, _ in groups] if right is not None else [],
        "table": {"heads": ["probability", *(name for name, _, _ in groups)], "rows": rows},
    }


def _of_numbers(estimator: Any, held: HeldOut) -> dict[str, Any]:
    mean, std = (
        np.asarray(part).reshape(held.n, -1) for part in estimator.predict(held.X, return_std=True)
    )
    noise = np.atleast_1d(estimator.noise_std_)
    first = std[:, 0]
    lead = (
        f"Standard deviations of predictions are from {number(float(first.min()))} to "
        f"{number(float(first.max()))}; the noise that was learnt has one of "
        f"{number(float(noise[0]))}, which more samples would not take away."
    )
    if held.y is not None:
        truth = np.asarray(held.y, dtype=float).reshape(held.n, -1)
        inside = np.abs(truth - mean) <= 1.959963984540054 * std
        n, hits = inside.size, int(inside.sum())
        low, high = wilson(hits, n)
        lead += (
            f" The 95 % intervals hold {percent(hits / n)} of the held-out values (95 % interval "
            f"of that share: {percent(low)} to {percent(high)})."
        )
    edges = np.histogram_bin_edges(first, int(np.clip(np.sqrt(held.n) * 1.5, 5, 30)))
    counts = np.histogram(first, edges)[0]
    chart = Chart(
        Axis.around(edges, "predictive standard deviation"),
        Axis.around([0, counts.max()], "samples", zero=True),
    )
    tips = [
        f"{count(int(n))} samples from {number(a)} to {number(b)}"
        for n, a, b in zip(counts, edges[:-1], edges[1:], strict=True)
    ]
    chart.bars(edges, counts, "s0", tips=tips)
    widest = np.argsort(-first, kind="stable")[:_ROWS]
    rows = [
        [shorten(held.names[i], 40), number(float(mean[i, 0])), number(float(first[i]))]
        for i in widest
    ]
    figures = [
        {
            "title": "How sure predictions are",
            "svg": chart.render("Histogram of the predictive standard deviations."),
            "caption": "Small is sure.",
            "table": None,
        },
        {
            "kind": "table",
            "title": "The predictions least sure",
            "heads": ["sample", "predicted", "std"],
            "rows": rows,
            "numeric": [1, 2],
        },
    ]
    return {"lead": lead, "blocks": [{"kind": "figures", "figures": figures}]}
