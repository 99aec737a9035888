"""Weights of the samples in the loss: of each sample, of its class, and C times both."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.class_weight import compute_sample_weight

from kernelweave.arrays import Array, Index
from kernelweave.errors import InvalidInputError
from kernelweave.validation import LARGEST

__all__ = ["check_loss_weights", "read_sample_weight", "with_class_weight"]


def read_sample_weight(fit_params: dict[str, Any], n: int) -> Array:
    """Return the weight of each of n samples from the keywords of `fit`; ones if there is none.

    Examples
    --------
    >>> read_sample_weight({"sample_weight": [1, 2]}, 2)
    array([1., 2.])
    """
    unknown = set(fit_params) - {"sample_weight"}
    if unknown:
        raise TypeError(
            f"fit() got unexpected arguments {sorted(unknown)}; allowed: 'sample_weight'."
        )
    given = fit_params.get("sample_weight")
    if given is None:
        return np.ones(n)
    weight = np.asarray(given, dtype=np.float64)
    if weight.ndim == 0:
        weight = np.full(n, float(weight))
    if weight.shape != (n,):
        raise InvalidInputError(
            f"sample_weight must have one entry for each of the {n} samples; got shape "
            f"{weight.shape}."
        )
    _check_numbers("sample_weight", weight)
    if not np.any(weight > 0):
        raise InvalidInputError("sample_weight is zero for every sample; some must be > 0.")
    return weight


def with_class_weight(weight: Array, class_weight: Any, classes: Array, codes: Index) -> Array:
    """Return the weights of the samples times those of their classes.

    Parameters
    ----------
    weight : ndarray of shape (n,)
        Weights of the samples.
    class_weight : dict, "balanced" or None
    classes : ndarray of shape (n_classes,)
    codes : ndarray of shape (n,)
        The number of each sample's class.

    Examples
    --------
    >>> with_class_weight(np.ones(3), {"b": 2.0}, np.array(["a", "b"]), np.array([0, 1, 1]))
    array([1., 2., 2.])
    """
    if class_weight is not None:
        of_classes = np.asarray(
            compute_sample_weight(class_weight, classes[codes]), dtype=np.float64
        )
        _check_numbers("class_weight", of_classes)
        with np.errstate(over="ignore"):
            weight = weight * of_classes
    heard = np.bincount(codes, weights=weight > 0, minlength=len(classes)) > 0
    if not heard.all():
        raise InvalidInputError(
            f"every sample of class {classes[~heard][0]!r} has the weight zero (class_weight times "
            "sample_weight); each class needs a sample of positive weight. Leave out the samples "
            "of a class that shall not count."
        )
    return weight


def check_loss_weights(C: float, weight: Array) -> None:
    """Raise if C times these weights is too large, or too small, for float64.

    Examples
    --------
    >>> check_loss_weights(1.0, np.ones(3))
    """
    with np.errstate(over="ignore", under="ignore"):
        products = C * weight
        total = float(np.sum(products))
    if not total <= LARGEST:
        raise InvalidInputError(
            f"the weights of the loss (C times class_weight times sample_weight) add up to "
            f"{total:g}; at most {LARGEST:g} is allowed, beyond which the objective may overflow "
            f"float64. The largest is {float(np.max(products)):g}, with C = {C:g}."
        )
    if not total > 0:
        raise InvalidInputError(
            f"the weights of the loss (C times class_weight times sample_weight) are all zero in "
            f"float64, with C = {C:g}; some must be > 0."
        )
    smallest = float(np.min(products[products > 0]))
    if smallest < 1 / LARGEST:
        raise InvalidInputError(
            f"the weights of the loss (C times class_weight times sample_weight) go down to "
            f"{smallest:g}, with C = {C:g}; they must be 0 or at least {1 / LARGEST:g}, so that "
            "their squares are numbers."
        )


def _check_numbers(name: str, weight: Array) -> None:
    bad = weight[~(np.isfinite(weight) & (weight >= 0))]
    if len(bad):
        raise InvalidInputError(f"{name} must be finite and >= 0; got {float(bad[0]):g}.")
