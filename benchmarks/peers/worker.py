"""Run contestants of one library, each in a process of its own, bound to one core.

The library's module is imported once, in an environment that has it; every contestant is then a
fork of that process. After so many seconds of processor time on one split the system ends a
contestant; after a third of that on the first split the others are left out.
"""

import gc
import importlib
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.peers.data import Data
from benchmarks.timing import forked, limit_seconds, with_memory

# Clocks of processor time may tick every few milliseconds: short work is done many times over.
ROUNDS, SHORT, MOST = 3, 0.1, 50


def timed(work: Callable[[], Any]) -> tuple[Any, float, float]:
    """Return the value of `work`, the smallest of its processor times, and of its wall times.

    Work of less than `SHORT` seconds is done `ROUNDS` times over, in series of that length.
    """
    times = []
    count = 1
    while len(times) < ROUNDS + 1:
        wall, cpu = time.perf_counter(), time.process_time()
        for _ in range(count):
            value = work()
        spent = time.process_time() - cpu, time.perf_counter() - wall
        times.append((spent[0] / count, spent[1] / count))
        if spent[0] > 10 * SHORT:
            break
        if len(times) == 1:
            count = min(MOST, max(1, round(SHORT / max(spent[0], 1e-3))))
    # The first one was too short for the clock if there are others.
    kept = times[1:] or times
    return value, min(cpu for cpu, _ in kept), min(wall for _, wall in kept)


def measure(make: Any, data: Data) -> dict[str, Any]:
    """Time fits and predictions; the memory is that of the first fit."""
    contestant = make(data)
    gc.collect()
    memory: list[float | None] = []

    def fit() -> None:
        if memory:
            contestant.fit()
        else:
            memory.append(with_memory(contestant.fit)[1])

    _, seconds, wall = timed(fit)
    predicted, predict, _ = timed(contestant.predict)
    found = {"seconds": seconds, "wall": wall, "predict": predict, "memory": memory[0]}
    answers = {"decision": contestant.decision(), "weights": contestant.weights()}
    for name, values in {**answers, "predicted": predicted}.items():
        found[name] = None if values is None else np.asarray(values, dtype=float).tolist()
    return found


def measure_splits(make: Any, paths: list[str], seconds: float) -> list[dict[str, Any]]:
    """Measure one contestant on all splits, after a warm-up on a few rows and kernels."""
    found: list[dict[str, Any]] = []
    for path in paths:
        data = Data.load(path)
        limit_seconds(seconds)
        if not found:
            small = make(data.small())
            small.fit()
            small.predict()
            limit_seconds(seconds)
        found.append(measure(make, data))
        if found[0]["seconds"] > seconds / 3:
            break
    return found


def work(library: str, names: list[str], paths: list[str], seconds: float) -> dict[str, Any]:
    """Return what `forked` has of every contestant."""
    if hasattr(os, "sched_setaffinity"):  # before the library counts the cores
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[os.getpid() % len(cores)]})
    makers = importlib.import_module(f"benchmarks.peers.{library}").CONTESTANTS
    return {
        name: forked(lambda n=name: measure_splits(makers[n], paths, seconds)) for name in names
    }
