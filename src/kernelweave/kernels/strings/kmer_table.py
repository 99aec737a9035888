r"""Sparse weight vectors over k-mers: put together once, looked up many times."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kernelweave.compiled.position_tables import (
    add_amounts,
    build_nodes,
    empty_tables,
    list_kmers,
    look_up_sequences,
    sum_levels,
    table_starts,
    trimmed,
)
from kernelweave.compiled.threads import map_blocks
from kernelweave.errors import InvalidInputError
from kernelweave.kernels.strings.kmer_space import KmerSpace, equal_blocks
from kernelweave.kernels.strings.sequences import Sequences

__all__ = ["KmerTable"]

Floats = NDArray[np.float64]

# An array of all k-mers is quickest at any size, but to touch one of 4^12 places for the first time
# takes 0.4 s, as long as 10^7 look-ups.
_MOST_PLACES = 2**22
# An array that stays nearly empty is a waste: there may be one for each of very many kernels.
_PLACES_FOR_A_KMER = 64
_FEW_PLACES = 2**14
_PLACES_FOR_A_START = 4
# A look-up takes as long as this many multiplications in a row.
_WORK = 8.0


class KmerTable:
    r"""The sparse weight vector :math:`w = \sum_i \delta_i \Phi(x_i)` of a spectrum kernel.

    .. math:: w_u = b_{|u|} \sum_i \delta_i \, \#_u(x_i), \qquad
              f(x) = \sum_u w_u \, \#_u(x)

    with the number :math:`\#_u(x)` of times the k-mer u occurs in x and a factor b for each length.
    A look-up of x (Sonnenburg et al. 2006, algorithm 3) takes as many steps as x has letters,
    whatever the number of the :math:`x_i` and of the lengths. The weights are an array of all
    k-mers where that is not much larger than the k-mers that occur, and otherwise an array of their
    first letters with a trie below (see ``kernelweave.compiled.position_tables``).

    Parameters
    ----------
    space : KmerSpace
        Which k-mers there are.
    known : Sequences
        The sequences.
    delta : array-like of shape (n,)
        Their coefficients.
    factors : sequence of float, optional
        The factor of each length, from the shortest up; ones by default.

    Examples
    --------
    >>> from kernelweave.kernels.strings.alphabet import get_alphabet
    >>> dna = get_alphabet("dna")
    >>> some = Sequences.encode(["AACA", "AT"], dna)
    >>> table = KmerTable(KmerSpace(dna, 1, 2), some, [1.0, -2.0])
    >>> table.look_up(Sequences.encode(["AA", "CT", "TAT"], dna))
    array([ 3., -1., -5.])
    """

    def __init__(
        self,
        space: KmerSpace,
        known: Sequences,
        delta: ArrayLike,
        factors: Sequence[float] | None = None,
    ) -> None:
        space.check(known)
        values = np.asarray(delta, np.float64)
        if values.shape != (len(known),):
            raise InvalidInputError(
                f"delta needs one number for each of {len(known)} sequences; got shape "
                f"{values.shape}."
            )
        self._space = space
        steps = np.zeros(space.longest)
        steps[space.shortest - 1 :] = 1.0 if factors is None else factors
        self._sums = np.concatenate([[0.0], np.cumsum(steps)])
        depth = self._depth(known)
        self._starts = starts = table_starts(space.bits, depth, space.shortest)
        place: Any = (space.shortest, space.longest, space.bits, space.pairs, *space.window)
        levels = np.zeros(starts[-1])
        below = [(np.empty(0, np.uint64), np.empty(0, np.uint8), np.empty(0))]
        # On the other strand each length may take an entry of its own.
        entries_of_a_letter = space.longest - space.shortest + 2 if space.pairs.size else 1
        for first, last in pairwise(equal_blocks(entries_of_a_letter * known.starts)):
            rows = known.starts[first : last + 1], values[first:last]
            found = list_kmers(known.codes, *rows, *place)
            add_amounts(*found, space.bits, starts, levels)
            goes_on = np.flatnonzero(found[1] > depth)
            below.append((found[0][goes_on], found[1][goes_on], found[2][goes_on]))
        sum_levels(space.bits, starts, steps, levels)
        words, valids, amounts = (np.concatenate(part) for part in zip(*below, strict=True))
        tables: Any = empty_tables(levels, starts, space.longest, len(words))
        if depth < space.longest:
            entries = words, valids, amounts, space.bits, space.longest
            tables = trimmed(*build_nodes(*entries, starts, steps, tables))
        self._tables = tables

    def _depth(self, known: Sequences) -> int:
        """How many letters index the table: all, or as many as leave it a few k-mers a place."""
        space = self._space
        kmers = int(space.n_kmers(known).sum())
        room = max(_FEW_PLACES, _PLACES_FOR_A_KMER * kmers)
        if space.n_columns <= min(room, _MOST_PLACES):
            return space.longest
        starts = (
            kmers // (space.longest - space.shortest + 1) * (2 if space.reverse_complement else 1)
        )
        places = min(_PLACES_FOR_A_START * starts, _MOST_PLACES)
        return int(np.clip((max(places, 1).bit_length() - 1) // space.bits, 1, space.longest))

    @property
    def nbytes(self) -> int:
        """Bytes of the weights."""
        return sum(array.nbytes for array in self._tables)

    def look_up(self, sequences: Sequences) -> Floats:
        """Return the sum of the weights of its k-mers for every sequence."""
        space = self._space
        space.check(sequences)
        out = np.zeros(len(sequences))
        blocks = equal_blocks(sequences.starts)
        place = space.shortest, space.longest, space.bits, *space.window

        def work(start: int, stop: int) -> None:
            for b in range(start, stop):
                own = blocks[b], blocks[b + 1]
                text = sequences.codes, sequences.starts, *own
                table = self._starts, self._sums, self._tables, out[slice(*own)]
                given: tuple[Any, ...] = (*text, *place, *table)
                look_up_sequences(*given)

        map_blocks(work, len(blocks) - 1, 1, _WORK * float(len(sequences.codes)))
        return out
