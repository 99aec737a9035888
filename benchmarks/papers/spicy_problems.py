"""Problems, solvers and counts of SpicyMKL's experiments; see spicy.py."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from sklearn.preprocessing import StandardScaler

from benchmarks.data import make_ringnorm
from benchmarks.papers.tables import Entry, Limited, contest
from benchmarks.problems import Array, problem_on
from benchmarks.watch import watching
from kernelweave.bank import DenseBank, storage_dtype
from kernelweave.kernels import RBFBatch
from kernelweave.losses import Hinge, Logistic, Loss
from kernelweave.operators import DenseOperator, KernelOperator, bind_kernels
from kernelweave.problem import Problem
from kernelweave.regularizers import L1, block_l1_to_l1_weight
from kernelweave.solvers import SILP, SPG, ActiveSet, Solver, Spicy

LOSSES: dict[str, Loss] = {"logistic": Logistic(), "hinge": Hinge()}
SOLVERS: dict[str, Solver] = {
    "spicy": Spicy(),
    "spg": SPG(),
    "silp": SILP(),
    "active-set": ActiveSet(),
}
LOOSE, TIGHT = 1e-2, 1e-6
# A fit that has taken this many times as long as another solver's is not waited for.
PATIENCE, SHORTEST_WAIT = 40, 3.0
PRODUCTS = ("DenseOperator.quad", "DenseOperator.apply")


def unit_trace_c(c: float, n: int) -> float:
    """Block l1 coefficient, for our kernels of trace n, that is `c` for kernels of trace one.

    K = n K' makes |f|_{K'} = sqrt(n) |f|_K, so that c |f|_{K'} = (c sqrt(n)) |f|_K.
    """
    return c * float(np.sqrt(n))


def block_l1_problem(bank: KernelOperator, y: Array, loss: str, c: float) -> Problem:
    """Unweighted loss and c sum_k |f_k|, `c` counted for kernels of unit trace as in the paper."""
    regularizer = L1(weight=block_l1_to_l1_weight(unit_trace_c(c, len(y))))
    return problem_on(bank, y, loss=LOSSES[loss], regularizer=regularizer)


def random_kernels(m: int, p: int, seed: int = 0) -> RBFBatch:
    """Gaussian kernels on random subsets of p features, with widths 5 chi2(1) + 0.1."""
    rng = np.random.default_rng(seed)
    shuffled = rng.permuted(np.tile(np.arange(p), (m, 1)), axis=1)
    columns = np.where(np.arange(p) < rng.integers(1, p + 1, m)[:, None], shuffled, -1)
    width = 5.0 * rng.chisquare(1, m) + 0.1
    return RBFBatch(columns, 0.5 / width**2)


def random_bank(X: Array, m: int, tol: float) -> KernelOperator:
    """`random_kernels` as matrices, in the precision that a gap of `tol` needs."""
    kernels = bind_kernels(random_kernels(m, X.shape[1]), X)
    return DenseBank(storage_dtype(tol)).build(kernels)


def draw(X: Array, y: Array, n: int, seed: int = 0) -> tuple[Array, Array]:
    chosen = np.random.default_rng(seed).permutation(len(X))[:n]
    return StandardScaler().fit_transform(X[chosen]), y[chosen]


def ringnorm(n: int) -> tuple[Array, Array]:
    X, y = make_ringnorm(n)
    return draw(X, np.where(y == 1, 1.0, -1.0), n)


def rounded_bank(kernels: Any) -> DenseOperator:
    """Kernels rounded to float32 and then taken as they are: half the memory, no error to bound.

    What `DenseBank("float32")` holds, too, but that bank goes to float64 where rounding matters.
    """
    stack = np.empty((kernels.m, kernels.n, kernels.n), np.float32)
    for part in np.array_split(np.arange(kernels.m), -(-kernels.m // 64)):
        some = DenseBank("float32").build(kernels.select(part))
        stack[part] = some.block(np.arange(kernels.n))
    return DenseBank("float32").from_matrices(list(stack))


@contextmanager
def counted_products() -> Iterator[list[int]]:
    """Count products K_k v of one kernel matrix in dense banks: m of them are a pass."""
    count = [0]

    def counted(function: Any) -> Any:
        def call(bank: Any, v: Array, kernels: Any = None, *rest: Any, **more: Any) -> Array:
            count[0] += bank.m if kernels is None else len(kernels)
            return function(bank, v, kernels, *rest, **more)

        return call

    with watching(dict.fromkeys(PRODUCTS, counted)):
        yield count


def race(contestants: dict[Any, Limited], tol: float, rounds: int, clock: Any) -> dict[Any, Entry]:
    """A contest that counts products and does not wait long for the slowest."""
    waiting = {"patience": PATIENCE, "shortest": SHORTEST_WAIT}
    return contest(contestants, tol, rounds, clock, counted_products, **waiting)


def all_solvers(
    bank: KernelOperator, y: Array, losses: list[str], c: float, max_time: float
) -> dict[tuple[str, str], Limited]:
    """Every solver on every loss: {(loss, solver): ...}, one problem for each loss."""
    problems = {loss: block_l1_problem(bank, y, loss, c) for loss in losses}
    return {
        (loss, name): Limited(problem, solver, max_time)
        for loss, problem in problems.items()
        for name, solver in SOLVERS.items()
    }
