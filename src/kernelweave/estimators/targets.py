"""What is to be learnt, as users give it: labels or targets, and the weights of the samples.

Labels come in one or two dimensions, some of them unknown. Weights are those of each sample and of
its class, times C. Regression targets are standardised for the fit and in the user's own units
everywhere else.
"""

from __future__ import annotations

from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from sklearn.utils import column_or_1d
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length

from kernelweave.arrays import Array, Flags, Index
from kernelweave.errors import InvalidInputError
from kernelweave.losses.base import Loss
from kernelweave.validation import LARGEST, is_missing

# Different values that a message shows.
_SHOWN = 5
# Targets whose range is within rounding of this many units in the last place are constant.
_ROUNDING = 10 * float(np.finfo(np.float64).eps)


def require_target(owner: str, y: Any) -> None:
    """Raise if y is missing; the message names `owner`."""
    if y is None:
        raise InvalidInputError(f"{owner} requires y to be passed, but the target y is None.")


def read_classes(
    owner: str, X: Any, y: Any, class_weight: Any, fit_params: dict[str, Any]
) -> tuple[Array, Index, Array]:
    """Return the classes in order, the number of each sample's class, and the samples' weights.

    A weight is that of the sample, a keyword of `fit`, times that of its class; messages name
    `owner`.
    """
    require_target(owner, y)
    y = plain_labels(y)
    check_consistent_length(X, y)
    classes, codes = _coded(y)
    weight = read_sample_weight(fit_params, len(codes))
    if class_weight is not None:
        of_classes = np.asarray(compute_sample_weight(class_weight, y), dtype=np.float64)
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
    return classes, codes, weight


def _coded(values: Array, hint: str = "") -> tuple[Array, Index]:
    check_classification_targets(values)
    classes, codes = np.unique(values, return_inverse=True)
    if len(classes) < 2:
        raise InvalidInputError(
            f"y holds one class only ({_some(classes)}); at least two classes are needed.{hint}"
        )
    return classes, codes


def one_versus_rest(codes: Index, n_classes: int) -> Array:
    """Return +1 and -1, shape (T, n): one task for two classes, else one for each class."""
    tasks = [1] if n_classes == 2 else range(n_classes)
    return np.array([np.where(codes == c, 1.0, -1.0) for c in tasks])


def plain_labels(y: Any) -> Array:
    """Return labels in one dimension, all of one kind and none of them missing."""
    return known_labels(column_or_1d(_items(y), warn=True))[0]


def read_labels(y: Any, unlabeled: Any = None) -> tuple[Array, Array]:
    """Read class labels, or a table of 0 and 1 with a column for each label, as tasks.

    Parameters
    ----------
    y : array-like of shape (n,) or (n, L)
    unlabeled : object, optional
        The value that marks an unknown label; NaN stands for all missing values.

    Returns
    -------
    signs : ndarray of shape (T, n)
        Those of :func:`one_versus_rest` or of each label, 0 where unknown.
    classes : ndarray
        In order, or, of shape (L, 2), the two values of each of L labels.
    """
    values, known = known_labels(y, unlabeled)
    if not known.any():
        raise InvalidInputError(
            f"y holds no labels: all {len(known)} samples have the marker unlabeled="
            f"{unlabeled!r}; at least two classes are needed."
        )
    if known.ndim == 2:
        empty = np.flatnonzero(~known.any(axis=0))
        if len(empty):
            raise InvalidInputError(
                f"column {empty[0]} of y holds no labels, only the marker; leave such columns out."
            )
        table = np.zeros(known.shape)
        table[known] = np.where(values == 1, 1.0, -1.0)
        classes = np.tile(np.array([0, 1], dtype=values.dtype), (known.shape[1], 1))
        return np.ascontiguousarray(table.T), classes
    others = int(np.sum(~known))
    hint = f" {others} samples have the marker unlabeled={unlabeled!r}." if others else ""
    classes, codes = _coded(values, hint)
    of_known = one_versus_rest(codes, len(classes))
    signs = np.zeros((len(of_known), len(known)))
    signs[:, known] = of_known
    return signs, classes


