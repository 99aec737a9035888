"""BEMKL's experiments (Gönen 2012, section 6) beside the paper's numbers, and its speed.

    python -m benchmarks.papers.bemkl --data-dir DIR                             # everything
    python -m benchmarks.papers.bemkl --parts table1 --replications 2            # some of it
    python -m benchmarks.papers.bemkl --parts table1 sigma --figure bemkl.png    # with a figure
    python -m benchmarks.papers.bemkl --quick                                    # smaller

table1   Table 1: eight UCI sets, 13 (d + 1) kernels of the SimpleMKL family, unit diagonal, both
         presets, 70/30 splits, features standardised on the training rows, 200 iterations.
         "Seconds" are those of `fit`, kernels included; the paper's are without kernels. Selected
         are kernels whose weight is above 0.1 per cent of the largest; the paper has a number of
         selected kernels, but not its rule, so that those above 1 per cent are counted as well.
views    Several classes, one kernel for each view. Proteins are the paper's Table 2; the views at
         hand are the twelve representations reduced to 27 columns each, not the paper's kernels:
         Gaussians of median width, exp(-d^2 / median(d)^2), the 311/383 split. Flowers are its
         Table 3; the seven distance matrices are chi2 distances between histograms recomputed from
         the images, exp(-D / mean D); random splits of 60/20 images a class. Digits, UCI's multiple
         features in six views, are not in the paper: Gaussians, 500 random training rows.
speed    200 iterations on the breast cancer set against a plain NumPy transcription, m = 5,000 and
         n = 3,000, each against the limit that BLAS sets; see bemkl_speed.py.
sigma    the standard deviation of the intermediate outputs: 1 in the paper, 0.1 in the author's
         later code. Mean accuracies of all that this run measured, side by side.
"""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import log_loss
from sklearn.metrics.pairwise import additive_chi2_kernel
from sklearn.model_selection import StratifiedShuffleSplit

from benchmarks.data import available, load_set
from benchmarks.papers.bemkl_data import ITERATIONS, NEVER, TABLE1, load_table1, split_table1
from benchmarks.papers.bemkl_speed import run_speed
from benchmarks.papers.tables import (
    PUBLISHED,
    Measures,
    Scores,
    beside,
    over_splits,
    scored_fit,
    spread_beside,
)
from benchmarks.part import run_parts
from benchmarks.problems import Array, kernels_of_views
from benchmarks.show import Table, new_figure, save, spread
from kernelweave import BayesianMKLClassifier, MKLClassifier, sample_ids
from kernelweave.bayes import selected_kernels
from kernelweave.kernels import Distance

PRESETS = ("sparse", "dense")
VIEWS = {"protein": "protein_fold", "digits": "mfeat", "flowers": "flowers17"}
# Of table1 and views, by set, preset or way with classes, and sigma_g: of "sigma" and the figure.
scores: dict[tuple[str, str, float], Scores] = {}


def bemkl(kernels: Any, seed: int, **options: Any) -> BayesianMKLClassifier:
    settings = {"max_iter": ITERATIONS, "tol": NEVER, "random_state": seed}
    return BayesianMKLClassifier(kernels, **settings, **options)


def table1(args: Any) -> None:
    heads = ["data", "n", "m", "preset", "sigma_g", "seconds", "of these iterations"]
    heads += ["test accuracy, %", "log loss", "kernels selected", "weight above 1 %"]
    title = f"{args.replications} splits, {ITERATIONS} iterations; paper's in brackets"
    found = Table(f"## table1: {title}", heads)
    for name, (X, y) in available(args.sets, args.data_dir, load_table1):
        paper = TABLE1[name]
        for preset in PRESETS:
            seconds, accuracy, deviation, kernels = paper.get(preset, [None] * 4)
            for sigma_g in args.sigma_g:
                splits = ((i, *split_table1(X, y, paper["n"], i)) for i in range(args.replications))
                measure = partial(measure_table1, preset, sigma_g)
                own = scores[name, preset, sigma_g] = over_splits(splits, {"": measure})[""]
                found.row(
                    *(name, paper["n"], int(own["m"][0]), preset, sigma_g),
                    beside(own["seconds"], seconds),
                    np.mean(own["iterating"]),
                    spread_beside(own["accuracy"], accuracy and (accuracy, deviation)),
                    np.mean(own["log loss"]),
                    beside(own["selected"], kernels),
                    np.mean(own["heavy"]),
                )


