"""A path of 20 values of C against single fits, on the same data in one run.

    python -m benchmarks.growth.path                          # scikit-learn's breast cancer data
    python -m benchmarks.growth.path --data-dir DIR --sets sonar ionosphere
    python -m benchmarks.growth.path --parts path --solvers active-set silp

path   Building the kernels and solving for 20 values of C (from where the path starts up to 1,000
       times that), against building them and solving for one C from nothing: for the C that
       cross-validation chooses, in the mean over the 20 values, and for the most expensive of
       them. The relative gap is 1e-3. Processor seconds of one thread, so that other work on the
       machine counts for little.
folds  MKLClassifierCV with one thread, and with all of them on different folds: seconds of the
       clock, so let the machine be idle.

The kernels are the SimpleMKL family. Times are the smallest of --repeat interleaved repetitions. A
path that has not ended after --max-time seconds is shown as "> SECONDS".
"""

import time
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from sklearn.preprocessing import StandardScaler

from benchmarks.data import load
from benchmarks.part import read_options
from benchmarks.problems import problem_on
from benchmarks.show import Table
from benchmarks.timing import best_of, race, seconds_of
from kernelweave import MKLClassifierCV
from kernelweave.bank import build_bank
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
    X, y = load("wdbc" if name == "breast_cancer" else name, data_dir)
    return StandardScaler().fit_transform(X), y


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
        seconds, results = seconds_of(self._walk, time.process_time)
        self.path = min(self.path, seconds)
        self.failed = len(results) < POINTS or not all(r.converged for r in results)
        if self.failed:
            return
        for i, factor in enumerate(self.factors):
            one = replace(self.problem, C=factor * self.problem.C)
            fit = partial(solve, one, self.solver, self.limits)
            seconds, _ = seconds_of(fit, time.process_time)
            self.cold[i] = min(self.cold[i], seconds)

    def _walk(self) -> list[Any]:
        began, results = time.perf_counter(), []
        for result in walk_path(self.problem, self.factors, self.solver, self.limits):
            results.append(result)
            if time.perf_counter() - began > self.max_time:
                break
        return results

    def row(self, build: float, chosen: int) -> list[Any]:
        if self.failed:
            return [f"> {self.path:.0f}", *[""] * 6]
        fits = self.cold[chosen], self.cold.mean(), self.cold.max()
        ratios = [f"{(build + self.path) / (build + fit):.1f}" for fit in fits]
        return [self.path, *fits, *ratios]


def path_part(args: Any) -> None:
    print(f"\n## path: {POINTS} values of C, a factor of {RATIO:g} from first to last")
    fits = ["fit at C_, s", "mean fit, s", "most expensive fit, s"]
    heads = ["loss", "regularizer", "solver", "path, s", *fits]
    heads += [f"path in {head.removesuffix(', s').replace('fit', 'fits', 1)}" for head in fits]
    for name in args.sets:
        X, y = samples(name, args.data_dir)
        kernels = bind_kernels("simplemkl", X, normalize="trace")
        settings = {"cache_mb": 1000, "tol": TOL, "random_state": 0}
        build = partial(build_bank, "auto", kernels, **settings)
        build()
        seconds, bank = best_of(build, 3, time.process_time)
        size = f"n = {bank.n}, m = {bank.m}"
        found = Table(f"{name}: {size}, kernels built in {seconds:.3f} s", heads)
        for loss in args.losses:
            for regularizer in args.regularizers:
                parts = {"loss": get_loss(loss), "regularizer": get_regularizer(regularizer)}
                problem = problem_on(bank, y, **parts)
                model = MKLClassifierCV("simplemkl", loss=loss, regularizer=regularizer, n_jobs=1)
                chosen = model.fit(X, y).best_index_
                for solver in args.solvers:
                    contest = Contest(problem, SOLVERS[solver](), args.max_time)
                    for _ in range(args.repeat):
                        contest.round()
                    found.row(loss, regularizer, solver, *contest.row(seconds, chosen))


def folds_part(args: Any) -> None:
    heads = ["data", "loss", "one thread, s", "all threads, s", "ratio"]
    found = Table("## folds: MKLClassifierCV, 20 values of C, 5 folds", heads)
    for name in args.sets:
        X, y = samples(name, args.data_dir)
        for loss in args.losses:
            fits = {
                jobs: partial(MKLClassifierCV("simplemkl", loss=loss, n_jobs=jobs).fit, X, y)
                for jobs in (1, None)
            }
            one, every = (seconds for seconds, _ in race(fits, args.repeat).values())
            found.row(name, loss, one, every, f"{one / every:.2f}")


def main() -> None:
    parts = ["path", "folds"]
    args = read_options(
        __doc__,
        sets=["breast_cancer"],
        parts=(parts, None, parts),
        solvers=(["active-set", "silp", "spg", "spicy"], None, SOLVERS),
        losses=["hinge", "logistic"],
        regularizers=["simplex", "l1"],
        repeat=3,
        max_time=60.0,
    )
    if "path" in args.parts:
        with use_threads(1):
            path_part(args)
    if "folds" in args.parts:
        folds_part(args)


if __name__ == "__main__":
    main()
