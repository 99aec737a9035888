"""`kernelweave demo`: one fit on real data, compared with what one would do without MKL."""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
from rich.console import Console
from rich.table import Table
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from kernelweave.cli.output import shown, weights_table
from kernelweave.cli.progress import CountProgress, FitProgress
from kernelweave.errors import InterruptedFitWarning
from kernelweave.estimators import MKLClassifier
from kernelweave.inspect.ranking import rank_kernels
from kernelweave.kernels import Kernel, Samples, resolve, simplemkl_family
from kernelweave.plot import fit_figure

TOP_KERNELS = 8  # in the terminal
FIGURE_KERNELS = 12


class Row(NamedTuple):
    """One line of the table: a fitted model and the seconds it took."""

    label: str
    model: Any
    seconds: float


def run_demo(*, seed: int, C: float, tol: float, figure: Path) -> None:
    """Fit, compare, print, draw."""
    console = Console(highlight=False)
    data = load_breast_cancer()
    table = pl.DataFrame(data.data, schema=data.feature_names.tolist(), orient="row")
    X_train, X_test, y_train, y_test = train_test_split(
        table, data.target, test_size=0.3, stratify=data.target, random_state=seed
    )
    scaler = StandardScaler().set_output(transform="polars").fit(X_train)
    X_train, X_test = scaler.transform(X_train), scaler.transform(X_test)
    kernels = resolve([simplemkl_family(scale=False)], Samples(X_train))
    console.print(
        f"[bold]breast cancer data[/]: {len(y_train)} training and {len(y_test)} test samples, "
        f"{len(kernels)} kernels\n"
    )

    def fit(label: str, some: list[Kernel], **settings: Any) -> Row:
        start = time.perf_counter()
        model = MKLClassifier(some, C=C, **settings).fit(X_train, y_train)
        return Row(label, model, time.perf_counter() - start)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with FitProgress(console, "learning the weights", tol) as progress:
            fit("", kernels, tol=tol, callbacks=(progress,))
        # Timed a second time: the first may have had to compile.
        rows = [
            fit("learnt weights", kernels, tol=tol),
            fit("equal weights", kernels, solver="uniform"),
            _best_single(console, fit, kernels),
        ]
    for text in {str(entry.message): None for entry in caught}:
        console.print(f"  [yellow]warning:[/] {shown(text)}")
    console.print()
    console.print(_accuracy_table(rows, X_test, y_test))
    console.print(
        f"  [dim]best single kernel: {shown(rows[2].model.kernel_names_[0])}, "
        "lowest training objective[/]\n"
    )
    ranked = rank_kernels(rows[0].model)
    console.print(weights_table([(k.name, k.weight) for k in ranked], TOP_KERNELS))
    fit_figure(rows[0].model, top=FIGURE_KERNELS).savefig(figure, dpi=120)
    console.print(f"\n  figure saved to [bold]{shown(str(figure))}[/]", soft_wrap=True)


def _best_single(console: Console, fit: Any, kernels: list[Kernel]) -> Row:
    """Fit every kernel alone; the best is that of the lowest objective, as for MKL."""
    title = f"trying {len(kernels)} kernels one by one"
    rows: list[Row] = []
    with CountProgress(console, title, len(kernels)) as bar, warnings.catch_warnings():
        # Ctrl-C ends a fit with a warning; here it must end all of them.
        warnings.simplefilter("error", InterruptedFitWarning)
        try:
            for kernel in kernels:
                rows.append(fit("best single kernel", [kernel]))
                bar.advance_to(len(rows))
        except InterruptedFitWarning:
            raise KeyboardInterrupt from None
    best = min(rows, key=lambda row: row.model.objective_)
    return best._replace(seconds=sum(row.seconds for row in rows))


def _accuracy_table(rows: list[Row], X_test: pl.DataFrame, y_test: Any) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2))
    table.add_column("  combination")
    for heading in ("test accuracy", "kernels", "gap", "seconds"):
        table.add_column(heading, justify="right")
    total = len(y_test)
    for row in rows:
        right = int((row.model.predict(X_test) == y_test).sum())
        table.add_row(
            f"  {row.label}",
            f"{100 * right / total:.1f} % ({right}/{total})",
            str(len(rank_kernels(row.model))),
            f"{row.model.gap_:.1e}",
            f"{row.seconds:.2f}",
            style="bold green" if row is rows[0] else None,
        )
    return table
