"""Accuracies: Figures 2 and 4 of the MWUMKL paper; see mwu.py."""

from __future__ import annotations

import argparse
import time
from dataclasses import replace

import numpy as np
from mwu_data import EPS, load, per_feature_kernels, split
from mwu_fit import Job, choose_C, fit_apart, make_model
from mwu_large import certificate

FIGURE4 = ("adult", "web", "cod_rna")
FIGURE4_METHODS = ["nystrom", "mwu", "mwu paper"]
SMALL_METHODS = ["mwu", "mwu hinge", "mwu paper", "nystrom", "uniform"]

# Of figure4: (data, method) -> training rows, accuracies and seconds.
Curves = dict[tuple[str, str], tuple[list[int], list[float], list[float]]]


def run_figure4(args: argparse.Namespace) -> None:
    """Test accuracy against the proportion of the training rows, twelve kernels."""
    proportions = [0.02, 0.04] if args.quick else args.proportions
    rows = 500 if args.quick else args.rows
    print(f"\n## figure4: 12 kernels on all features, C of {args.C} by {rows} training rows")
    print(
        "| data | method | C | proportion | n | seconds | test accuracy, % | rounds | gap "
        "| support vectors |"
    )
    print("|" + "---|" * 10)
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
                print(
                    f"| {name} | {method} | {job.C:g} | {proportion:g} | {n:,} "
                    f"| {result['seconds']:.1f} | {result['accuracy']:.2f} "
                    f"| {certificate(result)} |",
                    flush=True,
                )
    if args.figure:
        draw_figure(curves, args.figure)


def draw_figure(curves: Curves, path: str) -> None:
    """Accuracy above, time below, one column for each data set."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    names = list(dict.fromkeys(name for name, _ in curves))
    titles = {"adult": "Adult", "web": "Web (w8a)", "cod_rna": "Cod-RNA"}
    labels = {
        "mwu": 'MWU, omega="auto"',
        "mwu hinge": 'MWU, omega="auto", hinge',
        "mwu paper": 'MWU, omega="paper"',
        "nystrom": "NystromMKLClassifier",
    }
    fig, axes = plt.subplots(
        2, len(names), figsize=(max(6.0, 3.8 * len(names)), 5.4), sharex="col", squeeze=False
    )
    for column, name in enumerate(names):
        above, below = axes[0, column], axes[1, column]
        for who, method in curves:
            if who == name:
                n, accuracy, seconds = curves[who, method]
                look = {"marker": "soD^v"[list(labels).index(method)], "ms": 4}
                look["color"] = f"C{list(labels).index(method)}"
                above.plot(n, accuracy, label=labels[method], **look)
                below.plot(n, seconds, **look)
        above.set(title=titles[name])
        below.set(xlabel="training rows", yscale="log")
        for ax in (above, below):
            ax.grid(alpha=0.3)
    axes[0, 0].set_ylabel("test accuracy, %")
    axes[1, 0].set_ylabel("seconds")
    handles, texts = axes[0, 0].get_legend_handles_labels()
    fig.tight_layout(rect=(0, 0.1, 1, 1))
    fig.legend(handles, texts, loc="lower center", ncols=2, frameon=False)
    fig.savefig(path, dpi=150)
    print(f"\nfigure: {path}")


def run_small(args: argparse.Namespace) -> None:
    """Median misclassification over random splits, 12 kernels on each feature, best C for each."""
    splits = 2 if args.quick else args.splits
    names = args.small[-1:] if args.quick else args.small
    grid = [1.0] if args.quick else args.small_C
    print(
        f"\n## small: misclassified test rows, %, median of {splits} splits at the best C of "
        f"{grid} (chosen on the test rows, for every method alike, as in Figure 2), and the mean "
        "time of a fit"
    )
    print("| data | n | m | " + " | ".join(SMALL_METHODS) + " |")
    print("|" + "---|" * (3 + len(SMALL_METHODS)))
    for name in names:
        X, y = load(name, args.data_dir)
        kernels = per_feature_kernels(X.shape[1])
        cells = []
        for method in SMALL_METHODS:
            medians = []
            began = time.perf_counter()
            for C in grid:
                job = Job(name, "features", method, C=C, tol=args.tol, max_time=args.small_time)
                errors = []
                for seed in range(splits):
                    train, test, y_train, y_test = split(X, y, seed)
                    model = make_model(job, kernels).fit(train, y_train)
                    errors.append(100.0 * (1.0 - model.score(test, y_test)))
                medians.append(float(np.median(errors)))
            best = int(np.argmin(medians))
            each = (time.perf_counter() - began) / (len(grid) * splits)
            cells.append(f"{medians[best]:.1f} (C = {grid[best]:g}, {each:.2f} s)")
        print(f"| {name} | {len(y)} | {len(kernels)} | " + " | ".join(cells) + " |", flush=True)
