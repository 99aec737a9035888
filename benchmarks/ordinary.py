"""Ordinary problems: hundreds to twenty thousand rows of a table, against one SVM.

    python -m benchmarks.ordinary
    python -m benchmarks.ordinary --sizes 300 2000 --Cs 1 10 --parts classes

Ten Gaussian widths on 20 columns, weights on the simplex to a relative gap of 1e-3, from rows to
the model, against one ``SVC(kernel="rbf")`` and, with --ten, the ten that a search for the width
would fit; the same for regression, ten classes that share their weights, and breast cancer. All
contestants take turns. Peak memory is that of a process of its own, above what it had when the
data were there.
"""

from functools import partial
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer, make_blobs
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR

from benchmarks.part import run_parts
from benchmarks.problems import two_classes
from benchmarks.show import RACE, Table, fit_words, race_rows, verdict
from benchmarks.timing import apart, fit_cost, race
from kernelweave import MKLClassifier, MKLRegressor
from kernelweave.kernels import RBF

WIDTHS = np.geomspace(1.0, 20.0, 10)
KERNELS = [RBF(width=float(width)) for width in WIDTHS]
# Most times that one SVM may take: few rows, more, equal weights.
FEW, MANY, EQUAL = 4.0, 2.0, 1.0
MOST_MB = 300.0


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
            ratios = race_rows(found, problem, race(fits, rounds_of(n)), fit_words)
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
            race_rows(found, f"n = {n:,}, C = {C:g}", race(fits, rounds_of(n)), fit_words)


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


def warm_up() -> None:
    X, y = two_classes(400)
    MKLClassifier(KERNELS).fit(X, y)
    MKLRegressor(KERNELS, loss="epsilon_insensitive").fit(X, y)


if __name__ == "__main__":
    run_parts(
        __doc__,
        {part.__name__: part for part in (classes, regression, shared, small, memory)},
        warm_up=warm_up,
        data=False,
        sizes=[300, 2000, 5000, 10_000, 20_000],
        Cs=[1.0, 10.0, 100.0],
        ten=(False, "time the ten SVCs of a search, too"),
    )
