"""The figure of ``helps.py``: differences with intervals, set by set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

TITLES = {
    "uniform": "over equal weights",
    "single": "over the best single kernel",
    "svc": "over a tuned SVC",
}
# Okabe and Ito's colours, and shapes for those who print in grey.
LOOKS = {"yes": ("#009E73", "o"), "no difference": ("#666666", "s"), "no": ("#D55E00", "X")}


def draw(sets: list[dict[str, Any]], path: Path) -> None:
    """Save one panel for each rival; sets from the top down."""
    figure, panels = plt.subplots(
        1, 3, figsize=(9, 1.2 + 0.24 * len(sets)), sharey=True, layout="constrained"
    )
    for axes, (rival, title) in zip(panels, TITLES.items(), strict=True):
        for place, one in enumerate(sets):
            found = one["versus"][f"mkl - {rival}"]
            colour, marker = LOOKS[found["verdict"]]
            low, mean, high = (100 * found[key] for key in ("low", "mean", "high"))
            axes.plot([low, high], [place, place], color=colour, lw=1.5)
            axes.plot(mean, place, marker, color=colour, ms=5)
        axes.axvline(0, color="black", lw=0.8)
        axes.set_title(title, fontsize=10)
        axes.grid(axis="x", alpha=0.3)
        axes.tick_params(labelsize=8)
    panels[0].set_yticks(range(len(sets)), [one["name"] for one in sets], fontsize=8)
    panels[0].invert_yaxis()
    panels[1].set_xlabel("difference in points of (balanced) accuracy, 95 % interval", fontsize=9)
    marks = [
        plt.Line2D([], [], color=colour, marker=marker, label=f"MKL helps: {answer}")
        for answer, (colour, marker) in LOOKS.items()
    ]
    figure.legend(handles=marks, loc="outside lower center", ncols=3, fontsize=8, frameon=False)
    figure.savefig(path, dpi=100)
    plt.close(figure)
