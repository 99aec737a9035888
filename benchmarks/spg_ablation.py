"""What each part of SPG-GMKL is worth: the paper's Tables 7 and 11, and a figure like its Figure 1.

    python benchmarks/spg_ablation.py --data-dir DIR [--figure spg_ablation.png]
    python benchmarks/spg_ablation.py --quick       # three small sets, 10 s a fit

Five settings of one solver: projected gradient descent with an Armijo search (PGD), with the
non-monotone test (+N), the spectral step (+S), both (+N+S), and with tuned precision of the SVM
solves as well (SPG-GMKL); beside them what ``solver="auto"`` takes (second-order steps for sums
under l1, scaled steps for products). All start from the same weights and stop at the same
certificate. A fit that has not converged after --max-time seconds is marked with its gap.

Table 7: small sets, sum of the SimpleMKL family under l1 and under p = 1.33, and product of one
kernel for each feature under l1. Table 11: subsets of Adult, 10 Gaussian kernels, p = 1.33.
"""

from __future__ import annotations

import argparse
import time
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from datasets import add_data_dir, load
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import StandardScaler

from kernelweave.bank import build_bank
from kernelweave.combine import Product, WeightedSum
from kernelweave.kernels import RBF
from kernelweave.losses import Hinge
from kernelweave.operators import ComputedOperator, DistanceOperator
from kernelweave.problem import Problem
from kernelweave.regularizers import L1, SquaredLp
from kernelweave.solvers import PGD, SPG, Limits, Result, get_solver
from kernelweave.solvers.loop import run

SETTINGS = {
    "PGD": PGD(),
    "PGD+N": SPG(spectral=False, nonmonotone=True, tune_precision=False, scaled=False),
    "PGD+S": SPG(spectral=True, nonmonotone=False, tune_precision=False, scaled=False),
    "PGD+N+S": SPG(spectral=True, nonmonotone=True, tune_precision=False, scaled=False),
    "SPG-GMKL": SPG(scaled=False),
    "auto": "auto",
}
SMALL = ("ionosphere", "sonar", "wdbc", "pima", "liver", "australian", "wpbc")


@dataclass
class Row:
    """One data set and formulation, solved by all settings."""

    title: str
    results: dict[str, Result]


def sum_problem(X: np.ndarray, y: np.ndarray, regularizer: object, C: float) -> Problem:
    bank = build_bank("auto", ComputedOperator.build("simplemkl", X), tol=1e-6)
    return Problem(bank, y[None], np.full((1, len(y)), C), Hinge(), regularizer, WeightedSum())


def product_problem(X: np.ndarray, y: np.ndarray, regularizer: object, C: float) -> Problem:
    bank = DistanceOperator.build("features", X).keep()
    return Problem(bank, y[None], np.full((1, len(y)), C), Hinge(), regularizer, Product())


def adult_problem(X: np.ndarray, y: np.ndarray, C: float) -> Problem:
    widths = np.geomspace(1.0, 30.0, 10)
    kernels = ComputedOperator.build([RBF(width=w) for w in widths], X)
    bank = build_bank("dense", kernels, tol=1e-6)  # float64: the solver alone decides the gap
    return Problem(bank, y[None], np.full((1, len(y)), C), Hinge(), SquaredLp(1.33), WeightedSum())


def solve_all(title: str, problem: Problem, max_time: float, tol: float) -> Row:
    limits = Limits(tol=tol, max_iter=100_000, max_time=max_time)
    results = {}
    for name, setting in SETTINGS.items():
        solver = get_solver(setting, problem)
        # `run` is the bare loop: no weights learnt on a part of the samples first.
        results[name] = run(problem, solver, limits, None, [], time.perf_counter())
    row = Row(title, results)
    show(row)
    return row


def show(row: Row) -> None:
    cells = []
    for result in row.results.values():
        last = result.history[-1]
        mark = "" if result.converged else f" (gap {result.certificate.gap:.0e})"
        cells.append(f"{last.seconds:6.2f} s {last.inner_solves:6d}{mark}")
    print(f"{row.title:<22} " + " | ".join(f"{cell:<27}" for cell in cells), flush=True)


def header() -> None:
    print(f"\n{'time and SVM solves':<22} " + " | ".join(f"{name:<27}" for name in SETTINGS))


def figure(rows: list[Row], path: Path) -> None:
    """Objective above the best one found, against time."""
    from matplotlib.figure import Figure

    fig = Figure(figsize=(4.2 * len(rows), 3.6), layout="constrained")
    for ax, row in zip(fig.subplots(1, len(rows), squeeze=False)[0], rows, strict=True):
        best = min(result.certificate.primal for result in row.results.values())
        for name, result in row.results.items():
            seconds = [record.seconds for record in result.history]
            above = [max(record.primal / best - 1.0, 1e-6) for record in result.history]
            style = {"SPG-GMKL": {"lw": 2.5}, "auto": {"lw": 2.0, "ls": "--", "color": "black"}}
            ax.loglog(seconds, above, label=name, **style.get(name, {"lw": 1.2}))
        ax.set(title=row.title, xlabel="seconds", ylabel="objective above the best, relative")
        ax.grid(alpha=0.3)
    fig.axes[0].legend(frameon=False)
    fig.savefig(path, dpi=120)
    print(f"\nfigure: {path}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_data_dir(parser)
    parser.add_argument("--parts", nargs="+", default=["small", "adult"])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--max-time", type=float, default=60.0, help="seconds for one fit")
    parser.add_argument("--tol", type=float, default=1e-3)
    parser.add_argument("--C", type=float, default=10.0)
    parser.add_argument("--figure", type=Path, default=Path("spg_ablation.png"))
    args = parser.parse_args()
    names = SMALL[:2] + SMALL[4:5] if args.quick else SMALL
    max_time = min(args.max_time, 10.0) if args.quick else args.max_time
    warnings.simplefilter("ignore", ConvergenceWarning)
    rows = small_sets(args, names, max_time) if "small" in args.parts else []
    if "adult" in args.parts:
        rows += adult_subsets(args, (1000,) if args.quick else (1000, 2000, 4000), max_time)
    shown = [row for row in rows if row.title.startswith(("sonar", "adult"))]
    if shown:
        figure(shown[:3] + shown[3:][-1:], args.figure)


def small_sets(args: argparse.Namespace, names: tuple[str, ...], max_time: float) -> list[Row]:
    rows = []
    for title, make in (
        ("sum l1", lambda X, y: sum_problem(X, y, L1(1.0), args.C)),
        ("sum p=1.33", lambda X, y: sum_problem(X, y, SquaredLp(1.33), args.C)),
        ("product l1", lambda X, y: product_problem(X, y, L1(1.0), args.C)),
    ):
        header()
        for name in names:
            X, y = load(name, args.data_dir)
            problem = make(StandardScaler().fit_transform(X), y)
            rows.append(solve_all(f"{name} {title}", problem, max_time, args.tol))
    return rows


def adult_subsets(args: argparse.Namespace, sizes: tuple[int, ...], max_time: float) -> list[Row]:
    header()
    X, y = load("adult", args.data_dir)
    order = np.random.default_rng(0).permutation(len(y))
    rows = []
    for n in sizes:
        problem = adult_problem(X[order[:n]], y[order[:n]], 1.0)
        rows.append(solve_all(f"adult n={n} p=1.33", problem, max_time, args.tol))
    return rows


if __name__ == "__main__":
    main()
