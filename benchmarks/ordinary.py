"""Ordinary problems: hundreds to twenty thousand rows of a table, against one SVM.

    python -m benchmarks.ordinary
    python -m benchmarks.ordinary --sizes 300 2000 --Cs 1 10 --parts classes

Ten Gaussian widths on 20 columns, weights on the simplex to a relative gap of 1e-3, from rows to
the model, against one ``SVC(kernel="rbf")`` and the ten that a search for the width would fit; the
same for regression, ten classes that share their weights, and breast cancer. All contestants take
turns. Peak memory is that of a process of its own, above what it had when the data were there.
"""

import json

import numpy as np
from sklearn.datasets import load_breast_cancer, make_blobs
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR

from benchmarks.part import read_options
from benchmarks.problems import two_classes
from benchmarks.show import Table, verdict
from benchmarks.timing import forget_peak, memory_mb, race, run_apart
from kernelweave import MKLClassifier, MKLRegressor
from kernelweave.kernels import RBF

WIDTHS = np.geomspace(1.0, 20.0, 10)
# Most times that one SVM may take: few rows, more, equal weights.
FEW, MANY, EQUAL = 4.0, 2.0, 1.0
MOST_MB = 300.0
PARTS = ("classes", "regression", "shared", "small", "memory")


def kernels() -> list[RBF]:
    return [RBF(width=float(width)) for width in WIDTHS]


def rounds_of(n: int) -> int:
    return 5 if n <= 2000 else 2 if n <= 5000 else 1


def classes(sizes: list[int], Cs: list[float], ten: bool) -> None:
    heads = ("n", "C", "MKL", "equal weights", "one SVC", "ten SVCs", "MKL / SVC", "equal / SVC")
    table = Table("Two classes, seconds", heads)
    failed = []
    for n in sizes:
        X, y = two_classes(n)
        for C in Cs:
            contestants = {
                "mkl": lambda X=X, y=y, C=C: MKLClassifier(kernels(), C=C).fit(X, y),
                "equal": lambda X=X, y=y, C=C: MKLClassifier(kernels(), C=C, solver="uniform").fit(
                    X, y
                ),
                "svc": lambda X=X, y=y, C=C: SVC(C=C).fit(X, y),
            }
            if ten:
                contestants["ten"] = lambda X=X, y=y, C=C: [
                    SVC(C=C, gamma=0.5 / width**2).fit(X, y) for width in WIDTHS
                ]
            best = {name: run[0] for name, run in race(contestants, rounds_of(n)).items()}
            mkl, equal = best["mkl"] / best["svc"], best["equal"] / best["svc"]
            table.row(n, C, best["mkl"], best["equal"], best["svc"], best.get("ten"), mkl, equal)
            most = FEW if n < 1000 else MANY
            if mkl > most:
                failed.append(f"n = {n}, C = {C:g}: {mkl:.1f} > {most:g}")
            if equal > EQUAL:
                failed.append(f"n = {n}, C = {C:g}, equal weights: {equal:.1f} > {EQUAL:g}")
    verdict(not failed, "; ".join(failed) or "all within the targets")


def regression(sizes: list[int], Cs: list[float]) -> None:
    table = Table("Regression, seconds", ("n", "C", "MKL", "one SVR", "MKL / SVR"))
    for n in sizes:
        X, _ = two_classes(n)
        rng = np.random.default_rng(0)
        y = np.sin(X[:, 0]) + 0.5 * X[:, 1] * X[:, 2] + 0.1 * rng.normal(size=n)
        for C in Cs:
            contestants = {
                "mkl": lambda X=X, y=y, C=C: MKLRegressor(
                    kernels(), C=C, loss="epsilon_insensitive"
                ).fit(X, y),
                "svr": lambda X=X, y=y, C=C: SVR(C=C).fit(X, y),
            }
            best = {name: run[0] for name, run in race(contestants, rounds_of(n)).items()}
            table.row(n, C, best["mkl"], best["svr"], best["mkl"] / best["svr"])


def shared() -> None:
    X, y = make_blobs(5000, 20, centers=10, cluster_std=6.0, random_state=0)
    X = StandardScaler().fit_transform(X)
    contestants = {
        "mkl": lambda: MKLClassifier(kernels()).fit(X, y),
        "svc": lambda: SVC().fit(X, y),
    }
    best = {name: run[0] for name, run in race(contestants, 1).items()}
    table = Table(
        "Ten classes that share their weights, n = 5,000, seconds", ("MKL", "SVC", "MKL / SVC")
    )
    table.row(best["mkl"], best["svc"], best["mkl"] / best["svc"])


def small() -> None:
    X, y = load_breast_cancer(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    contestants = {
        "default": lambda: MKLClassifier().fit(X, y),
        "simplemkl": lambda: MKLClassifier("simplemkl").fit(X, y),
        "svc": lambda: SVC().fit(X, y),
    }
    best = {name: run[0] for name, run in race(contestants, 10).items()}
    table = Table("Breast cancer, seconds", ("kernels", "MKL", "one SVC", "MKL / SVC"))
    for name in ("default", "simplemkl"):
        table.row(name, best[name], best["svc"], best[name] / best["svc"])


def memory(n: int) -> None:
    """Fit in this process, and say how much memory that took beside the data."""
    X, y = two_classes(n)
    two, other = two_classes(300)
    MKLClassifier(kernels()).fit(two, other)  # compiled code is loaded
    forget_peak()
    before = memory_mb("VmRSS")
    MKLClassifier(kernels()).fit(X, y)
    print(json.dumps({"n": n, "mb": memory_mb("VmHWM") - before}))


def main() -> None:
    options = read_options(
        __doc__,
        data=False,
        sizes=[300, 2000, 5000, 10_000, 20_000],
        Cs=[1.0, 10.0, 100.0],
        parts=({part: part for part in PARTS}, "what to measure"),
        ten=(False, "time the ten SVCs of a search, too"),
        memory_of=(0, "only fit so many rows, and print the memory that takes"),
    )
    if options.memory_of:
        memory(options.memory_of)
        return
    warm, labels = two_classes(400)
    MKLClassifier(kernels()).fit(warm, labels)
    MKLRegressor(kernels(), loss="epsilon_insensitive").fit(warm, labels)
    if "classes" in options.parts:
        classes(options.sizes, options.Cs, options.ten)
    if "regression" in options.parts:
        regression(options.sizes, options.Cs)
    if "shared" in options.parts:
        shared()
    if "small" in options.parts:
        small()
    if "memory" in options.parts:
        largest = max(options.sizes)
        (found,) = run_apart("ordinary", "--memory-of", str(largest))
        verdict(found["mb"] <= MOST_MB, f"n = {largest:,}: {found['mb']:.0f} MB beside the data")


if __name__ == "__main__":
    main()
