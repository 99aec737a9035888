"""Sequences of letters as numbers: what string kernels read, of any length or aligned."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelweave.arrays import Array
from kernelweave.cached import cached_property
from kernelweave.compiled.blocks import ENCODED_LETTERS, STRING_ROWS
from kernelweave.compiled.kmers import longest_runs
from kernelweave.compiled.match_runs import fill_planes
from kernelweave.compiled.threads import map_blocks
from kernelweave.errors import InvalidInputError
from kernelweave.kernels.samples import Samples, as_text
from kernelweave.kernels.strings.alphabet import AMBIGUOUS, INVALID, Alphabet
from kernelweave.validation import is_missing


@dataclass(eq=False)
class Sequences:
    """Encoded sequences, one after the other in one array.

    Parameters
    ----------
    codes : ndarray of uint8
        Codes of all letters (`AMBIGUOUS` where a letter matches nothing).
    starts : ndarray of int64, shape (n + 1,)
        Sequence i is ``codes[starts[i]:starts[i + 1]]``.
    alphabet : Alphabet
        What the codes mean.

    Examples
    --------
    >>> from kernelweave.kernels.strings.alphabet import get_alphabet
    >>> some = Sequences.encode(["ACG", "TT"], get_alphabet("dna"))
    >>> some.codes, some.lengths, len(some[[1]])
    (array([0, 1, 2, 3, 3], dtype=uint8), array([3, 2]), 1)
    """

    codes: NDArray[np.uint8]
    starts: NDArray[np.int64]
    alphabet: Alphabet

    @classmethod
    def encode(cls, texts: Any, alphabet: Alphabet) -> Sequences:
        """Encode a list, 1-D array or Series of `str` or `bytes`."""
        column = as_text(texts)
        flat = np.asarray(texts).ravel() if column is None else column[:, 0]
        starts = np.zeros(len(flat) + 1, np.int64)
        np.cumsum(_count_letters(flat), out=starts[1:])
        codes = np.empty(starts[-1], np.uint8)
        # A few rows at a time: letters exist once as codes, not also as one long text.
        for first, last in pairwise(equal_blocks(starts, ENCODED_LETTERS)):
            part = slice(starts[first], starts[last])
            try:
                codes[part] = alphabet.codes(_join(flat[first:last]))
            except UnicodeEncodeError as error:
                raise _bad_letter(flat, starts, part.start + error.start, alphabet) from error
            invalid = codes[part] == INVALID
            if invalid.any():
                raise _bad_letter(flat, starts, part.start + int(invalid.argmax()), alphabet)
        return cls(codes, starts, alphabet)

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, index: Any) -> Sequences:
        """Return the sequences at these positions, as a copy."""
        rows = np.arange(len(self))[index] if isinstance(index, slice) else np.atleast_1d(index)
        rows = np.flatnonzero(rows) if rows.dtype == bool else rows.astype(np.intp)
        begins, ends = self.starts[:-1][rows], self.starts[1:][rows]
        starts = np.concatenate([[0], np.cumsum(ends - begins)])
        some = [self.codes[a:b] for a, b in zip(begins.tolist(), ends.tolist(), strict=True)]
        return Sequences(np.concatenate([self.codes[:0], *some]), starts, self.alphabet)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Number of letters of each sequence."""
        return np.diff(self.starts)

    @property
    def places(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The sequence of each letter, and its position there."""
        rows = np.repeat(np.arange(len(self)), self.lengths)
        return rows, np.arange(len(self.codes)) - self.starts[rows]

    @cached_property
    def common_length(self) -> int | None:
        """The length, if all sequences have the same one."""
        lengths = self.lengths
        return int(lengths[0]) if len(lengths) and np.all(lengths == lengths[0]) else None

    def longest_runs(self) -> NDArray[np.int64]:
        """Return for each position the most letters without an ambiguous one from there on."""
        out = np.zeros(int(self.lengths.max(initial=0)), np.int64)
        longest_runs(self.codes, self.starts, out)
        return out

    def reverse_complement(self) -> Sequences:
        """Return the other strand of every sequence, read from its own start."""
        backward = self.alphabet.complement_codes(self.codes[::-1])
        starts = len(self.codes) - self.starts[::-1]
        # Read backward as a whole the sequences come last first.
        return Sequences(backward, starts, self.alphabet)[::-1]


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

    def weighed(self, v: Array) -> tuple[NDArray[np.uint8], Array]:
        """Return the columns of the samples where v is not zero, and v for each of them."""
        used = np.flatnonzero(v)
        return self.columns(used), np.tile(v[used], self.n_strands)

    def mean(self, values: Array) -> Array:
        """Return the mean over the strands of values for each column, (..., strands times n)."""
        if self.n_strands == 1:
            return values
        return values.reshape(*values.shape[:-1], self.n_strands, self.n).mean(axis=-2)

    @cached_property
    def clean(self) -> bool:
        """Whether no letter is ambiguous."""
        return bool(self.letters.max(initial=0) != AMBIGUOUS)

    def __getitem__(self, index: Any) -> Aligned:
        """Return the samples at these positions, as a copy unless all are meant."""
        if isinstance(index, slice) and index == slice(None):
            return self
        return Aligned(np.ascontiguousarray(self.letters[..., index]), self.bits)


def sequences_of(samples: Samples, alphabet: Alphabet) -> Sequences:
    """Return the only column of these samples as sequences, encoded once."""
    return samples.memo(
        ("sequences", alphabet), lambda base: _encode_column(base, alphabet), keep=True
    )


def aligned_of(samples: Samples, alphabet: Alphabet, both: bool = False) -> Aligned:
    """Return the only column of these samples as aligned sequences, made once."""
    return samples.memo(
        ("aligned", alphabet, both),
        lambda base: Aligned.of(sequences_of(base, alphabet), both),
        keep=True,
    )


def _encode_column(base: Samples, alphabet: Alphabet) -> Sequences:
    if base.n_columns != 1:
        raise InvalidInputError(
            f"a string kernel reads one column of sequences; X has {base.n_columns}. Choose it "
            f"with kernel.on('sequence'), by its name or number."
        )
    if base.is_sparse:
        raise InvalidInputError("a string kernel reads str or bytes; X is a sparse matrix.")
    return Sequences.encode(np.asarray(base.native)[:, 0], alphabet)


def equal_blocks(ends: NDArray[np.int64], size: int) -> list[int]:
    """Where to cut items into blocks of about that size, given where each one starts."""
    cuts = np.searchsorted(ends, np.arange(size, int(ends[-1]), size))
    return sorted({0, len(ends) - 1, *cuts.tolist()})


def _count_letters(flat: Array) -> NDArray[np.int64]:
    """The length of every text, after a look at whether each is one and has letters."""
    if flat.dtype.kind in "SU":
        counts = np.char.str_len(flat).astype(np.int64)
    else:
        items = flat.tolist()
        if not all(issubclass(kind, str | bytes) for kind in set(map(type, items))):
            raise _no_text(items)
        counts = np.fromiter(map(len, items), np.int64, len(items))
    empty = np.flatnonzero(counts == 0)
    if len(empty):
        raise InvalidInputError(f"sequence {empty[0]} is empty; every sample needs letters.")
    return counts


def _join(texts: Array) -> bytes:
    """One letter, one byte: letters beyond Latin-1 are an error, never two letters."""
    items = texts.tolist()
    kinds = set(map(type, items))
    if all(issubclass(kind, bytes) for kind in kinds):
        return b"".join(items)
    if any(issubclass(kind, bytes) for kind in kinds):
        items = [item.decode("latin-1") if isinstance(item, bytes) else item for item in items]
    return "".join(items).encode("latin-1")


def _no_text(items: list[Any]) -> InvalidInputError:
    i, item = next((i, x) for i, x in enumerate(items) if not isinstance(x, str | bytes))
    if is_missing(item):
        return InvalidInputError(
            f"the sequence of row {i} is missing ({item!r}); string kernels need letters in every "
            f"row. Drop such rows."
        )
    return InvalidInputError(
        f"row {i} holds no sequence: string kernels need str or bytes; got {item!r}."
    )


def _bad_letter(
    flat: Array, starts: NDArray[np.int64], at: int, alphabet: Alphabet
) -> InvalidInputError:
    i = int(np.searchsorted(starts, at, side="right")) - 1
    place = int(at - starts[i])
    text = flat[i]
    letter = chr(text[place]) if isinstance(text, bytes) else text[place]
    extra = f" (and {alphabet.ambiguous}, which match nothing)" if alphabet.ambiguous else ""
    hint = {"U": " For RNA use alphabet='rna'.", "T": " For DNA use alphabet='dna'."}
    other = hint.get(letter.upper(), "") if alphabet.name in ("dna", "rna") else ""
    return InvalidInputError(
        f"sequence {i} holds the letter {letter!r} at position {place}, which alphabet="
        f"{alphabet.name} does not have: its letters are {alphabet.letters}{extra}.{other}"
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
