"""Weights of k-mers of several lengths in a trie."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kernelweave.compiled.kmers import strand_codes
from kernelweave.compiled.trie import trie_add, trie_jumps, trie_lookup, trie_sums
from kernelweave.kernels.strings.kmer_space import Ints
from kernelweave.kernels.strings.sequences import Sequences
from kernelweave.kernels.strings.weight_store import Floats, WeightStore

__all__ = ["TrieStore"]


class TrieStore(WeightStore):
    """Weights in a trie, whose inner nodes hold those of the shorter k-mers.

    One walk from every position meets the k-mers of all lengths. See :class:`WeightStore`.
    """

    def clear(self) -> None:
        self._children = np.zeros((1, self.space.alphabet.size), np.int32)
        self._w: Floats = np.zeros(1)
        self._used = 1
        self._sums: Floats | None = None
        self._jumps = np.empty(0, np.int32)

    @property
    def nbytes(self) -> int:
        sums = 0 if self._sums is None else self._sums.nbytes
        return self._children.nbytes + self._w.nbytes + self._jumps.nbytes + sums

    def _grow(self, more: int) -> None:
        size = max(2 * len(self._w), self._used + more)
        children = np.zeros((size, self._children.shape[1]), np.int32)
        w = np.zeros(size)
        children[: self._used] = self._children[: self._used]
        w[: self._used] = self._w[: self._used]
        self._children, self._w = children, w

    def _add(self, sequences: Sequences, rows: Ints, delta: Floats) -> None:
        space = self.space
        self._sums = None
        factors = np.concatenate([np.zeros(space.shortest), self.factors])
        done = 0
        while done < len(rows):
            # Nodes are made as they are met, so one thread does it all.
            done, self._used = trie_add(
                sequences.codes, sequences.starts, rows, done, delta, factors, space.shortest,
                space.longest, space.bits, space.pairs, *space.window, self._children, self._w,
                self._used,
            )  # fmt: skip
            if done < len(rows):
                self._grow(2 * space.longest * int(sequences.lengths[rows[done]]))

    def _reader(self) -> Callable[[Sequences, int, int, Floats], None]:
        space = self.space
        children, sums, jumps = self._children, self._sums, self._jumps
        if sums is None:
            # A table of about a quarter as many places as there are nodes.
            depth = min(space.longest, max(1, (self._used // 4).bit_length() // space.bits))
            jumps = np.empty(space.codes_of(depth), np.int32)
            trie_jumps(children, depth, space.bits, jumps)
            sums = np.empty(self._used)
            trie_sums(children, self._w[: self._used], sums)
            # Last of all, so that another thread never sees half of it.
            self._jumps, self._sums = jumps, sums
        depth = (len(jumps).bit_length() - 1) // space.bits

        def one(sequences: Sequences, first: int, last: int, out: Floats) -> None:
            trie_lookup(
                sequences.codes, sequences.starts, first, last, space.longest, space.bits,
                *space.window, depth, jumps, children, sums, out,
            )  # fmt: skip

        return one

    def _weights(self, length: int) -> tuple[Ints, Floats]:
        nodes, numbers = np.zeros(1, np.int64), np.zeros(1, np.int64)
        codes = np.zeros(1, np.int64)
        for _ in range(length):
            parents, letters = np.nonzero(self._children[nodes])
            nodes = self._children[nodes[parents], letters].astype(np.int64)
            numbers = numbers[parents] * self.space.alphabet.size + letters
            codes = (codes[parents] << self.space.bits) | letters
        if self.space.reverse_complement:
            # Both strands are here; the lower code speaks for the two.
            lower = codes.copy()
            strand_codes(lower, length, self.space.bits, self.space.pairs)
            own = lower == codes
            nodes, numbers = nodes[own], numbers[own]
        return numbers, self._w[nodes]
