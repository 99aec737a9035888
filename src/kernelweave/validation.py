"""Checks shared by every room, each with an error that says what is allowed."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from numbers import Real

import numpy as np

from kernelweave.errors import InvalidInputError, UnknownNameError

__all__ = ["positive_number", "unknown_name"]


def unknown_name(kind: str, given: object, allowed: Iterable[str]) -> UnknownNameError:
    """Build the error for a name that does not exist, with the closest one that does.

    Examples
    --------
    >>> str(unknown_name("solver", "sgp", ["spg", "uniform"]))
    "unknown solver 'sgp'; did you mean 'spg'? Allowed: 'spg', 'uniform'."
    """
    names = sorted(allowed)
    close = get_close_matches(str(given), names, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else "."
    listed = ", ".join(repr(name) for name in names)
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
