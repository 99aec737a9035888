"""The figure of ``benchmarks/limit.py``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

__all__ = ["draw", "shares"]

# Okabe and Ito's palette.
COLOURS = {
    "the limit": "#0072B2",
    "counted work above its limit": "#9BCBEB",
    "outside the counted calls": "#D55E00",
}


def shares(row: dict[str, Any], outside: str) -> list[float]:
    """Return the parts of a row's time: its limit, counted work above that, all else."""
    whole = sum(kind["seconds"] for kind in row["kinds"].values())
    at_limit = row["limit"] / row["seconds"]
    rest = row["kinds"][outside]["seconds"] / whole
    return [at_limit, max(0.0, 1.0 - at_limit - rest), rest]


def draw(rows: list[dict[str, Any]], outside: str, path: Path) -> None:
    """Draw one bar for each task, and how many times its limit it takes."""
    figure = Figure(figsize=(7.6, 0.28 * len(rows) + 1.2), layout="constrained")
    ax = figure.subplots()
    names = [f"{row['name']} ({row['group']})" for row in rows]
    left = [0.0] * len(rows)
    for part, (label, colour) in enumerate(COLOURS.items()):
        widths = [shares(row, outside)[part] for row in rows]
        ax.barh(names, widths, left=left, color=colour, label=label)
        left = [a + b for a, b in zip(left, widths, strict=True)]
    for place, (row, end) in enumerate(zip(rows, left, strict=True)):
        ratio = row["seconds"] / row["limit"]
        ax.text(end + 0.01, place, f"{ratio:.1f}x", va="center", fontsize=9)
    ax.invert_yaxis()
    ax.set(xlim=(0.0, 1.1), xlabel="part of the time; right: time over limit")
    ax.xaxis.set_major_formatter("{x:.0%}")
    ax.set_xticks([0.0, 0.25, 0.5, 0.75, 1.0])
    ax.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside upper center", ncols=3, frameon=False, fontsize=9)
    figure.savefig(path, dpi=110)
