"""What this machine can do at most: bytes, floating-point operations and exponentials a second.

    python -m benchmarks.limit.roofline

Each rate is that of the best of several repetitions of one thing and nothing else:

read      sums of an array of so many bytes, again and again; the small ones stay in a cache.
gemm      a product of two matrices of 1,200 rows (2 n^3 operations), float64 and float32.
cholesky  a Cholesky factor of a matrix of 1,200 rows (n^3 / 3 operations), float64.
gemv      a product of a matrix of 128 MB and a vector, bytes of the matrix a second.
exp       exponentials of 16,384 numbers, by NumPy and by the library's own compiled code.

One thread is timed in processor seconds, so that other work on the machine counts for little; all
threads are timed by the clock on the wall.
"""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numba import njit
from scipy.linalg import cho_factor
from threadpoolctl import threadpool_limits

from benchmarks.part import read_options
from benchmarks.show import table
from benchmarks.timing import best_of, seconds_of
from kernelweave.compiled.exp import scaled
from kernelweave.compiled.threads import thread_count, use_threads

# Bytes of arrays whose reading is timed: for the caches of a core, for the shared one, for memory.
LEVELS = (16_384, 262_144, 2_097_152, 16_777_216, 134_217_728)
SIZE = 1200
NUMBERS = 16_384
# Seconds of work to repeat, and how often.
ENOUGH, REPEATS = 0.03, 5


@dataclass(frozen=True)
class Rates:
    """Rates of so many threads together."""

    threads: int
    # Bytes a second, by the bytes of the array as text.
    read: dict[str, float]
    # Operations a second: gemm, gemm32 and cholesky.
    flops: dict[str, float]
    # Bytes a second.
    gemv: float
    # Exponentials a second: numpy32, numpy64, own32 and own64.
    exps: dict[str, float]


def level_of(size: float) -> int:
    """Return the largest of `LEVELS` that is at most so many bytes, or else the smallest.

    A limit must not be too high: an array between two of them is taken to be as fast as the
    smaller.
    """
    return max((level for level in LEVELS if level <= size), default=LEVELS[0])


@njit(nogil=True, fastmath=True)
def _sum(numbers: np.ndarray, times: int) -> float:
    total = 0.0
    for t in range(times):
        # Another factor each time: nothing can be taken out of the loop.
        factor = 1.0 + t
        for i in range(numbers.size):
            total += factor * numbers[i]
    return total


def measure_rates(threads: int | None = None) -> Rates:
    """Measure with so many threads; None means all cores."""
    with use_threads(threads):
        count = thread_count()
        clock = time.process_time if count == 1 else time.perf_counter
        with threadpool_limits(count, user_api="blas"):
            rng = np.random.default_rng(0)
            A = rng.normal(size=(SIZE, SIZE))
            A32, S = A.astype(np.float32), A @ A.T + SIZE * np.eye(SIZE)
            tall, v = np.ones((LEVELS[-1] // 8 // 2000, 2000)), np.ones(2000)
            gemm = 2.0 * SIZE**3
            flops = {
                "gemm": gemm / _best(lambda: A @ A, clock),
                "gemm32": gemm / _best(lambda: A32 @ A32, clock),
                "cholesky": SIZE**3 / 3.0 / _best(lambda: cho_factor(S, lower=True), clock),
            }
            gemv = tall.nbytes / _best(lambda: tall @ v, clock)
        read = {str(level): _read_rate(level, count, clock) for level in LEVELS}
        exps = {
            f"{whose}{8 * kind().itemsize}": exp_rate(whose, kind, count, clock)
            for whose in ("numpy", "own")
            for kind in (np.float32, np.float64)
        }
    return Rates(count, read, flops, gemv, exps)


def _best(work: Callable[[], Any], clock: Callable[[], float]) -> float:
    """Return the seconds of one call, the best of several averages."""
    work()
    many = max(1, int(ENOUGH / max(seconds_of(work)[0], 1e-7)))
    return best_of(lambda: [work() for _ in range(many)], REPEATS, clock)[0] / many


def _on_threads(works: list[Callable[[], Any]], clock: Callable[[], float]) -> float:
    """Return the seconds in which all are done, one on each thread."""
    if len(works) == 1:
        return _best(works[0], clock)
    with ThreadPoolExecutor(len(works)) as pool:
        return _best(lambda: [job.result() for job in [pool.submit(w) for w in works]], clock)


def _read_rate(level: int, count: int, clock: Callable[[], float]) -> float:
    """Bytes a second; each thread has an array of its own, or a part where all share memory."""
    size = level // 8 if level < LEVELS[-2] else level // 8 // count
    times = max(1, 2**22 // size)
    arrays = [np.ones(size) for _ in range(count)]
    seconds = _on_threads([lambda a=a: _sum(a, times) for a in arrays], clock)
    return count * times * 8.0 * size / seconds


def exp_rate(
    whose: str, kind: Any, count: int, clock: Callable[[], float] = time.perf_counter
) -> float:
    """Exponentials a second, each thread on numbers of its own."""
    times = 64
    arrays = [np.full(NUMBERS, 0.5, kind) for _ in range(count)]
    # Of a number between 0 and 1 the exponential of its negative is one too.
    if whose == "numpy":
        ways = [partial(np.exp, a, out=np.empty_like(a)) for a in arrays]
    else:
        ways = [partial(scaled, a, kind(-1.0)) for a in arrays]
    works = [lambda way=way: [way() for _ in range(times)] for way in ways]
    return count * times * NUMBERS / _on_threads(works, clock)


def tell_rates(columns: list[dict[str, Any]]) -> str:
    """Return a table of rates, one column for each number of threads."""
    heads = ["rate", *(f"{c['threads']} thread{'s'[: c['threads'] - 1]}" for c in columns)]
    rows = {}
    for level in LEVELS:
        size = f"{level // 2**20} MB" if level >= 2**20 else f"{level // 2**10} kB"
        rows[f"read, {size}, GB/s"] = [c["read"][str(level)] for c in columns]
    rows["gemv, GB/s"] = [c["gemv"] for c in columns]
    for name, words in (("gemm", "float64"), ("gemm32", "float32"), ("cholesky", "float64")):
        title = f"{name.removesuffix('32')}, {words}, Gflop/s"
        rows[title] = [c["flops"][name] for c in columns]
    for whose, words in (("numpy", "NumPy"), ("own", "compiled here")):
        for bits in (32, 64):
            title = f"exp, {words}, float{bits}, 1e9/s"
            rows[title] = [c["exps"][f"{whose}{bits}"] for c in columns]
    cells = [[title, *(rate / 1e9 for rate in rates)] for title, rates in rows.items()]
    return table(heads, cells)


if __name__ == "__main__":
    read_options(__doc__, data=False)
    print(tell_rates([vars(measure_rates(1)), vars(measure_rates())]))
