"""The figure of ``benchmarks/growth.py``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

__all__ = ["draw"]

# Okabe and Ito's palette, and markers for those who see no colours at all.
LOOKS = {
    "active-set": ("#0072B2", "o"),
    "silp": ("#D55E00", "s"),
    "silp-chunking": ("#E69F00", "D"),
    "spicy": ("#CC79A7", "^"),
    "spg": ("#009E73", "v"),
    "mwu": ("#56B4E9", "P"),
    "uniform": ("#999999", "X"),
    "bayes": ("#222222", "*"),
    "strings": ("#8C6D1F", "h"),
}
PANELS = (
    ("n", "seconds", "processor seconds", "m = 20"),
    ("m", "seconds", "processor seconds", "n = 200"),
    ("n", "mb", "MB", "m = 20"),
    ("m", "mb", "MB", "n = 200"),
)


def draw(series: dict[str, Any], path: Path) -> None:
    """Time and memory against n and m, one line for each solver."""
    figure = Figure(figsize=(8.4, 6.4), layout="constrained")
    axes = figure.subplots(2, 2, sharex="col", sharey="row")
    for ax, (axis, what, label, title) in zip(axes.flat, PANELS, strict=True):
        for solver, found in series.items():
            colour, marker = LOOKS[solver]
            x = [point[axis] for point in found[axis]]
            y = [point[what] for point in found[axis]]
            ax.plot(x, y, color=colour, marker=marker, ms=5, lw=1.5, label=solver)
        ax.set(xscale="log", yscale="log")
        ax.grid(alpha=0.3)
        ax.spines[["top", "right"]].set_visible(False)
        for side in (ax.xaxis, ax.yaxis):
            side.set_major_formatter("{x:,g}")
            side.set_minor_formatter("")
        if what == "seconds":
            ax.set_title(f"growing {axis}, {title}", fontsize=11)
        else:
            ax.set_xlabel({"n": "samples n", "m": "kernels m"}[axis])
        if axis == "n":
            ax.set_ylabel(label)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right upper", frameon=False)
    figure.savefig(path, dpi=110)
