"""Which k-mers are counted, and under which numbers: the feature space of spectrum kernels."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from kernelweave.compiled.blocks import KMERS
from kernelweave.compiled.kmers import count_kmers
from kernelweave.compiled.threads import map_blocks
from kernelweave.errors import InvalidInputError
from kernelweave.kernels.strings.alphabet import Alphabet
from kernelweave.kernels.strings.sequences import Sequences

__all__ = ["MOST_BITS", "KmerSpace", "equal_blocks"]

Ints = NDArray[np.int64]

# Bits of the longest code: the columns of all lengths together still fit in 63.
MOST_BITS = 62
# Counting a k-mer takes as long as this many multiplications.
_WORK = 8.0


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
    def window(self) -> tuple[int, int]:
        """The positions, as compiled code asks for them."""
        return (0, 1 << 62) if self.positions is None else self.positions

    @cached_property
    def pairs(self) -> NDArray[np.uint8]:
        """The letter each letter pairs with, if both strands are one; else empty."""
        if not self.reverse_complement:
            return np.empty(0, np.uint8)
        return self.alphabet.complement_codes(np.arange(self.alphabet.size, dtype=np.uint8))

    @cached_property
    def _ends(self) -> Ints:
        sizes = [1 << (self.bits * k) for k in range(self.shortest, self.longest + 1)]
        return np.cumsum([0, *sizes], dtype=np.int64)

    @property
    def offsets(self) -> Ints:
        """Columns before those of each length."""
        return self._ends[:-1]

    @property
    def n_columns(self) -> int:
        """Number of columns of all lengths together."""
        return int(self._ends[-1])

    def n_kmers(self, sequences: Sequences) -> Ints:
        """Return how many k-mers each sequence has, those with ambiguous letters included."""
        start, stop = self.window
        out = np.zeros(len(sequences), np.int64)
        for k in range(self.shortest, self.longest + 1):
            out += np.maximum(np.minimum(sequences.lengths - k + 1, stop) - start, 0)
        return out

    def count(self, sequences: Sequences) -> Any:
        """Return how often each k-mer occurs: CSR, one row for each sequence."""
        self.check(sequences)
        ends = np.concatenate([[0], np.cumsum(self.n_kmers(sequences))])
        narrow = max(self.n_columns, int(ends[-1])) < 2**31
        columns = np.empty(ends[-1], np.int32 if narrow else np.int64)
        counts = np.empty(ends[-1])
        sizes = np.zeros(len(sequences) + 1, np.int64)
        blocks = equal_blocks(ends)

        def work(start: int, stop: int) -> None:
            for b in range(start, stop):
                first, last = blocks[b], blocks[b + 1]
                own = slice(ends[first], ends[last])
                count_kmers(
                    sequences.codes, sequences.starts, first, last, self.shortest, self.bits,
                    self.pairs, *self.window, self.offsets, columns[own], counts[own],
                    sizes[first + 1 : last + 1],
                )  # fmt: skip

        map_blocks(work, len(blocks) - 1, 1, _WORK * float(ends[-1]))
        np.cumsum(sizes, out=sizes)
        for first, last in pairwise(blocks):
            # Every block left room for k-mers that are all different.
            to, size = sizes[first], sizes[last] - sizes[first]
            for array in (columns, counts):
                array[to : to + size] = array[ends[first] : ends[first] + size]
        columns.resize(sizes[-1], refcheck=False)
        counts.resize(sizes[-1], refcheck=False)
        shape = (len(sequences), self.n_columns)
        out = sparse.csr_array((counts, columns, sizes.astype(columns.dtype)), shape=shape)
        out.has_canonical_format = True
        return out

    def check(self, sequences: Sequences) -> None:
        """Refuse sequences over another alphabet."""
        if sequences.alphabet != self.alphabet:
            raise InvalidInputError(
                f"the sequences are over alphabet={sequences.alphabet.name}, but the k-mers over "
                f"{self.alphabet.name}."
            )

    def digits(self, codes: Ints, length: int) -> Ints:
        """Return codes of k-mers of one length as numbers that ``alphabet.text`` spells out."""
        out = np.zeros_like(codes)
        for j in range(length):
            letter = (codes >> (self.bits * j)) & ((1 << self.bits) - 1)
            out += letter * self.alphabet.size**j
        return out


def equal_blocks(ends: Ints) -> list[int]:
    """Return where to cut items into blocks of about equal size, given where each one starts.

    Examples
    --------
    >>> equal_blocks(np.array([0, 20_000, 40_000, 40_001, 40_002]))
    [0, 2, 4]
    """
    cuts = np.searchsorted(ends, np.arange(KMERS, int(ends[-1]), KMERS))
    return sorted({0, len(ends) - 1, *cuts.tolist()})
