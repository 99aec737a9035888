"""Counted work, and the time that a machine needs for it at least.

Work is counted where the library calls its operators and compiled loops, by the formulas in
counts.py. Every call that they name is done as ever; its amounts and its processor seconds go to a
ledger. One thread: a call in another would be counted but not timed.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.limit.counts import COUNTS
from benchmarks.limit.roofline import level_of
from benchmarks.watch import watching

# What is counted -> the rates of `Rates` that it is divided by.
RESOURCES = {"moved": "read", "flops": "flops", "exps": "exps"}


class Ledger:
    """What a fit did, by kind of work."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        # Bytes moved, operations and exponentials: by kind, and by what and the rate that holds.
        self.amounts: dict[str, dict[tuple[str, str], float]] = {}
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
            self.seconds[kind] += whole - self._inside.pop()
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
        level = str(level_of(moved if of is None else of))
        own = self.amounts.setdefault(kind, defaultdict(float))
        own["moved", level] += moved
        own["flops", rate] += flops
        own["exps", by] += exps

    def total(self, what: str) -> float:
        """Return the sum of all `moved`, `flops` or `exps`."""
        return float(
            sum(n for own in self.amounts.values() for key, n in own.items() if key[0] == what)
        )

    def least(self, rates: dict[str, Any]) -> dict[str, tuple[float, str]]:
        """Return the least seconds for each kind of work, and what takes them.

        Inside one kind reading, arithmetic and exponentials can overlap, so that the slowest
        counts; one kind follows the other.
        """
        found = {}
        for kind, own in self.amounts.items():
            taken = dict.fromkeys(RESOURCES, 0.0)
            for (what, rate), amount in own.items():
                taken[what] += amount / rates[RESOURCES[what]][rate] if amount else 0.0
            slowest = max(taken, key=taken.__getitem__)
            found[kind] = taken[slowest], slowest
        return found


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
