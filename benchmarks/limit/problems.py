"""The fixed problems, and what is done with each: fits, banks, predictions."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer

from benchmarks.growth.fit import SOLVERS, TOL, subset_kernels
from benchmarks.problems import problem_on, simulate, two_classes
from kernelweave import MKLClassifier
from kernelweave.bank import build_bank
from kernelweave.bayes import Hyperparameters, Labels, Settings, infer
from kernelweave.cluster.team import pickled_bytes
from kernelweave.kernels import WeightedDegree
from kernelweave.operators import KernelOperator, bind_kernels
from kernelweave.solvers import Limits, get_solver, solve

Array = np.ndarray
DENSE, FAMILY = "matrices", "factors"
# The estimators' own: change of the bound for each sample, and most iterations.
_BAYES = Limits(tol=5e-4, max_iter=200)


@dataclass(frozen=True)
class Task:
    """Something to time, by its name and the group of rows it is shown in."""

    group: str
    name: str
    about: str
    work: Callable[[], Any]


def tasks(full: bool, small: bool = False) -> Iterator[Task]:
    """Yield all tasks; small ones of the same kinds load the compiled code.

    `matrices`: Gaussians on subsets of columns, kept as n x n matrices.
    `factors`: the SimpleMKL family on scikit-learn's breast cancer data, most of which have factors
    of low rank. Solvers are given the bank; building it is a task of its own.
    """
    n, m = (2000, 40) if full else (1000, 20)
    n, step = (150, 6) if small else (n, 1 if full else 2)
    X, y = two_classes(n)
    yield from _of_table(DENSE, "dense", X, y, subset_kernels(m))
    cancer, benign = load_breast_cancer(return_X_y=True)
    yield from _of_table(FAMILY, "auto", cancer[::step], benign[::step], "simplemkl")
    yield _prediction(X, y, subset_kernels(m), 2 * n)
    yield _strings(500 if small else 20_000 if full else 5_000)


def _of_table(group: str, plan: str, X: Array, y: Array, kernels: Any) -> Iterator[Task]:
    def build() -> KernelOperator:
        return build_bank(plan, bind_kernels(kernels, X), tol=TOL)

    bank = build()
    about = f"{bank.m} kernels, n = {bank.n:,}, {pickled_bytes(bank) / 1e6:.0f} MB"
    yield Task(group, "bank", about, build)
    signs = np.where(y > 0, 1.0, -1.0)
    problem = problem_on(bank, signs)
    for name in SOLVERS:
        if name == "bayes":
            yield Task(group, name, about, lambda: _infer(bank, signs[None]))
        else:
            solver = get_solver(name, problem)
            yield Task(group, name, about, lambda s=solver: solve(problem, s, Limits(tol=TOL)))


def _infer(bank: KernelOperator, signs: Array) -> Any:
    return infer(bank, Labels(signs), Settings(Hyperparameters()), _BAYES, 0)


def _prediction(X: Array, y: Array, kernels: Any, count: int) -> Task:
    model = MKLClassifier(kernels, solver="uniform", tol=TOL, n_jobs=1).fit(X, y)
    new, _ = two_classes(count, seed=1)
    about = f"{count:,} rows, {len(model.support_):,} support vectors, {len(kernels)} kernels"
    return Task("other", "prediction", about, lambda: model.decision_function(new))


def _strings(n: int) -> Task:
    length = 60
    X, y = simulate(n, length=length)
    model = MKLClassifier(WeightedDegree(8).by_position(), tol=TOL, n_jobs=1)
    about = f"{n:,} sequences of {length} letters, {length} kernels"
    return Task("other", "strings", about, lambda: model.fit(X, y))
