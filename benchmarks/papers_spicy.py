"""Figures 2 to 4 of the SpicyMKL paper (Suzuki and Tomioka), processor seconds of one thread.

    python benchmarks/papers_spicy.py --data-dir DIR --figure proof_spicy.png
    python benchmarks/papers_spicy.py --m 50 500 --n 200 500

Figure 2: ionosphere, 918 kernels, hinge loss, c = 0.05: the duality gap and the kernels in use
while a fit goes on. Figure 3: ringnorm, n = 200, logistic loss, gap 1e-2: time against the number
of kernels; Figure 4: 20 kernels, against n. Kernel matrices are there before the clock starts.
``benchmarks/spicy.py`` has Figure 1, more settings and the time by the wall clock.
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
from kernelweave.operators import bind_kernels
from kernelweave.problem import Problem
from kernelweave.solvers import Limits, Result, Solver, solve

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
    """Figure 2, to a gap of 1e-6; nothing if the set cannot be had."""
    try:
        ionosphere = load("ionosphere", data_dir)
    except (OSError, LookupError, ValueError, RuntimeError) as error:
        print(f"left out: ionosphere ({error})")
        return {}
    X, y = draw(*ionosphere, 280)
    bank = DenseBank("float64").build(bind_kernels("spicymkl", X, normalize="trace"))
    problem = block_l1_problem(bank, y, LOSSES["hinge"], 0.05)
    return {name: traced(problem, SOLVERS[name], 1e-6, limit)[1] for name in LOOKS}


def against(points: list[tuple[int, int]], limit: float) -> Times:
    """Each solver on ringnorm with n samples and m kernels, for each of the pairs."""
    found: Times = {name: [] for name in LOOKS}
    for n, m in points:
        X, y = make_ringnorm(n)
        X, y = draw(X, np.where(y == 1, 1.0, -1.0), n)
        batch = bind_kernels(random_kernels(m, X.shape[1]), X)
        bank = DenseBank(storage_dtype(LOOSE)).build(batch)
        problem = block_l1_problem(bank, y, LOSSES["logistic"], 0.05)
        for name, own in found.items():
            result, trace = traced(problem, SOLVERS[name], LOOSE, limit)
            kept = int(np.count_nonzero(result.d))
            own.append((m, trace[-1][0], result.converged, kept))
    return found


def show(title: str, sizes: list[int], found: Times) -> None:
    """Print one of the figures as a table."""
    seconds = [entry[1] for entry in found["spicy"]]
    rows = []
    for place, (size, slope) in enumerate(zip(sizes, growth(sizes, seconds), strict=True)):
        entries = [own[place] for own in found.values()]
        cells = [f"{'' if entry[2] else '> '}{entry[1]:.2f}" for entry in entries]
        rows.append([f"{size:,}", *cells, slope, entries[0][3]])
    letter = title.split()[0]
    heads = [letter, *[f"{name}, s" for name in found], f"spicy grows as {letter}^", "kept"]
    print(f"\n{title}\n\n{table(heads, rows)}", flush=True)


def figure(traces: dict[str, Trace], found: Times, path: Path) -> None:
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
    parser.add_argument("--n", type=int, nargs="+", default=[200, 500, 1000, 2000])
    parser.add_argument("--limit", type=float, default=10.0, help="processor seconds of a fit")
    parser.add_argument("--figure", type=Path)
    args = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
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
