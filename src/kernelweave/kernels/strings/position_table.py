"""Weights over k-mers at positions, put together once and looked up many times."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelweave.compiled.blocks import STRING_ROWS
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
        self._tables: dict[int, tuple[Any, ...]] = {}
        letters, amounts = known.weighed(v)
        count = len(amounts)
        self._starts = table_starts(weights.bits, weights.table_depth(count, count), 1)
        if not count:
            return
        words = np.zeros(letters.shape, np.uint64)
        valids = np.zeros(letters.shape, np.uint8)
        for at in reversed(range(known.length)):
            if at + 1 < known.length:
                words[at], valids[at] = words[at + 1], valids[at + 1]
            roll_letter(letters[at], weights.bits, weights.degree, words[at], valids[at])
        positions = np.flatnonzero(weights.window_of >= 0).tolist()

        def work(start: int, stop: int) -> None:
            for at in positions[start:stop]:
                self._tables[at] = self._build(at, words, valids, amounts)

        map_blocks(work, len(positions), 1, 32.0 * letters.size)

    def _build(
        self, at: int, words: NDArray[np.uint64], valids: NDArray[np.uint8], v: Floats
    ) -> tuple[Any, ...]:
        """The trie of one position, in arrays as long as it needs them."""
        weights, starts = self._weights, self._starts
        low, high = max(at - weights.shift, 0), at + weights.shift + 1
        near = np.arange(low, min(high, weights.length))
        near = near[weights.window_of[near] == weights.window_of[at]]
        amounts = (weights.factors[np.abs(near - at)][:, None] * v).ravel()
        given: tuple[Any, ...] = (words[near].ravel(), valids[near].ravel(), amounts)
        given += (weights.bits, weights.degree, starts, weights.steps[at])
        given += (empty_tables(np.empty(starts[-1]), starts, weights.degree, len(amounts)),)
        return weights.sums[at], trimmed(*build_tables(*given))

    def look_up(self, new: Aligned) -> Floats:
        """Return sum_j v_j k(x_j, x) for every new x."""
        columns, weights = new.columns(), self._weights
        out = np.zeros(columns.shape[1])

        def work(start: int, stop: int) -> None:
            size = stop - start
            words, valids = np.zeros(size, np.uint64), np.zeros(size, np.uint8)
            noted = np.empty(size + 1, np.int32)
            for at in reversed(range(new.length)):
                roll_letter(columns[at, start:stop], weights.bits, weights.degree, words, valids)
                table = self._tables.get(at)
                if table is not None:
                    left = new.length - at
                    place = words, valids, left, weights.bits, self._starts
                    given: tuple[Any, ...] = (*place, *table, noted, out[start:stop])
                    look_up(*given)

        map_blocks(work, len(out), STRING_ROWS, 8.0 * columns.size)
        return new.mean(out)
