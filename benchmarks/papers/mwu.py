"""MWUMKL's experiments (Moeller et al. 2014, section 5) beside the paper's numbers.

    python -m benchmarks.papers.mwu --data-dir DIR                              # everything
    python -m benchmarks.papers.mwu --parts large million                       # some of it
    python -m benchmarks.papers.mwu --parts figure4 --figure mwu_figure4.png    # with a figure
    python -m benchmarks.papers.mwu --parts million --kernels 100000            # smaller
    python -m benchmarks.papers.mwu --quick                                     # a look at all

large       Table 2: Cod-RNA and Adult with 3 kernels, 80 per cent of the rows for training: time
            beside the paper's, accuracy beside `NystromMKLClassifier` on the same kernels.
tolerances  the same at several tolerances: which one is enough for the accuracy.
million     Table 2: sonar with a million Gaussian kernels, time and memory.
mushroom    Figure 5: 12 kernels on each of 112 binary features, time against n and m.
figure4     Figure 4: accuracy against the proportion of the training rows, 12 kernels.
small       Figure 2: median misclassification on eight small sets, 12 kernels on each feature.
step        one round against reading and writing the m x n state, on every kind of bank.
omega       what the target does: max_k q_k over the certified optimum.

Methods: "mwu" has omega="auto" and ends at the gap --tol, "mwu hinge" the same with the 1-norm soft
margin, "mwu paper" makes the T rounds of algorithm 4 with the paper's eps; "nystrom" is
`NystromMKLClassifier` with 150 landmarks. All but "mwu hinge" have the squared hinge loss. Where C
is chosen, every method tries the same grid on the same 80 and 20 per cent of --rows training rows.
Fits are timed one by one, each in a process of its own after a small one that compiles (the
shortest of three if it takes less than 5 seconds); memory is the peak above that before the fit.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from benchmarks.data import available
from benchmarks.papers.mwu_fit import (
    EPS,
    METHODS,
    SMALL,
    THREE,
    Job,
    choose_C,
    fit_apart,
    load,
    make_model,
    per_feature_kernels,
    split,
)
from benchmarks.papers.mwu_step import run_omega, run_step
from benchmarks.papers.tables import PUBLISHED, over_splits, scored_fit
from benchmarks.part import run_parts
from benchmarks.show import Table, new_figure, save, verdict
from benchmarks.timing import exponent

# Head of a column -> what of a result is in it.
COLUMNS = {
    "n": "n",
    "seconds": "seconds",
    "paper's time over it": "ratio",
    "test accuracy, %": "accuracy",
    "rounds": "rounds",
    "gap": "gap",
    "support vectors": "support",
    "kernels in use": "used",
    "memory above the data, MB": "above_mb",
    "weights": "weights",
}
# What comes before the columns of a row, and what is fitted.
Case = tuple[tuple[Any, ...], Job]
Results = list[tuple[Job, dict[str, Any]]]


def run_cases(title: str, heads: list[str], columns: list[str], cases: Iterable[Case]) -> Results:
    """Fit one after the other, each in a process of its own; print a row of each."""
    found = Table(title, [*heads, *columns])
    results = []
    for head, job in cases:
        result = fit_apart(job)
        whole = job.n_train is None and job.m in (None, 1_000_000)
        if whole and job.method != "nystrom":
            result["ratio"] = f"{PUBLISHED['mwu']['seconds'][job.name] / result['seconds']:.1f}"
        found.row(*head, *(result.get(COLUMNS[column], "-") for column in columns))
        results.append((job, result))
    return results


def with_C(args: Any, job: Job) -> Job:
    job = replace(job, data_dir=args.data_dir, bank=args.bank, max_time=args.max_time)
    return replace(job, C=choose_C(job, args.C, args.rows))


def run_large(args: Any) -> None:
    """Cod-RNA and Adult with three kernels: accuracy beside Nystrom's, time beside the paper's."""
    print(
        f"\n## large: three kernels, C of {args.C} by {args.rows} training rows, tol {args.tol:g}"
    )
    for name in args.large:
        title = f"{name}, eps {EPS[name]:g}: " + ", ".join(k.name for k in THREE[name])
        settings = {"eps": EPS[name], "tol": args.tol, "n_train": args.n_train or None}
        jobs = (with_C(args, Job(name, "three", method, **settings)) for method in args.methods)
        columns = [column for column in COLUMNS if column != "kernels in use"]
        cases = (((job.method, job.C), job) for job in jobs)
        results = run_cases(title, ["method", "C"], columns, cases)
        accuracy = {job.method: result["accuracy"] for job, result in results}
        print()
        for method in set(accuracy) - {"nystrom"} if "nystrom" in accuracy else ():
            behind = accuracy["nystrom"] - accuracy[method]
            verdict(behind <= 0.5, f"{name}: {method} is {behind:+.2f} points behind Nystrom")


def run_tolerances(args: Any) -> None:
    """Which gap is enough for the accuracy: the same fit, stopped earlier and later."""
    shared = {"data_dir": args.data_dir, "max_time": args.max_time, "bank": args.bank}
    shared["n_train"] = args.n_train or 20_000
    jobs = (
        Job(name, "three", "mwu hinge", tol=tol, eps=EPS[name], **shared)
        for name in args.large
        for tol in (3e-1, 1e-1, 3e-2, 1e-2, 1e-3)
    )
    title = "## tolerances: MWU, hinge, three kernels, C = 1"
    columns = ["n", "seconds", "rounds", "test accuracy, %"]
    run_cases(title, ["data", "tol"], columns, (((job.name, job.tol), job) for job in jobs))


def run_million(args: Any) -> None:
    m = args.kernels
    title = f"## million: sonar, {m:,} kernels on one to five features, eps 0.2, C = 10"
    shared = {"C": 10.0, "m": m, "data_dir": args.data_dir, "max_time": args.max_time}
    jobs = (Job("sonar", "batch", method, **shared) for method in args.million_methods)
    columns = [column for column in COLUMNS if column not in ("test accuracy, %", "weights")]
    results = run_cases(title, ["method"], columns, (((job.method,), job) for job in jobs))
    print()
    for job, result in results:
        budget = 4e-6 * m * result["n"] + 1e3
        minutes, taken = result["seconds"] / 60, result["above_mb"]
        verdict(minutes < 30, f"{job.method}: {minutes:.1f} minutes of 30")
        verdict(taken < budget, f"{job.method}: {taken:.0f} MB of 4 m n + 1 GB = {budget:.0f} MB")


FIGURE4 = ("adult", "web", "cod_rna")


def run_figure4(args: Any) -> None:
    """Test accuracy against the proportion of the training rows, twelve kernels."""

    def cases() -> Iterator[Case]:
        for name, (_, y) in available(args.figure4, args.data_dir, load):
            for method in args.figure4_methods:
                job = with_C(args, Job(name, "twelve", method, eps=EPS[name], tol=args.tol))
                for proportion in args.proportions:
                    n = int(proportion * int(0.8 * len(y)))
                    yield (name, method, job.C, proportion), replace(job, n_train=n)

    title = f"## figure4: 12 kernels on all features, C of {args.C} by {args.rows} training rows"
    columns = ["n", "seconds", "test accuracy, %", "rounds", "gap", "support vectors"]
    results = run_cases(title, ["data", "method", "C", "proportion"], columns, cases())
    if args.figure:
        draw_figure(results, args.figure)


def draw_figure(results: Results, path: str) -> None:
    """Accuracy above, time below, one column for each data set."""
    titles = {"adult": "Adult", "web": "Web (w8a)", "cod_rna": "Cod-RNA"}
    labels = {
        "mwu": 'MWU, omega="auto"',
        "mwu hinge": 'MWU, omega="auto", hinge',
        "mwu paper": 'MWU, omega="paper"',
        "nystrom": "NystromMKLClassifier",
    }
    curves: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for job, result in results:
        curves.setdefault((job.name, job.method), []).append(result)
    names = list(dict.fromkeys(name for name, _ in curves))
    fig, axes = new_figure(max(6.0, 3.8 * len(names)), 5.4, 2, len(names), sharex="col")
    for (name, method), own in curves.items():
        above, below = axes[:, names.index(name)]
        place = list(labels).index(method)
        look = {"marker": "soD^v"[place], "ms": 4, "color": f"C{place}", "label": labels[method]}
        for ax, what in ((above, "accuracy"), (below, "seconds")):
            ax.plot([result["n"] for result in own], [result[what] for result in own], **look)
        above.set(title=titles[name])
        below.set(xlabel="training rows", yscale="log")
    axes[0, 0].set_ylabel("test accuracy, %")
    axes[1, 0].set_ylabel("seconds")
    save(fig, path, axes[0, 0])


SMALL_METHODS = ["mwu", "mwu hinge", "mwu paper", "nystrom", "uniform"]


def run_small(args: Any) -> None:
    """Median misclassification over random splits, 12 kernels on each feature, best C for each."""
    grid = args.small_C
    found = Table(
        f"## small: misclassified test rows, %, median of {args.splits} splits at the best C of "
        f"{grid} (chosen on the test rows, for every method alike, as in Figure 2), and the mean "
        "time of a fit",
        ["data", "n", "m", *SMALL_METHODS],
    )
    for name, (X, y) in available(args.small, args.data_dir, load):
        kernels = per_feature_kernels(X.shape[1])
        jobs = [
            Job(name, "features", method, C=C, tol=args.tol, max_time=args.small_time)
            for method in SMALL_METHODS
            for C in grid
        ]
        fits = {(job.method, job.C): partial(scored_fit, make_model(job, kernels)) for job in jobs}
        scores = over_splits((split(X, y, seed) for seed in range(args.splits)), fits)
        cells = []
        for method in SMALL_METHODS:
            errors = [100.0 - np.median(scores[method, C]["accuracy"]) for C in grid]
            each = np.mean([scores[method, C]["seconds"] for C in grid])
            best = int(np.argmin(errors))
            cells.append(f"{errors[best]:.1f} (C = {grid[best]:g}, {each:.2f} s)")
        found.row(name, len(y), len(kernels), *cells)


MUSHROOM_METHODS = ["mwu hinge", "mwu", "mwu paper", "nystrom", "plain liblinear+"]
# Bytes of a Nystrom feature: the number, and LIBLINEAR's copy with an index beside it.
_BYTES = 24.0

# (method, n, m) -> seconds.
Times = dict[tuple[str, int, int], float]


def run_mushroom(args: Any) -> None:
    """Twelve kernels on each of 112 binary features: time against n and against m."""
    samples, kernels = args.mushroom_n, args.mushroom_m
    print("\n## mushroom: 12 kernels on every binary feature (rank at most 2), C = 1, eps 0.2")
    print(
        "nystrom: ours, directions of eigenvalue zero left out. plain liblinear+: scikit-learn's "
        "Nystroem for each kernel and LinearSVC, as in the paper, with fewer landmarks where "
        f"the features would take more than {args.plain_gb:g} GB.\n"
    )
    columns = ["seconds", "test accuracy, %", "rounds", "gap", "memory above the data, MB"]
    found = Table("", ["method", "bank", "n", "m", "landmarks", *columns])
    times: Times = {}
    points = {(n, kernels[-1]) for n in samples}
    points |= {(n, m) for n in (samples[0], samples[-1]) for m in kernels}
    for method in args.mushroom_methods:
        ours, plain = method.startswith("mwu"), method == "plain liblinear+"
        patience = args.plain_time if plain else None
        for bank in args.banks if ours else ["auto"]:
            label, late = method if bank == "auto" else f"{method}, {bank}", False
            for n, m in sorted(points, key=np.prod):
                landmarks = 150
                if plain:
                    landmarks = int(min(150, max(2, 1e9 * args.plain_gb / (_BYTES * n * m))))
                settings = {"m": m, "n_train": n, "n_components": landmarks, "bank": bank}
                job = Job("mushroom", "features", method, tol=args.tol, **settings)
                job = replace(job, data_dir=args.data_dir)
                head = label, bank if ours else "-", n, m, "-" if ours else landmarks
                # What takes more than that is not tried with more rows and kernels.
                result = {} if late else fit_apart(job, patience)
                if "seconds" in result:
                    times[label, n, m] = result["seconds"]
                    found.row(*head, *(result.get(COLUMNS[column], "-") for column in columns))
                else:
                    late = True
                    found.row(*head, f"over {patience:g}", *[""] * 4)
    _summary(times, samples, kernels)


def _summary(times: Times, samples: list[int], kernels: list[int]) -> None:
    labels = list(dict.fromkeys(label for label, _, _ in times))
    corners = [(n, m) for n in (samples[0], samples[-1]) for m in kernels]
    heads = ["method", f"n^ (m = {kernels[-1]})", f"m^ (n = {samples[-1]})"]
    heads += [f"n = {n}, m = {m}" for n, m in corners]
    found = Table("How many times longer than the first they take, and how time grows:", heads)
    for label in labels:
        by_n = _slope([(n, times.get((label, n, kernels[-1]))) for n in samples])
        by_m = _slope([(m, times.get((label, samples[-1], m))) for m in kernels])
        ratios = []
        for corner in corners:
            first, theirs = times.get((labels[0], *corner)), times.get((label, *corner))
            ratios.append(f"{theirs / first:.2f}" if first and theirs else "-")
        found.row(label, by_n, by_m, *ratios)


def _slope(points: list[tuple[int, float | None]]) -> str:
    known = [(size, seconds) for size, seconds in points if seconds]
    return "-" if len(known) < 2 else f"{exponent(*zip(*known, strict=True)):.2f}"


PARTS = {
    "large": run_large,
    "tolerances": run_tolerances,
    "million": run_million,
    "mushroom": run_mushroom,
    "figure4": run_figure4,
    "small": run_small,
    "step": run_step,
    "omega": run_omega,
}
QUICK = {"max_time": 10.0, "n_train": 1500, "rows": 500, "kernels": 20_000, "splits": 2}
QUICK |= {"proportions": [0.02, 0.04], "small": ["wpbc"], "small_C": [1.0], "step_repeats": 5}
QUICK |= {
    "mushroom_n": [200, 400],
    "mushroom_m": [24, 48],
    "omega_parts": [0.5],
    "omega_eps": [0.3],
}
QUICK |= {"step_part": 0.1}


def main() -> None:
    methods = list(METHODS)
    run_parts(
        __doc__,
        PARTS,
        quick=QUICK,
        tol=(1e-2, "duality gap of MWU"),
        max_time=(1800.0, "seconds for a fit of MWU"),
        C=([0.1, 1.0, 10.0], "grid"),
        rows=(5000, "training rows that choose C"),
        n_train=(0, "training rows of large and tolerances (0: all, and 20,000)"),
        bank=("lazy", "of MWU in large, tolerances and figure4"),
        large=THREE,
        methods=(["nystrom", "mwu hinge", "mwu", "mwu paper"], "of large", methods),
        kernels=(1_000_000, "of million"),
        million_methods=(["mwu paper", "mwu hinge"], "of million", methods[:3]),
        mushroom_methods=(MUSHROOM_METHODS, "of mushroom", MUSHROOM_METHODS),
        mushroom_n=[1625, 3250, 4875, 6500],
        mushroom_m=[168, 336, 672, 1344],
        banks=(["auto"], "of mushroom: auto, lazy"),
        plain_time=(300.0, "seconds of a plain fit, after which no larger one is tried"),
        plain_gb=(8.0, "see mushroom"),
        figure4=(["adult", "cod_rna"], "sets", FIGURE4),
        figure4_methods=(["nystrom", "mwu", "mwu paper"], "of figure4", methods),
        proportions=[0.02, 0.05, 0.1, 0.25, 0.5, 1.0],
        figure=(None, "file: draw figure4"),
        small=(list(SMALL), "sets", SMALL),
        splits=(10, "of small; 30 in the paper"),
        small_C=[0.1, 1.0, 10.0, 100.0],
        small_time=(20.0, "seconds for a fit of small"),
        omega_eps=[0.3, 0.1],
        step_part=(1.0, "of the sizes of step"),
        step_repeats=60,
        omega_parts=([0.1, 0.5, 1.0], "of 1/q*, of omega"),
    )


if __name__ == "__main__":
    main()
