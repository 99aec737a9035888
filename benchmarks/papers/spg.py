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
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.model_selection import StratifiedKFold
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from benchmarks.data import load
from benchmarks.papers.spg_ablation import bare_fit, product_problem, sum_problem
from benchmarks.part import read_options
from benchmarks.show import new_figure, save, table
from benchmarks.timing import Budget, seconds_of
from kernelweave.compiled.threads import use_threads
from kernelweave.problem import Problem
from kernelweave.regularizers import L1, SquaredLp
from kernelweave.solvers import SILP, SPG, Limits

C, TOL = 10.0, 1e-3
# Seconds in the paper: (norms, methods, a row a set with the methods of each norm in turn).
_P, _TWO = ("1.1", "1.33", "2"), ("PGD", "SPG-GMKL")
_TABLES = {
    2: (_P, _TWO, """australian 39.4 7.0 248.3 6.9 23.5 6.0
                     liver 282.2 0.8 3.3 0.7 0.7 0.6
                     sonar 785.5 9.0 57.8 4.2 7.7 3.1
                     breast 237.2 8.6 11.2 3.3 6.6 2.7
                     pima 73.6 4.1 11.5 3.0 3.6 2.5
                     wpbc 44.4 1.2 5.3 1.3 1.7 1.2"""),
    4: (("l1",), ("SILP", *_TWO), """wpbc 15.5 38.2 6.2
                                     breast 12.3 57.9 5.1
                                     australian 1094.9 29.5 10.1
                                     ionosphere 107.8 1392.4 39.2
                                     sonar 935.1 inf 273.4"""),
    5: (_P, _TWO, """australian inf 22.0 inf 22.1 inf 21.6
                     liver 722.4 1.0 136.1 0.6 0.3 0.4
                     sonar inf 7.4 inf 3.2 293.8 3.1
                     breast 28.4 4.0 448.6 3.3 377.8 3.2
                     pima 1232.5 4.8 364.4 2.5 2.1 2.1
                     wpbc 1080.3 4.4 1064.7 3.7 209.3 2.1"""),
    9: (("l1",), _TWO, """australian inf 16.6
                          sonar inf 4.8
                          liver 1482.6 2.6
                          breast 1182.6 4.4
                          pima 1525.7 7.6
                          wpbc 1093.9 2.7
                          leukemia 2961.5 850.0"""),
}  # fmt: skip
# (table, set, norm) -> the paper's seconds of SPG-GMKL and of its rivals, by their names there.
PUBLISHED: dict[tuple[int, str, str], dict[str, float]] = {}
for _table, (_norms, _methods, _rows) in _TABLES.items():
    for _set, *_times in map(str.split, _rows.splitlines()):
        for _norm, _own in zip(_norms, np.reshape(_times, (len(_norms), -1)), strict=True):
            PUBLISHED[_table, _set, _norm] = dict(zip(_methods, map(float, _own), strict=True))
TITLES = {
    2: "Table 2: sum, p > 1",
    4: "Table 4: sum, l1",
    5: "Table 5: product, p > 1",
    9: "Table 9: product, l1",
}


def make_problem(kind: int, X: np.ndarray, y: np.ndarray, norm: str) -> Problem:
    regularizer = L1(1.0) if norm == "l1" else SquaredLp(float(norm))
    make = sum_problem if kind in (2, 4) else product_problem
    return make(X, y, regularizer, C)


def contestants(kind: int) -> dict[str, Any]:
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
    limits = Limits(tol=TOL, max_iter=100_000, callbacks=(Budget(limit),))
    seconds, result = seconds_of(lambda: bare_fit(problem, setting, limits), time.process_time)
    return seconds, result.certificate.gap


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
    if who in result["left"]:
        return f"> {result['seconds'][who][-1]:.0f}, gap {result['left'][who]:.0e}"
    seconds = result["seconds"][who]
    return f"{np.mean(seconds):.2f} ± {np.std(seconds):.2f}"


def show(kind: int, results: dict[tuple[int, str, str], dict[str, Any]]) -> None:
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
    kinds = sorted({key[0] for key in results})
    shape = (2, 2) if len(kinds) > 2 else (1, len(kinds))
    most = max(sum(key[0] == kind for key in results) for kind in kinds)
    size = 4.6 * shape[1], shape[0] * (0.19 * most + 0.9) + 0.4
    fig, axes = new_figure(*size, *shape, sharex=True)
    axes = axes.ravel()
    looks = {
        "paper: PGD": ("^", "#999999"),
        "paper: SILP": ("v", "#CC79A7"),
        "paper: SPG-GMKL": ("s", "#D55E00"),
        "SILP": ("v", "#56B4E9"),
        "SPG-GMKL": ("s", "#0072B2"),
        "auto": ("o", "#000000"),
    }
    for ax, kind in zip(axes, kinds, strict=False):
        own = [key for key in results if key[0] == kind]
        for label, (marker, colour) in looks.items():
            points = []
            for place, key in enumerate(own):
                seconds = PUBLISHED[key].get(label.removeprefix("paper: "), np.inf)
                if not label.startswith("paper"):
                    done = label in results[key]["seconds"] and label not in results[key]["left"]
                    seconds = float(np.mean(results[key]["seconds"][label])) if done else np.inf
                if np.isfinite(seconds):
                    points.append((seconds, place))
            look = {"marker": marker, "color": colour, "ls": "", "ms": 5, "label": label}
            ax.plot(*np.reshape(points, (-1, 2)).T, **look)
        ax.set_yticks(range(len(own)), [f"{name}, {norm}" for _, name, norm in own], fontsize=8)
        ax.set(xscale="log", xlabel="seconds", title=TITLES[kind], ylim=(len(own) - 0.5, -0.5))
        ax.tick_params(labelbottom=True)
    for ax in axes[len(kinds) :]:
        ax.set_axis_off()
    save(fig, path, axes[0])


def main() -> None:
    args = read_options(
        __doc__,
        tables=(list(TITLES), None, TITLES),
        sets=sorted({key[1] for key in PUBLISHED}),
        folds=5,
        limit=(20.0, "processor seconds of a fit"),
        figure=None,
    )
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
