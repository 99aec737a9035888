"""Refusals of kernels that do not fit in memory."""

from __future__ import annotations

from kernelweave.errors import MemoryBudgetError
from kernelweave.memory import available_bytes, format_bytes

__all__ = ["available_bytes", "cache_bytes", "format_bytes", "out_of_memory", "require_bytes"]

# Part of the memory that kernels may take for themselves; the rest is for whoever works with them.
_SHARE = 0.5

_ADVICE = (
    "Use bank='lazy' (rows on demand, at most cache_mb megabytes) or bank='auto', "
    "fewer kernels, or fewer samples."
)


def cache_bytes(cache_mb: float) -> float:
    """Return how many bytes of kernels to keep: `cache_mb`, or less where memory is short.

    Examples
    --------
    >>> cache_bytes(1)
    1000000.0
    """
    return min(1e6 * cache_mb, _SHARE * available_bytes())


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


def out_of_memory(what: str, error: MemoryError) -> MemoryBudgetError:
    """Return the error for memory that ran out after all, with what to do.

    Examples
    --------
    >>> error = out_of_memory("MKLClassifier", MemoryError("Unable to allocate 3.1 GiB"))
    >>> str(error)[:59]
    'MKLClassifier ran out of memory: Unable to allocate 3.1 GiB'
    """
    reason = str(error).rstrip(".") or "an array could not be made"
    return MemoryBudgetError(
        f"{what} ran out of memory: {reason}. {format_bytes(available_bytes())} are free. "
        "Fewer kernels, or fewer samples at a time, take less; so does a smaller cache_mb."
    )
