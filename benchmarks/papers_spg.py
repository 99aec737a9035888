"""The small sets of the SPG-GMKL paper: Tables 2, 4, 5 and 9 (Jain et al. 2012), beside its times.

    python benchmarks/papers_spg.py --data-dir DIR --figure proof_spg.png
    python benchmarks/papers_spg.py --tables 4 --sets sonar --folds 1

Table 2: sum of the SimpleMKL family under p = 1.1, 1.33 and 2. Table 4: the same under l1. Tables 5
and 9: product of one kernel for each feature under the same norms, and under l1.

Times are processor seconds of one thread, mean and standard deviation over the training parts of
five folds, kernels there before the clock starts, to a relative duality gap of 1e-3 for sums and
the stationarity that the library asks of products. C = 10 throughout; the paper's was chosen by
validation and is not told. A solver that needs more than --limit seconds for a fit is shown with
the gap that was left, and is not asked again in the other folds.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from datasets import add_data_dir, load
from part import table
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import StratifiedKFold
from sklearn.preprocessing import StandardScaler
from spg_ablation import product_problem, sum_problem
from threadpoolctl import threadpool_limits

from kernelweave.compiled.threads import use_threads
from kernelweave.problem import Problem
from kernelweave.regularizers import L1, SquaredLp
from kernelweave.solvers import SILP, SPG, Limits, get_solver
from kernelweave.solvers.loop import run

C, TOL = 10.0, 1e-3
# (table, set, norm) -> the paper's seconds of SPG-GMKL and of its rivals, by their names there.
PUBLISHED: dict[tuple[int, str, str], dict[str, float]] = {}
for _name, *_times in (
    ("australian", 39.4, 7.0, 248.3, 6.9, 23.5, 6.0),
    ("liver", 282.2, 0.8, 3.3, 0.7, 0.7, 0.6),
    ("sonar", 785.5, 9.0, 57.8, 4.2, 7.7, 3.1),
    ("breast", 237.2, 8.6, 11.2, 3.3, 6.6, 2.7),
    ("pima", 73.6, 4.1, 11.5, 3.0, 3.6, 2.5),
    ("wpbc", 44.4, 1.2, 5.3, 1.3, 1.7, 1.2),
):
    for _place, _p in enumerate(("1.1", "1.33", "2")):
        pair = _times[2 * _place : 2 * _place + 2]
        PUBLISHED[2, _name, _p] = {"PGD": pair[0], "SPG-GMKL": pair[1]}
for _name, _silp, _pgd, _spg in (
    ("wpbc", 15.5, 38.2, 6.2),
    ("breast", 12.3, 57.9, 5.1),
    ("australian", 1094.9, 29.5, 10.1),
    ("ionosphere", 107.8, 1392.4, 39.2),
    ("sonar", 935.1, np.inf, 273.4),
):
    PUBLISHED[4, _name, "l1"] = {"SILP": _silp, "PGD": _pgd, "SPG-GMKL": _spg}
for _name, *_times in (
    ("australian", np.inf, 22.0, np.inf, 22.1, np.inf, 21.6),
    ("liver", 722.4, 1.0, 136.1, 0.6, 0.3, 0.4),
    ("sonar", np.inf, 7.4, np.inf, 3.2, 293.8, 3.1),
    ("breast", 28.4, 4.0, 448.6, 3.3, 377.8, 3.2),
    ("pima", 1232.5, 4.8, 364.4, 2.5, 2.1, 2.1),
    ("wpbc", 1080.3, 4.4, 1064.7, 3.7, 209.3, 2.1),
):
    for _place, _p in enumerate(("1.1", "1.33", "2")):
        pair = _times[2 * _place : 2 * _place + 2]
        PUBLISHED[5, _name, _p] = {"PGD": pair[0], "SPG-GMKL": pair[1]}
for _name, _pgd, _spg in (
    ("australian", np.inf, 16.6),
    ("sonar", np.inf, 4.8),
    ("liver", 1482.6, 2.6),
    ("breast", 1182.6, 4.4),
    ("pima", 1525.7, 7.6),
    ("wpbc", 1093.9, 2.7),
    ("leukemia", 2961.5, 850.0),
):
    PUBLISHED[9, _name, "l1"] = {"PGD": _pgd, "SPG-GMKL": _spg}
TITLES = {
    2: "Table 2: sum, p > 1",
    4: "Table 4: sum, l1",
    5: "Table 5: product, p > 1",
    9: "Table 9: product, l1",
}


def make_problem(kind: int, X: np.ndarray, y: np.ndarray, norm: str) -> Problem:
    """One fold's problem, its kernels computed."""
    regularizer = L1(1.0) if norm == "l1" else SquaredLp(float(norm))
    make = sum_problem if kind in (2, 4) else product_problem
    return make(X, y, regularizer, C)


