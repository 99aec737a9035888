"""Sequences of one common length, stored so that they can be compared position by position."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelweave.compiled.blocks import STRING_ROWS
from kernelweave.compiled.match_runs import fill_planes
from kernelweave.compiled.threads import map_blocks
from kernelweave.errors import InvalidInputError
from kernelweave.kernels.samples import Samples
from kernelweave.kernels.strings.alphabet import AMBIGUOUS, Alphabet
from kernelweave.kernels.strings.sequences import Sequences, sequences_of

__all__ = ["Aligned", "aligned_of"]


@dataclass(frozen=True, eq=False)
class Aligned:
    r"""Sequences of equal length, one a column, alone or with their reverse complements.

    With both strands the features of a sample are those of one plus those of the other, divided by
    :math:`\sqrt 2`: then :math:`k(x, x') = \tfrac12 \sum_{s, s'} k_0(x_s, x'_{s'})`.

    Parameters
    ----------
    letters : ndarray of uint8, shape (1 or 2 strands, L, n)
        Codes of the letters (`AMBIGUOUS` where one matches nothing).
    bits : int
        Bits of a letter.

    Examples
    --------
    >>> from kernelweave.kernels.strings.alphabet import get_alphabet
    >>> some = Aligned.of(Sequences.encode(["ACG", "TTT"], get_alphabet("dna")), both=True)
    >>> some.letters[0].T
    array([[0, 1, 2],
           [3, 3, 3]], dtype=uint8)
    >>> some.letters[1].T
    array([[1, 2, 3],
           [0, 0, 0]], dtype=uint8)
    """

    letters: NDArray[np.uint8]
    bits: int

    @classmethod
    def of(cls, sequences: Sequences, both: bool = False) -> Aligned:
        """Store encoded sequences; an error says which one is of another length."""
        length = sequences.common_length
        if length is None:
            raise _unequal(sequences)
        strands = [sequences, sequences.reverse_complement()] if both else [sequences]
        letters = np.array([strand.codes.reshape(-1, length).T for strand in strands])
        return cls(letters, sequences.alphabet.bits)

    @cached_property
    def planes(self) -> NDArray[np.uint64]:
        """The letters as bits, see ``kernelweave.compiled.match_runs``: (strands, P, W, n)."""
        words = -(-self.length // 64)
        out = np.empty((self.n_strands, self.bits + 1, words, self.n), np.uint64)

        def work(start: int, stop: int) -> None:
            for own, target in zip(self.letters, out, strict=True):
                fill_planes(own, start, stop, target)

        map_blocks(work, self.n, STRING_ROWS, float(self.letters.size))
        return out

    @property
    def n(self) -> int:
        """Number of samples."""
        return self.letters.shape[2]

    @property
    def length(self) -> int:
        """Number of letters of each."""
        return self.letters.shape[1]

    @property
    def n_strands(self) -> int:
        """Number of sequences of each sample."""
        return self.letters.shape[0]

    def columns(self, index: Any = slice(None)) -> NDArray[np.uint8]:
        """The letters of all strands of some samples side by side, shape (L, strands times n)."""
        some = self.letters[..., index]
        return np.ascontiguousarray(some.transpose(1, 0, 2).reshape(self.length, -1))

    def weighed(self, v: NDArray[np.float64]) -> tuple[NDArray[np.uint8], NDArray[np.float64]]:
        """Return the columns of the samples where v is not zero, and v for each of them."""
        used = np.flatnonzero(v)
        return self.columns(used), np.tile(v[used], self.n_strands)

    def mean(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the mean over the strands of values for each column, (..., strands times n)."""
        if self.n_strands == 1:
            return values
        return values.reshape(*values.shape[:-1], self.n_strands, self.n).mean(axis=-2)

    @cached_property
    def clean(self) -> bool:
        """Whether no letter is ambiguous."""
        return bool(self.letters.max(initial=0) != AMBIGUOUS)

    @property
    def nbytes(self) -> int:
        """Bytes of the letters, and of the planes once they are made."""
        return self.letters.nbytes + (self.planes.nbytes if "planes" in vars(self) else 0)

    def __getitem__(self, index: Any) -> Aligned:
        """Return the samples at these positions, as a copy."""
        return Aligned(np.ascontiguousarray(self.letters[..., index]), self.bits)


def aligned_of(samples: Samples, alphabet: Alphabet, both: bool = False) -> Aligned:
    """Return the only column of these samples as aligned sequences, made once."""
    return samples.memo(
        ("aligned", alphabet, both),
        lambda base: Aligned.of(sequences_of(base, alphabet), both),
        keep=True,
    )


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
