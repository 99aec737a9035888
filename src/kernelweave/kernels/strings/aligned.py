"""Sequences of one common length, stored so that they can be compared position by position."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelweave.compiled.match_runs import fill_planes
from kernelweave.compiled.threads import map_blocks
from kernelweave.errors import InvalidInputError
from kernelweave.kernels.samples import Samples
from kernelweave.kernels.strings.alphabet import AMBIGUOUS, Alphabet
from kernelweave.kernels.strings.sequences import Sequences, sequences_of

__all__ = ["Aligned", "aligned_of"]

_BLOCK = 4096


@dataclass(frozen=True, eq=False)
class Aligned:
    """Sequences of equal length, one a column.

    Attributes
    ----------
    letters : ndarray of uint8, shape (L, n)
        Codes of the letters (`AMBIGUOUS` where one matches nothing).
    planes : ndarray of uint64, shape (P, W, n)
        The same as bits, see ``kernelweave.compiled.match_runs``.

    Examples
    --------
    >>> from kernelweave.kernels.strings.alphabet import get_alphabet
    >>> some = Aligned.of(Sequences.encode(["ACG", "TTT"], get_alphabet("dna")))
    >>> some.letters.T
    array([[0, 1, 2],
           [3, 3, 3]], dtype=uint8)
    """

    letters: NDArray[np.uint8]
    planes: NDArray[np.uint64]

    @classmethod
    def of(cls, sequences: Sequences) -> Aligned:
        """Store encoded sequences; an error says which one is of another length."""
        length = sequences.common_length
        if length is None:
            raise _unequal(sequences)
        letters = np.ascontiguousarray(sequences.codes.reshape(-1, length).T)
        shape = (sequences.alphabet.bits + 1, -(-length // 64), letters.shape[1])
        planes = np.empty(shape, np.uint64)

        def work(start: int, stop: int) -> None:
            fill_planes(letters, start, stop, planes)

        map_blocks(work, shape[2], _BLOCK, float(letters.size))
        return cls(letters, planes)

    @property
    def n(self) -> int:
        """Number of sequences."""
        return self.letters.shape[1]

    @property
    def length(self) -> int:
        """Number of letters of each."""
        return self.letters.shape[0]

    @cached_property
    def clean(self) -> bool:
        """Whether no letter is ambiguous."""
        return not np.any(self.letters == AMBIGUOUS)

    @property
    def nbytes(self) -> int:
        """Bytes of both forms."""
        return self.letters.nbytes + self.planes.nbytes

    @classmethod
    def join(cls, parts: Sequence[Aligned]) -> Aligned:
        """Return the sequences of all parts, one part after the other."""
        if len(parts) == 1:
            return parts[0]
        letters = np.concatenate([part.letters for part in parts], axis=1)
        return cls(letters, np.concatenate([part.planes for part in parts], axis=2))

    def __getitem__(self, index: Any) -> Aligned:
        """Return the sequences at these positions, as a copy."""
        return Aligned(
            np.ascontiguousarray(self.letters[:, index]),
            np.ascontiguousarray(self.planes[:, :, index]),
        )


def aligned_of(samples: Samples, alphabet: Alphabet, other_strand: bool = False) -> Aligned:
    """Return the only column of these samples as aligned sequences, made once.

    Parameters
    ----------
    samples : Samples
        One column of sequences.
    alphabet : Alphabet
        Their letters.
    other_strand : bool, default=False
        Whether to return the reverse complements instead.

    Examples
    --------
    >>> from kernelweave.kernels.strings.alphabet import get_alphabet
    >>> aligned_of(Samples(["ACG", "TTT"]), get_alphabet("dna"), other_strand=True).letters.T
    array([[1, 2, 3],
           [0, 0, 0]], dtype=uint8)
    """

    def make(base: Samples) -> Aligned:
        sequences = sequences_of(base, alphabet)
        return Aligned.of(sequences.reverse_complement() if other_strand else sequences)

    return samples.memo(("aligned", alphabet, other_strand), make, keep=True)


def _unequal(sequences: Sequences) -> InvalidInputError:
    lengths = sequences.lengths
    usual = int(np.bincount(lengths).argmax())
    others = np.flatnonzero(lengths != usual)
    more = f" (and {len(others) - 1} more differ)" if len(others) > 1 else ""
    return InvalidInputError(
        f"the weighted degree kernel compares position by position and needs sequences of equal "
        f"length: sequence {others[0]} has length {lengths[others[0]]}, most have {usual}{more}. "
        f"Cut them to one length, or use Spectrum, which takes any."
    )
