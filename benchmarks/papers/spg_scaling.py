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

from benchmarks.data import available
from benchmarks.papers.large_n import kernels_for
from benchmarks.papers.mwu_fit import load
from benchmarks.papers.tables import PUBLISHED
from benchmarks.part import read_options
from benchmarks.show import Table
from benchmarks.timing import exponent, one_thread, seconds_of
from kernelweave import MKLClassifier
from kernelweave.kernels import RBFBatch
from kernelweave.regularizers import LpBall

GROWTH = PUBLISHED["spg"]["growth"]


def fit_at(name: str, size: int, X: np.ndarray, y: np.ndarray) -> tuple[float, Any]:
    """Fit so many kernels on sonar, or five kernels on so many rows of the others."""
    if name == "sonar":
        kernels: Any = RBFBatch.random(size, X.shape[1], sizes=(1, 5), random_state=0)
        rows, options = np.arange(len(y)), {"C": 10.0}
    else:
        kernels = kernels_for(X, "sum")
        rows = np.random.default_rng(0).permutation(len(y))[:size]
        options = {"C": 1.0, "bank": "lazy", "cache_mb": 1000}
    X, y = StandardScaler().fit_transform(X[rows]), y[rows]
    model = MKLClassifier(kernels, regularizer=LpBall(1.33), tol=1e-3, n_jobs=1, **options)
    return seconds_of(lambda: model.fit(X, y), time.process_time)


def main() -> None:
    sizes = {"m": [1000, 10_000, 100_000], "n": [1000, 2000, 4000, 8000]}
    args = read_options(__doc__, parts=GROWTH, **sizes)
    with one_thread():
        X, y = np.random.default_rng(0).normal(size=(300, 6)), np.resize([-1, 1], 300)
        fit_at("sonar", 100, X, y)  # compiles
        fit_at("adult", 300, X, y)
        for name, (X, y) in available(args.parts, args.data_dir, load):
            letter, sizes = ("m", args.m) if name == "sonar" else ("n", args.n)
            shown = Table(name, [letter, "processor seconds", "gap"])
            taken = []
            for size in sizes:
                seconds, model = fit_at(name, size, X, y)
                shown.row(size, seconds, model.gap_)
                taken.append(seconds)
            grows = f"{letter}^{exponent(sizes, taken):.2f}" if len(sizes) > 1 else "-"
            print(f"\ngrows as {grows}; the paper: {GROWTH[name]}", flush=True)


if __name__ == "__main__":
    main()
