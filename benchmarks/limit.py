"""How far each solver is from what this machine could do at best.

    python benchmarks/limit.py            # n = 1,000 with 20 kernels, n = 285 with 403
    python benchmarks/limit.py --full     # n = 2,000 with 40 kernels, n = 569 with 403

The rates of the machine are measured in the same run (roofline.py). Of every fit the work is
counted: bytes moved, floating-point operations, exponentials, by the formulas in limit_bank.py and
limit_inner.py, from what the fit really did (calls of the bank and of compiled loops, SMO steps,
sizes of Cholesky factors). The limit is the least time for it: of each kind of work the slowest of
memory, arithmetic and exponentials, added up over the kinds of work. Bytes count at the rate of an
array of as many bytes as a call touches. What no formula counts (Python between the calls, linear
programs, vectors of n or m numbers) is no part of the limit.

Solvers are given the bank and end at a relative duality gap of 1e-3 (bayes at its own tolerance);
"bank" is building it, all else is under "other". One thread, processor seconds.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

from limit_count import counting
from limit_figure import draw
from limit_ledger import Ledger, limit_of
from limit_problems import DENSE, FAMILY, Task, tasks
from part import Clock, Settings, run_alone, table
from roofline import Rates, measure_rates, tell_rates
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from kernelweave.compiled.threads import use_threads

TITLE = "The limit: measured time over the least time for the counted work"

# Shorter work is timed three times.
SHORT = 0.5
# Parts of the time above the limit that are named.
NAMED, WORTH_NAMING = 3, 0.1
BETWEEN = "outside the counted calls"


def measure(settings: Settings, clock: Clock) -> dict[str, Any]:
    """Measure the rates, then count and time every task."""
    warnings.simplefilter("ignore", ConvergenceWarning)
    one = measure_rates(1)
    every = measure_rates()
    settings.say("rates measured")
    with threadpool_limits(1), use_threads(1):
        for task in tasks(settings.full, small=True):
            with counting():
                task.work()
        rows = [_row(task, one, clock, settings) for task in tasks(settings.full)]
    draw(rows, BETWEEN, settings.out / "limit.png")
    return {"rates": [vars(one), vars(every)], "rows": rows}


def _row(task: Task, rates: Rates, clock: Clock, settings: Settings) -> dict[str, Any]:
    with counting() as ledger:
        counted, _ = _timed(task.work)
    seconds: list[float] = []

    def work() -> None:
        seconds.append(_timed(task.work)[0])

    suffix = f" on {task.group}" if task.group == FAMILY else ""
    clock.time(f"limit/{task.name}{suffix}", work, 3 if counted < SHORT else 1)
    limit = limit_of(ledger, rates)
    taken = min(seconds)
    settings.say(f"{task.group}, {task.name}: {taken:.3f} s, limit {limit.seconds:.3f} s")
    return {
        "group": task.group,
        "name": task.name,
        "about": task.about,
        "seconds": taken,
        "limit": limit.seconds,
        "binds": limit.binds,
        "moved": ledger.total("moved"),
        "flops": ledger.total("flops"),
        "exps": ledger.total("exps"),
        "kinds": _kinds(ledger, limit.by_kind, counted),
    }


def _timed(work: Callable[[], Any]) -> tuple[float, Any]:
    began = time.process_time()
    value = work()
    return time.process_time() - began, value


def _kinds(ledger: Ledger, limits: dict[str, float], counted: float) -> dict[str, Any]:
    """Return seconds, limit and calls of each kind of work, and what is between them."""
    out = {
        kind: {"seconds": entry.seconds, "limit": limits[kind], "calls": entry.calls}
        for kind, entry in ledger.entries.items()
    }
    rest = counted - sum(entry["seconds"] for entry in out.values())
    out[BETWEEN] = {"seconds": rest, "limit": 0.0, "calls": 0}
    return out


def where_it_goes(kinds: dict[str, Any]) -> str:
    """Say which kinds of work take the time above the limit, in parts of all time."""
    whole = sum(kind["seconds"] for kind in kinds.values())
    above = {name: (kind["seconds"] - kind["limit"]) / whole for name, kind in kinds.items()}
    most = sorted(above, key=above.__getitem__, reverse=True)[:NAMED]
    return ", ".join(f"{name} {above[name]:.0%}" for name in most if above[name] >= WORTH_NAMING)


def tell(result: dict[str, Any]) -> str:
    """Return the rates, and one table for each group of tasks."""
    parts = ["What the machine can do:", tell_rates(result["rates"])]
    heads = ["", "s", "limit, s", "ratio", "binds", "GB", "Gflop", "1e6 exp", "above the limit"]
    for group in (DENSE, FAMILY, "other"):
        rows = [row for row in result["rows"] if row["group"] == group]
        about = (
            rows[0]["about"]
            if group != "other"
            else "; ".join(f"{row['name']}: {row['about']}" for row in rows)
        )
        parts.append(f"`{group}`: {about}.")
        parts.append(table(heads, [_cells(row) for row in rows]))
    parts.append(
        "Processor seconds of one thread. The limit takes of each kind of work the slowest of "
        "memory, arithmetic and exponentials, at the rates of one thread, and adds up the kinds. "
        "The last column says which part of all time lies above the limit, by kind of work."
    )
    return "\n\n".join(parts)


def _cells(row: dict[str, Any]) -> list[str]:
    return [
        row["name"],
        f"{row['seconds']:.3f}",
        f"{row['limit']:.3f}",
        f"{row['seconds'] / row['limit']:.1f}",
        row["binds"],
        f"{row['moved'] / 1e9:.2f}",
        f"{row['flops'] / 1e9:.2f}",
        f"{row['exps'] / 1e6:.1f}",
        where_it_goes(row["kinds"]),
    ]


if __name__ == "__main__":
    run_alone(sys.modules[__name__])
