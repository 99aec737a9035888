"""Figures 2 and 3 of the SpicyMKL paper (Suzuki and Tomioka), in processor seconds of one thread.

    python benchmarks/papers_spicy.py --data-dir DIR --figure proof_spicy.png
    python benchmarks/papers_spicy.py --m 50 500

Figure 2: ionosphere, 918 kernels, hinge loss, c = 0.05: the duality gap and the kernels in use
while a fit goes on. Figure 3: ringnorm, n = 200, logistic loss, gap 1e-2: time against the number
of kernels. Kernel matrices are there before the clock starts. ``benchmarks/spicy.py`` has Figures 1
and 4, more settings and the time by the wall clock.
"""

from __future__ import annotations

import argparse
import time
import warnings
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
from datasets import add_data_dir, load, make_ringnorm
from part import table
from sklearn.exceptions import ConvergenceWarning
from spicy_problems import LOOSE, LOSSES, SOLVERS, block_l1_problem, draw, growth, random_kernels
from threadpoolctl import threadpool_limits

from kernelweave.bank import DenseBank, storage_dtype
from kernelweave.compiled.threads import use_threads
from kernelweave.kernels import build_set
from kernelweave.problem import Problem
from kernelweave.solvers import Limits, Result, Solver, solve

# Seconds, gap and kernels in use after each step.
Trace = list[tuple[float, float, int]]
LOOKS = {
    "spicy": {"color": "#D55E00", "marker": "o", "lw": 2.2},
    "active-set": {"color": "#0072B2", "marker": "s"},
    "silp": {"color": "#009E73", "marker": "^"},
    "spg": {"color": "#999999", "marker": "v"},
}


def traced(problem: Problem, solver: Solver, tol: float, limit: float) -> tuple[Result, Trace]:
    """Fit as the first on its bank; processor seconds."""
    trace: Trace = []
    began = time.process_time()

    def note(record: Any) -> bool:
        trace.append((time.process_time() - began, record.gap, record.active_kernels))
        return trace[-1][0] > limit

    limits = Limits(tol=tol, max_iter=100_000, callbacks=(note,))
    result = solve(problem.with_bank(copy(problem.bank)), solver, limits)
    return result, trace


def progress(data_dir: Path | str | None, limit: float) -> dict[str, Trace]:
    """Figure 2, to a gap of 1e-6."""
    X, y = draw(*load("ionosphere", data_dir), 280)
    bank = DenseBank("float64").build(build_set("spicymkl", X, normalize="trace"))
    problem = block_l1_problem(bank, y, LOSSES["hinge"], 0.05)
    return {name: traced(problem, SOLVERS[name], 1e-6, limit)[1] for name in LOOKS}


def kernels(sizes: list[int], limit: float) -> dict[str, list[tuple[int, float, bool, int]]]:
    """Figure 3: (m, seconds, converged, kernels kept) of each solver."""
    X, y = make_ringnorm(200)
    X, y = draw(X, np.where(y == 1, 1.0, -1.0), 200)
    found: dict[str, list[tuple[int, float, bool, int]]] = {name: [] for name in LOOKS}
    for m in sizes:
        batch = build_set(random_kernels(m, X.shape[1]), X)
        bank = DenseBank(storage_dtype(LOOSE)).build(batch)
        problem = block_l1_problem(bank, y, LOSSES["logistic"], 0.05)
        for name, own in found.items():
            result, trace = traced(problem, SOLVERS[name], LOOSE, limit)
            own.append((m, trace[-1][0], result.converged, int(np.count_nonzero(result.d))))
    return found


def show(found: dict[str, list[tuple[int, float, bool, int]]]) -> None:
    """Print Figure 3 as a table."""
    rows = []
    spicy = found["spicy"]
    slopes = growth([m for m, *_ in spicy], [seconds for _, seconds, *_ in spicy])
    for place, (m, _, _, kept) in enumerate(spicy):
        cells = [f"{'' if own[place][2] else '> '}{own[place][1]:.2f}" for own in found.values()]
        rows.append([f"{m:,}", *cells, slopes[place], kept])
    print(table(["m", *[f"{name}, s" for name in found], "spicy grows as m^", "kept"], rows))


def figure(
    traces: dict[str, Trace], found: dict[str, list[tuple[int, float, bool, int]]], path: Path
) -> None:
    """Gap and kernels against time, time against m."""
    from matplotlib.figure import Figure

    fig = Figure(figsize=(10.4, 3.5), layout="constrained")
    axes = fig.subplots(1, 3)
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
    for ax in axes:
        ax.grid(alpha=0.3)
    axes[2].legend(frameon=False)
    fig.savefig(path, dpi=90)
    print(f"\nfigure: {path}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_data_dir(parser)
    sizes = [50, 100, 200, 500, 1000, 2000, 3000, 6000]
    parser.add_argument("--m", type=int, nargs="+", default=sizes)
    parser.add_argument("--limit", type=float, default=10.0, help="processor seconds of a fit")
    parser.add_argument("--figure", type=Path)
    args = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    with threadpool_limits(1), use_threads(1):
        kernels([20], 2.0)  # compiles
        found = kernels(args.m, args.limit)
        show(found)
        traces = progress(args.data_dir, args.limit)
    for name, trace in traces.items():
        seconds, gap, used = trace[-1]
        print(f"ionosphere, {name}: {seconds:.2f} s, gap {gap:.0e}, {used} kernels in use")
    if args.figure:
        figure(traces, found, args.figure)


if __name__ == "__main__":
    main()
