"""Which columns of the data a user means: indices, names, slices, masks, callables."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np

from kernelweave.errors import InvalidInputError
from kernelweave.kernels.samples import Samples
from kernelweave.validation import unknown_name

__all__ = ["choose_columns", "describe_columns", "describe_request"]

_ALLOWED = (
    "an index, a name, a list of indices or names, a slice, a boolean mask, or a callable that "
    "takes X and returns one of these"
)


def choose_columns(columns: Any, samples: Samples) -> list[int]:
    """Return the positions of the columns that a user means by `columns`."""
    if callable(columns):
        columns = columns(samples.native)
    chosen = _slice(columns, samples) if isinstance(columns, slice) else _listed(columns, samples)
    if not chosen:
        raise InvalidInputError(f"columns {columns!r} select no column of X.")
    return chosen


def _listed(columns: Any, samples: Samples) -> list[int]:
    if isinstance(columns, str | Integral) and not isinstance(columns, bool):
        items: list[Any] = [columns]
    elif isinstance(columns, dict | bytes) or not hasattr(columns, "__iter__"):
        raise InvalidInputError(f"columns must be {_ALLOWED}; got {columns!r}.")
    else:
        items = list(columns)
    if items and all(isinstance(item, bool | np.bool_) for item in items):
        if len(items) != samples.n_columns:
            raise InvalidInputError(
                f"a boolean mask needs one entry for each of the {samples.n_columns} columns of "
                f"X; got {len(items)}."
            )
        return [j for j, kept in enumerate(items) if kept]
    return [_position(item, samples) for item in items]


def _position(item: Any, samples: Samples) -> int:
    if isinstance(item, str):
        if samples.columns is None:
            raise InvalidInputError(
                f"column {item!r} was asked for by name, but X has no column names; use indices, "
                f"or pass a DataFrame."
            )
        places = samples.places.get(item, [])
        if not places:
            raise unknown_name("column", item, samples.columns)
        if len(places) > 1:
            raise InvalidInputError(f"X has several columns named {item!r}; use indices.")
        return places[0]
    if isinstance(item, Integral) and not isinstance(item, bool | np.bool_):
        p = samples.n_columns
        if not -p <= int(item) < p:
            raise InvalidInputError(
                f"column {int(item)} does not exist: X has {p} columns, 0 to {p - 1}."
            )
        return int(item) % p
    raise InvalidInputError(f"columns must be {_ALLOWED}; got an item {item!r}.")


def _slice(columns: slice, samples: Samples) -> list[int]:
    start, stop = columns.start, columns.stop
    if isinstance(start, str):
        start = _position(start, samples)
    if isinstance(stop, str):
        # By name the last column is included, as in pandas and scikit-learn.
        stop = _position(stop, samples) + 1
    try:
        return list(range(samples.n_columns)[start : stop : columns.step])
    except TypeError as error:
        raise InvalidInputError(f"columns must be {_ALLOWED}; got {columns!r}.") from error


def describe_columns(indices: list[int], samples: Samples) -> str:
    """Return how chosen columns appear in a kernel's name, such as "columns 0-2, 4"."""
    if samples.columns is None:
        return _numbers(indices)
    return _names([samples.columns[j] for j in indices])


def describe_request(columns: Any) -> str:
    """Return how columns appear in a name before the data are seen.

    Examples
    --------
    >>> describe_request(["a", "b", "c", "d"]), describe_request(slice(2, None))
    ('a, b, ... (4 columns)', 'columns 2:')
    """
    if callable(columns):
        return f"columns of {getattr(columns, '__name__', type(columns).__name__)}"
    if isinstance(columns, slice):
        return _describe_slice(columns)
    if isinstance(columns, str | Integral):
        items: list[Any] = [columns]
    elif hasattr(columns, "__iter__"):
        items = list(columns)
    else:
        return repr(columns)
    if items and all(isinstance(item, bool | np.bool_) for item in items):
        items = [j for j, kept in enumerate(items) if kept]
    if items and all(isinstance(item, Integral) for item in items):
        return _numbers([int(item) for item in items])
    return _names([str(item) for item in items])


def _describe_slice(columns: slice) -> str:
    start, stop, step = columns.start, columns.stop, columns.step
    if (start, stop, step) == (None, None, None):
        return "all columns"
    whole = isinstance(stop, Integral) and (start is None or isinstance(start, Integral))
    if whole and stop > 0 and (start or 0) >= 0 and step is None:
        return _numbers(list(range(int(start or 0), int(stop))))
    shown = ["" if bound is None else str(bound) for bound in (start, stop)]
    return f"columns {':'.join(shown)}" + ("" if step is None else f":{step}")


def _names(names: list[str]) -> str:
    if len(names) <= 3:
        return ", ".join(names)
    return f"{names[0]}, {names[1]}, ... ({len(names)} columns)"


def _numbers(indices: list[int]) -> str:
    if len(indices) == 1:
        return f"column {indices[0]}"
    runs: list[list[int]] = []
    for j in indices:
        if runs and j == runs[-1][-1] + 1:
            runs[-1].append(j)
        else:
            runs.append([j])
    parts = [f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs]
    if len(parts) > 3:
        return f"columns {parts[0]}, {parts[1]}, ... ({len(indices)} columns)"
    return f"columns {', '.join(parts)}"
