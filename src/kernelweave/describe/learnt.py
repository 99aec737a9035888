"""What every report needs of a fitted model: the estimator itself, and its weights in order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import NotFittedError

from kernelweave.errors import InvalidInputError

__all__ = [
    "KernelWeight",
    "find_estimator",
    "is_bayesian",
    "objective_of",
    "rank_kernels",
    "split_fits",
]


class KernelWeight(NamedTuple):
    """One kernel: its weight (the mean, if each class has its own) and that of each class.

    `place` is where it stands among the kernels of the model. Bayesian fits add the standard
    deviation of the weight.
    """

    name: str
    weight: float
    by_class: tuple[float, ...]
    place: int
    std: float | None = None


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


def objective_of(estimator: Any) -> str:
    """Return what the objective of a convex fit is the objective of, if not of the targets given.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> objective_of(SimpleNamespace(target_scale="standardize"))
    'of the standardised targets'
    >>> objective_of(SimpleNamespace())
    ''
    """
    standardised = getattr(estimator, "target_scale", None) is not None
    return "of the standardised targets" if standardised else ""


def is_bayesian(estimator: Any) -> bool:
    """Whether a fitted estimator has distributions of its weights and a lower bound.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> is_bayesian(SimpleNamespace(weights_=[1.0], weights_std_=[0.1], lower_bound_=-3.0))
    True
    """
    return hasattr(estimator, "lower_bound_") and hasattr(estimator, "weights_std_")


def rank_kernels(model: Any) -> list[KernelWeight]:
    """Return the kernels with a non-zero weight, the heaviest first, whatever their sign.

    Where every class has weights of its own, the mean of their sizes decides.

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
    std = _std_of_mean(estimator)
    # A stable sort keeps equal weights in the order in which the kernels were given.
    order = np.argsort(-np.abs(rows).mean(axis=0), kind="stable")
    return [
        KernelWeight(
            str(estimator.kernel_names_[k]),
            float(mean[k]),
            tuple(rows[:, k].tolist()),
            int(k),
            None if std is None else float(std[k]),
        )
        for k in order
        if rows[:, k].any()
    ]


def _std_of_mean(estimator: Any) -> NDArray[np.float64] | None:
    """Standard deviation of the mean over classes, whose fits know nothing of each other."""
    if not is_bayesian(estimator):
        return None
    std = np.atleast_2d(np.asarray(estimator.weights_std_, dtype=float))
    return np.sqrt((std**2).sum(axis=0)) / len(std)


def split_fits(history: Sequence[Any]) -> list[list[Any]]:
    """Split a history into its fits: one, or one per class when each has its own weights.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> history = [SimpleNamespace(iteration=i) for i in (0, 1, 2, 0, 1)]
    >>> [len(records) for records in split_fits(history)]
    [3, 2]
    """
    fits: list[list[Any]] = []
    for record in history:
        if not fits or record.iteration <= fits[-1][-1].iteration:
            fits.append([])
        fits[-1].append(record)
    return fits
