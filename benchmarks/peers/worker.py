"""Run contestants of one library, each in a process of its own.

    python -m benchmarks.peers.worker LIBRARY FOLDER SECONDS '["CONTESTANT", ...]' DATA.npz ...

LIBRARY is a module ``LIBRARY.py`` beside this file, imported once; every contestant is then a
fork of this process. It writes FOLDER/NUMBER.json, beside it NUMBER.error if it fails and
NUMBER.late if its time is up. Every DATA.npz is one split. After SECONDS of processor time on one
of them the system ends a contestant; after a third of that on the first one the others are left
out. Seconds are processor seconds of a process bound to one core.
"""

import gc
import importlib
import json
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

if hasattr(os, "sched_setaffinity"):  # before any library counts the cores
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[os.getpid() % len(cores)]})

import numpy as np

from benchmarks.peers.data import Data
from benchmarks.timing import forget_peak, memory_mb

# Clocks of processor time may tick every few milliseconds: short work is done many times over.
ROUNDS, SHORT, MOST = 3, 0.1, 50


def limit_seconds(seconds: float) -> None:
    """Let the system end this process when its processor time is up, where it can."""
    try:
        import resource
    except ImportError:
        return
    end = int(time.process_time() + seconds) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (end, resource.getrlimit(resource.RLIMIT_CPU)[1]))


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


def warm_up(make: Any, data: Data) -> None:
    """Compile, load and fill what a first fit compiles, loads and fills."""
    contestant = make(data.small())
    contestant.fit()
    contestant.predict()


def measure(make: Any, data: Data) -> dict[str, Any]:
    """Fit once and look at the memory; then time fits and predictions."""
    contestant = make(data)
    gc.collect()
    try:
        forget_peak()
        before = memory_mb("VmRSS")
    except OSError:  # not on Linux
        before = None
    peaks: list[float] = []

    def fit() -> None:
        contestant.fit()
        if before is not None and not peaks:
            peaks.append(memory_mb("VmHWM") - before)

    _, seconds, wall = timed(fit)
    predicted, predict, _ = timed(contestant.predict)
    found = {"seconds": seconds, "wall": wall, "predict": predict}
    found["memory"] = peaks[0] if peaks else None
    answers = {"decision": contestant.decision(), "weights": contestant.weights()}
    answers["predicted"] = predicted
    return {**found, **{name: listed(values) for name, values in answers.items()}}


def listed(values: Any) -> Any:
    return None if values is None else np.asarray(values, dtype=float).tolist()


def contest(make: Any, seconds: float, paths: list[str], answer: Path) -> None:
    """Measure one contestant on all splits; write down what there is after each."""
    found: list[dict[str, Any]] = []
    for path in paths:
        data = Data.load(path)
        if not found:
            limit_seconds(seconds)
            warm_up(make, data)
        limit_seconds(seconds)
        found.append(measure(make, data))
        answer.write_text(json.dumps(found))
        if found[0]["seconds"] > seconds / 3:
            break


def main() -> None:
    library, folder, seconds, names, *paths = sys.argv[1:]
    warnings.simplefilter("ignore")
    contestants = importlib.import_module(f"benchmarks.peers.{library}").CONTESTANTS
    for number, name in enumerate(json.loads(names)):
        stem = Path(folder) / str(number)
        child = os.fork()
        if child == 0:
            try:
                contest(contestants[name], float(seconds), paths, stem.with_suffix(".json"))
            except BaseException as error:
                stem.with_suffix(".error").write_text(f"{type(error).__name__}: {error}")
            finally:
                os._exit(0)
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            late = os.WTERMSIG(status) == signal.SIGXCPU
            kind = ".late" if late else ".error"
            stem.with_suffix(kind).write_text(f"signal {os.WTERMSIG(status)}")


if __name__ == "__main__":
    main()
