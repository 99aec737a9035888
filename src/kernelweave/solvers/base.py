"""What a solver is: settings, and three steps on a state that the loop drives.

A solver is a dataclass; a field says what it may be in its metadata,

    working_set: int = field(default=64, metadata=integer(1))

and :func:`check_settings` holds every value to it when the solver is used.
"""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np

from kernelweave.arrays import Array
from kernelweave.errors import InvalidInputError
from kernelweave.problem import Problem
from kernelweave.solvers.certificate import Witness
from kernelweave.solvers.inner import Point
from kernelweave.solvers.kept import Kept

SOLVERS: dict[str, type[Solver]] = {}


@dataclass
class State:
    """What a solver hands to the loop after each step.

    Attributes
    ----------
    point : Point
        The current weights, dual variables and intercepts.
    quad : ndarray of shape (m,)
        alpha'(dK/dd_k) alpha at `point`, for all m kernels: q_k(alpha) for a sum.
    evaluator : Evaluator
        What solved the single-kernel problems; it counts them.
    stuck : bool
        The solver cannot improve further; the loop stops and the certificate tells the rest.
    memory : object
        The solver's own numbers.
    witness : Witness, optional
        Dual variables that bound the optimum better than those of `point`.
    ended : str
        Why the solver will not go on, if its own plan is done.
    last_counts : bool
        The fit returns its last point, where others return the best one met.
    to_the_end : bool
        The fit goes on until `ended` or a limit, whatever the gap.
    """

    point: Point
    quad: Array
    evaluator: Any
    stuck: bool
    memory: Any
    witness: Witness | None = None
    ended: str = ""
    last_counts: bool = False
    to_the_end: bool = False

    @property
    def witness_alpha(self) -> Array | None:
        """The dual variables of the witness."""
        return None if self.witness is None else self.witness.alpha


class Solver(ABC):
    """Settings of an optimizer. Numbers live in the :class:`State`, so a solver can be reused.

    The loop (:func:`kernelweave.solvers.loop.run`) calls

    1. ``problem = solver.prepare(problem)`` once: the problem this solver really solves,
    2. ``state = solver.init(problem, start)`` once: the first point,
    3. ``state = solver.step(problem, state, gap, inner_gap)`` until the certificate or a limit
       says stop.

    A subclass sets `name` and is then known by it to every estimator.
    """

    name: ClassVar[str]
    # Whether steps solve problems at trial weights, so that first weights from some of the samples
    # and dropping kernels are worth their price.
    tries_weights: ClassVar[bool] = True
    # Whether cutting planes take over where steps lead nowhere though the gap is open: where T has
    # no gradient, a solver that goes by the slope of one alpha cannot go on by itself.
    hands_over: ClassVar[bool] = False
    # What `remember` returns: numbers that come from a file are checked by it.
    kept: ClassVar[Mapping[str, Kept]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "name" in cls.__dict__:
            SOLVERS[cls.name] = cls

    def prepare(self, problem: Problem) -> Problem:
        """Return the problem to solve and certify; raise if it is not one for this solver."""
        return problem

    def starts_coarse(self) -> bool:
        """Whether first weights may be learnt on some of the samples, where these are many."""
        return self.tries_weights

    @abstractmethod
    def init(self, problem: Problem, start: Point | None) -> State:
        """Return the first state, from `start` if there is one."""

    @abstractmethod
    def step(self, problem: Problem, state: State, gap: float, inner_gap: float) -> State:
        """Return the next state.

        `gap` is the relative duality gap at `state`, `inner_gap` the part of it that a more exact
        single-kernel solve at the same weights would close.
        """

    def remember(self, state: State) -> dict[str, Array]:
        """Return numbers of the solver's own that a checkpoint shall keep beside the point.

        `init` finds them in ``start.extra`` when the same solver takes up the same problem again.
        Asked at every record of a fit with checkpoints: hand out what is there, and only arrays
        that later steps leave as they are. What a file holds is checked by `kept` before.
        """
        return {}


def require_linear(name: str, problem: Problem) -> None:
    """Raise if the combination is not linear in the weights, for solvers that need it to be."""
    if not problem.combination.linear:
        raise InvalidInputError(
            f"solver {name!r} takes sums of kernels (combination='sum', or another one that is "
            f"linear in the weights); got the combination {problem.combination!r}. Use "
            "solver='spg' or 'auto'."
        )


# Which values a setting may have: what an error says of them, and whether a value is one.
_Allowed = tuple[str, Callable[[Any], bool]]
Metadata = Mapping[str, _Allowed]


def flag() -> Metadata:
    """True or False."""
    return {"allowed": ("True or False", lambda value: isinstance(value, bool | np.bool_))}


def integer(low: int, high: float = np.inf) -> Metadata:
    """Allow integers from `low` to `high`, both allowed themselves."""
    told = f"an integer >= {low}" if high == np.inf else f"an integer from {low} to {high}"

    def accepts(value: Any) -> bool:
        return isinstance(value, Integral) and type(value) is not bool and low <= int(value) <= high

    return {"allowed": (told, accepts)}


def number(**limits: float) -> Metadata:
    """Allow finite numbers > `above`, >= `least`, < `below` and <= `most`, those that are given."""
    told = " and ".join(f"{_LIMITS[name][0]} {limit:g}" for name, limit in limits.items())

    def accepts(value: Any) -> bool:
        if not isinstance(value, Real) or isinstance(value, bool) or not np.isfinite(float(value)):
            return False
        return all(_LIMITS[name][1](float(value), limit) for name, limit in limits.items())

    return {"allowed": (f"a finite number {told}", accepts)}


_LIMITS = {
    "above": (">", operator.gt),
    "least": (">=", operator.ge),
    "below": ("<", operator.lt),
    "most": ("<=", operator.le),
}


def choice(*names: str | None) -> Metadata:
    """Allow these names."""

    def accepts(value: Any) -> bool:
        return (value is None or isinstance(value, str)) and value in names

    return {"allowed": (" or ".join(map(repr, names)), accepts)}


def either(*declared: Metadata) -> Metadata:
    """Allow what any of these declarations allows."""
    told, accept = zip(*(one["allowed"] for one in declared), strict=True)
    return {"allowed": (" or ".join(told), lambda value: any(one(value) for one in accept))}


def other_solver() -> Metadata:
    """Allow None or another solver, whose own settings are checked with it."""
    told = "None or a solver object such as SPG()"
    return {"allowed": (told, lambda value: value is None or isinstance(value, Solver))}


def check_settings(solver: Solver) -> None:
    """Raise if a setting of the solver is not what its field declares to be allowed.

    Fields without a declaration are not looked at: a solver of the user's own need not have any.
    """
    if not is_dataclass(solver):
        return
    for setting in fields(solver):
        value = getattr(solver, setting.name)
        told, accepts = setting.metadata.get("allowed", ("", lambda _: True))
        if not accepts(value):
            owner = type(solver).__name__
            raise InvalidInputError(f"{owner}: {setting.name} must be {told}; got {value!r}.")
        if told and isinstance(value, Solver):
            check_settings(value)
