"""Weighted degree kernels and their parts by their sequences, without a matrix."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from kernelweave.compiled.blocks import MIRROR_ROWS
from kernelweave.compiled.matrix_checks import mirror_rows
from kernelweave.compiled.threads import map_blocks
from kernelweave.errors import InvalidInputError
from kernelweave.kernels.scaled_factor import Scaling
from kernelweave.kernels.strings.positions import PositionalFactor, PositionWeights
from kernelweave.kernels.strings.sequences import Aligned
from kernelweave.operators.base import (
    Array,
    KernelOperator,
    Kind,
    Which,
    as_tasks,
    kernel_indices,
    round_size_of,
)

__all__ = ["SequenceOperator"]


@dataclass(frozen=True, eq=False)
class _Group:
    """Kernels that one walk serves: the same sequences, degree and shift, windows apart."""

    aligned: Aligned
    shift: int
    steps: Array  # The weight of each length; ones if lengths are kept apart.
    by_length: bool
    scale: Array  # Shape (n,), or () if all are one.

    def at(self, idx: Any) -> Array:
        return self.scale[idx] if self.scale.ndim else self.scale

    def apart(self, parts: Sequence[_Part]) -> tuple[PositionWeights, list[int]]:
        """Weights that keep windows (and lengths) apart, and the window of each part."""
        number: dict[tuple[int, int], int] = {}
        windows = [number.setdefault(part.window, len(number)) for part in parts]
        terms = [(window, self.steps) for window in number]
        weights = PositionWeights.of(self.shift, self.aligned.length, terms, self.by_length)
        return weights, windows


@dataclass(frozen=True, eq=False)
class _Part:
    """One kernel: where its values come from, and what normalises them."""

    group: int
    window: tuple[int, int]
    steps: Array
    lengths: tuple[int, int] | None
    factor: float  # The square of a scale that is the same for all samples; else that of the group.
    scaling: Scaling  # Without the scale.
    diagonal: Array  # Shape (n,), or () if all are equal.

    def of_rows(self, rows: Array) -> Array:
        """The kernel's values among those of its window, (lengths, ...)."""
        first, last = (1, 1) if self.lengths is None else self.lengths
        return self.factor * rows[first - 1 : last].sum(axis=0)


def _compact(given: Array) -> Array:
    """One number if all are equal."""
    return given[0].copy() if given.ndim and np.all(given == given[0]) else given


