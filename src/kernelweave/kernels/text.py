"""Text among the data: which inputs hold any, and how they become a column or a table."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelweave.errors import InvalidInputError

__all__ = ["as_text", "is_missing"]


def as_text(X: Any) -> NDArray[Any] | None:
    """Return a list, array or Series that holds text as an array of shape (n, p).

    One dimension becomes one column. Lists become arrays of objects: an array of dtype "U" takes
    four bytes for each letter of the longest text, for every row. Arrays stay as they are.

    Parameters
    ----------
    X : object
        Anything but a DataFrame.

    Returns
    -------
    ndarray of shape (n, p), or None
        None if X holds no `str` or `bytes`, or is no such table.

    Examples
    --------
    >>> as_text(["ACG", "TTTT"])
    array([['ACG'],
           ['TTTT']], dtype=object)
    >>> as_text([0.5, 1.5]) is None
    True
    """
    if isinstance(X, str | bytes):
        raise InvalidInputError("X is a single text; for one sequence give a list of one, [X].")
    if isinstance(X, list | tuple):
        rows = (item for item in X if isinstance(item, list | tuple))
        if not _any_text(X) and not any(_any_text(row) for row in rows):
            return None
        data = np.array(X, dtype=object)
    elif len(getattr(X, "shape", ())) in (1, 2):
        data = np.asarray(X)
    else:
        return None
    if data.dtype.kind == "T":
        data = data.astype(object)
    is_text = data.dtype.kind in "SU" or (data.dtype.kind == "O" and _any_text(data.flat))
    if not is_text or data.ndim not in (1, 2):
        return None
    return data.reshape(-1, 1) if data.ndim == 1 else data


def is_missing(item: Any) -> bool:
    """Whether an item stands for a missing value: None, NaN, pandas' NA or NaT.

    Examples
    --------
    >>> is_missing(None), is_missing(float("nan")), is_missing("NA")
    (True, True, False)
    """
    if item is None or type(item).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(item, float | np.floating) and bool(np.isnan(item))


def _any_text(items: Iterable[Any]) -> bool:
    return any(isinstance(item, str | bytes) for item in items)
