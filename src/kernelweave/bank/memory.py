"""How much memory there is, and a refusal that names the bytes."""

from __future__ import annotations

import os

from kernelweave.errors import MemoryBudgetError

__all__ = ["available_bytes", "format_bytes", "require_bytes"]


def available_bytes() -> float:
    """Return the memory a fit may take: what the system has free, under the process's own limit.

    Examples
    --------
    >>> available_bytes() > 0
    True
    """
    free = _free_system_bytes()
    try:
        import resource

        soft = resource.getrlimit(resource.RLIMIT_AS)[0]
        if soft != resource.RLIM_INFINITY:
            free = min(free, float(soft) - _used_bytes())
    except (ImportError, OSError):
        pass  # Windows has no such limit.
    return max(free, 0.0)


def _free_system_bytes() -> float:
    try:
        with open("/proc/meminfo") as lines:
            for line in lines:
                if line.startswith("MemAvailable:"):
                    return float(line.split()[1]) * 1024.0
    except OSError:
        pass
    try:
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")) / 2
    except (AttributeError, OSError, ValueError):
        return float("inf")


def _used_bytes() -> float:
    try:
        with open("/proc/self/statm") as line:
            return float(line.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0.0


def format_bytes(n_bytes: float) -> str:
    """Bytes for people.

    Examples
    --------
    >>> format_bytes(3.2e9)
    '3.2 GB'
    """
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if abs(n_bytes) < 1000 or unit == "TB":
            return f"{n_bytes:.3g} {unit}"
        n_bytes /= 1000
    raise RuntimeError("unreachable")


_ADVICE = (
    "Use bank='lazy' (rows on demand, at most cache_mb megabytes) or bank='auto', "
    "fewer kernels, or fewer samples."
)


def require_bytes(needed: float, what: str, advice: str = _ADVICE) -> None:
    """Refuse up front what would not fit, naming the bytes and what to do.

    Examples
    --------
    >>> require_bytes(1e15, "a dense bank")
    Traceback (most recent call last):
        ...
    kernelweave.errors.MemoryBudgetError: a dense bank need 1e+03 TB but ...
    """
    free = available_bytes()
    if needed > 0.9 * free:
        raise MemoryBudgetError(
            f"{what} need {format_bytes(needed)} but {format_bytes(free)} of memory are free. "
            f"{advice}"
        )
