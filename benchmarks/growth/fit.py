"""Fits of one solver at growing sizes, each in a process of its own; see ``__main__.py``.

The processes are forks of one that has loaded the compiled code, so that they start at once and
none of them has memory of another fit.
"""

import json
import os
import resource
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from benchmarks.papers.strings import simulate
from benchmarks.problems import two_classes
from benchmarks.timing import ONE_THREAD, best_of, forget_peak, memory_mb, run_apart
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
    return run_apart("growth.fit", json.dumps(job), env=ONE_THREAD)


def _run(solver: str, sizes: list[list[int]], limit: float, seed: int) -> None:
    warnings.simplefilter("ignore", ConvergenceWarning)
    # Compiled code is loaded here: a tenth of the work is enough for that.
    make_fit(solver, 200 if solver != STRINGS else 500, 20, seed)()
    for n, m in sizes:
        found = _in_a_fork(solver, n, m, limit, seed)
        if not found:
            return
        print(found, flush=True)


def _in_a_fork(solver: str, n: int, m: int, limit: float, seed: int) -> str:
    """Measure one fit; nothing if it was ended at the limit."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        # The clock of the limit also counts what the data took.
        resource.setrlimit(resource.RLIMIT_CPU, (int(limit) + 2, int(limit) + 2))
        with os.fdopen(writing, "w") as out:
            json.dump(_measure(solver, n, m, seed), out)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        text = answer.read()
    os.waitpid(child, 0)
    return text


def _measure(solver: str, n: int, m: int, seed: int) -> dict[str, Any]:
    fit = make_fit(solver, n, m, seed)
    forget_peak()
    before = memory_mb("VmRSS")
    peaks = []

    def work() -> Any:
        model = fit()
        # Only the first fit starts from memory that nobody has used.
        peaks.append(memory_mb("VmHWM") - before)
        return model

    seconds, model = best_of(work, 3, time.process_time, short=SHORT)
    found = {"n": n, "m": m, "seconds": seconds, "mb": peaks[0]}
    return {**found, "gap": getattr(model, "gap_", None), "iterations": len(model.history_)}


if __name__ == "__main__":
    _run(**json.loads(sys.argv[1]))
