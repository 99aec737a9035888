"""The problems: kernel matrices written in NumPy, splits, and a C for all."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_diabetes, load_digits
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from benchmarks.data import load, load_set, signs
from benchmarks.peers.data import CLASSES, NUMBERS, TWO_CLASSES, Data

WIDTHS = tuple(2.0 ** np.arange(-3, 7))
GRID = (0.1, 1.0, 10.0, 100.0)
Kernels = list[list[Any]]


@dataclass(frozen=True)
class Set:
    """Rows, targets and kernels, not yet split; `test_size` is a share or a number of rows."""

    name: str
    kind: str
    rows: NDArray
    y: NDArray
    kernels: Kernels
    test_size: float | int = 0.3

    def split(self, seed: int) -> Data:
        """Return one split: columns standardised by its training rows, C chosen on them."""
        numbers = self.kind == NUMBERS
        train, test = train_test_split(
            np.arange(len(self.y)),
            test_size=self.test_size,
            random_state=seed,
            stratify=None if numbers else self.y,
        )
        rows, y = self.rows, self.y
        if rows.ndim == 2:
            rows = StandardScaler().fit(rows[train]).transform(rows)
        if numbers:
            y = (y - y[train].mean()) / y[train].std()
        grams = np.array([matrix(rows, kernel) for kernel in self.kernels])
        C = choose(grams[:, train[:, None], train].mean(axis=0), y[train], self.kind)
        return Data(self.kind, grams, rows, y, train, test, C, self.kernels)


def matrix(rows: NDArray, kernel: list[Any]) -> NDArray:
    """Return one kernel's matrix over all rows, scaled to unit diagonal."""
    kind, setting, columns = kernel
    if kind == "spectrum":
        K = spectrum(rows, setting)
    else:
        block = rows if columns is None else rows[:, columns]
        if kind == "rbf":
            K = np.exp(-euclidean_distances(block, squared=True) / (2 * setting**2))
        else:
            K = (block @ block.T + 1) ** setting
    scale = np.sqrt(K.diagonal())
    K = K / scale / scale[:, None]
    return (K + K.T) / 2


def spectrum(rows: NDArray, length: int) -> NDArray:
    """Return the products of the counts of all words of one length."""
    words: dict[str, int] = {}
    cells = [
        (i, words.setdefault(row[at : at + length], len(words)))
        for i, row in enumerate(rows)
        for at in range(len(row) - length + 1)
    ]
    counts = np.zeros((len(rows), len(words)))
    np.add.at(counts, tuple(np.array(cells).T), 1)
    return counts @ counts.T


def choose(mean: NDArray, y: NDArray, kind: str) -> float:
    """Return the C of the grid that is best for the mean of the kernels, by 5 folds."""
    if kind == NUMBERS:
        grid = {"alpha": [1 / (2 * C) for C in GRID]}
        search = GridSearchCV(KernelRidge(kernel="precomputed"), grid, cv=5).fit(mean, y)
        return 1 / (2 * search.best_params_["alpha"])
    return GridSearchCV(SVC(kernel="precomputed"), {"C": GRID}, cv=5).fit(mean, y).best_params_["C"]


def whole_and_single(features: int, on_single: tuple[float, ...] = (1.0,)) -> Kernels:
    """Ten widths and three degrees on all columns, and Gaussian kernels on every single one."""
    whole: Kernels = [["rbf", width, None] for width in WIDTHS]
    whole += [["polynomial", degree, None] for degree in (1, 2, 3)]
    return whole + [["rbf", width, [j]] for j in range(features) for width in on_single]


def simplemkl(features: int) -> Kernels:
    """The family of SimpleMKL: 13 kernels on all columns and 13 on every single one."""
    singles = whole_and_single(features, WIDTHS)
    degrees = [["polynomial", degree, [j]] for j in range(features) for degree in (1, 2, 3)]
    return singles + degrees


def on_views(views: list[list[int]]) -> Kernels:
    """Three Gaussian kernels on each view, their widths around the root of its columns."""
    factors = (0.5, 1.0, 2.0)
    return [["rbf", f * len(view) ** 0.5, view] for view in views for f in factors]


def sequences(data_dir: Path | None) -> Set:
    """E. coli promoters from the folder, else random DNA with a planted motif; six spectra."""
    kernels = [["spectrum", length, None] for length in range(1, 7)]
    if data_dir is not None:
        data = load_set("promoters", data_dir)
        return Set("promoters", TWO_CLASSES, np.array(data.X), signs(data), kernels)
    rng = np.random.default_rng(0)
    drawn = ["".join(rng.choice(list("ACGT"), 60)) for _ in range(200)]
    y = np.where(np.arange(200) % 2, 1.0, -1.0)
    first = rng.integers(0, 50, 200)
    planted = [
        s[:at] + "TTCAGGT" + s[at + 7 :] if label > 0 else s
        for s, label, at in zip(drawn, y, first, strict=True)
    ]
    return Set("drawn sequences", TWO_CLASSES, np.array(planted), y, kernels)


def views(data_dir: Path | None) -> Set:
    """Handwritten digits: six feature sets from the folder, else five parts of small images."""
    if data_dir is not None:
        data = load_set("mfeat", data_dir)
        ends = np.cumsum([0] + [part.shape[1] for part in data.X.values()])
        blocks = [list(range(int(a), int(b))) for a, b in pairwise(ends)]
        X, y = np.hstack(list(data.X.values())), data.y.astype(float)
        return Set("mfeat", CLASSES, X, y, on_views(blocks), 0.5)
    X, y = load_digits(return_X_y=True)
    pixels = np.arange(64).reshape(8, 8)
    quarters = [pixels[a : a + 4, b : b + 4] for a in (0, 4) for b in (0, 4)]
    blocks = [block.ravel().tolist() for block in (*quarters, pixels[2:6, 2:6])]
    return Set("digits", CLASSES, X, y.astype(float), on_views(blocks), 0.5)


def diabetes(data_dir: Path | None) -> Set:
    X, y = load_diabetes(return_X_y=True)
    return Set("diabetes", NUMBERS, X, y, whole_and_single(X.shape[1], (0.5, 1.0, 2.0)))


def two_class_table(name: str, family: Any, data_dir: Path | None) -> Set:
    X, y = load(name, data_dir)
    return Set(name, TWO_CLASSES, X, y, family(X.shape[1]))


def sets(full: bool, data_dir: Path | None) -> list[Callable[[Path | None], Set]]:
    """Return what to load: bundled sets, and with a folder the others of a full run."""
    wdbc = partial(two_class_table, "wdbc", whole_and_single)
    if not full:
        return [wdbc, diabetes, sequences]
    sonar = partial(two_class_table, "sonar", simplemkl)
    ionosphere = partial(two_class_table, "ionosphere", whole_and_single)
    return [wdbc, *([sonar, ionosphere] if data_dir else []), views, diabetes, sequences]
