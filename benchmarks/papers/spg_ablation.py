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

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.data import available, load, load_standardised
from benchmarks.papers.spg import bare_fit, make_problem, regularizer_of
from benchmarks.part import read_options
from benchmarks.problems import problem_on
from benchmarks.show import Table, new_figure, save
from kernelweave.bank import build_bank
from kernelweave.kernels import RBF
from kernelweave.operators import ComputedOperator
from kernelweave.problem import Problem
from kernelweave.solvers import PGD, SPG, Limits, Result

PLAIN = {"tune_precision": False, "scaled": False}
SETTINGS = {
    "PGD": PGD(),
    "PGD+N": SPG(spectral=False, nonmonotone=True, **PLAIN),
    "PGD+S": SPG(spectral=True, nonmonotone=False, **PLAIN),
    "PGD+N+S": SPG(spectral=True, nonmonotone=True, **PLAIN),
    "SPG-GMKL": SPG(scaled=False),
    "auto": "auto",
}
SMALL = ["ionosphere", "sonar", "wdbc", "pima", "liver", "australian", "wpbc"]
CASES = {
    "sum l1": ("sum", "l1"),
    "sum p=1.33": ("sum", "1.33"),
    "product l1": ("product", "l1"),
}


def problems(args: Any) -> Iterator[tuple[str, Problem]]:
    if "small" in args.parts:
        for title, case in CASES.items():
            for name, (X, y) in available(args.sets, args.data_dir, load_standardised):
                yield f"{name} {title}", make_problem(case[0], X, y, case[1], args.C)
    if "adult" in args.parts:
        for _, (X, y) in available(["adult"], args.data_dir, load):
            order = np.random.default_rng(0).permutation(len(y))
            kernels = [RBF(width=w) for w in np.geomspace(1.0, 30.0, 10)]
            for n in args.n:
                # float64: the solver alone decides the gap
                bound = ComputedOperator.build(kernels, X[order[:n]])
                bank = build_bank("dense", bound, tol=1e-6)
                problem = problem_on(bank, y[order[:n]], regularizer=regularizer_of("1.33"))
                yield f"adult n={n} p=1.33", problem


def figure(rows: dict[str, dict[str, Result]], path: Path) -> None:
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
        quick={"sets": ["ionosphere", "sonar", "liver"], "n": [1000], "max_time": 10.0},
        parts=["small", "adult"],
        sets=SMALL,
        n=([1000, 2000, 4000], "rows of Adult"),
        max_time=(60.0, "seconds for one fit"),
        tol=1e-3,
        C=(10.0, "of the small sets"),
        figure=Path("spg_ablation.png"),
    )
    limits = Limits(tol=args.tol, max_iter=100_000, max_time=args.max_time)
    found = Table("time and SVM solves", ["data", *SETTINGS])
    rows: dict[str, dict[str, Result]] = {}
    for title, problem in problems(args):
        results = {name: bare_fit(problem, setting, limits) for name, setting in SETTINGS.items()}
        cells = []
        for result in results.values():
            last = result.history[-1]
            mark = "" if result.converged else f" (gap {result.certificate.gap:.0e})"
            cells.append(f"{last.seconds:.2f} s, {last.inner_solves}{mark}")
        found.row(title, *cells)
        if title.startswith(("sonar", "adult")):
            rows[title] = results
    if rows:
        shown = list(rows)
        figure({title: rows[title] for title in shown[:3] + shown[3:][-1:]}, args.figure)


if __name__ == "__main__":
    main()
