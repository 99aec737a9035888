"""`kernelweave inspect`: what a model file says of itself. Nothing in it is run."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from kernelweave.cli.output import Output, carrying, weights_table
from kernelweave.model_files import read_header

__all__ = ["run_inspect"]


def run_inspect(path: Path, top: int, out: Output) -> int:
    """Print the header of a model file; returns the exit code."""
    header = read_header(path)
    if out.json:
        size = path.stat().st_size
        out.document({"command": "inspect", "file": path, "bytes": size, **asdict(header)})
        return 0
    inside = "" if header.estimator in ("", header.model) else f"{header.estimator} in a "
    out.line("model", f"{inside}{header.model}, written {header.created}")
    out.line("file", f"{path.stat().st_size / 1e6:.2f} MB, format {header.format}")
    out.line("versions", ", ".join(f"{name} {v}" for name, v in header.versions.items()))
    for name, value in header.about.items():
        if value is not None and name not in ("n_rows", "columns"):
            out.line(name.replace("_", " "), _words(value))
    out.line("certificate", _words(header.certificate))
    out.line("kernels", carrying(len(header.kernels), header.n_kernels))
    out.show()
    out.show(weights_table([(k["name"], k["weight"]) for k in header.kernels], top))
    return 0


def _words(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name.replace('_', ' ')} {_words(item)}" for name, item in value.items())
    return f"{value:.4g}" if isinstance(value, float) else str(value)
