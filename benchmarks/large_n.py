"""Many points, no n x n matrix: rows on demand within a byte budget.

    python benchmarks/large_n.py --data-dir DIR                 # Adult, Cod-RNA, Covertype scan
    python benchmarks/large_n.py --data-dir DIR --parts adult   # one part
    python benchmarks/large_n.py --data-dir DIR --parts covertype --combinations sum --tol 1e-2
    python benchmarks/large_n.py --quick                        # 5,000 points of each

Five Gaussian kernels, summed under p = 1.33, and the product of five distances under l1, each
against one of our own fits with equal weights (one support vector machine on the uniform sum, or
product, of the same kernels) at the same tolerance, in the same run and the same way: time, peak
memory of a process of its own, test accuracy. The scan over Covertype also fits the exponent of
the time in n.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
import warnings

import numpy as np
from datasets import add_data_dir, load
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import StandardScaler

from kernelweave import MKLClassifier
from kernelweave.kernels import RBF
from kernelweave.regularizers import L1, LpBall

CASES = {
    "uniform sum": ("sum", "uniform", "lp"),
    "sum p=1.33": ("sum", "auto", "lp"),
    "uniform product": ("product", "uniform", "l1"),
    "product l1": ("product", "auto", "l1"),
}


def kernels_for(X: np.ndarray, combination: str) -> list:
    """Five widths on all columns for a sum; five groups of columns for a product."""
    p = X.shape[1]
    if combination == "sum":
        return [RBF(width=np.sqrt(p) * w) for w in (0.25, 0.5, 1.0, 2.0, 4.0)]
    groups = np.array_split(np.arange(p), 5)
    return [RBF(gamma=1.0 / len(g)).on(g.tolist()) for g in groups]


def one_fit(args: argparse.Namespace) -> dict:
    """One fit in this process; what it took."""
    X, y = load(args.name, args.data_dir)
    order = np.random.default_rng(0).permutation(len(y))
    n = min(args.n, len(y))
    test = order[n : n + 10_000] if len(y) - n >= 1000 else order[:10_000]
    train = order[:n]
    scaler = StandardScaler().fit(X[train])
    X_train, X_test = scaler.transform(X[train]), scaler.transform(X[test])
    before = peak_mb()
    combination, solver, penalty = CASES[args.case]
    model = MKLClassifier(
        kernels_for(X, combination),
        C=args.C,
        combination=combination,
        regularizer=LpBall(1.33) if penalty == "lp" else L1(1.0),
        solver=solver,
        bank="lazy",
        cache_mb=args.cache_mb,
        tol=args.tol,
    )
    small = np.arange(0, n, max(1, n // 300))
    model.fit(X_train[small], y[train][small])  # compiles
    began = time.perf_counter()
    model.fit(X_train, y[train])
    seconds = time.perf_counter() - began
    peak = peak_mb()
    return {
        "seconds": seconds,
        "gap": model.gap_,
        "kind": model.gap_kind_,
        "solves": model.history_[-1].inner_solves,
        "support": len(model.support_),
        "peak_mb": peak,
        "above_data_mb": peak - before,
        "accuracy": model.score(X_test, y[test]),
        "held_out": len(y) - n >= 1000,
    }


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def measured(args: argparse.Namespace, name: str, n: int, case: str) -> dict:
    """`one_fit` in a process of its own, so that its peak memory is its own."""
    command = [sys.executable, __file__, "--child", name, case, str(n)]
    command += ["--C", str(args.C), "--cache-mb", str(args.cache_mb), "--tol", str(args.tol)]
    if args.data_dir:
        command += ["--data-dir", str(args.data_dir)]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return json.loads(out.splitlines()[-1])


def compare(args: argparse.Namespace, name: str, n: int) -> dict[str, dict]:
    results = {}
    for case in cases(args):
        r = results[case] = measured(args, name, n, case)
        where = "held out" if r["held_out"] else "on training rows"
        print(
            f"  {case:<16} {r['seconds']:8.1f} s  {r['solves']:3d} SVM solves  gap {r['gap']:.1e} "
            f"({r['kind']})  {r['support']} support vectors  peak {r['peak_mb']:.0f} MB "
            f"({r['above_data_mb']:.0f} above the data)  accuracy {r['accuracy']:.4f} {where}",
            flush=True,
        )
    for ours in ("sum p=1.33", "product l1"):
        for base in ("uniform sum", "uniform product"):
            if ours in results and base in results:
                ratio = results[ours]["seconds"] / results[base]["seconds"]
                print(f"  {ours}: {ratio:.2f} x {base}", flush=True)
    return results


def cases(args: argparse.Namespace) -> list[str]:
    return [case for case, (combination, _, _) in CASES.items() if combination in args.combinations]


def exponent(sizes: list[int], seconds: list[float]) -> float:
    """Slope of log time against log n."""
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_data_dir(parser)
    parser.add_argument("--parts", nargs="+", default=["adult", "cod_rna", "covertype"])
    parser.add_argument("--sizes", nargs="+", type=int, default=[10_000, 20_000, 50_000, 100_000])
    parser.add_argument("--combinations", nargs="+", default=["sum", "product"])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--C", type=float, default=1.0)
    parser.add_argument("--cache-mb", type=float, default=1000)
    parser.add_argument("--tol", type=float, default=1e-3)
    parser.add_argument("--child", nargs=3, metavar=("NAME", "CASE", "N"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    if args.child:
        args.name, args.case, args.n = args.child[0], args.child[1], int(args.child[2])
        print(json.dumps(one_fit(args)))
        return
    for name in args.parts:
        if name == "covertype":
            continue
        n = 5000 if args.quick else {"adult": 32_561, "cod_rna": 59_535}[name]
        print(f"\n{name}, n = {n}, tolerance {args.tol:g}")
        compare(args, name, n)
    if "covertype" in args.parts:
        sizes = [2000, 5000] if args.quick else args.sizes
        times: dict[str, list[float]] = {case: [] for case in cases(args)}
        for n in sizes:
            print(f"\ncovertype, n = {n}, tolerance {args.tol:g}")
            for case, r in compare(args, "covertype", n).items():
                times[case].append(r["seconds"])
        for case, seconds in times.items():
            print(f"  {case:<16} time grows as n^{exponent(sizes, seconds):.2f}")


if __name__ == "__main__":
    main()
