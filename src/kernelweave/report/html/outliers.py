"""Held-out samples of an outlier model: their scores, and what lies outside."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from kernelweave.report.html.curves import rank_figures
from kernelweave.report.html.heldout import HeldOut, Part, number_block
from kernelweave.report.html.intervals import area_under_roc, bootstrap, resamples, wilson
from kernelweave.report.html.svg import Axis, Chart
from kernelweave.report.html.words import count, number, percent, plural

__all__ = ["outlier_part"]


def outlier_part(estimator: Any, held: HeldOut) -> Part:
    """What the held-out samples say of a one-class model."""
    scores = np.asarray(estimator.decision_function(held.X), dtype=float)
    outside = scores < 0
    share = float(outside.mean())
    ends = wilson(int(outside.sum()), held.n)
    numbers = [number_block("Outside", share, ends, "share called outliers", percent)]
    figures = [_histogram(scores, held.y)]
    notes = []
    sentence = f"Of {plural(held.n, 'held-out sample')} {percent(share)} lie outside"
    if held.y is None:
        sentence += f"; nu = {number(float(estimator.nu))} allowed that share in training."
    else:
        odd = np.asarray(held.y) == -1
        found, numbers_more = _known_outliers(scores, odd, outside)
        numbers += numbers_more
        sentence += f": {found}."
        if 0 < odd.sum() < held.n:
            figures += rank_figures([("outliers", odd, -scores)])
        else:
            kind = "outliers" if odd.all() else "normal"
            notes.append(
                f"All {count(held.n)} held-out samples are {kind}: ROC, precision and recall need "
                "both kinds."
            )
    return Part(
        sentence,
        {
            "head": "Held-out outside",
            "text": percent(share),
            "small": f"95 % interval {percent(ends[0])} to {percent(ends[1])}",
        },
        [
            {"kind": "numbers", "numbers": numbers},
            {"kind": "figures", "figures": figures},
            {"kind": "notes", "notes": notes},
        ],
    )


def _known_outliers(scores: Any, odd: Any, outside: Any) -> tuple[str, list[dict[str, str]]]:
    said, numbers = [], []
    for own, kind, head in (
        (odd, "outliers", "Outliers found"),
        (~odd, "normal samples", "False alarms"),
    ):
        n = int(own.sum())
        if n:
            hits = int(outside[own].sum())
            said.append(f"{percent(hits / n)} of the {kind}")
            small = f"of {count(n)} {kind}, how many lie outside"
            numbers.append(number_block(head, hits / n, wilson(hits, n), small, percent))
    if len(said) == 2:
        value = float(area_under_roc(odd, -scores, np.ones((1, len(odd))))[0])
        ends = bootstrap(lambda w: area_under_roc(odd, -scores, w), resamples(len(odd)))
        small = "an outlier scores below a normal sample so often"
        numbers.append(number_block("Area under ROC", value, ends, small, number))
    return " and ".join(said), numbers


def _histogram(scores: Any, y: Any) -> dict[str, Any]:
    bins = int(np.clip(np.sqrt(len(scores)) * 1.5, 6, 40))
    low, high = min(float(scores.min()), 0.0), max(float(scores.max()), 0.0)
    width = (high - low) / bins or 1.0
    # The boundary is an edge, so that no bar has samples of both sides.
    edges = width * np.arange(np.floor(low / width), max(np.floor(high / width), 0) + 2)
    groups = [("samples", np.ones(len(scores), dtype=bool), "s0")]
    if y is not None:
        odd = np.asarray(y) == -1
        groups = [("normal", ~odd, "s0"), ("outliers", odd, "s1")]
        groups = [group for group in groups if group[1].any()]
    counts = [np.histogram(scores[own], edges)[0] for _, own, _ in groups]
    most = np.sum(counts, axis=0).max()
    chart = Chart(
        Axis(float(edges[0]), float(edges[-1]), "decision value"),
        Axis.around([0, most], "samples", zero=True),
    )
    base = np.zeros(len(edges) - 1)
    for (name, _, colour), own in zip(groups, counts, strict=True):
        tips = [
            f"{count(int(n))} {name} from {number(a)} to {number(b)}"
            for n, a, b in zip(own, edges[:-1], edges[1:], strict=True)
        ]
        chart.bars(edges, own, colour, tips=tips, base=base)
        base = base + own
    chart.rule(x=0.0, text="boundary")
    quartiles = [number(float(q)) for q in np.quantile(scores, [0.25, 0.5, 0.75])]
    rows = [
        [f"{number(a)} to {number(b)}", *(int(own[i]) for own in counts)]
        for i, (a, b) in enumerate(pairwise(edges))
        if any(own[i] for own in counts)
    ]
    return {
        "title": "Scores",
        "svg": chart.render(
            f"Histogram of decision values, negative outside; quartiles {', '.join(quartiles)}."
        ),
        "caption": "Samples left of the line are called outliers.",
        "legend": [name for name, _, _ in groups] if len(groups) > 1 else [],
        "table": {"heads": ["decision value", *(name for name, _, _ in groups)], "rows": rows},
    }
