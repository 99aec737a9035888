"""Which sets, their arrays for one split, and the kernels on them."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import pairwise_distances
from sklearn.preprocessing import StandardScaler

from benchmarks.data import SPECS, DataSet, load_set, signs, splits
from kernelweave.kernels import RBF, Kernel, Samples, Spectrum, WeightedDegree, simplemkl_family

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
    X_train, X_test = _standardised(X, train, test)
    kernels = simplemkl_family(scale=False).expand(Samples(X_train))
    whole = len(simplemkl_family(scale=False, per_feature=False).expand(Samples(X_train)))
    return X_train, X_test, kernels, [], whole


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
    factors = (0.5, 1.0, 2.0) if len(X) <= 4 else (1.0,)
    kernels: list[Any] = []
    parts: list[tuple[np.ndarray, np.ndarray]] = []
    first = 0
    for name, view in sorted(X.items()):
        parts.append(_standardised(view, train, test))
        here = parts[-1][0]
        median = np.median(pairwise_distances(here)[np.triu_indices(len(here), 1)])
        columns = slice(first, first + here.shape[1])
        first += here.shape[1]
        kernels += [RBF(width=float(f * median)).on(columns, label=name) for f in factors]
    X_train, X_test = (np.column_stack(blocks) for blocks in zip(*parts, strict=True))
    return X_train, X_test, kernels, [], len(kernels)


def _standardised(
    X: np.ndarray, train: np.ndarray, test: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    X = X[:, X[train].std(axis=0) > 0]
    scaler = StandardScaler().fit(X[train])
    return scaler.transform(X[train]), scaler.transform(X[test])