def measure_table1(preset: str, sigma_g: float, split: Any) -> Measures:
    number, _, test, _, y_test = split
    model = bemkl("simplemkl", number, sparsity=preset, sigma_g=sigma_g)
    found = scored_fit(model, split[1:])
    weights = np.abs(model.weights_)
    found["m"], found["iterating"] = len(weights), model.history_[-1].seconds
    found["log loss"] = float(log_loss(y_test, model.predict_proba(test)))
    found["selected"] = len(selected_kernels(weights))
    found["heavy"] = int(np.count_nonzero(weights > 0.01 * weights.max()))
    return found


def splits_of_views(name: str, data: Any, data_dir: Any, count: int) -> list[Any]:
    """Number, kernels, and what `scored_fit` takes, of every split."""
    if name == "protein":
        is_train = np.load(Path(data_dir or "") / "protein_fold_12views_27d.npz")["is_train"]
        rows = [(np.flatnonzero(is_train), np.flatnonzero(~is_train))]
    else:
        if name == "flowers":
            count, size = min(count, 3), 60 * len(np.unique(data.y))
        else:
            size = 500
        chooser = StratifiedShuffleSplit(count, train_size=size, random_state=0)
        rows = list(chooser.split(data.y, data.y))
    if name == "flowers":
        given = [Distance(chi2(view), name=key) for key, view in sorted(data.X.items())]
    splits = []
    for number, (train, test) in enumerate(rows):
        if name == "flowers":
            X, kernels = sample_ids(len(data.y)), given
        else:
            # exp(-d^2 / median^2): the width of a Gaussian stands in exp(-d^2 / (2 width^2)).
            X, kernels = kernels_of_views(data.X, train, (0.5**0.5,))
        splits.append((number, kernels, (X[train], X[test], data.y[train], data.y[test])))
    return splits


def chi2(counts: Array) -> Array:
    share = counts / counts.sum(axis=1, keepdims=True)
    D = -additive_chi2_kernel(share)
    return np.maximum(0.5 * (D + D.T), 0.0)


def views(args: Any) -> None:
    heads = ["data", "n", "T", "m", "method", "sigma_g", "test accuracy, %", "paper", "seconds"]
    title = f"## views: one kernel a view, dense preset, {ITERATIONS} iterations"
    found = Table(title, heads)

    def mean_kernel(C: float, split: Any) -> Measures:
        return scored_fit(MKLClassifier(split[1], solver="uniform", C=C), split[2])

    def learnt(multi_class: str, sigma_g: float, split: Any) -> Measures:
        number, kernels, parts = split
        model = bemkl(kernels, number, multi_class=multi_class, sigma_g=sigma_g)
        return scored_fit(model, parts)

    read = lambda name, folder: load_set(VIEWS[name], folder)  # noqa: E731
    for name, data in available(args.views, args.data_dir, read):
        splits = splits_of_views(name, data, args.data_dir, args.splits)
        told = PUBLISHED["bemkl"]["views"].get(name, {})
        C = 100.0 if name == "flowers" else 10.0
        fits = {(f"mean kernel, SVM, C = {C:g}", "-", "-"): partial(mean_kernel, C)}
        for way in ("ovr", "shared"):
            for sigma_g in args.sigma_g:
                key = f"BEMKL, {way}", sigma_g, told.get(way, "-")
                fits[key] = partial(learnt, way, sigma_g)
        head = name, len(splits[0][2][2]), len(np.unique(data.y)), len(splits[0][1])
        for key, fit in fits.items():
            own = over_splits(splits, {"": fit})[""]
            method, sigma_g, theirs = key
            if sigma_g != "-":
                scores[name, method.split()[-1], float(sigma_g)] = own
            accuracy, seconds = spread(own["accuracy"]), float(np.mean(own["seconds"]))
            found.row(*head, method, sigma_g, accuracy, theirs, seconds)


def sigma(args: Any) -> None:
    """For each value of sigma_g, mean scores over sets; only sets measured with all values."""
    sigma_table("## sigma: test accuracy, %, by sigma_g, of what this run measured", "accuracy")
    if any("log loss" in own for own in scores.values()):
        sigma_table("log loss of the probabilities (lower is better)", "log loss")


