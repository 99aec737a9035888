"""Problems, solvers and clock of ``benchmarks/spicy.py``."""

from __future__ import annotations

import time
from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.preprocessing import StandardScaler

from kernelweave.bank import DenseBank
from kernelweave.combine import WeightedSum
from kernelweave.kernels import RBFBatch
from kernelweave.losses import Hinge, Logistic, Loss
from kernelweave.operators import DenseOperator, KernelOperator
from kernelweave.problem import Problem
from kernelweave.regularizers import L1, block_l1_to_l1_weight
from kernelweave.solvers import SILP, SPG, ActiveSet, Limits, Result, Solver, Spicy, solve

LOSSES: dict[str, Loss] = {"logistic": Logistic(), "hinge": Hinge()}
SOLVERS: dict[str, Solver] = {
    "spicy": Spicy(),
    "spg": SPG(),
    "silp": SILP(),
    "active-set": ActiveSet(),
}
IDA = ("ringnorm", "splice")
LOOSE, TIGHT = 1e-2, 1e-6
# A fit that has taken this many times as long as another solver's is not waited for.
PATIENCE = 40
SHORTEST_WAIT = 3.0


def unit_trace_c(c: float, n: int) -> float:
    """Block l1 coefficient, for our kernels of trace n, that is `c` for kernels of trace one.

    K = n K' makes |f|_{K'} = sqrt(n) |f|_K, so that c |f|_{K'} = (c sqrt(n)) |f|_K.

    >>> K, f = np.array([[2.0, 1.0], [1.0, 2.0]]), np.array([1.0, -3.0])  # mean diagonal 2
    >>> ours, unit = K / 2.0, K / 4.0  # trace n = 2, trace 1
    >>> norm = [float(np.sqrt(f @ np.linalg.solve(G, f))) for G in (ours, unit)]
    >>> bool(np.isclose(unit_trace_c(0.05, 2) * norm[0], 0.05 * norm[1]))
    True
    """
    return c * float(np.sqrt(n))


def block_l1_problem(bank: KernelOperator, y: np.ndarray, loss: Loss, c: float) -> Problem:
    """Unweighted loss and c sum_k |f_k|, `c` counted for kernels of unit trace as in the paper."""
    regularizer = L1(weight=block_l1_to_l1_weight(unit_trace_c(c, len(y))))
    return Problem(bank, y[None], np.ones((1, len(y))), loss, regularizer, WeightedSum())


def random_kernels(m: int, p: int, seed: int = 0) -> RBFBatch:
    """Gaussian kernels on random subsets of p features, with widths 5 chi2(1) + 0.1."""
    rng = np.random.default_rng(seed)
    shuffled = rng.permuted(np.tile(np.arange(p), (m, 1)), axis=1)
    columns = np.where(np.arange(p) < rng.integers(1, p + 1, m)[:, None], shuffled, -1)
    width = 5.0 * rng.chisquare(1, m) + 0.1
    return RBFBatch(columns, 0.5 / width**2)


def draw(X: np.ndarray, y: np.ndarray, n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """n random rows, standardised."""
    chosen = np.random.default_rng(seed).permutation(len(X))[:n]
    return StandardScaler().fit_transform(X[chosen]), y[chosen]


def rounded_bank(kernels: Any) -> DenseOperator:
    """Kernels rounded to float32 and then taken as they are: half the memory, no error to bound.

    What `DenseBank("float32")` holds, too, but that bank goes to float64 where rounding matters.
    """
    stack = np.empty((kernels.m, kernels.n, kernels.n), np.float32)
    for part in np.array_split(np.arange(kernels.m), -(-kernels.m // 64)):
        some = DenseBank("float32").build(kernels.select(part))
        stack[part] = some.block(np.arange(kernels.n))
    return DenseBank("float32").from_matrices(list(stack))


class Products:
    """Counts products K_k v of one kernel matrix in dense banks: m of them are a pass."""

    def __init__(self) -> None:
        self.count = 0
        for name in ("quad", "apply"):
            setattr(DenseOperator, name, self._counted(getattr(DenseOperator, name)))

    def _counted(self, func: Any) -> Any:
        def call(
            bank: DenseOperator, v: np.ndarray, kernels: np.ndarray | None = None
        ) -> np.ndarray:
            self.count += bank.m if kernels is None else len(kernels)
            return func(bank, v, kernels)

        return call


@dataclass
class Entry:
    """The fastest run of one solver."""

    seconds: float
    result: Result
    passes: float

    @property
    def converged(self) -> bool:
        return self.result.converged

    @property
    def in_use(self) -> int:
        return int(np.count_nonzero(self.result.d))

    @property
    def newton_steps(self) -> int:
        return self.result.history[-1].inner_iterations

    def text(self) -> str:
        if self.converged:
            return f"{self.seconds:.3f}"
        return f"> {self.seconds:.0f} (gap {self.result.certificate.gap:.0e})"


# {(part, data set, gap, loss, solver): [(m or n, entry), ...]}, for figure and targets.
Curves = dict[tuple[str, str, float, str, str], list[tuple[int, Entry]]]


def race(
    contestants: dict[Any, tuple[Problem, Solver]],
    tol: float,
    rounds: int,
    max_time: float,
    products: Products,
) -> dict[Any, Entry]:
    """Fastest run of each over interleaved rounds; one that does not converge has one run.

    A fit is given `max_time` seconds, or less if a rival on the same problem was far faster.
    """
    best: dict[Any, Entry] = {}
    for _ in range(rounds):
        for label, (problem, solver) in contestants.items():
            if label in best and not best[label].converged:
                continue
            rivals = [
                entry.seconds
                for other, entry in best.items()
                if entry.converged and contestants[other][0] is problem
            ]
            allowed = max(SHORTEST_WAIT, PATIENCE * min(rivals, default=np.inf))
            products.count = 0
            # What a fit learns of a bank (bounds on eigenvalues, for screening) serves later fits
            # on it; here every fit is the first on its own.
            fresh = problem.with_bank(copy(problem.bank))
            limits = Limits(tol=tol, max_iter=100_000, max_time=min(max_time, allowed))
            began = time.perf_counter()
            result = solve(fresh, solver, limits)
            seconds = time.perf_counter() - began
            if label not in best or seconds < best[label].seconds:
                best[label] = Entry(seconds, result, products.count / problem.m)
    return best


def all_solvers(
    bank: KernelOperator, y: np.ndarray, c: float
) -> dict[tuple[str, str], tuple[Problem, Solver]]:
    """Every solver on every loss: {(loss, solver): ...}, one problem for each loss."""
    contestants = {}
    for name, loss in LOSSES.items():
        problem = block_l1_problem(bank, y, loss, c)
        for solver_name, solver in SOLVERS.items():
            contestants[name, solver_name] = (problem, solver)
    return contestants


def growth(sizes: list[int], seconds: list[float]) -> list[str]:
    """Exponent of growth from each row to the next: log of the ratio by log of the ratio."""
    exponents = ["-"]
    for a, b, s, t in zip(sizes, sizes[1:], seconds, seconds[1:], strict=False):
        exponents.append(f"{np.log(t / s) / np.log(b / a):.2f}" if min(s, t) > 0 else "-")
    return exponents
