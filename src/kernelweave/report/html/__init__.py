"""The report as one HTML file: Python gathers what it says, a template lays it out."""

from __future__ import annotations

from kernelweave.report.html.write import write_html

__all__ = ["write_html"]
