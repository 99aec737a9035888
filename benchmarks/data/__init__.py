"""Real data for the benchmarks: found, checked, and split in one place.

``python -m benchmarks.data [--data-dir DIR]`` says for every set where it was found, or why not.
Routes, in this order: a folder (``--data-dir``
or the environment variable ``KERNELWEAVE_DATA``), scikit-learn itself, OpenML, and wheels on PyPI,
which are read as zip files. What a route brings must have the rows, columns, classes and checksum
of ``sets.toml``, or the next one is tried; rounded values pass, other rows do not.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import StratifiedShuffleSplit
from sklearn.preprocessing import StandardScaler

from benchmarks.data.coding import Features
from benchmarks.data.routes import read_folder, read_openml, read_package
from benchmarks.data.specs import SPECS, Spec

Split = tuple[np.ndarray, np.ndarray]
Route = Callable[[], tuple[Features, np.ndarray]]
# Rounding to three decimals moves a mean by less; a lost decimal point by much more.
_SAME_MEAN = 1e-3


class MissingDataError(RuntimeError):
    """A data set that no route has, with what each of them said."""


@dataclass(frozen=True)
class DataSet:
    """A set as it is, nothing scaled; rows with missing values are left out of tables.

    X is an array, a list of sequences or a dictionary of views, by the kind of its `Spec`; y are
    classes as text, `source` is the route.
    """

    name: str
    kind: str
    X: Features
    y: np.ndarray
    source: str


def load_set(name: str, data_dir: Path | str | None) -> DataSet:
    """Return a set from the first route whose data are right; MissingDataError has all reasons."""
    if name not in SPECS:
        raise ValueError(f"no data set {name!r}; there are {', '.join(SPECS)}")
    spec, reasons = SPECS[name], []
    for source, read in _routes(name, spec, data_dir):
        try:
            X, y = read()
            if spec.kind == "table":
                complete = np.isfinite(X).all(axis=1)
                X, y = X[complete], y[complete]
            if source != "drawn anew":
                check(spec, X, y)
            return DataSet(name, spec.kind, X, y, source)
        except (OSError, LookupError, ValueError) as error:
            reasons.append(f"{source}: {error}")
    note = f" ({spec.note})" if spec.note else ""
    raise MissingDataError(f"{name} is missing; {'; '.join(reasons)}{note}")


def load(name: str, data_dir: Path | str | None) -> tuple[np.ndarray, np.ndarray]:
    """Return dense features without constant columns or missing rows, and labels -1 and +1."""
    spec = SPECS.get(name)
    if spec is not None and (spec.kind != "table" or spec.positive is None):
        raise ValueError(f"{name} is not a table of two classes; use load_set")
    data = load_set(name, data_dir)
    return data.X[:, np.ptp(data.X, axis=0) > 0], signs(data)


def load_standardised(name: str, data_dir: Path | str | None) -> tuple[np.ndarray, np.ndarray]:
    X, y = load(name, data_dir)
    return StandardScaler().fit_transform(X), y


def available(
    names: Iterable[str], data_dir: Path | str | None, read: Callable[..., Any] = load
) -> Iterator[tuple[str, Any]]:
    """Yield the names of sets and what `read` returns for each; say which ones are left out."""
    for name in names:
        try:
            found = read(name, data_dir)
        except MissingDataError as error:
            print(f"left out: {error}", flush=True)
        else:
            yield name, found


def signs(data: DataSet) -> np.ndarray:
    """Return the classes as -1 and +1 (covertype: lodgepole pine against the rest)."""
    return np.where(data.y == SPECS[data.name].positive, 1.0, -1.0)


def splits(
    y: np.ndarray, n_splits: int, seed: int, *, most: int | None = None, share: float = 0.7
) -> list[Split]:
    """Return rows for training and rows for testing, the same for every contestant.

    Classes keep their shares. With `most`, each split first draws that many rows at random.
    """
    n = len(y) if most is None else min(most, len(y))
    n_train = round(share * n)
    plan = StratifiedShuffleSplit(
        n_splits, train_size=n_train, test_size=n - n_train, random_state=seed
    )
    return [(np.sort(train), np.sort(test)) for train, test in plan.split(np.zeros(len(y)), y)]


def check(spec: Spec, X: Features, y: np.ndarray) -> None:
    """Compare data with what they must be; ValueError says what was expected and what came."""
    names, counts = np.unique(y, return_counts=True)
    came = dict(zip(names.tolist(), counts.tolist(), strict=True))
    if came != dict(spec.classes):
        raise ValueError(f"expected the classes {_text(spec.classes)}; got {_text(came)}")
    rows = {len(part) for part in X.values()} if spec.kind == "views" else {len(X)}
    if rows != {spec.rows}:
        raise ValueError(f"expected {spec.rows} rows; got {', '.join(map(str, sorted(rows)))}")
    if spec.kind == "sequences":
        if checksum(X) != spec.checksum:
            raise ValueError(f"expected {spec.checksum:.0f} letters in all; got {checksum(X):.0f}")
        return
    shape = {key: part.shape[1] for key, part in X.items()} if spec.kind == "views" else X.shape[1]
    if shape != spec.columns:
        raise ValueError(f"expected columns: {spec.columns}; got {shape}")
    mean = checksum(X)
    if abs(mean - spec.checksum) > _SAME_MEAN * max(abs(spec.checksum), 0.1):
        raise ValueError(f"expected values with a mean of {spec.checksum:.6g}; got {mean:.6g}")


def checksum(X: Features) -> float:
    """Return the mean of all entries, or the number of letters of sequences."""
    if isinstance(X, list):
        return float(sum(map(len, X)))
    parts = list(X.values()) if isinstance(X, dict) else [X]
    return float(sum(part.sum() for part in parts) / sum(part.size for part in parts))


def make_ringnorm(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Draw Breiman's ringnorm: N(0, 4 I) against N(2 / sqrt(20), I) in 20 dimensions."""
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(n, 20)), rng.integers(0, 2, n)
    return np.where(y[:, None] == 1, X + 2.0 / np.sqrt(20.0), 2.0 * X), y


def _routes(name: str, spec: Spec, data_dir: Path | str | None) -> Iterator[tuple[str, Route]]:
    if data_dir:
        yield "folder", lambda: read_folder(name, spec, Path(data_dir))
    if name == "wdbc":
        X, y = load_breast_cancer(return_X_y=True)
        yield "scikit-learn", lambda: (X, np.where(y == 1, "B", "M"))
    yield "OpenML", lambda: read_openml(name, spec)
    yield "PyPI", lambda: read_package(name, spec)
    if name == "ringnorm":
        X, y = make_ringnorm(spec.rows)
        yield "drawn anew", lambda: (X, y.astype(str))


def _text(counts: object) -> str:
    shown = ", ".join(f"{key}: {count}" for key, count in sorted(dict(counts).items()))  # type: ignore[call-overload]
    return shown if len(shown) < 160 else shown[:160] + " ..."


def describe(name: str, data_dir: Path | str | None) -> tuple[str, int, str, int, str]:
    """Return the row of a set in the table of all: where it is, or why it is missing."""
    spec = SPECS[name]
    try:
        found = load_set(name, data_dir).source
    except MissingDataError as error:
        found = str(error).removeprefix(f"{name} is ")
    columns = "sequences" if spec.kind == "sequences" else str(spec.width)
    if not isinstance(spec.columns, int):
        columns += f" in {len(spec.columns)} views"
    return name, spec.rows, columns, len(spec.classes), found
