"""Many points and very many kernels: Table 2 of the MWUMKL paper; see mwu.py."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Any

from mwu_data import EPS, LARGE
from mwu_fit import Job, choose_C, fit_apart

PAPER_SECONDS = {"cod_rna": 147.0, "adult": 780.0, "sonar": 3.65 * 3600.0}
LARGE_METHODS = ["nystrom", "mwu hinge", "mwu", "mwu paper"]
GB = 1e3


def verdict(passed: bool, text: str) -> None:
    print(f"{'PASS' if passed else 'FAIL'}  {text}", flush=True)


def certificate(result: dict[str, Any]) -> str:
    """Rounds, gap and support vectors as cells of a table."""
    if "gap" not in result:
        return "- | - | -"
    return f"{result['rounds']:,} | {result['gap']:.1e} | {result['support']:,}"


def run_large(args: argparse.Namespace) -> None:
    """Cod-RNA and Adult with three kernels: accuracy beside Nystrom's, time beside the paper's."""
    n_train = 1500 if args.quick else None
    rows = 1000 if args.quick else args.rows
    print(f"\n## large: three kernels, C of {args.C} by {rows} training rows, tol {args.tol:g}")
    for name in args.large:
        eps, kernels = LARGE[name]
        print(f"\n{name}, eps {eps:g}: " + ", ".join(kernel.name for kernel in kernels))
        print(
            "| method | n | C | seconds | paper's time over it | test accuracy, % | rounds | gap "
            "| support vectors | memory above the data, MB | weights |"
        )
        print("|" + "---|" * 11)
        accuracy = {}
        for method in args.methods:
            job = Job(name, "three", method, eps=eps, tol=args.tol, n_train=n_train)
            job = replace(job, data_dir=args.data_dir, max_time=args.max_time, bank=args.bank)
            job = replace(job, C=choose_C(replace(job, max_time=60.0), args.C, rows))
            result = fit_apart(job)
            accuracy[method] = result["accuracy"]
            _show_large(job, result)
        print()
        for method in args.methods:
            if method != "nystrom" and "nystrom" in accuracy:
                behind = accuracy["nystrom"] - accuracy[method]
                verdict(behind <= 0.5, f"{name}: {method} is {behind:+.2f} points behind Nystrom")


def _show_large(job: Job, result: dict[str, Any]) -> None:
    whole = job.n_train is None and job.method != "nystrom"
    ratio = f"{PAPER_SECONDS[job.name] / result['seconds']:.1f}" if whole else "-"
    weights = " ".join(f"{w:.2f}" for w in result.get("weights", []))
    print(
        f"| {job.method} | {result['n']:,} | {job.C:g} | {result['seconds']:.1f} "
        f"| {ratio} | {result['accuracy']:.2f} "
        f"| {certificate(result)} | {result['above_mb']:.0f} | {weights} |",
        flush=True,
    )


def run_tolerances(args: argparse.Namespace) -> None:
    """Which gap is enough for the accuracy: the same fit, stopped earlier and later."""
    print("\n## tolerances: MWU, hinge, three kernels, C = 1")
    print("| data | n | tol | seconds | rounds | test accuracy, % |\n|---|---|---|---|---|---|")
    n_train = 1500 if args.quick else 20_000
    for name in args.large:
        for tol in (3e-1, 1e-1, 3e-2, 1e-2, 1e-3):
            job = Job(name, "three", "mwu hinge", tol=tol, eps=EPS[name], n_train=n_train)
            job = replace(job, data_dir=args.data_dir, max_time=args.max_time, bank=args.bank)
            result = fit_apart(job)
            print(
                f"| {name} | {result['n']:,} | {tol:g} | {result['seconds']:.1f} "
                f"| {result['rounds']:,} | {result['accuracy']:.2f} |",
                flush=True,
            )


def run_million(args: argparse.Namespace) -> None:
    """Sonar with a million kernels: time and memory."""
    m = 20_000 if args.quick else args.kernels
    print(f"\n## million: sonar, {m:,} kernels on one to five features, eps 0.2, C = 10")
    print(
        "| method | n | seconds | paper's time over it | rounds | gap | support vectors "
        "| kernels in use | memory above the data, MB | 4 m n, MB |"
    )
    print("|" + "---|" * 10)
    results = {}
    for method in args.million_methods:
        job = Job("sonar", "batch", method, C=10.0, m=m, data_dir=args.data_dir)
        result = results[method] = fit_apart(replace(job, max_time=args.max_time))
        state = 4e-6 * m * result["n"]
        ratio = f"{PAPER_SECONDS['sonar'] / result['seconds']:.1f}" if m == 1_000_000 else "-"
        print(
            f"| {method} | {result['n']} | {result['seconds']:.1f} | {ratio} "
            f"| {certificate(result)} | {result['used']:,} | {result['above_mb']:.0f} "
            f"| {state:.0f} |",
            flush=True,
        )
    print()
    for method, result in results.items():
        budget = 4e-6 * m * result["n"] + GB
        taken = result["above_mb"]
        verdict(result["seconds"] < 1800, f"{method}: {result['seconds'] / 60:.1f} minutes of 30")
        verdict(taken < budget, f"{method}: {taken:.0f} MB of 4 m n + 1 GB = {budget:.0f} MB")
