"""`kernelweave demo`: one fit on real data, compared with what one would do without MKL."""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from kernelweave.cli.output import shown, weights_table
from kernelweave.cli.progress import CountProgress, FitProgress
from kernelweave.errors import InterruptedFitWarning
from kernelweave.estimators import MKLClassifier
from kernelweave.inspect.learnt import rank_kernels
from kernelweave.kernels import Kernel, OnColumns, Samples, Selection, simplemkl_family
from kernelweave.plot import fit_figure

__all__ = ["run_demo"]

TOP_KERNELS = 8  # in the terminal
FIGURE_KERNELS = 12


class Split(NamedTuple):
    """Standardised training and test samples."""

    X_train: NDArray[np.float64]
    X_test: NDArray[np.float64]
    y_train: NDArray[np.int64]
    y_test: NDArray[np.int64]
    feature_names: list[str]


class Row(NamedTuple):
    """One line of the table: a fitted model and the seconds it took."""

    label: str
    model: Any
    seconds: float


def load_split(seed: int) -> Split:
    """Return scikit-learn's breast cancer data, 70 % for training, stratified."""
    data = load_breast_cancer()
    X_train, X_test, y_train, y_test = train_test_split(
        data.data, data.target, test_size=0.3, stratify=data.target, random_state=seed
    )
    scaler = StandardScaler().fit(X_train)
    names = [str(name) for name in data.feature_names]
    return Split(scaler.transform(X_train), scaler.transform(X_test), y_train, y_test, names)


def simplemkl_kernels(split: Split) -> list[Kernel]:
    """Return the SimpleMKL family, with the names of the features in those of the kernels.

    Kernels find the names by themselves in a data frame; the demo does without pandas.
    """
    whole = simplemkl_family(per_feature=False, scale=False).expand(Samples(split.X_train))
    features = [Selection(j, label=name) for j, name in enumerate(split.feature_names)]
    return [*whole, *(OnColumns(kernel, feature) for feature in features for kernel in whole)]


def run_demo(*, seed: int, C: float, tol: float, figure: Path) -> None:
    """Fit, compare, print, draw."""
    console = Console(highlight=False)
    split = load_split(seed)
    kernels = simplemkl_kernels(split)
    console.print(
        f"[bold]breast cancer data[/]: {len(split.y_train)} training and {len(split.y_test)} test "
        f"samples, {len(kernels)} kernels\n"
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        learnt = _fit_learnt(console, kernels, split, C, tol)
        equal = _fit(kernels, split, "equal weights", C=C, solver="uniform")
        rows = [learnt, equal, _fit_singles(console, kernels, split, C)]
    for text in {str(entry.message): None for entry in caught}:
        console.print(f"  [yellow]warning:[/] {shown(text)}")
    console.print()
    console.print(_accuracy_table(rows, split))
    console.print(
        f"  [dim]best single kernel: {shown(rows[2].model.kernel_names_[0])}, "
        "lowest training objective[/]\n"
    )
    ranked = rank_kernels(learnt.model)
    console.print(weights_table([(k.name, k.weight) for k in ranked], TOP_KERNELS))
    fit_figure(learnt.model, top=FIGURE_KERNELS).savefig(figure, dpi=120)
    console.print(f"\n  figure saved to [bold]{shown(str(figure))}[/]", soft_wrap=True)


def _fit(kernels: list[Kernel], split: Split, label: str, **settings: Any) -> Row:
    start = time.perf_counter()
    model = MKLClassifier(kernels, **settings).fit(split.X_train, split.y_train)
    return Row(label, model, time.perf_counter() - start)


def _fit_learnt(console: Console, kernels: list[Kernel], split: Split, C: float, tol: float) -> Row:
    """Fit with a progress bar; a fit that had to compile is timed again without."""
    label, settings = "learnt weights", {"C": C, "tol": tol}
    with FitProgress(console, "learning the weights", tol) as progress:
        row = _fit(kernels, split, label, callbacks=(progress,), **settings)
    return row if progress.compile_seconds == 0 else _fit(kernels, split, label, **settings)


def _fit_singles(console: Console, kernels: list[Kernel], split: Split, C: float) -> Row:
    """Fit every kernel alone; the best is that of the lowest objective, as for MKL."""
    title = f"trying {len(kernels)} kernels one by one"
    rows = []
    with CountProgress(console, title, len(kernels)) as bar, warnings.catch_warnings():
        # Ctrl-C ends a fit with a warning; here it must end all of them.
        warnings.simplefilter("error", InterruptedFitWarning)
        try:
            for kernel in kernels:
                rows.append(_fit([kernel], split, "best single kernel", C=C))
                bar.advance()
        except InterruptedFitWarning:
            raise KeyboardInterrupt from None
    best = min(rows, key=lambda row: row.model.objective_)
    return best._replace(seconds=sum(row.seconds for row in rows))


def _accuracy_table(rows: list[Row], split: Split) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2))
    table.add_column("  combination")
    for heading in ("test accuracy", "kernels", "gap", "seconds"):
        table.add_column(heading, justify="right")
    total = len(split.y_test)
    for row in rows:
        right = int(np.sum(row.model.predict(split.X_test) == split.y_test))
        table.add_row(
            f"  {row.label}",
            f"{100 * right / total:.1f} % ({right}/{total})",
            str(len(rank_kernels(row.model))),
            f"{row.model.gap_:.1e}",
            f"{row.seconds:.2f}",
            style="bold green" if row is rows[0] else None,
        )
    return table
