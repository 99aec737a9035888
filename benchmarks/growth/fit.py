"""Fits of one solver at growing sizes, each in a process of its own; see ``__main__.py``.

The processes are forks of one that has loaded the compiled code, so that they start at once and
none of them has memory of another fit.
"""

import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.problems import simulate, two_classes
from benchmarks.timing import ONE_THREAD, apart, fit_cost, forked, limit_seconds
from kernelweave import BayesianMKLClassifier, MKLClassifier
from kernelweave.kernels import RBF, Kernel, WeightedDegree

# One weighted degree kernel, cut into one for each position.
STRINGS = "strings"
SOLVERS = ("active-set", "silp", "silp-chunking", "spicy", "spg", "mwu", "uniform", "bayes")
TOL = 1e-3
# Fits of fewer seconds are made three times, and the shortest time counts.
SHORT = 0.5


def subset_kernels(m: int, seed: int = 0) -> list[Kernel]:
    """Gaussians on 2 to 8 random columns; widths from 0.35 to 2.8 in units of sqrt(columns)."""
    rng = np.random.default_rng(seed)
    kernels: list[Kernel] = []
    for _ in range(m):
        columns = np.sort(rng.permutation(20)[: rng.integers(2, 9)])
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
        return lambda: MKLClassifier(WeightedDegree(8).by_position(), tol=TOL, n_jobs=1).fit(X, y)
    X, y = two_classes(n, seed)
    kernels = subset_kernels(m, seed)
    if solver == "bayes":
        return lambda: BayesianMKLClassifier(kernels, n_jobs=1).fit(X, y)
    return lambda: MKLClassifier(kernels, solver=solver, tol=TOL, n_jobs=1).fit(X, y)


def fit_series(solver: str, sizes: list[tuple[int, int]], limit: float, seed: int) -> list[Any]:
    """Return n, m, processor seconds and megabytes of fits at these (n, m), one after the other.

    The series ends before a fit that takes more than `limit` processor seconds.
    """
    job = {"solver": solver, "sizes": sizes, "limit": limit, "seed": seed}
    return apart(fits_in_forks, env={**os.environ, **ONE_THREAD}, **job)


def fits_in_forks(solver: str, sizes: list[list[int]], limit: float, seed: int) -> list[Any]:
    # Compiled code is loaded here: a tenth of the work is enough for that.
    make_fit(solver, 200 if solver != STRINGS else 500, 20, seed)()
    found = []
    for n, m in sizes:
        answer = forked(lambda n=n, m=m: measure(solver, n, m, seed, limit))
        if "error" in answer:
            raise RuntimeError(answer["error"])
        if "late" in answer:
            break
        found.append(answer["value"])
    return found


def measure(solver: str, n: int, m: int, seed: int, limit: float) -> dict[str, Any]:
    limit_seconds(limit + 1)  # It also counts what the data take.
    seconds, memory, _ = fit_cost(make_fit(solver, n, m, seed), SHORT, time.process_time)
    return {"n": n, "m": m, "seconds": seconds, "mb": memory}
