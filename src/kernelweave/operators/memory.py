"""Refusals of kernels that do not fit in memory."""

from __future__ import annotations

from kernelweave.errors import MemoryBudgetError
from kernelweave.memory import available_bytes, format_bytes

__all__ = [
    "AS_ROWS",
    "NO_CACHE",
    "available_bytes",
    "cache_bytes",
    "format_bytes",
    "out_of_memory",
    "require_bytes",
    "rows_and_work",
]

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


def cache_bytes(cache_mb: float) -> float:
    """Return how many bytes of kernels to keep: `cache_mb`, or less where memory is short.

    Examples
    --------
    >>> cache_bytes(1)
    1000000.0
    """
    return min(1e6 * cache_mb, _SHARE * available_bytes())


def rows_and_work(budget: float, wanted: float) -> tuple[float, float]:
    """Split a budget into bytes for cached rows, of which `wanted` would be all, and for solvers.

    Examples
    --------
    >>> rows_and_work(900.0, wanted=2000.0), rows_and_work(900.0, wanted=100.0)
    ((600.0, 225.0), (100.0, 600.0))
    """
    rows = min(wanted, _ROWS * budget)
    return rows, _SQUARES * (budget - rows)


def require_bytes(needed: float, what: str, advice: str = FEWER, kernels: int = 0) -> None:
    """Refuse up front what would not fit, naming the bytes and what to do.

    If `needed` is in proportion to a number of kernels, says how many of them would fit.

    Examples
    --------
    >>> require_bytes(1e15, "a dense bank")
    Traceback (most recent call last):
        ...
    kernelweave.errors.MemoryBudgetError: a dense bank need 1e+03 TB but ...
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
