"""Class labels as users give them: in one or two dimensions, some of them unknown."""

from __future__ import annotations

from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from sklearn.utils import column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length

from kernelweave.arrays import AnyArray, Array, Flags, Index
from kernelweave.errors import InvalidInputError
from kernelweave.kernels.sample_checks import is_missing

__all__ = ["ReadLabels", "class_codes", "known_labels", "plain_labels", "read_labels"]

_SHOWN = 5


class ReadLabels(NamedTuple):
    """Labels as the tasks of a model.

    Attributes
    ----------
    signs : ndarray of shape (T, n)
        +1, -1, or 0 where unknown: one task for two classes, else one for each class or label.
    classes : ndarray of shape (n_classes,), or (L, 2) for L labels
        The classes in order, or the two values of each label.
    """

    signs: Array
    classes: AnyArray


def class_codes(owner: str, X: Any, y: Any) -> tuple[AnyArray, Index]:
    """Return the classes in order, and the number of each sample's class.

    Parameters
    ----------
    owner : str
        Who asks, for messages.
    X : array or frame
        The samples.
    y : array-like of shape (n,)
        Their labels.

    Examples
    --------
    >>> class_codes("a classifier", [[0.0], [1.0]], ["b", "a"])
    (array(['a', 'b'], dtype='<U1'), array([1, 0]))
    """
    if y is None:
        raise InvalidInputError(f"{owner} requires y to be passed, but the target y is None.")
    y = plain_labels(y)
    check_classification_targets(y)
    check_consistent_length(X, y)
    classes, codes = np.unique(y, return_inverse=True)
    if len(classes) < 2:
        raise InvalidInputError(
            f"y holds one class only ({classes[0]!r}); at least two classes are needed."
        )
    return classes, codes


def plain_labels(y: Any) -> AnyArray:
    """Return labels in one dimension, all of one kind and none of them missing.

    Examples
    --------
    >>> plain_labels(np.array([2, 1], dtype=object))
    array([2, 1])
    """
    column: AnyArray = column_or_1d(_as_objects(y) if isinstance(y, list | tuple) else y, warn=True)
    if column.dtype.kind != "O":
        return column
    _refuse_missing(column, "Every sample needs a label: drop those without.")
    return _tidy(column, "Use one kind.")


def read_labels(y: Any, unlabeled: Any = None) -> ReadLabels:
    """Read class labels, or a table of 0 and 1 with a column for each label.

    Parameters
    ----------
    y : array-like of shape (n,) or (n, L), or sparse matrix of shape (n, L)
        Labels.
    unlabeled : object, default=None
        The value that marks an unknown label; NaN stands for all missing values. None: there is
        no such value.

    Examples
    --------
    >>> read_labels(["b", "a", "?"], unlabeled="?")
    ReadLabels(signs=array([[ 1., -1.,  0.]]), classes=array(['a', 'b'], dtype='<U1'))
    >>> read_labels([[0, 1], [1, 1]]).signs
    array([[-1.,  1.],
           [ 1.,  1.]])
    """
    values, known = known_labels(y, unlabeled)
    if not known.any():
        raise InvalidInputError(
            f"y holds no labels: all {len(known)} samples have the marker unlabeled="
            f"{unlabeled!r}; at least two classes are needed."
        )
    return _several_labels(values, known) if known.ndim == 2 else _classes(values, known, unlabeled)


def known_labels(y: Any, unlabeled: Any = None) -> tuple[AnyArray, Flags]:
    """Return the labels that are known, in a row, and where they are (of the shape of y).

    Examples
    --------
    >>> known_labels([3.0, np.nan, 5.0], np.nan)
    (array([3., 5.]), array([ True, False,  True]))
    """
    table = _table(y)
    known = ~_marked(table, unlabeled)
    values = table[known]
    _refuse_missing(
        values,
        "To learn from samples without a label as well, say unlabeled=np.nan; otherwise drop them.",
    )
    if table.ndim == 2:
        return _zeros_and_ones(table, known), known
    return _tidy(values, "Use one kind, and a marker for samples without one (unlabeled)."), known


