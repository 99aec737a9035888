"""The samples that a Bayesian classifier is not sure about, as a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelweave.problem import Array
from kernelweave.report.forecast import check_sure, forecast

__all__ = ["Doubts", "doubtful"]

_LISTED = 20


@dataclass(frozen=True, repr=False, eq=False)
class Doubts:
    """Samples whose class is in doubt, the most doubtful first.

    Attributes
    ----------
    rows : ndarray of int
        Where they are among the samples asked about, counted from 0.
    labels : ndarray
        What they are called.
    predicted, runner_up : ndarray
        The most likely class of each, and the second most likely.
    probability : ndarray
        Of the predicted class.
    mean, std : ndarray
        Decision value and its standard deviation: of the second of two classes, else of the
        predicted one.
    entropy : ndarray
        Of the probabilities, in bits: 0 if sure, 1 for a coin, log2 of the number of classes for
        no idea.
    n_asked : int
        How many samples were asked about.
    sure : float
        The probability from which they would have been sure.

    Examples
    --------
    >>> one = np.array
    >>> Doubts(one([3]), one(["Ann"]), one(["ill"]), one(["well"]), one([0.55]), one([0.1]),
    ...        one([1.2]), one([0.99]), 40, 0.8)
    1 of 40 samples in doubt (no class has probability 0.8)
      sample  predicted  probability  or else   mean   std  entropy
      Ann     ill               0.55  well     +0.10  1.20     0.99
    """

    rows: NDArray[np.intp]
    labels: NDArray[Any]
    predicted: NDArray[Any]
    runner_up: NDArray[Any]
    probability: Array
    mean: Array
    std: Array
    entropy: Array
    n_asked: int
    sure: float

    def __len__(self) -> int:
        return len(self.rows)

    def to_frame(self) -> Any:
        """Return a pandas DataFrame with one row for each sample, named by its label."""
        try:
            import pandas as pd
        except ImportError as error:
            raise ImportError(
                "to_frame needs pandas: pip install pandas. The same numbers are in rows, labels, "
                "predicted, runner_up, probability, mean, std and entropy."
            ) from error
        names = ("predicted", "probability", "runner_up", "mean", "std", "entropy")
        index = pd.Index(self.labels, name="sample")
        return pd.DataFrame({name: getattr(self, name) for name in names}, index=index)

    def __repr__(self) -> str:
        title = (
            f"{len(self)} of {self.n_asked} samples in doubt (no class has probability "
            f"{self.sure:g})"
        )
        if not len(self):
            return title
        texts = [
            [str(x) for x in part[:_LISTED]]
            for part in (self.labels, self.predicted, self.runner_up)
        ]
        heads = ("sample", "predicted", "or else")
        wide = [max(map(len, [head, *text])) for head, text in zip(heads, texts, strict=True)]
        lines = [
            title,
            f"  {heads[0]:<{wide[0]}}  {heads[1]:<{wide[1]}}  probability  {heads[2]:<{wide[2]}}"
            "   mean   std  entropy",
        ]
        for i, (label, first, second) in enumerate(zip(*texts, strict=True)):
            lines.append(
                f"  {label:<{wide[0]}}  {first:<{wide[1]}}  {self.probability[i]:11.2f}  "
                f"{second:<{wide[2]}}  {self.mean[i]:+5.2f}  {self.std[i]:4.2f}  "
                f"{self.entropy[i]:7.2f}"
            )
        left = len(self) - _LISTED
        return "\n".join([*lines, f"  {left} more"] if left > 0 else lines)


def doubtful(
    model: Any,
    X: Any,
    *,
    sure: float = 0.8,
    target: Any = None,
    names: Sequence[Any] | None = None,
) -> Doubts:
    """Return the samples whose class a Bayesian classifier is not sure about.

    A sample is in doubt if no class has at least the probability `sure`.

    Parameters
    ----------
    model : BayesianMKLClassifier, or a pipeline or search that ends in one
        Fitted.
    X : array, frame or sequence
        Samples, as for `predict`.
    sure : float, default=0.8
        Probability of the predicted class from which it is sure, between 0.5 and 1.
    target : class label, or number of a column of y, optional
        This class against all others. For several labels at once (2-D y) it is needed.
    names : sequence, optional
        What to call the samples; by default the index of a frame, else the numbers of the rows.

    Returns
    -------
    Doubts
        A table, the most doubtful sample first; ``print`` it, or see its ``to_frame()``. ``rows``
        says where the samples are in X.

    See Also
    --------
    plot_probabilities : All samples, and the doubtful ones among them.
    plot_doubts : What the doubtful ones may be.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from kernelweave import BayesianMKLClassifier
    >>> from kernelweave.report import doubtful
    >>> X, y = load_iris(return_X_y=True)
    >>> model = BayesianMKLClassifier().fit(X[::2], y[::2])
    >>> 0 < len(doubtful(model, X[1::2])) < 30
    True
    """
    sure = check_sure(sure)
    seen = forecast(model, X, target=target, names=names)
    order = np.argsort(seen.certainty, kind="stable")
    rows = order[seen.certainty[order] < sure]
    return Doubts(
        rows,
        seen.labels[rows],
        seen.classes[seen.predicted[rows]],
        seen.classes[seen.runner_up[rows]],
        seen.certainty[rows],
        seen.mean[rows],
        seen.std[rows],
        seen.entropy[rows],
        len(seen.labels),
        sure,
    )
