"""Weighted degree kernels and their parts by their sequences, without a matrix."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from kernelweave.compiled.blocks import MIRROR_ROWS
from kernelweave.compiled.matrix_checks import mirror_rows
from kernelweave.compiled.threads import map_blocks
from kernelweave.errors import InvalidInputError
from kernelweave.kernels.strings.aligned import Aligned
from kernelweave.kernels.strings.position_weights import PositionWeights
from kernelweave.kernels.strings.positional_factor import PositionalFactor
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
class _Part:
    """One kernel: where its values come from, and what normalises them."""

    group: int
    window: int
    lengths: tuple[int, int] | None
    factor: float
    left: Array
    right: Array
    diagonal: Array  # Shape (n,), or () if all are equal.

    def of_rows(self, rows: Array) -> Array:
        """The kernel's values among those of its group, (windows, lengths, ...)."""
        if self.lengths is None:
            return self.factor * rows[self.window, 0]
        first, last = self.lengths
        return self.factor * rows[self.window, first - 1 : last].sum(axis=0)

    def take(self, idx: Array) -> _Part:
        return replace(
            self,
            left=np.ascontiguousarray(self.left[:, idx]),
            right=np.ascontiguousarray(self.right[:, idx]),
            diagonal=self.diagonal[idx] if self.diagonal.ndim else self.diagonal,
        )


@dataclass(frozen=True, eq=False)
class _Group:
    """Kernels that one walk serves: the same sequences, degree and shift, windows apart."""

    aligned: Aligned
    bits: int
    shift: int
    length_weights: Array  # Of each k-mer length; None of them are used by length.
    by_length: bool
    scale: Array  # Shape (n,), or () if all are one.
    windows: dict[tuple[int, int], int] = field(default_factory=dict)

    def accepts(self, factor: PositionalFactor, scale: Array) -> bool:
        """Whether a kernel can join, as far as all but its window is concerned."""
        weights = factor.weights
        return (
            self.aligned is factor.aligned
            and (self.bits, self.shift) == (weights.bits, weights.shift)
            and self.by_length == (factor.lengths is not None)
            and len(self.length_weights) == weights.degree
            and (self.by_length or np.array_equal(self.length_weights, _length_weights(factor)))
            and np.array_equal(self.scale, scale)
        )

    def place(self, window: tuple[int, int]) -> int | None:
        """The number of a window, a new one if it overlaps none; None if it overlaps one."""
        known = self.windows.get(window)
        if known is None:
            start, stop = window
            if any(a < stop and start < b for a, b in self.windows):
                return None
            known = self.windows[window] = len(self.windows)
        return known

    def window_of(self, chosen: set[int]) -> Array:
        """The window of each position; -1 where it is not among the chosen ones."""
        out = np.full(self.aligned.length, -1, np.int64)
        for (start, stop), number in self.windows.items():
            if number in chosen:
                out[start:stop] = number
        return out

    def apart(self, chosen: set[int]) -> PositionWeights:
        """Weights that keep windows (and lengths) apart."""
        steps = np.tile(self.length_weights, (self.aligned.length, 1))
        window_of = self.window_of(chosen)
        return PositionWeights(self.bits, self.shift, steps, window_of, self.by_length)

    def together(self, parts: Sequence[tuple[_Part, float]]) -> PositionWeights:
        """Weights of a sum of kernels, each with its weight."""
        steps = np.zeros((self.aligned.length, len(self.length_weights)))
        ranges = {number: window for window, number in self.windows.items()}
        for part, weight in parts:
            here = slice(*ranges[part.window])
            if part.lengths is None:
                steps[here] += weight * part.factor * self.length_weights
            else:
                steps[here, part.lengths[0] - 1 : part.lengths[1]] += weight * part.factor
        window_of = self.window_of({part.window for part, _ in parts})
        return PositionWeights(self.bits, self.shift, steps, window_of)

    def take(self, idx: Array) -> _Group:
        scale = self.scale[idx] if self.scale.ndim else self.scale
        return replace(self, aligned=self.aligned[idx], scale=scale)


def _length_weights(factor: PositionalFactor) -> Array:
    return factor.weights.steps[factor.window[0]]


