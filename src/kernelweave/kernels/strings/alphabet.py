"""Alphabets of sequences: which letters there are, which are ambiguous, what pairs with what."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kernelweave.cached import cached_property
from kernelweave.compiled.kmers import AMBIGUOUS
from kernelweave.errors import InvalidInputError
from kernelweave.validation import unknown_name

# Code of a letter that is not allowed.
INVALID = 254
_MOST_LETTERS = 64


@dataclass(frozen=True)
class Alphabet:
    """The letters a sequence may hold.

    Parameters
    ----------
    name : str
        What messages call it.
    letters : str
        The letters; a letter's code is its place here.
    ambiguous : str, default=""
        Letters that are accepted and match nothing.
    complement : str, default=""
        For each letter the one it pairs with; empty if there is no such thing.
    fold_case : bool, default=True
        Whether lower case is read as upper case.

    Examples
    --------
    >>> dna = get_alphabet("dna")
    >>> dna.size, dna.bits, dna.codes(b"ACgtN")
    (4, 2, array([  0,   1,   2,   3, 255], dtype=uint8))
    """

    name: str
    letters: str
    ambiguous: str = ""
    complement: str = ""
    fold_case: bool = True

    def __post_init__(self) -> None:
        kinds = (self.name, self.letters, self.ambiguous, self.complement)
        texts = all(isinstance(text, str) for text in kinds)
        if not texts or not isinstance(self.fold_case, bool):
            raise InvalidInputError("an Alphabet is made of texts, and fold_case is True or False.")
        letters, every = self.letters, self.letters + self.ambiguous
        known = every.isascii() and every.isprintable() and len(set(letters)) == len(letters)
        if not known or not 2 <= len(letters) <= _MOST_LETTERS:
            raise InvalidInputError(
                f"an alphabet of letters needs 2 to {_MOST_LETTERS} different ASCII letters; "
                f"got {letters!r}. Named ones are 'dna', 'rna' and 'protein'."
            )
        if self.complement and sorted(self.complement) != sorted(letters):
            raise InvalidInputError(
                f"complement must have each of the letters {letters!r} once; got "
                f"{self.complement!r}."
            )

    _after_load = __post_init__

    @property
    def size(self) -> int:
        """Number of letters."""
        return len(self.letters)

    @property
    def bits(self) -> int:
        """Bits that hold the code of a letter."""
        return max(1, (self.size - 1).bit_length())

    @cached_property
    def _table(self) -> bytes:
        table = np.full(256, INVALID, np.uint8)
        for code, letter in enumerate(self.letters):
            table[self._cases(letter)] = code
        for letter in self.ambiguous:
            table[self._cases(letter)] = AMBIGUOUS
        return table.tobytes()

    def _cases(self, letter: str) -> list[int]:
        return [ord(letter), ord(letter.lower())] if self.fold_case else [ord(letter)]

    def codes(self, text: bytes) -> NDArray[np.uint8]:
        """Return one code for each letter, `INVALID` for those that are not allowed."""
        return _translate(text, self._table)

    def complement_codes(self, codes: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Return the codes of the letters that pair with these."""
        if not self.complement:
            raise InvalidInputError(
                f"reverse_complement=True is for alphabet='dna' (or 'rna'); got {self.name}."
            )
        table = np.full(256, AMBIGUOUS, np.uint8)
        table[: self.size] = [self.letters.index(letter) for letter in self.complement]
        return _translate(codes.tobytes(), table.tobytes()).reshape(codes.shape)

    def text(self, code: int, length: int) -> str:
        """Return the k-mer of this length whose letters, as digits, make the number `code`."""
        out = []
        for _ in range(length):
            code, digit = divmod(code, self.size)
            out.append(self.letters[digit])
        return "".join(reversed(out))


_NAMED = {
    "dna": Alphabet("dna", "ACGT", "NRYSWKMBDHV-.X?", "TGCA"),
    "rna": Alphabet("rna", "ACGU", "NRYSWKMBDHV-.X?", "UGCA"),
    "protein": Alphabet("protein", "ACDEFGHIKLMNPQRSTVWY", "BJOUXZ*-.?"),
}


def _translate(text: bytes, table: bytes) -> NDArray[np.uint8]:
    # An index of type uint8 would be turned into one of 64 bits first. A bytearray can be written.
    return np.frombuffer(bytearray(text).translate(table), np.uint8)


def get_alphabet(spec: str | Alphabet) -> Alphabet:
    """Return an alphabet by its name, or one of the letters given.

    Parameters
    ----------
    spec : {"dna", "rna", "protein"}, str of letters, or Alphabet
        Any other string of at least two different letters is taken as the letters themselves;
        if all are upper case, lower case is read as upper case.

    Examples
    --------
    >>> get_alphabet("HP").size
    2
    """
    if isinstance(spec, Alphabet):
        return spec
    if not isinstance(spec, str):
        raise InvalidInputError(
            f"alphabet must be 'dna', 'rna', 'protein' or a string of letters; got {spec!r}."
        )
    if spec.lower() in _NAMED:
        return _NAMED[spec.lower()]
    if len(spec) < 2 or len(set(spec)) == len(spec):
        folds = spec.upper() == spec and spec.lower() != spec
        return Alphabet(repr(spec), spec, fold_case=folds)
    raise unknown_name("alphabet", spec, _NAMED)
