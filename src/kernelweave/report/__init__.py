"""What a fitted model has to tell: text and figures."""

from __future__ import annotations

from kernelweave.report.bootstrap import stability
from kernelweave.report.replicates import Stability
from kernelweave.report.summary import summary_text

__all__ = ["Stability", "stability", "summary_text"]
