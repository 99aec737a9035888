"""The spectrum kernel: k-mers that two sequences have in common, wherever they stand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from kernelweave.arrays import Array
from kernelweave.errors import InvalidInputError
from kernelweave.kernels.base import Kernel
from kernelweave.kernels.evaluate import Pair
from kernelweave.kernels.samples import Samples
from kernelweave.kernels.strings.alphabet import Alphabet, get_alphabet
from kernelweave.kernels.strings.kmers import (
    MOST_BITS,
    Ints,
    KmerRows,
    KmerSpace,
    KmerTable,
    number_columns,
    square_norms,
)
from kernelweave.kernels.strings.parts import (
    LookUp,
    StringKernel,
    Terms,
    is_pair,
    position_text,
)
from kernelweave.kernels.strings.sequences import Sequences, sequences_of


class Spectrum(StringKernel):
    r"""Spectrum kernel (Leslie et al. 2002): the inner product of k-mer counts.

    .. math:: k(x, x') = \sum_{k=a}^{b} \sum_{u \in A^k} \#_u(x) \, \#_u(x')

    with the number :math:`\#_u(x)` of times the k-mer u of letters of the alphabet A occurs in x.
    Sequences may differ in length. K-mers that hold an ambiguous letter (N) are not counted.

    Parameters
    ----------
    k : int or (int, int)
        Length of the k-mers, or the shortest and the longest, a and b. At most 31 letters of DNA,
        12 of protein.
    alphabet : {"dna", "rna", "protein"}, str of letters or Alphabet, default="dna"
        The letters. Lower case is read as upper case.
    normalize : bool, default=False
        Divide by :math:`\sqrt{k(x, x)\, k(x', x')}`; a sample without any k-mer is similar to none.
    reverse_complement : bool, default=False
        Count a k-mer and its reverse complement as one (DNA and RNA).
    positions : (int, int), optional
        Count only k-mers that start from the first of these positions on and before the second.
        ``by_position(window)`` makes one such kernel for each window.

    Examples
    --------
    >>> Spectrum(2)(["ACAC", "ACA", "GGN"])
    array([[5., 3., 0.],
           [3., 2., 0.],
           [0., 0., 1.]])
    >>> Spectrum((1, 6), alphabet="protein").name
    'spectrum(k=1-6, protein)'
    >>> Spectrum((1, 3)).by_length()
    Spectrum(k=(1, 3), alphabet='dna', normalize=False, reverse_complement=False).by_length()
    """

    def __init__(
        self,
        k: int | tuple[int, int],
        *,
        alphabet: str | Alphabet = "dna",
        normalize: bool = False,
        reverse_complement: bool = False,
        positions: tuple[int, int] | None = None,
    ) -> None:
        self.k = k
        self.alphabet = alphabet
        self.normalize = normalize
        self.reverse_complement = reverse_complement
        self.positions = positions
        self._letters = get_alphabet(alphabet)
        self._check()

    def _check(self) -> None:
        most = MOST_BITS // self._letters.bits
        pair = self.k if isinstance(self.k, tuple | list) else (self.k, self.k)
        if not is_pair(pair) or not 1 <= pair[0] <= pair[1] <= most:
            raise InvalidInputError(
                f"k must be an integer from 1 to {most} for alphabet={self._letters.name}, or the "
                f"shortest and the longest such as (1, 6); got {self.k!r}."
            )
        super()._check()

    @property
    def lengths(self) -> tuple[int, int]:
        """The shortest and the longest k-mers."""
        first, last = self.k if isinstance(self.k, tuple | list) else (self.k, self.k)
        return int(first), int(last)

    @property
    def name(self) -> str:
        first, last = self.lengths
        shown = [f"k={first}" if first == last else f"k={first}-{last}"]
        shown += self._options()
        return f"spectrum({', '.join(shown)}){position_text(self.positions)}"

    # Parts

    length_range = lengths

    def part(self, lengths: tuple[int, int], positions: tuple[int, int] | None) -> Spectrum:
        return self._with(positions, k=lengths[0] if lengths[0] == lengths[1] else lengths)

    # Features

    @property
    def space(self) -> KmerSpace:
        """Which k-mers are counted, and under which numbers."""
        at = None if self.positions is None else (int(self.positions[0]), int(self.positions[1]))
        return KmerSpace(self._letters, *self.lengths, bool(self.reverse_complement), at)

    def _read(self, samples: Samples) -> Sequences:
        return sequences_of(samples, self._letters)

    def _raw_features(self, samples: Samples) -> Any:
        return self.space.count(self._read(samples))

    def _raw_diagonal(self, samples: Samples) -> Array:
        key = "spectrum diagonal", self.space
        return samples.memo(key, lambda base: square_norms(self._raw_features(base)))

    def features(self, samples: Samples) -> Any:
        # Not kept: a bank stores them in its own way, and there may be very many such kernels.
        out = self._raw_features(samples)
        if self.normalize:
            out.data *= np.repeat(self.unit(samples), np.diff(out.indptr))
        return out

    # Values

    def _raw_values(self, pair: Pair) -> Array:
        left, right = pair.left, pair.right
        # Rows of the same training samples are asked for again and again.
        known: KmerRows = right.base.memo(
            ("spectrum rows", self.space), lambda base: KmerRows(self._raw_features(base))
        )
        if left.base is right.base:
            split, rows = known.own, left.index
        else:
            split, rows = known.read(self._raw_features(left)), None
        every = np.arange(left.n) if rows is None else rows
        return known.products(split, every, right.index, pair.dtype)

    # Weights over k-mers

    def _table(self, samples: Samples, v: Array, terms: Terms) -> LookUp:
        first = min(kernel.lengths[0] for kernel, _ in terms)
        last = max(kernel.lengths[1] for kernel, _ in terms)
        factors = np.zeros(last + 1)
        for kernel, factor in terms:
            factors[kernel.lengths[0] : kernel.lengths[1] + 1] += factor
        used = np.flatnonzero(v)
        space = replace(self.space, shortest=first, longest=last)
        table = KmerTable(space, self._read(samples)[used], v[used], factors[first:])
        return lambda new: table.look_up(self._read(new))

    def kmer_weights(self, samples: Samples, v: Array, length: int) -> tuple[Ints, Array]:
        """Return the weights of k-mers of one length in :math:`f = \\sum_j v_j k(x_j, \\cdot)`.

        That is the k-mers whose weight is not zero, ascending, and the weights; those of a
        normalised kernel are for f times :math:`\\sqrt{k(x, x)}`. ``alphabet.text(number, length)``
        spells a k-mer out. With both strands as one each stands for its reverse complement too.
        """
        amounts = v * self.unit(samples) if self.normalize else v
        used = np.flatnonzero(amounts)
        space = replace(self.space, shortest=length, longest=length)
        counts = space.count(self._read(samples)[used])
        columns, places = number_columns(counts.indices)
        added = counts.data * np.repeat(amounts[used], np.diff(counts.indptr))
        values = np.bincount(places, added, minlength=len(columns)).astype(np.float64)
        used = values != 0.0
        return space.digits(columns[used], length), values[used]

    @property
    def merge_key(self) -> Any:
        if self.normalize:
            return None
        return (Spectrum, self._letters, bool(self.reverse_complement), self.space.positions)

    @classmethod
    def examples(cls) -> list[Kernel]:
        return [
            cls(3),
            cls((1, 4), normalize=True),
            cls((2, 5), reverse_complement=True),
            cls(2, positions=(3, 9)),
            cls(9, normalize=True, reverse_complement=True),
        ]

    @classmethod
    def example_data(cls, rng: np.random.Generator) -> Any:
        letters, often = list("ACGTN"), [0.3, 0.3, 0.2, 0.15, 0.05]
        return ["".join(rng.choice(letters, size, p=often)) for size in rng.integers(8, 25, 12)]
