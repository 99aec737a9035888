"""What a fitted model has to say, as numbers and text."""

from __future__ import annotations

from kernelweave.inspect.alignment import Alignment, kernel_alignment
from kernelweave.inspect.explanation import Contribution, Explanation
from kernelweave.inspect.kernel_info import KernelInfo, describe_kernels
from kernelweave.inspect.ranking import KernelWeight, find_estimator, is_bayesian, rank_kernels
from kernelweave.inspect.summary import html_repr, learnt_line, summary_text

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
