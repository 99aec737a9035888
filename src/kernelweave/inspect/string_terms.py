r"""What string kernels add to a decision function, k-mer by k-mer.

A weighted sum of string kernels is a sum over the k-mers that a sequence shows,

.. math:: \sum_j \alpha_j\, k(x_j, x) = \sum_{k, l} s\big(u_{k,l}(x), l\big),

with a score s for every k-mer at every position (at all positions the same for a spectrum kernel).
A term holds the scores of kernels that are read together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from kernelweave.arrays import Array, Flags
from kernelweave.cached import cached_property
from kernelweave.errors import InvalidInputError
from kernelweave.kernels.samples import Samples
from kernelweave.kernels.strings.alphabet import AMBIGUOUS, Alphabet
from kernelweave.kernels.strings.positions import PositionWeights
from kernelweave.kernels.strings.sequences import Aligned, aligned_of, sequences_of

# A k-mer as a number whose digits are its letters; 64 bits hold the longest there are.
Numbers = NDArray[np.uint64]
Scale = Callable[[Samples], Array]


def kmer_numbers(letters: NDArray[np.uint8], size: int) -> tuple[Numbers, Flags]:
    """Return k-mers, given as k rows of letters, as numbers, and which of them count."""
    numbers = np.zeros(letters.shape[1:], np.uint64)
    for row in letters:
        numbers *= np.uint64(size)
        numbers += row
    return numbers, ~np.any(letters == AMBIGUOUS, axis=0)


def other_strand(numbers: Numbers, k: int, alphabet: Alphabet) -> Numbers:
    """Return the reverse complements of k-mers."""
    pairs = alphabet.complement_codes(np.arange(alphabet.size, dtype=np.uint8))
    rest, out = numbers.copy(), np.zeros_like(numbers)
    for _ in range(k):
        rest, letters = np.divmod(rest, np.uint64(alphabet.size))
        out = out * np.uint64(alphabet.size) + pairs[letters]
    return out


def add_up(numbers: Numbers, values: Array, n_numbers: int) -> tuple[Numbers, Array]:
    """Return the different numbers, ascending, and the sums of their values."""
    # An array of all possible numbers that is no larger than what is added up.
    if n_numbers <= len(numbers):
        places = numbers.astype(np.int64)
        here = np.flatnonzero(np.bincount(places, minlength=n_numbers))
        sums: Array = np.bincount(places, values, n_numbers).astype(np.float64)
        return here.astype(np.uint64), sums[here]
    found, place = np.unique(numbers, return_inverse=True)
    return found, np.bincount(place, values, len(found)).astype(np.float64)


@dataclass(frozen=True, eq=False)
class AlignedTerm:
    r"""Weighted degree kernels, or parts of them, on the same sequences.

    .. math:: s(u, l) = \sum_s W^{(s)}_{l,|u|} \sum_j v_j\, [u_{|u|,l+s}(x_j) = u]
    """

    alphabet: Alphabet
    known: Aligned
    # The v_j, one for each known sequence, over the number of strands.
    amounts: Array
    # For each shift s the table W of positions and lengths.
    weights: dict[int, Array]
    # The factor of each new sequence, if the kernel is normalised, and the one that scores of
    # k-mers, which are of no sequence in particular, take for it.
    scale: Scale | None = None
    typical: float = 1.0

    placed = True

    @property
    def degree(self) -> int:
        """Longest k-mers that the kernels compare."""
        return self.weights[0].shape[1]

    @cached_property
    def lengths(self) -> list[int]:
        """Lengths of k-mers with a weight."""
        used = np.any([own.any(axis=0) for own in self.weights.values()], axis=0)
        return (np.flatnonzero(used) + 1).tolist()

    @property
    def length(self) -> int:
        """Number of letters of the sequences."""
        return self.known.length

    def at(self, k: int, position: int) -> tuple[Numbers, Array]:
        """Return the k-mers with a score at a position, as numbers, ascending, and the scores."""
        numbers, values = [np.empty(0, np.uint64)], [np.empty(0)]
        for turned in range(self.known.n_strands):
            here = self.length - k - position if turned else position
            for s, weights in self.weights.items():
                there = here + s
                weight = weights[here, k - 1] if k <= self.degree else 0.0
                if weight == 0.0 or not 0 <= there <= self.length - k:
                    continue
                for letters in self.known.letters:
                    own, counts = kmer_numbers(letters[there : there + k], self.alphabet.size)
                    own = own[counts]
                    numbers.append(other_strand(own, k, self.alphabet) if turned else own)
                    values.append(weight * self.typical * self.amounts[counts])
        every = np.concatenate(numbers)
        return add_up(every, np.concatenate(values), self.alphabet.size**k)

    @cached_property
    def _moved(self) -> dict[int, Aligned]:
        """The known sequences as shifts see them: letter l + s in place l."""
        out = {}
        for s in self.weights:
            letters = np.full_like(self.known.letters, AMBIGUOUS)
            low, high = max(0, -s), min(self.length, self.length - s)
            letters[:, low:high] = self.known.letters[:, low + s : high + s]
            out[s] = replace(self.known, letters=letters)
        return out

    def contributions(self, samples: Samples) -> Iterator[tuple[int, Array]]:
        """Yield for every length what its k-mers add at each start position, shape (n, L)."""
        new = aligned_of(samples, self.alphabet, self.known.n_strands == 2)
        if new.length != self.length:
            raise InvalidInputError(
                f"the model was fitted on sequences of length {self.length}; got sequences of "
                f"length {new.length}."
            )
        total = np.zeros((self.degree, self.length, new.n))
        for s, weights in self.weights.items():
            rows = np.flatnonzero(weights.any(axis=1))
            window_of = np.full(self.length, -1)
            window_of[rows] = np.arange(len(rows))
            steps = np.zeros_like(weights)
            ask = PositionWeights(0, steps, window_of, by_length=True)
            for turned in range(new.n_strands):
                strand = replace(new, letters=new.letters[turned : turned + 1])
                found = ask.products(strand, self._moved[s], self.amounts)
                for k in range(1, self.degree + 1):
                    inside = rows + k <= self.length
                    own = rows[inside]
                    at = self.length - k - own if turned else own
                    total[k - 1, at] += weights[own, k - 1, None] * found[inside, k - 1]
        scale = None if self.scale is None else self.scale(samples)[:, None]
        for k in self.lengths:
            yield k, total[k - 1].T if scale is None else scale * total[k - 1].T


@dataclass(frozen=True, eq=False)
class SpectrumTerm:
    """A spectrum kernel: the same score at all positions, or at those of its window."""

    alphabet: Alphabet
    # For each length the k-mers, ascending, and their scores.
    tables: dict[int, tuple[Numbers, Array]]
    # The first start position and the one after the last.
    window: tuple[int, int] | None
    # Letters of the longest known sequence.
    length: int
    scale: Scale | None = None
    typical: float = 1.0

    @property
    def placed(self) -> bool:
        """Whether scores depend on positions."""
        return self.window is not None

    @property
    def lengths(self) -> list[int]:
        """Lengths of the k-mers."""
        return list(self.tables)

    def at(self, k: int, position: int) -> tuple[Numbers, Array]:
        """Return the k-mers with a score at a position, as numbers, ascending, and the scores."""
        start, stop = self.window or (0, self.length)
        if k not in self.tables or not start <= position < stop:
            return np.empty(0, np.uint64), np.empty(0)
        numbers, values = self.tables[k]
        return numbers, self.typical * values

    def contributions(self, samples: Samples) -> Iterator[tuple[int, Array]]:
        """Yield for every length what its k-mers add at each start position, shape (n, L')."""
        some = sequences_of(samples, self.alphabet)
        scale = np.ones(len(some)) if self.scale is None else self.scale(samples)
        letters, lengths, (row, place) = some.codes, some.lengths, some.places
        start, stop = self.window or (0, int(lengths.max()))
        for k, (known, values) in self.tables.items():
            out = np.zeros((len(some), int(lengths.max())))
            begins = np.flatnonzero((place >= start) & (place < stop) & (place + k <= lengths[row]))
            some_letters = letters[begins + np.arange(k)[:, None]]
            numbers, counts = kmer_numbers(some_letters, self.alphabet.size)
            at = np.minimum(np.searchsorted(known, numbers), max(0, len(known) - 1))
            hits = counts & (known[at] == numbers) if len(known) else np.zeros(len(at), bool)
            out[row[begins[hits]], place[begins[hits]]] = values[at[hits]]
            yield k, scale[:, None] * out
