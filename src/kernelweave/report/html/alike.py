"""Which kernels say the same: a map of their alignments."""

from __future__ import annotations

from typing import Any

from kernelweave import plot
from kernelweave.errors import MemoryBudgetError
from kernelweave.inspect.alignment import kernel_alignment
from kernelweave.inspect.learnt import Ranking
from kernelweave.inspect.words import count, number, plural, shorten
from kernelweave.plot.style import new_axes
from kernelweave.report.html.blocks import figure, figures, section

__all__ = ["alike_section"]

_MOST = 30
_PAIRS = 6
# Alignment from which two kernels can take each other's place.
_ALIKE = 0.95


def alike_section(ranking: Ranking) -> dict[str, Any] | None:
    """The map of the heaviest kernels; None if there is nothing to compare."""
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
        caption += f" The {count(len(used))} heaviest of {count(len(ranking.used))} kernels."
    rows = [[shorten(a, 80), shorten(b, 80), number(v)] for a, b, v in pairs[:_PAIRS]]
    told = f"Map of {len(used)} by {len(used)} alignments; the pairs most alike are in the table."
    listed = {"heads": ["kernel", "and kernel", "alignment"], "rows": rows, "title": "Most alike"}
    side = min(0.6 + 0.2 * len(used), 5.0)
    ax = plot.alignment(found, new_axes(side + 3.2, side + 1.6))
    heading = "Alignment of the heaviest kernels"
    drawn = figure(heading, ax, told, caption, listed, wide=True)
    return section("alike", title, lead, figures(drawn))
