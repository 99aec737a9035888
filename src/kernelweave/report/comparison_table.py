"""The first home of :mod:`kernelweave.inspect.comparison_table`."""

from __future__ import annotations

from kernelweave.inspect.comparison_table import Comparison, ComparisonRow, SolverFit

__all__ = ["Comparison", "ComparisonRow", "SolverFit"]
