"""Whole MKL fits against one SVC fit, on the same arrays in one run.

    python -m benchmarks.peers.mkl_fit                            # precomputed and family
    python -m benchmarks.peers.mkl_fit --quick                    # smaller
    python -m benchmarks.peers.mkl_fit --parts classes regression --sizes 300 2000 --Cs 1 10
    python -m benchmarks.peers.mkl_fit --parts certificates --sizes 5000

precomputed   n = 5,000, 20 features, 10 precomputed RBF kernels, simplex and l2, gap 1e-3, against
              one SVC on their uniform sum.
family        scikit-learn's breast cancer data, SimpleMKL family (403 kernels), 398 training rows:
              building the bank against NumPy's dense stack, and the fit on it against one SVC.
classes       hundreds to twenty thousand rows of a table: ten Gaussian widths from rows to the
              model, and equal weights, against one ``SVC(kernel="rbf")`` and, with --ten, the ten
              that a search for the width would fit; whether the targets are met.
regression    the same for regression, against SVR.
shared        ten classes that share their weights.
small         the default and the SimpleMKL family on breast cancer.
memory        the peak of a process of its own, above what it had when the data were there.
certificates  what certifying costs: ten RBF widths from rows, the share of the fit spent on
              certificates, those of every iteration and those by the kernels themselves.

The relative gap is 1e-3. Times are the smallest of interleaved repetitions; every contestant is
given the same arrays.
"""

import time
from functools import partial
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer, make_blobs
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR

from benchmarks.part import run_parts
from benchmarks.problems import Array, problem_on, two_classes
from benchmarks.show import RACE, Table, race_rows, verdict
from benchmarks.timing import apart, fit_cost, race, seconds_of
from benchmarks.watch import seconds_in
from kernelweave import MKLClassifier, MKLRegressor, sample_ids
from kernelweave.bank import build_bank
from kernelweave.cluster.team import pickled_bytes
from kernelweave.kernels import RBF, from_matrices
from kernelweave.operators import ComputedOperator
from kernelweave.regularizers import LpBall, Simplex
from kernelweave.solvers import ActiveSet, Limits, solve

WIDTHS = np.geomspace(1.0, 20.0, 10)
KERNELS = [RBF(width=float(width)) for width in WIDTHS]
CERTIFICATES = {"certificates": ["loop:certify", "loop:recompute", "solve:certified_exactly"]}
# Most times that one SVM may take: few rows, more, equal weights.
FEW, MANY, EQUAL = 4.0, 2.0, 1.0
MOST_MB = 300.0


def told(fitted: Any) -> str:
    """Gap, iterations and support vectors of a model of ours; the SVC needs no words."""
    if not hasattr(fitted, "gap_"):
        return ""
    kernels = f"{np.count_nonzero(fitted.weights_)} kernels"
    support = f"{len(fitted.support_)} support vectors"
    return f"gap {fitted.gap_:.1e}, {fitted.n_iter_} iterations, {support}, {kernels}"


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
    race_rows(found, f"n = {n:,}", race(contestants, args.repeat), told)


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


def rounds_of(n: int) -> int:
    return 5 if n <= 2000 else 2 if n <= 5000 else 1


def classes(args: Any) -> None:
    found = Table("classes: ten widths", [*RACE, "of the fit"])
    failed = []
    for n in args.sizes:
        X, y = two_classes(n)
        for C in args.Cs:
            models = {
                "one SVC": SVC(C=C),
                "MKL": MKLClassifier(KERNELS, C=C),
                "equal weights": MKLClassifier(KERNELS, C=C, solver="uniform"),
            }
            fits: dict[str, Any] = {name: partial(m.fit, X, y) for name, m in models.items()}
            if args.ten:
                ten = [SVC(C=C, gamma=0.5 / width**2) for width in WIDTHS]
                fits["ten SVCs"] = lambda ten=ten, X=X, y=y: [svc.fit(X, y) for svc in ten]
            problem = f"n = {n:,}, C = {C:g}"
            ratios = race_rows(found, problem, race(fits, rounds_of(n)), told)
            for name, most in (("MKL", FEW if n < 1000 else MANY), ("equal weights", EQUAL)):
                if ratios[name] > most:
                    failed.append(f"{problem}, {name}: {ratios[name]:.1f} > {most:g}")
    verdict(not failed, "; ".join(failed) or "all within the targets")


def regression(args: Any) -> None:
    found = Table("regression: ten widths", [*RACE, "of the fit"])
    for n in args.sizes:
        X, _ = two_classes(n)
        noise = 0.1 * np.random.default_rng(0).normal(size=n)
        y = np.sin(X[:, 0]) + 0.5 * X[:, 1] * X[:, 2] + noise
        for C in args.Cs:
            mkl = MKLRegressor(KERNELS, C=C, loss="epsilon_insensitive")
            fits = {"one SVR": partial(SVR(C=C).fit, X, y), "MKL": partial(mkl.fit, X, y)}
            race_rows(found, f"n = {n:,}, C = {C:g}", race(fits, rounds_of(n)), told)


def shared(args: Any) -> None:
    X, y = make_blobs(5000, 20, centers=10, cluster_std=6.0, random_state=0)
    X = StandardScaler().fit_transform(X)
    fits = {"SVC": partial(SVC().fit, X, y), "MKL": partial(MKLClassifier(KERNELS).fit, X, y)}
    found = Table("shared: ten classes that share their weights", RACE)
    race_rows(found, "n = 5,000", race(fits, 1))


def small(args: Any) -> None:
    X, y = load_breast_cancer(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    models = {"one SVC": SVC(), "default": MKLClassifier(), "simplemkl": MKLClassifier("simplemkl")}
    fits = {name: partial(model.fit, X, y) for name, model in models.items()}
    race_rows(Table("small", RACE), "breast cancer", race(fits, 10))


def memory(args: Any) -> None:
    n = max(args.sizes)
    taken = apart(fit_memory, n=n)
    verdict(taken <= MOST_MB, f"n = {n:,}: {taken:.0f} MB beside the data")


def fit_memory(n: int) -> float | None:
    X, y = two_classes(n)
    MKLClassifier(KERNELS).fit(*two_classes(300))  # compiled code is loaded
    return fit_cost(lambda: MKLClassifier(KERNELS).fit(X, y), 0.0)[1]


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
            found.row(n, C, seconds, 100 * spent["certificates"] / seconds, told(model))


def warm_up() -> None:
    X, y = two_classes(400)
    MKLClassifier(KERNELS).fit(X, y)
    MKLRegressor(KERNELS, loss="epsilon_insensitive").fit(X, y)


def main() -> None:
    parts = (family, precomputed, classes, regression, shared, small, memory, certificates)
    run_parts(
        __doc__,
        {part.__name__: part for part in parts},
        start=["family", "precomputed"],
        warm_up=warm_up,
        data=False,
        quick={"n": 2000, "sizes": [300, 2000]},
        n=(5000, "of precomputed"),
        sizes=[300, 2000, 5000, 10_000, 20_000],
        Cs=[1.0, 10.0, 100.0],
        repeat=3,
        ten=(False, "time the ten SVCs of a search, too"),
    )


if __name__ == "__main__":
    main()
