"""Part `views` of bemkl.py: several classes, one kernel for each view.

protein   the paper's Table 2. The views at hand are the twelve representations reduced to 27
          columns each, not the paper's kernels: Gaussians of median width, the 311/383 split.
digits    UCI's multiple features, six views; not in the paper. Gaussians of median width, random
          splits with 500 training rows.
flowers   the paper's Table 3. The seven distance matrices are chi2 distances between histograms
          recomputed from the images, exp(-D / mean D); random splits of 60/20 images a class.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.metrics import pairwise_distances
from sklearn.metrics.pairwise import additive_chi2_kernel
from sklearn.model_selection import StratifiedShuffleSplit
from sklearn.preprocessing import StandardScaler

from benchmarks.data import MissingDataError, load_set
from benchmarks.papers.bemkl_data import ITERATIONS, NEVER, Accuracies
from benchmarks.show import Table, spread
from benchmarks.timing import seconds_of
from kernelweave import BayesianMKLClassifier, MKLClassifier, sample_ids
from kernelweave.kernels import RBF, Distance, Kernel

Array = np.ndarray
Split = tuple[Array, Array]

VIEWS = {"protein": "protein_fold", "digits": "mfeat", "flowers": "flowers17"}
# Accuracy, per cent: Tables 2 and 3.
PUBLISHED = {
    ("protein", "ovr"): "71.5 ± 0.1",
    ("protein", "shared"): "71.2 ± 0.2",
    ("flowers", "ovr"): "85.6 ± 1.2",
    ("flowers", "shared"): "85.9 ± 1.2",
}


class Views(NamedTuple):
    """Samples with several views: columns of all views or sample ids, classes, splits."""

    X: Array
    y: Array
    splits: list[Split]
    # From the training rows to one kernel for each view.
    kernels: Callable[[Array], list[Kernel]]
    # For the support vector machine on the mean kernel.
    C: float


def load_views(name: str, data_dir: Path | None, count: int) -> Views | None:
    try:
        data = load_set(VIEWS[name], data_dir)
    except MissingDataError as error:
        print(f"\nleft out: {error}")
        return None
    views, y = data.X, data.y
    if name == "protein":
        is_train = np.load(Path(data_dir or "") / "protein_fold_12views_27d.npz")["is_train"]
        split = np.flatnonzero(is_train), np.flatnonzero(~is_train)
        return Views(*_gaussians(views, y, [split]), 10.0)
    if name == "digits":
        return Views(*_gaussians(views, y, _random_splits(y, count, 500)), 10.0)
    kernels: list[Kernel] = [Distance(_chi2(views[view]), name=view) for view in sorted(views)]
    splits = _random_splits(y, min(count, 3), 60 * len(np.unique(y)))
    return Views(sample_ids(len(y)), y, splits, lambda train: kernels, 100.0)


def _gaussians(
    views: dict[str, Array], y: Array, splits: list[Split]
) -> tuple[Array, Array, list[Split], Callable[[Array], list[Kernel]]]:
    """Columns of all views, and Gaussians of median width: exp(-d^2 / median(d)^2).

    Columns are standardised on the training rows.
    """
    names = sorted(views)
    blocks = [np.asarray(views[name], dtype=float) for name in names]
    ends = np.cumsum([block.shape[1] for block in blocks])
    X = np.column_stack(blocks)

    def kernels(train: Array) -> list[Kernel]:
        out: list[Kernel] = []
        for name, end, block in zip(names, ends, blocks, strict=True):
            distances = pairwise_distances(StandardScaler().fit_transform(block[train]))
            median = np.median(distances[np.triu_indices(len(train), 1)])
            gaussian = RBF(gamma=float(median) ** -2, name=name)
            out.append(gaussian.on(list(range(end - block.shape[1], end)), StandardScaler()))
        return out

    return X, y, splits, kernels


def _chi2(counts: Array) -> Array:
    share = counts / counts.sum(axis=1, keepdims=True)
    D = -additive_chi2_kernel(share)
    return np.maximum(0.5 * (D + D.T), 0.0)


def _random_splits(y: Array, count: int, train_size: int) -> list[Split]:
    chooser = StratifiedShuffleSplit(count, train_size=train_size, random_state=0)
    return list(chooser.split(y, y))


def run_views(args: Any, accuracies: Accuracies) -> None:
    heads = ["data", "n", "T", "m", "method", "sigma_g", "test accuracy, %", "paper", "seconds"]
    title = f"## views: one kernel a view, dense preset, {ITERATIONS} iterations"
    found = Table(title, heads)
    for name in args.views:
        data = load_views(name, args.data_dir, args.splits)
        if data is None:
            continue
        kernels = [data.kernels(train) for train, _ in data.splits]
        head = name, len(data.splits[0][0]), len(np.unique(data.y)), len(kernels[0])
        models: list[Any] = [MKLClassifier(own, solver="uniform", C=data.C) for own in kernels]
        score, seconds = _fits(data, models)
        found.row(*head, f"mean kernel, SVM, C = {data.C:g}", "-", spread(score), "-", seconds)
        for multi_class in ("ovr", "shared"):
            for sigma_g in args.sigma_g:
                settings = {"multi_class": multi_class, "sigma_g": sigma_g, "tol": NEVER}
                models = [
                    BayesianMKLClassifier(own, max_iter=ITERATIONS, random_state=split, **settings)
                    for split, own in enumerate(kernels)
                ]
                score, seconds = _fits(data, models)
                accuracies[name, multi_class, sigma_g] = score
                told = f"BEMKL, {multi_class}", sigma_g, spread(score)
                found.row(*head, *told, PUBLISHED.get((name, multi_class), "-"), seconds)


def _fits(data: Views, models: list[Any]) -> tuple[list[float], float]:
    """Test accuracy of each split, per cent, and the mean seconds of a fit."""
    score, seconds = [], []
    for model, (train, test) in zip(models, data.splits, strict=True):
        X, y = data.X[train], data.y[train]
        seconds.append(seconds_of(lambda m=model, X=X, y=y: m.fit(X, y))[0])
        score.append(100.0 * model.score(data.X[test], data.y[test]))
    return score, float(np.mean(seconds))
