"""The samples a command works on: a file, its target, what part is held out, and how it scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from scipy import sparse
from sklearn.metrics import mean_absolute_error, r2_score
from sklearn.model_selection import train_test_split

from kernelweave.arrays import Array, Index
from kernelweave.errors import InvalidInputError
from kernelweave.reading import Table, read_matrix, read_table
from kernelweave.validation import some_of, unknown_name

# A target of whole numbers has classes if it has at most so many different ones.
_MOST_CLASSES = 20
# Up to so many it might have been meant to.
_MAYBE_CLASSES = 100
_SHOWN = 8  # names in a line
_DENSE_BYTES = 2 * 2**30


@dataclass(frozen=True)
class Data:
    """Rows with a known target, and what was found out about them."""

    path: Path
    X: Any  # A polars.DataFrame or a CSR matrix, without the target.
    y: Array | None
    columns: list[str]
    target: str | None
    task: str
    rows: Index  # Where the rows stand in the file, from 0.
    n_rows: int  # How many rows the file has.
    about: list[tuple[str, str]]  # What people should know, with a label each.

    @property
    def is_table(self) -> bool:
        """Whether the columns have names and types."""
        return isinstance(self.X, pl.DataFrame)


def load_data(path: Path, target: str | None, task: str, dense: bool) -> Data:
    """Read a file and find its target."""
    table = read_table(path)
    n, width = table.data.shape
    about = [("data", f"{path.name}: {n:,} rows, {width:,} columns ({table.kind})")]
    about += [("note", text) for text in table.notes]
    X, labels, target = _take_target(table, target)
    columns = [name for name in table.columns if name != target]
    if dense and sparse.issparse(X):
        if 8 * n * len(columns) > _DENSE_BYTES:
            raise InvalidInputError(
                "views, kernel matrices and kernel files need the columns by name, and this sparse "
                f"file would take {8 * n * len(columns) / 2**30:.1f} GiB as a table. Use --kernels "
                "with the name of a family alone."
            )
        X = pl.DataFrame(X.toarray(), schema=columns, orient="row")
    rows = np.arange(n)
    if task == "outlier":
        return Data(path, X, None, columns, target, task, rows, n, about)
    if labels is None or target is None:
        raise InvalidInputError(
            "which column is to be predicted? Give --target COLUMN, or --task outlier to learn "
            f"what is usual. Columns: {some_of(table.columns, _SHOWN)}."
        )
    missing = np.array([value is None or value != value for value in labels])
    if missing.any():
        about.append(("note", f"{missing.sum():,} rows have no {target} and are left out"))
        rows = np.flatnonzero(~missing)
        X, labels = X[rows], labels[rows]
    if not len(rows):
        raise InvalidInputError(f"no row of {path.name} has a value of {target!r}.")
    is_text, distinct = labels.dtype == object, len(np.unique(labels))
    whole = not is_text and bool(np.all(labels == np.rint(labels)))
    if task == "auto":
        few = distinct <= min(_MOST_CLASSES, max(2, len(labels) // 5))
        task = "classification" if is_text or (whole and few) else "regression"
        if task == "regression" and distinct <= _MAYBE_CLASSES < len(labels):
            text = f"{target} is taken as a number; --task classification if it names classes"
            about.append(("note", text))
    if task == "regression":
        y, told = _as_numbers(labels, target)
    else:
        y, told = _as_classes(labels, target, is_text, whole)
    about.append(("target", f"{target}: {task}, {told}"))
    return Data(path, X, y, columns, target, task, rows, n, about)


def _as_numbers(labels: Array, target: str) -> tuple[Array, str]:
    """Return the target of a regression, and a description."""
    if labels.dtype == object:
        raise InvalidInputError(
            f"regression needs numbers, but column {target!r} holds text such as {labels[0]!r}. "
            "Leave out --task, or use --task classification."
        )
    y = labels.astype(np.float64)
    if not np.all(np.isfinite(y)):
        raise InvalidInputError(f"column {target!r} must be finite; got {y[~np.isfinite(y)][0]}.")
    return y, f"from {y.min():.4g} to {y.max():.4g}"


def _as_classes(labels: Array, target: str, is_text: bool, whole: bool) -> tuple[Array, str]:
    """Return the target of a classification, and a description."""
    if not is_text and not whole:
        raise InvalidInputError(
            f"column {target!r} holds numbers with fractions, such as {labels[0]:g}, and no "
            "classes. Leave out --task, or use --task regression."
        )
    y = labels.astype(str if is_text else np.int64)
    classes, counts = np.unique(y, return_counts=True)
    if len(classes) < 2:
        raise InvalidInputError(
            f"every row has the same {target!r}, {classes[0]!s}: there is nothing to tell apart."
        )
    if counts.min() < 2:
        rare = classes[counts.argmin()]
        raise InvalidInputError(
            f"class {str(rare)!r} of {target!r} has one row only; each class needs two or more. Is "
            "it a number to be predicted (--task regression)?"
        )
    shown = [f"{c} {k:,}" for c, k in zip(classes, counts, strict=True)]
    return y, f"{len(classes)} classes ({some_of(shown, _SHOWN)})"


def split_rows(data: Data, test_size: float, seed: int) -> tuple[Index, Index]:
    """Return the rows to learn from and those held out; each class keeps its share.

    `test_size` is a share, or a number of rows if it is 1 or more; 0 holds out nothing.
    """
    n = data.X.shape[0]
    every = np.arange(n)
    if test_size == 0:
        return every, every[:0]
    size = int(test_size) if test_size >= 1 and test_size == int(test_size) else test_size
    try:
        train, test = train_test_split(
            every,
            test_size=size,
            random_state=seed,
            stratify=data.y if data.task == "classification" else None,
        )
    except ValueError as error:
        raise InvalidInputError(
            f"--test-size {test_size:g} cannot split these {n} rows: {error}"
        ) from error
    return np.sort(train), np.sort(test)


def read_matrices(texts: Sequence[str], shape: tuple[int | None, int]) -> dict[str, Any]:
    """Read kernel matrices given as NAME=FILE."""
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, file = text.partition("=")
        if not (name and equals and file):
            raise InvalidInputError(f"--kernel-matrix must be NAME=FILE; got {text!r}.")
        if name in found:
            raise InvalidInputError(f"--kernel-matrix: {name!r} is given twice.")
        K = read_matrix(Path(file))
        rows = shape[1] if shape[0] is None else shape[0]
        if K.shape != (rows, shape[1]):
            raise InvalidInputError(
                f"--kernel-matrix {name}: {file} has shape {K.shape}, but {(rows, shape[1])} is "
                "needed: one row for each sample and one column for each sample of the fit, in "
                "the order of the data files."
            )
        found[name] = K
    return found


def _take_target(table: Table, target: str | None) -> tuple[Any, Any, str | None]:
    """Return (columns without the target, target, its name)."""
    labels = table.target
    if labels is not None and target in (None, "target"):
        return table.data, labels, "target"
    if target is None and table.kind == "npz" and "y" in table.columns:
        target = "y"
    if target is None:
        return table.data, None, None
    if target not in table.columns:
        raise unknown_name("column", target, table.columns)
    data: Any = table.data
    if data.shape[1] == 1:
        raise InvalidInputError(f"the file has no other column than {target!r} to learn from.")
    if isinstance(data, pl.DataFrame):
        column = data[target]
        if not column.dtype.is_numeric():  # Text, categories and truth values as text.
            items = [None if value is None else str(value) for value in column.to_list()]
            return data.drop(target), np.array(items, dtype=object), target
        return data.drop(target), column.to_numpy(), target
    place = table.columns.index(target)
    rest = [j for j in range(data.shape[1]) if j != place]
    return data[:, rest], data[:, [place]].toarray()[:, 0], target


class Scores(NamedTuple):
    """Numbers by name, and a line that says them."""

    numbers: dict[str, float]
    text: str


def score(predicted: Array, y: Array | None, y_train: Array | None) -> Scores:
    """Compare predictions with the truth, and that with a guess from the training targets.

    There are no targets in outlier detection.
    """
    n = len(predicted)
    if y is None or y_train is None:
        outside = int(np.sum(predicted == -1))
        return Scores(
            {"samples": n, "outside": outside / n},
            f"{100 * outside / n:.1f} % of {n:,} samples are called outliers ({outside:,})",
        )
    if y.dtype.kind == "f":
        r2 = float(r2_score(y, predicted, force_finite=False)) if np.ptp(y) > 0 else float("nan")
        absolute = float(mean_absolute_error(y, predicted))
        guess = float(np.mean(np.abs(y - np.median(y_train))))
        return Scores(
            {"samples": n, "r2": r2, "mean_absolute_error": absolute, "guess": guess},
            f"R2 {r2:.3f}; errors of {absolute:.4g} on average over {n:,} samples (the median "
            f"alone: {guess:.4g})",
        )
    right = int(np.sum(predicted == y))
    classes, counts = np.unique(y_train, return_counts=True)
    guess = float(np.mean(y == classes[counts.argmax()]))
    return Scores(
        {"samples": n, "accuracy": right / n, "guess": guess},
        f"{100 * right / n:.1f} % right ({right:,} of {n:,}; the commonest class alone gives "
        f"{100 * guess:.1f} %)",
    )
