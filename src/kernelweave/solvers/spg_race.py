"""Which of two kinds of steps a descent takes: the one that has lately brought more."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

__all__ = ["Race"]

# Steps of one kind before the two are compared. Most fits are done by then, or nearly.
_ROUND = 50
# A kind is kept until its rate is below this part of what the other one last had.
_PATIENCE = 0.3


@dataclass(frozen=True)
class Race:
    """Takes steps of the first kind for a round, then of the second, then of the better one.

    The rate of a kind is how far the objective fell in a step of its last round. Rates fall as a
    fit goes on, so the kind that was given up has its turn again when the other one has come down
    to a third of what it had brought.

    All fields are numbers, for checkpoints.

    Attributes
    ----------
    second : float
        One while steps of the second kind are taken, else zero.
    taken : float
        Steps in this round.
    began : float
        Objective at its begin.
    rate, other : float
        Of the present kind and of the other one; infinite before their first rounds.

    Examples
    --------
    >>> race = Race(began=100.0)
    >>> for value in [*range(99, 49, -1), *range(48, -52, -2)]:
    ...     race = race.step(float(value))
    >>> race.second, race.rate, race.other
    (1.0, 2.0, 1.0)
    """

    began: float
    second: float = 0.0
    taken: float = 0.0
    rate: float = np.inf
    other: float = np.inf

    def step(self, value: float) -> Race:
        """One more step was taken, to this objective."""
        taken = self.taken + 1.0
        if taken < _ROUND:
            return replace(self, taken=taken)
        rate = (self.began - value) / taken
        if _PATIENCE * self.other > rate:
            return Race(value, 1.0 - self.second, 0.0, self.other, rate)
        return Race(value, self.second, 0.0, rate, self.other)
