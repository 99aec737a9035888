"""The weighted degree kernel: common k-mers at the same positions."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelweave.arrays import Array
from kernelweave.errors import InvalidInputError
from kernelweave.kernels.base import Kernel
from kernelweave.kernels.evaluate import Pair
from kernelweave.kernels.normalize import Scaling
from kernelweave.kernels.samples import Samples
from kernelweave.kernels.strings.alphabet import Alphabet, get_alphabet
from kernelweave.kernels.strings.parts import (
    LookUp,
    StringKernel,
    Terms,
    is_pair,
    is_whole,
    position_text,
)
from kernelweave.kernels.strings.positions import PositionalFactor, PositionTable, PositionWeights
from kernelweave.kernels.strings.sequences import Aligned, aligned_of, sequences_of


class WeightedDegree(StringKernel):
    r"""Weighted degree kernel of sequences of equal length L (Rätsch and Sonnenburg).

    .. math:: k(x, x') = \sum_{k=1}^{d} w_k \sum_{l=0}^{L-k} [u_{k,l}(x) = u_{k,l}(x')], \qquad
              w_k = \frac{2 (d - k + 1)}{d (d + 1)}

    with the k-mer :math:`u_{k,l}` that starts at position l. With a shift S equal k-mers also
    count at positions up to S apart, with the weight :math:`1 / (2 (s + 1))` for each of the two
    directions.

    k-mers that hold an ambiguous letter (N) match nothing. Sequences of unequal length are refused.

    Parameters
    ----------
    degree : int
        d, the longest k-mers; at most 32 letters of DNA, 12 of protein.
    shift : int, default=0
        S, the most positions that equal k-mers may be apart.
    alphabet : {"dna", "rna", "protein"}, str of letters or Alphabet, default="dna"
        The letters. Lower case is read as upper case.
    normalize : bool, default=False
        Divide by :math:`\sqrt{k(x, x)\, k(x', x')}`; a sample without any k-mer is similar to none.
    reverse_complement : bool, default=False
        Add the features of the other strand (DNA and RNA).
    lengths : (int, int), optional
        Count only k-mers of these lengths, first and last, with weight 1 instead of
        :math:`w_k`. ``by_length()`` makes one such kernel for each length.
    positions : (int, int), optional
        Count only k-mers that start from the first of these positions on and before the second.
        ``by_position(window)`` makes one such kernel for each window. With a shift both k-mers
        must start there.

    Examples
    --------
    >>> WeightedDegree(2)(["ACGT", "ACCT"])
    array([[3.66666667, 2.33333333],
           [2.33333333, 3.66666667]])
    >>> WeightedDegree(2).by_length().by_position(2)  # doctest: +ELLIPSIS
    WeightedDegree(degree=2, shift=0, alphabet='dna', ...).by_length().by_position(2)
    """

    def __init__(
        self,
        degree: int,
        *,
        shift: int = 0,
        alphabet: str | Alphabet = "dna",
        normalize: bool = False,
        reverse_complement: bool = False,
        lengths: tuple[int, int] | None = None,
        positions: tuple[int, int] | None = None,
    ) -> None:
        self.degree = degree
        self.shift = shift
        self.alphabet = alphabet
        self.normalize = normalize
        self.reverse_complement = reverse_complement
        self.lengths = lengths
        self.positions = positions
        self._length: int | None = None
        self._letters = get_alphabet(alphabet)
        self._check()

    def _check(self) -> None:
        most = 64 // self._letters.bits
        if not is_whole(self.degree) or not 1 <= self.degree <= most:
            raise InvalidInputError(
                f"degree must be an integer from 1 to {most} for alphabet={self._letters.name}; "
                f"got {self.degree!r}."
            )
        if not is_whole(self.shift) or self.shift < 0:
            raise InvalidInputError(f"shift must be an integer >= 0; got {self.shift!r}.")
        own = self.lengths
        if own is not None and not (is_pair(own) and 1 <= own[0] <= own[1] <= self.degree):
            raise InvalidInputError(
                f"lengths must be two lengths, first and last, from 1 to {self.degree}; got "
                f"{own!r}."
            )
        super()._check()

    @property
    def name(self) -> str:
        shown = [f"degree={self.degree}"]
        if self.shift:
            shown.append(f"shift={self.shift}")
        shown += self._options()
        text = f"weighted degree({', '.join(shown)})"
        if self.lengths is not None:
            first, last = self.lengths
            text += f" length {first}" if first == last else f" lengths {first}-{last}"
        return text + position_text(self.positions)

    # Parts

    @property
    def length_range(self) -> tuple[int, int]:
        return self.lengths or (1, self.degree)

    def part(self, lengths: tuple[int, int], positions: tuple[int, int] | None) -> WeightedDegree:
        own = self.lengths if lengths == self.length_range else lengths
        return self._with(positions, lengths=own)

    def longest_kmers(self, samples: Samples) -> NDArray[np.int64]:
        self.aligned(samples)  # Refuses sequences of unequal length.
        own = sequences_of(samples, self._letters)
        if not self.reverse_complement:
            return own.longest_runs()
        # Each strand is read from its own start.
        return np.maximum(own.longest_runs(), own.reverse_complement().longest_runs())

    # What the kernel is made of

    def bind(self, samples: Samples) -> WeightedDegree:
        """Learn the length of the sequences."""
        out = copy.copy(self)
        out._length = self.aligned(samples).length
        if self.positions is not None and self.positions[0] >= out._length:
            raise InvalidInputError(
                f"kernel '{self.name}' begins after the end of the sequences, which have "
                f"{out._length} letters."
            )
        return out

    def aligned(self, samples: Samples) -> Aligned:
        """Return the sequences, of the length that the kernel is bound to."""
        read = aligned_of(samples, self._letters, bool(self.reverse_complement))
        if self._length is not None and read.length != self._length:
            raise InvalidInputError(
                f"kernel '{self.name}' was bound to sequences of length {self._length}; got "
                f"sequences of length {read.length}."
            )
        return read

    @property
    def length_weights(self) -> Array:
        """Weight of each k-mer length 1 ... degree."""
        d = self.degree
        k = np.arange(1, d + 1)
        if self.lengths is None:
            return 2.0 * (d - k + 1) / (d * (d + 1))
        return ((k >= self.lengths[0]) & (k <= self.lengths[1])).astype(np.float64)

    def window(self, length: int) -> tuple[int, int]:
        """The first start position in sequences of this length and the one after the last."""
        start, stop = (0, length) if self.positions is None else self.positions
        return int(start), min(int(stop), length)

    def position_weights(self, length: int) -> PositionWeights:
        """Return the kernel's weights over the positions of sequences of this length."""
        term = self.window(length), self.length_weights
        return PositionWeights.of(int(self.shift), length, [term])

    def features(self, samples: Samples) -> PositionalFactor:
        read = self.aligned(samples)
        what = int(self.shift), self.window(read.length), self.length_weights
        scaling = Scaling.none(read.n, self.unit(samples) if self.normalize else 1.0)
        return PositionalFactor(read, *what, scaling)

    def _raw_diagonal(self, samples: Samples) -> Array:
        read = self.aligned(samples)
        return self.position_weights(read.length).diagonals(read).sum(axis=(0, 1))

    # Values

    def _raw_values(self, pair: Pair) -> Array:
        left, right = self.aligned(pair.left), self.aligned(pair.right)
        if left.length != right.length:
            raise InvalidInputError(
                f"the two sets of sequences must have the same length; got {left.length} and "
                f"{right.length}."
            )
        out = np.zeros(pair.shape)
        self.position_weights(left.length).add_pairs(left, right, out)
        return out

    # Weights over k-mers

    def _table(self, samples: Samples, v: Array, terms: Terms) -> LookUp:
        known = self.aligned(samples)
        parts = [(own.window(known.length), factor * own.length_weights) for own, factor in terms]
        weights = PositionWeights.of(int(self.shift), known.length, parts)
        table = PositionTable(weights, known, v)
        return lambda new: table.look_up(self.aligned(new))

    @property
    def merge_key(self) -> Any:
        if self.normalize:
            return None
        # With a shift windows matter, and those of one table must not overlap.
        window = tuple(self.positions) if self.shift and self.positions is not None else None
        shape = self.degree, self.shift, self._letters, self.reverse_complement
        return (WeightedDegree, *shape, window)

    @classmethod
    def examples(cls) -> list[Kernel]:
        return [
            cls(3),
            cls(4, shift=2, normalize=True),
            cls(3, reverse_complement=True, lengths=(2, 3)),
            cls(3, shift=1, positions=(2, 9)),
        ]

    @classmethod
    def example_data(cls, rng: np.random.Generator) -> Any:
        letters, often = list("ACGTN"), [0.3, 0.3, 0.2, 0.15, 0.05]
        return ["".join(rng.choice(letters, 12, p=often)) for _ in range(12)]
