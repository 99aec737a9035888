"""Counted work, and the time that a machine needs for it at least.

Work is counted where the library calls its operators and compiled loops, by the formulas in
counts.py. Every call that they name is done as ever; its amounts and its processor seconds go to a
ledger. One thread: a call in another would be counted but not timed.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from benchmarks.limit.counts import COUNTS
from benchmarks.limit.roofline import Rates, level_of
from benchmarks.watch import watching


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
        return max(self.by_resource, key=self.by_resource.__getitem__)


class Ledger:
    """What a fit did, by kind of work."""

    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}
        # Seconds of work inside work that is being timed.
        self._inside: list[float] = []

    def timed(self, kind: str, work: Callable[[], Any]) -> Any:
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
        """Add the bytes, operations and exponentials of one call.

        `of` are the bytes of the arrays that the bytes moved belong to, which decide about the
        cache they can be in; `rate` and `by` name the rates of `Rates` that hold.
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


@contextmanager
def counting() -> Iterator[Ledger]:
    ledger = Ledger()

    def counted(kind: str, amounts: Any) -> Any:
        def wrap(done: Any) -> Any:
            def work(*args: Any, **more: Any) -> Any:
                out = ledger.timed(kind, lambda: done(*args, **more))
                ledger.add(kind, **amounts(out, *args, **more))
                return out

            return work

        return wrap

    wrappers = {
        place: counted(kind, amounts)
        for kind, places in COUNTS.items()
        for place, amounts in places.items()
    }
    with watching(wrappers):
        yield ledger
