"""Data sets from a folder: csv tables, libsvm lines, FASTA, and NumPy archives of views."""

from __future__ import annotations

import bz2
import gzip
import re
from pathlib import Path

import numpy as np
import pandas as pd
from data_coding import Features, code_table, name_classes
from data_specs import Spec
from scipy import sparse
from sklearn.datasets import load_svmlight_file


def read_folder(name: str, spec: Spec, folder: Path) -> tuple[Features, np.ndarray]:
    """Return features and classes of a set; FileNotFoundError if it is not there."""
    paths = [folder / file for file in spec.files]
    for path in paths:
        if not path.is_file():
            raise FileNotFoundError(f"no {path.name} in the folder")
    file = paths[0].name
    if spec.kind == "views":
        return _views(paths[0])
    if ".fasta" in file:
        X, labels = _fasta(paths[0])
    elif ".libsvm" in file:
        X, labels = _libsvm(paths, spec.width)
    elif file.endswith(".npz"):
        X, labels = _covertype(paths[0])
    else:
        X, labels = _csv(name, spec, paths[0])
    return X, name_classes(labels, spec.labels)


def _csv(name: str, spec: Spec, path: Path) -> tuple[Features, np.ndarray]:
    table = pd.read_csv(path).drop(columns=["split", "patient"], errors="ignore")
    labels = table.pop("target").to_numpy()
    if spec.kind == "sequences":
        return table["sequence"].tolist(), labels
    return code_table(name, table), labels


def _libsvm(paths: list[Path], width: int) -> tuple[np.ndarray, np.ndarray]:
    parts = [load_svmlight_file(str(path), n_features=width) for path in paths]
    return sparse.vstack([X for X, _ in parts]).toarray(), np.concatenate([y for _, y in parts])


def _covertype(path: Path) -> tuple[np.ndarray, np.ndarray]:
    parts = np.load(path)
    one_hot = [np.eye(k)[parts[key]] for key, k in (("wilderness", 4), ("soil", 40))]
    return np.column_stack([parts["numeric"], *one_hot]), parts["target"]


def _fasta(path: Path) -> tuple[list[str], np.ndarray]:
    """Return sequences, and the numbers after ``label=`` or ``fold=`` in their headers."""
    unpack = bz2.decompress if path.suffix == ".bz2" else gzip.decompress
    records = unpack(path.read_bytes()).decode().split(">")[1:]
    split = [record.split("\n", 1) for record in records]
    labels = [re.search(r"(?:label|fold)=(-?\d+)", head) for head, _ in split]
    if not all(labels):
        raise ValueError(f"{path.name} has a header without label= or fold=")
    return (
        [body.replace("\n", "").strip() for _, body in split],
        np.array([found.group(1) for found in labels if found]),
    )


def _views(path: Path) -> tuple[Features, np.ndarray]:
    """Return the views, named without a prefix, and the classes."""
    held = dict(np.load(path))
    y = held.pop("y" if "y" in held else "train_y")
    # Of an archive in two parts only the first has all views.
    if any(key.startswith("train_") for key in held):
        held = {key: held[key] for key in held if key.startswith("train_")}
    views = {
        re.sub("^(X_|train_)", "", key): np.asarray(value, dtype=float)
        for key, value in sorted(held.items())
        if value.ndim == 2
    }
    return views, name_classes(y, {})
