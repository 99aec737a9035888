"""Which kernels say the same: a map of their alignments."""

from __future__ import annotations

from typing import Any

import numpy as np
from markupsafe import Markup, escape

from kernelweave.describe.alignment import Alignment, kernel_alignment
from kernelweave.errors import MemoryBudgetError
from kernelweave.report.html.learnt import Learnt
from kernelweave.report.html.words import count, number, plural, shorten

__all__ = ["likeness_section"]

_MOST = 30
_PAIRS = 6
_NAMES = 33
# Alignment from which two kernels can take each other's place.
_ALIKE = 0.95
# Size of a cell, and room for the names.
_CELL, _LEFT, _TOP = 17, 258, 22


def likeness_section(learnt: Learnt) -> dict[str, Any] | None:
    """The map of the heaviest kernels; None if there is nothing to compare."""
    used = [k for k in learnt.order[:_MOST] if learnt.shares[k] > 0]
    if len(used) < 2:
        return None
    try:
        found = kernel_alignment(learnt.estimator, kernels=used)
    except MemoryBudgetError as error:
        lead = f"The kernels were not compared: {error}"
        return {"id": "alike", "title": "Which kernels say the same", "lead": lead, "blocks": []}
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
    left = learnt.n_used - len(used)
    caption = f"On {plural(found.n_samples, 'training sample')}; neighbours resemble each other."
    if left:
        caption += f" The {count(len(used))} heaviest of {count(learnt.n_used)} kernels."
    shown = [*pairs[:_PAIRS]]
    figure = {
        "title": "Alignment of the heaviest kernels",
        "svg": _map(found),
        "caption": caption,
        "wide": True,
        "table": {
            "heads": ["kernel", "and kernel", "alignment"],
            "rows": [[shorten(a, 80), shorten(b, 80), number(v)] for a, b, v in shown],
            "title": "Most alike",
        },
    }
    blocks = [{"kind": "figures", "figures": [figure]}]
    return {"id": "alike", "title": "Which kernels say the same", "lead": lead, "blocks": blocks}


def _map(found: Alignment) -> Markup:
    order = found.order()
    values = found.values[np.ix_(order, order)]
    names = [shorten(found.names[i], 90) for i in order]
    size = len(names)
    cell = max(_CELL, min(30, 260 // size))
    width, height = _LEFT + max(cell * size, 200) + 2, _TOP + cell * size + 44
    parts = []
    for i, name in enumerate(names):
        middle = _TOP + cell * (i + 0.5)
        parts.append(
            f'<text class="tick" x="{_LEFT - 24}" y="{middle + 3.5:.1f}" text-anchor="end">'
            f"{escape(shorten(name, _NAMES))}</text>"
            f'<text class="tick strong" x="{_LEFT - 6}" y="{middle + 3.5:.1f}" text-anchor="end">'
            f"{i + 1}</text>"
            f'<text class="tick strong" x="{_LEFT + cell * (i + 0.5):.1f}" y="{_TOP - 7}" '
            f'text-anchor="middle">{i + 1}</text>'
        )
        for j in range(size):
            value = values[i, j]
            if np.isnan(value):
                continue
            kind = "s0" if value >= 0 else "s1"
            parts.append(
                f'<rect class="cell {kind}" x="{_LEFT + cell * j}" y="{_TOP + cell * i}" '
                f'width="{cell - 1}" height="{cell - 1}" fill-opacity="{abs(value):.2f}" '
                f'data-pair="{i},{j},{value:.2f}"/>'
            )
    parts.append(_key(_LEFT, _TOP + cell * size + 14, bool((values < 0).any())))
    label = f"Map of {size} by {size} alignments; the pairs most alike are in the table below."
    data = escape("\n".join(names))
    return Markup(
        f'<svg class="chart map" viewBox="0 0 {width} {height}" style="--w:{width}px" role="img" '
        f'aria-label="{escape(label)}" data-names="{data}">{"".join(parts)}</svg>'
    )


def _key(x: float, y: float, negative: bool) -> str:
    """What the colours mean."""
    steps = [-1.0, -0.75, -0.5, -0.25] * negative + [0.0, 0.25, 0.5, 0.75, 1.0]
    boxes = "".join(
        f'<rect class="cell {"s0" if step >= 0 else "s1"}" x="{x + 20 * i:.0f}" y="{y}" '
        f'width="19" height="9" fill-opacity="{abs(step)}"/>'
        f'<rect class="frame" x="{x + 20 * i:.0f}" y="{y}" width="19" height="9"/>'
        for i, step in enumerate(steps)
    )
    ends = [(0, steps[0]), (len(steps) - 1, 1.0)] + ([(4, 0.0)] if negative else [])
    texts = "".join(
        f'<text class="tick" x="{x + 20 * i + 9.5:.1f}" y="{y + 21}" text-anchor="middle">'
        f"{v:g}</text>"
        for i, v in ends
    )
    name = f'<text class="tick" x="{x - 8}" y="{y + 9}" text-anchor="end">alignment</text>'
    return boxes + texts + name
