"""What a Bayesian classifier says of new samples, and which of them it is not sure about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from scipy.special import xlogy

from kernelweave.arrays import Array, Index
from kernelweave.bayes import class_probability
from kernelweave.errors import InvalidInputError
from kernelweave.inspect.explanation import sample_names
from kernelweave.inspect.held_out import task_of
from kernelweave.inspect.ranking import is_bayesian, reach
from kernelweave.inspect.tables import table_of, text_table

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

    rows: Index
    labels: Array
    predicted: Array
    runner_up: Array
    probability: Array
    mean: Array
    std: Array
    entropy: Array
    n_asked: int
    sure: float

    def __len__(self) -> int:
        return len(self.rows)

    def to_frame(self) -> Any:
        """Return a table with one row for each sample: pandas where installed, else polars."""
        names = ("predicted", "probability", "runner_up", "mean", "std", "entropy")
        values = {name: getattr(self, name) for name in names}
        return table_of({"sample": self.labels, **values}, ["sample"])

    def __repr__(self) -> str:
        title = (
            f"{len(self)} of {self.n_asked} samples in doubt (no class has probability "
            f"{self.sure:g})"
        )
        if not len(self):
            return title
        heads, rows = self.cells(_LISTED)
        lines = text_table(heads, rows, [0, 1, 3], len(self) - _LISTED, indent="  ")
        return "\n".join([title, *lines])

    def cells(self, most: int) -> tuple[list[str], list[list[str]]]:
        """Return the heads of a table, and its rows as text."""
        columns = {
            "sample": self.labels,
            "predicted": self.predicted,
            "probability": [f"{value:.2f}" for value in self.probability],
            "or else": self.runner_up,
            "mean": [f"{value:+.2f}" for value in self.mean],
            "std": [f"{value:.2f}" for value in self.std],
            "entropy": [f"{value:.2f}" for value in self.entropy],
        }
        rows = zip(*columns.values(), strict=True)
        return list(columns), [list(map(str, row)) for row in islice(rows, most)]


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
    rows = seen.doubted(sure)
    return Doubts(
        rows,
        seen.labels[rows],
        seen.classes[seen.predicted[rows]],
        seen.classes[seen.runner_up[rows]],
        seen.certainty[rows],
        seen.mean[rows],
        seen.std[rows],
        -xlogy(seen.proba[rows], seen.proba[rows]).sum(axis=1) / np.log(2.0),
        len(seen.labels),
        sure,
    )


class Forecast(NamedTuple):
    """Probabilities of new samples with what they come from.

    `predicted` and `runner_up` are the numbers of the two most likely classes, `certainty` is the
    probability of the first. `mean` and `std` are those of the decision value of the second of two
    classes, else of the predicted one; `low` and `high` are how far its probability moves.
    """

    classes: Array
    labels: Array
    proba: Array
    predicted: Index
    runner_up: Index
    certainty: Array
    mean: Array
    std: Array
    low: Array
    high: Array

    def doubted(self, sure: float) -> Index:
        """Return the samples in doubt, the most doubtful first."""
        order = np.argsort(self.certainty, kind="stable")
        return order[self.certainty[order] < sure]


def check_sure(sure: Any) -> float:
    """Return the probability from which a prediction is sure, or raise if it is none."""
    if isinstance(sure, Real) and not isinstance(sure, bool) and 0.5 <= float(sure) <= 1.0:
        return float(sure)
    raise InvalidInputError(f"sure must be a probability from 0.5 to 1, such as 0.8; got {sure!r}.")


def forecast(
    model: Any, X: Any, *, target: Any = None, names: Sequence[Any] | None = None
) -> Forecast:
    """Ask a Bayesian classifier about new samples."""
    if names is None:
        names = sample_names(X, X.shape[0] if hasattr(X, "shape") else len(X))
    labels = np.asarray(names)
    estimator, X = reach(model, X)
    if not is_bayesian(estimator) or not hasattr(estimator, "predict_proba"):
        raise InvalidInputError(
            "probabilities with their uncertainty are what BayesianMKLClassifier has; got "
            f"{type(estimator).__name__}."
        )
    proba, several = np.asarray(estimator.predict_proba(X)), task_of(estimator) == "labels"
    if len(proba) != len(labels):
        raise InvalidInputError(
            f"names must have one entry for each of the {len(proba)} samples; got {len(labels)}."
        )
    if target is not None or several:
        choices = list(range(proba.shape[1])) if several else estimator.classes_.tolist()
        if target not in choices:
            what = "number of a column of y" if several else "class"
            allowed = ", ".join(map(repr, choices))
            raise InvalidInputError(
                f"target must be the {what} that is meant, one of {allowed}; got {target!r}."
            )
        c = np.full(len(proba), choices.index(target))
        name = f"label {target}" if several else str(target)
        classes = np.array([f"not {name}", name])
        chosen = np.take_along_axis(proba, c[:, None], 1)
        proba = np.hstack([1.0 - chosen, chosen])
    else:
        classes = np.asarray(estimator.classes_)
        c = np.ones(len(proba), dtype=np.intp) if len(classes) == 2 else proba.argmax(axis=1)
    mean, std = (np.asarray(part) for part in estimator.decision_function(X, return_std=True))
    if mean.ndim == 1:
        # Two classes have one decision function, that of the second.
        sign = np.where(c == 1, 1.0, -1.0)
        mean, std, c = (sign * mean)[:, None], std[:, None], np.zeros_like(c)
    low, high = _ends(estimator, mean, std)
    if mean.shape[1] > 1 and not several:
        # One-versus-rest probabilities are divided by their sum; only that of class c moves.
        each = np.maximum(class_probability(mean, std, estimator.margin), np.finfo(float).tiny)
        others = each.sum(axis=1, keepdims=True) - np.take_along_axis(each, c[:, None], 1)
        low, high = low / (low + others), high / (high + others)
    own = [np.take_along_axis(part, c[:, None], 1)[:, 0] for part in (mean, std, low, high)]
    shown = proba[:, 1] if len(classes) == 2 else proba.max(axis=1)
    own[2:] = np.minimum(own[2], shown), np.maximum(own[3], shown)
    runner_up = np.argsort(proba, axis=1, kind="stable")[:, -2]
    likely = (proba.argmax(axis=1), runner_up, proba.max(axis=1))
    return Forecast(classes, labels, proba, *likely, *own)


def _ends(estimator: Any, mean: Array, std: Array) -> tuple[Array, Array]:
    """Probabilities where the decision value is two standard deviations lower and higher.

    The variance of a decision value (section 4.3 of the paper) has two parts. The noise of the
    model is 1 for f and sigma_g^2 e'e for the intermediate outputs, and stays however many samples
    there are. The rest is what is not known about a, b and e: it moves the probability.
    """
    weights = np.atleast_2d(estimator.weights_)
    # Kernels that were dropped keep a standard deviation, but play no part in predictions.
    squares = np.where(weights != 0, weights**2 + np.atleast_2d(estimator.weights_std_) ** 2, 0.0)
    noise = 1.0 + float(estimator.sigma_g) ** 2 * squares.sum(axis=1)
    unknown = 2.0 * np.sqrt(np.maximum(std**2 - noise, 0.0))
    spread = np.sqrt(noise)
    low = class_probability(mean - unknown, spread, estimator.margin)
    high = class_probability(mean + unknown, spread, estimator.margin)
    return low, high
