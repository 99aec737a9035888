"""When a fit has to end, for everything that takes long inside one step of a solver."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

# Seconds after the deadline in which a pass over the kernels may still end a step; the last
# certificate has as many more.
GRACE = 0.4


class TimeUp(Exception):
    """The time of a fit is over; the loop ends it with the best point so far."""


@dataclass(frozen=True)
class Deadline:
    """A moment, and the clock by which it passes; `stop` ends the time whatever the clock says.

    What can return what it has so far asks `passed` and does so. What cannot, or has nothing yet
    that is better than the last step's, calls `check`.
    """

    at: float
    clock: Callable[[], float] = time.perf_counter
    stop: Callable[[], bool] | None = None

    @classmethod
    def after(
        cls, seconds: float | None, start: float, stop: Callable[[], bool] | None = None
    ) -> Deadline:
        """Return the deadline so many seconds after `start`, by `time.perf_counter`."""
        if seconds is None:
            return NEVER if stop is None else cls(math.inf, stop=stop)
        return cls(start + seconds, stop=stop)

    def passed(self) -> bool:
        """Whether the time is over."""
        if self.stop is not None and self.stop():
            return True
        return self.at < math.inf and self.clock() >= self.at

    def later(self, seconds: float) -> Deadline:
        """Return the deadline so many seconds later."""
        return NEVER if self is NEVER else Deadline(self.at + seconds, self.clock, self.stop)

    def check(self) -> None:
        """Raise `TimeUp` if the time is over."""
        if (self.stop is not None or self.at < math.inf) and self.passed():
            raise TimeUp

    def look(self, graces: int = 1) -> Callable[[], None]:
        """Return what ends a pass over the kernels, so many times `GRACE` after the deadline.

        It is for :func:`~kernelweave.compiled.threads.between_blocks`. By another clock than the
        usual one nobody can tell how long a block takes: there no pass is ended.
        """
        usual = self.clock is time.perf_counter
        return (self.later(graces * GRACE) if usual else NEVER).check


NEVER = Deadline(math.inf)
