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

import itertools
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.papers.mwu_fit import (
    EPS,
    LARGE,
    METHODS,
    SMALL,
    Job,
    choose_C,
    fit_apart,
    load,
    make_model,
    per_feature_kernels,
    split,
)
from benchmarks.papers.mwu_step import run_omega, run_step
from benchmarks.part import read_options
from benchmarks.show import Table, new_figure, save, verdict
from benchmarks.timing import exponent, seconds_of

PAPER_SECONDS = {"cod_rna": 147.0, "adult": 780.0, "sonar": 3.65 * 3600.0}
LARGE_METHODS = ["nystrom", "mwu hinge", "mwu", "mwu paper"]
GB = 1e3


def certificate(result: dict[str, Any]) -> tuple[Any, Any, Any]:
    return result.get("rounds", "-"), result.get("gap", "-"), result.get("support", "-")


def run_large(args: Any) -> None:
    """Cod-RNA and Adult with three kernels: accuracy beside Nystrom's, time beside the paper's."""
    n_train = 1500 if args.quick else None
    rows = 1000 if args.quick else args.rows
    print(f"\n## large: three kernels, C of {args.C} by {rows} training rows, tol {args.tol:g}")
    heads = ["method", "n", "C", "seconds", "paper's time over it", "test accuracy, %", "rounds"]
    heads += ["gap", "support vectors", "memory above the data, MB", "weights"]
    for name in args.large:
        eps, kernels = LARGE[name]
        found = Table(f"{name}, eps {eps:g}: " + ", ".join(k.name for k in kernels), heads)
        accuracy = {}
        for method in args.methods:
            job = Job(name, "three", method, eps=eps, tol=args.tol, n_train=n_train)
            job = replace(job, data_dir=args.data_dir, max_time=args.max_time, bank=args.bank)
            job = replace(job, C=choose_C(replace(job, max_time=60.0), args.C, rows))
            result = fit_apart(job)
            accuracy[method] = result["accuracy"]
            whole = n_train is None and method != "nystrom"
            ratio = f"{PAPER_SECONDS[name] / result['seconds']:.1f}" if whole else "-"
            weights = " ".join(f"{w:.2f}" for w in result.get("weights", []))
            cells = [method, result["n"], job.C, result["seconds"], ratio, result["accuracy"]]
            found.row(*cells, *certificate(result), result["above_mb"], weights)
        print()
        for method in args.methods:
            if method != "nystrom" and "nystrom" in accuracy:
                behind = accuracy["nystrom"] - accuracy[method]
                verdict(behind <= 0.5, f"{name}: {method} is {behind:+.2f} points behind Nystrom")


def run_tolerances(args: Any) -> None:
    """Which gap is enough for the accuracy: the same fit, stopped earlier and later."""
    heads = ["data", "n", "tol", "seconds", "rounds", "test accuracy, %"]
    found = Table("## tolerances: MWU, hinge, three kernels, C = 1", heads)
    n_train = 1500 if args.quick else 20_000
    for name in args.large:
        for tol in (3e-1, 1e-1, 3e-2, 1e-2, 1e-3):
            job = Job(name, "three", "mwu hinge", tol=tol, eps=EPS[name], n_train=n_train)
            job = replace(job, data_dir=args.data_dir, max_time=args.max_time, bank=args.bank)
            result = fit_apart(job)
            cells = (result[key] for key in ("seconds", "rounds", "accuracy"))
            found.row(name, result["n"], tol, *cells)


def run_million(args: Any) -> None:
    m = 20_000 if args.quick else args.kernels
    heads = ["method", "n", "seconds", "paper's time over it", "rounds", "gap", "support vectors"]
    heads += ["kernels in use", "memory above the data, MB", "4 m n, MB"]
    title = f"## million: sonar, {m:,} kernels on one to five features, eps 0.2, C = 10"
    found = Table(title, heads)
    results = {}
    for method in args.million_methods:
        job = Job("sonar", "batch", method, C=10.0, m=m, data_dir=args.data_dir)
        result = results[method] = fit_apart(replace(job, max_time=args.max_time))
        state = 4e-6 * m * result["n"]
        ratio = f"{PAPER_SECONDS['sonar'] / result['seconds']:.1f}" if m == 1_000_000 else "-"
        cells = [method, result["n"], result["seconds"], ratio, *certificate(result)]
        found.row(*cells, result["used"], result["above_mb"], state)
    print()
    for method, result in results.items():
        budget = 4e-6 * m * result["n"] + GB
        taken = result["above_mb"]
        verdict(result["seconds"] < 1800, f"{method}: {result['seconds'] / 60:.1f} minutes of 30")
        verdict(taken < budget, f"{method}: {taken:.0f} MB of 4 m n + 1 GB = {budget:.0f} MB")


