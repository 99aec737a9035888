"""String kernels: training without a kernel cache, values of pairs, and a million sequences.

    python -m benchmarks.papers.strings                         # everything but the million
    python -m benchmarks.papers.strings --parts pairs svm       # some of it
    python -m benchmarks.papers.strings --parts million         # 1,000,000 sequences, 10 minutes
    python -m benchmarks.papers.strings --quick                 # smaller

pairs    Gram matrix of 2,000 sequences of 141 nt by the weighted degree kernel of degree 20, in
         nanoseconds for each compared base pair. (Spectrum kernels beside MKLpy's: peers.)
svm      one support vector machine on 10,000 sequences of 141 nt, solved by the same decomposition
         (SMO on rounds of variables) over three banks: linadd, and rows of the kernel matrix in a
         cache of 1 GB, computed in two ways. "Pair by pair" is the textbook way: the O(L) block
         form of the weighted degree kernel, and the merge of two sorted lists of k-mers for the
         spectrum. "Our rows" is what `bank="lazy"` does here: 64 positions at a time, and
         coincidences of k-mers only.
mkl      kernel weights over lengths, positions and both on the same sequences: linadd.
update   seconds of one update of the outputs (1,000 changed coefficients) for growing n.
million  training on 1,000,000 sequences in a process of its own: seconds, and bytes a sequence.

Sequences are random with a planted motif (mutated, and moved in some) in one class. Times are the
smallest of interleaved repetitions.
"""

from functools import partial
from typing import Any

import numpy as np
from numba import njit

from benchmarks.part import run_parts
from benchmarks.problems import simulate
from benchmarks.show import Table
from benchmarks.timing import apart, best_of, exponent, fit_cost, race
from kernelweave import MKLClassifier
from kernelweave.bank import LazyBank, PositionalBank, SparseBank
from kernelweave.compiled.threads import map_blocks
from kernelweave.kernels import Samples, Spectrum, WeightedDegree
from kernelweave.kernels.evaluate import Pair
from kernelweave.operators import ComputedOperator

LENGTH, DEGREE = 141, 20


# The textbook ways to compute one value


@njit(cache=True, nogil=True)
def block_form(left: np.ndarray, right: np.ndarray, of_run: np.ndarray, out: np.ndarray) -> None:
    """Weighted degree kernel by maximal runs of matches, one pair after the other."""
    for i in range(left.shape[0]):
        for j in range(right.shape[0]):
            total, run = 0.0, 0
            for at in range(left.shape[1]):
                if left[i, at] == right[j, at]:
                    run += 1
                elif run:
                    total += of_run[run]
                    run = 0
            out[i, j] = total + of_run[run]


@njit(cache=True, nogil=True)
def merged_lists(
    left_starts: np.ndarray,
    left: np.ndarray,
    left_counts: np.ndarray,
    right_starts: np.ndarray,
    right: np.ndarray,
    right_counts: np.ndarray,
    out: np.ndarray,
) -> None:
    """Spectrum kernel by merging sorted lists of k-mers, one pair after the other."""
    for i in range(left_starts.size - 1):
        for j in range(right_starts.size - 1):
            p, q, total = left_starts[i], right_starts[j], 0.0
            while p < left_starts[i + 1] and q < right_starts[j + 1]:
                if left[p] == right[q]:
                    total += left_counts[p] * right_counts[q]
                    p += 1
                    q += 1
                elif left[p] < right[q]:
                    p += 1
                else:
                    q += 1
            out[i, j] = total


def run_values(degree: int, length: int) -> np.ndarray:
    """What a maximal run of B matches contributes (Sonnenburg et al. 2006)."""
    B, d = np.arange(length + 1.0), float(degree)
    short = B * (-(B**2) + 3 * d * B + 3 * d + 1) / (3 * d * (d + 1))
    return np.where(d >= B, short, (3 * B - d + 1) / 3)


class BlockFormDegree(WeightedDegree):
    """The same kernel, with rows computed pair by pair."""

    def features(self, samples: Samples) -> Any:
        return None

    def evaluate(self, pair: Pair) -> np.ndarray:
        left, right = (_letters(samples, self) for samples in (pair.left, pair.right))
        out = np.empty((len(left), len(right)))
        of_run = run_values(self.degree, left.shape[1])
        map_blocks(lambda a, b: block_form(left[a:b], right, of_run, out[a:b]), len(left), 4)
        return out.astype(pair.dtype, copy=False)


def _letters(samples: Samples, kernel: WeightedDegree) -> np.ndarray:
    def make(base: Samples) -> np.ndarray:
        return np.ascontiguousarray(kernel.aligned(base).letters[0].T)

    return samples.memo("letters by row", make)


class MergedSpectrum(Spectrum):
    """The same kernel, with rows computed pair by pair."""

    def evaluate(self, pair: Pair) -> np.ndarray:
        left, right = (super(MergedSpectrum, self).features(s) for s in (pair.left, pair.right))
        out = np.empty(pair.shape)
        theirs = right.indptr, right.indices, right.data

        def work(a: int, b: int) -> None:
            mine = left[a:b]
            merged_lists(mine.indptr, mine.indices, mine.data, *theirs, out[a:b])

        map_blocks(work, left.shape[0], 4)
        return out.astype(pair.dtype, copy=False)

    def features(self, samples: Samples) -> Any:
        return None


# Parts