def _table(y: Any) -> AnyArray:
    """One or two dimensions; a single column becomes one dimension."""
    if y is None:
        raise InvalidInputError("a classifier requires y to be passed, but the target y is None.")
    if sparse.issparse(y):
        y = y.toarray()
    table = _as_objects(y) if isinstance(y, list | tuple) else np.asarray(y)
    if table.ndim == 2 and table.shape[1] > 1:
        return table
    column: AnyArray = column_or_1d(table, warn=True)
    return column


def _marked(table: AnyArray, marker: Any) -> Flags:
    """Which entries are the marker."""
    if marker is None:
        return np.zeros(table.shape, dtype=bool)
    if is_missing(marker):
        marked = [is_missing(item) for item in table.ravel().tolist()]
    else:
        # A missing value compares with nothing: pandas' NA is neither equal nor unequal.
        marked = [not is_missing(item) and item == marker for item in table.ravel().tolist()]
    return np.array(marked, dtype=bool).reshape(table.shape)


def _as_objects(y: Any) -> AnyArray:
    """Read a list whose items keep their types: NumPy would make 1 beside "a" the text "1"."""
    try:
        table = np.asarray(y, dtype=object)
    except ValueError as error:
        raise InvalidInputError(f"y could not be read as an array: {error}") from error
    if table.ndim == 1 and any(isinstance(item, list | np.ndarray) for item in table):
        raise InvalidInputError("y could not be read as an array: its rows have several lengths.")
    return table


def _refuse_missing(values: AnyArray, advice: str) -> None:
    if any(is_missing(item) for item in values.tolist()):
        raise InvalidInputError(f"y contains NaN or another missing value. {advice}")


def _tidy(values: AnyArray, advice: str) -> AnyArray:
    """Give labels from a column of objects, none of them missing, their own type."""
    if values.dtype.kind != "O":
        return values
    text = [isinstance(item, str) for item in values]
    numbers = [isinstance(item, bool | np.bool_ | Real) for item in values]
    if not (all(text) or all(numbers)):
        if any(text):
            raise InvalidInputError(f"y mixes text with other labels: {_some(values)}. {advice}")
        raise InvalidInputError(
            f"Unknown label type: labels must be text or numbers; y holds {_some(values)}."
        )
    return np.array(values.tolist())


def _classes(values: AnyArray, known: Flags, unlabeled: Any) -> ReadLabels:
    check_classification_targets(values)
    classes, codes = np.unique(values, return_inverse=True)
    if len(classes) < 2:
        others = int(np.sum(~known))
        hint = f" {others} samples have the marker unlabeled={unlabeled!r}." if others else ""
        raise InvalidInputError(
            f"y holds one class only ({_some(classes)}); at least two classes are needed.{hint}"
        )
    tasks = [1] if len(classes) == 2 else range(len(classes))
    signs = np.zeros((len(tasks), len(known)))
    signs[:, known] = [np.where(codes == c, 1.0, -1.0) for c in tasks]
    return ReadLabels(signs, classes)


def _zeros_and_ones(table: AnyArray, known: Flags) -> AnyArray:
    values = table[known]
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


def _several_labels(values: AnyArray, known: Flags) -> ReadLabels:
    empty = np.flatnonzero(~known.any(axis=0))
    if len(empty):
        raise InvalidInputError(
            f"column {empty[0]} of y holds no labels, only the marker; leave such columns out."
        )
    signs = np.zeros(known.shape)
    signs[known] = np.where(values == 1, 1.0, -1.0)
    classes = np.tile(np.array([0, 1], dtype=values.dtype), (known.shape[1], 1))
    return ReadLabels(np.ascontiguousarray(signs.T), classes)


def _some(values: AnyArray) -> str:
    """A few different values, for a message."""
    seen = list(dict.fromkeys(repr(item) for item in values.tolist()))
    return ", ".join(seen[:_SHOWN]) + (", ..." if len(seen) > _SHOWN else "")
