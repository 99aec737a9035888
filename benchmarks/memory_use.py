"""Memory of this process, as Linux tells it."""

from __future__ import annotations

__all__ = ["forget_peak", "memory_mb"]


def memory_mb(field: str) -> float:
    """Memory of this process by Linux: VmRSS now, VmHWM the most since `forget_peak`."""
    with open("/proc/self/status") as status:
        line = next(line for line in status if line.startswith(field))
    return float(line.split()[1]) / 1e3


def forget_peak() -> None:
    """Let the peak begin anew, so that reading the data does not count."""
    with open("/proc/self/clear_refs", "w") as switch:
        switch.write("5")
