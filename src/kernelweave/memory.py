"""How much memory there is, and refusals of what does not fit in it."""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from kernelweave.errors import MemoryBudgetError

# Where Linux says what a process and the groups it is in may take.
_PROC = Path("/proc")
_GROUPS = Path("/sys/fs/cgroup")
# (limit, use, its name for files that are cached and can be dropped) in both versions of groups.
_VERSION_2 = ("memory.max", "memory.current", "inactive_file")
_VERSION_1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
# Version 1 has no word for no limit: it is the largest number of whole pages.
_UNLIMITED = 2.0**60
# Bytes of the longest of these files that are read: memory.stat has some 2 kB.
_MOST_TEXT = 2**16
# Matrices of so few samples count for nothing: half a megabyte each.
FEW_SAMPLES = 256
# Megabytes: nothing is kept, or a cache has its smallest size.
NO_CACHE = 1e-6
# Part of the memory that kernels may take for themselves; the rest is for whoever works with them.
_SHARE = 0.5
# Part of a budget for cached rows at most. Of what is left, solvers may take this part for their
# largest square matrices, and the rest for a combined matrix beside these.
_ROWS, _SQUARES = 2 / 3, 3 / 4

# Part of what is free that may be asked for at once.
_FITS = 0.9

# Advice where matrices do not fit that a bank was asked for, and where nothing smaller is left.
AS_ROWS = (
    "Use bank='lazy' (rows on demand, at most cache_mb megabytes) or bank='auto', "
    "fewer kernels, or fewer samples."
)
FEWER = (
    "Use fewer kernels or fewer samples; NystromMKLClassifier takes numbers in proportion to the "
    "samples and its n_components, and an RBFBatch some 30 bytes a kernel."
)


def available_bytes() -> float:
    """Return the memory a fit may take.

    That is what the system has free, under the limits of the process (``ulimit -v`` and ``-d``) and
    of the control groups it is in (containers, batch systems).
    """
    return max(min([_free_system_bytes(), *_under_own_limits(), *_left_to_groups()]), 0.0)


def _free_system_bytes() -> float:
    found = _size(f"{_PROC}/meminfo", "MemAvailable")
    if found is not None:
        return found
    try:
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")) / 2
    except (AttributeError, OSError, ValueError):
        return float("inf")


def _under_own_limits() -> Iterator[float]:
    """What the limits of the process leave of addresses and of data."""
    try:
        import resource
    except ImportError:
        return  # Windows has no such limits.
    for limit, use in ((resource.RLIMIT_AS, "VmSize"), (resource.RLIMIT_DATA, "VmData")):
        soft = resource.getrlimit(limit)[0]
        if soft != resource.RLIM_INFINITY:
            yield float(soft) - (_size(_PROC / "self" / "status", use) or 0.0)


def _left_to_groups() -> Iterator[float]:
    """What is left to each control group with a limit that the process is in."""
    for line in (_text(f"{_PROC}/self/cgroup") or "").splitlines():
        number, _, rest = line.partition(":")
        kinds, _, path = rest.partition(":")
        if number == "0" and not kinds:
            yield from _left_along(_GROUPS, path, *_VERSION_2)
        elif "memory" in kinds.split(","):
            yield from _left_along(_GROUPS / "memory", path, *_VERSION_1)


def _left_along(root: Path, path: str, limit: str, use: str, cached: str) -> Iterator[float]:
    # The limits of all groups above count too. A container may see its own group as the root, under
    # a path that only the host knows.
    names = [name for name in path.split("/") if name]
    for depth in range(len(names), -1, -1):
        group = os.sep.join([str(root), *names[:depth]])
        most = _number(f"{group}/{limit}")
        if most is None or most >= _UNLIMITED:
            continue
        used = _number(f"{group}/{use}")
        if used is not None:
            yield most - used + (_size(f"{group}/memory.stat", cached) or 0.0)


def _text(path: str | Path) -> str | None:
    """What is in a small file that the system writes; None if it is not there."""
    # Small fits ask too: this takes a third of the time that `Path.read_text` takes.
    try:
        file = os.open(path, os.O_RDONLY)
    except OSError:
        return None
    try:
        return os.read(file, _MOST_TEXT).decode("utf-8", "replace")
    except OSError:
        return None
    finally:
        os.close(file)


def _number(path: str | Path) -> float | None:
    """The number in a file; None if it holds no limit, or is not there."""
    try:
        return float(_text(path) or "")
    except ValueError:
        return None


def _size(path: str | Path, name: str) -> float | None:
    """The bytes that a file tells by a line such as "VmSize: 12 kB" or "inactive_file 12288"."""
    text = _text(path)
    if text is None:
        return None
    found = re.search(rf"^{name}:?\s+(\d+)( kB)?$", text, re.MULTILINE)
    return None if found is None else float(found[1]) * (1024.0 if found[2] else 1.0)


def square_side(n_bytes: float, copies: float = 1.0) -> int:
    """Return the most samples whose square float64 matrices, so many of them, fit in the bytes.

    At least 256, which hardly take any memory.
    """
    if math.isinf(n_bytes):
        return sys.maxsize
    return max(FEW_SAMPLES, math.isqrt(int(n_bytes / (8.0 * copies))))


def format_bytes(n_bytes: float) -> str:
    """Bytes for people."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if abs(n_bytes) < 1000 or unit == "TB":
            return f"{n_bytes:.3g} {unit}"
        n_bytes /= 1000
    raise RuntimeError("unreachable")


def cache_bytes(cache_mb: float) -> float:
    """Return how many bytes of kernels to keep: `cache_mb`, or less where memory is short."""
    return min(1e6 * cache_mb, _SHARE * available_bytes())


def rows_and_work(budget: float, wanted: float) -> tuple[float, float]:
    """Split a budget into bytes for cached rows, of which `wanted` are all, and for solvers."""
    rows = min(wanted, _ROWS * budget)
    return rows, _SQUARES * (budget - rows)


def require_bytes(needed: float, what: str, advice: str = FEWER, kernels: int = 0) -> None:
    """Refuse up front what would not fit, naming the bytes and what to do.

    If `needed` is in proportion to a number of kernels, says how many of them would fit.
    """
    free = available_bytes()
    if needed > _FITS * free:
        if kernels and (fewer := int(_FITS * free / needed * kernels)):
            advice = f"{fewer} kernels would fit. {advice}"
        raise MemoryBudgetError(
            f"{what} need {format_bytes(needed)} but {format_bytes(free)} of memory are free. "
            f"{advice}"
        )


def out_of_memory(what: str, error: MemoryError) -> MemoryBudgetError:
    """Return the error for memory that ran out after all, with what to do."""
    reason = str(error).rstrip(".") or "an array could not be made"
    return MemoryBudgetError(
        f"{what} ran out of memory: {reason}. {format_bytes(available_bytes())} are free. "
        "Fewer kernels, or fewer samples at a time, take less; so does a smaller cache_mb."
    )
