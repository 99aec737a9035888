"""Figures of fitted models: matplotlib axes in and out, colour-blind safe, without pyplot.

Every function takes ``ax``, the axes to draw on, and returns what it drew on; without it there is
a new figure, which ``ax.figure.savefig("weights.png")`` saves.
"""

from __future__ import annotations

from kernelweave.plot.alignment_map import alignment
from kernelweave.plot.c_path import path
from kernelweave.plot.decision_bars import contributions
from kernelweave.plot.fits import convergence, fit_figure, weights
from kernelweave.plot.result_rows import compare, stability

__all__ = [
    "alignment",
    "compare",
    "contributions",
    "convergence",
    "fit_figure",
    "path",
    "stability",
    "weights",
]
