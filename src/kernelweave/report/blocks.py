"""The blocks that a section of the page is made of, as the template takes them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from markupsafe import Markup

from kernelweave.arrays import Index
from kernelweave.inspect.words import number
from kernelweave.plot.held_out import histogram
from kernelweave.plot.style import new_axes
from kernelweave.plot.svg import figure_svg

# What the template takes.
Block = dict[str, Any]


def section(key: str, title: str, lead: str, *blocks: Block) -> Block:
    """Return a section: what it says first, and its blocks."""
    return {"id": key, "title": title, "lead": lead, "blocks": list(blocks)}


def panel(height: float = 3.4) -> Any:
    """Return axes of the size that figures side by side have; letters stay readable on a phone."""
    return new_axes(5.3, height)


def figure(
    title: str,
    axes: Any,
    caption: str,
    table: Block | None = None,
    *,
    wide: bool = False,
) -> Block:
    """Return a drawn figure, with its numbers as a table."""
    for ax in axes.figure.axes:
        # The heading is above the figure.
        ax.set_title("")
    svg = Markup(figure_svg(axes.figure, f"{title}. {caption}", wide=wide))
    return {"title": title, "svg": svg, "caption": caption, "table": table, "wide": wide}


def histogram_figure(
    title: str,
    label: str,
    groups: Sequence[tuple[str, Any]],
    caption: str,
    edges: Any = None,
    mark: tuple[float, str] | None = None,
) -> Block:
    """Return a histogram of some values, one or several groups of them, with its counts."""
    if edges is None:
        values = np.concatenate([own for _, own in groups])
        edges = np.histogram_bin_edges(values, int(np.clip(np.sqrt(len(values)) * 1.5, 5, 40)))
    counts = [np.histogram(own, edges)[0].tolist() for _, own in groups]
    ends = [f"{number(a)} to {number(b)}" for a, b in pairwise(edges)]
    rows = [[end, *own] for end, *own in zip(ends, *counts, strict=True) if any(own)]
    listed = {"heads": [label, *(name for name, _ in groups)], "rows": rows}
    return figure(title, histogram(groups, edges, label, panel(), mark), caption, listed)


def figures(*items: Block) -> Block:
    """Return figures and tables that stand side by side where there is room."""
    return {"kind": "figures", "figures": list(items)}


def table(
    title: str,
    heads: Sequence[str],
    rows: Sequence[Sequence[Any]],
    numeric: Sequence[int],
    **more: Any,
) -> Block:
    """Return a table; the columns `numeric` are aligned on the right."""
    known = {"title": title, "heads": list(heads), "rows": rows, "numeric": list(numeric)}
    return {"kind": "table", **known, **more}


def some_of(n: int, most: int) -> Index:
    """Return which of n things to list: all, or so many evenly spread, both ends among them."""
    return np.unique(np.linspace(0, n - 1, min(n, most)).round().astype(int)) if n else np.arange(0)
