"""A path of 20 values of C against single fits, on the same data in one run.

    python benchmarks/path.py                          # scikit-learn's breast cancer data
    python benchmarks/path.py --data-dir DIR --data sonar ionosphere
    python benchmarks/path.py --parts path --solvers active-set silp

path   Building the kernels and solving for 20 values of C (from where the path starts up to 1,000
       times that), against building them and solving for one C from nothing: for the C that
       cross-validation chooses, in the mean over the 20 values, and for the dearest of them. The
       relative gap is 1e-3. Processor seconds of one thread, so that other work on the machine
       counts for little.
folds  MKLClassifierCV with one thread, and with all of them on different folds: seconds of the
       clock, so let the machine be idle.

The kernels are the SimpleMKL family. Times are the smallest of --repeat interleaved repetitions. A
path that has not ended after --max-time seconds is shown as "> SECONDS".
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from datasets import add_data_dir, load
from sklearn.datasets import load_breast_cancer
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import StandardScaler

from kernelweave import MKLClassifierCV
from kernelweave.bank import build_bank
from kernelweave.combine import WeightedSum
from kernelweave.compiled.threads import use_threads
from kernelweave.losses import get_loss
from kernelweave.operators import bind_kernels
from kernelweave.problem import Problem
from kernelweave.regularizers import get_regularizer
from kernelweave.solvers import SOLVERS, Limits, Solver, solve
from kernelweave.solvers.path import first_factor, walk_path

TOL = 1e-3
POINTS, RATIO = 20, 1e3


def samples(name: str, data_dir: Any) -> tuple[np.ndarray, np.ndarray]:
    if name == "breast_cancer":
        X, y = load_breast_cancer(return_X_y=True)
        y = np.where(y == 1, 1.0, -1.0)
    else:
        X, y = load(name, data_dir)
    return StandardScaler().fit_transform(X), y


def seconds_of(
    call: Callable[[], Any], clock: Callable[[], float] = time.process_time
) -> tuple[float, Any]:
    began = clock()
    out = call()
    return clock() - began, out


class Contest:
    """One solver on one problem: the path, and every point of it from nothing."""

    def __init__(self, problem: Problem, solver: Solver, max_time: float) -> None:
        self.problem, self.solver = problem, solver
        low = first_factor(problem)
        self.factors = np.geomspace(low, RATIO * low, POINTS)
        self.limits = Limits(tol=TOL, max_iter=100_000, max_time=max_time)
        self.max_time = max_time
        self.path = np.inf
        self.cold = np.full(POINTS, np.inf)
        self.failed = False

    def round(self) -> None:
        """Run both once, the single fits right after the path."""
        seconds, results = seconds_of(self._walk)
        self.path = min(self.path, seconds)
        self.failed = len(results) < POINTS or not all(r.converged for r in results)
        if self.failed:
            return
        for i, factor in enumerate(self.factors):
            one = replace(self.problem, C=factor * self.problem.C)
            seconds, _ = seconds_of(partial(solve, one, self.solver, self.limits))
            self.cold[i] = min(self.cold[i], seconds)

    def _walk(self) -> list[Any]:
        began, results = time.perf_counter(), []
        for result in walk_path(self.problem, self.factors, self.solver, self.limits):
            results.append(result)
            if time.perf_counter() - began > self.max_time:
                break
        return results

    def row(self, build: float, chosen: int) -> str:
        if self.failed:
            return f"> {self.path:.0f} s | | | | | | |"
        fits = self.cold[chosen], self.cold.mean(), self.cold.max()
        ratios = [(build + self.path) / (build + fit) for fit in fits]
        cells = [f"{self.path:.2f} s", *(f"{fit:.3f} s" for fit in fits)]
        return " | ".join(cells + [f"{ratio:.1f}" for ratio in ratios]) + " |"


def path_part(args: argparse.Namespace) -> None:
    print(f"\n## path: {POINTS} values of C, a factor of {RATIO:g} from first to last")
    heads = ["loss", "regularizer", "solver", "path", "fit at C_", "mean fit", "dearest fit"]
    heads += [f"path in {head.replace('fit', 'fits', 1)}" for head in heads[4:]]
    for name in args.data:
        X, y = samples(name, args.data_dir)
        kernels = bind_kernels("simplemkl", X, normalize="trace")

        def build(kernels: Any = kernels) -> Any:
            return build_bank("auto", kernels, cache_mb=1000, tol=TOL, random_state=0)

        build()
        times = [seconds_of(build) for _ in range(3)]
        seconds, bank = min(own for own, _ in times), times[-1][1]
        print(f"\n{name}: n = {bank.n}, m = {bank.m}, kernels built in {seconds:.3f} s\n")
        print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
        for loss in args.losses:
            for regularizer in args.regularizers:
                parts = get_loss(loss), get_regularizer(regularizer), WeightedSum()
                problem = Problem(bank, y[None], np.ones((1, bank.n)), *parts)
                model = MKLClassifierCV("simplemkl", loss=loss, regularizer=regularizer, n_jobs=1)
                chosen = model.fit(X, y).best_index_
                for solver in args.solvers:
                    contest = Contest(problem, SOLVERS[solver](), args.max_time)
                    for _ in range(args.repeat):
                        contest.round()
                    row = contest.row(seconds, chosen)
                    print(f"| {loss} | {regularizer} | {solver} | {row}", flush=True)


def folds_part(args: argparse.Namespace) -> None:
    print("\n## folds: MKLClassifierCV, 20 values of C, 5 folds")
    print("| data | loss | one thread | all threads | ratio |\n|---|---|---|---|---|")
    for name in args.data:
        X, y = samples(name, args.data_dir)
        for loss in args.losses:
            best = {1: np.inf, None: np.inf}
            for _ in range(args.repeat):
                for jobs in best:
                    model = MKLClassifierCV("simplemkl", loss=loss, n_jobs=jobs)
                    seconds, _ = seconds_of(partial(model.fit, X, y), time.perf_counter)
                    best[jobs] = min(best[jobs], seconds)
            one, every = best[1], best[None]
            print(f"| {name} | {loss} | {one:.2f} s | {every:.2f} s | {one / every:.2f} |")


def main() -> None:
    """Run the parts asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_data_dir(parser)
    known = [s for s in ("active-set", "silp", "spg", "spicy") if s in SOLVERS]
    parser.add_argument("--data", nargs="+", default=["breast_cancer"])
    parser.add_argument("--parts", nargs="+", default=["path", "folds"], choices=["path", "folds"])
    parser.add_argument("--solvers", nargs="+", default=known, choices=sorted(SOLVERS))
    parser.add_argument("--losses", nargs="+", default=["hinge", "logistic"])
    parser.add_argument("--regularizers", nargs="+", default=["simplex", "l1"])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--max-time", type=float, default=60.0)
    args = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    if "path" in args.parts:
        with use_threads(1):
            path_part(args)
    if "folds" in args.parts:
        folds_part(args)


if __name__ == "__main__":
    main()
