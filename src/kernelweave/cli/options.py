"""Options that several commands share, with their help texts."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from kernelweave.cli import complete

__all__ = [
    "COption",
    "CacheMB",
    "DataFile",
    "Jobs",
    "Json",
    "Kernels",
    "Loss",
    "Matrix",
    "Quiet",
    "Regularizer",
    "Seed",
    "Target",
    "Task",
    "TaskOption",
    "TestSize",
    "TimeLimit",
    "Tol",
    "View",
]


class Task(StrEnum):
    """What is to be learnt."""

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
Target = Annotated[
    str | None,
    typer.Option(
        "--target",
        "-t",
        metavar="COLUMN",
        help="The column to be predicted.",
        autocompletion=complete.columns,
        rich_help_panel="Data",
    ),
]
TaskOption = Annotated[
    Task,
    typer.Option("--task", help="Left out: found out from the target.", rich_help_panel="Data"),
]
Kernels = Annotated[
    str,
    typer.Option(
        "--kernels",
        "-k",
        metavar="NAME|FILE.toml",
        help="A family of kernels, or a file of them.",
        autocompletion=complete.families,
        rich_help_panel="Model",
    ),
]
View = Annotated[
    list[str] | None,
    typer.Option(
        "--view",
        metavar="NAME=COLUMNS",
        help="Columns that belong together: 'clinical=age,sex', 'genes=gene_*', 'x=a:f'. Repeat.",
        rich_help_panel="Data",
    ),
]
Matrix = Annotated[
    list[str] | None,
    typer.Option(
        "--kernel-matrix",
        metavar="NAME=FILE",
        help="A kernel matrix over all rows. Repeat.",
        rich_help_panel="Data",
    ),
]
COption = Annotated[
    float | None,
    typer.Option(
        "--C",
        help="Weight of the loss, as in an SVM; of a standardised target in regression. "
        "\\[default: 1]",
        rich_help_panel="Model",
    ),
]
Loss = Annotated[
    str | None,
    typer.Option(
        help="hinge, squared_hinge, logistic, ...; in regression epsilon_insensitive (errors below "
        "0.1 standard deviations are free) or squared.",
        rich_help_panel="Model",
    ),
]
Regularizer = Annotated[
    str | None,
    typer.Option(
        help="simplex (few kernels), lp_ball (all of them), l1, entropy, ...",
        rich_help_panel="Model",
    ),
]
Tol = Annotated[
    float | None,
    typer.Option(
        help="Relative duality gap to reach; 0 is what float64 can resolve. \\[default: 1e-3]",
        rich_help_panel="Effort",
    ),
]
TestSize = Annotated[
    float,
    typer.Option(
        min=0, help="Share (or number) of the rows that is held out.", rich_help_panel="Data"
    ),
]
TimeLimit = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="End a fit after 90s, 5min, 1.5h.", rich_help_panel="Effort"),
]
CacheMB = Annotated[
    float | None,
    typer.Option(help="Megabytes for kernel matrices. \\[default: 1000]", rich_help_panel="Effort"),
]
Jobs = Annotated[
    int | None, typer.Option(help="Threads. \\[default: all cores]", rich_help_panel="Effort")
]
Seed = Annotated[int, typer.Option(min=0, help="Seed of the split.", rich_help_panel="Data")]
Json = Annotated[
    bool, typer.Option("--json", help="The result as one JSON document.", rich_help_panel="Output")
]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="Only errors and results.", rich_help_panel="Output")
]
