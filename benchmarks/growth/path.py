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

from benchmarks.data import available, load_standardised
from benchmarks.part import run_parts
from benchmarks.problems import problem_on
from benchmarks.show import Table
from benchmarks.timing import best_of, one_thread, race, seconds_of
from kernelweave import MKLClassifierCV
from kernelweave.bank import build_bank
from kernelweave.losses import get_loss
from kernelweave.operators import bind_kernels
from kernelweave.problem import Problem
from kernelweave.regularizers import get_regularizer
from kernelweave.solvers import SOLVERS, Limits, Solver, solve
from kernelweave.solvers.path import first_factor, walk_path

TOL = 1e-3
POINTS, RATIO = 20, 1e3


def contest(problem: Problem, solver: Solver, args: Any) -> tuple[float, np.ndarray] | float:
    """Best seconds of the path, and of every point of it from nothing.

    Single fits run right after the path. If it does not end in time, what it took is all.
    """
    low = first_factor(problem)
    factors = np.geomspace(low, RATIO * low, POINTS)
    limits = Limits(tol=TOL, max_iter=100_000, max_time=args.max_time)

    def walk() -> list[Any]:
        began, results = time.perf_counter(), []
        for result in walk_path(problem, factors, solver, limits):
            results.append(result)
            if time.perf_counter() - began > args.max_time:
                break
        return results

    path, cold = np.inf, np.full(POINTS, np.inf)
    for _ in range(args.repeat):
        seconds, results = seconds_of(walk, time.process_time)
        path = min(path, seconds)
        if len(results) < POINTS or not all(result.converged for result in results):
            return path
        for i, factor in enumerate(factors):
            fit = partial(solve, replace(problem, C=factor * problem.C), solver, limits)
            cold[i] = min(cold[i], seconds_of(fit, time.process_time)[0])
    return path, cold


def cells(found: tuple[float, np.ndarray] | float, build: float, chosen: int) -> list[Any]:
    if isinstance(found, float):
        return [f"> {found:.0f}", *[""] * 6]
    path, cold = found
    fits = cold[chosen], cold.mean(), cold.max()
    return [path, *fits, *(f"{(build + path) / (build + fit):.1f}" for fit in fits)]


def path_part(args: Any) -> None:
    print(f"\n## path: {POINTS} values of C, a factor of {RATIO:g} from first to last")
    fits = ["fit at C_, s", "mean fit, s", "most expensive fit, s"]
    heads = ["loss", "regularizer", "solver", "path, s", *fits]
    heads += [f"path in {head.removesuffix(', s').replace('fit', 'fits', 1)}" for head in fits]
    for name, (X, y) in available(args.sets, args.data_dir, load_standardised):
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
                    result = contest(problem, SOLVERS[solver](), args)
                    found.row(loss, regularizer, solver, *cells(result, seconds, chosen))


def folds_part(args: Any) -> None:
    heads = ["data", "loss", "one thread, s", "all threads, s", "ratio"]
    found = Table("## folds: MKLClassifierCV, 20 values of C, 5 folds", heads)
    for name, (X, y) in available(args.sets, args.data_dir, load_standardised):
        for loss in args.losses:
            fits = {
                jobs: partial(MKLClassifierCV("simplemkl", loss=loss, n_jobs=jobs).fit, X, y)
                for jobs in (1, None)
            }
            one, every = (seconds for seconds, _ in race(fits, args.repeat).values())
            found.row(name, loss, one, every, f"{one / every:.2f}")


def path_in_one_thread(args: Any) -> None:
    with one_thread():
        path_part(args)


def main() -> None:
    run_parts(
        __doc__,
        {"path": path_in_one_thread, "folds": folds_part},
        sets=(["wdbc"], "data sets; wdbc is scikit-learn's breast cancer data"),
        solvers=(["active-set", "silp", "spg", "spicy"], None, SOLVERS),
        losses=["hinge", "logistic"],
        regularizers=["simplex", "l1"],
        repeat=3,
        max_time=60.0,
    )


if __name__ == "__main__":
    main()
