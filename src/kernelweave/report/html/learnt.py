"""The kernels of a model in the order of their weights, as many as a report lists."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelweave.describe.kernel_info import KernelInfo, describe_kernels
from kernelweave.describe.learnt import find_estimator, is_bayesian
from kernelweave.errors import InvalidInputError

__all__ = ["Learnt"]

Floats = NDArray[np.float64]

# So many kernels are listed unless more are asked for; the file stays below 3 MB.
_MOST = 5000


@dataclass(frozen=True, eq=False)
class Learnt:
    """What was learnt of the kernels.

    Attributes
    ----------
    estimator : fitted estimator
    order : ndarray of int
        The kernels that are listed, the heaviest first.
    weights : ndarray of shape (m,)
        Of all kernels; the mean, if each class has its own.
    by_class : ndarray of shape (n_sets, m)
        The weights of each class; one row if all share them.
    std : ndarray of shape (m,) or None
        Standard deviations of `weights`, where there are any.
    n_used : int
        How many kernels have a weight other than zero.
    infos : list of KernelInfo
        Of the kernels that are listed.
    """

    estimator: Any
    order: NDArray[np.int64]
    weights: Floats
    by_class: Floats
    std: Floats | None
    n_used: int
    infos: list[KernelInfo]

    @classmethod
    def of(cls, model: Any, max_kernels: int | None = None) -> Learnt:
        """Read a fitted model.

        All kernels are listed; of more than `max_kernels` those with most weight, none without.

        Examples
        --------
        >>> from kernelweave import MKLClassifier
        >>> model = MKLClassifier().fit([[0.0], [1.0], [2.0], [3.0]], [0, 0, 1, 1])
        >>> learnt = Learnt.of(model, 3)
        >>> len(learnt.infos), learnt.total, learnt.left_out
        (2, 7, 5)
        """
        estimator = find_estimator(model)
        by_class = np.atleast_2d(np.asarray(estimator.weights_, dtype=float))
        size = np.abs(by_class).mean(axis=0)
        used = int(np.count_nonzero(size))
        most = _MOST if max_kernels is None else max_kernels
        # Of very many kernels those without a weight are not worth a line.
        room = len(size) if len(size) <= most else max(1, min(used, most))
        order = np.argsort(-size, kind="stable")[:room]
        std = None
        if is_bayesian(estimator):
            own = np.atleast_2d(np.asarray(estimator.weights_std_, dtype=float))
            # The fits of classes know nothing of each other.
            std = np.sqrt((own**2).sum(axis=0)) / len(own)
        infos = describe_kernels(estimator, order)
        return cls(estimator, order, by_class.mean(axis=0), by_class, std, used, infos)

    @property
    def total(self) -> int:
        """How many kernels the model was given."""
        return len(self.weights)

    @property
    def left_out(self) -> int:
        """How many kernels are not listed."""
        return self.total - len(self.order)

    @property
    def shares(self) -> Floats:
        """Size of each weight over the sum of all sizes, shape (m,)."""
        size = np.abs(self.by_class).mean(axis=0)
        return size / max(float(size.sum()), np.finfo(float).tiny)

    @property
    def classes(self) -> list[str]:
        """Names of the classes that have weights of their own; none if all share them."""
        if len(self.by_class) < 2:
            return []
        known = getattr(self.estimator, "classes_", range(len(self.by_class)))
        if np.ndim(known) > 1:
            return [f"label {i}" for i in range(len(self.by_class))]
        return [str(label) for label in known]


def check_max_kernels(value: Any) -> int | None:
    """Return the most kernels to list, or raise if it is no number of them."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise InvalidInputError(f"max_kernels must be None or an integer >= 1; got {value!r}.")
    return int(value)