FIGURE4 = ("adult", "web", "cod_rna")
FIGURE4_METHODS = ["nystrom", "mwu", "mwu paper"]
SMALL_METHODS = ["mwu", "mwu hinge", "mwu paper", "nystrom", "uniform"]

# Of figure4: (data, method) -> training rows, accuracies and seconds.
Curves = dict[tuple[str, str], tuple[list[int], list[float], list[float]]]


def run_figure4(args: Any) -> None:
    """Test accuracy against the proportion of the training rows, twelve kernels."""
    proportions = [0.02, 0.04] if args.quick else args.proportions
    rows = 500 if args.quick else args.rows
    heads = ["data", "method", "C", "proportion", "n", "seconds", "test accuracy, %", "rounds"]
    title = f"## figure4: 12 kernels on all features, C of {args.C} by {rows} training rows"
    found = Table(title, [*heads, "gap", "support vectors"])
    curves: Curves = {}
    for name in args.figure4:
        y = load(name, args.data_dir)[1]
        whole = int(0.8 * len(y))
        for method in args.figure4_methods:
            job = Job(name, "twelve", method, eps=EPS[name], tol=args.tol, data_dir=args.data_dir)
            job = replace(job, bank=args.bank)
            job = replace(job, C=choose_C(replace(job, max_time=60.0), args.C, rows))
            curve = curves[name, method] = ([], [], [])
            for proportion in proportions:
                n = int(proportion * whole)
                result = fit_apart(replace(job, n_train=n, max_time=args.max_time))
                for values, key in zip(curve, ("n", "accuracy", "seconds"), strict=True):
                    values.append(result[key])
                cells = name, method, job.C, proportion, n, result["seconds"], result["accuracy"]
                found.row(*cells, *certificate(result))
    if args.figure:
        draw_figure(curves, args.figure)


def draw_figure(curves: Curves, path: str) -> None:
    """Accuracy above, time below, one column for each data set."""
    names = list(dict.fromkeys(name for name, _ in curves))
    titles = {"adult": "Adult", "web": "Web (w8a)", "cod_rna": "Cod-RNA"}
    labels = {
        "mwu": 'MWU, omega="auto"',
        "mwu hinge": 'MWU, omega="auto", hinge',
        "mwu paper": 'MWU, omega="paper"',
        "nystrom": "NystromMKLClassifier",
    }
    size = max(6.0, 3.8 * len(names)), 5.4
    fig, axes = new_figure(*size, 2, len(names), sharex="col")
    for (name, method), (n, accuracy, seconds) in curves.items():
        above, below = axes[:, names.index(name)]
        place = list(labels).index(method)
        look = {"marker": "soD^v"[place], "ms": 4, "color": f"C{place}", "label": labels[method]}
        above.plot(n, accuracy, **look)
        below.plot(n, seconds, **look)
        above.set(title=titles[name])
        below.set(xlabel="training rows", yscale="log")
    axes[0, 0].set_ylabel("test accuracy, %")
    axes[1, 0].set_ylabel("seconds")
    save(fig, path, axes[0, 0])


def run_small(args: Any) -> None:
    """Median misclassification over random splits, 12 kernels on each feature, best C for each."""
    splits = 2 if args.quick else args.splits
    names = args.small[-1:] if args.quick else args.small
    grid = [1.0] if args.quick else args.small_C
    found = Table(
        f"## small: misclassified test rows, %, median of {splits} splits at the best C of {grid} "
        "(chosen on the test rows, for every method alike, as in Figure 2), and the mean time of a "
        "fit",
        ["data", "n", "m", *SMALL_METHODS],
    )
    for name in names:
        X, y = load(name, args.data_dir)
        kernels = per_feature_kernels(X.shape[1])
        parts = [split(X, y, seed) for seed in range(splits)]
        cells = []
        for method in SMALL_METHODS:
            medians, seconds = [], 0.0
            for C in grid:
                job = Job(name, "features", method, C=C, tol=args.tol, max_time=args.small_time)
                errors = []
                for train, test, y_train, y_test in parts:
                    fit = make_model(job, kernels).fit
                    taken, model = seconds_of(lambda f=fit, X=train, y=y_train: f(X, y))
                    seconds += taken
                    errors.append(100.0 * (1.0 - model.score(test, y_test)))
                medians.append(float(np.median(errors)))
            best = int(np.argmin(medians))
            each = seconds / (len(grid) * splits)
            cells.append(f"{medians[best]:.1f} (C = {grid[best]:g}, {each:.2f} s)")
        found.row(name, len(y), len(kernels), *cells)