def contestants(kind: int) -> dict[str, Any]:
    """Solvers by the names of the columns."""
    out: dict[str, Any] = {"SILP": SILP()} if kind == 4 else {}
    return {**out, "SPG-GMKL": SPG(scaled=False), "auto": "auto"}


def read(name: str, data_dir: Path | str | None) -> list[tuple[np.ndarray, np.ndarray]]:
    """Training parts of five folds; leukemia has one, its 38 training samples."""
    if name == "leukemia":
        if not data_dir:
            raise FileNotFoundError("leukemia_golub.csv.gz: --data-dir")
        samples = pd.read_csv(Path(data_dir) / "leukemia_golub.csv.gz")
        samples = samples[samples["split"] == "train"]
        X = samples.iloc[:, 2:-1].to_numpy(float)
        return [(X[:, X.std(axis=0) > 0], np.where(samples.iloc[:, -1] == "AML", 1.0, -1.0))]
    X, y = load(name, data_dir)
    folds = StratifiedKFold(5, shuffle=True, random_state=0).split(X, y)
    return [(X[train], y[train]) for train, _ in folds]


def timed(problem: Problem, setting: Any, limit: float) -> tuple[float, float]:
    """Processor seconds of a fit from nothing, and the gap at its end."""
    solver = get_solver(setting, problem)
    began = time.process_time()
    spent = (lambda record: time.process_time() - began > limit,)
    limits = Limits(tol=TOL, max_iter=100_000, callbacks=spent)
    # `run` is the bare loop: no weights learnt on a part of the samples first.
    result = run(problem, solver, limits, None, [], time.perf_counter())
    return time.process_time() - began, result.certificate.gap


def measure(
    key: tuple[int, str, str], folds: list[tuple[np.ndarray, np.ndarray]], limit: float
) -> dict[str, Any]:
    """Seconds of every solver over the folds of one set; n and m."""
    kind, _, norm = key
    seconds: dict[str, list[float]] = {who: [] for who in contestants(kind)}
    left: dict[str, float] = {}
    for X, y in folds:
        problem = make_problem(kind, StandardScaler().fit_transform(X), y, norm)
        for who, setting in contestants(kind).items():
            if who not in left:
                taken, gap = timed(problem, setting, limit)
                seconds[who].append(taken)
                if gap > TOL:
                    left[who] = gap
    return {"n": len(y), "m": problem.m, "seconds": seconds, "left": left}


def told(result: dict[str, Any], who: str) -> str:
    """One cell."""
    if who in result["left"]:
        return f"> {result['seconds'][who][-1]:.0f}, gap {result['left'][who]:.0e}"
    seconds = result["seconds"][who]
    return f"{np.mean(seconds):.2f} ± {np.std(seconds):.2f}"


def show(kind: int, results: dict[tuple[int, str, str], dict[str, Any]]) -> None:
    """Print one of the paper's tables."""
    own = {key: result for key, result in results.items() if key[0] == kind}
    ours = list(contestants(kind))
    theirs = list(PUBLISHED[next(iter(own))])
    heads = ["data", "n", "m", "norm"]
    rows = []
    for key, result in own.items():
        cells = [told(result, who) for who in ours]
        cells += [f"{PUBLISHED[key][who]:g}".replace("inf", "-") for who in theirs]
        rows.append([key[1], result["n"], result["m"], key[2], *cells])
    heads += [f"{who}, s" for who in ours] + [f"paper: {who}, s" for who in theirs]
    print(f"\n## {TITLES[kind]}\n\n{table(heads, rows)}", flush=True)


