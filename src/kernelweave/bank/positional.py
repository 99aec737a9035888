"""A bank of weighted degree kernels and their parts: sequences, and no matrix."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from kernelweave.bank.memory import require_bytes
from kernelweave.bank.protocol import (
    Array,
    ErrorBound,
    KernelBank,
    as_tasks,
    kernel_indices,
    round_size_of,
)
from kernelweave.bank.source import Source
from kernelweave.compiled.symmetry import mirror_rows
from kernelweave.compiled.threads import map_blocks
from kernelweave.errors import InvalidInputError
from kernelweave.kernels.strings.position_weights import PositionWeights
from kernelweave.kernels.strings.positional_factor import PositionalFactor
from kernelweave.kernels.strings.strands import Strands

__all__ = ["PositionalBank"]

# Rows that a thread mirrors at a time.
_MIRROR = 64


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

    strands: Strands
    bits: int
    shift: int
    length_weights: Array  # Of each k-mer length; None of them are used by length.
    by_length: bool
    scale: Array  # Shape (n,), or () if all are one.
    windows: dict[tuple[int, int], int] = field(default_factory=dict)

    def accepts(self, factor: PositionalFactor, scale: Array) -> bool:
        """Whether a kernel can join, as far as all but its window is concerned."""
        weights = factor.weights
        mine, theirs = self.strands.strands, factor.strands.strands
        return (
            len(mine) == len(theirs)
            and all(a.letters is b.letters for a, b in zip(mine, theirs, strict=True))
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
        out = np.full(self.strands.length, -1, np.int64)
        for (start, stop), number in self.windows.items():
            if number in chosen:
                out[start:stop] = number
        return out

    def apart(self, chosen: set[int]) -> PositionWeights:
        """Weights that keep windows (and lengths) apart."""
        steps = np.tile(self.length_weights, (self.strands.length, 1))
        window_of = self.window_of(chosen)
        return PositionWeights(self.bits, self.shift, steps, window_of, self.by_length)

    def together(self, parts: Sequence[tuple[_Part, float]]) -> PositionWeights:
        """Weights of a sum of kernels, each with its weight."""
        steps = np.zeros((self.strands.length, len(self.length_weights)))
        ranges = {number: window for window, number in self.windows.items()}
        for part, weight in parts:
            here = slice(*ranges[part.window])
            if part.lengths is None:
                steps[here] += weight * part.factor * self.length_weights
            else:
                steps[here, part.lengths[0] - 1 : part.lengths[1]] += weight * part.factor
        window_of = self.window_of({part.window for part, _ in parts})
        return PositionWeights(self.bits, self.shift, steps, window_of)

    def scaled(self, v: Array) -> Array:
        return v * self.scale

    def take(self, idx: Array) -> _Group:
        scale = self.scale[idx] if self.scale.ndim else self.scale
        return replace(self, strands=self.strands[idx], scale=scale)


def _length_weights(factor: PositionalFactor) -> Array:
    return factor.weights.steps[factor.window[0]]


def _compact(given: Array | float) -> Array:
    """One number if all are equal."""
    values = np.asarray(given)
    return values[0].copy() if values.ndim and np.all(values == values[0]) else values


class PositionalBank(KernelBank):
    r"""Weighted degree kernels and their parts by the sequences themselves, exact.

    A product goes through tries of the k-mers at each position ("linadd", Sonnenburg et al. 2006,
    algorithm 3): the sequences where v is not zero are put in, all are looked up. That takes
    O(L) steps a sequence, however many kernels share a walk: the lengths and positions of one
    weighted degree kernel do. No matrix and no row of one is kept; memory is some L letters a
    sample. Blocks between few samples are computed pair by pair, 64 positions at a time.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.kernels import KernelSet, WeightedDegree
    >>> kernels = KernelSet.build(WeightedDegree(2).by_length(), ["ACGT", "ACCT"], normalize=None)
    >>> bank = PositionalBank().build(kernels)
    >>> bank.matvec(np.array([1.0, 0.0]))
    array([[4., 3.],
           [3., 1.]])
    """

    # Set by `from_factors`, `take` and `select`.
    _groups: list[_Group]
    _parts: list[_Part]

    def build(self, kernels: Any) -> PositionalBank:
        """Return a new bank over a KernelSet, or a Source of some of it."""
        source = Source.of(kernels)
        factors = []
        for k in range(source.m):
            factor = source.positional_factor(k)
            if factor is None:
                raise InvalidInputError(
                    f"kernel '{source.names[k]}' does not compare aligned sequences, which "
                    f"bank='positional' needs. Allowed are WeightedDegree, its parts, and these "
                    f"on a column; bank='auto' keeps these so and the others in another way."
                )
            factors.append(factor)
        return self.from_factors(factors, source.names)

    def from_factors(
        self, factors: Sequence[PositionalFactor], names: Sequence[str]
    ) -> PositionalBank:
        """Return a new bank around normalised kernels."""
        groups: list[_Group] = []
        parts = []
        for factor in factors:
            scale = _compact(factor.scale)
            number, at_window, own = _join(groups, factor, scale)
            diagonal = _compact(factor.diagonal())
            scalar = float(scale) ** 2 if not scale.ndim else 1.0
            parts.append(_Part(number, at_window, own, scalar, factor.left, factor.right, diagonal))
        return self._over(groups, parts, tuple(names), factors[0].strands.n)

    def _over(
        self, groups: list[_Group], parts: list[_Part], names: Sequence[str], n: int
    ) -> PositionalBank:
        bank = PositionalBank()
        bank._groups, bank._parts, bank.names = groups, parts, names
        bank.n, bank.m = n, len(parts)
        bank.round_size = round_size_of(n)
        return bank

    @property
    def nbytes(self) -> int:
        """Bytes of the sequences and of what normalises the kernels."""
        strands = {id(group.strands.strands[0].letters): group.strands for group in self._groups}
        beside = [a for part in self._parts for a in (part.left, part.right, part.diagonal)]
        beside += [group.scale for group in self._groups]
        return sum(own.nbytes for own in strands.values()) + sum(a.nbytes for a in beside)

    def _by_group(self, chosen: Array) -> Iterator[tuple[_Group, list[int]]]:
        """Yield the groups that are needed, with the places of their kernels among the chosen."""
        for number, group in enumerate(self._groups):
            places = [i for i, k in enumerate(chosen) if self._parts[k].group == number]
            if places:
                yield group, places

    # Products

    def _products(self, v: Array, idx: Array | None, kernels: Array | None) -> Array:
        """(K_k v)[idx] (None: everywhere) for the chosen kernels."""
        chosen = kernel_indices(kernels, self.m)
        tasks = as_tasks(v)
        here: Any = slice(None) if idx is None else np.asarray(idx, dtype=np.int64)
        out = np.empty((len(chosen), len(tasks), self.n if idx is None else len(here)))
        for group, places in self._by_group(chosen):
            parts = [self._parts[chosen[i]] for i in places]
            weights = group.apart({part.window for part in parts})
            new = group.strands if idx is None else group.strands[here]
            scale = group.scale[here] if group.scale.ndim else group.scale
            for t, task in enumerate(tasks):
                rows = group.strands.products(weights, new, group.scaled(task))
                for i, part in zip(places, parts, strict=True):
                    value = part.of_rows(rows) * scale
                    if len(part.left):
                        value -= (part.left @ task) @ part.right[:, here]
                        value -= (part.right @ task) @ part.left[:, here]
                    out[i, t] = value
        return out if np.ndim(v) == 2 else out[:, 0]

    def matvec(self, v: Array, kernels: Array | None = None) -> Array:
        return self._products(v, None, kernels)

    def products_at(self, v: Array, idx: Array, kernels: Array | None = None) -> Array:
        return self._products(v, idx, kernels)

    def quad(self, v: Array, kernels: Array | None = None) -> Array:
        tasks = as_tasks(v)
        support = np.flatnonzero(tasks.any(axis=0))
        values = self._products(tasks, support, kernels)
        # A sum of squares of features: anything below zero is rounding.
        return np.maximum(np.einsum("ktn,tn->k", values, tasks[:, support]), 0.0)

    # Values between samples

    def rows(self, idx: Array, kernels: Array | None = None, columns: Array | None = None) -> Array:
        chosen = kernel_indices(kernels, self.m)
        left = np.asarray(idx, dtype=np.int64)
        right = np.arange(self.n) if columns is None else np.asarray(columns, dtype=np.int64)
        out = np.empty((len(chosen), len(left), len(right)))
        for group, places in self._by_group(chosen):
            parts = [self._parts[chosen[i]] for i in places]
            weights = group.apart({part.window for part in parts})
            theirs = group.strands if columns is None else group.strands[right]
            values = group.strands[left].rows_of_pairs(weights, theirs)
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
            mine = group.strands[left]
            theirs = mine if right is None else group.strands[right]
            target = np.zeros_like(out) if group.scale.ndim else out
            mine.add_pairs(group.together(parts), theirs, target, lower=right is None)
            if group.scale.ndim:
                out += target * group.scale[left][:, None] * group.scale[columns]
        if right is None:
            # The lower half was computed, the upper one is copied.
            map_blocks(lambda a, b: mirror_rows(out, a, b), len(out), _MIRROR, float(out.size))
        for k in active:
            if len(self._parts[k].left):
                out -= d[k] * _taken_off(self._parts[k], left, columns)

    def combine_block(self, d: Array, idx: Array) -> Array:
        idx = np.asarray(idx, dtype=np.int64)
        out = np.zeros((len(idx), len(idx)))
        self._add_combined(d, idx, None, out)
        return out

    def combine(self, d: Array, out: Array | None = None) -> Array:
        require_bytes(8.0 * self.n**2, f"one dense {self.n} x {self.n} matrix")
        matrix = self.combine_block(d, np.arange(self.n))
        if out is None:
            return matrix
        out[...] = matrix
        return out

    def combine_rows(self, d: Array, idx: Array, out: Array) -> Array:
        rows = np.zeros((len(idx), self.n))
        self._add_combined(d, np.asarray(idx, dtype=np.int64), np.arange(self.n), rows)
        out[...] = rows
        return out

    def diag(self, kernels: Array | None = None) -> Array:
        chosen = kernel_indices(kernels, self.m)
        out = np.empty((len(chosen), self.n))
        for i, k in enumerate(chosen):
            out[i] = self._parts[k].diagonal
        return out

    def error(self, v: Array, d: Array) -> ErrorBound:
        """Nothing is rounded but sums in float64."""
        return ErrorBound.none(self.m)

    def take(self, idx: Array) -> PositionalBank:
        idx = np.asarray(idx, dtype=np.int64)
        groups = [group.take(idx) for group in self._groups]
        return self._over(groups, [part.take(idx) for part in self._parts], self.names, len(idx))

    def select(self, kernels: Array) -> PositionalBank:
        parts = [self._parts[k] for k in kernels]
        return self._over(self._groups, parts, [self.names[k] for k in kernels], self.n)


def _join(
    groups: list[_Group], factor: PositionalFactor, scale: Array
) -> tuple[int, int, tuple[int, int] | None]:
    """Put a kernel into a group, a new one if need be: its number, window and lengths."""
    by_length = factor.lengths is not None
    varying = scale if scale.ndim else np.ones(())
    for number, group in enumerate(groups):
        if group.accepts(factor, varying) and (at := group.place(factor.window)) is not None:
            return number, at, factor.lengths
    weights = factor.weights
    own = np.ones(weights.degree) if by_length else _length_weights(factor)
    group = _Group(factor.strands, weights.bits, weights.shift, own, by_length, varying)
    at = group.place(factor.window)
    groups.append(group)
    return len(groups) - 1, 0 if at is None else at, factor.lengths


def _taken_off(part: _Part, rows: Array, columns: Array) -> Array:
    """What centring takes off a block of values."""
    left, right = part.left, part.right
    return left[:, rows].T @ right[:, columns] + right[:, rows].T @ left[:, columns]
