"""Weights of k-mers in an array of all codes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kernelweave.compiled.kmers import strand_codes
from kernelweave.compiled.stores import array_add, array_lookup
from kernelweave.compiled.threads import map_blocks
from kernelweave.kernels.strings.kmer_space import Ints
from kernelweave.kernels.strings.sequences import Sequences
from kernelweave.kernels.strings.weight_store import LOOKUP_WORK, Floats, WeightStore

__all__ = ["ArrayStore"]

# An array is added to in at most so many parts, each in a copy of its own.
_PARTS = 8


class ArrayStore(WeightStore):
    """Weights in an array of all codes: for small alphabets and short k-mers.

    Looked up are sums over all prefixes of a k-mer, so that several lengths cost no more than one.
    See :class:`WeightStore`.
    """

    def clear(self) -> None:
        self._w: Floats = np.zeros(self.space.n_columns)
        self._sums: Floats | None = None

    @property
    def nbytes(self) -> int:
        other = 0 if self._sums is None or self._sums is self._w else self._sums.nbytes
        return self._w.nbytes + other

    def _of(self, array: Floats, j: int) -> Floats:
        start = self.space.offsets[j]
        return array[start : start + self.space.codes_of(self.space.shortest + j)]

    def _add(self, sequences: Sequences, rows: Ints, delta: Floats) -> None:
        space = self.space
        self._sums = None
        kmers = int(sequences.lengths[rows].sum())
        for j, factor in enumerate(self.factors):
            k, w = space.shortest + j, self._of(self._w, j)
            # The cut follows from the sequences alone: same bits for any number of threads.
            parts = int(np.clip(kmers // max(2**17, 4 * w.size), 1, _PARTS))
            size = max(1, -(-len(rows) // parts))
            targets = [w, *(np.zeros_like(w) for _ in range(parts - 1))]

            def work(
                start: int,
                stop: int,
                k: int = k,
                factor: float = factor,
                size: int = size,
                targets: list[Floats] = targets,
            ) -> None:
                array_add(
                    sequences.codes, sequences.starts, rows[start:stop],
                    factor * delta[start:stop], k, space.bits, space.pairs, *space.window,
                    targets[start // size],
                )  # fmt: skip

            map_blocks(work, len(rows), size, LOOKUP_WORK * kmers)
            for other in targets[1:]:
                w += other

    def _prefix_sums(self) -> Floats:
        space = self.space
        if space.shortest == space.longest and not space.reverse_complement:
            return self._w
        sums = np.empty_like(self._w)
        for j in range(len(self.factors)):
            here, w = self._of(sums, j), self._of(self._w, j)
            if space.reverse_complement:
                codes = np.arange(len(w))
                strand_codes(codes, space.shortest + j, space.bits, space.pairs)
                w = w[codes]
            here[...] = w
            if j:
                here.reshape(-1, 1 << space.bits)[...] += self._of(sums, j - 1)[:, None]
        return sums

    def _reader(self) -> Callable[[Sequences, int, int, Floats], None]:
        space = self.space
        sums = self._sums = self._prefix_sums() if self._sums is None else self._sums

        def one(sequences: Sequences, first: int, last: int, out: Floats) -> None:
            array_lookup(
                sequences.codes, sequences.starts, first, last, space.shortest, space.longest,
                space.bits, *space.window, space.offsets, sums, out,
            )  # fmt: skip

        return one

    def _weights(self, length: int) -> tuple[Ints, Floats]:
        w = self._of(self._w, length - self.space.shortest)
        codes = np.flatnonzero(w)
        return self.space.digits(codes, length), w[codes]
