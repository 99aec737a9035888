"""The figure of ``peers.py``: how long a fit takes, and how far from the optimum it ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from peers_text import TITLES

# Okabe and Ito's colours, and a shape for each library: neither alone carries the meaning.
LOOKS = {
    "kernelweave": ("#0072B2", "o"),
    "sklearn": ("#E69F00", "s"),
    "mklpy": ("#D55E00", "^"),
    "himalaya": ("#009E73", "D"),
}
LEAST = 1e-3
# The same solution as "auto", from elsewhere.
ALIKE = ("auto, with the check", "auto, from rows")


def draw(result: dict[str, Any], path: Path) -> None:
    """Draw one panel for each problem: seconds to the right, per cent above the optimum upwards."""
    problems = result["problems"]
    columns = min(3, len(problems))
    lines = -(-len(problems) // columns)
    figure, grid = plt.subplots(
        lines, columns, figsize=(3.6 * columns, 3.2 * lines), squeeze=False, layout="constrained"
    )
    for axes, (name, problem) in zip(grid.flat, problems.items(), strict=False):
        panel(axes, problem)
        axes.set_title(f"{name}: {problem['m']} kernels, n = {problem['train']}", fontsize=9)
    for axes in grid.flat[len(problems) :]:
        axes.set_axis_off()
    for axes in grid[:, 0]:
        axes.set_ylabel("objective above the optimum, %", fontsize=8)
    for axes in grid[-1]:
        axes.set_xlabel("fit, processor seconds", fontsize=8)
    handles = [
        plt.Line2D([], [], color=colour, marker=shape, linestyle="", label=TITLES[library])
        for library, (colour, shape) in LOOKS.items()
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), fontsize=8)
    figure.savefig(path, dpi=100)
    plt.close(figure)


def panel(axes: Axes, problem: dict[str, Any]) -> None:
    """Draw all contestants whose weights were judged; those that ran out of time are named."""
    late = [entry["name"] for entry in problem["rows"] if "late" in entry]
    shown = [
        entry
        for entry in problem["rows"]
        if entry.get("above") is not None and entry["name"] not in ALIKE
    ]
    for i, entry in enumerate(shown):
        colour, shape = LOOKS[entry["library"]]
        at = entry["seconds"], max(LEAST, 100 * entry["above"])
        axes.plot(*at, shape, color=colour, markersize=5)
        name = entry["name"].replace("MultipleKernelRidgeCV, ", "")
        axes.annotate(
            name,
            at,
            fontsize=6,
            xytext=(4, 3 if i % 2 else -7),
            textcoords="offset points",
        )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.margins(x=0.2, y=0.15)
    axes.tick_params(labelsize=7)
    axes.grid(alpha=0.3)
    if late:
        axes.text(
            0.98,
            0.5,
            "out of time: " + ", ".join(late),
            transform=axes.transAxes,
            fontsize=6,
            ha="right",
        )
