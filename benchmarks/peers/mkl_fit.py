"""Whole MKL fits against one SVC fit, on the same arrays in one run.

    python -m benchmarks.peers.mkl_fit                            # precomputed and family
    python -m benchmarks.peers.mkl_fit --quick                    # smaller
    python -m benchmarks.peers.mkl_fit --parts certificates --sizes 5000

precomputed   n = 5,000, 20 features, 10 precomputed RBF kernels, simplex and l2, gap 1e-3, against
              one SVC on their uniform sum.
family        scikit-learn's breast cancer data, SimpleMKL family (403 kernels), 398 training rows:
              building the bank against NumPy's dense stack, and the fit on it against one SVC.
certificates  what certifying costs: ten RBF widths from rows, the share of the fit spent on
              certificates, those of every iteration and those by the kernels themselves.

The relative gap is 1e-3. Times are the smallest of interleaved repetitions; every contestant is
given the same arrays.
"""

import time
from functools import partial
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from benchmarks.part import run_parts
from benchmarks.problems import Array, problem_on, two_classes
from benchmarks.show import RACE, Table, fit_words, race_rows
from benchmarks.timing import race, seconds_of
from benchmarks.watch import seconds_in
from kernelweave import MKLClassifier, sample_ids
from kernelweave.bank import build_bank
from kernelweave.cluster.team import pickled_bytes
from kernelweave.kernels import RBF, from_matrices
from kernelweave.operators import ComputedOperator
from kernelweave.regularizers import LpBall, Simplex
from kernelweave.solvers import ActiveSet, Limits, solve

CERTIFICATES = {"certificates": ["loop:certify", "loop:recompute", "solve:certified_exactly"]}


def precomputed(args: Any) -> None:
    n = args.n
    X, y = two_classes(n)
    D = euclidean_distances(X, squared=True)
    grams = [np.exp(-D * gamma) for gamma in np.geomspace(1e-3, 1.0, 10)]
    uniform = np.sum(grams, axis=0)

    def fit(regularizer: Any) -> MKLClassifier:
        # New kernel objects each time: their checks (symmetric, semi-definite) are part of a fit.
        return MKLClassifier(from_matrices(grams), regularizer=regularizer).fit(sample_ids(n), y)

    contestants = {
        "SVC": lambda: SVC(kernel="precomputed").fit(uniform, y),
        "kernelweave simplex": lambda: fit(Simplex()),
        "kernelweave l2": lambda: fit(LpBall(2.0)),
    }
    MKLClassifier(from_matrices([K[:300, :300] for K in grams])).fit(sample_ids(300), y[:300])
    found = Table("precomputed: 10 RBF kernels", [*RACE, "of the fit"])
    race_rows(found, f"n = {n:,}", race(contestants, args.repeat), fit_words)


def numpy_stack(X: Array) -> Array:
    """The SimpleMKL family as one writes it in NumPy: 13 kernels on each block of columns."""
    Z = StandardScaler().fit_transform(X)
    blocks = [Z] + [Z[:, [j]] for j in range(Z.shape[1])]
    grams = []
    for block in blocks:
        D = euclidean_distances(block, squared=True)
        grams += [np.exp(-D / (2 * width**2)) for width in 2.0 ** np.arange(-3, 7)]
        inner = block @ block.T + 1
        grams += [inner**degree for degree in (1, 2, 3)]
    stack = np.array(grams)
    stack /= np.einsum("kii->k", stack)[:, None, None] / len(X)
    return stack


def family(args: Any) -> None:
    X, y = load_breast_cancer(return_X_y=True)
    X, _, y, _ = train_test_split(X, y, test_size=0.3, random_state=0, stratify=y)
    kernels = ComputedOperator.build("simplemkl", X)
    stack = kernels.block(np.arange(len(X)))
    raw = ComputedOperator.build("simplemkl", X, normalize=None).block(np.arange(len(X)))
    bank = build_bank("auto", kernels)
    problem = problem_on(bank, np.where(y > 0, 1.0, -1.0))
    fit = partial(solve, problem, ActiveSet(), Limits(tol=1e-3))
    fit()
    found = Table(f"family: {kernels.m} kernels on {len(X)} rows", RACE)
    building = {
        "NumPy": lambda: numpy_stack(X),
        "kernelweave bank": lambda: build_bank("auto", ComputedOperator.build("simplemkl", X)),
    }
    race_rows(found, "kernels", race(building, args.repeat))
    plain, normalised = raw.sum(axis=0), stack.mean(axis=0)
    machine = SVC(kernel="precomputed")
    fits = {
        "SVC on their uniform sum": lambda: machine.fit(plain, y),
        "SVC on the mean of the unit-trace kernels": lambda: machine.fit(normalised, y),
        "kernelweave": fit,
    }
    best = race(fits, 3 * args.repeat)
    race_rows(found, "fit", best)
    result = best["kernelweave"][1]
    held = f"{pickled_bytes(bank) / 1e6:.0f} MB, the dense stack {stack.nbytes / 1e6:.0f} MB"
    kept = f"{len(result.history) - 1} iterations, {np.count_nonzero(result.d)} kernels kept"
    print(f"the bank holds {held}; gap {result.certificate.gap:.1e}, {kept}")


def certificates(args: Any) -> None:
    heads = ["n", "C", "seconds", "certificates, % of it", "fit"]
    found = Table("certificates in a fit, 10 RBF widths from rows", heads)
    widths = [RBF(width=width) for width in np.geomspace(0.5, 20.0, 10)]
    for n in args.sizes:
        X, y = two_classes(n, flip_y=0.05, class_sep=1.0)
        for C in args.Cs:
            with seconds_in(CERTIFICATES, time.perf_counter) as spent:
                fit = MKLClassifier(widths, C=C).fit
                seconds, model = seconds_of(partial(fit, X, y))
            found.row(n, C, seconds, 100 * spent["certificates"] / seconds, fit_words(model))


def main() -> None:
    parts = (family, precomputed, certificates)
    run_parts(
        __doc__,
        {part.__name__: part for part in parts},
        start=["family", "precomputed"],
        data=False,
        quick={"n": 2000, "sizes": [2000]},
        n=(5000, "of precomputed"),
        sizes=([5000, 10_000], "of certificates"),
        Cs=([1.0, 10.0, 100.0], "of certificates"),
        repeat=3,
    )


if __name__ == "__main__":
    main()
