"""The small sets of the SPG-GMKL paper: Tables 2, 4, 5 and 9 (Jain et al. 2012), beside its times.

    python -m benchmarks.papers.spg --data-dir DIR --figure proof_spg.png
    python -m benchmarks.papers.spg --tables 4 --sets sonar --folds 1

Table 2: sum of the SimpleMKL family under p = 1.1, 1.33 and 2. Table 4: the same under l1. Tables 5
and 9: product of one kernel for each feature under the same norms, and under l1.

Times are processor seconds of one thread, mean and standard deviation over the training parts of
five folds, kernels there before the clock starts, to a relative duality gap of 1e-3 for sums and
the stationarity that the library asks of products. C = 10 throughout; the paper's was chosen by
validation and is not told. A solver that needs more than --limit seconds for a fit is shown with
the gap that was left, and is not asked again in the other folds.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.model_selection import StratifiedKFold
from sklearn.preprocessing import StandardScaler

from benchmarks.data import MissingDataError, available, load
from benchmarks.papers.tables import PUBLISHED, Measures, over_splits
from benchmarks.part import read_options
from benchmarks.problems import problem_on
from benchmarks.show import Table, new_figure, save, spread
from benchmarks.timing import Budget, one_thread, seconds_of
from kernelweave.bank import build_bank
from kernelweave.combine import Product
from kernelweave.operators import ComputedOperator, DistanceOperator
from kernelweave.problem import Problem
from kernelweave.regularizers import L1, SquaredLp
from kernelweave.solvers import SILP, SPG, Limits, Result, get_solver
from kernelweave.solvers.loop import run

C, TOL = 10.0, 1e-3
TABLES = {int(number): table for number, table in PUBLISHED["spg"].items() if number.isdigit()}


def published(number: int, name: str) -> dict[str, dict[str, float]]:
    """The seconds of every method in the paper, by norm."""
    told = TABLES[number]
    by_norm = np.reshape(told["seconds"][name], (len(told["norms"]), -1)).tolist()
    return {
        norm: dict(zip(told["methods"], own, strict=True))
        for norm, own in zip(told["norms"], by_norm, strict=True)
    }


def regularizer_of(norm: str) -> Any:
    return L1(1.0) if norm == "l1" else SquaredLp(float(norm))


def make_problem(kind: str, X: np.ndarray, y: np.ndarray, norm: str, C: float = C) -> Problem:
    """Hinge loss; the sum of the SimpleMKL family, or the product of a kernel for each feature."""
    if kind == "sum":
        bank = build_bank("auto", ComputedOperator.build("simplemkl", X), tol=1e-6)
        return problem_on(bank, y, C, regularizer=regularizer_of(norm))
    bank = DistanceOperator.build("features", X).keep()
    return problem_on(bank, y, C, regularizer=regularizer_of(norm), combination=Product())


def bare_fit(problem: Problem, setting: Any, limits: Limits) -> Result:
    """Fit by the bare loop, with no weights learnt on a part of the samples first."""
    return run(problem, get_solver(setting, problem), limits)


def settings_of(number: int) -> dict[str, Any]:
    first: dict[str, Any] = {"SILP": SILP()} if number == 4 else {}
    return {**first, "SPG-GMKL": SPG(scaled=False), "auto": "auto"}


def read_folds(name: str, data_dir: Path | str | None) -> list[tuple[np.ndarray, np.ndarray]]:
    """Training parts of five folds; leukemia has one, its 38 training samples."""
    if name == "leukemia":
        path = Path(data_dir or "") / "leukemia_golub.csv.gz"
        if not path.is_file():
            raise MissingDataError(f"leukemia: no {path.name} (--data-dir)")
        samples = pd.read_csv(path)
        samples = samples[samples["split"] == "train"]
        X = samples.iloc[:, 2:-1].to_numpy(float)
        return [(X[:, X.std(axis=0) > 0], np.where(samples.iloc[:, -1] == "AML", 1.0, -1.0))]
    X, y = load(name, data_dir)
    folds = StratifiedKFold(5, shuffle=True, random_state=0).split(X, y)
    return [(X[train], y[train]) for train, _ in folds]


def contestant(
    who: str, setting: Any, limit: float, left: dict[str, str]
) -> Callable[[Problem], Measures | None]:
    """Measure the seconds of a fit; what is not done in time is noted in `left`."""

    def measure(problem: Problem) -> Measures | None:
        limits = Limits(tol=TOL, max_iter=100_000, callbacks=(Budget(limit),))
        seconds, result = seconds_of(lambda: bare_fit(problem, setting, limits), time.process_time)
        gap = result.certificate.gap
        if gap > TOL:
            left[who] = f"> {seconds:.0f}, gap {gap:.0e}"
            return None
        return {"seconds": seconds}

    return measure


def run_table(number: int, args: Any) -> dict[tuple[str, str], dict[str, float]]:
    """Print one table; return the mean seconds by set and norm, then by who took them."""
    told, ours = TABLES[number], settings_of(number)
    heads = ["data", "n", "m", "norm", *(f"{who}, s" for who in ours)]
    shown = Table(f"## {told['title']}", heads + [f"paper: {who}, s" for who in told["methods"]])
    results = {}
    names = [name for name in told["seconds"] if name in args.sets]
    for name, folds in available(names, args.data_dir, read_folds):
        folds = folds[: args.folds]
        for norm, theirs in published(number, name).items():
            problems = [
                make_problem(told["kind"], StandardScaler().fit_transform(X), y, norm)
                for X, y in folds
            ]
            left: dict[str, str] = {}
            entrants = {who: contestant(who, ours[who], args.limit, left) for who in ours}
            found = over_splits(problems, entrants)
            cells = [left.get(who) or spread(found[who]["seconds"]) for who in ours]
            cells += [f"{seconds:g}".replace("inf", "-") for seconds in theirs.values()]
            shown.row(name, len(folds[-1][1]), problems[-1].m, norm, *cells)
            done = {who: np.mean(own["seconds"]) for who, own in found.items() if who not in left}
            results[name, norm] = {**done, **{f"paper: {who}": s for who, s in theirs.items()}}
    return results


LOOKS = {
    "paper: PGD": ("^", "#999999"),
    "paper: SILP": ("v", "#CC79A7"),
    "paper: SPG-GMKL": ("s", "#D55E00"),
    "SILP": ("v", "#56B4E9"),
    "SPG-GMKL": ("s", "#0072B2"),
    "auto": ("o", "#000000"),
}


def draw(results: dict[int, dict[tuple[str, str], dict[str, float]]], path: Path) -> None:
    """Seconds here and in the paper, one line for each set and norm."""
    shape = (2, 2) if len(results) > 2 else (1, len(results))
    most = max(map(len, results.values()))
    size = 4.6 * shape[1], shape[0] * (0.19 * most + 0.9) + 0.4
    fig, grid = new_figure(*size, *shape, sharex=True)
    axes = grid.ravel()
    for ax, (number, rows) in zip(axes, results.items(), strict=False):
        for label, (marker, colour) in LOOKS.items():
            points = [(own.get(label, np.inf), place) for place, own in enumerate(rows.values())]
            points = [point for point in points if np.isfinite(point[0])]
            look = {"marker": marker, "color": colour, "ls": "", "ms": 5, "label": label}
            ax.plot(*np.reshape(points, (-1, 2)).T, **look)
        ax.set_yticks(range(len(rows)), [", ".join(key) for key in rows], fontsize=8)
        ax.set(xscale="log", xlabel="seconds", ylim=(len(rows) - 0.5, -0.5))
        ax.set_title(TABLES[number]["title"])
        ax.tick_params(labelbottom=True)
    for ax in axes[len(results) :]:
        ax.set_axis_off()
    save(fig, path, axes[0])


def main() -> None:
    args = read_options(
        __doc__,
        tables=(list(TABLES), None, TABLES),
        sets=sorted({name for table in TABLES.values() for name in table["seconds"]}),
        folds=5,
        limit=(20.0, "processor seconds of a fit"),
        figure=None,
    )
    with one_thread():
        X, y = np.random.default_rng(0).normal(size=(60, 3)), np.resize([-1.0, 1.0], 60)
        for number in args.tables:  # compiles
            small = make_problem(TABLES[number]["kind"], X, y, TABLES[number]["norms"][-1])
            for setting in settings_of(number).values():
                contestant("", setting, 1.0, {})(small)
        results = {number: run_table(number, args) for number in args.tables}
    results = {number: rows for number, rows in results.items() if rows}
    if args.figure and results:
        draw(results, args.figure)


if __name__ == "__main__":
    main()
