"""Columns numbered anew, without those that do not occur."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["number_columns"]

Ints = NDArray[np.int64]

# A table of all columns is quicker than sorting, but must not be much larger than the entries.
_TABLE = 16


def number_columns(indices: NDArray[np.integer]) -> tuple[Ints, Ints]:
    """Return the columns that occur, ascending, and the place of each entry among them.

    Examples
    --------
    >>> number_columns(np.array([7, 2**40, 7]))
    (array([            7, 1099511627776]), array([0, 1, 0]))
    """
    if not indices.size:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    last = int(indices.max())
    if last < _TABLE * indices.size + 2**16:
        there = np.zeros(last + 1, np.bool_)
        there[indices] = True
        used = np.flatnonzero(there)
        place = np.zeros(last + 1, np.int64)
        place[used] = np.arange(len(used))
        return used, place[indices]
    used, places = np.unique(indices, return_inverse=True)
    return used.astype(np.int64, copy=False), places
