"""How time and memory of every solver grow with the samples and with the kernels.

    python benchmarks/growth.py            # quick: n up to 1,600 and m up to 320
    python benchmarks/growth.py --full     # n up to 3,200 and m up to 1,280 (strings: 32,000)

Generated data, Gaussian kernels of random widths on random subsets of the columns
(growth_problem.py); n doubles at m = 20, m doubles at n = 200. A fit is all of `fit`, kernels
included, to a relative duality gap of 1e-3; "bayes" ends at its own tolerance. "strings" are
sequences of m letters with a kernel for each position, and ten times as many of them.

Time is processor seconds of one thread, the shortest of three fits where they are short. Memory is
the peak of a process above what it held when the fit began. A series ends before a fit that takes
too long. Exponents are slopes of least squares through the four largest sizes on logarithmic axes,
with standard errors.
"""

from __future__ import annotations

import sys
from typing import Any

from growth_figure import draw
from growth_fit import fit_series
from growth_problem import SOLVERS, STRINGS
from growth_slope import Slope, upper_slope
from part import Clock, Settings, run_alone, table

TITLE = "Growth: time and memory in n and in m"

FEW_KERNELS, FEW_SAMPLES = 20, 200
# Strings are made for many of them.
MORE_STRINGS = 10
QUICK_LIMIT, FULL_LIMIT = 3.0, 150.0
AXES = {"n": f"n, at m = {FEW_KERNELS}", "m": f"m, at n = {FEW_SAMPLES}"}


def sizes_of(solver: str, axis: str, full: bool) -> list[tuple[int, int]]:
    """Return the (n, m) of a series, doubled from one to the next."""
    factor = MORE_STRINGS if solver == STRINGS else 1
    if axis == "n":
        return [(factor * FEW_SAMPLES * 2**i, FEW_KERNELS) for i in range(5 if full else 4)]
    return [(factor * FEW_SAMPLES, FEW_KERNELS * 2**i) for i in range(7 if full else 5)]


def measure(settings: Settings, clock: Clock) -> dict[str, Any]:
    """Fit every series; draw them."""
    limit = FULL_LIMIT if settings.full else QUICK_LIMIT
    series: dict[str, Any] = {}
    for solver in (*SOLVERS, STRINGS):
        for axis in AXES:
            sizes = sizes_of(solver, axis, settings.full)
            found = fit_series(solver, sizes, limit, settings.seed)
            series.setdefault(solver, {})[axis] = found
            last = found[-1]
            settings.say(f"{solver}: {axis} = {last[axis]:,}, {last['seconds']:.2f} s")
    draw(series, settings.out / "growth.png")
    return {"series": series, "limit": limit}


def slopes_of(points: list[dict[str, float]], axis: str) -> dict[str, Slope | None]:
    """Return the exponents of time and memory of a series."""
    sizes = [point[axis] for point in points]
    return {what: upper_slope(sizes, [p[what] for p in points]) for what in ("seconds", "mb")}


def tell(result: dict[str, Any]) -> str:
    """Return the exponents, and what the largest fits took."""
    parts = []
    for axis, words in AXES.items():
        rows = []
        for solver, found in result["series"].items():
            points = found[axis]
            last, slopes = points[-1], slopes_of(points, axis)
            told = [slope.told() if slope else "" for slope in slopes.values()]
            size = f"{last['n']:,} x {last['m']:,}"
            rows.append([solver, *told, size, f"{last['seconds']:.2f}", f"{last['mb']:,.0f}"])
        heads = ["solver", "time", "memory", "largest, n x m", "processor s", "MB"]
        parts.append(f"Exponents in {words} (strings: ten times the samples).")
        parts.append(table(heads, rows))
    parts.append(
        f"A series ends before a fit of more than {result['limit']:g} processor seconds of one "
        "thread. The exponents are of the four largest sizes of a series."
    )
    return "\n\n".join(parts)


if __name__ == "__main__":
    run_alone(sys.modules[__name__])
