"""Kernel weights of many refits beside those of one fit: how often, how much, how far apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from kernelweave.arrays import Array, Flags, Index
from kernelweave.cached import cached_property
from kernelweave.errors import InvalidInputError
from kernelweave.inspect.tables import table_of, text_table
from kernelweave.validation import positive_number

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LISTED = 10


def check_level(level: Any) -> float:
    """Return the level of an interval as a float, or raise if it is none."""
    number = isinstance(level, Real) and not isinstance(level, bool)
    if number and 0.0 < float(level) < 1.0:
        return float(level)
    raise InvalidInputError(f"level must be a number between 0 and 1, such as 0.95; got {level!r}.")


@dataclass(frozen=True, repr=False, eq=False)
class Stability:
    r"""Kernel weights over replicates of the rows, as :func:`kernelweave.stability` returns them.

    With :math:`d^{(b)}` the weights of replicate b of B and t the threshold, kernel k has

    .. math:: \text{frequency}_k = \frac1B \sum_b [\,|d^{(b)}_k| > t\,], \qquad
              \text{mean}_k = \frac1B \sum_b d^{(b)}_k,

    and an interval between the :math:`(1 - \text{level}) / 2` and :math:`(1 + \text{level}) / 2`
    quantiles of :math:`d^{(1)}_k, \dots, d^{(B)}_k` (Efron and Tibshirani 1993, section 13.3).
    ``dataclasses.replace(result, level=0.5)`` gives other intervals without a fit.

    Attributes
    ----------
    names : sequence of str
        The m kernels, as the fit on all rows calls them.
    weights : ndarray of shape (m,)
        Their weights in the fit on all rows (the mean, if each class has its own).
    replicates : ndarray of shape (n_bootstrap, m)
        Their weights in every replicate.
    level : float
        Share of the replicates inside an interval.
    threshold : float
        A kernel is selected where its weight is larger than this.
    sampling : {"bootstrap", "subsample"}
        How the rows were drawn.
    matched_by : {"name", "position"}
        How the kernels of the replicates were found again.
    n_unconverged : int
        How many replicates did not reach the tolerance.
    title : str
        What was fitted.

    Examples
    --------
    >>> import numpy as np
    >>> weights = np.array([[0.7, 0.3], [0.9, 0.1], [1.0, 0.0]])
    >>> result = Stability(["a", "b"], np.array([0.8, 0.2]), weights)
    >>> result.frequency.round(2)
    array([1.  , 0.67])
    >>> print(result)
    3 bootstrap replicates
      1 of 2 kernels selected (weight > 0) in 90 % of them or more
        selected  weight    mean     95 % interval  kernel
           100 %  0.8000  0.8667  0.7100 to 0.9950  a
            67 %  0.2000  0.1333  0.0050 to 0.2900  b
    """

    # The share of the replicates from which on a kernel counts as found again.
    often: ClassVar[float] = 0.9

    names: Sequence[str]
    weights: Array
    replicates: Array
    level: float = 0.95
    threshold: float = 0.0
    sampling: str = "bootstrap"
    matched_by: str = "name"
    n_unconverged: int = 0
    title: str = ""

    def __post_init__(self) -> None:
        check_level(self.level)
        positive_number("threshold", self.threshold, allow_zero=True)

    @property
    def n_bootstrap(self) -> int:
        """Number of replicates."""
        return len(self.replicates)

    @cached_property
    def frequency(self) -> Array:
        """Share of the replicates in which each kernel is selected, shape (m,)."""
        return self.selected(self.replicates).mean(axis=0)

    @cached_property
    def mean(self) -> Array:
        """Mean weight over the replicates, shape (m,)."""
        return self.replicates.mean(axis=0)

    @property
    def low(self) -> Array:
        """Lower ends of the intervals, shape (m,)."""
        return self._ends[0]

    @property
    def high(self) -> Array:
        """Upper ends of the intervals, shape (m,)."""
        return self._ends[1]

    @cached_property
    def _ends(self) -> Array:
        return self.interval(self.replicates)

    def selected(self, weights: Array) -> Flags:
        """Return which of these weights count as selected."""
        return np.abs(weights) > self.threshold

    def interval(self, values: Array) -> Array:
        """Return the lower and upper ends of the intervals of the columns of `values`."""
        outside = 0.5 * (1.0 - self.level)
        return np.quantile(values, [outside, 1.0 - outside], axis=0)

    @cached_property
    def ranked(self) -> Index:
        """Kernels that had a weight in any fit, the largest mean first."""
        order = np.argsort(-np.abs(self.mean), kind="stable")
        used = self.weights.astype(bool) | self.replicates.any(axis=0)
        return order[used[order]]

    def to_frame(self) -> Any:
        """Return a table with one row for each kernel, in the order of `names`.

        Its columns are weight, mean, low, high and frequency. A pandas DataFrame where pandas is
        installed, otherwise a polars one.
        """
        columns = {"kernel": list(self.names), "weight": self.weights, "mean": self.mean}
        columns |= {"low": self.low, "high": self.high, "frequency": self.frequency}
        return table_of(columns, ["kernel"])

    def plot(self, ax: Axes | None = None, top: int = 20) -> Axes:
        """Draw the weights with their intervals, and how often each kernel was selected.

        See :func:`kernelweave.plot.stability`.
        """
        from kernelweave import plot

        return plot.stability(self, ax=ax, top=top)

    def __repr__(self) -> str:
        of = f" of {self.title}" if self.title else ""
        sure = int(np.count_nonzero(self.frequency >= self.often))
        lines = [
            f"{self.n_bootstrap} {self.sampling} replicates{of}",
            f"  {sure} of {len(self.names)} kernels selected (weight > {self.threshold:g}) in "
            f"{100 * self.often:g} % of them or more",
        ]
        if self.n_unconverged:
            lines.append(f"  {self.n_unconverged} replicates did not reach the tolerance")
        if self.matched_by == "position":
            lines.append("  kernels matched by position: numbers in their names change")
        heads = ["selected", "weight", "mean", f"{100 * self.level:g} % interval", "kernel"]
        rows = [
            [
                f"{100 * self.frequency[k]:.0f} %",
                f"{self.weights[k]:.4f}",
                f"{self.mean[k]:.4f}",
                f"{self.low[k]:.4f} to {self.high[k]:.4f}",
                self.names[k],
            ]
            for k in self.ranked[:_LISTED]
        ]
        more = len(self.ranked) - _LISTED
        return "\n".join(
            lines + text_table(heads, rows, [4], more, " with a weight in some fit", "    ")
        )
