"""What the settings of a solver may be, declared beside each field and checked in one place.

A solver is a dataclass; a field says what it may be in its metadata,

    working_set: int = field(default=64, metadata=integer(1))

and :func:`check_settings` holds every value to it when the solver is used.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np

from kernelweave.errors import InvalidInputError
from kernelweave.solvers.base import Solver

__all__ = [
    "Allowed",
    "check_settings",
    "choice",
    "either",
    "flag",
    "integer",
    "number",
    "other_solver",
]

_KEY = "allowed"
Metadata = Mapping[str, "Allowed"]


class Allowed(NamedTuple):
    """Which values a setting may have: what an error says of them, and whether a value is one."""

    told: str
    accepts: Callable[[Any], bool]


def _declared(told: str, accepts: Callable[[Any], bool]) -> Metadata:
    return {_KEY: Allowed(told, accepts)}


def flag() -> Metadata:
    """True or False."""
    return _declared("True or False", lambda value: isinstance(value, bool | np.bool_))


def integer(low: int, high: int | None = None) -> Metadata:
    """Allow integers from `low` to `high`, both allowed themselves."""
    told = f"an integer >= {low}" if high is None else f"an integer from {low} to {high}"

    def accepts(value: Any) -> bool:
        whole = isinstance(value, Integral) and not isinstance(value, bool)
        return whole and low <= value and (high is None or value <= high)

    return _declared(told, accepts)


def number(
    *,
    above: float | None = None,
    least: float | None = None,
    below: float | None = None,
    most: float | None = None,
) -> Metadata:
    """Allow finite numbers > `above`, >= `least`, < `below` and <= `most`, those that are given."""
    limits = (
        (">", above, operator.gt),
        (">=", least, operator.ge),
        ("<", below, operator.lt),
        ("<=", most, operator.le),
    )
    given = [(sign, float(limit), holds) for sign, limit, holds in limits if limit is not None]
    told = "a finite number " + " and ".join(f"{sign} {limit:g}" for sign, limit, _ in given)

    def accepts(value: Any) -> bool:
        if not isinstance(value, Real) or isinstance(value, bool) or not np.isfinite(float(value)):
            return False
        return all(holds(float(value), limit) for _, limit, holds in given)

    return _declared(told, accepts)


def choice(*names: str | None) -> Metadata:
    """Allow these names."""
    return _declared(
        " or ".join(map(repr, names)),
        lambda value: (value is None or isinstance(value, str)) and value in names,
    )


def either(*declared: Metadata) -> Metadata:
    """Allow what any of these declarations allows."""
    parts = [one[_KEY] for one in declared]
    told = " or ".join(part.told for part in parts)
    return _declared(told, lambda value: any(part.accepts(value) for part in parts))


def other_solver() -> Metadata:
    """Allow None or another solver, whose own settings are checked with it."""
    return _declared(
        "None or a solver object such as SPG()",
        lambda value: value is None or isinstance(value, Solver),
    )


def check_settings(solver: Solver) -> None:
    """Raise if a setting of the solver is not what its field declares to be allowed.

    Fields without a declaration are not looked at: a solver of the user's own need not have any.

    Examples
    --------
    >>> from kernelweave.solvers import ActiveSet
    >>> check_settings(ActiveSet(working_set=8))
    >>> check_settings(ActiveSet(working_set=0))
    Traceback (most recent call last):
    ...
    kernelweave.errors.InvalidInputError: ActiveSet: working_set must be an integer >= 1; got 0.
    """
    if not is_dataclass(solver):
        return
    for setting in fields(solver):
        allowed: Allowed | None = setting.metadata.get(_KEY)
        value = getattr(solver, setting.name)
        if allowed is None:
            continue
        if not allowed.accepts(value):
            raise InvalidInputError(
                f"{type(solver).__name__}: {setting.name} must be {allowed.told}; got {value!r}."
            )
        if isinstance(value, Solver):
            check_settings(value)
