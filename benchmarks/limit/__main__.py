"""How far each solver is from what this machine could do at best.

    python -m benchmarks.limit            # n = 1,000 with 20 kernels, n = 285 with 403
    python -m benchmarks.limit --full     # n = 2,000 with 40 kernels, n = 569 with 403

The rates of the machine are measured in the same run (roofline.py). Of every fit the work is
counted: bytes moved, floating-point operations, exponentials, by the formulas in counts.py, from
what the fit really did (calls of the bank and of compiled loops, SMO steps,
sizes of Cholesky factors). The limit is the least time for it: of each kind of work the slowest of
memory, arithmetic and exponentials, added up over the kinds of work. Bytes count at the rate of an
array of as many bytes as a call touches. What no formula counts (Python between the calls, linear
programs, vectors of n or m numbers) is no part of the limit.

Solvers are given the bank and end at a relative duality gap of 1e-3 (bayes at its own tolerance);
"bank" is building it, all else is under "other". One thread, processor seconds.
"""

import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.limit.ledger import counting
from benchmarks.limit.problems import DENSE, FAMILY, Task, tasks
from benchmarks.limit.roofline import Rates, measure_rates, tell_rates
from benchmarks.part import Settings, run_alone
from benchmarks.show import new_figure, save, table
from benchmarks.timing import Clock, one_thread, seconds_of

TITLE = "The limit: measured time over the least time for the counted work"

# Shorter work is timed three times.
SHORT = 0.5
# Parts of the time above the limit that are named.
NAMED, WORTH_NAMING = 3, 0.1
BETWEEN = "outside the counted calls"
# What binds.
WORDS = {"moved": "memory", "flops": "flops", "exps": "exp"}


def measure(settings: Settings, clock: Clock) -> dict[str, Any]:
    one = measure_rates(1)
    every = measure_rates()
    settings.say("rates measured")
    with one_thread():
        for task in tasks(settings.full, small=True):
            with counting():
                task.work()
        rows = [_row(task, one, clock, settings) for task in tasks(settings.full)]
    draw(rows, settings.out / "limit.png")
    return {"rates": [vars(one), vars(every)], "rows": rows}


def _row(task: Task, rates: Rates, clock: Clock, settings: Settings) -> dict[str, Any]:
    with counting() as ledger:
        counted, _ = seconds_of(task.work, time.process_time)
    seconds: list[float] = []

    def work() -> None:
        seconds.append(seconds_of(task.work, time.process_time)[0])

    suffix = f" on {task.group}" if task.group == FAMILY else ""
    clock.time(f"limit/{task.name}{suffix}", work, 3 if counted < SHORT else 1)
    least = ledger.least(vars(rates))
    resources = dict.fromkeys(WORDS, 0.0)
    for needed, what in least.values():
        resources[what] += needed
    limit = sum(resources.values())
    taken = min(seconds)
    settings.say(f"{task.group}, {task.name}: {taken:.3f} s, limit {limit:.3f} s")
    kinds = {
        kind: {"seconds": spent, "limit": least[kind][0]} for kind, spent in ledger.seconds.items()
    }
    kinds[BETWEEN] = {"seconds": counted - sum(ledger.seconds.values()), "limit": 0.0}
    return {
        **{"group": task.group, "name": task.name, "about": task.about},
        **{what: ledger.total(what) for what in WORDS},
        "seconds": taken,
        "limit": limit,
        "binds": WORDS[max(resources, key=resources.__getitem__)],
        "kinds": kinds,
    }


def where_it_goes(kinds: dict[str, Any]) -> str:
    """Say which kinds of work take the time above the limit, in parts of all time."""
    whole = sum(kind["seconds"] for kind in kinds.values())
    above = {name: (kind["seconds"] - kind["limit"]) / whole for name, kind in kinds.items()}
    most = sorted(above, key=above.__getitem__, reverse=True)[:NAMED]
    return ", ".join(f"{name} {above[name]:.0%}" for name in most if above[name] >= WORTH_NAMING)


def tell(result: dict[str, Any]) -> str:
    parts = ["What the machine can do:", tell_rates(result["rates"])]
    heads = ["", "s", "limit, s", "ratio", "binds", "GB", "Gflop", "1e6 exp", "above the limit"]
    for group in (DENSE, FAMILY, "other"):
        rows = [row for row in result["rows"] if row["group"] == group]
        each = "; ".join(f"{row['name']}: {row['about']}" for row in rows)
        about = rows[0]["about"] if group != "other" else each
        parts.append(f"`{group}`: {about}.")
        parts.append(table(heads, [_cells(row) for row in rows]))
    parts.append(
        "Processor seconds of one thread. The limit takes of each kind of work the slowest of "
        "memory, arithmetic and exponentials, at the rates of one thread, and adds up the kinds. "
        "The last column says which part of all time lies above the limit, by kind of work."
    )
    return "\n\n".join(parts)


def _cells(row: dict[str, Any]) -> list[Any]:
    ratio = f"{row['seconds'] / row['limit']:.1f}"
    work = row["moved"] / 1e9, row["flops"] / 1e9, row["exps"] / 1e6
    cells = [row["name"], row["seconds"], row["limit"], ratio, row["binds"], *work]
    return [*cells, where_it_goes(row["kinds"])]


def shares(row: dict[str, Any]) -> dict[str, float]:
    """Return the parts of a row's time: its limit, counted work above that, all else."""
    whole = sum(kind["seconds"] for kind in row["kinds"].values())
    limit, rest = row["limit"] / row["seconds"], row["kinds"][BETWEEN]["seconds"] / whole
    above = max(0.0, 1.0 - limit - rest)
    return {"the limit": limit, "counted work above its limit": above, BETWEEN: rest}


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """Draw one bar for each task, and how many times its limit it takes."""
    figure, [[ax]] = new_figure(7.6, 0.28 * len(rows) + 1.2, 1, 1)
    names = [f"{row['name']} ({row['group']})" for row in rows]
    left = [0.0] * len(rows)
    for label, colour in zip(shares(rows[0]), ("#0072B2", "#9BCBEB", "#D55E00"), strict=True):
        widths = [shares(row)[label] for row in rows]
        ax.barh(names, widths, left=left, color=colour, label=label)
        left = [a + b for a, b in zip(left, widths, strict=True)]
    for place, (row, end) in enumerate(zip(rows, left, strict=True)):
        ratio = row["seconds"] / row["limit"]
        ax.text(end + 0.01, place, f"{ratio:.1f}x", va="center", fontsize=9)
    ax.invert_yaxis()
    ax.set(xlim=(0.0, 1.1), xlabel="part of the time; right: time over limit")
    ax.xaxis.set_major_formatter("{x:.0%}")
    ax.set_xticks([0.0, 0.25, 0.5, 0.75, 1.0])
    save(figure, path, ax, "upper center")


if __name__ == "__main__":
    run_alone(sys.modules[__name__])
