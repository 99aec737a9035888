"""The bars of a figure of kernel weights: length, reach of their error bars, colour."""

from __future__ import annotations

from typing import Any, NamedTuple

from kernelweave.describe.learnt import KernelWeight
from kernelweave.regularizers.groups import partition

__all__ = ["Bar", "group_colours", "weight_bars"]


class Bar(NamedTuple):
    """One bar.

    Attributes
    ----------
    left, right : float
        Where it begins and ends; a weight is a bar from 0.
    reach : float or None
        How far an error bar goes to each side of the weight, if there is one.
    low, high : float
        Ends of all that is drawn for the kernel, the weights of single classes included.
    colour, text : str
        Its colour, and the number written beside it.
    """

    left: float
    right: float
    reach: float | None
    low: float
    high: float
    colour: str
    text: str

    @property
    def doubtful(self) -> bool:
        """Whether the error bar reaches zero."""
        return self.reach is not None and abs(self.right) <= self.reach


def weight_bars(
    shown: list[KernelWeight], rest: list[KernelWeight], colours: list[str], grey: str
) -> list[Bar]:
    """Return a bar for each kernel shown and one for the rest.

    That of the rest is the sum of their weights. Where weights have standard deviations they may be
    negative too, and would cancel: then it reaches from the smallest to the largest.

    Examples
    --------
    >>> kernels = [KernelWeight("a", 0.5, (0.5,), 0, 0.1), KernelWeight("b", -0.1, (-0.1,), 1, 0.2)]
    >>> [(bar.right, bar.reach, bar.doubtful) for bar in weight_bars(kernels, [], ["b", "b"], "g")]
    [(0.5, 0.2, False), (-0.1, 0.4, True)]
    """
    bars = []
    for kernel in shown:
        reach = None if kernel.std is None else 2.0 * kernel.std
        ends = [
            0.0,
            *kernel.by_class,
            kernel.weight - (reach or 0.0),
            kernel.weight + (reach or 0.0),
        ]
        text, colour = f"{kernel.weight:.3f}", colours[kernel.place]
        bars.append(Bar(0.0, kernel.weight, reach, min(ends), max(ends), colour, text))
    if rest:
        weights = [kernel.weight for kernel in rest]
        left, right, text = 0.0, sum(weights), f"{sum(weights):.3f}"
        if rest[0].std is not None:
            left, right = min(weights), max(weights)
            text = f"{left:.3f} to {right:.3f}"
        bars.append(Bar(left, right, None, left, right, grey, text))
    return bars


def group_colours(
    groups: Any, names: list[str], palette: tuple[str, ...]
) -> tuple[list[str], dict[str, str]]:
    """Return the colour of every kernel, and that of every group; no groups: one colour.

    Examples
    --------
    >>> group_colours(["x", "y", "x"], ["a", "b", "c"], ("blue", "red"))
    (['blue', 'red', 'blue'], {'x': 'blue', 'y': 'red'})
    """
    if groups is None:
        return [palette[0]] * len(names), {}
    parts = partition(groups, len(names), names)
    by_group = [palette[g % len(palette)] for g in range(len(parts.names))]
    return [by_group[label] for label in parts.labels], dict(
        zip(parts.names, by_group, strict=True)
    )