SAMPLES = [1625, 3250, 4875, 6500]
KERNELS = [168, 336, 672, 1344]
MUSHROOM_METHODS = ["mwu hinge", "mwu", "mwu paper", "nystrom", "plain liblinear+"]
# Bytes of a Nystrom feature: the number, and LIBLINEAR's copy with an index beside it.
_BYTES = 24.0

Times = dict[tuple[str, int, int], float]


def run_mushroom(args: Any) -> None:
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
    heads = ["method", "bank", "n", "m", "landmarks", "seconds", "test accuracy, %", "rounds"]
    found = Table("", [*heads, "gap", "memory above the data, MB"])
    times: Times = {}
    # Of those that were given up.
    bounds: Times = {}
    points = {(n, kernels[-1]) for n in samples}
    points |= {(n, m) for n in (samples[0], samples[-1]) for m in kernels}
    for method, bank in _contestants(args):
        for n, m in sorted(points, key=np.prod):
            found.row(method, bank, n, m, *_row(args, times, bounds, method, bank, n, m))
    _summary(times, samples, kernels)


def _contestants(args: Any) -> list[tuple[str, str]]:
    methods = [method for method in MUSHROOM_METHODS if method in args.mushroom_methods]
    ours = [method for method in methods if method.startswith("mwu")]
    return list(itertools.product(ours, args.banks)) + [
        (method, "-") for method in methods if method not in ours
    ]


def _row(
    args: Any, times: Times, bounds: Times, method: str, bank: str, n: int, m: int
) -> list[Any]:
    landmarks = 150
    if method == "plain liblinear+":
        landmarks = int(min(150, max(2, 1e9 * args.plain_gb / (_BYTES * n * m))))
    job = Job("mushroom", "features", method, m=m, n_train=n, n_components=landmarks)
    job = replace(job, data_dir=args.data_dir, bank="auto" if bank == "-" else bank, tol=args.tol)
    label = method if bank in ("-", "auto") else f"{method}, {bank}"
    shown = "-" if method.startswith("mwu") else landmarks
    plain = method == "plain liblinear+"
    guess = _expected({**times, **bounds}, label, n, m)
    if plain and guess > args.plain_time:
        return [shown, f"left out, over {guess:.0f}", *[""] * 4]
    result = fit_apart(job, 2.0 * args.plain_time if plain else None)
    if "more_than" in result:
        bounds[label, n, m] = result["more_than"]
        return [shown, f"over {result['more_than']:.0f}", *[""] * 4]
    times[label, n, m] = result["seconds"]
    told = result.get("rounds", "-"), result.get("gap", "-")
    return [shown, result["seconds"], result["accuracy"], *told, result["above_mb"]]


def _expected(times: Times, label: str, n: int, m: int) -> float:
    """Seconds if time grows in proportion to n and m, from what was measured; 0 if nothing was."""
    known = [seconds * (n / a) * (m / b) for (who, a, b), seconds in times.items() if who == label]
    return max(known, default=0.0)


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


def main() -> None:
    methods = list(METHODS)
    args = read_options(
        __doc__,
        parts=PARTS,
        tol=(1e-2, "duality gap of MWU"),
        max_time=(1800.0, "seconds for a fit of MWU"),
        C=([0.1, 1.0, 10.0], "grid"),
        rows=(5000, "training rows that choose C"),
        bank=("lazy", "of MWU in large, tolerances and figure4"),
        large=LARGE,
        methods=(LARGE_METHODS, "of large", methods),
        kernels=(1_000_000, "of million"),
        million_methods=(["mwu paper", "mwu hinge"], "of million", methods[:3]),
        mushroom_methods=(MUSHROOM_METHODS, "of mushroom", MUSHROOM_METHODS),
        banks=(["auto"], "of mushroom: auto, lazy"),
        plain_time=(300.0, "seconds of a plain fit"),
        plain_gb=(8.0, "see mushroom"),
        figure4=(["adult", "cod_rna"], "sets", FIGURE4),
        figure4_methods=(FIGURE4_METHODS, "of figure4", methods),
        proportions=[0.02, 0.05, 0.1, 0.25, 0.5, 1.0],
        figure=(None, "file: draw figure4"),
        small=(list(SMALL), "sets", SMALL),
        splits=(10, "of small; 30 in the paper"),
        small_C=[0.1, 1.0, 10.0, 100.0],
        small_time=(20.0, "seconds for a fit of small"),
        quick=(False, "tiny parts of everything"),
    )
    if args.quick:
        args.max_time = min(args.max_time, 10.0)
    for part in args.parts:
        PARTS[part](args)


if __name__ == "__main__":
    main()
