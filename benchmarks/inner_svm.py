"""One support vector machine, one kernel: kernelweave's solver beside scikit-learn's and Intel's.

Run ``python benchmarks/inner_svm.py`` or add ``--quick``. Solvers take turns on the
same data in one process, so that the ratios hold on a busy machine; times are the best of the
repeats. Targets: with a precomputed Gram matrix at least 3 times faster than
``SVC(kernel="precomputed")`` and 2 times faster than ``SVC(kernel="rbf")``; with rows computed on
the fly no slower than scikit-learn-intelex.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import make_classification
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from kernelweave.bank import LazyBank
from kernelweave.combine import Gram
from kernelweave.kernels import RBF
from kernelweave.losses import Hinge
from kernelweave.operators import ComputedOperator
from kernelweave.solvers.box_qp import DenseGram, GramSource, solve_box_qp

FEATURES = 20
GAMMA = 1.0 / FEATURES
TOL = 1e-3
CACHE_MB = 1000
Dual = tuple[NDArray, NDArray]


def rows_on_demand(X: NDArray) -> GramSource:
    """A Gaussian kernel in a lazy bank: rows computed when asked for, the recent ones kept."""
    kernels = ComputedOperator.build(RBF(gamma=GAMMA), X, normalize=None)
    return Gram(LazyBank(CACHE_MB).build(kernels), np.ones(1))


def make_data(n: int) -> tuple[NDArray, NDArray]:
    """Two overlapping classes, standardised."""
    X, y = make_classification(
        n, n_features=FEATURES, n_informative=10, n_redundant=2, flip_y=0.1, random_state=0
    )
    return StandardScaler().fit_transform(X), np.where(y > 0, 1.0, -1.0)


def dual_value(X: NDArray, support: NDArray, alpha: NDArray) -> float:
    """Dual objective in float64, from the support vectors only."""
    S = X[support]
    quad = 0.0
    for start in range(0, support.size, 1000):
        part = slice(start, start + 1000)
        K = RBF(gamma=GAMMA)(S[part], S)
        quad += float(alpha[part] @ (K @ alpha))
    return 0.5 * quad - float(np.abs(alpha).sum())


def ours(source: Callable[..., GramSource], args: tuple, y: NDArray, C: float) -> Dual:
    """Support and signed dual of kernelweave; building the source is part of the time."""
    qp = Hinge().box_qp(y, np.full(y.size, C))
    alpha = solve_box_qp(qp, source(*args), tol=TOL).alpha
    support = np.flatnonzero(alpha)
    return support, alpha[support]


def theirs(model: SVC, X: NDArray, y: NDArray) -> Dual:
    """Support and signed dual of a scikit-learn style machine."""
    model.fit(X, y)
    return model.support_, model.dual_coef_[0]


def compare(label: str, X: NDArray, runs: dict[str, Callable], repeats: int) -> None:
    """Time the runs in turn and print one line a run, as ratios to the first."""
    best = dict.fromkeys(runs, np.inf)
    values = {}
    for _ in range(repeats):
        for name, run in runs.items():
            start = time.perf_counter()
            answer = run()
            best[name] = min(best[name], time.perf_counter() - start)
            values[name] = dual_value(X, *answer)
    first = next(iter(runs))
    for name in runs:
        ratio = best[name] / best[first]
        difference = abs(values[name] / values[first] - 1)
        print(
            f"{label:<34}{name:<24}{best[name]:>9.3f} s{ratio:>8.2f} x{difference:>11.1e}",
            flush=True,
        )


def precomputed(n: int, repeats: int) -> None:
    """Compare on a Gram matrix in memory."""
    X, y = make_data(n)
    K = RBF(gamma=GAMMA)(X)
    for C in (1.0, 100.0):
        runs = {
            "kernelweave": partial(ours, DenseGram, (K,), y, C),
            "SVC precomputed": partial(theirs, SVC(C=C, kernel="precomputed", tol=TOL), K, y),
            "SVC rbf": partial(theirs, SVC(C=C, gamma=GAMMA, tol=TOL), X, y),
        }
        compare(f"Gram matrix, n={n}, C={C:g}", X, runs, repeats)


def rows_on_the_fly(n: int, repeats: int) -> None:
    """Compare without a Gram matrix: every solver may keep 1000 MB of rows."""
    try:
        from sklearnex.svm import SVC as Other
    except ImportError:
        print("scikit-learn-intelex is not installed: comparing with scikit-learn")
        Other = SVC
    X, y = make_data(n)
    for C in (1.0, 10.0):
        other = Other(C=C, gamma=GAMMA, tol=TOL, cache_size=CACHE_MB)
        runs = {
            "kernelweave": partial(ours, rows_on_demand, (X,), y, C),
            Other.__module__.split(".")[0] + " SVC rbf": partial(theirs, other, X, y),
        }
        compare(f"rows on the fly, n={n}, C={C:g}", X, runs, repeats)


def main() -> None:
    """Parse the options and run both parts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smaller data, seconds")
    parser.add_argument("--repeats", type=int, default=3, help="repeats of each problem")
    parser.add_argument("--only", choices=["precomputed", "rows"], help="one part only")
    options = parser.parse_args()
    print(f"{'problem':<34}{'solver':<24}{'time':>11}{'ratio':>10}{'objective':>11}")
    if options.only != "rows":
        for n in (1000, 3000) if options.quick else (3000, 8000):
            precomputed(n, options.repeats)
    if options.only != "precomputed":
        rows_on_the_fly(6000 if options.quick else 20_000, options.repeats)


if __name__ == "__main__":
    main()
