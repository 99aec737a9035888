"""SILP, by wrapper and by chunking, against the other solvers, on the same banks in one run.

    python benchmarks/silp.py --data-dir DIR                  # everything
    python benchmarks/silp.py --parts small regularizers      # some of it
    python benchmarks/silp.py --quick                         # smaller and only once

small         ionosphere and sonar, SimpleMKL family, simplex: seconds, single-kernel solves, and
              the parts of the fit that linear and quadratic programs take.
points        10 RBF kernels on growing n, dense and lazy banks: wrapper against chunking.
regularizers  every regularizer that SILP and SPG both solve: what `solver="auto"` goes by.

All fits go to a relative gap of 1e-3. Times are processor seconds, of all threads together, so that
other work on the machine counts little: the smallest of interleaved repetitions. A fit that has not
converged after --max-time of them is shown as "> SECONDS".
"""

from __future__ import annotations

import argparse
import time
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from datasets import add_data_dir, load
from sklearn.datasets import make_classification
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import StandardScaler

from kernelweave.bank import DenseBank, LazyBank, build_bank
from kernelweave.combine import WeightedSum
from kernelweave.kernels import RBF
from kernelweave.losses import Hinge
from kernelweave.operators import bind_kernels
from kernelweave.problem import Problem
from kernelweave.regularizers import (
    L1,
    BlockNorm,
    ElasticNet,
    Entropy,
    LpBall,
    Regularizer,
    Simplex,
    SquaredLp,
)
from kernelweave.solvers import (
    SILP,
    SPG,
    ActiveSet,
    Limits,
    Result,
    SILPChunking,
    Solver,
    bundle,
    solve,
)
from kernelweave.solvers.cuts import CutLP

TOL = 1e-3