def known_labels(y: Any, unlabeled: Any = None) -> tuple[Array, Flags]:
    """Return the labels that are known, in a row, and where they are (of the shape of y)."""
    require_target("a classifier", y)
    table = _items(y.toarray() if sparse.issparse(y) else y)
    if table.ndim != 2 or table.shape[1] == 1:
        table = column_or_1d(table, warn=True)
    known = ~_marked(table, unlabeled)
    values = table[known]
    if _missing(values).any():
        raise InvalidInputError(
            "y contains NaN or another missing value. Every sample needs a label: drop those "
            "without. A Bayesian classifier can learn from them as well, with unlabeled=np.nan."
        )
    return (_zeros_and_ones(table, values) if table.ndim == 2 else _tidy(values)), known


def _missing(table: Array) -> Flags:
    """Which entries are None, NaN or another missing value."""
    if table.dtype.kind == "O":
        flags = [is_missing(item) for item in table.ravel().tolist()]
        return np.array(flags, dtype=bool).reshape(table.shape)
    # Only these equal not even themselves.
    return np.asarray(table != table)


def _marked(table: Array, marker: Any) -> Flags:
    """Which entries are the marker."""
    if marker is None:
        return np.zeros(table.shape, dtype=bool)
    if is_missing(marker):
        return _missing(table)
    # A missing value compares with nothing: pandas' NA is neither equal nor unequal.
    marked = [not is_missing(item) and item == marker for item in table.ravel().tolist()]
    return np.array(marked, dtype=bool).reshape(table.shape)


def _items(y: Any) -> Array:
    """Read an array, or a list whose items keep their types: NumPy makes 1 beside "a" text."""
    if not isinstance(y, list | tuple):
        return np.asarray(y)
    try:
        table = np.asarray(y, dtype=object)
    except ValueError as error:
        raise InvalidInputError(f"y could not be read as an array: {error}") from error
    if table.ndim == 1 and any(isinstance(item, list | np.ndarray) for item in table):
        raise InvalidInputError("y could not be read as an array: its rows have several lengths.")
    return table


def _tidy(values: Array) -> Array:
    """Give labels from a column of objects, none of them missing, their own type."""
    if values.dtype.kind != "O":
        return values
    text = [isinstance(item, str) for item in values]
    numbers = [isinstance(item, bool | np.bool_ | Real) for item in values]
    if not (all(text) or all(numbers)):
        if any(text):
            raise InvalidInputError(
                f"y mixes text with other labels: {_some(values)}. Use one kind, and name the "
                "marker of samples without a label, if there are any (unlabeled)."
            )
        raise InvalidInputError(
            f"Unknown label type: labels must be text or numbers; y holds {_some(values)}."
        )
    return np.array(values.tolist())


def _zeros_and_ones(table: Array, values: Array) -> Array:
    """Return the known labels of a table as integers."""
    try:
        numbers = values.astype(np.float64)
    except (TypeError, ValueError):
        numbers = np.full(len(values), np.nan)
    wrong = (numbers != 0.0) & (numbers != 1.0)
    if wrong.any():
        raise InvalidInputError(
            f"y with {table.shape[1]} columns is read as one label a column and must hold 0 and "
            f"1, or the marker `unlabeled`; got {_some(values[wrong])}."
        )
    kind = table.dtype if table.dtype.kind in "biu" else np.dtype(np.int64)
    return numbers.astype(kind)


def _some(values: Array) -> str:
    """A few different values, for a message."""
    seen = list(dict.fromkeys(repr(item) for item in values.tolist()))
    return ", ".join(seen[:_SHOWN]) + (", ..." if len(seen) > _SHOWN else "")


