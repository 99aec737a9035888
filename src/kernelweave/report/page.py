"""All that a report says, as plain data: the sentence, the badges, the sections."""

from __future__ import annotations

import platform
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

import numpy as np

from kernelweave import plot
from kernelweave.errors import MemoryBudgetError
from kernelweave.inspect.alignment import kernel_alignment
from kernelweave.inspect.certificate import verdict
from kernelweave.inspect.held_out import HeldOut, task_of
from kernelweave.inspect.ranking import Ranking, split_fits
from kernelweave.inspect.recipe import parameters, recipe
from kernelweave.inspect.summary import learnt_line
from kernelweave.inspect.words import KeyNumber, number, percent, plural, seconds, shorten
from kernelweave.plot.style import new_axes
from kernelweave.report.blocks import Block, figure, figures, histogram_figure, section, table
from kernelweave.report.fit import course_section, path_section, search_section
from kernelweave.report.held_out import Part, held_out_part, numbers_row
from kernelweave.report.sequences import sequence_section
from kernelweave.report.uncertainty import doubt_section
from kernelweave.report.weights import kernel_table, list_kernels, weight_section

# Kernels in the map of alignments, and pairs in the table below it.
_MOST = 30
_PAIRS = 6
# Alignment from which two kernels can take each other's place.
_ALIKE = 0.95
_PACKAGES = ("kernelweave", "numpy", "scipy", "scikit-learn", "numba", "highspy")
# Letters of the value of a setting.
_LONG = 400


def gather(
    model: Any,
    max_kernels: int | None,
    held: HeldOut | None,
    title: str | None,
    about: Sequence[tuple[str, str]],
) -> Block:
    """Return what the template lays out: text, numbers and drawn charts."""
    listed = list_kernels(model, max_kernels)
    ranking = listed.ranking
    estimator = ranking.estimator
    part, seen = held_out_part(estimator, held), None
    if held is not None:
        lead = f"{plural(held.n, 'sample')} that the model has not seen. {held.note}".strip()
        if part is None:
            blocks = _predicted(estimator, held)
        else:
            notes = {"kind": "notes", "notes": part.notes}
            blocks = [numbers_row(part.numbers), *part.blocks, notes]
        seen = section("held-out", "On held-out samples", lead, *blocks)
    sections = [
        weight_section(listed),
        seen,
        doubt_section(estimator, held),
        sequence_section(estimator),
        path_section(estimator),
        search_section(model),
        course_section(estimator),
        _alike(ranking),
        {"id": "kernels", "title": "All kernels", "table": kernel_table(listed)},
        _settings(model, estimator, about),
    ]
    n = int(estimator._kernel_set.n)
    return {
        "title": title or f"{type(estimator).__name__} on {plural(n, 'sample')}",
        "estimator": type(estimator).__name__,
        "written": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "sentences": [learnt_line(estimator), *([part.sentence] if part else [])],
        "badges": _badges(ranking, part, n),
        "sections": [section for section in sections if section is not None],
    }


def _badges(ranking: Ranking, part: Part | None, n: int) -> list[KeyNumber]:
    estimator = ranking.estimator
    badges = [verdict(estimator).headline]
    if part is not None:
        first = part.numbers[0]
        head = first.head if first.head.startswith("R²") else first.head.lower()
        badges.append(KeyNumber(f"Held-out {head}", first.text, f"95 % interval {first.interval}"))
    kernels = f"{len(ranking.used):,} of {ranking.total:,}"
    support = ""
    if hasattr(estimator, "support_"):
        support = f", {len(estimator.support_):,} support vectors"
    badges += [
        KeyNumber("Kernels", kernels, "have a weight"),
        KeyNumber("Samples", f"{n:,}", f"trained on{support}"),
    ]
    history = getattr(estimator, "history_", None)
    if history:
        # One fit, or one for each class.
        time = sum(records[-1].seconds for records in split_fits(history))
        iterations = plural(int(np.max(estimator.n_iter_)), "iteration")
        badges.append(KeyNumber("Time", seconds(time), iterations))
    return badges