def sigma_table(title: str, what: str) -> None:
    digits, best = (2, max) if what == "accuracy" else (3, min)
    means = {key: float(np.mean(own[what])) for key, own in scores.items() if what in own}
    values = sorted({key[2] for key in means}, reverse=True)
    kinds = sorted({key[:2] for key in means}, key=lambda kind: (kind[1], kind[0]))
    complete = [kind for kind in kinds if all((*kind, value) in means for value in values)]
    if len(values) < 2 or not complete:
        print("nothing to compare: run it with the parts table1 or views and two --sigma-g.")
        return
    found = Table(title, ["data", "fit", *values, "better"])
    rows = [(*kind, [kind]) for kind in complete]
    for fit in sorted({kind[1] for kind in complete}):
        own = [kind for kind in complete if kind[1] == fit]
        rows.append((f"mean of {len(own)}", fit, own))
    for name, fit, own in rows:
        cells = [float(np.mean([means[(*kind, value)] for kind in own])) for value in values]
        first = [value for value, mean in zip(values, cells, strict=True) if mean == best(cells)]
        better = f"{first[0]:g}" if len(first) == 1 else "equal"
        found.row(name, fit, *(f"{mean:.{digits}f}" for mean in cells), better)


def draw_figure(path: str) -> None:
    """Test accuracy of each set of Table 1 and preset, beside the paper's, with its spread."""
    names = [name for name in TABLE1 if any(key[0] == name for key in scores)]
    if not names:
        print("no figure: it shows the part table1")
        return
    values = sorted({key[2] for key in scores if key[0] in names}, reverse=True)
    shape = {"sharex": True, "sharey": True}
    fig, [axes] = new_figure(9.0, 0.55 * len(names) + 1.8, 1, 2, **shape)
    step = 0.7 / (len(values) + 1)
    for ax, preset in zip(axes, PRESETS, strict=True):
        # Of each line the rows it has, with mean and deviation.
        lines: dict[str, Any] = {"paper": {}}
        lines |= {rf"kernelweave, $\sigma_g$ = {value:g}": {} for value in values}
        for row, name in enumerate(names):
            if preset in TABLE1[name]:
                lines["paper"][row] = TABLE1[name][preset][1:3]
            for value, line in zip(values, list(lines.values())[1:], strict=True):
                if (name, preset, value) in scores:
                    accuracy = scores[name, preset, value]["accuracy"]
                    line[row] = np.mean(accuracy), np.std(accuracy)
        for place, (label, moments) in enumerate(lines.items()):
            mean, std = np.reshape(list(moments.values()), (-1, 2)).T
            look = {"color": "0.35" if place == 0 else f"C{place - 1}", "ms": 5, "capsize": 2}
            look["fmt"] = "s" if place == 0 else "o"
            heights = np.array(list(moments)) + step * (place - 0.5 * (len(lines) - 1))
            ax.errorbar(mean, heights, xerr=std, label=label, **look)
        ax.grid(visible=False, axis="y")
        for row in range(len(names) - 1):
            ax.axhline(row + 0.5, color="0.9", lw=0.8, zorder=0)
        ax.set(title=f"{preset} preset", xlabel="test accuracy, %")
        ax.set_yticks(range(len(names)), names)
    axes[0].invert_yaxis()
    save(fig, path, axes[0])


def main() -> None:
    args = run_parts(
        __doc__,
        {"table1": table1, "views": views, "speed": run_speed, "sigma": sigma},
        quick={
            "replications": 2,
            "splits": 1,
            "sets": ["liver", "heart", "wpbc"],
            "views": ["protein", "digits"],
            "speed_part": 0.25,
        },
        replications=(20, "splits of table1"),
        splits=(10, "of views; flowers has at most 3"),
        sigma_g=[1.0, 0.1],
        sets=(list(TABLE1), "of table1", TABLE1),
        views=(list(VIEWS), "of views", VIEWS),
        speed_part=(1.0, "of the sizes of speed; a tenth of its iterations if not whole"),
        figure=(None, "file: draw the accuracies of table1"),
    )
    if args.figure:
        draw_figure(args.figure)


if __name__ == "__main__":
    main()
