"""Counted work, and the time that a machine needs for it at least."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from roofline import Rates, level_of

__all__ = ["Ledger", "Limit", "limit_of"]

T = TypeVar("T")


@dataclass
class Entry:
    """Work of one kind: what it took, bytes by level, operations and exponentials by their rate."""

    calls: int = 0
    seconds: float = 0.0
    moved: dict[int, float] = field(default_factory=dict)
    flops: dict[str, float] = field(default_factory=dict)
    exps: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Limit:
    """The least seconds for some work, in all and by the resource that binds."""

    seconds: float
    by_resource: dict[str, float]
    by_kind: dict[str, float]

    @property
    def binds(self) -> str:
        """The resource that takes most of it."""
        return max(self.by_resource, key=self.by_resource.__getitem__)


class Ledger:
    """What a fit did, by kind of work.

    Examples
    --------
    >>> ledger = Ledger()
    >>> ledger.add("a pass", moved=8e6, flops=2e6)
    >>> ledger.total("moved")
    8000000.0
    """

    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}
        # Seconds of work inside work that is being timed.
        self._inside: list[float] = []

    def timed(self, kind: str, work: Callable[[], T]) -> T:
        """Do some work; its seconds count for `kind`, but for those of other kinds inside."""
        self._inside.append(0.0)
        began = time.process_time()
        try:
            return work()
        finally:
            whole = time.process_time() - began
            entry = self.entries.setdefault(kind, Entry())
            entry.calls += 1
            entry.seconds += whole - self._inside.pop()
            if self._inside:
                self._inside[-1] += whole

    def add(
        self,
        kind: str,
        moved: float = 0.0,
        of: float | None = None,
        flops: float = 0.0,
        rate: str = "gemm",
        exps: float = 0.0,
        by: str = "own64",
    ) -> None:
        """Add what one call did.

        Parameters
        ----------
        kind : str
            What it was.
        moved : float
            Bytes read or written.
        of : float, optional
            Bytes of the arrays they belong to, which decide about the cache they can be in; as
            many as were moved if it is not given.
        flops, rate : float, str
            Operations, and the rate of :class:`~roofline.Rates` that they have at most.
        exps, by : float, str
            Exponentials, and whose.
        """
        entry = self.entries.setdefault(kind, Entry())
        for store, key, amount in (
            (entry.moved, level_of(moved if of is None else of), moved),
            (entry.flops, rate, flops),
            (entry.exps, by, exps),
        ):
            if amount:
                store[key] = store.get(key, 0.0) + amount  # type: ignore[index,call-overload]

    def total(self, what: str) -> float:
        """Return the sum of all `moved`, `flops` or `exps`."""
        return float(sum(sum(getattr(entry, what).values()) for entry in self.entries.values()))


def limit_of(ledger: Ledger, rates: Rates | dict[str, Any]) -> Limit:
    """Return the least time: of each kind of work the slowest resource, added up over kinds.

    Inside one kind reading, arithmetic and exponentials can overlap; one kind follows the other.
    """
    known = rates if isinstance(rates, dict) else vars(rates)
    by_resource = {"memory": 0.0, "flops": 0.0, "exp": 0.0}
    by_kind = {}
    for kind, entry in ledger.entries.items():
        seconds = {
            "memory": sum(b / known["read"][str(level)] for level, b in entry.moved.items()),
            "flops": sum(f / known["flops"][rate] for rate, f in entry.flops.items()),
            "exp": sum(e / known["exps"][by] for by, e in entry.exps.items()),
        }
        slowest = max(seconds, key=seconds.__getitem__)
        by_resource[slowest] += seconds[slowest]
        by_kind[kind] = seconds[slowest]
    return Limit(sum(by_kind.values()), by_resource, by_kind)