class SequenceOperator(KernelOperator):
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

    def __init__(self, factors: Sequence[PositionalFactor], names: Sequence[str]) -> None:
        self._groups: list[_Group] = []
        self._parts: list[_Part] = []
        windows: list[set[tuple[int, int]]] = []  # Of each group.
        alike: dict[Any, list[int]] = {}
        for factor in factors:
            scale, square = _compact(factor.scaling.scale), 1.0
            if not scale.ndim:
                scale, square = np.ones(()), float(scale) ** 2
            by_length = factor.lengths is not None
            steps = np.ones_like(factor.steps) if by_length else factor.steps
            own = _Group(factor.aligned, factor.shift, steps, by_length, scale)
            key = id(own.aligned), own.shift, by_length, steps.tobytes(), scale.tobytes()
            for group in alike.setdefault(key, []):
                if factor.window in windows[group] or not _overlap(factor.window, windows[group]):
                    break
            else:
                group = len(self._groups)
                self._groups.append(own)
                windows.append(set())
                alike[key].append(group)
            windows[group].add(factor.window)
            kernel = group, factor.window, factor.steps, factor.lengths, square
            bare = replace(factor.scaling, scale=np.ones(()))
            self._parts.append(_Part(*kernel, bare, _compact(factor.diagonal())))
        self.names = tuple(names)
        self.n, self.m = factors[0].aligned.n, len(self._parts)
        self.round_size = round_size_of(self.n)

    @classmethod
    def of(cls, kernels: KernelOperator) -> SequenceOperator:
        """Return kernels by their sequences; all must compare some."""
        factors = []
        for k in range(kernels.m):
            factor = kernels.positional_factor(k)
            if factor is None:
                raise InvalidInputError(
                    f"kernel '{kernels.names[k]}' does not compare aligned sequences, which "
                    f"bank='positional' needs. Allowed are WeightedDegree, its parts, and these "
                    f"on a column; bank='auto' keeps these so and the others in another way."
                )
            factors.append(factor)
        return cls(factors, kernels.names)

    @property
    def nbytes(self) -> int:
        """Bytes of the sequences and of what normalises the kernels."""
        sequences = {id(group.aligned): group.aligned.nbytes for group in self._groups}
        beside = sum(part.scaling.nbytes + part.diagonal.nbytes for part in self._parts)
        return sum(sequences.values()) + sum(group.scale.nbytes for group in self._groups) + beside

    def _by_group(self, chosen: Array) -> Iterator[tuple[_Group, list[int], list[_Part]]]:
        """Yield the groups that are needed, with the places of their kernels among the chosen."""
        for number, group in enumerate(self._groups):
            places = [i for i, k in enumerate(chosen) if self._parts[k].group == number]
            if places:
                yield group, places, [self._parts[chosen[i]] for i in places]

    # Products

    def apply(self, v: Array, kernels: Which = None, rows: Which = None) -> Array:
        chosen, tasks = kernel_indices(kernels, self.m), as_tasks(v)
        here: Any = slice(None) if rows is None else np.asarray(rows, dtype=np.int64)
        out = np.empty((len(chosen), len(tasks), self.n if rows is None else len(here)))
        for group, places, parts in self._by_group(chosen):
            weights, windows = group.apart(parts)
            new = group.aligned if rows is None else group.aligned[here]
            for t, task in enumerate(tasks):
                found = weights.products(new, group.aligned, task * group.scale)
                for i, part, window in zip(places, parts, windows, strict=True):
                    out[i, t] = part.of_rows(found[window]) * group.at(here)
                    if part.scaling.takes_off:
                        out[i, t] -= part.scaling.off_product(task, here)
        return out if np.ndim(v) == 2 else out[:, 0]

    # Values between samples

    def block(
        self, rows: Which = None, columns: Which = None, kernels: Which = None, dtype: Kind = None
    ) -> Array:
        chosen = kernel_indices(kernels, self.m)
        left = np.arange(self.n) if rows is None else np.asarray(rows, dtype=np.int64)
        right = np.arange(self.n) if columns is None else np.asarray(columns, dtype=np.int64)
        out = np.empty((len(chosen), len(left), len(right)), np.float64 if dtype is None else dtype)
        for group, places, parts in self._by_group(chosen):
            weights, windows = group.apart(parts)
            theirs = group.aligned if columns is None else group.aligned[right]
            values = weights.rows_of_pairs(group.aligned[left], theirs)
            if group.scale.ndim:
                values *= group.scale[left][:, None] * group.scale[right]
            for i, part, window in zip(places, parts, windows, strict=True):
                out[i] = part.of_rows(values[window])
                if part.scaling.takes_off:
                    out[i] -= part.scaling.off_block(left, right)
        return out

    def weighted(
        self, d: ArrayLike, rows: Which = None, columns: Which = None, out: Array | None = None
    ) -> Array:
        """See :class:`KernelOperator`; of a square only one side of the diagonal is computed."""
        left = np.arange(self.n) if rows is None else np.asarray(rows, dtype=np.int64)
        right = np.arange(self.n) if columns is None else np.asarray(columns, dtype=np.int64)
        square = np.array_equal(left, right)
        given = np.asarray(d, dtype=float)
        active = np.flatnonzero(given)
        total = self._sum_memory(len(left), len(right))
        total[...] = 0.0
        for group, places, parts in self._by_group(active):
            factors = given[active[places]]
            terms = [
                (part.window, factor * part.factor * part.steps)
                for part, factor in zip(parts, factors, strict=True)
            ]
            weights = PositionWeights.of(group.shift, group.aligned.length, terms)
            mine = group.aligned[left]
            theirs = mine if square else group.aligned[right]
            target = np.zeros_like(total) if group.scale.ndim else total
            weights.add_pairs(mine, theirs, target, lower=square)
            if group.scale.ndim:
                total += target * group.scale[left][:, None] * group.scale[right]
        if square:
            # The lower half was computed, the upper one is copied.
            work = float(total.size)
            map_blocks(lambda a, b: mirror_rows(total, a, b), len(total), MIRROR_ROWS, work)
        for k in active:
            if self._parts[k].scaling.takes_off:
                total -= given[k] * self._parts[k].scaling.off_block(left, right)
        if out is None:
            return total
        out[...] = total
        return out

    def diagonal(self, kernels: Which = None) -> Array:
        chosen = kernel_indices(kernels, self.m)
        out = np.empty((len(chosen), self.n))
        for i, k in enumerate(chosen):
            out[i] = self._parts[k].diagonal
        return out

    def take(self, idx: Array) -> SequenceOperator:
        idx = np.asarray(idx, dtype=np.int64)
        return self._but(
            n=len(idx),
            round_size=round_size_of(len(idx)),
            _groups=[
                replace(group, aligned=group.aligned[idx], scale=group.at(idx))
                for group in self._groups
            ],
            _parts=[
                replace(
                    part,
                    scaling=part.scaling.take(idx),
                    diagonal=part.diagonal[idx] if part.diagonal.ndim else part.diagonal,
                )
                for part in self._parts
            ],
        )

    def select(self, kernels: Array) -> SequenceOperator:
        return self._but(
            m=len(kernels),
            names=[self.names[k] for k in kernels],
            _parts=[self._parts[k] for k in kernels],
        )


def _overlap(window: tuple[int, int], others: set[tuple[int, int]]) -> bool:
    """Whether a window has a position in common with any of the others."""
    start, stop = window
    return any(first < stop and start < last for first, last in others)
