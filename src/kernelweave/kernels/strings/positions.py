r"""Weighted sums over common k-mers at positions: products with vectors, and values of pairs.

Everything the weighted degree kernel and its parts are: for weights W over positions and lengths,

.. math:: k_w(x, x') = \sum_{l, l'} M_{l l'} \sum_k W_{l k}\, [u_{k,l}(x) = u_{k,l'}(x')]

over the positions l of one window w, with :math:`M_{ll} = 1`, :math:`M_{l l'} = 1 / (2 (|l - l'| +
1))` for positions of the same window at most `shift` apart, and 0 otherwise.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelweave.arrays import Array, Flags
from kernelweave.cached import cached_property
from kernelweave.compiled.blocks import (
    PAIR_ROWS,
    POSITION_PARTS,
    POSITION_SUMS,
    POSITIONS,
    STRING_ROWS,
)
from kernelweave.compiled.kmer_tables import (
    Tables,
    build_tables,
    empty_tables,
    layout_of,
    look_up,
    roll_letter,
    trimmed,
    walk,
)
from kernelweave.compiled.kmers import Layout
from kernelweave.compiled.match_runs import ALL, LOWER, SAME, add_common
from kernelweave.compiled.threads import map_blocks
from kernelweave.kernels.normalize import ScaledFactor, Scaling
from kernelweave.kernels.strings.sequences import Aligned

Letters = NDArray[np.uint8]

# Bits that index the largest table of a position: 2 MB of sums stay in the second-level cache.
_TABLE_BITS = 18
# Looking up a sequence that goes on below the table takes as long as making so many entries of it.
_BELOW = 5.0


@dataclass(frozen=True, eq=False)
class PositionWeights:
    """Which positions and lengths count, how much, and into which sum.

    Parameters
    ----------
    shift : int
        Most positions that two equal k-mers may be apart.
    steps : ndarray of shape (L, degree)
        The weight of each position and length.
    window_of : ndarray of int64, shape (L,)
        The window of each position; -1 leaves it out.
    by_length : bool, default=False
        Keep the lengths apart; `steps` then only gives the degree.

    Examples
    --------
    >>> from kernelweave.kernels.strings.alphabet import get_alphabet
    >>> from kernelweave.kernels.strings.sequences import Sequences
    >>> some = Aligned.of(Sequences.encode(["ACG", "ACT", "TTT"], get_alphabet("dna")))
    >>> weights = PositionWeights.of(0, 3, [((0, 3), np.ones(2))])
    >>> weights.products(some, some, np.array([1.0, 1.0, 0.0]))[0, 0]
    array([8., 8., 1.])
    """

    shift: int
    steps: Array
    window_of: NDArray[np.int64]
    by_length: bool = False

    @classmethod
    def of(
        cls,
        shift: int,
        length: int,
        terms: Iterable[tuple[tuple[int, int], Array]],
        by_length: bool = False,
    ) -> PositionWeights:
        """Return the weights of a sum; each term has a window and the weights of the lengths there.

        Windows, each with its first position and the one after the last, are numbered as they come.
        Different ones must not overlap if there is a shift. Beyond the longest k-mers that count
        there is nothing to look up.
        """
        terms = list(terms)
        used = np.any([own for _, own in terms], axis=0)
        longest = int(np.flatnonzero(used).max(initial=0)) + 1
        steps = np.zeros((length, longest))
        window_of = np.full(length, -1, np.int64)
        numbers: dict[tuple[int, int], int] = {}
        for window, own in terms:
            steps[slice(*window)] += own[:longest]
            window_of[slice(*window)] = numbers.setdefault(window, len(numbers))
        return cls(shift, steps, window_of, by_length)

    @property
    def length(self) -> int:
        """Number of positions."""
        return self.steps.shape[0]

    @property
    def degree(self) -> int:
        """Longest k-mers."""
        return self.steps.shape[1]

    @property
    def n_windows(self) -> int:
        """Number of windows."""
        return int(self.window_of.max(initial=-1)) + 1

    @cached_property
    def factors(self) -> Array:
        """What equal k-mers count that are 0, 1, ..., shift positions apart."""
        apart = np.arange(min(self.shift, self.length - 1) + 1)  # None are further apart.
        return np.where(apart == 0, 1.0, 0.5 / (apart + 1.0))

    def layout(self, bits: int, new: int, known: int) -> Layout:
        """The layout of tables of sequences of such letters, some looked up, some put in."""
        entries = known * (2 * self.shift + 1)
        size = 0.5 * np.log2(_BELOW * max(new * entries, 1))
        depth = int(np.clip(round(size / bits), 1, min(self.degree, _TABLE_BITS // bits)))
        return layout_of(bits, self.degree, depth, 1)

    def _room(self, *shape: int) -> Array:
        """Zeros of that shape for every window (and length)."""
        return np.zeros((self.n_windows, self.degree if self.by_length else 1, *shape))

    # Products

    def products(self, new: Aligned, known: Aligned, v: Array) -> Array:
        """sum_j v_j k_w(x_j, x) for every window w (and length) and new x: (windows, lengths, n).

        The k-mers of the known sequences are put into tries, one a position, and those of the new
        ones looked up ("linadd", Sonnenburg et al. 2006, algorithm 3).
        """
        letters, some = new.columns(), known.weighed(v)
        out = self._room(letters.shape[1])
        if not out.size or not len(some[1]):
            return new.mean(out)
        parts = self._parts(out[0].size)
        inside = np.flatnonzero(self.window_of >= 0)
        part_of = np.searchsorted([top for _, top in parts], inside, side="right")
        # A window has a row for each of its parts, and these are added up in a fixed order.
        keys, rows = np.unique(self.window_of[inside] * len(parts) + part_of, return_inverse=True)
        windows, row_of = keys // len(parts), np.full(self.length, -1, np.int64)
        row_of[inside] = rows
        whole = np.array_equal(windows, np.arange(self.n_windows))
        sums = out if whole else np.zeros((len(windows), *out.shape[1:]))
        layout = self.layout(known.bits, letters.shape[1], len(some[1]))
        rules = self.factors, self.window_of, self.sums[:, : 0 if self.by_length else None].copy()

        def work(start: int, stop: int) -> None:
            for part in parts[start:stop]:
                walk(letters, some, layout, rules, row_of, part, sums)

        map_blocks(work, len(parts), 1, 8.0 * self.length * (letters.shape[1] + len(some[1])))
        if not whole:
            for window, row in zip(windows, sums, strict=True):
                out[window] += row
        return new.mean(out)

    def _parts(self, sums: int) -> list[tuple[int, int]]:
        """Positions cut into parts for threads; at the borders of windows if there are enough.

        A window has so many `sums`.
        """
        inside = np.flatnonzero(self.window_of >= 0)
        first, last = int(inside[0]), int(inside[-1]) + 1
        borders = np.flatnonzero(np.diff(self.window_of[first:last])) + first + 1
        most = max(1, min(POSITION_PARTS, (last - first) // POSITIONS))
        if len(borders) + 1 >= most:
            cuts = borders[np.linspace(0, len(borders), most, endpoint=False).astype(int)[1:]]
        else:
            most = max(1, min(most, POSITION_SUMS // sums))
            cuts = np.linspace(first, last, most + 1).astype(int)[1:-1]
        return list(pairwise([first, *cuts.tolist(), last]))

    # Values of pairs

    def shifts(self) -> Iterator[tuple[int, float, Flags]]:
        """Yield each shift, its factor, and where it counts: both positions are in one window."""
        at, counts = np.arange(self.length), self.window_of >= 0
        for s in range(1 - len(self.factors), len(self.factors)):
            there = at + s
            inside = counts & (there >= 0) & (there < self.length)
            inside[inside] = self.window_of[inside] == self.window_of[there[inside]]
            yield s, float(self.factors[abs(s)]), inside

    @cached_property
    def sums(self) -> Array:
        """The weights of all lengths up to 0, 1, ..., degree at each position."""
        return np.hstack([np.zeros((self.length, 1)), np.cumsum(self.steps, axis=1)])

    def _add(
        self, left: Aligned, right: Aligned, columns: int, row_of: NDArray[np.int64], out: Array
    ) -> None:
        """Add k between samples of `left` and `right`; row_of[l] is the row for position l."""
        inside = np.flatnonzero(self.window_of >= 0)
        if not len(inside) or not out.size:
            return
        at = np.arange(self.length)
        read = _as_bits((at >= inside[0]) & (at < inside[-1] + self.degree))
        weights, where = self.sums, row_of
        steps = np.ones((1, self.degree)) if self.by_length else self.steps[inside]
        if len(out) == 1 and np.all(steps == steps[:1]):
            # Runs at any position count the same, and need not be told apart.
            weights, where = steps[:1].copy(), np.empty(0, np.int64)
        shifts = [(s, own / left.n_strands, _as_bits(both)) for s, own, both in self.shifts()]
        strands = list(product(left.planes, right.planes))

        def work(start: int, stop: int) -> None:
            for a, b in strands:
                for s, share, allowed in shifts:
                    rules = allowed, read, weights, where
                    add_common(a, b, (start, stop), s, rules, share, columns, out)

        each = 1.0 if columns == SAME else float(right.n)
        cost = left.n * each * self.length * len(shifts) / 8.0
        map_blocks(work, left.n, STRING_ROWS if columns == SAME else PAIR_ROWS, cost)

    def add_pairs(self, left: Aligned, right: Aligned, out: Array, lower: bool = False) -> None:
        """out[i, j] += sum over all windows of k_w(left i, right j); of j <= i alone if `lower`."""
        columns = LOWER if lower else ALL
        self._add(left, right, columns, np.zeros(self.length, np.int64), out[None, None])

    def rows_of_pairs(self, left: Aligned, right: Aligned) -> Array:
        """k_w(left i, right j) for every window w (and length): (windows, lengths, q, n)."""
        out = self._room(left.n, right.n)
        self._add(left, right, ALL, self.window_of, out)
        return out

    def diagonals(self, own: Aligned) -> Array:
        """k_w(x, x) for every window (and length): (windows, lengths, n)."""
        out = self._room(own.n)
        if not own.clean or own.n_strands > 1 or self.shift:
            self._add(own, own, SAME, self.window_of, out[..., None])
            return out
        # Every k-mer that does not end after the sequence is there, and equal to itself.
        for at in np.flatnonzero(self.window_of >= 0):
            ends = np.arange(at + 1, at + self.degree + 1) <= self.length
            steps = ends[:, None] if self.by_length else self.steps[at] @ ends
            out[self.window_of[at]] += steps
        return out


class PositionTable:
    r"""The sparse weight vector :math:`w = \sum_j v_j \Phi(x_j)` of a weighted degree kernel.

    One trie for each position (see ``kernelweave.compiled.kmer_tables``). A look-up takes
    O(L) steps, whatever the number of sequences it was made from.

    Of `weights` all windows are added up; v are the coefficients of the `known` sequences.
    """

    def __init__(self, weights: PositionWeights, known: Aligned, v: Array) -> None:
        self._weights = weights
        self._tables: dict[int, Tables] = {}
        letters, amounts = known.weighed(v)
        if not len(amounts):
            return
        layout = weights.layout(known.bits, len(amounts), len(amounts))
        words, valids = np.zeros(letters.shape, np.uint64), np.zeros(letters.shape, np.uint8)
        for at in reversed(range(known.length)):
            if at + 1 < known.length:
                words[at], valids[at] = words[at + 1], valids[at + 1]
            roll_letter(letters[at], known.bits, weights.degree, (words[at], valids[at]))
        positions = np.flatnonzero(weights.window_of >= 0).tolist()

        def work(start: int, stop: int) -> None:
            for at in positions[start:stop]:
                near = np.arange(max(at - weights.shift, 0), at + weights.shift + 1)
                near = near[near < weights.length]
                near = near[weights.window_of[near] == weights.window_of[at]]
                shares = (weights.factors[np.abs(near - at)][:, None] * amounts).ravel()
                entries = words[near].ravel(), valids[near].ravel(), shares
                room = np.empty(layout[-1][-1])
                tables = empty_tables(layout, weights.sums[at], room, len(shares))
                self._tables[at] = trimmed(*build_tables(entries, tables))

        map_blocks(work, len(positions), 1, 32.0 * letters.size)

    def look_up(self, new: Aligned) -> Array:
        """Return sum_j v_j k(x_j, x) for every new x."""
        columns, weights = new.columns(), self._weights
        out = np.zeros(columns.shape[1])

        def work(start: int, stop: int) -> None:
            size = stop - start
            words = np.zeros(size, np.uint64), np.zeros(size, np.uint8)
            # Contiguous, as in `walk`, so that one form of `look_up` is compiled and no other.
            sums = np.zeros((1, size))
            for at in reversed(range(new.length)):
                roll_letter(columns[at, start:stop], new.bits, weights.degree, words)
                if at in self._tables:
                    look_up(words, self._tables[at], sums)
            out[start:stop] = sums[0]

        map_blocks(work, out.size, STRING_ROWS, 8.0 * columns.size)
        return new.mean(out)


@dataclass(frozen=True, eq=False)
class PositionalFactor(ScaledFactor):
    """A weighted degree kernel, or a part of one, on training samples, normalised.

    Examples
    --------
    >>> from kernelweave.kernels import Samples, WeightedDegree
    >>> samples = Samples(["ACGT", "ACCT"])
    >>> factor = WeightedDegree(2).bind(samples).features(samples)
    >>> factor.product(np.array([1.0, 0.0])).round(3)
    array([3.667, 2.333])
    """

    aligned: Aligned
    shift: int  # Most positions that two equal k-mers may be apart.
    window: tuple[int, int]  # The first start position and the one after the last.
    steps: Array  # The weight of each length.
    scaling: Scaling

    @cached_property
    def by_length(self) -> bool:
        """Whether some lengths count 1 and the others 0, so that they can be kept apart."""
        return bool(np.all((self.steps == 0.0) | (self.steps == 1.0)))

    @property
    def walk_key(self) -> Hashable:
        """Kernels with equal keys differ in their windows, and in lengths that are kept apart."""
        steps = len(self.steps) if self.by_length else self.steps.tobytes()
        return id(self.aligned), self.shift, self.by_length, steps, self.side().tobytes()

    def side(self, idx: Any = slice(None)) -> Array:
        """The scale of some samples; 1 if all have the same, which `square` then is the square of.

        All kernels of one walk have the same.
        """
        return self.scaling.at(idx) if self.scaling.scale.ndim else np.ones(())

    @property
    def square(self) -> float:
        """What values are multiplied by besides `side`."""
        return 1.0 if self.scaling.scale.ndim else float(self.scaling.scale) ** 2

    def among(self, values: Array) -> Array:
        """The kernel's values among those of its window, (lengths, ...), without `side`."""
        return self.square * values[self._lengths].sum(axis=0)

    @cached_property
    def _lengths(self) -> slice:
        used = np.flatnonzero(self.steps) if self.by_length else np.zeros(1, int)
        return slice(used[0], used[-1] + 1)

    def take(self, idx: Any, shared: dict[int, Any]) -> PositionalFactor:
        if id(self.aligned) not in shared:
            shared[id(self.aligned)] = self.aligned[idx]
        return replace(self, aligned=shared[id(self.aligned)], scaling=self.scaling.take(idx))

    @property
    def _weights(self) -> PositionWeights:
        return PositionWeights.of(self.shift, self.aligned.length, [(self.window, self.steps)])

    def raw_product(self, v: Array) -> Array:
        return self._weights.products(self.aligned, self.aligned, v)[0, 0]

    def raw_diagonal(self) -> Array:
        return self._weights.diagonals(self.aligned)[0, 0]


def _as_bits(flags: Flags) -> NDArray[np.uint64]:
    """64 flags a word, the first in the lowest bit."""
    whole = np.zeros(-(-len(flags) // 64) * 64, bool)
    whole[: len(flags)] = flags
    return np.packbits(whole, bitorder="little").view(np.uint64)
