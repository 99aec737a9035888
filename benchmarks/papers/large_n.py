"""Many points, no n x n matrix: rows on demand within a byte budget.

    python -m benchmarks.papers.large_n --data-dir DIR                 # Adult, Cod-RNA, Covertype
    python -m benchmarks.papers.large_n --data-dir DIR --parts covertype --combinations sum
    python -m benchmarks.papers.large_n --quick                        # 5,000 points of each

Five Gaussian kernels, summed under p = 1.33, and the product of five distances under l1, each
against one of our own fits with equal weights (one support vector machine on the uniform sum, or
product, of the same kernels) at the same tolerance, in the same run and the same way: time, peak
memory of a process of its own, test accuracy. The scan over Covertype also fits the exponent of
the time in n.
"""

from typing import Any

import numpy as np
from sklearn.preprocessing import StandardScaler

from benchmarks.data import available, load
from benchmarks.part import read_options
from benchmarks.show import Table
from benchmarks.timing import apart, exponent, fit_cost, memory_mb
from kernelweave import MKLClassifier
from kernelweave.kernels import RBF
from kernelweave.regularizers import L1, LpBall

CASES = {
    "uniform sum": ("sum", "uniform", LpBall(1.33)),
    "sum p=1.33": ("sum", "auto", LpBall(1.33)),
    "uniform product": ("product", "uniform", L1(1.0)),
    "product l1": ("product", "auto", L1(1.0)),
}


def kernels_for(X: np.ndarray, combination: str) -> list:
    """Five widths on all columns for a sum; five groups of columns for a product."""
    p = X.shape[1]
    if combination == "sum":
        return [RBF(width=np.sqrt(p) * w) for w in (0.25, 0.5, 1.0, 2.0, 4.0)]
    groups = np.array_split(np.arange(p), 5)
    return [RBF(gamma=1.0 / len(g)).on(g.tolist()) for g in groups]


def one_fit(name: str, n: int, case: str, data_dir: str | None, **settings: Any) -> dict[str, Any]:
    X, y = load(name, data_dir)
    order = np.random.default_rng(0).permutation(len(y))
    n = min(n, len(y))
    held_out = len(y) - n >= 1000
    train, test = order[:n], order[n : n + 10_000] if held_out else order[:10_000]
    scaler = StandardScaler().fit(X[train])
    X_train, X_test = scaler.transform(X[train]), scaler.transform(X[test])
    combination, solver, regularizer = CASES[case]
    settings |= {"combination": combination, "regularizer": regularizer, "solver": solver}
    model = MKLClassifier(kernels_for(X, combination), bank="lazy", **settings)
    small = np.arange(0, n, max(1, n // 300))
    model.fit(X_train[small], y[train][small])  # compiles
    seconds, above, _ = fit_cost(lambda: model.fit(X_train, y[train]), 0.0)
    fit = [model.history_[-1].inner_solves, model.gap_, model.gap_kind_, len(model.support_)]
    where = "held out" if held_out else "on training rows"
    accuracy = f"{model.score(X_test, y[test]):.4f} {where}"
    return {"seconds": seconds, "cells": [*fit, memory_mb("VmHWM"), above, accuracy]}


def compare(args: Any, name: str, n: int) -> dict[str, float]:
    """Fit every case in a process of its own, so that its peak memory is its own."""
    heads = ["case", "s", "SVM solves", "gap", "kind", "support vectors", "peak, MB"]
    title = f"{name}, n = {n}, tolerance {args.tol:g}"
    found = Table(title, [*heads, "above the data, MB", "accuracy"])
    seconds = {}
    settings = {"data_dir": args.data_dir, "C": args.C, "cache_mb": args.cache_mb, "tol": args.tol}
    for case, (combination, _, _) in CASES.items():
        if combination in args.combinations:
            result = apart(one_fit, name=name, n=n, case=case, **settings)
            seconds[case] = result["seconds"]
            found.row(case, result["seconds"], *result["cells"])
    for ours in ("sum p=1.33", "product l1"):
        for base in ("uniform sum", "uniform product"):
            if ours in seconds and base in seconds:
                print(f"{ours}: {seconds[ours] / seconds[base]:.2f} x {base}", flush=True)
    return seconds


def main() -> None:
    args = read_options(
        __doc__,
        parts=["adult", "cod_rna", "covertype"],
        quick={"most": 5000, "sizes": [2000, 5000]},
        most=(10**6, "rows of adult and cod_rna"),
        sizes=([10_000, 20_000, 50_000, 100_000], "rows of covertype"),
        combinations=["sum", "product"],
        C=1.0,
        cache_mb=1000.0,
        tol=1e-3,
    )
    for name, (X, _) in available(args.parts, args.data_dir):
        sizes = args.sizes if name == "covertype" else [min(args.most, len(X))]
        found = [compare(args, name, n) for n in sizes]
        for case in found[0] if len(sizes) > 1 else ():
            slope = exponent(sizes, [seconds[case] for seconds in found])
            print(f"{case}: time grows as n^{slope:.2f}")


if __name__ == "__main__":
    main()