class ProgramClock:
    """Counts the seconds spent on linear and on quadratic programs."""

    def __init__(self) -> None:
        self.reset()
        CutLP.solve = self._timed("linear", CutLP.solve)
        bundle.nearest_below = self._timed("quadratic", bundle.nearest_below)

    def reset(self) -> None:
        self.seconds = {"linear": 0.0, "quadratic": 0.0}

    def _timed(self, kind: str, func: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            began = time.process_time()
            try:
                return func(*args, **kwargs)
            finally:
                self.seconds[kind] += time.process_time() - began

        return call


@dataclass
class Entry:
    """The fastest run of one solver."""

    seconds: float
    result: Result
    programs: dict[str, float]

    def text(self) -> str:
        if not self.result.converged:
            return f"> {self.seconds:.0f} s (gap {self.result.certificate.gap:.0e})"
        return f"{self.seconds:.3f} s"


def race(
    problem: Problem, solvers: dict[str, Solver], repeat: int, max_time: float, clock: ProgramClock
) -> dict[str, Entry]:
    """Fastest run of each solver over interleaved rounds; the slow ones run only once."""
    best: dict[str, Entry] = {}
    for _ in range(repeat):
        for name, solver in solvers.items():
            if name in best and not best[name].result.converged:
                continue
            clock.reset()
            began = time.process_time()
            until = began + max_time
            late = [lambda record, until=until: time.process_time() > until]
            limits = Limits(tol=TOL, max_iter=100_000, callbacks=late)
            result = solve(problem, solver, limits)
            seconds = time.process_time() - began
            if name not in best or seconds < best[name].seconds:
                best[name] = Entry(seconds, result, dict(clock.seconds))
    return best


def on_bank(bank: Any, y: np.ndarray, C: float, regularizer: Regularizer) -> Problem:
    weights = np.full((1, len(y)), C)
    return Problem(bank, y[None], weights, Hinge(), regularizer, WeightedSum())


def simplemkl_bank(name: str, data_dir: Any) -> tuple[Any, np.ndarray]:
    X, y = load(name, data_dir)
    kernels = bind_kernels("simplemkl", StandardScaler().fit_transform(X), normalize="trace")
    return build_bank("auto", kernels, cache_mb=1000, tol=TOL, random_state=0), y


def small(args: argparse.Namespace, clock: ProgramClock) -> None:
    print("\n## small: SimpleMKL family, simplex, hinge")
    print("| data | C | solver | time | of the fastest | solves | in LPs | in QPs |")
    print("|---|---|---|---|---|---|---|---|")
    solvers = {
        "active-set": ActiveSet(),
        "silp": SILP(),
        "silp-chunking": SILPChunking(),
        "spg": SPG(),
        "silp, plain cutting planes": SILP(stabilise=False),
    }
    for name in ("ionosphere", "sonar"):
        bank, y = simplemkl_bank(name, args.data_dir)
        for C in (1.0, 100.0):
            problem = on_bank(bank, y, C, Simplex())
            best = race(problem, solvers, args.repeat, args.max_time, clock)
            fastest = min(entry.seconds for entry in best.values())
            for label, entry in best.items():
                solves = entry.result.history[-1].inner_solves
                shares = [f"{part / entry.seconds:.1%}" for part in entry.programs.values()]
                print(
                    f"| {name}, m = {bank.m} | {C:g} | {label} | {entry.text()} "
                    f"| {entry.seconds / fastest:.2f}x | {solves} | {' | '.join(shares)} |",
                    flush=True,
                )


def points(args: argparse.Namespace, clock: ProgramClock) -> None:
    print("\n## points: 10 RBF kernels, simplex, hinge")
    print("| bank | n | C | wrong labels | active-set | silp | silp-chunking | silp / chunking |")
    print("|---|---|---|---|---|---|---|---|")
    solvers = {"active-set": ActiveSet(), "silp": SILP(), "silp-chunking": SILPChunking()}
    for kind in ("dense", "lazy"):
        for n in args.sizes:
            for C, flip in ((1.0, 0.1), (10.0, 0.1), (1.0, 0.01), (10.0, 0.01)):
                X, y = make_classification(
                    n, 20, n_informative=8, flip_y=flip, class_sep=0.8, random_state=0
                )
                gammas = np.geomspace(1e-3, 1.0, 10)
                kernels = bind_kernels(
                    [RBF(gamma=gamma) for gamma in gammas],
                    StandardScaler().fit_transform(X),
                    normalize="trace",
                )
                bank = (
                    DenseBank("float64") if kind == "dense" else LazyBank(1000, "float64")
                ).build(kernels)
                problem = on_bank(bank, np.where(y > 0, 1.0, -1.0), C, Simplex())
                repeat = args.repeat if n < 8000 else min(args.repeat, 2)
                best = race(problem, solvers, repeat, 10 * args.max_time, clock)
                ratio = best["silp"].seconds / best["silp-chunking"].seconds
                cells = " | ".join(best[label].text() for label in solvers)
                print(f"| {kind} | {n} | {C:g} | {flip:.0%} | {cells} | {ratio:.2f} |", flush=True)


def regularizers(args: argparse.Namespace, clock: ProgramClock) -> None:
    print("\n## regularizers: SimpleMKL family, hinge (seconds, single-kernel solves)")
    print("| regularizer | data | C | spg | silp | spg / silp |")
    print("|---|---|---|---|---|---|")
    chosen: list[Regularizer] = [
        Simplex(),
        L1(1.0),
        LpBall(1.05),
        LpBall(1.33),
        LpBall(2.0),
        SquaredLp(2.0, 1.0),
        SquaredLp(1.33, 1.0),
        ElasticNet(1.0, l1_ratio=0.5),
        BlockNorm(),
        Entropy(1.0),
    ]
    for name in ("ionosphere", "sonar"):
        bank, y = simplemkl_bank(name, args.data_dir)
        for regularizer in chosen:
            for C in (1.0, 100.0):
                problem = on_bank(bank, y, C, regularizer)
                solvers: dict[str, Solver] = {"spg": SPG(), "silp": SILP()}
                best = race(problem, solvers, args.repeat, args.max_time, clock)
                cells = " | ".join(
                    f"{entry.text()}, {entry.result.history[-1].inner_solves}"
                    for entry in best.values()
                )
                ratio = best["spg"].seconds / best["silp"].seconds
                print(f"| {regularizer!r} | {name} | {C:g} | {cells} | {ratio:.1f} |", flush=True)


PARTS = {"small": small, "points": points, "regularizers": regularizers}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_data_dir(parser)
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--max-time", type=float, default=5.0)
    parser.add_argument("--sizes", type=int, nargs="+", default=[2000, 4000, 8000])
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    if args.quick:
        args.repeat, args.sizes = 1, args.sizes[:1]
    warnings.simplefilter("ignore", ConvergenceWarning)
    clock = ProgramClock()
    # Compilation is not part of any time.
    rng = np.random.default_rng(0)
    warm = DenseBank().build(bind_kernels([RBF(1.0), RBF(2.0)], rng.normal(size=(400, 2))))
    y = np.where(rng.random(400) > 0.5, 1.0, -1.0)
    race(
        on_bank(warm, y, 1.0, Simplex()),
        {"a": ActiveSet(), "s": SILP(), "c": SILPChunking(), "g": SPG()},
        1,
        5.0,
        clock,
    )
    for part in args.parts:
        PARTS[part](args, clock)


if __name__ == "__main__":
    main()