def pairs(args: Any) -> None:
    n = args.pairs
    X, _ = simulate(n)
    textbook = "block form, pair by pair"
    ways = {"64 positions at a time": WeightedDegree(DEGREE), textbook: BlockFormDegree(DEGREE)}
    best = race({way: partial(kernel, X) for way, kernel in ways.items()}, args.repeat)
    title = f"## pairs: Gram matrix of {n:,} x {LENGTH} nt, degree {DEGREE}, all n^2 pairs counted"
    found = Table(title, ["way", "seconds", "ns a base pair", "largest difference"])
    for name, (seconds, gram) in best.items():
        error = np.abs(gram - best[textbook][1]).max()
        found.row(name, seconds, 1e9 * seconds / (n * n * LENGTH), error)


def fits_of(models: dict[str, Any], X: Any, y: Any, repeat: int) -> dict[str, tuple[float, Any]]:
    """Seconds of the fastest fit of each model, and the fitted model."""
    return race({name: partial(model.fit, X, y) for name, model in models.items()}, repeat)


def svm(args: Any) -> None:
    X, y = simulate(args.svm)
    rows = LazyBank(1000, "float64")
    kernels = {
        f"weighted degree {DEGREE}": (WeightedDegree, BlockFormDegree, DEGREE, PositionalBank()),
        "spectrum 8": (Spectrum, MergedSpectrum, 8, SparseBank()),
    }
    title = f"## svm: one support vector machine, n = {len(y):,} x {LENGTH} nt, C = 1, gap 1e-3"
    heads = ["kernel", "way", "seconds", "times linadd", "objective", "support vectors"]
    found = Table(title, heads)
    for name, (own, textbook, size, linadd) in kernels.items():
        ways = {
            "linadd": MKLClassifier(own(size), bank=linadd, solver="uniform"),
            "our rows, 1 GB cache": MKLClassifier(own(size), bank=rows, solver="uniform"),
            "rows pair by pair, 1 GB cache": MKLClassifier(
                textbook(size), bank=rows, solver="uniform"
            ),
        }
        best = fits_of(ways, X, y, args.repeat)
        for way, (seconds, model) in best.items():
            ratio = f"{seconds / best['linadd'][0]:.1f}x"
            objective = f"{model.objective_:.4f}"
            found.row(name, way, seconds, ratio, objective, len(model.support_))


def mkl(args: Any) -> None:
    X, y = simulate(args.mkl)
    families = {
        "20 lengths": WeightedDegree(DEGREE).by_length(),
        "141 positions": WeightedDegree(DEGREE).by_position(),
        "8 lengths x 29 windows": WeightedDegree(8).by_length().by_position(5),
    }
    title = f"## mkl: n = {len(y):,} x {LENGTH} nt, simplex, C = 1, gap 1e-3"
    found = Table(title, ["kernels", "solver", "seconds", "gap", "active"])
    for name, family in families.items():
        models = {
            solver: MKLClassifier(family, solver=solver)
            for solver in ("auto", "silp", "silp-chunking")
        }
        for solver, (seconds, model) in fits_of(models, X, y, args.repeat).items():
            found.row(name, solver, seconds, model.gap_, int((model.weights_ > 0).sum()))


def update(args: Any) -> None:
    X, _ = simulate(args.sizes[-1])
    heads = ["n", f"weighted degree {DEGREE}, s", "spectrum 8, s"]
    found = Table("## update: outputs after 1,000 changed coefficients", heads)
    seconds = []
    plans = (WeightedDegree(DEGREE), PositionalBank()), (Spectrum(8), SparseBank())
    for n in args.sizes:
        v = np.zeros(n)
        v[np.random.default_rng(0).choice(n, 1000, replace=False)] = 1.0
        banks = [plan.build(ComputedOperator.build(kernel, X[:n])) for kernel, plan in plans]
        seconds.append([best_of(partial(bank.apply, v), args.repeat)[0] for bank in banks])
        found.row(n, *seconds[-1])
    slopes = [exponent(args.sizes, list(column)) for column in zip(*seconds, strict=True)]
    print(f"grows as n^{slopes[0]:.2f} and n^{slopes[1]:.2f}")


def million(args: Any) -> None:
    print(f"\n## million: weighted degree {DEGREE}, C = 1, n = {args.n:,}")
    print(apart(fit_million, n=args.n, tol=args.tol))


def fit_million(n: int, tol: float) -> dict[str, Any]:
    X, y = simulate(n + 10_000)
    test, y_test, X, y = X[n:], y[n:], X[:n], y[:n]
    MKLClassifier(WeightedDegree(DEGREE), solver="uniform").fit(X[:3000], y[:3000])
    model = MKLClassifier(WeightedDegree(DEGREE), solver="uniform", tol=tol, verbose=1)
    seconds, memory, _ = fit_cost(partial(model.fit, X, y), 0.0)
    return {
        "seconds": round(seconds, 1),
        "gap": float(f"{model.gap_:.2e}"),
        "support vectors": len(model.support_),
        "peak bytes a sequence above the input": round(1e6 * (memory or 0.0) / n),
        "test accuracy": round(model.score(test, y_test), 4),
        "input bytes a sequence": X.itemsize,
    }


PARTS = {"pairs": pairs, "svm": svm, "mkl": mkl, "update": update, "million": million}


def main() -> None:
    run_parts(
        __doc__,
        PARTS,
        start=list(PARTS)[:-1],
        data=False,
        quick={"pairs": 500, "svm": 3000, "mkl": 2000, "sizes": [10_000, 30_000], "n": 50_000},
        repeat=3,
        pairs=(2000, "sequences of pairs"),
        svm=(10_000, "of svm"),
        mkl=(10_000, "of mkl"),
        sizes=([10_000, 30_000, 100_000, 300_000, 1_000_000], "of update"),
        n=(1_000_000, "of million"),
        tol=(1e-3, "relative gap of million"),
    )


if __name__ == "__main__":
    main()
