"""The code that the documentation shows: its Python and its commands."""

from __future__ import annotations

import contextlib
import re
import sys
import types
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kernelweave.combine import Combination
from kernelweave.kernels import Kernel
from kernelweave.losses import Loss
from kernelweave.regularizers import Regularizer
from kernelweave.solvers.base import SOLVERS

__all__ = ["ROOT", "commands", "pages_with_code", "run_page"]

ROOT = Path(__file__).resolve().parents[2]
BLOCK = r"^```{}\n(.*?)^```$"
PYTHON, CONSOLE = (
    re.compile(BLOCK.format(kind), re.DOTALL | re.MULTILINE) for kind in ("python", "console")
)
REGISTRIES = (Combination.registry, Loss.registry, Regularizer.registry, SOLVERS)


def python_lines(page: Path) -> str:
    """The Python of a page, every line where it stands in the page, the rest left empty."""
    text = page.read_text(encoding="utf-8")
    lines = [""] * text.count("\n")
    for match in PYTHON.finditer(text):
        first = text.count("\n", 0, match.start(1))
        block = match.group(1).splitlines()
        lines[first : first + len(block)] = block
    return "\n".join(lines)


def pages_with_code() -> list[Path]:
    """Pages written by hand that have at least one block."""
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
    return [page for page in pages if python_lines(page).strip()]


@contextlib.contextmanager
def registries_restored() -> Iterator[None]:
    """Forget afterwards the classes that a page defines: they join registries by themselves."""
    kernels, named = list(Kernel.registry), [dict(registry) for registry in REGISTRIES]
    try:
        yield
    finally:
        Kernel.registry[:] = kernels
        for registry, before in zip(REGISTRIES, named, strict=True):
            registry.clear()
            registry.update(before)


def run_page(page: Path) -> dict[str, Any]:
    """Run a page's Python in a module of its own, and return its names.

    Tracebacks have the page's line numbers.
    """
    module = types.ModuleType(f"page_{page.stem}")
    sys.modules[module.__name__] = module  # where dataclasses and pickle look for it
    try:
        with registries_restored(), warnings.catch_warnings():
            warnings.simplefilter("error", FutureWarning)
            exec(compile(python_lines(page), str(page), "exec"), module.__dict__)
        return module.__dict__
    finally:
        del sys.modules[module.__name__]


def commands(page: Path) -> list[str]:
    """The lines of a page's console blocks that call kernelweave, continued lines joined.

    Other lines are output, or install something.
    """
    blocks = "".join(CONSOLE.findall(page.read_text(encoding="utf-8")))
    lines = blocks.replace("\\\n", " ").splitlines()
    return [line.removeprefix("$ ") for line in lines if re.match(r"(\$ )?kernelweave ", line)]
