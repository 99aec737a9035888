"""Weighted degree kernels and their parts by their sequences, without a matrix."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from kernelweave.arrays import Array
from kernelweave.kernels.strings.positions import PositionalFactor, PositionWeights
from kernelweave.operators.base import kernel_indices
from kernelweave.operators.thin import ThinOperator


class SequenceOperator(ThinOperator):
    r"""Weighted degree kernels and their parts by the sequences themselves, exact.

    A product goes through tries of the k-mers at each position ("linadd", Sonnenburg et al. 2006,
    algorithm 3): the sequences where v is not zero are put in, all are looked up. That takes
    O(L) steps a sequence, however many kernels share a walk: the lengths and positions of one
    weighted degree kernel do. No matrix and no row of one is kept; memory is some L letters a
    sample. Blocks between few samples are computed pair by pair, 64 positions at a time.

    Parameters
    ----------
    factors : sequence of PositionalFactor
        The kernels, normalised.
    names : sequence of str
        Their names.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.kernels import WeightedDegree
    >>> from kernelweave.operators import ComputedOperator
    >>> lengths = WeightedDegree(2).by_length()
    >>> kernels = ComputedOperator.build(lengths, ["ACGT", "ACCT"], normalize=None)
    >>> SequenceOperator.of(kernels).apply(np.array([1.0, 0.0]))
    array([[4., 3.],
           [3., 1.]])
    """

    _factor = PositionalFactor
    _needs = (
        "does not compare aligned sequences, which bank='positional' needs. Allowed are "
        "WeightedDegree, its parts, and these on a column; bank='auto' keeps these so and the "
        "others in another way."
    )

    def __init__(self, factors: Sequence[PositionalFactor], names: Sequence[str]) -> None:
        super().__init__(factors, names)
        # One walk serves the kernels of a group: alike but for their windows, which do not overlap.
        windows: list[set[tuple[int, int]]] = []
        alike: dict[Any, list[int]] = {}
        self._group = np.empty(self.m, np.int64)
        for k, factor in enumerate(factors):
            for group in alike.setdefault(factor.walk_key, []):
                if factor.window in windows[group] or not _overlap(factor.window, windows[group]):
                    break
            else:
                group = len(windows)
                windows.append(set())
                alike[factor.walk_key].append(group)
            windows[group].add(factor.window)
            self._group[k] = group

    def _by_group(self, chosen: Array) -> Iterator[tuple[Array, list[PositionalFactor]]]:
        """Yield the groups that are needed: places among the chosen, and the kernels."""
        groups = self._group[chosen]
        for group in np.unique(groups):
            places = np.flatnonzero(groups == group)
            yield places, [self._kernels[chosen[i]] for i in places]

    def _products(self, tasks: Array, chosen: Array, here: Any, out: Array) -> None:
        for places, some in self._by_group(chosen):
            weights, windows = _apart(some)
            known, side = some[0].aligned, some[0].side
            new = known[here]
            for t, task in enumerate(tasks):
                found = weights.products(new, known, task * side())
                for i, kernel, window in zip(places, some, windows, strict=True):
                    out[i, t] = kernel.among(found[window]) * side(here)

    def _values(self, chosen: Array, left: Any, right: Any, out: Array) -> None:
        for places, some in self._by_group(chosen):
            weights, windows = _apart(some)
            aligned, side = some[0].aligned, some[0].side
            values = weights.rows_of_pairs(aligned[left], aligned[right])
            if side().ndim:
                values *= side(left)[:, None] * side(right)
            for i, kernel, window in zip(places, some, windows, strict=True):
                out[i] = kernel.among(values[window])

    def _add_sum(
        self, d: Array, active: Array, left: Any, right: Any, lower: bool, out: Array
    ) -> None:
        for places, some in self._by_group(active):
            terms = [
                (kernel.window, factor * kernel.square * kernel.steps)
                for kernel, factor in zip(some, d[active[places]], strict=True)
            ]
            aligned, side = some[0].aligned, some[0].side
            weights = PositionWeights.of(some[0].shift, aligned.length, terms)
            mine = aligned[left]
            target = np.zeros_like(out) if side().ndim else out
            weights.add_pairs(mine, mine if lower else aligned[right], target, lower=lower)
            if side().ndim:
                out += target * side(left)[:, None] * side(right)

    def select(self, kernels: Array) -> SequenceOperator:
        return super().select(kernels)._but(_group=self._group[kernel_indices(kernels, self.m)])


def _apart(some: Sequence[PositionalFactor]) -> tuple[PositionWeights, list[int]]:
    """Weights that keep the windows (and lengths) of one group apart, and the window of each."""
    first, number = some[0], dict[tuple[int, int], int]()
    windows = [number.setdefault(kernel.window, len(number)) for kernel in some]
    steps = np.max([kernel.steps for kernel in some], axis=0)
    terms = [(window, steps) for window in number]
    weights = PositionWeights.of(first.shift, first.aligned.length, terms, first.by_length)
    return weights, windows


def _overlap(window: tuple[int, int], others: set[tuple[int, int]]) -> bool:
    """Whether a window has a position in common with any of the others."""
    start, stop = window
    return any(first < stop and start < last for first, last in others)
