"""Many points, no n x n matrix, and a million kernels, none of them stored.

    python -m benchmarks.papers.large --data-dir DIR                 # Adult, Cod-RNA, Covertype
    python -m benchmarks.papers.large --data-dir DIR --parts covertype --combinations sum
    python -m benchmarks.papers.large --data-dir DIR --parts million growth
    python -m benchmarks.papers.large --quick                        # 5,000 points of each

adult, cod_rna, covertype   Five Gaussian kernels, summed under p = 1.33, and the product of five
         distances under l1, rows on demand within a byte budget, each against one of our own fits
         with equal weights (one support vector machine on the uniform sum, or product, of the same
         kernels) at the same tolerance, in the same run and the same way: time, peak memory of a
         process of its own, test accuracy. Covertype: also the exponent of the time in n.
million  Gaussian kernels on random subsets of one to five of sonar's 60 features, random widths,
         seeded, against the time of one pass over them: v'K_k v for every kernel once, v without
         zeros, on all cores; beside it stands the bare vectorised exponential over as many numbers.
         Fits: weights on the simplex and in the ball of p = 1.33, to a relative duality gap of 1e-2
         that covers all kernels. (The SPG-GMKL paper took 106 hours for p = 1.33, MWUMKL 3.65.)
growth   Figure 2 of the SPG-GMKL paper (Jain et al. 2012): sum of kernels under p = 1.33, gap 1e-3,
         `solver="auto"`, which is SPG there. Sonar: such Gaussian kernels; Adult and Web (w8a):
         five, rows on demand within 1 GB. `fit` from raw data, kernels and all, in processor
         seconds of one thread, and the exponents fitted to them. 100,000 kernels on sonar took the
         paper 2.19 hours (Table 11).
"""

import time
from functools import partial
from typing import Any

import numpy as np
from sklearn.preprocessing import StandardScaler

from benchmarks.data import available, load, load_standardised
from benchmarks.limit.roofline import exp_rate
from benchmarks.papers.mwu_fit import load as load_whole
from benchmarks.papers.tables import PUBLISHED
from benchmarks.part import run_parts
from benchmarks.show import Table
from benchmarks.timing import apart, best_of, exponent, fit_cost, memory_mb, one_thread, seconds_of
from kernelweave import MKLClassifier
from kernelweave.bank import build_bank
from kernelweave.cluster.team import pickled_bytes
from kernelweave.compiled.threads import thread_count
from kernelweave.kernels import RBF, RBFBatch
from kernelweave.operators import bind_kernels
from kernelweave.regularizers import L1, LpBall

DENSE = LpBall(1.33)
CASES = {
    "uniform sum": ("sum", "uniform", DENSE),
    "sum p=1.33": ("sum", "auto", DENSE),
    "uniform product": ("product", "uniform", L1(1.0)),
    "product l1": ("product", "auto", L1(1.0)),
}
GROWTH = PUBLISHED["spg"]["growth"]


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


def points(name: str, args: Any) -> None:
    for _, (X, _) in available([name], args.data_dir):
        sizes = args.sizes if name == "covertype" else [min(args.most, len(X))]
        found = [compare(args, name, n) for n in sizes]
        for case in found[0] if len(sizes) > 1 else ():
            slope = exponent(sizes, [seconds[case] for seconds in found])
            print(f"{case}: time grows as n^{slope:.2f}")


def million(args: Any) -> None:
    X, y = load_standardised("sonar", args.data_dir)
    n, p = X.shape
    batch = RBFBatch.random(args.kernels, p, sizes=(1, 5), random_state=args.seed)
    few = RBFBatch.random(3000, p, sizes=(1, 5), random_state=1)
    tol, regularizers = 10 * args.tol, {"simplex": "simplex", "p = 1.33": DENSE}
    for regularizer in regularizers.values():  # compiles
        MKLClassifier(few, regularizer=regularizer, tol=tol).fit(X, y)
    built, bank = seconds_of(lambda: build_bank("auto", bind_kernels(batch, X), tol=tol))
    held = f"{pickled_bytes(bank) / 1e6:.0f} MB, bank built in {built:.2f} s"
    print(f"{n} x {p}, {bank.m:,} kernels, {held}")
    v = np.random.default_rng(0).normal(size=n)
    one, _ = best_of(lambda: bank.quad(v), 2)
    entries = bank.m * n * (n - 1) / 2
    bare = entries / exp_rate("own", np.float32, thread_count())
    each = f"{one / entries * 1e9:.3f} ns for each kernel value"
    print(f"one pass: {one:.2f} s, {each}; the bare exponential alone would take {bare:.2f} s")
    for name, regularizer in regularizers.items():
        model = MKLClassifier(batch, C=10.0, regularizer=regularizer, tol=tol, n_jobs=None)
        seconds, _ = seconds_of(lambda m=model: m.fit(X, y))
        took = f"{seconds:.1f} s = {seconds / one:.1f} passes"
        used = f"{np.count_nonzero(model.weights_):,} kernels in use"
        peak = f"{len(model.support_)} support vectors, peak {memory_mb('VmHWM') / 1e3:.2f} GB"
        found = Table(f"{name}: {took}, {used}, {peak}", ["seconds", "objective", "gap", "kernels"])
        for record in model.history_:
            found.row(record.seconds, record.primal, record.gap, record.active_kernels)


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
    model = MKLClassifier(kernels, regularizer=DENSE, tol=1e-3, n_jobs=1, **options)
    return seconds_of(lambda: model.fit(X, y), time.process_time)


def growth(args: Any) -> None:
    with one_thread():
        X, y = np.random.default_rng(0).normal(size=(300, 6)), np.resize([-1, 1], 300)
        fit_at("sonar", 100, X, y)  # compiles
        fit_at("adult", 300, X, y)
        for name, (X, y) in available(GROWTH, args.data_dir, load_whole):
            letter, sizes = ("m", args.m) if name == "sonar" else ("n", args.n)
            shown = Table(name, [letter, "processor seconds", "gap"])
            taken = []
            for size in sizes:
                seconds, model = fit_at(name, size, X, y)
                shown.row(size, seconds, model.gap_)
                taken.append(seconds)
            grows = f"{letter}^{exponent(sizes, taken):.2f}" if len(sizes) > 1 else "-"
            print(f"\ngrows as {grows}; the paper: {GROWTH[name]}", flush=True)


def main() -> None:
    sets = ("adult", "cod_rna", "covertype")
    run_parts(
        __doc__,
        {**{name: partial(points, name) for name in sets}, "million": million, "growth": growth},
        start=sets,
        quick={
            **{"most": 5000, "sizes": [2000, 5000], "kernels": 20_000},
            **{"m": [1000, 10_000], "n": [1000, 2000]},
        },
        most=(10**6, "rows of adult and cod_rna"),
        sizes=([10_000, 20_000, 50_000, 100_000], "rows of covertype"),
        combinations=["sum", "product"],
        C=(1.0, "of these; 10 for sonar"),
        cache_mb=1000.0,
        tol=(1e-3, "relative gap of these; ten times that for million, 1e-3 for growth"),
        kernels=(1_000_000, "of million"),
        seed=(0, "of million"),
        m=([1000, 10_000, 100_000], "kernels of growth"),
        n=([1000, 2000, 4000, 8000], "rows of growth"),
    )


if __name__ == "__main__":
    main()
