"""What a fitted model has to tell: text and figures."""

from __future__ import annotations

from kernelweave.report.summary import summary_text

__all__ = ["summary_text"]
