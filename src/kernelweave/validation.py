"""Checks shared by every room, each with an error that says what is allowed."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches
from numbers import Real

import numpy as np

from kernelweave.errors import InvalidInputError, UnknownNameError

__all__ = ["parse_time", "positive_number", "unknown_name"]

_LISTED = 30  # names that an error lists
_UNITS = {"s": 1.0, "min": 60.0, "h": 3600.0}
_TIME = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(s|min|h)\s*")


def unknown_name(kind: str, given: object, allowed: Iterable[str]) -> UnknownNameError:
    """Build the error for a name that does not exist, with the closest one that does.

    Examples
    --------
    >>> str(unknown_name("solver", "sgp", ["spg", "uniform"]))
    "unknown solver 'sgp'; did you mean 'spg'? Allowed: 'spg', 'uniform'."
    """
    names = sorted(allowed)
    folded = {name.casefold(): name for name in names}
    close = get_close_matches(str(given).casefold(), folded, n=1)
    hint = f"; did you mean {folded[close[0]]!r}?" if close else "."
    listed = ", ".join(repr(name) for name in names[:_LISTED])
    if len(names) > _LISTED:
        listed += f", ... ({len(names)} in all)"
    return UnknownNameError(f"unknown {kind} {given!r}{hint} Allowed: {listed}.")


def positive_number(name: str, value: object, *, allow_zero: bool = False) -> float:
    """Return `value` as a float, or raise if it is not a finite positive number.

    Examples
    --------
    >>> positive_number("C", 2)
    2.0
    """
    ok = isinstance(value, Real) and not isinstance(value, bool) and np.isfinite(float(value))
    if ok and (float(value) > 0 or (allow_zero and float(value) == 0)):  # type: ignore[arg-type]
        return float(value)  # type: ignore[arg-type]
    bound = ">= 0" if allow_zero else "> 0"
    raise InvalidInputError(f"{name} must be a finite number {bound}; got {value!r}.")


def parse_time(text: str) -> float | None:
    """Return the seconds in a time such as "30s", "5min" or "1.5h"; None if it is none, or zero.

    Examples
    --------
    >>> parse_time("5min"), parse_time("soon")
    (300.0, None)
    """
    found = _TIME.fullmatch(text)
    seconds = float(found[1]) * _UNITS[found[2]] if found else 0.0
    return seconds if seconds > 0 else None
