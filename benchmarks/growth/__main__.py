"""How time and memory of every solver grow with the samples and with the kernels.

    python -m benchmarks.growth            # quick: n up to 1,600 and m up to 320
    python -m benchmarks.growth --full     # n up to 3,200 and m up to 1,280 (strings: 32,000)

Generated data, Gaussian kernels of random widths on random subsets of the columns (fit.py); n
doubles at m = 20, m doubles at n = 200. A fit is all of `fit`, kernels included, to a relative
duality gap of 1e-3; "bayes" ends at its own tolerance. "strings" are sequences of m letters with a
kernel for each position, and ten times as many of them.

Time is processor seconds of one thread, the shortest of three fits where they are short. Memory is
the peak of a process above what it held when the fit began. A series ends before a fit that takes
too long. Exponents are slopes of least squares through the four largest sizes on logarithmic axes,
with standard errors.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.growth.fit import SOLVERS, STRINGS, fit_series
from benchmarks.part import Settings, run_alone
from benchmarks.show import new_figure, plain_numbers, save, table
from benchmarks.timing import Clock

TITLE = "Growth: time and memory in n and in m"
FEW_KERNELS, FEW_SAMPLES = 20, 200
# Strings are made for many of them.
MORE_STRINGS = 10
QUICK_LIMIT, FULL_LIMIT = 3.0, 150.0
AXES = {"n": f"n, at m = {FEW_KERNELS}", "m": f"m, at n = {FEW_SAMPLES}"}
# Points of the upper part of a range. Small problems show what a fit takes at least, not growth.
UPPER, FEWEST = 4, 3
# Okabe and Ito's palette, and markers for those who see no colours at all.
LOOKS = {
    "active-set": ("#0072B2", "o"),
    "silp": ("#D55E00", "s"),
    "silp-chunking": ("#E69F00", "D"),
    "spicy": ("#CC79A7", "^"),
    "spg": ("#009E73", "v"),
    "mwu": ("#56B4E9", "P"),
    "uniform": ("#999999", "X"),
    "bayes": ("#222222", "*"),
    "strings": ("#8C6D1F", "h"),
}


def sizes_of(solver: str, axis: str, full: bool) -> list[tuple[int, int]]:
    """Return the (n, m) of a series, doubled from one to the next."""
    factor = MORE_STRINGS if solver == STRINGS else 1
    if axis == "n":
        return [(factor * FEW_SAMPLES * 2**i, FEW_KERNELS) for i in range(5 if full else 4)]
    return [(factor * FEW_SAMPLES, FEW_KERNELS * 2**i) for i in range(7 if full else 5)]


def measure(settings: Settings, clock: Clock) -> dict[str, Any]:
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


def upper_slope(sizes: Any, values: Any) -> tuple[float, float] | None:
    """Fit log(value) = a + b log(size) to the points of the four largest sizes: b and its error.

    The error is the standard error of least squares. None for fewer than three points, which leave
    nothing to tell an error from.
    """
    order = np.argsort(sizes)[-UPPER:]
    if len(order) < FEWEST:
        return None
    x, y = (np.log(np.asarray(column, float)[order]) for column in (sizes, values))
    line, covariance = np.polyfit(x, y, 1, cov=True)
    return float(line[0]), float(np.sqrt(covariance[0, 0]))


def tell(result: dict[str, Any]) -> str:
    parts = []
    for axis, words in AXES.items():
        rows = []
        for solver, found in result["series"].items():
            points, last = found[axis], found[axis][-1]
            slopes = [
                upper_slope([point[axis] for point in points], [point[what] for point in points])
                for what in ("seconds", "mb")
            ]
            told = [f"{slope[0]:.2f} ± {slope[1]:.2f}" if slope else "" for slope in slopes]
            size = f"{last['n']:,} x {last['m']:,}"
            rows.append([solver, *told, size, last["seconds"], last["mb"]])
        heads = ["solver", "time", "memory", "largest, n x m", "processor s", "MB"]
        parts.append(f"Exponents in {words} (strings: ten times the samples).")
        parts.append(table(heads, rows))
    parts.append(
        f"A series ends before a fit of more than {result['limit']:g} processor seconds of one "
        "thread. The exponents are of the four largest sizes of a series."
    )
    return "\n\n".join(parts)


def draw(series: dict[str, Any], path: Path) -> None:
    """Time and memory against n and m, one line for each solver."""
    figure, axes = new_figure(8.4, 6.4, 2, 2, sharex="col", sharey="row")
    for row, what in enumerate(("seconds", "mb")):
        for column, axis in enumerate(AXES):
            for solver, found in series.items():
                colour, marker = LOOKS[solver]
                points = [(point[axis], point[what]) for point in found[axis]]
                look = {"color": colour, "marker": marker, "ms": 5, "lw": 1.5, "label": solver}
                axes[row, column].plot(*zip(*points, strict=True), **look)
    plain_numbers(*axes.flat)
    axes[0, 0].set(title=f"growing n, m = {FEW_KERNELS}", ylabel="processor seconds")
    axes[0, 1].set(title=f"growing m, n = {FEW_SAMPLES}")
    axes[1, 0].set(xlabel="samples n", ylabel="MB")
    axes[1, 1].set(xlabel="kernels m")
    save(figure, path, axes[0, 0])


if __name__ == "__main__":
    run_alone(sys.modules[__name__])
