"""Figures of fitted models: matplotlib axes in and out, colour-blind safe."""

from __future__ import annotations

from kernelweave.plot.c_path import plot_path
from kernelweave.plot.fit_figure import fit_figure
from kernelweave.plot.gap_curve import plot_convergence
from kernelweave.plot.kernel_weights import plot_weights

__all__ = ["fit_figure", "plot_convergence", "plot_path", "plot_weights"]