def read_sample_weight(fit_params: dict[str, Any], n: int) -> Array:
    """Return the weight of each of n samples from the keywords of `fit`; ones if there is none."""
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


def check_loss_weights(C: float, weight: Array) -> None:
    """Raise if C times these weights is too large, or too small, for float64."""
    with np.errstate(over="ignore", under="ignore"):
        products = C * weight
        total = float(np.sum(products))
    smallest = float(np.min(products, where=products > 0, initial=np.inf))
    # The objective must not overflow, and squares of the weights must be numbers.
    if not (1 / LARGEST <= smallest < np.inf and total <= LARGEST):
        raise InvalidInputError(
            f"the weights of the loss (C times class_weight times sample_weight) must each be 0 or "
            f"at least {1 / LARGEST:g}, not be all zero in float64, and add up to at most "
            f"{LARGEST:g}. The smallest above 0 is {smallest:g}, the largest is "
            f"{float(np.max(products)):g}, and they add up to {total:g}, with C = {C:g}."
        )


def _check_numbers(name: str, weight: Array) -> None:
    bad = weight[~(np.isfinite(weight) & (weight >= 0))]
    if len(bad):
        raise InvalidInputError(f"{name} must be finite and >= 0; got {float(bad[0]):g}.")


class TargetUnits(NamedTuple):
    """What the targets of a fit were shifted by and then divided by; raw targets by default."""

    shift: float = 0.0
    scale: float = 1.0

    def predictions(self, fitted: Array) -> Array:
        """Return fitted values (or intercepts) in the units of the user."""
        return self.shift + self.scale * fitted

    def fitted(self, predictions: Array) -> Array:
        """Return predictions (or intercepts) in the units of the fit."""
        return (predictions - self.shift) / self.scale


RAW = TargetUnits()


def standardize(y: Array, weight: Array) -> tuple[Array, TargetUnits]:
    """Return targets of weighted mean 0 and standard deviation 1, and the units they were in.

    Constant targets become zeros, with a scale of one, and so do targets without weight, which
    no fit sees. Targets may be of any finite size; some weight must be above zero.
    """
    used = weight > 0
    own, share = y[used], weight[used] / weight.max()
    share = share / share.sum()
    z = np.zeros(len(y))
    # Squares of targets may overflow or underflow; a power of two changes no digit.
    exponent = int(np.frexp(np.abs(own).max())[1])
    small = np.ldexp(own, -exponent)
    low, high = small.min(), small.max()
    # Sums by NumPy: those of BLAS would depend on its threads. The second pass removes what the
    # first one has rounded.
    mean = float(np.sum(share * small))
    mean += float(np.sum(share * (small - mean)))
    spread = float(np.sqrt(np.sum(share * (small - mean) ** 2)))
    shift, scale = float(np.ldexp(mean, exponent)), float(np.ldexp(spread, exponent))
    if high - low <= _ROUNDING * max(abs(low), abs(high)) or scale == 0.0:
        return z, TargetUnits(float(own[0]) if low == high else shift, 1.0)
    z[used] = (small - mean) / spread
    return z, TargetUnits(shift, scale)


def check_loss_of_residuals(loss: Loss) -> None:
    """Raise unless the loss only depends on the target minus the prediction.

    Any other one, such as that of counts whose logarithm is predicted, has targets of a fixed
    unit: a shift would make another problem of it.
    """
    y, z, C = np.array([-1.0, 0.0, 1.0]), np.array([0.5, -2.0, 1.5]), np.ones(3)
    with np.errstate(all="ignore"):
        here, moved = loss.value(y, z, C), loss.value(y + 1.0, z + 1.0, C)
    if not np.allclose(here, moved, rtol=1e-6, atol=1e-9):
        raise InvalidInputError(
            f"the loss {loss!r} does not depend on the target minus the prediction alone, so its "
            "targets cannot be standardised; give target_scale=None, which fits them as they are."
        )
