"""The figure of ``benchmarks/bemkl.py``."""

from __future__ import annotations

import matplotlib
import numpy as np
from bemkl_data import TABLE1, Accuracies

matplotlib.use("Agg")
from matplotlib import pyplot as plt


def draw_figure(accuracies: Accuracies, path: str) -> None:
    """Test accuracy of each set of Table 1 and preset, beside the paper's, with its spread."""
    names = [name for name in TABLE1 if any(key[0] == name for key in accuracies)]
    if not names:
        print("no figure: it shows the part table1")
        return
    values = sorted({key[2] for key in accuracies if key[0] in names}, reverse=True)
    fig, axes = plt.subplots(1, 2, figsize=(9.0, 0.55 * len(names) + 1.8), sharex=True, sharey=True)
    rows = np.arange(len(names))
    step = 0.7 / (len(values) + 1)
    for ax, preset in zip(axes, ("sparse", "dense"), strict=True):
        published = [getattr(TABLE1[name], preset) for name in names]
        known = [row for row in rows if published[row] is not None]
        lines = [
            ("paper", known, [(published[row].accuracy, published[row].deviation) for row in known])
        ]
        for value in values:
            found = [row for row in rows if (names[row], preset, value) in accuracies]
            scores = [accuracies[names[row], preset, value] for row in found]
            label = rf"kernelweave, $\sigma_g$ = {value:g}"
            lines.append((label, found, [(np.mean(score), np.std(score)) for score in scores]))
        for place, (label, own, moments) in enumerate(lines):
            mean, std = np.array(moments).reshape(-1, 2).T
            look = {"color": "0.35" if place == 0 else f"C{place - 1}"}
            heights = np.array(own) + step * (place - 0.5 * (len(lines) - 1))
            marker = "s" if place == 0 else "o"
            ax.errorbar(mean, heights, xerr=std, fmt=marker, ms=5, capsize=2, label=label, **look)
        for row in rows[:-1]:
            ax.axhline(row + 0.5, color="0.9", lw=0.8, zorder=0)
        ax.set(title=f"{preset} preset", xlabel="test accuracy, %")
        ax.set_yticks(rows, names)
        ax.grid(axis="x", alpha=0.3)
    axes[0].invert_yaxis()
    handles, labels = axes[0].get_legend_handles_labels()
    fig.tight_layout(rect=(0, 0.35 / fig.get_figheight(), 1, 1))
    fig.legend(handles, labels, loc="lower center", ncols=len(labels), frameon=False)
    fig.savefig(path, dpi=150)
    print(f"\nfigure: {path}")
