"""Problems that several benchmarks share."""

from typing import Any

import numpy as np
from sklearn.datasets import make_classification
from sklearn.metrics import pairwise_distances
from sklearn.preprocessing import StandardScaler

from kernelweave.combine import WeightedSum
from kernelweave.kernels import RBF, Kernel
from kernelweave.losses import Hinge
from kernelweave.problem import Problem
from kernelweave.regularizers import Simplex

Array = np.ndarray
MOTIF = "TTTTCAGGTAAG"


def two_classes(n: int, seed: int = 0, **options: Any) -> tuple[Array, Array]:
    """20 standardised columns, 8 of them informative, a tenth of the labels -1 and +1 wrong."""
    options = {"n_informative": 8, "flip_y": 0.1, "class_sep": 0.8, **options}
    X, y = make_classification(n, 20, random_state=seed, **options)
    return StandardScaler().fit_transform(X), np.where(y > 0, 1.0, -1.0)


def problem_on(bank: Any, y: Array, C: float = 1.0, **parts: Any) -> Problem:
    """A problem of one task; hinge loss and weighted sum on the simplex unless told otherwise."""
    parts = {"loss": Hinge(), "regularizer": Simplex(), "combination": WeightedSum(), **parts}
    return Problem(bank, y[None], np.full((1, len(y)), C), **parts)


def kernels_of_views(
    views: dict[str, Array], train: Array, factors: tuple[float, ...]
) -> tuple[Array, list[Kernel]]:
    """Columns of all views, standardised on the training rows, and Gaussians on every view.

    Their widths are the median distance of training rows, times each of the factors.
    """
    blocks, kernels, first = [], [], 0
    for name, view in sorted(views.items()):
        view = np.asarray(view, dtype=float)
        view = view[:, view[train].std(axis=0) > 0]
        blocks.append(StandardScaler().fit(view[train]).transform(view))
        distances = pairwise_distances(blocks[-1][train])
        median = float(np.median(distances[np.triu_indices(len(train), 1)]))
        columns = slice(first, first + view.shape[1])
        kernels += [RBF(width=f * median).on(columns, label=name) for f in factors]
        first = columns.stop
    return np.column_stack(blocks), kernels


def simulate(n: int, seed: int = 0, length: int = 141) -> tuple[Array, Array]:
    """Random DNA; half of it with a motif in the middle, a quarter of its letters changed."""
    rng = np.random.default_rng(seed)
    letters = rng.integers(0, 4, (n, length), dtype=np.uint8)
    y = np.where(rng.random(n) < 0.5, 1, -1)
    moved = rng.integers(-3, 4, n) * (rng.random(n) < 0.3)
    first = length // 2 - len(MOTIF) // 2 + moved
    rows = np.flatnonzero(y == 1)
    for j, letter in enumerate(MOTIF):
        kept = rows[rng.random(len(rows)) > 0.25]
        letters[kept, first[kept] + j] = "ACGT".index(letter)
    return np.frombuffer(b"ACGT", np.uint8)[letters].view(f"S{length}").ravel(), y
