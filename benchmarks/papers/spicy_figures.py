"""Figures 2 to 4 of the SpicyMKL paper (Suzuki and Tomioka), processor seconds of one thread.

    python -m benchmarks.papers.spicy_figures --data-dir DIR --figure proof_spicy.png
    python -m benchmarks.papers.spicy_figures --m 50 500 --n 200 500

Figure 2: ionosphere, 918 kernels, hinge loss, c = 0.05: the duality gap and the kernels in use
while a fit goes on. Figure 3: ringnorm, n = 200, logistic loss, gap 1e-2: time against the number
of kernels; Figure 4: 20 kernels, against n. Kernel matrices are there before the clock starts.
``benchmarks/papers/spicy.py`` has Figure 1, more settings and the time by the wall clock.
"""

import time
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.data import load
from benchmarks.papers.contest import Limited, fit
from benchmarks.papers.spicy_problems import (
    LOOSE,
    SOLVERS,
    block_l1_problem,
    draw,
    random_bank,
    ringnorm,
)
from benchmarks.part import read_options
from benchmarks.show import Table, new_figure, save
from benchmarks.timing import growth
from kernelweave.bank import DenseBank
from kernelweave.compiled.threads import use_threads
from kernelweave.operators import bind_kernels
from kernelweave.problem import Problem
from kernelweave.solvers import Result

# Seconds, gap and kernels in use after each step.
Trace = list[tuple[float, float, int]]
# Of each solver: kernels m, seconds, converged, kernels kept.
Times = dict[str, list[tuple[int, float, bool, int]]]
LOOKS = {
    "spicy": {"color": "#D55E00", "marker": "o", "lw": 2.2},
    "active-set": {"color": "#0072B2", "marker": "s"},
    "silp": {"color": "#009E73", "marker": "^"},
    "spg": {"color": "#999999", "marker": "v"},
}


def traced(problem: Problem, name: str, tol: float, limit: float) -> tuple[Result, Trace]:
    trace: Trace = []
    began = time.process_time()

    def note(record: Any) -> bool:
        trace.append((time.process_time() - began, record.gap, record.active_kernels))
        return False

    limited = Limited(problem, SOLVERS[name], limit)
    _, result = fit(limited, tol, time.process_time, (note,))
    return result, trace


def progress(data_dir: Path | str | None, limit: float) -> dict[str, Trace]:
    """Figure 2, to a gap of 1e-6; nothing if the set cannot be had."""
    try:
        ionosphere = load("ionosphere", data_dir)
    except (OSError, LookupError, ValueError, RuntimeError) as error:
        print(f"left out: ionosphere ({error})")
        return {}
    X, y = draw(*ionosphere, 280)
    bank = DenseBank("float64").build(bind_kernels("spicymkl", X, normalize="trace"))
    problem = block_l1_problem(bank, y, "hinge", 0.05)
    return {name: traced(problem, name, 1e-6, limit)[1] for name in LOOKS}


def against(points: list[tuple[int, int]], limit: float) -> Times:
    """Each solver on ringnorm with n samples and m kernels, for each of the pairs."""
    found: Times = {name: [] for name in LOOKS}
    for n, m in points:
        X, y = ringnorm(n)
        problem = block_l1_problem(random_bank(X, m, LOOSE), y, "logistic", 0.05)
        for name, own in found.items():
            result, trace = traced(problem, name, LOOSE, limit)
            kept = int(np.count_nonzero(result.d))
            own.append((m, trace[-1][0], result.converged, kept))
    return found


def show(title: str, sizes: list[int], found: Times) -> None:
    letter = title.split()[0]
    heads = [letter, *[f"{name}, s" for name in found], f"spicy grows as {letter}^", "kept"]
    shown = Table(title, heads)
    slopes = growth(sizes, [entry[1] for entry in found["spicy"]])
    for place, (size, slope) in enumerate(zip(sizes, slopes, strict=True)):
        entries = [own[place] for own in found.values()]
        cells = [f"{'' if entry[2] else '> '}{entry[1]:.2f}" for entry in entries]
        shown.row(size, *cells, slope, entries[0][3])


def figure(traces: dict[str, Trace], found: Times, path: Path) -> None:
    """Gap and kernels against time, time against m."""
    fig, [axes] = new_figure(10.4, 3.9, 1, 3)
    for name, look in LOOKS.items():
        style = {"lw": 1.3, "ms": 3.5, **look}
        if name in traces:
            seconds, gaps, used = zip(*traces[name], strict=True)
            axes[0].loglog(seconds, gaps, label=name, **style)
            axes[1].loglog(seconds, np.maximum(used, 1), **style)
        done = [(m, seconds) for m, seconds, converged, _ in found[name] if converged]
        axes[2].loglog(*np.reshape(done, (-1, 2)).T, label=name, **style)
    axes[0].set(title="ionosphere, 918 kernels, hinge", ylabel="relative duality gap")
    axes[1].set(title="the same fits", ylabel="kernels in use")
    axes[2].set(title="ringnorm, n = 200, gap 1e-2", xlabel="kernels", ylabel="seconds")
    for ax in axes[:2]:
        ax.set_xlabel("processor seconds")
    save(fig, path, axes[2])


def main() -> None:
    args = read_options(
        __doc__,
        m=[50, 100, 200, 500, 1000, 2000, 3000, 6000],
        n=[200, 500, 1000, 2000],
        limit=(10.0, "processor seconds of a fit"),
        figure=None,
    )
    with threadpool_limits(1), use_threads(1):
        against([(200, 20)], 2.0)  # compiles
        found = against([(200, m) for m in args.m], args.limit)
        show("m kernels, n = 200", args.m, found)
        show("n samples, m = 20", args.n, against([(n, 20) for n in args.n], args.limit))
        traces = progress(args.data_dir, args.limit)
    for name, trace in traces.items():
        seconds, gap, used = trace[-1]
        print(f"ionosphere, {name}: {seconds:.2f} s, gap {gap:.0e}, {used} kernels in use")
    if args.figure:
        figure(traces, found, args.figure)


if __name__ == "__main__":
    main()