def draw(results: dict[tuple[int, str, str], dict[str, Any]], path: Path) -> None:
    """Seconds here and in the paper, one line for each set and norm."""
    from matplotlib.figure import Figure

    kinds = sorted({key[0] for key in results})
    shape = (2, 2) if len(kinds) > 2 else (1, len(kinds))
    most = max(sum(key[0] == kind for key in results) for kind in kinds)
    size = (4.6 * shape[1], shape[0] * (0.19 * most + 0.9) + 0.4)
    fig = Figure(figsize=size, layout="constrained")
    axes = fig.subplots(*shape, squeeze=False, sharex=True).ravel()
    looks = {
        "paper: PGD": {"marker": "^", "color": "#999999"},
        "paper: SILP": {"marker": "v", "color": "#CC79A7"},
        "paper: SPG-GMKL": {"marker": "s", "color": "#D55E00"},
        "SILP": {"marker": "v", "color": "#56B4E9"},
        "SPG-GMKL": {"marker": "s", "color": "#0072B2"},
        "auto": {"marker": "o", "color": "#000000"},
    }
    for ax, kind in zip(axes, kinds, strict=False):
        own = [key for key in results if key[0] == kind]
        for label, look in looks.items():
            points = []
            for place, key in enumerate(own):
                seconds = PUBLISHED[key].get(label.removeprefix("paper: "), np.inf)
                if not label.startswith("paper"):
                    done = label in results[key]["seconds"] and label not in results[key]["left"]
                    seconds = float(np.mean(results[key]["seconds"][label])) if done else np.inf
                if np.isfinite(seconds):
                    points.append((seconds, place))
            ax.plot(*np.reshape(points, (-1, 2)).T, ls="", ms=5, label=label, **look)
        ax.set_yticks(range(len(own)), [f"{name}, {norm}" for _, name, norm in own], fontsize=8)
        ax.set(xscale="log", xlabel="seconds", title=TITLES[kind], ylim=(len(own) - 0.5, -0.5))
        ax.tick_params(labelbottom=True)
        ax.grid(axis="x", alpha=0.3)
    for ax in axes[len(kinds) :]:
        ax.set_axis_off()
    handles, labels = axes[0].get_legend_handles_labels()
    fig.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    fig.savefig(path, dpi=90)
    print(f"\nfigure: {path}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_data_dir(parser)
    parser.add_argument("--tables", type=int, nargs="+", default=list(TITLES), choices=TITLES)
    parser.add_argument("--sets", nargs="+", default=sorted({key[1] for key in PUBLISHED}))
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--limit", type=float, default=20.0, help="processor seconds of a fit")
    parser.add_argument("--figure", type=Path)
    args = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    results = {}
    with threadpool_limits(1), use_threads(1):
        X, y = np.random.default_rng(0).normal(size=(60, 3)), np.resize([-1.0, 1.0], 60)
        for kind in args.tables:  # compiles
            for setting in contestants(kind).values():
                timed(make_problem(kind, X, y, "l1" if kind in (4, 9) else "2"), setting, 1.0)
        for kind in args.tables:
            for key in PUBLISHED:
                if key[0] == kind and key[1] in args.sets:
                    try:
                        folds = read(key[1], args.data_dir)[: args.folds]
                    except (OSError, LookupError, ValueError, RuntimeError) as error:
                        print(f"left out: {key[1]} ({error})")
                        continue
                    results[key] = measure(key, folds, args.limit)
            if any(key[0] == kind for key in results):
                show(kind, results)
    if args.figure and results:
        draw(results, args.figure)


if __name__ == "__main__":
    main()
