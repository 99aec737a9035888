"""Numbers by name, those of a part under the name of the part."""

from __future__ import annotations

from kernelweave.problem import Array
from kernelweave.solvers.watch import Numbers

__all__ = ["part_of", "prefixed"]


def prefixed(part: str, numbers: Numbers) -> dict[str, Array]:
    """Return the numbers of a part, under its name.

    Examples
    --------
    >>> prefixed("a", {"mean": 1.0})
    {'a.mean': 1.0}
    """
    return {f"{part}.{name}": value for name, value in numbers.items()}


def part_of(numbers: Numbers, part: str) -> dict[str, Array]:
    """Return the numbers of a part, without its name.

    Examples
    --------
    >>> part_of({"a.mean": 1.0, "b.mean": 2.0}, "a")
    {'mean': 1.0}
    """
    start = f"{part}."
    return {k.removeprefix(start): v for k, v in numbers.items() if k.startswith(start)}
