"""One family of generated problems for any n and m, and the fits of every solver on them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.datasets import make_classification
from sklearn.preprocessing import StandardScaler
from strings import simulate

from kernelweave import BayesianMKLClassifier, MKLClassifier
from kernelweave.kernels import RBF, Kernel, WeightedDegree

__all__ = ["SOLVERS", "STRINGS", "TOL", "make_fit", "subset_kernels", "table_data"]

Array = np.ndarray
# As in benchmarks/strings.py: one weighted degree kernel, cut into one for each position.
STRINGS = "strings"
SOLVERS = ("active-set", "silp", "silp-chunking", "spicy", "spg", "mwu", "uniform", "bayes")
TOL = 1e-3
_COLUMNS, _DEGREE = 20, 8


def table_data(n: int, seed: int = 0) -> tuple[Array, Array]:
    """Two classes in 20 standardised columns, 8 of them informative, a tenth of labels wrong."""
    X, y = make_classification(
        n, _COLUMNS, n_informative=8, flip_y=0.1, class_sep=0.8, random_state=seed
    )
    return StandardScaler().fit_transform(X), y


def subset_kernels(m: int, seed: int = 0) -> list[Kernel]:
    """Gaussians on 2 to 8 random columns; widths from 0.35 to 2.8 in units of sqrt(columns)."""
    rng = np.random.default_rng(seed)
    kernels: list[Kernel] = []
    for _ in range(m):
        columns = np.sort(rng.permutation(_COLUMNS)[: rng.integers(2, 9)])
        width = float(np.sqrt(len(columns)) * 2.0 ** rng.uniform(-1.5, 1.5))
        kernels.append(RBF(width=width).on(columns.tolist()))
    return kernels


def make_fit(solver: str, n: int, m: int, seed: int = 0) -> Callable[[], Any]:
    """Return what fits this solver on n samples and m kernels, on one thread.

    `"bayes"` ends at its own tolerance, all others at a relative duality gap of 1e-3. `"strings"`
    are n sequences of m letters under m kernels, one for each position, which no bank keeps as
    matrices (linadd); the solver is that of ``solver="auto"``.
    """
    if solver == STRINGS:
        X, y = simulate(n, seed, length=m)
        kernels: Any = WeightedDegree(_DEGREE).by_position()
        return lambda: MKLClassifier(kernels, tol=TOL, n_jobs=1).fit(X, y)
    X, y = table_data(n, seed)
    kernels = subset_kernels(m, seed)
    if solver == "bayes":
        return lambda: BayesianMKLClassifier(kernels, n_jobs=1).fit(X, y)
    return lambda: MKLClassifier(kernels, solver=solver, tol=TOL, n_jobs=1).fit(X, y)
