"""Fits of one solver at growing sizes, each in a process of its own; see growth.py.

The processes are forks of one that has loaded the compiled code, so that they start at once and
none of them has memory of another fit.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

from growth_problem import make_fit
from memory_use import forget_peak, memory_mb
from sklearn.exceptions import ConvergenceWarning

__all__ = ["ONE_THREAD", "fit_series"]

ONE_THREAD = {name: "1" for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")}
# Fits of fewer seconds are made three times, and the shortest time counts.
SHORT = 0.5


def fit_series(
    solver: str, sizes: list[tuple[int, int]], limit: float, seed: int
) -> list[dict[str, float]]:
    """Return n, m, processor seconds and megabytes of fits at these (n, m), one after the other.

    The series ends before a fit that takes more than `limit` processor seconds.
    """
    job = {"solver": solver, "sizes": sizes, "limit": limit, "seed": seed}
    done = subprocess.run(
        [sys.executable, str(Path(__file__).resolve()), json.dumps(job)],
        stdout=subprocess.PIPE,
        env={**os.environ, **ONE_THREAD},
        text=True,
        check=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def _run(solver: str, sizes: list[list[int]], limit: float, seed: int) -> None:
    warnings.simplefilter("ignore", ConvergenceWarning)
    # Compiled code is loaded here: a tenth of the work is enough for that.
    make_fit(solver, 200 if solver != "strings" else 500, 20, seed)()
    for n, m in sizes:
        found = _in_a_fork(solver, n, m, limit, seed)
        if found is None:
            return
        print(json.dumps(found), flush=True)


def _in_a_fork(solver: str, n: int, m: int, limit: float, seed: int) -> dict[str, Any] | None:
    """Measure one fit; None if it was ended at the limit."""
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
    return None if not text else dict(json.loads(text))


def _measure(solver: str, n: int, m: int, seed: int) -> dict[str, Any]:
    fit = make_fit(solver, n, m, seed)
    forget_peak()
    before = memory_mb("VmRSS")
    seconds, peak = float("inf"), 0.0
    for _ in range(3):
        began = time.process_time()
        model = fit()
        seconds = min(seconds, time.process_time() - began)
        # Only the first fit starts from memory that nobody has used.
        peak = peak or memory_mb("VmHWM") - before
        if seconds > SHORT:
            break
    return {
        "n": n,
        "m": m,
        "seconds": seconds,
        "mb": peak,
        "gap": getattr(model, "gap_", None),
        "iterations": len(model.history_),
    }


if __name__ == "__main__":
    _run(**json.loads(sys.argv[1]))
