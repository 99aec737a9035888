"""Options that several commands share, with their help texts, and what the shell completes."""

from __future__ import annotations

import gzip
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

# What the shell offers when Tab is pressed; nothing heavy is imported, as it has to be quick.
SOLVERS: tuple[str, ...] = ("auto", "active-set", "align", "bayes", "mwu", "pgd")
SOLVERS += ("silp", "silp-chunking", "spg", "spicy", "uniform")
FAMILIES = ("default", "simplemkl", "spicymkl", "mwumkl", "rbf", "linear", "polynomial")
_HEADER_LETTERS = 1 << 16


def solvers(incomplete: str) -> list[str]:
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
    """Return the columns of the data file, if it is text, that begin with what was typed."""
    path = Path(ctx.params.get("data") or "")
    packed = path.suffix.lower() == ".gz"
    kind = (path.with_suffix("") if packed else path).suffix.lower()
    if not path.is_file() or kind not in (".csv", ".tsv", ".txt"):
        return []
    with (gzip.open if packed else open)(path, "rt", encoding="utf-8", errors="replace") as file:
        line = file.readline(_HEADER_LETTERS)
    names = line.split(max("\t;,", key=line.count))
    return [name for name in (n.strip().strip('"') for n in names) if name.startswith(incomplete)]


# One panel of the help texts each.
_data = partial(typer.Option, rich_help_panel="Data")
model = partial(typer.Option, rich_help_panel="Model")
_effort = partial(typer.Option, rich_help_panel="Effort")
output = partial(typer.Option, rich_help_panel="Output")


class Task(StrEnum):
    auto = "auto"
    classification = "classification"
    regression = "regression"
    outlier = "outlier"


DataFile = Annotated[
    Path,
    typer.Argument(
        metavar="DATA", help="CSV, TSV, Parquet, Arrow, libsvm (also .gz), NPY, NPZ or FASTA."
    ),
]
ModelFile = Annotated[Path, typer.Argument(metavar="MODEL", help="A file that 'fit' saved.")]
Target = Annotated[
    str | None,
    _data(
        "--target",
        "-t",
        metavar="COLUMN",
        help="The column to be predicted.",
        autocompletion=columns,
    ),
]
TaskOption = Annotated[Task, _data("--task", help="Left out: found out from the target.")]
Kernels = Annotated[
    str,
    model(
        "--kernels",
        "-k",
        metavar="NAME|FILE.toml",
        help="A family of kernels, or a file of them.",
        autocompletion=families,
    ),
]
View = Annotated[
    list[str] | None,
    _data(
        metavar="NAME=COLUMNS",
        help="Columns that belong together: 'clinical=age,sex', 'genes=gene_*', 'x=a:f'. Repeat.",
    ),
]
Matrix = Annotated[
    list[str] | None,
    _data(metavar="NAME=FILE", help="A kernel matrix over all rows. Repeat."),
]
COption = Annotated[
    float | None,
    model(
        "--C",
        help="Weight of the loss, as in an SVM; of a standardised target in regression. "
        "\\[default: 1]",
    ),
]
Loss = Annotated[
    str | None,
    model(
        help="hinge, squared_hinge, logistic, ...; in regression epsilon_insensitive (errors below "
        "0.1 standard deviations are free) or squared.",
    ),
]
Regularizer = Annotated[
    str | None, model(help="simplex (few kernels), lp_ball (all of them), l1, entropy, ...")
]
Tol = Annotated[
    float | None,
    _effort(help="Relative duality gap to reach; 0 is what float64 can resolve. \\[default: 1e-3]"),
]
TestSize = Annotated[float, _data(min=0, help="Share (or number) of the rows that is held out.")]
TimeLimit = Annotated[str | None, _effort(metavar="TIME", help="End a fit after 90s, 5min, 1.5h.")]
CacheMB = Annotated[float | None, _effort(help="Megabytes for kernel matrices. \\[default: 1000]")]
Jobs = Annotated[int | None, _effort(help="Threads. \\[default: all cores]")]
Seed = Annotated[int, _data(min=0, help="Seed of the split.")]
Figure = Annotated[
    Path, typer.Option(dir_okay=False, help="Where to save the figure (PNG, PDF or SVG).")
]
Json = Annotated[bool, output("--json", help="The result as one JSON document.")]
Quiet = Annotated[bool, output("--quiet", "-q", help="Only errors and results.")]
