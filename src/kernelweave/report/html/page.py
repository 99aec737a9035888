"""All that a report says, as plain data: the sentence, the badges, the sections."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np

from kernelweave.inspect.certificate import Badge, badge
from kernelweave.inspect.heldout import HeldOut
from kernelweave.inspect.learnt import Ranking, split_fits
from kernelweave.inspect.summary import learnt_line
from kernelweave.inspect.words import count, plural, seconds
from kernelweave.report.html.alike import alike_section
from kernelweave.report.html.doubt import doubt_section
from kernelweave.report.html.fit import course_section, path_section, search_section
from kernelweave.report.html.held_out import Part, held_out_part, held_out_section
from kernelweave.report.html.sequences import sequence_section
from kernelweave.report.html.settings import settings_section
from kernelweave.report.html.weights import Listed, kernel_table, weight_section

__all__ = ["gather"]


def gather(
    model: Any,
    max_kernels: int | None,
    held: HeldOut | None,
    title: str | None,
    about: Sequence[tuple[str, str]],
) -> dict[str, Any]:
    """Return what the template lays out: text, numbers and drawn charts."""
    listed = Listed.of(model, max_kernels)
    ranking = listed.ranking
    estimator = ranking.estimator
    part = held_out_part(estimator, held)
    sections = [
        weight_section(listed),
        held_out_section(estimator, held, part),
        doubt_section(estimator, held),
        sequence_section(estimator),
        path_section(estimator),
        search_section(model),
        course_section(estimator),
        alike_section(ranking),
        {"id": "kernels", "title": "All kernels", "table": kernel_table(listed)},
        settings_section(model, estimator, about),
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


def _badges(ranking: Ranking, part: Part | None, n: int) -> list[Badge]:
    estimator = ranking.estimator
    kernels = f"{count(len(ranking.used))} of {count(ranking.total)}"
    support = ""
    if hasattr(estimator, "support_"):
        support = f", {count(len(estimator.support_))} support vectors"
    badges = [
        badge(estimator),
        *([part.badge] if part else []),
        Badge("Kernels", kernels, "have a weight"),
        Badge("Samples", count(n), f"trained on{support}"),
    ]
    history = getattr(estimator, "history_", None)
    if history:
        # One fit, or one for each class.
        time = sum(records[-1].seconds for records in split_fits(history))
        iterations = plural(int(np.max(estimator.n_iter_)), "iteration")
        badges.append(Badge("Time", seconds(time), iterations))
    return badges
