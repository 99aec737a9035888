"""The figure of ``benchmarks/spicy.py``."""

from __future__ import annotations

import matplotlib
from spicy_problems import IDA, LOOSE, LOSSES, SOLVERS, TIGHT, Curves

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib import ticker


def draw_figure(curves: Curves, path: str) -> None:
    """Seconds against m and n, log-log, in the manner of the paper's Figures 3 and 4."""
    titles = {
        ("kernels", LOOSE): ("number of kernels m", "n = 200, gap 1e-2"),
        ("kernels", TIGHT): ("number of kernels m", "n = 200, gap 1e-6"),
        ("samples", LOOSE): ("number of samples n", "20 kernels, gap 1e-2"),
    }
    kinds = [kind for kind in titles if any((key[0], key[2]) == kind for key in curves)]
    if not kinds:
        print("no figure: it shows the parts kernels and samples")
        return
    shape = (len(IDA), len(kinds))
    fig, axes = plt.subplots(
        *shape,
        figsize=(4.2 * shape[1], 3.6 * shape[0]),
        squeeze=False,
        sharex="col",
        sharey=True,
        layout="constrained",
    )
    for row, name in enumerate(IDA):
        for column, kind in enumerate(kinds):
            ax = axes[row, column]
            for color, solver in enumerate(SOLVERS):
                for loss, style in zip(LOSSES, ("-", "--"), strict=True):
                    points = curves.get((kind[0], name, kind[1], loss, solver), [])
                    x = [size for size, _ in points]
                    y = [entry.seconds for _, entry in points]
                    look = {"color": f"C{color}", "lw": 2.2 if solver == "spicy" else 1.2}
                    ax.plot(x, y, style, marker="o", ms=3.5, label=f"{solver}, {loss}", **look)
                    late = [(size, e.seconds) for size, e in points if not e.converged]
                    if late:
                        ax.plot(*zip(*late, strict=True), "^", ms=9, mfc="none", color=f"C{color}")
            label, title = titles[kind]
            ax.set(xscale="log", yscale="log", title=f"{name}, {title}")
            ax.set(xlabel=label if row else "", ylabel="" if column else "seconds")
            for axis in (ax.xaxis, ax.yaxis):
                axis.set_major_locator(ticker.LogLocator(subs=(1.0, 3.0)))
                axis.set_major_formatter("{x:,g}")
                axis.set_minor_formatter("")
            ax.grid(alpha=0.3)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    handles.append(plt.Line2D([], [], ls="", marker="^", ms=9, mfc="none", color="gray"))
    fig.legend(
        handles,
        [*labels, "stopped before that gap"],
        loc="outside lower center",
        ncols=5,
        handlelength=3.5,
    )
    fig.savefig(path, dpi=150)
    print(f"\nfigure: {path}")
