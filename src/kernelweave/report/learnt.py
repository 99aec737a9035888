"""What every report needs of a fitted model: the estimator itself, and its weights in order."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from sklearn.exceptions import NotFittedError

from kernelweave.errors import InvalidInputError

__all__ = ["KernelWeight", "find_estimator", "rank_kernels"]


class KernelWeight(NamedTuple):
    """One kernel: its weight (the mean, if each class has its own) and that of each class."""

    name: str
    weight: float
    by_class: tuple[float, ...]


def find_estimator(model: Any) -> Any:
    """Return the fitted MKL estimator inside `model`: itself, a search's best, a pipeline's last.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> fitted = SimpleNamespace(weights_=[1.0], kernel_names_=["linear"])
    >>> find_estimator(SimpleNamespace(best_estimator_=fitted)) is fitted
    True
    """
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


def rank_kernels(model: Any) -> list[KernelWeight]:
    """Return the kernels with a non-zero weight, the heaviest first.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> model = SimpleNamespace(weights_=[0.25, 0.0, 0.75], kernel_names_=["a", "b", "c"])
    >>> [(kernel.name, kernel.weight) for kernel in rank_kernels(model)]
    [('c', 0.75), ('a', 0.25)]
    """
    estimator = find_estimator(model)
    rows = np.atleast_2d(np.asarray(estimator.weights_, dtype=float))
    mean = rows.mean(axis=0)
    # A stable sort keeps equal weights in the order in which the kernels were given.
    order = np.argsort(-mean, kind="stable")
    return [
        KernelWeight(str(estimator.kernel_names_[k]), float(mean[k]), tuple(rows[:, k].tolist()))
        for k in order
        if rows[:, k].any()
    ]
