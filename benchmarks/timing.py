"""The one way to time: seconds of work, races, budgets, memory, processes, and how time grows.

Workers of ``peers`` read this module in environments where there is NumPy and little else.
"""

import importlib
import json
import os
import resource
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
THREADS = ("OMP", "OPENBLAS", "MKL", "NUMBA", "VECLIB_MAXIMUM", "NUMEXPR")
ONE_THREAD = {f"{name}_NUM_THREADS": "1" for name in THREADS}
_SIZE, _LONG = 384, 4_000_000
Work = Callable[[], Any]


def seconds_of(work: Work, clock: Callable[[], float] = time.perf_counter) -> tuple[float, Any]:
    """Return the seconds of one call, and its value."""
    began = clock()
    value = work()
    return clock() - began, value


def best_of(
    work: Work,
    repeats: int = 3,
    clock: Callable[[], float] = time.perf_counter,
    short: float = np.inf,
) -> tuple[float, Any]:
    """Return the smallest time of several calls; work that takes more than `short` is done once."""
    best, value = seconds_of(work, clock)
    for _ in range(repeats - 1):
        if best > short:
            break
        seconds, value = seconds_of(work, clock)
        best = min(best, seconds)
    return best, value


def race(contestants: dict[Any, Work], rounds: int = 3) -> dict[Any, tuple[float, Any]]:
    """Return the fastest run of each, and its value; they take turns, so that all share a load."""
    best: dict[Any, tuple[float, Any]] = {}
    for _ in range(rounds):
        for name, work in contestants.items():
            run = seconds_of(work)
            if name not in best or run[0] < best[name][0]:
                best[name] = run
    return best


class Budget:
    """A callback that ends a fit after so many processor seconds; other programs do not count."""

    def __init__(self, seconds: float) -> None:
        self.ends = time.process_time() + seconds

    def __call__(self, record: Any) -> bool:
        return time.process_time() > self.ends


def memory_mb(field: str) -> float:
    """Memory of this process by Linux: VmRSS now, VmHWM the most since its peak was forgotten."""
    with open("/proc/self/status") as status:
        line = next(line for line in status if line.startswith(field))
    return float(line.split()[1]) / 1e3


def with_memory(work: Work) -> tuple[Any, float | None]:
    """Return the value of `work`, and the megabytes of its peak above what was held before it.

    None where the system does not tell (other systems than Linux).
    """
    try:
        with open("/proc/self/clear_refs", "w") as switch:
            switch.write("5")
        before = memory_mb("VmRSS")
    except OSError:
        return work(), None
    value = work()
    return value, memory_mb("VmHWM") - before


def fit_cost(
    work: Work, short: float, clock: Callable[[], float] = time.perf_counter
) -> tuple[float, float | None, Any]:
    """Return seconds, megabytes and value: the shortest of three if one takes less than `short`.

    The memory is that of the first, which alone starts from memory that nobody has used.
    """
    (seconds, value), memory = with_memory(lambda: seconds_of(work, clock))
    if seconds <= short:
        again, value = best_of(work, 2, clock)
        seconds = min(seconds, again)
    return seconds, memory, value


def apart(
    work: Callable[..., Any],
    python: str = sys.executable,
    timeout: float | None = None,
    env: dict[str, str] | None = None,
    errors: int | None = None,
    **arguments: Any,
) -> Any:
    """Call a function of these modules in a process of its own, through JSON.

    Its peak memory is then its own. After `timeout` seconds it is ended (TimeoutExpired); `python`,
    `env` and `errors` (its stderr) are those of `subprocess.run`.
    """
    module = sys.modules[work.__module__]
    name = module.__spec__.name if module.__spec__ else work.__module__
    order = json.dumps([name, work.__name__, arguments], default=str)
    done = subprocess.run(
        [python, "-m", "benchmarks.timing", order],
        cwd=ROOT,
        env=env,
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
        check=True,
        timeout=timeout,
    )
    return json.loads(done.stdout.splitlines()[-1])


def limit_seconds(seconds: float) -> None:
    """Let the system end this process when it has taken so many more processor seconds."""
    end = int(time.process_time() + seconds) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (end, resource.getrlimit(resource.RLIMIT_CPU)[1]))


def forked(work: Work) -> dict[str, Any]:
    """Do `work` in a fork of this process: {"value": ...}, {"error": ...}, or {"late": True}."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        try:
            answer = {"value": work()}
        except BaseException as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        with os.fdopen(writing, "w") as pipe:
            json.dump(answer, pipe)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    _, status = os.waitpid(child, 0)
    if not os.WIFSIGNALED(status):
        return json.loads(text)
    number = os.WTERMSIG(status)
    return {"late": True} if number == signal.SIGXCPU else {"error": f"signal {number}"}


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread for BLAS and for the library's own loops."""
    from threadpoolctl import threadpool_limits

    from kernelweave.compiled.threads import use_threads

    with threadpool_limits(1), use_threads(1):
        yield


def exponent(sizes: list[int], seconds: list[float]) -> float:
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def growth(sizes: list[int], seconds: list[float]) -> list[str]:
    """Exponent of growth from each size to the next."""
    exponents = ["-"]
    for a, b, s, t in zip(sizes, sizes[1:], seconds, seconds[1:], strict=False):
        exponents.append(f"{np.log(t / s) / np.log(b / a):.2f}" if min(s, t) > 0 else "-")
    return exponents


class Clock:
    """Times by name, each with the reference around it.

    The reference is fixed work of the kinds that fits are made of: BLAS, exponentials, a pass over
    memory. A busy machine slows both, and their ratio hardly changes.
    """

    def __init__(self) -> None:
        self.timings: dict[str, dict[str, float]] = {}
        rng = np.random.default_rng(0)
        self._square, self._long = rng.normal(size=(_SIZE, _SIZE)), rng.normal(size=_LONG)
        self._room = np.empty(_LONG)
        self._reference()

    def _reference(self) -> None:
        for _ in range(4):
            self._square @ self._square
        np.exp(self._long[: _LONG // 8], out=self._room[: _LONG // 8])
        np.add(self._long, self._long, out=self._room)

    def time(self, name: str, work: Work, repeats: int = 3) -> tuple[Any, float]:
        """Return the value of `work` and the smallest of its times; keep that by its name.

        Call it once before if it compiles. The name is that of this timing in all runs, such as
        ``"guard/silp"``.
        """
        if name in self.timings:
            raise ValueError(f"a second timing by the name of {name!r}")
        references = [seconds_of(self._reference)[0] for _ in range(3)]
        seconds = []
        for _ in range(repeats):
            taken, value = seconds_of(work)
            seconds.append(taken)
            references.append(seconds_of(self._reference)[0])
        self.timings[name] = {"seconds": min(seconds), "reference": min(references)}
        return value, min(seconds)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    _module, _name, _arguments = json.loads(sys.argv[1])
    print("\n" + json.dumps(getattr(importlib.import_module(_module), _name)(**_arguments)))