def _predicted(estimator: Any, held: HeldOut) -> list[Block]:
    """Without the truth a report shows what was predicted."""
    predicted = np.asarray(estimator.predict(held.X))
    note = {"kind": "notes", "notes": ["The truth was not given, so this is what was predicted."]}
    if task_of(estimator) == "classes":
        rows = [
            [shorten(label, 60), f"{n:,}", percent(n / held.n)]
            for label, n in zip(*np.unique(predicted, return_counts=True), strict=True)
        ]
        return [table("Predicted classes", ["class", "samples", "share"], rows, [1, 2]), note]
    values = predicted.reshape(held.n, -1)[:, 0].astype(float)
    caption = f"From {number(float(values.min()))} to {number(float(values.max()))}."
    groups = [("samples", values)]
    drawn = histogram_figure("Predicted values", "predicted", groups, caption)
    return [figures(drawn), note]


def _alike(ranking: Ranking) -> Block | None:
    """A map of which of the heaviest kernels say the same; None if there is nothing to compare."""
    used = ranking.used[:_MOST]
    if len(used) < 2:
        return None
    title = "Which kernels say the same"
    try:
        found = kernel_alignment(ranking.estimator, kernels=used)
    except MemoryBudgetError as error:
        return section("alike", title, f"The kernels were not compared: {error}")
    pairs = found.pairs()
    alike = sum(value >= _ALIKE for _, _, value in pairs)
    lead = (
        "Centred alignment of the kernels on the training samples: 1 where two say the same, 0 "
        "where they have nothing in common. Of kernels that say the same, which one gets the "
        "weight is up to chance. "
    )
    if alike:
        lead += f"{plural(alike, 'pair is', 'pairs are')} alike to {_ALIKE} and more."
    else:
        lead += f"No pair is alike to {_ALIKE}: each of them adds something of its own."
    caption = f"On {plural(found.n_samples, 'training sample')}; neighbours resemble each other."
    if len(ranking.used) > len(used):
        caption += f" The {len(used):,} heaviest of {len(ranking.used):,} kernels."
    rows = [[shorten(a, 80), shorten(b, 80), number(v)] for a, b, v in pairs[:_PAIRS]]
    listed = {"heads": ["kernel", "and kernel", "alignment"], "rows": rows, "title": "Most alike"}
    side = min(0.6 + 0.2 * len(used), 5.0)
    ax = plot.alignment(found, new_axes(side + 3.2, side + 1.6))
    drawn = figure("Alignment of the heaviest kernels", ax, caption, listed, wide=True)
    return section("alike", title, lead, figures(drawn))


def _settings(model: Any, estimator: Any, about: Sequence[tuple[str, str]]) -> Block:
    """Data, settings, versions, and the Python that makes the same fit."""
    steps = getattr(getattr(model, "best_estimator_", model), "steps", [])
    before = [(name, shorten(repr(step), _LONG)) for name, step in steps if step is not estimator]
    settings = [
        (name, _say(value), _say(default)) for name, value, default in parameters(estimator)
    ]
    machine = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    versions = [("Python", machine), *((name, version(name)) for name in _PACKAGES)]
    blocks: list[Block] = [
        {"kind": "facts", "title": "Data", "rows": about},
        {"kind": "facts", "title": "Steps before the model", "rows": before},
        {
            "kind": "facts",
            "title": f"Settings of {type(estimator).__name__}",
            "rows": [setting[:2] for setting in settings],
            "changed": [name for name, value, default in settings if value != default],
            "note": "Settings in bold are not the defaults.",
        },
        {"kind": "facts", "title": "Versions", "rows": versions},
        {"kind": "code", "title": "The same fit in Python", "code": recipe(model)},
    ]
    blocks = [block for block in blocks if block.get("rows", True)]
    lead = "Everything that is needed to make this fit again."
    return section("settings", "Data and settings", lead, *blocks)


def _say(value: Any) -> str:
    if isinstance(value, float):
        return number(value, 6)
    if isinstance(value, list | tuple) and len(value) > 12:
        some = ", ".join(_say(item) for item in value[:6])
        return shorten(f"{len(value):,} items: {some}, …", _LONG)
    # An address in memory says nothing to a reader.
    return shorten(re.sub(r" at 0x[0-9a-fA-F]+", "", repr(value)), _LONG)
