"""Weights of k-mers beside their sorted codes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from kernelweave.compiled.stores import sorted_lookup
from kernelweave.compiled.threads import map_blocks
from kernelweave.kernels.strings.kmer_space import Ints, equal_blocks
from kernelweave.kernels.strings.sequences import Sequences
from kernelweave.kernels.strings.weight_store import LOOKUP_WORK, Floats, WeightStore

__all__ = ["SortedStore"]


class SortedStore(WeightStore):
    """Weights beside their sorted codes, found by binary search: for long k-mers of one length.

    See :class:`WeightStore`.
    """

    def clear(self) -> None:
        self._keys: Ints = np.empty(0, np.int64)
        self._values: Floats = np.empty(0)
        self._heads: NDArray[np.int64] | None = None
        self._shift = 0

    @property
    def nbytes(self) -> int:
        heads = 0 if self._heads is None else self._heads.nbytes
        return self._keys.nbytes + self._values.nbytes + heads

    def _add(self, sequences: Sequences, rows: Ints, delta: Floats) -> None:
        self._heads = None
        some = sequences[rows]
        blocks = equal_blocks(some.starts)
        lists: list[tuple[Ints, Floats]] = [(self._keys, self._values)]
        lists += [lists[0]] * (len(blocks) - 1)

        def work(start: int, stop: int) -> None:
            for b in range(start, stop):
                own = np.arange(blocks[b], blocks[b + 1])
                lists[b + 1] = self._collect(some[own], delta[own])

        map_blocks(work, len(blocks) - 1, 1, LOOKUP_WORK * float(len(some.codes)))
        self._keys, self._values = _merged(
            np.concatenate([keys for keys, _ in lists]),
            np.concatenate([values for _, values in lists]),
        )

    def _collect(self, sequences: Sequences, delta: Floats) -> tuple[Ints, Floats]:
        counts = self.space.count(sequences)
        keys = counts.indices.astype(np.int64, copy=False)
        values = counts.data * np.repeat(delta, np.diff(counts.indptr))
        lengths = np.searchsorted(self.space.offsets, keys, side="right") - 1
        return _merged(keys, values * self.factors[lengths])

    def _reader(self) -> Callable[[Sequences, int, int, Floats], None]:
        space = self.space
        if self._heads is None:
            # About one place for each key, named by its highest bits.
            bits = max(1, space.n_columns - 1).bit_length()
            share = min(bits, max(1, len(self._keys)).bit_length())
            self._shift = bits - share
            places = np.bincount(self._keys >> self._shift, minlength=(1 << share))
            self._heads = np.concatenate([[0], np.cumsum(places)])
        heads = self._heads

        def one(sequences: Sequences, first: int, last: int, out: Floats) -> None:
            sorted_lookup(
                sequences.codes, sequences.starts, first, last, space.shortest, space.bits,
                space.pairs, *space.window, space.offsets, self._keys, self._values, heads,
                self._shift, out,
            )  # fmt: skip

        return one

    def _weights(self, length: int) -> tuple[Ints, Floats]:
        start = int(self.space.offsets[length - self.space.shortest])
        ends = (start, start + self.space.codes_of(length))
        own = slice(*np.searchsorted(self._keys, ends))
        return self.space.digits(self._keys[own] - start, length), self._values[own].copy()


def _merged(keys: Ints, values: Floats) -> tuple[Ints, Floats]:
    """Sort keys and add up the values of equal ones."""
    if not len(keys):
        return keys, values
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    first = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
    return keys[first], np.add.reduceat(values[order], first)
