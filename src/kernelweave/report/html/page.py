"""All that a report says, as plain data: the sentence, the badges, the sections."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from kernelweave.report.html.c_path import path_section, search_section
from kernelweave.report.html.classes import class_part, label_part
from kernelweave.report.html.course import course_section, proven, solving_seconds
from kernelweave.report.html.doubt import doubt_section
from kernelweave.report.html.heldout import HeldOut, Part, task_of
from kernelweave.report.html.learnt import Learnt
from kernelweave.report.html.likeness import likeness_section
from kernelweave.report.html.numbers import number_part
from kernelweave.report.html.outliers import outlier_part
from kernelweave.report.html.sequences import sequence_section
from kernelweave.report.html.settings import settings_section
from kernelweave.report.html.svg import Axis, Chart
from kernelweave.report.html.weights import kernel_table, weight_section
from kernelweave.report.html.words import count, number, percent, plural, seconds, shorten

__all__ = ["gather"]

_PARTS = {
    "classes": class_part,
    "labels": label_part,
    "numbers": number_part,
    "outliers": outlier_part,
}


def gather(
    model: Any,
    learnt: Learnt,
    held: HeldOut | None,
    title: str | None,
    about: Sequence[tuple[str, str]],
) -> dict[str, Any]:
    """Return what the template lays out: text, numbers and drawn charts."""
    estimator = learnt.estimator
    part = _held_out_part(estimator, held)
    sections = [
        weight_section(learnt),
        _held_out_section(estimator, held, part),
        doubt_section(estimator, held),
        sequence_section(estimator),
        path_section(estimator),
        search_section(model),
        course_section(estimator),
        likeness_section(learnt),
        {"id": "kernels", "title": "All kernels", "table": kernel_table(learnt)},
        settings_section(model, estimator, about),
    ]
    n = int(estimator._kernel_set.n)
    return {
        "title": title or f"{type(estimator).__name__} on {plural(n, 'sample')}",
        "estimator": type(estimator).__name__,
        "written": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "sentences": [_sentence(learnt), *([part.sentence] if part else [])],
        "badges": _badges(learnt, part, n),
        "sections": [section for section in sections if section is not None],
    }


def _sentence(learnt: Learnt) -> str:
    """What was learnt, in one sentence."""
    if not learnt.n_used:
        return f"None of {plural(learnt.total, 'kernel')} has a weight: nothing was learnt."
    name = shorten(learnt.infos[0].name, 80)
    heaviest = int(learnt.order[0])
    if learnt.std is not None:
        weight, reach = float(learnt.weights[heaviest]), 2 * float(learnt.std[heaviest])
        return (
            f"{_how_many(learnt)} a weight; the largest is that of {name}, "
            f"{number(weight, 2)} ± {number(reach, 2)}."
        )
    if learnt.total == 1:
        return f"There is one kernel, {name}."
    share = float(learnt.shares[heaviest])
    if learnt.n_used == 1:
        return f"One of {count(learnt.total)} kernels carries all the weight: {name}."
    carry = f"{count(learnt.n_used)} of {count(learnt.total)} kernels carry the weight"
    if learnt.n_used == learnt.total:
        carry = f"All {count(learnt.total)} kernels carry weight"
    return f"{carry}; the heaviest, {name}, has {percent(share, 0)} of it."


def _how_many(learnt: Learnt) -> str:
    if learnt.n_used == learnt.total:
        return (
            f"All {plural(learnt.total, 'kernel')} have" if learnt.total > 1 else "The kernel has"
        )
    verb = "has" if learnt.n_used == 1 else "have"
    return f"{count(learnt.n_used)} of {count(learnt.total)} kernels {verb}"


def _badges(learnt: Learnt, part: Part | None, n: int) -> list[dict[str, str]]:
    estimator = learnt.estimator
    badges = [proven(estimator) | {"small": _tolerance(estimator)}]
    if part is not None:
        badges.append({"state": "plain", **part.headline})
    badges.append(
        {
            "state": "plain",
            "head": "Kernels",
            "text": f"{count(learnt.n_used)} of {count(learnt.total)}",
            "small": "have a weight",
        }
    )
    small = "trained on"
    if hasattr(estimator, "support_"):
        small = f"trained on, {count(len(estimator.support_))} support vectors"
    badges.append({"state": "plain", "head": "Samples", "text": count(n), "small": small})
    time = solving_seconds(estimator)
    if time is not None:
        small = plural(int(estimator.n_iter_), "iteration")
        badges.append({"state": "plain", "head": "Time", "text": seconds(time), "small": small})
    return badges


def _tolerance(estimator: Any) -> str:
    if not hasattr(estimator, "gap_"):
        return ""
    tol = float(estimator.tol)
    if getattr(estimator, "gap_kind_", "duality") != "duality":
        return "not a proven optimum"
    return f"proven by the dual problem, tolerance {percent(tol)}"


def _held_out_part(estimator: Any, held: HeldOut | None) -> Part | None:
    if held is None:
        return None
    task = task_of(estimator)
    if held.y is None and task != "outliers":
        return None
    return _PARTS[task](estimator, held)


def _held_out_section(
    estimator: Any, held: HeldOut | None, part: Part | None
) -> dict[str, Any] | None:
    if held is None:
        return None
    lead = f"{plural(held.n, 'sample')} that the model has not seen. {held.note}".strip()
    blocks = _predicted(estimator, held) if part is None else part.blocks
    return {"id": "held-out", "title": "On held-out samples", "lead": lead, "blocks": blocks}


def _predicted(estimator: Any, held: HeldOut) -> list[dict[str, Any]]:
    """Without the truth: what was predicted."""
    import numpy as np

    predicted = np.asarray(estimator.predict(held.X))
    note = {"kind": "notes", "notes": ["The truth was not given, so this is what was predicted."]}
    if task_of(estimator) == "classes":
        labels, counts = np.unique(predicted, return_counts=True)
        rows = [
            [shorten(a, 60), count(b), percent(b / held.n)]
            for a, b in zip(labels, counts, strict=True)
        ]
        table = {
            "kind": "table",
            "title": "Predicted classes",
            "heads": ["class", "samples", "share"],
            "rows": rows,
            "numeric": [1, 2],
        }
        return [table, note]
    values = predicted.reshape(held.n, -1)[:, 0].astype(float)
    edges = np.histogram_bin_edges(values, int(np.clip(np.sqrt(held.n) * 1.5, 5, 40)))
    counts = np.histogram(values, edges)[0]
    chart = Chart(
        Axis.around(edges, "predicted"), Axis.around([0, counts.max()], "samples", zero=True)
    )
    chart.bars(edges, counts, "s0")
    figure = {
        "title": "Predicted values",
        "svg": chart.render("Histogram of the predicted values."),
        "caption": f"From {number(float(values.min()))} to {number(float(values.max()))}.",
        "table": None,
    }
    return [{"kind": "figures", "figures": [figure]}, note]
