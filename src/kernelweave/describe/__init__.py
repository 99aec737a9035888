"""What a fitted model has to say, as numbers and text."""

from __future__ import annotations

from kernelweave.describe.alignment import Alignment, kernel_alignment
from kernelweave.describe.explanation import Contribution, Explanation
from kernelweave.describe.kernel_info import KernelInfo, describe_kernels
from kernelweave.describe.learnt import KernelWeight, find_estimator, is_bayesian, rank_kernels
from kernelweave.describe.notebook import html_repr
from kernelweave.describe.summary import learnt_line, summary_text

__all__ = [
    "Alignment",
    "Contribution",
    "Explanation",
    "KernelInfo",
    "KernelWeight",
    "describe_kernels",
    "find_estimator",
    "html_repr",
    "is_bayesian",
    "kernel_alignment",
    "learnt_line",
    "rank_kernels",
    "summary_text",
]
