"""Problems that several benchmarks share."""

from typing import Any

import numpy as np
from sklearn.datasets import make_classification
from sklearn.preprocessing import StandardScaler

from kernelweave.combine import WeightedSum
from kernelweave.losses import Hinge
from kernelweave.problem import Problem
from kernelweave.regularizers import Simplex

Array = np.ndarray


def two_classes(n: int, seed: int = 0, **options: Any) -> tuple[Array, Array]:
    """20 standardised columns, 8 of them informative, a tenth of the labels -1 and +1 wrong."""
    options = {"n_informative": 8, "flip_y": 0.1, "class_sep": 0.8, **options}
    X, y = make_classification(n, 20, random_state=seed, **options)
    return StandardScaler().fit_transform(X), np.where(y > 0, 1.0, -1.0)


def problem_on(bank: Any, y: Array, C: float = 1.0, **parts: Any) -> Problem:
    """A problem of one task; hinge loss and weighted sum on the simplex unless told otherwise."""
    parts = {"loss": Hinge(), "regularizer": Simplex(), "combination": WeightedSum(), **parts}
    return Problem(bank, y[None], np.full((1, len(y)), C), **parts)
