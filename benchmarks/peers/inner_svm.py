"""One support vector machine, one kernel: kernelweave's solver beside scikit-learn's and Intel's.

Run ``python -m benchmarks.peers.inner_svm`` or add ``--quick``. Solvers take turns on the same data
in one process, so that the ratios hold on a busy machine; times are the best of the repeats.
Targets: with a precomputed Gram matrix at least 3 times faster than ``SVC(kernel="precomputed")``
and 2 times faster than ``SVC(kernel="rbf")``; with rows computed on the fly no slower than
scikit-learn-intelex.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from sklearn.svm import SVC

from benchmarks.part import run_parts
from benchmarks.problems import Array, two_classes
from benchmarks.show import RACE, Table, race_rows
from benchmarks.timing import Work, race
from kernelweave.bank import LazyBank
from kernelweave.combine import Gram
from kernelweave.kernels import RBF
from kernelweave.losses import Hinge
from kernelweave.operators import ComputedOperator, DenseOperator
from kernelweave.solvers.box_qp import solve_box_qp

GAMMA, TOL, CACHE_MB = 1.0 / 20, 1e-3, 1000
SHAPE = {"n_informative": 10, "n_redundant": 2, "class_sep": 1.0}


def matrix_in_memory(K: Array) -> Gram:
    return Gram(DenseOperator([K]), np.ones(1))


def rows_on_demand(X: Array) -> Gram:
    """A Gaussian kernel in a lazy bank: rows computed when asked for, the recent ones kept."""
    kernels = ComputedOperator.build(RBF(gamma=GAMMA), X, normalize=None)
    return Gram(LazyBank(CACHE_MB).build(kernels), np.ones(1))


def dual_value(X: Array, support: Array, alpha: Array) -> float:
    """Dual objective in float64, from the support vectors only."""
    S = X[support]
    quad = 0.0
    for start in range(0, support.size, 1000):
        part = slice(start, start + 1000)
        quad += float(alpha[part] @ (RBF(gamma=GAMMA)(S[part], S) @ alpha))
    return 0.5 * quad - float(np.abs(alpha).sum())


def ours(source: Callable[..., Gram], args: tuple, y: Array, C: float) -> tuple[Array, Array]:
    """Support and signed dual of kernelweave; building the source is part of the time."""
    qp = Hinge().box_qp(y, np.full(y.size, C))
    alpha = solve_box_qp(qp, source(*args), tol=TOL).alpha
    support = np.flatnonzero(alpha)
    return support, alpha[support]


def theirs(model: SVC, X: Array, y: Array) -> tuple[Array, Array]:
    model.fit(X, y)
    return model.support_, model.dual_coef_[0]


def compare(found: Table, label: str, X: Array, runs: dict[str, Work], repeats: int) -> None:
    """Time the runs in turn; one row a run, with ratios to the first."""
    best = race(runs, repeats)
    first = dual_value(X, *next(iter(best.values()))[1])
    race_rows(found, label, best, lambda answer: f"{abs(dual_value(X, *answer) / first - 1):.0e}")


def precomputed(args: Any) -> None:
    found = Table("a Gram matrix", [*RACE, "objective off by"])
    for n in args.sizes:
        X, y = two_classes(n, **SHAPE)
        K = RBF(gamma=GAMMA)(X)
        for C in (1.0, 100.0):
            runs = {
                "kernelweave": partial(ours, matrix_in_memory, (K,), y, C),
                "SVC precomputed": partial(theirs, SVC(C=C, kernel="precomputed", tol=TOL), K, y),
                "SVC rbf": partial(theirs, SVC(C=C, gamma=GAMMA, tol=TOL), X, y),
            }
            compare(found, f"n = {n:,}, C = {C:g}", X, runs, args.repeats)


def rows_on_the_fly(args: Any) -> None:
    """Compare without a Gram matrix: every solver may keep 1000 MB of rows."""
    try:
        from sklearnex.svm import SVC as Other
    except ImportError:  # then scikit-learn alone is compared with
        Other = SVC
    found = Table("rows on the fly", [*RACE, "objective off by"])
    X, y = two_classes(args.n, **SHAPE)
    for C in (1.0, 10.0):
        other = Other(C=C, gamma=GAMMA, tol=TOL, cache_size=CACHE_MB)
        runs = {
            "kernelweave": partial(ours, rows_on_demand, (X,), y, C),
            Other.__module__.split(".")[0] + " SVC rbf": partial(theirs, other, X, y),
        }
        compare(found, f"n = {args.n:,}, C = {C:g}", X, runs, args.repeats)


def main() -> None:
    run_parts(
        __doc__,
        {"precomputed": precomputed, "rows": rows_on_the_fly},
        data=False,
        quick={"sizes": [1000, 3000], "n": 6000},
        sizes=([3000, 8000], "of precomputed"),
        n=(20_000, "of rows"),
        repeats=3,
    )


if __name__ == "__main__":
    main()
