"""K-mers of sequences: how often each occurs, inner products of counts, and weights over them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy import sparse

from kernelweave.arrays import Array, Index
from kernelweave.compiled.blocks import KMER_ROWS, KMERS
from kernelweave.compiled.kmer_tables import (
    Tables,
    add_amounts,
    build_nodes,
    empty_tables,
    layout_of,
    look_below,
    sum_levels,
    trimmed,
)
from kernelweave.compiled.kmers import Entries, Kmers, count_kmers, list_kmers, look_up_sequences
from kernelweave.compiled.sparse_rows import SparseRows, add_inner
from kernelweave.compiled.threads import map_blocks
from kernelweave.kernels.strings.alphabet import Alphabet
from kernelweave.kernels.strings.sequences import Sequences, equal_blocks

Ints = NDArray[np.int64]

# Bits of the longest code: the columns of all lengths together still fit in 63.
MOST_BITS = 62
# Counting a k-mer (8 ns) takes as long as some 8 multiplications in a row, looking it up not less
# than a fourth of that.
_WORK = 8.0
# Columns that this share of the rows have are multiplied as a dense matrix: some ten numbers in the
# time it takes to add up one coincidence. Values of DNA of 100 letters, k = 1 ... 6, take 2.0 times
# as long with a fifth of it and 2.8 times without such columns, of protein 1.1 and 3.7 times.
_OFTEN = 0.3
# Sums of products of counts below this are exact in float32.
_EXACT = 2.0**24
# Places of a table for each position where a k-mer starts. With a fifth of them look-ups take up to
# ten times as long (DNA of 100 letters to k = 6 ... 12, protein of 300 to k = 3 ... 6), with five
# times as many at most 1.4 times less, but tables are larger and take up to 3.6 times as long to
# make. To touch one of 4^12 places for the first time would take as long as 10^7 look-ups.
_PLACES, _MOST_PLACES = 16, 2**22
# With so many places for each entry a table of all columns takes as long as sorting these; with a
# fifth of them it takes a fourth of that, with five times as many it takes three times as long.
_TABLE = 16


@dataclass(frozen=True)
class KmerSpace:
    r"""K-mers of some lengths that start at some positions, numbered.

    A k-mer that holds an ambiguous letter is none. With both strands as one, a k-mer is counted
    under the lower code of itself and its reverse complement.

    Parameters
    ----------
    alphabet : Alphabet
        The letters.
    shortest, longest : int
        Lengths of the k-mers.
    reverse_complement : bool, default=False
        Whether both strands count as one.
    positions : (int, int) or None, default=None
        The first start position and the one after the last; None for all.

    Examples
    --------
    >>> from kernelweave.kernels.strings.alphabet import get_alphabet
    >>> dna = get_alphabet("dna")
    >>> space = KmerSpace(dna, 1, 2)
    >>> space.count(Sequences.encode(["AACA"], dna)).toarray().astype(int)
    array([[3, 1, 0, 0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]])
    """

    alphabet: Alphabet
    shortest: int
    longest: int
    reverse_complement: bool = False
    positions: tuple[int, int] | None = None

    @property
    def bits(self) -> int:
        """Bits of one letter in a code."""
        return self.alphabet.bits

    @property
    def read(self) -> Kmers:
        """The same, as compiled code asks for it."""
        pairs = np.empty(0, np.uint8)
        if self.reverse_complement:
            pairs = self.alphabet.complement_codes(np.arange(self.alphabet.size, dtype=np.uint8))
        window = (0, 1 << 62) if self.positions is None else self.positions
        return self.shortest, self.longest, self.bits, pairs, *window

    @property
    def offsets(self) -> Ints:
        """Columns before those of each length, and of all lengths together."""
        sizes = [1 << (self.bits * k) for k in range(self.shortest, self.longest + 1)]
        return np.cumsum([0, *sizes], dtype=np.int64)

    def n_kmers(self, sequences: Sequences) -> Ints:
        """Return how many k-mers each sequence has, those with ambiguous letters included."""
        start, stop = self.read[-2:]
        out = np.zeros(len(sequences), np.int64)
        for k in range(self.shortest, self.longest + 1):
            out += np.maximum(np.minimum(sequences.lengths - k + 1, stop) - start, 0)
        return out

    def count(self, sequences: Sequences) -> Any:
        """Return how often each k-mer occurs: CSR, one row for each sequence."""
        ends = np.concatenate([[0], np.cumsum(self.n_kmers(sequences))])
        offsets = self.offsets
        kind = np.int32 if max(offsets[-1], ends[-1]) < 2**31 else np.int64
        sizes = np.zeros(len(sequences) + 1, np.int64)
        blocks, kmers = equal_blocks(ends, KMERS), self.read
        found = [(np.empty(0, kind), np.empty(0))] * len(blocks)

        def work(start: int, stop: int) -> None:
            for b in range(start, stop):
                first, last = blocks[b], blocks[b + 1]
                # Room for k-mers that are all different.
                room = ends[last] - ends[first]
                columns, counts = np.empty(room, kind), np.empty(room)
                text = sequences.codes, sequences.starts, first, last
                place = columns, counts, sizes[first + 1 : last + 1]
                used = count_kmers(*text, kmers, offsets[:-1], *place)
                found[b] = columns[:used].copy(), counts[:used].copy()

        map_blocks(work, len(blocks) - 1, 1, _WORK * float(ends[-1]))
        columns, counts = (np.concatenate(parts) for parts in zip(*found, strict=True))
        np.cumsum(sizes, out=sizes)
        shape = (len(sequences), int(offsets[-1]))
        out = sparse.csr_array((counts, columns, sizes.astype(columns.dtype)), shape=shape)
        out.has_canonical_format = True
        return out

    def digits(self, codes: Ints, length: int) -> Ints:
        """Return codes of k-mers of one length as numbers that ``alphabet.text`` spells out."""
        out = np.zeros_like(codes)
        for j in range(length):
            letter = (codes >> (self.bits * j)) & ((1 << self.bits) - 1)
            out += letter * self.alphabet.size**j
        return out


# Rows by the columns that are frequent among the known ones, dense, and by the others.
SplitRows = tuple[Array, SparseRows]


def square_norms(features: Any) -> Array:
    """Return the sum of the squares of every row of a CSR matrix."""
    n = features.shape[0]
    rows = np.repeat(np.arange(n), np.diff(features.indptr))
    return np.bincount(rows, np.square(features.data), n).astype(np.float64, copy=False)


class KmerRows:
    """Counts of a set of samples (CSR, ascending columns), to be multiplied with those of others.

    Only coincidences cost anything: for each entry of a row, the samples that have its column. The
    few columns that most samples have are left to BLAS.
    """

    def __init__(self, features: Any) -> None:
        self.n = features.shape[0]
        self._used, places = number_columns(features.indices)
        self._often = np.bincount(places, minlength=len(self._used)) >= _OFTEN * self.n
        self.own, others = self._split(features.data, places, features.indptr)
        self._turned = _as_rows(others.tocsc())

    def _split(self, values: Any, places: Ints, indptr: Array) -> tuple[SplitRows, Any]:
        """Split rows of known columns; return the rest as a matrix too."""
        shape = (len(indptr) - 1, len(self._used))
        rows = sparse.csr_array((values, places, indptr), shape=shape)
        rows.has_canonical_format = True
        exact = square_norms(rows).max(initial=0.0) < _EXACT
        rows = rows.astype(np.float32 if exact else np.float64)
        others = rows[:, np.flatnonzero(~self._often)]
        return (rows[:, np.flatnonzero(self._often)].toarray(), _as_rows(others)), others

    def read(self, features: Any) -> SplitRows:
        """Return rows of other samples in the same numbering, without columns unknown here."""
        places = np.searchsorted(self._used, features.indices)
        known = places < len(self._used)
        known[known] = self._used[places[known]] == features.indices[known]
        indptr = np.concatenate([[0], np.cumsum(known)])[features.indptr]
        return self._split(features.data[known], places[known], indptr)[0]

    def products(
        self,
        left: SplitRows,
        rows: Index,
        columns: Index | None,
        dtype: DTypeLike,
    ) -> Array:
        """Return the inner products of some rows of `left` with these rows (None: all)."""
        out = np.empty((len(rows), self.n if columns is None else len(columns)), dtype)
        frequent, others = left
        dense = self.own[0] if columns is None else self.own[0][columns]

        def work(start: int, stop: int) -> None:
            target, some = out[start:stop], rows[start:stop]
            target[...] = frequent[some] @ dense.T
            if not len(others[1]):
                return
            full = target if columns is None else np.zeros((len(some), self.n), out.dtype)
            add_inner(others, some, np.ones(len(some)), self._turned, self.n, full)
            if columns is not None:
                target += full[:, columns]

        map_blocks(work, len(rows), KMER_ROWS, float(out.size) * (1.0 + dense.shape[1] / 8.0))
        return out


def _as_rows(matrix: Any) -> SparseRows:
    """A compressed matrix as `sparse_rows` reads it."""
    return matrix.indptr.astype(np.uint64), matrix.indices.astype(np.uint32), matrix.data


class KmerTable:
    r"""The sparse weight vector :math:`w = \sum_i \delta_i \Phi(x_i)` of a spectrum kernel.

    .. math:: w_u = b_{|u|} \sum_i \delta_i \, \#_u(x_i), \qquad
              f(x) = \sum_u w_u \, \#_u(x)

    with the number :math:`\#_u(x)` of times the k-mer u occurs in x and a factor b for each length.
    A look-up of x (Sonnenburg et al. 2006, algorithm 3) takes as many steps as x has letters,
    whatever the number of the :math:`x_i` and of the lengths. The weights are an array of all
    k-mers where that is not much larger than the k-mers that occur, and otherwise an array of their
    first letters with a trie below (see ``kernelweave.compiled.kmer_tables``).
    """

    def __init__(
        self,
        space: KmerSpace,
        known: Sequences,
        delta: Array,
        factors: Sequence[float] | Array | float = 1.0,
    ) -> None:
        self._space = space
        steps = np.zeros(space.longest)
        steps[space.shortest - 1 :] = factors
        sums = np.concatenate([[0.0], np.cumsum(steps)])
        depth, self._kmers = self._depth(known), space.read
        layout = layout_of(space.bits, space.longest, depth, space.shortest)
        levels = np.zeros(layout[-1][-1])
        below: list[Entries] = [(np.empty(0, np.uint64), np.empty(0, np.uint8), np.empty(0))]
        # On the other strand each length may take an entry of its own.
        entries = space.longest - space.shortest + 2 if space.reverse_complement else 1
        for first, last in pairwise(equal_blocks(entries * known.starts, KMERS)):
            rows = known.starts[first : last + 1], delta[first:last]
            found = list_kmers(known.codes, *rows, self._kmers)
            add_amounts(found, layout, levels)
            if depth < space.longest:
                goes_on = np.flatnonzero(found[1] > depth)
                below.append((found[0][goes_on], found[1][goes_on], found[2][goes_on]))
        sum_levels(layout, sums, levels)
        words, valids, amounts = (np.concatenate(part) for part in zip(*below, strict=True))
        self._tables: Tables = empty_tables(layout, sums, levels, len(words))
        if depth < space.longest:
            self._tables = trimmed(*build_nodes((words, valids, amounts), self._tables))

    def _depth(self, known: Sequences) -> int:
        """How many letters index the table: all, or as many as leave it a few k-mers a place."""
        space = self._space
        starts = int(space.n_kmers(known).sum()) // (space.longest - space.shortest + 1)
        strands = 2 if space.reverse_complement else 1
        places = max(1, min(_PLACES * strands * starts, _MOST_PLACES))
        return int(np.clip((places.bit_length() - 1) // space.bits, 1, space.longest))

    def look_up(self, sequences: Sequences) -> Array:
        """Return the sum of the weights of its k-mers for every sequence."""
        out = np.zeros(len(sequences))
        blocks = equal_blocks(sequences.starts, KMERS)

        layout, _, levels, nodes, _, _ = self._tables

        def work(start: int, stop: int) -> None:
            for first, last in pairwise(blocks[start : stop + 1]):
                text = sequences.codes, sequences.starts[first : last + 1]
                target = out[first:last]
                some, rows = look_up_sequences(*text, self._kmers, layout, levels, nodes, target)
                if len(rows):
                    found = np.zeros((1, len(rows)))
                    look_below(some, self._tables, found)
                    target += np.bincount(rows, found[0], len(target))

        map_blocks(work, len(blocks) - 1, 1, _WORK * float(len(sequences.codes)))
        return out


def number_columns(indices: NDArray[np.integer]) -> tuple[Ints, Ints]:
    """Return the columns that occur, ascending, and the place of each entry among them."""
    if indices.max(initial=0) < _TABLE * indices.size:
        there = np.bincount(indices) > 0
        return np.flatnonzero(there), (np.cumsum(there) - 1)[indices]
    used, places = np.unique(indices, return_inverse=True)
    return used.astype(np.int64, copy=False), places
