"""The papers' data sets for benchmarks: from a folder if there is one, else from OpenML.

The folder is ``--data-dir`` or the environment variable ``KERNELWEAVE_DATA``; it holds
``NAME.csv.gz`` (header, last column `target`, a column `split` is left out), ``a9a.libsvm.gz`` and
``covertype.npz``. Two sets of the IDA repository are not on OpenML as they were: without the folder
ringnorm is drawn anew, and splice (``splice_ida.csv.gz``) is coded from the sequences there.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.datasets import fetch_openml, load_svmlight_file

# Name here -> (name, version) on OpenML.
OPENML = {
    "ionosphere": ("ionosphere", 1),
    "sonar": ("sonar", 1),
    "wdbc": ("wdbc", 1),
    "pima": ("diabetes", 1),
    "liver": ("liver-disorders", 1),
    "australian": ("Australian", 4),
    "wpbc": ("wpbc", 1),
    "adult": ("a9a", 1),
    "cod_rna": ("codrna", 1),
    "covertype": ("covertype", 3),
    "splice": ("splice", 1),
    "breast": ("breast-w", 1),
    "heart": ("heart-statlog", 1),
}
FILES = {
    "splice": "splice_ida",
    "breast": "breast_cancer_wisconsin",
    "heart": "heart_statlog",
}


def add_data_dir(parser: argparse.ArgumentParser) -> None:
    """Add the option that every benchmark on real data has."""
    parser.add_argument(
        "--data-dir",
        type=Path,
        default=os.environ.get("KERNELWEAVE_DATA"),
        help="folder with the data files; without it they are fetched from OpenML",
    )


def load(name: str, data_dir: Path | str | None) -> tuple[np.ndarray, np.ndarray]:
    """Return dense features without constant columns or missing rows, and labels -1 and +1."""
    X, y = _from_folder(name, Path(data_dir)) if data_dir else _without_folder(name)
    complete = np.isfinite(X).all(axis=1)
    X, y = X[complete], y[complete]
    # Covertype: lodgepole pine against the rest, as in the papers.
    positive = y.astype(int) == 2 if name == "covertype" else y == np.unique(y)[-1]
    return X[:, X.std(axis=0) > 0], np.where(positive, 1.0, -1.0)


def make_ringnorm(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Draw Breiman's ringnorm: N(0, 4 I) against N(2 / sqrt(20), I) in 20 dimensions."""
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(n, 20)), rng.integers(0, 2, n)
    return np.where(y[:, None] == 1, X + 2.0 / np.sqrt(20.0), 2.0 * X), y


def _from_folder(name: str, folder: Path) -> tuple[np.ndarray, np.ndarray]:
    if name == "adult":
        sparse, y = load_svmlight_file(str(folder / "a9a.libsvm.gz"))
        return sparse.toarray(), y
    if name == "covertype":
        parts = np.load(folder / "covertype.npz")
        one_hot = [np.eye(k)[parts[key]] for key, k in (("wilderness", 4), ("soil", 40))]
        return np.column_stack([parts["numeric"], *one_hot]), parts["target"]
    table = pd.read_csv(folder / f"{FILES.get(name, name)}.csv.gz").drop(
        columns="split", errors="ignore"
    )
    return table.iloc[:, :-1].to_numpy(float), table.iloc[:, -1].to_numpy()


def _without_folder(name: str) -> tuple[np.ndarray, np.ndarray]:
    if name == "ringnorm":
        return make_ringnorm(7400)
    title, version = OPENML[name]
    if name == "splice":
        bunch = fetch_openml(title, version=version, as_frame=True)
        return code_bases(bunch.data), np.where(bunch.target == "N", 1.0, -1.0)
    bunch = fetch_openml(title, version=version, as_frame=False)
    X = bunch.data.toarray() if hasattr(bunch.data, "toarray") else bunch.data
    return np.asarray(X, dtype=float), np.asarray(bunch.target)


def code_bases(table: pd.DataFrame) -> np.ndarray:
    """A, C, G, T as 1 to 4, as the IDA repository has them; other letters are missing values."""
    bases = table.filter(like="attribute").apply(lambda column: column.astype(str).str.strip())
    return bases.apply(lambda column: column.map({"A": 1, "C": 2, "G": 3, "T": 4})).to_numpy(float)
