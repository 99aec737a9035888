"""SILP, by wrapper and by chunking, against the other solvers, on the same banks in one run.

    python -m benchmarks.papers.silp_solvers --data-dir DIR                  # everything
    python -m benchmarks.papers.silp_solvers --parts small regularizers      # some of it
    python -m benchmarks.papers.silp_solvers --quick                         # smaller, only once

small         ionosphere and sonar, SimpleMKL family, simplex: seconds, single-kernel solves, and
              the parts of the fit that linear and quadratic programs take.
points        10 RBF kernels on growing n, dense and lazy banks: wrapper against chunking.
regularizers  every regularizer that SILP and SPG both solve: what `solver="auto"` goes by.

All fits go to a relative gap of 1e-3. Times are processor seconds, of all threads together, so that
other work on the machine counts little: the smallest of interleaved repetitions. A fit that has not
converged after --max-time of them is shown as "> SECONDS".
"""

import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from benchmarks.data import available, load_standardised
from benchmarks.papers.tables import Entry, Limited, contest
from benchmarks.part import run_parts
from benchmarks.problems import problem_on, two_classes
from benchmarks.show import Table
from benchmarks.watch import seconds_in
from kernelweave.bank import DenseBank, LazyBank, build_bank
from kernelweave.kernels import RBF
from kernelweave.operators import bind_kernels
from kernelweave.problem import Problem
from kernelweave.regularizers import L1, BlockNorm, ElasticNet, Entropy, LpBall, SquaredLp
from kernelweave.solvers import SILP, SPG, ActiveSet, SILPChunking, Solver

TOL = 1e-3
SIMPLEX_SOLVERS = {"active-set": ActiveSet(), "silp": SILP(), "silp-chunking": SILPChunking()}
ALL_SOLVERS = {**SIMPLEX_SOLVERS, "spg": SPG()}
REGULARIZERS = [L1(1.0), LpBall(1.05), LpBall(1.33), LpBall(2.0), SquaredLp(2.0, 1.0)]
REGULARIZERS += [SquaredLp(1.33, 1.0), ElasticNet(1.0, l1_ratio=0.5), BlockNorm(), Entropy(1.0)]
PROGRAMS = {"linear": ["CutLP.solve"], "quadratic": ["bundle:nearest_below"]}


def race(
    problem: Problem, solvers: dict[str, Solver], rounds: int, max_time: float
) -> dict[str, Entry]:
    limited = {name: Limited(problem, solver, max_time) for name, solver in solvers.items()}
    watch = partial(seconds_in, PROGRAMS)
    return contest(limited, TOL, rounds, time.process_time, watch)


def simplemkl_banks(args: Any) -> Iterator[tuple[str, Any, np.ndarray]]:
    for name, (X, y) in available(("ionosphere", "sonar"), args.data_dir, load_standardised):
        kernels = bind_kernels("simplemkl", X, normalize="trace")
        yield name, build_bank("auto", kernels, cache_mb=1000, tol=TOL, random_state=0), y


def small(args: Any) -> None:
    heads = ["data", "C", "solver", "s", "of the fastest", "solves", "in LPs", "in QPs"]
    found = Table("## small: SimpleMKL family, simplex, hinge", heads)
    solvers = {**ALL_SOLVERS, "silp, plain cutting planes": SILP(stabilise=False)}
    for name, bank, y in simplemkl_banks(args):
        for C in (1.0, 100.0):
            best = race(problem_on(bank, y, C), solvers, args.repeat, args.max_time)
            fastest = min(entry.seconds for entry in best.values())
            for label, entry in best.items():
                shares = [f"{part / entry.seconds:.1%}" for part in entry.noted.values()]
                ratio = f"{entry.seconds / fastest:.2f}x"
                data = f"{name}, m = {bank.m}"
                found.row(data, C, label, entry.text(), ratio, entry.last.inner_solves, *shares)


def points(args: Any) -> None:
    heads = ["bank", "n", "C", "wrong labels", *SIMPLEX_SOLVERS, "silp / chunking"]
    found = Table("## points: 10 RBF kernels, simplex, hinge; seconds", heads)
    kernels = [RBF(gamma=gamma) for gamma in np.geomspace(1e-3, 1.0, 10)]
    for kind, plan in {"dense": DenseBank("float64"), "lazy": LazyBank(1000, "float64")}.items():
        for n in args.sizes:
            for C, flip in ((1.0, 0.1), (10.0, 0.1), (1.0, 0.01), (10.0, 0.01)):
                X, y = two_classes(n, flip_y=flip)
                problem = problem_on(plan.build(bind_kernels(kernels, X, normalize="trace")), y, C)
                rounds = args.repeat if n < 8000 else min(args.repeat, 2)
                best = race(problem, SIMPLEX_SOLVERS, rounds, 10 * args.max_time)
                ratio = best["silp"].seconds / best["silp-chunking"].seconds
                cells = [entry.text() for entry in best.values()]
                found.row(kind, n, C, f"{flip:.0%}", *cells, f"{ratio:.2f}")


def regularizers(args: Any) -> None:
    heads = ["regularizer", "data", "C", "spg", "silp", "spg / silp"]
    title = "## regularizers: SimpleMKL family, hinge (seconds, single-kernel solves)"
    found = Table(title, heads)
    for name, bank, y in simplemkl_banks(args):
        for regularizer in (None, *REGULARIZERS):
            for C in (1.0, 100.0):
                chosen = {} if regularizer is None else {"regularizer": regularizer}
                problem = problem_on(bank, y, C, **chosen)
                best = race(problem, {"spg": SPG(), "silp": SILP()}, args.repeat, args.max_time)
                cells = [f"{entry.text()}, {entry.last.inner_solves}" for entry in best.values()]
                ratio = f"{best['spg'].seconds / best['silp'].seconds:.1f}"
                found.row(repr(problem.regularizer), name, C, *cells, ratio)


def warm_up() -> None:
    X, y = two_classes(400)
    warm = DenseBank().build(bind_kernels([RBF(1.0), RBF(2.0)], X))
    race(problem_on(warm, y), ALL_SOLVERS, 1, 5.0)


def main() -> None:
    run_parts(
        __doc__,
        {"small": small, "points": points, "regularizers": regularizers},
        warm_up=warm_up,
        quick={"repeat": 1, "sizes": [2000]},
        repeat=3,
        max_time=5.0,
        sizes=[2000, 4000, 8000],
    )


if __name__ == "__main__":
    main()
