"""Checks shared by every room, each with an error that says what is allowed."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches
from numbers import Integral, Real
from typing import Any

import numpy as np

from kernelweave.errors import InvalidInputError, UnknownNameError

# Largest size of a number that is computed with: products of three of them are within float64, and
# so are sums of very many squares.
LARGEST = 1e100
_LISTED = 30  # names that an error lists
_UNITS = {"s": 1.0, "min": 60.0, "h": 3600.0}
_TIME = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(s|min|h)\s*")


def closest(given: object, names: Iterable[str]) -> str:
    """Return "; did you mean ...?" with the closest name, whatever the case, or a full stop."""
    folded = {str(name).casefold(): str(name) for name in names}
    close = get_close_matches(str(given).casefold(), folded, n=1)
    return f"; did you mean {folded[close[0]]!r}?" if close else "."


def some_of(names: Iterable[str], most: int) -> str:
    """Return the first names, and how many there are if these are not all."""
    every = list(names)
    more = f", ... ({len(every)} in all)" if len(every) > most else ""
    return ", ".join(map(str, every[:most])) + more


def unknown_name(kind: str, given: object, allowed: Iterable[str]) -> UnknownNameError:
    """Build the error for a name that does not exist, with the closest one that does."""
    names = sorted(allowed)
    listed = some_of(map(repr, names), _LISTED)
    return UnknownNameError(f"unknown {kind} {given!r}{closest(given, names)} Allowed: {listed}.")


def positive_number(name: str, value: object, *, allow_zero: bool = False) -> float:
    """Return `value` as a float, or raise if it is not a finite positive number."""
    ok = isinstance(value, Real) and not isinstance(value, bool) and np.isfinite(float(value))
    if ok and (float(value) > 0 or (allow_zero and float(value) == 0)):  # type: ignore[arg-type]
        return float(value)  # type: ignore[arg-type]
    bound = ">= 0" if allow_zero else "> 0"
    raise InvalidInputError(f"{name} must be a finite number {bound}; got {value!r}.")


def whole_number(name: str, value: object, least: int = 1) -> int:
    """Return `value` as an int, or raise if it is not an integer of at least this size."""
    if isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least:
        return int(value)
    raise InvalidInputError(f"{name} must be an integer >= {least}; got {value!r}.")


def require_array(
    name: str,
    value: Any,
    shape: tuple[int | None, ...],
    *,
    whole: bool = False,
    low: float = -np.inf,
    high: float = np.inf,
) -> None:
    """Raise unless `value` is an array of finite numbers of this shape, between these bounds.

    Numbers are float64, or any integers with ``whole=True``; None in a shape is any length. For
    what comes from files, where compiled code relies on it.
    """
    kind = "integers" if whole else "float64"
    if not isinstance(value, np.ndarray):
        raise InvalidInputError(f"{name} must be an array of {kind}; got a {type(value).__name__}.")
    fits = value.ndim == len(shape) and all(
        size is None or size == found for size, found in zip(shape, value.shape, strict=True)
    )
    ok = (value.dtype.kind in "iu" and value.dtype.isnative) if whole else value.dtype == np.float64
    if not fits or not ok:
        needed = " x ".join("any" if size is None else str(size) for size in shape) or "one number"
        raise InvalidInputError(
            f"{name} must be an array of {kind} ({needed}); got shape {value.shape} of "
            f"{value.dtype}."
        )
    wrong = value[~((value >= low) & (value <= high) & np.isfinite(value))]
    if wrong.size:
        bounds = f"from {low:g} to {high:g}" if np.isfinite([low, high]).any() else "finite"
        raise InvalidInputError(f"{name} must be {bounds}; got {wrong.flat[0]}.")


def require_sparse(name: str, matrix: Any) -> None:
    """Raise if a sparse matrix of SciPy's names rows or columns it does not have.

    SciPy does not look when one is put together, and neither its compiled code nor ours looks
    later: such a matrix would read and write other memory. SciPy's own check
    (`check_format`) changes the matrix that it looks at.
    """
    if matrix.format in ("csr", "csc", "bsr"):
        unit = matrix.blocksize if matrix.format == "bsr" else (1, 1)
        shape = [size // step for size, step in zip(matrix.shape, unit, strict=True)]
        major, minor = shape[::-1] if matrix.format == "csc" else shape
        ends, index = np.asarray(matrix.indptr), np.asarray(matrix.indices)
        good = _whole(ends, major + 1) and _whole(index) and ends[0] == 0
        good = good and bool(np.all(ends[1:] >= ends[:-1]))
        good = good and ends[-1] <= min(len(index), len(matrix.data))
        places = [(index[: ends[-1]], minor)] if good else []
    elif matrix.format == "coo":
        places = list(zip(matrix.coords, matrix.shape, strict=True))
        good = all(_whole(index, len(matrix.data)) for index, _ in places)
    else:
        return  # made of Python objects, or of diagonals: SciPy puts its indices together itself
    if not good or any(i.size and (i.min() < 0 or i.max() >= size) for i, size in places):
        raise InvalidInputError(
            f"{name} of shape {matrix.shape} is damaged: its index arrays ({matrix.format}) name "
            f"rows or columns that it does not have, or do not belong together."
        )


def _whole(index: np.ndarray, count: int | None = None) -> bool:
    """Whether an index array is a list of integers, of this length if one is given."""
    return index.ndim == 1 and index.dtype.kind in "iu" and count in (None, len(index))


def require_kind(name: str, value: Any, kinds: type[Any] | tuple[type[Any], ...]) -> None:
    """Raise unless `value` is of this class, or of one of these."""
    if not isinstance(value, kinds) or (isinstance(value, bool) and kinds in (Integral, Real)):
        every = kinds if isinstance(kinds, tuple) else (kinds,)
        allowed = " or ".join(kind.__name__ for kind in every)
        raise InvalidInputError(f"{name} must be a {allowed}; got {_short(value)}.")


def _short(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 80 else f"a {type(value).__name__}"


def is_missing(item: Any) -> bool:
    """Whether an item stands for a missing value: None, NaN, pandas' NA or NaT."""
    if item is None or type(item).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(item, float | np.floating) and bool(np.isnan(item))


def parse_time(text: str) -> float | None:
    """Return the seconds in a time such as "30s", "5min" or "1.5h"; None if it is none, or zero."""
    found = _TIME.fullmatch(text)
    seconds = float(found[1]) * _UNITS[found[2]] if found else 0.0
    return seconds if seconds > 0 else None


def require_names(what: str, names: Any, count: int) -> None:
    """Raise unless `names` is a list of so many texts."""
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InvalidInputError(f"{what} must be a list of names; got {type(names).__name__}.")
    if len(names) != count:
        raise InvalidInputError(f"{what} must have {count} names; got {len(names)}.")
