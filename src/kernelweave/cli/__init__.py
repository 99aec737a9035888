"""The `kernelweave` command."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line; an error becomes one line on stderr and exit code 1."""
    from kernelweave.cli.app import app, report_error

    try:
        app(prog_name="kernelweave")
    except Exception as error:
        sys.exit(report_error(error))
