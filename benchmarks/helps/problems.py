"""Which sets, their arrays for one split, and the kernels on them."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.preprocessing import StandardScaler

from benchmarks.data import SPECS, DataSet, load_set, signs, splits
from benchmarks.problems import kernels_of_views
from kernelweave.kernels import Kernel, Samples, Spectrum, WeightedDegree, simplemkl_family

# Rows of a split: 400 to learn from, which are 70 per cent.
MOST = 572
SETS = {
    "tables": (
        "sonar", "ionosphere", "pima", "liver", "wpbc", "wdbc", "breast", "heart", "vote",
        "australian", "cod_rna", "covertype",
    ),
    "sequences": ("promoters", "splice_junction", "c_elegans", "nucleosome"),
    "views": ("mfeat", "tcga_breast", "flowers17", "protein_fold"),
}  # fmt: skip
QUICK = ("heart", "liver", "wdbc", "promoters", "tcga_breast", "mfeat")


@dataclass(frozen=True)
class Problem:
    """One split of one set, the same for every contestant.

    `train` and `test` are arrays, standardised on the training rows, with the columns of all views
    side by side, or lists of sequences.
    """

    train: Any
    test: Any
    y_train: np.ndarray
    y_test: np.ndarray
    # What MKL combines.
    kernels: list[Kernel]
    # For sequences, kernels that one would take without MKL; else empty.
    alone: list[Kernel]
    # So many of the kernels, the first, are on all columns.
    whole: int
    # Whether the balanced accuracy counts: one class has more than twice the rows of another.
    balanced: bool


@lru_cache(maxsize=1)
def _read(name: str, data_dir: Path | None) -> DataSet:
    return load_set(name, data_dir)


def make_problem(name: str, data_dir: Path | None, split: int, seed: int) -> Problem:
    """Return the split of that number; it is the same however many there are."""
    data = _read(name, data_dir)
    y = data.y if SPECS[name].positive is None else signs(data)
    train, test = splits(y, split + 1, seed, most=MOST)[split]
    counts = np.unique(y, return_counts=True)[1]
    make = {"table": _table, "sequences": _sequences, "views": _views}[data.kind]
    X_train, X_test, *kernels = make(data.X, train, test)
    balanced = bool(counts.max() > 2 * counts.min())
    return Problem(X_train, X_test, y[train], y[test], *kernels, balanced)


def _table(X: np.ndarray, train: np.ndarray, test: np.ndarray) -> tuple[Any, ...]:
    X = X[:, X[train].std(axis=0) > 0]
    scaler = StandardScaler().fit(X[train])
    X_train = scaler.transform(X[train])
    kernels = simplemkl_family(scale=False).expand(Samples(X_train))
    whole = len(simplemkl_family(scale=False, per_feature=False).expand(Samples(X_train)))
    return X_train, scaler.transform(X[test]), kernels, [], whole


def _sequences(X: Sequence[str], train: np.ndarray, test: np.ndarray) -> tuple[Any, ...]:
    """K-mers anywhere, and in their places where all sequences are of one length."""
    spectra: list[Any] = [Spectrum(k, normalize=True) for k in range(1, 7)]
    kernels, alone = list(spectra), list(spectra)
    rows = [X[i] for i in train], [X[i] for i in test]
    if len({len(sequence) for sequence in X}) == 1:
        kernels += WeightedDegree(8).by_length().expand(Samples(rows[0]))
        alone += [WeightedDegree(degree) for degree in (2, 4, 6, 8)]
    return *rows, kernels, alone, len(kernels)


def _views(X: dict[str, np.ndarray], train: np.ndarray, test: np.ndarray) -> tuple[Any, ...]:
    """Gaussians of median width on every view; half and twice that, too, where views are few."""
    columns, kernels = kernels_of_views(X, train, (0.5, 1.0, 2.0) if len(X) <= 4 else (1.0,))
    return columns[train], columns[test], kernels, [], len(kernels)