def _compact(given: Array | float) -> Array:
    """One number if all are equal."""
    values = np.asarray(given)
    return values[0].copy() if values.ndim and np.all(values == values[0]) else values


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
        for factor in factors:
            scale, square = _compact(factor.scale), 1.0
            if not scale.ndim:
                scale, square = np.ones(()), float(scale) ** 2
            where = _join(self._groups, factor, scale)
            beside = factor.left, factor.right, _compact(factor.diagonal())
            self._parts.append(_Part(*where, factor.lengths, square, *beside))
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
        sequences = {id(group.aligned): group.aligned for group in self._groups}
        beside = [a for part in self._parts for a in (part.left, part.right, part.diagonal)]
        beside += [group.scale for group in self._groups]
        return sum(own.nbytes for own in sequences.values()) + sum(a.nbytes for a in beside)

    def _by_group(self, chosen: Array) -> Iterator[tuple[_Group, list[int]]]:
        """Yield the groups that are needed, with the places of their kernels among the chosen."""
        for number, group in enumerate(self._groups):
            places = [i for i, k in enumerate(chosen) if self._parts[k].group == number]
            if places:
                yield group, places

    # Products

    def apply(self, v: Array, kernels: Which = None, rows: Which = None) -> Array:
        chosen, idx = kernel_indices(kernels, self.m), rows
        tasks = as_tasks(v)
        here: Any = slice(None) if idx is None else np.asarray(idx, dtype=np.int64)
        out = np.empty((len(chosen), len(tasks), self.n if idx is None else len(here)))
        for group, places in self._by_group(chosen):
            parts = [self._parts[chosen[i]] for i in places]
            weights = group.apart({part.window for part in parts})
            new = group.aligned if idx is None else group.aligned[here]
            scale = group.scale[here] if group.scale.ndim else group.scale
            for t, task in enumerate(tasks):
                found = weights.products(new, group.aligned, task * group.scale)
                for i, part in zip(places, parts, strict=True):
                    value = part.of_rows(found) * scale
                    if len(part.left):
                        value -= (part.left @ task) @ part.right[:, here]
                        value -= (part.right @ task) @ part.left[:, here]
                    out[i, t] = value
        return out if np.ndim(v) == 2 else out[:, 0]

    def quad(self, v: Array, kernels: Which = None) -> Array:
        tasks = as_tasks(v)
        support = np.flatnonzero(tasks.any(axis=0))
        values = self.apply(tasks, kernels, support)
        # A sum of squares of features: anything below zero is rounding.
        return np.maximum(np.einsum("ktn,tn->k", values, tasks[:, support]), 0.0)

    # Values between samples

    def block(
        self, rows: Which = None, columns: Which = None, kernels: Which = None, dtype: Kind = None
    ) -> Array:
        chosen = kernel_indices(kernels, self.m)
        left = np.arange(self.n) if rows is None else np.asarray(rows, dtype=np.int64)
        right = np.arange(self.n) if columns is None else np.asarray(columns, dtype=np.int64)
        out = np.empty((len(chosen), len(left), len(right)), np.float64 if dtype is None else dtype)
        for group, places in self._by_group(chosen):
            parts = [self._parts[chosen[i]] for i in places]
            weights = group.apart({part.window for part in parts})
            theirs = group.aligned if columns is None else group.aligned[right]
            values = weights.rows_of_pairs(group.aligned[left], theirs)
            if group.scale.ndim:
                values *= group.scale[left][:, None] * group.scale[right]
            for i, part in zip(places, parts, strict=True):
                out[i] = part.of_rows(values)
                if len(part.left):
                    out[i] -= _taken_off(part, left, right)
        return out

    def _add_combined(self, d: Array, left: Array, right: Array | None, out: Array) -> None:
        """out += sum_k d_k K_k[left][:, right]; None: against the same, and `out` is zero."""
        active = np.flatnonzero(d)
        columns = left if right is None else right
        for group, places in self._by_group(active):
            parts = [(self._parts[active[i]], float(d[active[i]])) for i in places]
            mine = group.aligned[left]
            theirs = mine if right is None else group.aligned[right]
            target = np.zeros_like(out) if group.scale.ndim else out
            group.together(parts).add_pairs(mine, theirs, target, lower=right is None)
            if group.scale.ndim:
                out += target * group.scale[left][:, None] * group.scale[columns]
        if right is None:
            # The lower half was computed, the upper one is copied.
            map_blocks(lambda a, b: mirror_rows(out, a, b), len(out), MIRROR_ROWS, float(out.size))
        for k in active:
            if len(self._parts[k].left):
                out -= d[k] * _taken_off(self._parts[k], left, columns)

    def weighted(
        self, d: ArrayLike, rows: Which = None, columns: Which = None, out: Array | None = None
    ) -> Array:
        """See :class:`KernelOperator`; of a square only one side of the diagonal is computed."""
        idx = np.arange(self.n) if rows is None else np.asarray(rows, dtype=np.int64)
        right = np.arange(self.n) if columns is None else np.asarray(columns, dtype=np.int64)
        square = len(idx) == len(right) and np.array_equal(idx, right)
        total = self._sum_memory(len(idx), len(right))
        total[...] = 0.0
        self._add_combined(np.asarray(d, dtype=float), idx, None if square else right, total)
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
            _groups=[group.take(idx) for group in self._groups],
            _parts=[part.take(idx) for part in self._parts],
        )

    def select(self, kernels: Array) -> SequenceOperator:
        return self._but(
            m=len(kernels),
            names=[self.names[k] for k in kernels],
            _parts=[self._parts[k] for k in kernels],
        )


def _join(groups: list[_Group], factor: PositionalFactor, scale: Array) -> tuple[int, int]:
    """Put a kernel into a group, a new one if need be: its number, and that of the window."""
    for number, group in enumerate(groups):
        if group.accepts(factor, scale) and (at := group.place(factor.window)) is not None:
            return number, at
    weights, by_length = factor.weights, factor.lengths is not None
    own = np.ones(weights.degree) if by_length else _length_weights(factor)
    groups.append(_Group(factor.aligned, weights.bits, weights.shift, own, by_length, scale))
    groups[-1].windows[factor.window] = 0
    return len(groups) - 1, 0


def _taken_off(part: _Part, rows: Array, columns: Array) -> Array:
    """What centring takes off a block of values."""
    left, right = part.left, part.right
    return left[:, rows].T @ right[:, columns] + right[:, rows].T @ left[:, columns]
