"""Weights over k-mers at positions, put together once and looked up many times."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelweave.compiled.position_tables import (
    build_tables,
    empty_tables,
    look_up,
    roll_letter,
    table_starts,
    trimmed,
)
from kernelweave.compiled.threads import map_blocks
from kernelweave.kernels.strings.aligned import Aligned
from kernelweave.kernels.strings.position_weights import PositionWeights

__all__ = ["PositionTable"]

Floats = NDArray[np.float64]

_BLOCK = 4096


class PositionTable:
    r"""The sparse weight vector :math:`w = \sum_j v_j \Phi(x_j)` of a weighted degree kernel.

    One trie for each position (see ``kernelweave.compiled.position_tables``). A look-up takes
    O(L) steps, whatever the number of sequences it was made from.

    Parameters
    ----------
    weights : PositionWeights
        What counts; all windows are added up.
    known : Aligned
        The sequences.
    v : ndarray of shape (n,)
        Their coefficients.

    Examples
    --------
    >>> from kernelweave.kernels.strings.alphabet import get_alphabet
    >>> from kernelweave.kernels.strings.sequences import Sequences
    >>> some = Aligned.of(Sequences.encode(["ACG", "ACT", "TTT"], get_alphabet("dna")))
    >>> weights = PositionWeights(2, 0, np.ones((3, 2)), np.zeros(3, np.int64))
    >>> PositionTable(weights, some, np.array([1.0, 1.0, 0.0])).look_up(some)
    array([8., 8., 1.])
    """

    def __init__(self, weights: PositionWeights, known: Aligned, v: Floats) -> None:
        self._weights = weights
        self._positions = [] if not known.n else np.flatnonzero(weights.window_of >= 0).tolist()
        self._starts = table_starts(weights.bits, weights.table_depth(known.n, known.n), 1)
        words = np.zeros((known.length, known.n), np.uint64)
        valids = np.zeros((known.length, known.n), np.uint8)
        for at in reversed(range(known.length)):
            if at + 1 < known.length:
                words[at], valids[at] = words[at + 1], valids[at + 1]
            roll_letter(known.letters[at], weights.bits, weights.degree, words[at], valids[at])
        self._tables: dict[int, tuple[Any, ...]] = {}

        def work(start: int, stop: int) -> None:
            for at in self._positions[start:stop]:
                self._tables[at] = self._build(at, words, valids, v)

        map_blocks(work, len(self._positions), 1, 32.0 * known.letters.size)

    def _build(
        self, at: int, words: NDArray[np.uint64], valids: NDArray[np.uint8], v: Floats
    ) -> tuple[Any, ...]:
        """The trie of one position, in arrays as long as it needs them."""
        weights, starts = self._weights, self._starts
        low, high = max(at - weights.shift, 0), at + weights.shift + 1
        near = np.arange(low, min(high, weights.length))
        near = near[weights.window_of[near] == weights.window_of[at]]
        amounts = (weights.factors[np.abs(near - at)][:, None] * v).ravel()
        here = words[near].ravel(), valids[near].ravel(), amounts
        tables: Any = empty_tables(starts, weights.degree, len(amounts))
        steps = weights.steps[at]
        used, tables = build_tables(*here, weights.bits, weights.degree, starts, steps, tables)
        sums = np.concatenate([[0.0], np.cumsum(weights.steps[at])])
        return sums, trimmed(tables, used)

    def look_up(self, new: Aligned) -> Floats:
        """Return sum_j v_j k(x_j, x) for every new x."""
        out = np.zeros(new.n)
        weights = self._weights

        def work(start: int, stop: int) -> None:
            size = stop - start
            words, valids = np.zeros(size, np.uint64), np.zeros(size, np.uint8)
            noted = np.empty(size + 1, np.int32)
            for at in reversed(range(new.length)):
                letters = new.letters[at, start:stop]
                roll_letter(letters, weights.bits, weights.degree, words, valids)
                table = self._tables.get(at)
                if table is not None:
                    left = new.length - at
                    place = words, valids, left, weights.bits, weights.shared, self._starts
                    given: tuple[Any, ...] = (*place, *table, noted, out[start:stop])
                    look_up(*given)

        map_blocks(work, new.n, _BLOCK, 8.0 * new.letters.size)
        return out
