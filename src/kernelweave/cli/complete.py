"""What the shell offers when Tab is pressed. Nothing heavy is imported: it has to be quick."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path

import typer

__all__ = ["columns", "families", "solver_list", "solvers"]

SOLVERS = (
    "auto",
    "active-set",
    "align",
    "bayes",
    "mwu",
    "pgd",
    "silp",
    "silp-chunking",
    "spg",
    "spicy",
    "uniform",
)
FAMILIES = ("default", "simplemkl", "spicymkl", "mwumkl", "rbf", "linear", "polynomial")
_HEADER_BYTES = 1 << 16


def solvers(incomplete: str) -> list[str]:
    """Return solvers that begin with what was typed."""
    return [name for name in SOLVERS if name.startswith(incomplete)]


def solver_list(incomplete: str) -> list[str]:
    """Complete the last of several solvers with commas between."""
    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in solvers(last) if name != "auto"]


def families(incomplete: str) -> list[str]:
    """Return families of kernels that begin with what was typed, and kernel files."""
    files = [path.as_posix() for path in Path().glob("*.toml")]
    return [name for name in (*FAMILIES, *files) if name.startswith(incomplete)]


def columns(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the columns of the data file that begin with what was typed."""
    path = ctx.params.get("data")
    if path is None:
        return []
    return [name for name in _header(Path(path)) if name.startswith(incomplete)]


def _header(path: Path) -> Iterator[str]:
    """Yield the names in the first line of a table of text; nothing for other files."""
    kind = "".join(path.suffixes[-2:]).lower().removesuffix(".gz")
    if not path.is_file() or not kind.endswith((".csv", ".tsv", ".txt")):
        return
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rb") as file:
        first = file.read(_HEADER_BYTES).splitlines()[:1]
    line = first[0].decode("utf-8", "replace") if first else ""
    separator = max("\t;,", key=line.count)
    for name in line.split(separator):
        yield name.strip().strip('"')
