"""Part `views` of ``benchmarks/bemkl.py``: several classes, one kernel for each view.

protein   the paper's Table 2. The views at hand are the twelve representations reduced to 27
          columns each, not the paper's kernels: Gaussians of median width, the 311/383 split.
digits    UCI's multiple features, six views; not in the paper. Gaussians of median width, random
          splits with 500 training rows.
flowers   the paper's Table 3. The seven distance matrices are chi2 distances between histograms
          recomputed from the images, exp(-D / mean D); random splits of 60/20 images a class.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from bemkl_data import ITERATIONS, NEVER, Accuracies, spread
from sklearn.datasets import fetch_openml
from sklearn.metrics import pairwise_distances
from sklearn.metrics.pairwise import additive_chi2_kernel
from sklearn.model_selection import StratifiedShuffleSplit
from sklearn.preprocessing import StandardScaler

from kernelweave import BayesianMKLClassifier, MKLClassifier, sample_ids
from kernelweave.kernels import RBF, Distance, Kernel

Array = np.ndarray
Split = tuple[Array, Array]

VIEWS = ("protein", "digits", "flowers")
# Accuracy, per cent: Tables 2 and 3.
PUBLISHED = {
    ("protein", "ovr"): "71.5 ± 0.1",
    ("protein", "shared"): "71.2 ± 0.2",
    ("flowers", "ovr"): "85.6 ± 1.2",
    ("flowers", "shared"): "85.9 ± 1.2",
}
DIGITS = {"fac": "factors", "fou": "fourier", "kar": "karhunen"} | {
    "mor": "morphological",
    "pix": "pixel",
    "zer": "zernike",
}


@dataclass(frozen=True)
class Views:
    """Samples with several views.

    Attributes
    ----------
    X : ndarray
        Columns of all views, or sample ids.
    y : ndarray
    splits : list of (train, test)
        Row numbers.
    kernels : callable
        From the training rows to one kernel for each view.
    C : float
        For the support vector machine on the mean kernel.
    """

    X: Array
    y: Array
    splits: list[Split]
    kernels: Callable[[Array], list[Kernel]]
    C: float


def load_views(name: str, data_dir: Path | str | None, count: int) -> Views | None:
    """Return a set with `count` splits, or None if it cannot be had."""
    files = {
        "protein": "protein_fold_12views_27d.npz",
        "flowers": "flowers17_views_recomputed.npz",
        "digits": "mfeat.npz",
    }
    file = Path(data_dir or "") / files[name]
    if data_dir and file.exists():
        held = dict(np.load(file))
        y = held.pop("y")
    elif name == "digits":
        held, y = _fetch_digits()
    else:
        print(f"\n{name}: needs {files[name]} in --data-dir; left out.")
        return None
    if name == "protein":
        is_train = held.pop("is_train")
        split = (np.flatnonzero(is_train), np.flatnonzero(~is_train))
        return Views(*_gaussians(held, y, [split]), 10.0)
    if name == "digits":
        return Views(*_gaussians(held, y, _random_splits(y, count, 500)), 10.0)
    kernels: list[Kernel] = [Distance(_chi2(held[view]), name=view[2:]) for view in sorted(held)]
    splits = _random_splits(y, min(count, 3), 60 * len(np.unique(y)))
    return Views(sample_ids(len(y)), y, splits, lambda train: kernels, 100.0)


def _fetch_digits() -> tuple[dict[str, Array], Array]:
    bunches = {
        key: fetch_openml(f"mfeat-{title}", version=1, as_frame=False)
        for key, title in DIGITS.items()
    }
    return {key: bunch.data for key, bunch in bunches.items()}, bunches["fac"].target


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


def run_views(args: argparse.Namespace, accuracies: Accuracies) -> None:
    print(f"\n## views: one kernel a view, dense preset, {ITERATIONS} iterations")
    print("| data | n | T | m | method | sigma_g | test accuracy, % | paper | seconds |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name in args.views:
        data = load_views(name, args.data_dir, args.splits)
        if data is None:
            continue
        kernels = [data.kernels(train) for train, _ in data.splits]
        row = f"| {name} | {len(data.splits[0][0])} | {len(np.unique(data.y))} | {len(kernels[0])}"
        models = [MKLClassifier(own, solver="uniform", C=data.C) for own in kernels]
        score, seconds = _fits(data, models)
        label = f"mean kernel, SVM, C = {data.C:g}"
        print(f"{row} | {label} | - | {spread(score)} | - | {seconds:.2f} |", flush=True)
        for multi_class in ("ovr", "shared"):
            for sigma_g in args.sigma_g:
                models = [
                    BayesianMKLClassifier(
                        own,
                        multi_class=multi_class,
                        sigma_g=sigma_g,
                        max_iter=ITERATIONS,
                        tol=NEVER,
                        random_state=split,
                    )
                    for split, own in enumerate(kernels)
                ]
                score, seconds = _fits(data, models)
                accuracies[name, multi_class, sigma_g] = score
                paper = PUBLISHED.get((name, multi_class), "-")
                print(
                    f"{row} | BEMKL, {multi_class} | {sigma_g:g} | {spread(score)} | {paper} "
                    f"| {seconds:.2f} |",
                    flush=True,
                )


def _fits(data: Views, models: list[Any]) -> tuple[list[float], float]:
    """Test accuracy of each split, per cent, and the mean seconds of a fit."""
    score, seconds = [], []
    for model, (train, test) in zip(models, data.splits, strict=True):
        began = time.perf_counter()
        model.fit(data.X[train], data.y[train])
        seconds.append(time.perf_counter() - began)
        score.append(100.0 * model.score(data.X[test], data.y[test]))
    return score, float(np.mean(seconds))
