"""What a fitted model has to say, as numbers and text."""

from __future__ import annotations

from kernelweave.describe.learnt import KernelWeight, find_estimator, is_bayesian, rank_kernels
from kernelweave.describe.summary import summary_text

__all__ = ["KernelWeight", "find_estimator", "is_bayesian", "rank_kernels", "summary_text"]
