"""Part `speed` of bemkl.py: 200 iterations against plain NumPy and against BLAS.

Contestants are given the same kernels and the same start, and do the same number of iterations, so
that their lower bounds must agree. Plain NumPy does fewer iterations where it would take too long;
its bound is then compared with the library's after as many.

What one iteration has to compute (binary, one class), in floating-point operations:

    q(a)      a Cholesky factor and its inverse (for the variances): 2/3 n^3. If sum_k K_k K_k has a
              rank R far below n: products of R x n matrices, 2 R^2 n + 2/3 R^3.
    q(G)      a Cholesky factor, its inverse and the inverse matrix: m^3; times an m x n matrix:
              2 m^2 n.
    q(b, e)   the Gram matrix of G, m^2 n; a Cholesky factor and its inverse, 2/3 m^3.
              If m is far above n both are a diagonal and at least n columns: 4 m n^2 + 4/3 n^3 for
              two factors, and 4 m n^2 for the product.
    passes    sum_k K_k g_k and K_k a for all k: 4 for each entry of a kernel matrix, 8 for each
              entry of a factor F_k with K_k = F_k' F_k.

The limit is that count at the speed of a product of two matrices of 1,200 rows, on all cores. The
passes cannot have that speed, for each entry that is read from memory is used only once: the second
limit counts them at the speed of a product of a matrix and a vector.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.limit.roofline import measure_rates
from benchmarks.papers.bemkl_data import ITERATIONS, NEVER, load_table1, split_table1
from benchmarks.papers.bemkl_plain import plain_bemkl
from benchmarks.problems import two_classes
from benchmarks.show import Table, verdict
from benchmarks.timing import seconds_of
from kernelweave import BayesianMKLClassifier
from kernelweave.bank import DenseBank, build_bank
from kernelweave.bayes import Hyperparameters, Labels, Settings, infer, sum_of_squares
from kernelweave.bayes.factors import KernelWeights
from kernelweave.bayes.matrices import Matrix, ThinMatrix
from kernelweave.compiled.threads import one_blas_thread
from kernelweave.kernels import RBF, Kernel
from kernelweave.operators import FactorOperator, KernelOperator, bind_kernels
from kernelweave.solvers import Limits

Array = np.ndarray
# The author's R program on OpenBLAS: 200 iterations of the first case on the machine where the
# numbers of the documentation were measured.
AUTHORS_SECONDS = 53.0
# The estimators' own tolerance.
TOL = 5e-4
AGREEMENT = 1e-6


@dataclass
class Run:
    """One contestant: seconds before the iterations and in them, the bound after each."""

    name: str
    kernels: float
    squares: float
    iterations: float
    bounds: list[float]
    form: str = ""
    flops: tuple[float, float] = (0.0, 0.0)

    @property
    def total(self) -> float:
        return self.kernels + self.squares + self.iterations

    @property
    def each(self) -> float:
        return self.iterations / len(self.bounds)


@one_blas_thread()
def library_run(
    name: str, kernels: Any, X: Array, y: Array, make: Callable[..., Any], iterations: int
) -> Run:
    """What `BayesianMKLClassifier.fit` does, with a clock between its parts."""
    began = time.perf_counter()
    bank = make(bind_kernels(kernels, X, normalize="diagonal"))
    built = time.perf_counter()
    squares = sum_of_squares(bank)
    ready = time.perf_counter()
    limits = Limits(tol=NEVER, max_iter=iterations)
    fit = infer(bank, Labels(y[None]), Settings(Hyperparameters()), limits, 0, squares)
    done = time.perf_counter()
    bounds = [record.lower_bound for record in fit.history]
    form, flops = count_flops(bank, squares_rank(squares))
    return Run(name, built - began, ready - built, done - ready, bounds, form, flops)


def auto_bank(kernel_set: Any) -> KernelOperator:
    """The bank of ``bank="auto"``, as the estimators ask for it."""
    return build_bank("auto", kernel_set, tol=1e-4, random_state=0)


def plain_run(kernels: Any, X: Array, y: Array, iterations: int) -> Run:
    began = time.perf_counter()
    K = bind_kernels(kernels, X, normalize="diagonal").block(np.arange(len(X)))
    built = time.perf_counter()
    fit = plain_bemkl(K, y, iterations=iterations)
    done = time.perf_counter()
    rest = done - built - fit.seconds[-1]
    return Run("plain NumPy", built - began, rest, fit.seconds[-1], fit.bounds)


def squares_rank(squares: Matrix) -> int:
    """Rows of the factor in which the sum of squared kernels is kept, or n if it is in full."""
    return len(squares.plus) if isinstance(squares, ThinMatrix) else len(squares.matrix)


def count_flops(bank: KernelOperator, rank: int) -> tuple[str, tuple[float, float]]:
    """The forms in use, and the operations of an iteration: in matrix products, in passes."""
    n, m = float(bank.n), float(bank.m)
    passes, held = 0.0, []
    for part in getattr(bank, "parts", (bank,)):
        if isinstance(part, FactorOperator):
            passes += 8.0 * n * float(part.ranks.sum())
            held.append(f"{part.m} of rank {part.ranks.mean():.0f}")
        else:
            passes += 4.0 * part.m * n * n
            held.append(f"{part.m} dense")
    samples = 2 / 3 * n**3 if rank == n else 2.0 * rank**2 * n + 2 / 3 * rank**3
    if KernelWeights.may_be_thin(bank.m, 1, bank.n, False):
        weights = 8.0 * m * n * n + 4 / 3 * n**3
        held.append("thin q(b, e)")
    else:
        weights = 5 / 3 * m**3 + 3.0 * m * m * n
    held.append(f"q(a) of rank {rank}")
    return ", ".join(held), (samples + weights, passes)


def many_kernels(m: int, p: int, widths: tuple[float, float], fewest: int) -> list[Kernel]:
    """Gaussians on random subsets of p columns; widths in units of sqrt(columns)."""
    rng = np.random.default_rng(0)
    out: list[Kernel] = []
    for width in np.geomspace(*widths, m):
        columns = rng.permutation(p)[: rng.integers(fewest, p + 1)]
        out.append(RBF(width=float(width * np.sqrt(len(columns)))).on(sorted(columns.tolist())))
    return out


def show(title: str, runs: list[Run], speeds: tuple[float, float]) -> None:
    """Print a table of contestants; the last is plain NumPy, whose bound the others must have."""
    heads = ["contestant", "kernels, s", "sum of squares, s", "iterations, s", "total, s"]
    heads += ["ms each", "limit, ms", "limit with passes, ms", "lower bound", "against plain"]
    found = Table(f"### {title}", [*heads, "forms"])
    plain = runs[-1]
    for run in runs:
        shared = min(len(run.bounds), len(plain.bounds)) - 1
        off = abs(run.bounds[shared] / plain.bounds[shared] - 1.0)
        agrees = "" if run is plain else f"{off:.0e} {'PASS' if off <= AGREEMENT else 'FAIL'}"
        limits: list[Any] = [None, None]
        if run.flops[0]:
            products, passes = run.flops
            limits[0] = 1e3 * (products + passes) / speeds[0]
            limits[1] = 1e3 * (products / speeds[0] + passes / speeds[1])
        count = "" if len(run.bounds) == len(runs[0].bounds) else f", {len(run.bounds)} iterations"
        seconds = run.kernels, run.squares, run.iterations, run.total, 1e3 * run.each
        bound = f"{run.bounds[-1]:.6f}"
        found.row(run.name + count, *seconds, *limits, bound, agrees, run.form)


def run_speed(args: Any) -> None:
    rates = measure_rates()
    # Two operations for each number of 8 bytes.
    speeds = rates.flops["gemm"], rates.gemv / 4.0
    iterations = ITERATIONS if args.speed_part == 1.0 else ITERATIONS // 10
    print(f"\n## speed: BEMKL, dense preset, sigma_g = 1, {iterations} iterations")
    by_vector = f"matrix times vector {speeds[1] / 1e9:.1f} Gflop/s"
    print(f"matrix times matrix {speeds[0] / 1e9:.1f}, {by_vector}")
    _breast_cancer(args, iterations, speeds)
    many, more = int(5000 * args.speed_part), int(3000 * args.speed_part)
    for n, m, title, widths, fewest in (
        (200, many, "mixed", (0.25, 8.0), 1),
        (200, many, "narrow", (0.2, 0.4), 10),
        (more, 20, "mixed", (0.125, 8.0), 1),
        (more, 20, "narrow", (0.2, 0.6), 20),
    ):
        kernels = many_kernels(m, 20, widths, fewest)
        _generated(f"n = {n}, m = {m}, {title} kernels", kernels, n, iterations, speeds)


def _breast_cancer(args: Any, iterations: int, speeds: tuple[float, float]) -> None:
    X, _, y, _ = split_table1(*load_table1("wdbc", args.data_dir), 398, 0)
    # Compilation is no part of any time.
    library_run("", "simplemkl", X[:100, :3], y[:100], auto_bank, 2)
    makers = {"auto": auto_bank, "dense": DenseBank("float64").build}
    runs = [
        library_run(f"library, bank {name}", "simplemkl", X, y, make, iterations)
        for name, make in makers.items()
    ]
    runs.append(plain_run("simplemkl", X, y, iterations))
    show("breast cancer: n = 398, 403 kernels, SimpleMKL family", runs, speeds)
    if iterations < ITERATIONS:
        return
    model = BayesianMKLClassifier("simplemkl", max_iter=iterations, tol=NEVER)
    whole, _ = seconds_of(lambda: model.fit(X, y))
    text = (
        f"BayesianMKLClassifier.fit, kernels and all: {whole:.2f} s, "
        f"{AUTHORS_SECONDS / whole:.1f} times as fast as the author's R program "
        f"({AUTHORS_SECONDS:g} s, as quoted; wanted: 10 times)"
    )
    verdict(whole <= AUTHORS_SECONDS / 10.0, text)


def _generated(
    title: str, kernels: list[Kernel], n: int, iterations: int, speeds: tuple[float, float]
) -> None:
    X, y = two_classes(n)
    runs = [library_run("library, bank auto", kernels, X, y, auto_bank, iterations)]
    runs.append(plain_run(kernels, X, y, 3))
    show(title, runs, speeds)
    if iterations == ITERATIONS:
        text = f"{runs[0].total:.1f} s for {iterations} iterations, wanted: 60 s"
        verdict(runs[0].total <= 60.0, text)
        small = np.flatnonzero(np.diff(runs[0].bounds) <= TOL * n)
        enough = int(small[0]) + 2 if len(small) else iterations
        seconds = runs[0].total - (iterations - enough) * runs[0].each
        print(f"with the default tolerance: {enough} iterations, about {seconds:.1f} s")
