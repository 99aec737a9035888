"""What a Bayesian classifier says of new samples: probabilities, and how far they may move."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import xlogy

from kernelweave.bayes import class_probability
from kernelweave.describe.learnt import find_estimator, is_bayesian
from kernelweave.errors import InvalidInputError
from kernelweave.problem import Array

__all__ = ["Forecast", "check_sure", "forecast"]


@dataclass(frozen=True, eq=False)
class Forecast:
    """Probabilities of new samples with what they come from.

    Attributes
    ----------
    classes : ndarray of shape (n_classes,)
        What a sample can be; for one class or label against all others, "not" it and it.
    labels : ndarray of shape (n,)
        What the samples are called.
    proba : ndarray of shape (n, n_classes)
        As ``predict_proba`` gives them.
    mean, std : ndarray of shape (n,)
        Decision value and its standard deviation: of the second of two classes, else of the
        predicted one (or the target).
    low, high : ndarray of shape (n,)
        Ends of that class's probability as the parameters move by two standard deviations.
    """

    classes: NDArray[Any]
    labels: NDArray[Any]
    proba: Array
    mean: Array
    std: Array
    low: Array
    high: Array

    @property
    def predicted(self) -> NDArray[np.intp]:
        """Number of the most likely class of each sample."""
        return self.proba.argmax(axis=1)

    @property
    def certainty(self) -> Array:
        """Probability of the most likely class."""
        return self.proba.max(axis=1)

    @property
    def entropy(self) -> Array:
        """Entropy of the probabilities in bits: 0 if sure, 1 for a coin."""
        return -xlogy(self.proba, self.proba).sum(axis=1) / np.log(2.0)

    @property
    def runner_up(self) -> NDArray[np.intp]:
        """Number of the second most likely class of each sample."""
        return np.argsort(self.proba, axis=1, kind="stable")[:, -2]


def check_sure(sure: Any) -> float:
    """Return the probability from which a prediction is sure, or raise if it is none.

    Examples
    --------
    >>> check_sure(0.9)
    0.9
    """
    if isinstance(sure, Real) and not isinstance(sure, bool) and 0.5 <= float(sure) <= 1.0:
        return float(sure)
    raise InvalidInputError(f"sure must be a probability from 0.5 to 1, such as 0.8; got {sure!r}.")


def forecast(
    model: Any, X: Any, *, target: Any = None, names: Sequence[Any] | None = None
) -> Forecast:
    """Ask a Bayesian classifier about new samples.

    Parameters
    ----------
    model : BayesianMKLClassifier, or a pipeline or search that ends in one
        Fitted.
    X : array, frame or sequence
        Samples, as for `predict`.
    target : class label, or number of a column of y, optional
        Ask for this class against all others; for several labels at once (2-D y) it is needed.
    names : sequence, optional
        What to call the samples; by default the index of a frame, else the numbers of the rows.

    Returns
    -------
    Forecast

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from kernelweave import BayesianMKLClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = BayesianMKLClassifier().fit(X[::2], y[::2])
    >>> forecast(model, X[1::2]).proba.shape
    (75, 3)
    """
    labels = _labels(X, names)
    estimator, X = _reach(model, X)
    proba = np.asarray(estimator.predict_proba(X))
    if len(proba) != len(labels):
        raise InvalidInputError(
            f"names must have one entry for each of the {len(proba)} samples; got {len(labels)}."
        )
    if target is not None or _is_multilabel(estimator):
        c = np.full(len(proba), _column(estimator, target, proba.shape[1]))
        name = f"label {target}" if _is_multilabel(estimator) else str(target)
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
    if mean.shape[1] > 1 and not _is_multilabel(estimator):
        # One-versus-rest probabilities are divided by their sum; only that of class c moves.
        each = np.maximum(class_probability(mean, std, estimator.margin), np.finfo(float).tiny)
        others = each.sum(axis=1, keepdims=True) - np.take_along_axis(each, c[:, None], 1)
        low, high = low / (low + others), high / (high + others)
    own = [np.take_along_axis(part, c[:, None], 1)[:, 0] for part in (mean, std, low, high)]
    shown = proba[:, 1] if len(classes) == 2 else proba.max(axis=1)
    own[2:] = np.minimum(own[2], shown), np.maximum(own[3], shown)
    return Forecast(classes, labels, proba, *own)


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


def _column(estimator: Any, target: Any, n_columns: int) -> int:
    """Column of the probabilities that a target means."""
    several = _is_multilabel(estimator)
    choices = list(range(n_columns)) if several else estimator.classes_.tolist()
    if target not in choices:
        what = "number of a column of y" if several else "class"
        shown = ", ".join(repr(choice) for choice in choices)
        raise InvalidInputError(
            f"target must be the {what} that is meant, one of {shown}; got {target!r}."
        )
    return choices.index(target)


def _is_multilabel(estimator: Any) -> bool:
    return np.ndim(estimator.classes_[0]) > 0


def _reach(model: Any, X: Any) -> tuple[Any, Any]:
    """The Bayesian classifier inside a model, and X as it gets there."""
    if hasattr(model, "best_estimator_"):
        return _reach(model.best_estimator_, X)
    if hasattr(model, "steps"):
        if len(model.steps) > 1:
            X = model[:-1].transform(X)
        return _reach(model.steps[-1][1], X)
    estimator = find_estimator(model)
    if not is_bayesian(estimator) or not hasattr(estimator, "predict_proba"):
        raise InvalidInputError(
            "probabilities with their uncertainty are what BayesianMKLClassifier has; got "
            f"{type(estimator).__name__}."
        )
    return estimator, X


def _labels(X: Any, names: Sequence[Any] | None) -> NDArray[Any]:
    if names is not None:
        return np.asarray(names)
    if hasattr(X, "index") and not callable(X.index):
        return np.asarray(X.index)
    return np.arange(X.shape[0] if hasattr(X, "shape") else len(X))
