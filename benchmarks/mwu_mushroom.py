"""Growth with the numbers of samples and kernels, on mushroom; see mwu.py."""

from __future__ import annotations

import argparse
import itertools
from dataclasses import replace

import numpy as np
from mwu_fit import Job, fit_apart

SAMPLES = [1625, 3250, 4875, 6500]
KERNELS = [168, 336, 672, 1344]
METHODS = ["mwu hinge", "mwu", "mwu paper", "nystrom", "plain liblinear+"]
# Bytes of a Nystrom feature: the number, and LIBLINEAR's copy with an index beside it.
_BYTES = 24.0

Times = dict[tuple[str, int, int], float]


def run_mushroom(args: argparse.Namespace) -> None:
    """Twelve kernels on each of 112 binary features: time against n and against m."""
    samples, kernels = SAMPLES, KERNELS
    if args.quick:
        samples, kernels = [200, 400], [24, 48]
    print("\n## mushroom: 12 kernels on every binary feature (rank at most 2), C = 1, eps 0.2")
    print(
        "nystrom: ours, directions of eigenvalue zero left out. plain liblinear+: scikit-learn's "
        "Nystroem for each kernel and LinearSVC, as in the paper, with fewer landmarks where "
        f"the features would take more than {args.plain_gb:g} GB.\n"
    )
    print(
        "| method | bank | n | m | landmarks | seconds | test accuracy, % | rounds | gap "
        "| memory above the data, MB |"
    )
    print("|" + "---|" * 10)
    times: Times = {}
    # Of those that were given up.
    bounds: Times = {}
    points = {(n, kernels[-1]) for n in samples}
    points |= {(n, m) for n in (samples[0], samples[-1]) for m in kernels}
    for method, bank in _contestants(args):
        for n, m in sorted(points, key=np.prod):
            _row(args, times, bounds, method, bank, n, m)
    _summary(times, samples, kernels)


def _contestants(args: argparse.Namespace) -> list[tuple[str, str]]:
    methods = [method for method in METHODS if method in args.mushroom_methods]
    ours = [method for method in methods if method.startswith("mwu")]
    return list(itertools.product(ours, args.banks)) + [
        (method, "-") for method in methods if method not in ours
    ]


def _row(
    args: argparse.Namespace, times: Times, bounds: Times, method: str, bank: str, n: int, m: int
) -> None:
    landmarks = 150
    if method == "plain liblinear+":
        landmarks = int(min(150, max(2, 1e9 * args.plain_gb / (_BYTES * n * m))))
    job = Job("mushroom", "features", method, m=m, n_train=n, n_components=landmarks)
    job = replace(job, data_dir=args.data_dir, bank="auto" if bank == "-" else bank, tol=args.tol)
    label = method if bank in ("-", "auto") else f"{method}, {bank}"
    shown = "-" if method.startswith("mwu") else str(landmarks)
    cells = f"| {method} | {bank} | {n} | {m} | {shown} |"
    plain = method == "plain liblinear+"
    guess = _expected({**times, **bounds}, label, n, m)
    if plain and guess > args.plain_time:
        print(f"{cells} left out, over {guess:.0f} | | | | |", flush=True)
        return
    result = fit_apart(job, 2.0 * args.plain_time if plain else None)
    if "more_than" in result:
        bounds[label, n, m] = result["more_than"]
        print(f"{cells} over {result['more_than']:.0f} | | | | |", flush=True)
        return
    times[label, n, m] = result["seconds"]
    told = f"{result['rounds']:,} | {result['gap']:.1e}" if "gap" in result else "- | -"
    print(
        f"{cells} {result['seconds']:.2f} "
        f"| {result['accuracy']:.2f} | {told} | {result['above_mb']:.0f} |",
        flush=True,
    )


def _expected(times: Times, label: str, n: int, m: int) -> float:
    """Seconds if time grows in proportion to n and m, from what was measured; 0 if nothing was."""
    known = [seconds * (n / a) * (m / b) for (who, a, b), seconds in times.items() if who == label]
    return max(known, default=0.0)


def _summary(times: Times, samples: list[int], kernels: list[int]) -> None:
    labels = list(dict.fromkeys(label for label, _, _ in times))
    print("\nHow many times longer than the first they take, and how time grows:\n")
    corners = [(n, m) for n in (samples[0], samples[-1]) for m in kernels]
    heads = " | ".join(f"n = {n}, m = {m}" for n, m in corners)
    print(f"| method | n^ (m = {kernels[-1]}) | m^ (n = {samples[-1]}) | {heads} |")
    print("|" + "---|" * (3 + len(corners)))
    for label in labels:
        by_n = _slope([(n, times.get((label, n, kernels[-1]))) for n in samples])
        by_m = _slope([(m, times.get((label, samples[-1], m))) for m in kernels])
        ratios = []
        for n, m in corners:
            first, theirs = times.get((labels[0], n, m)), times.get((label, n, m))
            ratios.append(f"{theirs / first:.2f}" if first and theirs else "-")
        print(f"| {label} | {by_n} | {by_m} | {' | '.join(ratios)} |")


def _slope(points: list[tuple[int, float | None]]) -> str:
    known = [(size, seconds) for size, seconds in points if seconds]
    if len(known) < 2:
        return "-"
    return f"{np.polyfit(*np.log(known).T, 1)[0]:.2f}"
