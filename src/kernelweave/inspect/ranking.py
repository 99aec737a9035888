"""The fitted estimator inside a model, and its kernels in the order of their weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from sklearn.exceptions import NotFittedError

from kernelweave.arrays import Array, Index
from kernelweave.errors import InvalidInputError


class KernelWeight(NamedTuple):
    """One kernel and its weight: the mean, if each class has its own.

    Bayesian fits add the standard deviation of the weight.
    """

    name: str
    weight: float
    std: float | None = None


def find_estimator(model: Any) -> Any:
    """Return the fitted MKL estimator in `model`: itself, a search's best, a pipeline's last."""
    if hasattr(model, "weights_") and hasattr(model, "kernel_names_"):
        return model
    if hasattr(model, "best_estimator_"):
        return find_estimator(model.best_estimator_)
    if hasattr(model, "steps"):
        for _, step in reversed(model.steps):
            if hasattr(step, "weights_"):
                return find_estimator(step)
    if hasattr(model, "fit"):
        raise NotFittedError(f"{type(model).__name__} has no learnt weights yet; call fit first.")
    raise InvalidInputError(
        "a report needs a fitted MKL estimator, or a pipeline or search that ends in one; "
        f"got {type(model).__name__}."
    )


def reach(model: Any, X: Any) -> tuple[Any, Any]:
    """Return the estimator inside a search or pipeline, and samples as they get there."""
    if hasattr(model, "best_estimator_"):
        return reach(model.best_estimator_, X)
    if hasattr(model, "steps"):
        before = model[:-1]
        return reach(model.steps[-1][1], before.transform(X) if len(before) else X)
    return find_estimator(model), X


def is_bayesian(estimator: Any) -> bool:
    """Whether a fitted estimator has distributions of its weights and a lower bound."""
    return hasattr(estimator, "lower_bound_") and hasattr(estimator, "weights_std_")


class Ranking(NamedTuple):
    """All kernels of a fitted model, those with the heaviest weights (of either sign) first.

    `by_class` has the weights of each class, or one row if all share them, and `classes` their
    names, none if all share them. `weights` are the means over classes, `std` their standard
    deviations where there are any, `shares` the sizes over the sum of all sizes. `order` has all
    kernels, equal weights in the order given; `used` those of them that have a weight.
    """

    estimator: Any
    total: int
    by_class: Array
    classes: list[str]
    weights: Array
    std: Array | None
    shares: Array
    order: Index
    used: Index

    @classmethod
    def of(cls, model: Any) -> Ranking:
        """Read a fitted model."""
        estimator = find_estimator(model)
        by_class = np.atleast_2d(np.asarray(estimator.weights_, dtype=float))
        n_sets, total = by_class.shape
        std, classes = None, []
        if is_bayesian(estimator):
            # The fits of classes know nothing of each other.
            each = np.atleast_2d(np.asarray(estimator.weights_std_, dtype=float))
            std = np.sqrt((each**2).sum(axis=0)) / n_sets
        if n_sets > 1:
            known = getattr(estimator, "classes_", range(n_sets))
            several = np.ndim(known) > 1
            classes = [f"label {i}" if several else str(known[i]) for i in range(n_sets)]
        size = np.abs(by_class).mean(axis=0)
        shares = size / max(float(size.sum()), np.finfo(float).tiny)
        order = np.argsort(-size, kind="stable")
        used = order[: np.count_nonzero(size)]
        weights = by_class.mean(axis=0)
        return cls(estimator, total, by_class, classes, weights, std, shares, order, used)


def rank_kernels(model: Any) -> list[KernelWeight]:
    """Return the kernels with a non-zero weight, the heaviest first, whatever their sign."""
    found = Ranking.of(model)
    names, std = found.estimator.kernel_names_, found.std
    return [
        KernelWeight(str(names[k]), float(found.weights[k]), None if std is None else float(std[k]))
        for k in found.used
    ]


def lighter(weights: Any, signed: bool) -> tuple[float, float]:
    """Return from where to where a bar reaches that stands for several kernels together.

    It is the sum of their weights. Those that may be negative would cancel: of these it reaches
    from the smallest to the largest.
    """
    return (float(min(weights)), float(max(weights))) if signed else (0.0, float(sum(weights)))


def split_fits(history: Sequence[Any]) -> list[list[Any]]:
    """Split a history into its fits: one, or one per class when each has its own weights."""
    fits: list[list[Any]] = []
    for record in history:
        if not fits or record.iteration <= fits[-1][-1].iteration:
            fits.append([])
        fits[-1].append(record)
    return fits
