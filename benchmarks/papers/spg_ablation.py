"""What each part of SPG-GMKL is worth: the paper's Tables 7 and 11, and a figure like its Figure 1.

    python -m benchmarks.papers.spg_ablation --data-dir DIR [--figure spg_ablation.png]
    python -m benchmarks.papers.spg_ablation --quick       # three small sets, 10 s a fit

Five settings of one solver: projected gradient descent with an Armijo search (PGD), with the
non-monotone test (+N), the spectral step (+S), both (+N+S), and with tuned precision of the SVM
solves as well (SPG-GMKL); beside them what ``solver="auto"`` takes (second-order steps for sums
under l1, scaled steps for products). All start from the same weights and stop at the same
certificate. A fit that has not converged after --max-time seconds is marked with its gap.

Table 7: small sets, sum of the SimpleMKL family under l1 and under p = 1.33, and product of one
kernel for each feature under l1. Table 11: subsets of Adult, 10 Gaussian kernels, p = 1.33.
"""

import time
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.preprocessing import StandardScaler

from benchmarks.data import load
from benchmarks.part import read_options
from benchmarks.problems import problem_on
from benchmarks.show import Table, new_figure, save
from kernelweave.bank import build_bank
from kernelweave.combine import Product
from kernelweave.kernels import RBF
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
Results = dict[str, dict[str, Result]]


def bare_fit(problem: Problem, setting: Any, limits: Limits) -> Result:
    """Fit by the bare loop, with no weights learnt on a part of the samples first."""
    return run(problem, get_solver(setting, problem), limits, None, [], time.perf_counter())


def sum_problem(X: np.ndarray, y: np.ndarray, regularizer: Any, C: float) -> Problem:
    bank = build_bank("auto", ComputedOperator.build("simplemkl", X), tol=1e-6)
    return problem_on(bank, y, C, regularizer=regularizer)


def product_problem(X: np.ndarray, y: np.ndarray, regularizer: Any, C: float) -> Problem:
    bank = DistanceOperator.build("features", X).keep()
    return problem_on(bank, y, C, regularizer=regularizer, combination=Product())


def adult_problem(X: np.ndarray, y: np.ndarray) -> Problem:
    kernels = [RBF(width=w) for w in np.geomspace(1.0, 30.0, 10)]
    # float64: the solver alone decides the gap
    bank = build_bank("dense", ComputedOperator.build(kernels, X), tol=1e-6)
    return problem_on(bank, y, regularizer=SquaredLp(1.33))


def solve_all(found: Table, title: str, problem: Problem, limits: Limits) -> dict[str, Result]:
    results, cells = {}, []
    for name, setting in SETTINGS.items():
        result = results[name] = bare_fit(problem, setting, limits)
        last = result.history[-1]
        mark = "" if result.converged else f" (gap {result.certificate.gap:.0e})"
        cells.append(f"{last.seconds:.2f} s, {last.inner_solves}{mark}")
    found.row(title, *cells)
    return results


def figure(rows: Results, path: Path) -> None:
    """Objective above the best one found, against time."""
    fig, [axes] = new_figure(4.2 * len(rows), 3.9, 1, len(rows))
    style = {"SPG-GMKL": {"lw": 2.5}, "auto": {"lw": 2.0, "ls": "--", "color": "black"}}
    for ax, (title, results) in zip(axes, rows.items(), strict=True):
        best = min(result.certificate.primal for result in results.values())
        for name, result in results.items():
            seconds = [record.seconds for record in result.history]
            above = [max(record.primal / best - 1.0, 1e-6) for record in result.history]
            ax.loglog(seconds, above, label=name, **style.get(name, {"lw": 1.2}))
        ax.set(title=title, xlabel="seconds", ylabel="objective above the best, relative")
    save(fig, path, axes[0])


def main() -> None:
    args = read_options(
        __doc__,
        parts=["small", "adult"],
        quick=False,
        max_time=(60.0, "seconds for one fit"),
        tol=1e-3,
        C=10.0,
        figure=Path("spg_ablation.png"),
    )
    names = SMALL[:2] + SMALL[4:5] if args.quick else SMALL
    max_time = min(args.max_time, 10.0) if args.quick else args.max_time
    limits = Limits(tol=args.tol, max_iter=100_000, max_time=max_time)
    rows: Results = {}
    found = Table("time and SVM solves", ["data", *SETTINGS])
    if "small" in args.parts:
        for title, make, regularizer in (
            ("sum l1", sum_problem, L1(1.0)),
            ("sum p=1.33", sum_problem, SquaredLp(1.33)),
            ("product l1", product_problem, L1(1.0)),
        ):
            for name in names:
                X, y = load(name, args.data_dir)
                problem = make(StandardScaler().fit_transform(X), y, regularizer, args.C)
                rows[f"{name} {title}"] = solve_all(found, f"{name} {title}", problem, limits)
    if "adult" in args.parts:
        X, y = load("adult", args.data_dir)
        order = np.random.default_rng(0).permutation(len(y))
        for n in (1000,) if args.quick else (1000, 2000, 4000):
            title = f"adult n={n} p=1.33"
            problem = adult_problem(X[order[:n]], y[order[:n]])
            rows[title] = solve_all(found, title, problem, limits)
    shown = [title for title in rows if title.startswith(("sonar", "adult"))]
    if shown:
        figure({title: rows[title] for title in shown[:3] + shown[3:][-1:]}, args.figure)


if __name__ == "__main__":
    main()
