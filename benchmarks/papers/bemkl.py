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
views    Tables 2 and 3: protein folds and flowers from substitutes for the paper's kernels, and
         handwritten digits; see bemkl_views.py.
speed    200 iterations on the breast cancer set against a plain NumPy transcription, m = 5,000 and
         n = 3,000, each against the limit that BLAS sets; see bemkl_speed.py.
sigma    the standard deviation of the intermediate outputs: 1 in the paper, 0.1 in the author's
         later code. Mean accuracies of all that this run measured, side by side.
"""

from typing import Any

import numpy as np
from sklearn.metrics import log_loss

from benchmarks.papers.bemkl_data import (
    ITERATIONS,
    NEVER,
    TABLE1,
    Accuracies,
    load_table1,
    split_table1,
)
from benchmarks.papers.bemkl_speed import run_speed
from benchmarks.papers.bemkl_views import VIEWS, run_views
from benchmarks.part import read_options
from benchmarks.show import Table, new_figure, save, spread
from benchmarks.timing import seconds_of
from kernelweave import BayesianMKLClassifier
from kernelweave.bayes import selected_kernels

PRESETS = ("sparse", "dense")
# Of table1, by set, preset and sigma_g, as its accuracies are.
log_losses: Accuracies = {}


def table1(args: Any, accuracies: Accuracies) -> None:
    heads = ["data", "n", "m", "preset", "sigma_g", "seconds", "of these iterations"]
    heads += ["test accuracy, %", "log loss", "kernels selected", "weight above 1 %"]
    title = f"{args.replications} splits, {ITERATIONS} iterations; paper's in brackets"
    found = Table(f"## table1: {title}", heads)
    for name in args.sets:
        X, y = load_table1(name, args.data_dir)
        for preset in PRESETS:
            for sigma_g in args.sigma_g:
                key = name, preset, sigma_g
                found.row(*_table1_row(args.replications, accuracies, X, y, key))


def _table1_row(replications: int, accuracies: Accuracies, X: Any, y: Any, key: Any) -> list[Any]:
    name, preset, sigma_g = key
    paper = TABLE1[name]
    rows = []
    for replication in range(replications):
        train, test, y_train, y_test = split_table1(X, y, paper.n, replication)
        settings = {"sigma_g": sigma_g, "max_iter": ITERATIONS, "random_state": replication}
        model = BayesianMKLClassifier("simplemkl", sparsity=preset, tol=NEVER, **settings)
        seconds, _ = seconds_of(lambda m=model, X=train, y=y_train: m.fit(X, y))
        loss = float(log_loss(y_test, model.predict_proba(test)))
        weights = np.abs(model.weights_)
        heavy = np.count_nonzero(weights > 0.01 * weights.max())
        times = seconds, model.history_[-1].seconds
        kept = len(selected_kernels(weights)), heavy
        rows.append((*times, 100.0 * model.score(test, y_test), loss, *kept))
    seconds, iterating, accuracies[key], log_losses[key], selected, heavy = map(
        list, zip(*rows, strict=True)
    )
    told = getattr(paper, preset)
    theirs = ["-", "-", "-"]
    if told is not None:
        theirs = [f"{told.seconds:.1f}", f"{told.accuracy:.2f} ± {told.deviation:.2f}"]
        theirs.append(f"{told.kernels:.1f}")
    return [
        *(name, paper.n, len(model.weights_), preset, sigma_g),
        f"{np.mean(seconds):.2f} ({theirs[0]})",
        np.mean(iterating),
        f"{spread(accuracies[key])} ({theirs[1]})",
        np.mean(log_losses[key]),
        f"{np.mean(selected):.1f} ({theirs[2]})",
        np.mean(heavy),
    ]


def sigma(args: Any, accuracies: Accuracies) -> None:
    """For each value of sigma_g, mean scores over sets; only sets measured with all values."""
    title = "## sigma: test accuracy, %, by sigma_g, of what this run measured"
    _sigma_table(title, accuracies, 2, max)
    if log_losses:
        _sigma_table("log loss of the probabilities (lower is better)", log_losses, 3, min)


def _sigma_table(title: str, scores: Accuracies, digits: int, best: Any) -> None:
    values = sorted({key[2] for key in scores}, reverse=True)
    kinds = sorted({key[:2] for key in scores}, key=lambda kind: (kind[1], kind[0]))
    complete = [kind for kind in kinds if all((*kind, value) in scores for value in values)]
    if len(values) < 2 or not complete:
        print("nothing to compare: run it with the parts table1 or views and two --sigma-g.")
        return
    found = Table(title, ["data", "fit", *values, "better"])
    rows = [(*kind, [kind]) for kind in complete]
    for fit in sorted({kind[1] for kind in complete}):
        own = [kind for kind in complete if kind[1] == fit]
        rows.append((f"mean of {len(own)}", fit, own))
    for name, fit, own in rows:
        means = [float(np.mean([np.mean(scores[(*k, value)]) for k in own])) for value in values]
        first = [value for value, mean in zip(values, means, strict=True) if mean == best(means)]
        better = f"{first[0]:g}" if len(first) == 1 else "equal"
        found.row(name, fit, *(f"{mean:.{digits}f}" for mean in means), better)


def draw_figure(accuracies: Accuracies, path: str) -> None:
    """Test accuracy of each set of Table 1 and preset, beside the paper's, with its spread."""
    names = [name for name in TABLE1 if any(key[0] == name for key in accuracies)]
    if not names:
        print("no figure: it shows the part table1")
        return
    values = sorted({key[2] for key in accuracies if key[0] in names}, reverse=True)
    shape = {"sharex": True, "sharey": True}
    fig, [axes] = new_figure(9.0, 0.55 * len(names) + 1.8, 1, 2, **shape)
    rows = np.arange(len(names))
    step = 0.7 / (len(values) + 1)
    for ax, preset in zip(axes, PRESETS, strict=True):
        published = {row: getattr(TABLE1[name], preset) for row, name in enumerate(names)}
        lines = {"paper": {row: own[1:3] for row, own in published.items() if own is not None}}
        for value in values:
            scores = {row: accuracies.get((name, preset, value)) for row, name in enumerate(names)}
            lines[rf"kernelweave, $\sigma_g$ = {value:g}"] = {
                row: (np.mean(own), np.std(own)) for row, own in scores.items() if own
            }
        for place, (label, moments) in enumerate(lines.items()):
            mean, std = np.reshape(list(moments.values()), (-1, 2)).T
            look = {"color": "0.35" if place == 0 else f"C{place - 1}", "ms": 5, "capsize": 2}
            heights = np.array(list(moments)) + step * (place - 0.5 * (len(lines) - 1))
            look["fmt"] = "s" if place == 0 else "o"
            ax.errorbar(mean, heights, xerr=std, label=label, **look)
        ax.grid(visible=False, axis="y")
        for row in rows[:-1]:
            ax.axhline(row + 0.5, color="0.9", lw=0.8, zorder=0)
        ax.set(title=f"{preset} preset", xlabel="test accuracy, %")
        ax.set_yticks(rows, names)
    axes[0].invert_yaxis()
    save(fig, path, axes[0])


def main() -> None:
    parts = {"table1": table1, "views": run_views, "speed": run_speed, "sigma": sigma}
    args = read_options(
        __doc__,
        parts=parts,
        replications=(20, "splits of table1"),
        splits=(10, "of views; flowers has at most 3"),
        sigma_g=[1.0, 0.1],
        sets=(list(TABLE1), "of table1", TABLE1),
        views=(list(VIEWS), "of views", VIEWS),
        figure=(None, "file: draw the accuracies of table1"),
        quick=(False, "2 splits, 3 sets, small speed cases"),
    )
    if args.quick:
        args.replications, args.splits = 2, 1
        args.sets = [name for name in args.sets if name in ("liver", "heart", "wpbc")]
        args.views = [name for name in args.views if name != "flowers"]
    accuracies: Accuracies = {}
    # The summary comes last, whatever the order asked for.
    for part in sorted(set(args.parts), key=list(parts).index):
        parts[part](args, accuracies)
    if args.figure:
        draw_figure(accuracies, args.figure)


if __name__ == "__main__":
    main()
