"""`kernelweave demo`: one fit on real data, compared with what one would do without MKL."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from kernelweave.cli.progress import CountProgress, FitProgress
from kernelweave.errors import InterruptedFitWarning, InvalidInputError
from kernelweave.estimators import MKLClassifier
from kernelweave.kernels import Kernel, OnColumns, Samples, Selection, simplemkl_family
from kernelweave.report.learnt import rank_kernels
from kernelweave.report.plots import fit_figure

__all__ = ["run_demo"]

COMPILE_SECONDS = 20
TOP_KERNELS = 8
BAR_WIDTH = 24


@dataclass(frozen=True)
class Split:
    """Standardised training and test samples."""

    X_train: NDArray[np.float64]
    X_test: NDArray[np.float64]
    y_train: NDArray[np.int64]
    y_test: NDArray[np.int64]
    feature_names: list[str]


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    label: str
    accuracy: float
    kernels: str
    gap: str
    seconds: str


def load_split(seed: int) -> Split:
    """Return scikit-learn's breast cancer data, 70 % for training, stratified."""
    data = load_breast_cancer()
    X_train, X_test, y_train, y_test = train_test_split(
        data.data, data.target, test_size=0.3, stratify=data.target, random_state=seed
    )
    scaler = StandardScaler().fit(X_train)
    return Split(
        scaler.transform(X_train),
        scaler.transform(X_test),
        y_train,
        y_test,
        [str(name) for name in data.feature_names],
    )


def simplemkl_kernels(split: Split) -> list[Kernel]:
    """Return the SimpleMKL family, with the names of the features in those of the kernels.

    Kernels find the names by themselves in a data frame; the demo does without pandas.
    """
    whole = simplemkl_family(per_feature=False, scale=False).expand(Samples(split.X_train))
    features = [Selection(j, label=name) for j, name in enumerate(split.feature_names)]
    return [*whole, *(OnColumns(kernel, feature) for feature in features for kernel in whole)]


def run_demo(*, seed: int, C: float, tol: float, figure: Path) -> None:
    """Fit, compare, print, draw."""
    figure = _check_figure(figure)
    console = Console(highlight=False)
    split = load_split(seed)
    kernels = simplemkl_kernels(split)
    console.print(
        f"[bold]kernelweave demo[/]  breast cancer data: {len(split.y_train)} training and "
        f"{len(split.y_test)} test samples, {split.X_train.shape[1]} features; "
        f"{len(kernels)} kernels (SimpleMKL family)\n"
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model, seconds = _fit_learnt(console, kernels, split, C, tol)
        rows = [
            Row(
                "learnt weights",
                model.score(split.X_test, split.y_test),
                f"{len(rank_kernels(model))} of {len(kernels)}",
                f"{model.gap_:.1e}",
                f"{seconds:.2f}",
            ),
            _uniform_row(kernels, split, C),
        ]
        single, name = _best_single_row(console, kernels, split, C)
        rows.append(single)
    for warning in {str(entry.message): entry for entry in caught}.values():
        console.print(f"  [yellow]warning:[/] {escape(str(warning.message))}")
    console.print()
    console.print(_accuracy_table(rows))
    console.print(
        f"  [dim]best single kernel: {escape(name)}, "
        "the one with the lowest objective on the training data[/]\n"
    )
    console.print(_weights_table(model))
    fit_figure(model).savefig(figure, dpi=110)
    console.print(f"\n  figure saved to [bold]{escape(str(figure))}[/]", soft_wrap=True)


def _check_figure(figure: Path) -> Path:
    """Refuse before the work what cannot be saved after it."""
    allowed = (".png", ".pdf", ".svg")
    if figure.suffix.lower() not in allowed:
        raise InvalidInputError(f"--figure must end in {', '.join(allowed)}; got {str(figure)!r}.")
    if not figure.absolute().parent.is_dir():
        raise InvalidInputError(f"--figure: there is no folder {str(figure.absolute().parent)!r}.")
    return figure.absolute()


def _fit_learnt(
    console: Console, kernels: list[Kernel], split: Split, C: float, tol: float
) -> tuple[Any, float]:
    """Fit with a progress bar; a fit that had to compile is timed again without."""
    with FitProgress(console, "learning the weights", tol, COMPILE_SECONDS) as progress:
        model = MKLClassifier(kernels, C=C, tol=tol, callbacks=(progress,))
        start = time.perf_counter()
        model.fit(split.X_train, split.y_train)
        seconds = time.perf_counter() - start
    if progress.compile_seconds > 0:
        model = MKLClassifier(kernels, C=C, tol=tol)
        start = time.perf_counter()
        model.fit(split.X_train, split.y_train)
        seconds = time.perf_counter() - start
    return model, seconds


def _uniform_row(kernels: list[Kernel], split: Split, C: float) -> Row:
    start = time.perf_counter()
    model = MKLClassifier(kernels, C=C, solver="uniform").fit(split.X_train, split.y_train)
    seconds = time.perf_counter() - start
    accuracy = model.score(split.X_test, split.y_test)
    return Row("equal weights", accuracy, f"{len(kernels)} of {len(kernels)}", "", f"{seconds:.2f}")


def _best_single_row(
    console: Console, kernels: list[Kernel], split: Split, C: float
) -> tuple[Row, str]:
    """Fit every kernel alone and keep the best by the criterion that MKL minimises too."""
    best: Any = None
    start = time.perf_counter()
    title = f"trying {len(kernels)} kernels one by one"
    with CountProgress(console, title, len(kernels)) as bar, warnings.catch_warnings():
        # Ctrl-C ends a fit with a warning; here it must end all of them.
        warnings.simplefilter("error", InterruptedFitWarning)
        for kernel in kernels:
            model = MKLClassifier([kernel], C=C).fit(split.X_train, split.y_train)
            if best is None or model.objective_ < best.objective_:
                best = model
            bar.advance()
    seconds = time.perf_counter() - start
    accuracy = best.score(split.X_test, split.y_test)
    row = Row("best single kernel", accuracy, f"1 of {len(kernels)}", "", f"{seconds:.2f}")
    return row, best.kernel_names_[0]


def _accuracy_table(rows: list[Row]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2))
    table.add_column("  combination")
    for heading in ("test accuracy", "kernels", "gap", "seconds"):
        table.add_column(heading, justify="right")
    for position, row in enumerate(rows):
        table.add_row(
            f"  {row.label}",
            f"{100 * row.accuracy:.1f} %",
            row.kernels,
            row.gap,
            row.seconds,
            style="bold green" if position == 0 else None,
        )
    return table


def _weights_table(model: Any) -> Table:
    ranked = rank_kernels(model)
    table = Table(box=None, pad_edge=False, padding=(0, 2))
    table.add_column("  kernels that carry the weight")
    table.add_column("weight", justify="right")
    table.add_column("")
    heaviest = ranked[0].weight
    for kernel in ranked[:TOP_KERNELS]:
        bar = "█" * max(1, round(BAR_WIDTH * kernel.weight / heaviest))
        table.add_row(f"  {escape(kernel.name)}", f"{kernel.weight:.3f}", f"[blue]{bar}[/]")
    rest = ranked[TOP_KERNELS:]
    if rest:
        weight = sum(kernel.weight for kernel in rest)
        table.add_row(f"  [dim]{len(rest)} more[/]", f"[dim]{weight:.3f}[/]", "")
    return table
