"""Refusals of kernels that do not fit in memory."""

from __future__ import annotations

from kernelweave.errors import MemoryBudgetError
from kernelweave.memory import available_bytes, format_bytes

__all__ = ["available_bytes", "format_bytes", "require_bytes"]

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
