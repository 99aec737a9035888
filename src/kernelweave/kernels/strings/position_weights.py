r"""Weighted sums over common k-mers at positions: products with vectors, and values of pairs.

Everything the weighted degree kernel and its parts are: for weights W over positions and lengths,

.. math:: k_w(x, x') = \sum_{l, l'} M_{l l'} \sum_k W_{l k}\, [u_{k,l}(x) = u_{k,l'}(x')]

over the positions l of one window w, with :math:`M_{ll} = 1`, :math:`M_{l l'} = 1 / (2 (|l - l'| +
1))` for positions of the same window at most `shift` apart, and 0 otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from kernelweave.compiled.match_runs import ALL, LOWER, SAME, add_common, add_common_at
from kernelweave.compiled.position_walks import walk
from kernelweave.compiled.threads import map_blocks
from kernelweave.kernels.strings.aligned import Aligned

__all__ = ["PositionWeights"]

Floats = NDArray[np.float64]

# All cuts follow from the data alone, never from the number of threads: same bits.
# Sequences looked up at a time: every such block builds its own tables, in turn.
_BLOCK = 2**18
# Positions are cut into at most so many parts, of at least so many positions.
_PARTS, _LEAST = 16, 8
# Numbers in the sums that the parts keep for themselves.
_PARTIAL = 2**23
# Largest number of entries of a table, as a power of two.
_TABLE_BITS = 18
# Looking up a sequence that goes on below the table takes as long as making so many entries of it.
_BELOW = 5.0
# Rows of pairs compared by a thread at a time.
_ROWS = 16


@dataclass(frozen=True, eq=False)
class PositionWeights:
    """Which positions and lengths count, how much, and into which sum.

    Parameters
    ----------
    bits : int
        Bits of a letter.
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
    >>> weights = PositionWeights(2, 0, np.ones((3, 2)), np.zeros(3, np.int64))
    >>> weights.products(some, some, np.array([1.0, 1.0, 0.0]))[0, 0]
    array([8., 8., 1.])
    """

    bits: int
    shift: int
    steps: Floats
    window_of: NDArray[np.int64]
    by_length: bool = False

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
    def factors(self) -> Floats:
        """What equal k-mers count that are 0, 1, ..., shift positions apart."""
        apart = np.arange(min(self.shift, self.length - 1) + 1)  # None are further apart.
        return np.where(apart == 0, 1.0, 0.5 / (apart + 1.0))

    @cached_property
    def shared(self) -> NDArray[np.uint8]:
        """Equal letters of two words by the number of their equal leading bits."""
        return (np.arange(65) // self.bits).astype(np.uint8)

    def table_depth(self, new: int, known: int) -> int:
        """Letters that index the tables, for so many sequences looked up and put in."""
        entries = known * (2 * self.shift + 1)
        size = 0.5 * np.log2(_BELOW * max(new * entries, 1))
        most = min(self.degree, _TABLE_BITS // self.bits)
        return int(np.clip(round(size / self.bits), 1, most))

    def times(self, factor: float) -> PositionWeights:
        """Return the same weights times a number; only for sums over lengths."""
        return replace(self, steps=factor * self.steps)

    # Products

    def products(self, new: Aligned, known: Aligned, v: Floats) -> Floats:
        """sum_j v_j k_w(x_j, x) for every window w (and length) and new x: (windows, lengths, n).

        The k-mers of the known sequences are put into tries, one a position, and those of the new
        ones looked up ("linadd", Sonnenburg et al. 2006, algorithm 3).
        """
        lengths = self.degree if self.by_length else 1
        out = np.zeros((self.n_windows, lengths, new.n))
        if not known.n or not new.n or not len(out):
            return out
        blocks = range(0, new.n, _BLOCK)
        parts = self._parts(len(blocks), min(new.n, _BLOCK))
        rows = [_numbers(self.window_of[bottom:top]) for bottom, top in parts]
        every = np.concatenate(rows)
        # A window in several parts is summed up in a fixed order at the end.
        apart = len(_numbers(every)) < len(every)
        partial: dict[tuple[int, int], Floats] = {}

        def work(start: int, stop: int) -> None:
            for item in range(start, stop):
                b, p = divmod(item, len(parts))
                place = blocks[b]
                # Contiguous always, so that one form of `walk` is compiled and no other.
                letters = np.ascontiguousarray(new.letters[:, place : place + _BLOCK])
                bottom, top = parts[p]
                target, row_of = out, self.window_of
                if apart:
                    row_of = np.where(row_of >= 0, np.searchsorted(rows[p], row_of), -1)
                    target = np.zeros((len(rows[p]), lengths, letters.shape[1]))
                    partial[b, p], place = target, 0
                self._walk(letters, known, v, row_of, bottom, top, place, target)

        cost = 8.0 * self.length * (new.n + known.n)
        map_blocks(work, len(blocks) * len(parts), 1, cost)
        for b, p in sorted(partial):
            out[rows[p], :, blocks[b] : blocks[b] + _BLOCK] += partial[b, p]
        return out

    def _walk(
        self,
        letters: NDArray[np.uint8],
        known: Aligned,
        v: Floats,
        row_of: NDArray[np.int64],
        bottom: int,
        top: int,
        place: int,
        out: Floats,
    ) -> None:
        depth = self.table_depth(letters.shape[1], known.n)
        walk(
            letters,
            known.letters,
            v,
            self.bits,
            depth,
            self.factors,
            self.shared,
            self.window_of,
            row_of,
            self.steps,
            self.by_length,
            bottom,
            top,
            place,
            out,
        )

    def _parts(self, blocks: int, n: int) -> list[tuple[int, int]]:
        """Positions cut into parts for threads; at the borders of windows if there are enough."""
        lengths = self.degree if self.by_length else 1
        inside = np.flatnonzero(self.window_of >= 0)
        first, last = int(inside[0]), int(inside[-1]) + 1
        borders = np.flatnonzero(np.diff(self.window_of[first:last])) + first + 1
        most = max(1, min(_PARTS // blocks, (last - first) // _LEAST))
        if len(borders) + 1 >= most:
            cuts = borders[np.linspace(0, len(borders), most, endpoint=False).astype(int)[1:]]
        else:
            most = max(1, min(most, _PARTIAL // (lengths * n)))
            cuts = np.linspace(first, last, most + 1).astype(int)[1:-1]
        ends = [first, *(int(cut) for cut in cuts), last]
        return [(a, b) for a, b in pairwise(ends) if a < b]

    # Values of pairs

    @cached_property
    def _shifts(self) -> list[tuple[int, float, NDArray[np.uint64]]]:
        """Each shift, its factor, and the bits of the positions at which it counts."""
        out = []
        most = min(self.shift, self.length - 1)
        for s in range(-most, most + 1):
            inside = np.zeros(self.length, bool)
            low, high = max(0, -s), min(self.length, self.length - s)
            here, there = self.window_of[low:high], self.window_of[low + s : high + s]
            inside[low:high] = (here == there) & (here >= 0)
            out.append((s, float(self.factors[abs(s)]), _as_bits(inside)))
        return out

    @cached_property
    def _same_everywhere(self) -> bool:
        """Whether the weights of the lengths are the same at every position that counts."""
        inside = self.steps[self.window_of >= 0]
        return bool(np.all(inside == inside[:1]))

    @cached_property
    def _sums(self) -> Floats:
        return np.hstack([np.zeros((self.length, 1)), np.cumsum(self.steps, axis=1)])

    @cached_property
    def _read(self) -> NDArray[np.uint64]:
        """The bits of all positions of k-mers that count."""
        inside = np.flatnonzero(self.window_of >= 0)
        at = np.arange(self.length)
        return _as_bits((at >= inside[0]) & (at < inside[-1] + self.degree))

    def _add_at(
        self,
        left: Aligned,
        right: Aligned,
        rows: tuple[int, int],
        row_of: NDArray[np.int64],
        columns: int,
        out: Floats,
    ) -> None:
        for s, factor, allowed in self._shifts:
            where = left.planes, right.planes, rows, s, allowed, self._read
            add_common_at(*where, self._sums, row_of, factor, columns, out)

    def add_pairs(self, left: Aligned, right: Aligned, out: Floats, lower: bool = False) -> None:
        """out[i, j] += sum over all windows of k_w(left i, right j); of j <= i alone if `lower`."""
        inside = np.flatnonzero(self.window_of >= 0)
        one_row = np.zeros(self.length, np.int64)

        def work(start: int, stop: int) -> None:
            if not self._same_everywhere:
                columns = LOWER if lower else ALL
                self._add_at(left, right, (start, stop), one_row, columns, out[None, None])
                return
            for s, factor, allowed in self._shifts:
                weights = factor * self.steps[inside[0]]
                where = left.planes, right.planes, (start, stop), s, allowed
                add_common(*where, weights, lower, out[None])

        if len(inside):
            map_blocks(work, left.n, _ROWS, float(left.n) * right.n * self.length / 8.0)

    def rows_of_pairs(self, left: Aligned, right: Aligned) -> Floats:
        """k_w(left i, right j) for every window w (and length): (windows, lengths, q, n)."""
        lengths = self.degree if self.by_length else 1
        out = np.zeros((self.n_windows, lengths, left.n, right.n))
        only = [_as_bits(self.window_of == w) for w in range(self.n_windows)]
        ones = np.ones(self.degree)

        def work(start: int, stop: int) -> None:
            if not self.by_length:
                self._add_at(left, right, (start, stop), self.window_of, ALL, out)
                return
            for s, factor, allowed in self._shifts:
                for w, own in enumerate(only):
                    where = left.planes, right.planes, (start, stop), s, allowed & own
                    add_common(*where, factor * ones, False, out[w])

        if len(out):
            map_blocks(work, left.n, _ROWS, float(left.n) * right.n * self.length / 8.0)
        return out

    def diagonals(self, own: Aligned, other: Aligned | None = None) -> Floats:
        """k_w(x, x), or k_w(x, other x), for every window (and length): (windows, lengths, n)."""
        lengths = self.degree if self.by_length else 1
        out = np.zeros((self.n_windows, lengths, own.n))
        inside = np.flatnonzero(self.window_of >= 0)
        if (other is None or other is own) and own.clean and not self.shift:
            # Every k-mer is there, and equal to itself.
            for at in inside:
                ends = np.arange(1, self.degree + 1) <= self.length - at
                steps = ends if self.by_length else ends @ self.steps[at]
                out[self.window_of[at]] += np.reshape(steps, (lengths, 1))
            return out
        theirs = own if other is None else other

        def work(start: int, stop: int) -> None:
            rows = start, stop
            self._add_at(own, theirs, rows, self.window_of, SAME, out[..., None])

        reach = min(int(inside[-1]) + self.degree, self.length) - int(inside[0])
        map_blocks(work, own.n, 1024, 4.0 * own.n * reach * len(self._shifts))
        return out


def _as_bits(flags: NDArray[np.bool_]) -> NDArray[np.uint64]:
    """64 flags a word, the first in the lowest bit."""
    whole = np.zeros(-(-len(flags) // 64) * 64, bool)
    whole[: len(flags)] = flags
    return np.packbits(whole, bitorder="little").view(np.uint64)


def _numbers(windows: NDArray[np.int64]) -> NDArray[np.int64]:
    """The different windows among these, in order."""
    there = np.zeros(windows.max(initial=-1) + 1, bool)
    there[windows[windows >= 0]] = True
    return np.flatnonzero(there)
