"""The blocks that a section of the page is made of, as the template takes them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from kernelweave.plot.style import new_axes
from kernelweave.plot.svg import figure_svg

__all__ = ["figure", "figures", "histogram_rows", "panel", "section", "some_of", "table"]


def section(key: str, title: str, lead: str, *blocks: dict[str, Any]) -> dict[str, Any]:
    """Return a section: what it says first, and its blocks."""
    return {"id": key, "title": title, "lead": lead, "blocks": list(blocks)}


def panel(height: float = 3.4) -> Any:
    """Return axes of the size that figures side by side have; letters stay readable on a phone."""
    return new_axes(5.3, height)


def figure(
    title: str,
    axes: Any,
    told: str,
    caption: str,
    table: dict[str, Any] | None = None,
    *,
    wide: bool = False,
) -> dict[str, Any]:
    """Return a drawn figure; `told` is what a screen reader says of it."""
    for ax in axes.figure.axes:
        # The heading is above the figure.
        ax.set_title("")
    svg = Markup(figure_svg(axes.figure, told, wide=wide))
    return {"title": title, "svg": svg, "caption": caption, "table": table, "wide": wide}


def figures(*items: dict[str, Any]) -> dict[str, Any]:
    """Return figures and tables that stand side by side where there is room."""
    return {"kind": "figures", "figures": list(items)}


def table(
    title: str,
    heads: Sequence[str],
    rows: Sequence[Sequence[Any]],
    numeric: Sequence[int],
    **more: Any,
) -> dict[str, Any]:
    """Return a table; the columns `numeric` are aligned on the right."""
    known = {"title": title, "heads": list(heads), "rows": rows, "numeric": list(numeric)}
    return {"kind": "table", **known, **more}


def some_of(n: int, most: int) -> NDArray[np.intp]:
    """Return which of n things to list: all, or so many evenly spread, both ends among them."""
    return np.unique(np.linspace(0, n - 1, min(n, most)).round().astype(int)) if n else np.arange(0)


def histogram_rows(groups: Sequence[tuple[str, Any]], edges: Any, say: Any) -> list[list[Any]]:
    """Return the rows of a table that says what a histogram shows."""
    counts = [np.histogram(values, edges)[0].tolist() for _, values in groups]
    ends = [f"{say(a)} to {say(b)}" for a, b in pairwise(edges)]
    return [[end, *own] for end, *own in zip(ends, *counts, strict=True) if any(own)]
