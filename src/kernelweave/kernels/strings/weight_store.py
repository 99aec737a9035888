"""What a store of k-mer weights is: clear, add sequences, look sequences up."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kernelweave.compiled.threads import map_blocks
from kernelweave.errors import InvalidInputError
from kernelweave.kernels.strings.kmer_space import Ints, KmerSpace, equal_blocks
from kernelweave.kernels.strings.sequences import Sequences

__all__ = ["LOOKUP_WORK", "Floats", "WeightStore"]

Floats = NDArray[np.float64]

# A look-up takes as long as this many multiplications in a row.
LOOKUP_WORK = 8.0


class WeightStore(ABC):
    r"""A weight for every k-mer of a space.

    .. math:: w_u = b_{|u|} \sum_i \delta_i \, \#_u(x_i), \qquad
              f(x) = \sum_u w_u \, \#_u(x)

    with the number :math:`\#_u(x)` of times the k-mer u occurs in x and a factor b for each length.

    Parameters
    ----------
    space : KmerSpace
        Which k-mers there are.
    factors : sequence of float, optional
        The factor of each length, from the shortest up; ones by default.

    Attributes
    ----------
    nbytes : int
        Bytes of the weights, and of what speeds up looking them up.

    Examples
    --------
    >>> from kernelweave.kernels.strings.alphabet import get_alphabet
    >>> dna = get_alphabet("dna")
    >>> from kernelweave.kernels.strings.stores import TrieStore
    >>> store = TrieStore(KmerSpace(dna, 1, 2))
    >>> store.add(Sequences.encode(["AACA", "AT"], dna), [1.0, -2.0])
    >>> store.lookup(Sequences.encode(["AA", "CT", "TAT"], dna))
    array([ 3., -1., -5.])
    """

    def __init__(self, space: KmerSpace, factors: Sequence[float] | None = None) -> None:
        self.space = space
        n_lengths = space.longest - space.shortest + 1
        self.factors = np.ones(n_lengths) if factors is None else np.array(factors, np.float64)
        self.clear()

    @abstractmethod
    def clear(self) -> None:
        """Make all weights zero."""

    def add(self, sequences: Sequences, delta: ArrayLike) -> None:
        """Add :math:`\\delta_i \\Phi(x_i)` for every sequence to the weights."""
        self.space.check(sequences)
        values = np.asarray(delta, np.float64)
        if values.shape != (len(sequences),):
            raise InvalidInputError(
                f"delta needs one number for each of {len(sequences)} sequences; got shape "
                f"{values.shape}."
            )
        rows = np.flatnonzero(values)
        self._add(sequences, rows, values[rows])

    @abstractmethod
    def _add(self, sequences: Sequences, rows: Ints, delta: Floats) -> None:
        """Add some of the sequences."""

    def lookup(self, sequences: Sequences) -> Floats:
        """Return the sum of the weights of its k-mers for every sequence."""
        self.space.check(sequences)
        one = self._reader()
        out = np.zeros(len(sequences))
        blocks = equal_blocks(sequences.starts)

        def work(start: int, stop: int) -> None:
            for b in range(start, stop):
                first, last = blocks[b], blocks[b + 1]
                one(sequences, first, last, out[first:last])

        map_blocks(work, len(blocks) - 1, 1, LOOKUP_WORK * float(len(sequences.codes)))
        return out

    @abstractmethod
    def _reader(self) -> Callable[[Sequences, int, int, Floats], None]:
        """Return what looks up sequences first ... last - 1, made ready once."""

    def weights(self, length: int) -> tuple[Ints, Floats]:
        """Return the k-mers of one length whose weight is not zero, ascending, and the weights.

        ``space.alphabet.text(number, length)`` spells a k-mer out. With both strands as one each
        k-mer stands for its reverse complement too.
        """
        if not self.space.shortest <= length <= self.space.longest:
            raise InvalidInputError(
                f"the store has k-mers of lengths {self.space.shortest} to {self.space.longest}; "
                f"got length={length!r}."
            )
        numbers, values = self._weights(length)
        used = values != 0.0
        return numbers[used], values[used]

    @abstractmethod
    def _weights(self, length: int) -> tuple[Ints, Floats]:
        """The same, maybe with zeros."""

    @property
    @abstractmethod
    def nbytes(self) -> int: ...
