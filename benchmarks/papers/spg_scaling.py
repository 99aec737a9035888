"""Figure 2 of the SPG-GMKL paper (Jain et al. 2012): time against kernels and against points.

    python -m benchmarks.papers.spg_scaling --data-dir DIR
    python -m benchmarks.papers.spg_scaling --m 1000 10000 --n 1000 2000

Sum of kernels in the ball of p = 1.33, to a relative duality gap of 1e-3, `solver="auto"`, which
is SPG there. Sonar: Gaussian kernels on one to five random features, none of them stored. Adult
and Web (w8a): five Gaussian kernels, rows on demand within 1 GB. `fit` from raw data, kernels and
all, in processor seconds of one thread, and the exponents fitted to them. The paper found growth
in proportion to the number of kernels, n^1.98 on Adult and n^1.52 on Web; 100,000 kernels on sonar
took it 2.19 hours (Table 11).
"""

import time
from typing import Any

import numpy as np
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from benchmarks.data import load
from benchmarks.papers.large_n import kernels_for
from benchmarks.papers.mwu_fit import load as load_mwu
from benchmarks.part import read_options
from benchmarks.show import Table
from benchmarks.timing import exponent, seconds_of
from kernelweave import MKLClassifier
from kernelweave.kernels import RBFBatch
from kernelweave.regularizers import LpBall

PUBLISHED = {"sonar": "linear in m", "adult": "n^1.98", "web": "n^1.52"}


def fitted(kernels: Any, X: np.ndarray, y: np.ndarray, **options: Any) -> tuple[float, Any]:
    model = MKLClassifier(kernels, regularizer=LpBall(1.33), tol=1e-3, n_jobs=1, **options)
    return seconds_of(lambda: model.fit(X, y), time.process_time)


def on_sonar(args: Any) -> list[tuple[int, float, float]]:
    """(m, seconds, gap)."""
    X, y = load("sonar", args.data_dir)
    X = StandardScaler().fit_transform(X)
    found = []
    for m in args.m:
        batch = RBFBatch.random(m, X.shape[1], sizes=(1, 5), random_state=0)
        seconds, model = fitted(batch, X, y, C=10.0)
        found.append((m, seconds, model.gap_))
    return found


def on_points(args: Any, name: str) -> list[tuple[int, float, float]]:
    """(n, seconds, gap)."""
    X, y = load_mwu(name, args.data_dir)
    order = np.random.default_rng(0).permutation(len(y))
    found = []
    for n in args.n:
        rows = order[:n]
        X_n = StandardScaler().fit_transform(X[rows])
        kernels = kernels_for(X_n, "sum")
        seconds, model = fitted(kernels, X_n, y[rows], C=1.0, bank="lazy", cache_mb=1000)
        found.append((n, seconds, model.gap_))
    return found


def main() -> None:
    sizes = {"m": [1000, 10_000, 100_000], "n": [1000, 2000, 4000, 8000]}
    args = read_options(__doc__, parts=PUBLISHED, **sizes)
    with threadpool_limits(1):
        X, y = np.random.default_rng(0).normal(size=(300, 6)), np.resize([-1, 1], 300)
        fitted(RBFBatch.random(100, 6, random_state=0), X, y)  # compiles
        fitted(kernels_for(X, "sum"), X, y, bank="lazy")
        for name in args.parts:
            letter = "m" if name == "sonar" else "n"
            shown = Table(name, [letter, "processor seconds", "gap"])
            found = on_sonar(args) if name == "sonar" else on_points(args, name)
            for row in found:
                shown.row(*row)
            taken, seconds, _ = (list(column) for column in zip(*found, strict=True))
            grows = f"{letter}^{exponent(taken, seconds):.2f}" if len(taken) > 1 else "-"
            print(f"\ngrows as {grows}; the paper: {PUBLISHED[name]}", flush=True)


if __name__ == "__main__":
    main()
