"""String kernels taken apart for multiple kernel learning: by k-mer length and by position."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelweave.arrays import Array
from kernelweave.errors import InvalidInputError
from kernelweave.kernels.base import Kernel
from kernelweave.kernels.evaluate import Pair
from kernelweave.kernels.families import Family
from kernelweave.kernels.samples import Samples
from kernelweave.kernels.strings.alphabet import Alphabet, get_alphabet
from kernelweave.kernels.strings.sequences import sequences_of

# Values of new samples, and the kernels of a weighted sum, each with its factor.
LookUp = Callable[[Samples], Array]
Terms = Sequence[tuple[Any, float]]


class StringKernel(Kernel):
    """A kernel on sequences with one part for each k-mer length and each start position.

    A subclass writes ``length_range``, ``part`` and what the kernel is before it is normalised:
    ``_raw_diagonal``, ``_raw_values`` and ``_table``. It stores its parameters, among them those
    below, calls ``get_alphabet`` for `_letters`, and then ``_check``.

    Attributes
    ----------
    alphabet : str or Alphabet
        The letters.
    normalize : bool
        Whether the diagonal is one; a sample without any k-mer is similar to none.
    reverse_complement : bool
        Whether the other strand counts too.
    positions : (int, int) or None
        The first start position that counts and the one after the last; None for all.
    """

    alphabet: str | Alphabet
    normalize: bool
    reverse_complement: bool
    positions: tuple[int, int] | None
    _letters: Alphabet

    def _check(self) -> None:
        kind = type(self).__name__
        for name in ("normalize", "reverse_complement"):
            if not isinstance(getattr(self, name), bool | np.bool_):
                raise InvalidInputError(
                    f"{name} of {kind} must be True or False; got {getattr(self, name)!r}."
                )
        if self.reverse_complement and not self._letters.complement:
            raise InvalidInputError(
                f"reverse_complement=True is for alphabet='dna' or 'rna'; got {self.alphabet!r}."
            )
        at = self.positions
        if at is not None and not (is_pair(at) and 0 <= at[0] < at[1]):
            raise InvalidInputError(
                f"positions must be two positions, the first and the one after the last, counted "
                f"from 0; got {at!r}."
            )

    def _after_load(self) -> None:
        super()._after_load()
        if self._letters != get_alphabet(self.alphabet):
            raise InvalidInputError(
                f"letters of {type(self).__name__} must be those of its settings."
            )
        self._check()

    def _options(self) -> list[str]:
        """What the name shows of the settings that all string kernels have."""
        shown = {
            self._letters.name: self._letters.name != "dna",
            "both strands": self.reverse_complement,
            "normalized": self.normalize,
        }
        return [text for text, there in shown.items() if there]

    @property
    @abstractmethod
    def length_range(self) -> tuple[int, int]:
        """The shortest and the longest k-mers that are compared."""

    @abstractmethod
    def part(self, lengths: tuple[int, int], positions: tuple[int, int] | None) -> StringKernel:
        """Return the kernel on k-mers of some lengths (first and last) at some positions."""

    def _with(self, positions: tuple[int, int] | None, **changes: Any) -> Any:
        """A kernel with other parameters; its own positions if those are None."""
        changes["positions"] = self.positions if positions is None else positions
        return type(self)(**(self._parameters() | changes))

    def longest_kmers(self, samples: Samples) -> NDArray[np.int64]:
        """Return for each position how long the longest k-mer is that starts there in any sample.

        K-mers with ambiguous letters are none.
        """
        return sequences_of(samples, self._letters).longest_runs()

    @abstractmethod
    def _raw_diagonal(self, samples: Samples) -> Array:
        """k(x, x) of the kernel that is not normalised."""

    @abstractmethod
    def _raw_values(self, pair: Pair) -> Array:
        """The values of the kernel that is not normalised, in an array of their own."""

    @abstractmethod
    def _table(self, samples: Samples, v: Array, terms: Terms) -> LookUp:
        """`weigh` for kernels that are not normalised."""

    def unit(self, samples: Samples) -> Array:
        """1 / sqrt(k(x, x)), by which a normalised kernel scales a sample; 0 for a zero."""
        raw = self._raw_diagonal(samples)
        return np.divide(1.0, np.sqrt(raw), out=np.zeros_like(raw), where=raw > 0)

    def diagonal(self, samples: Samples) -> Array:
        raw = self._raw_diagonal(samples)
        return (raw > 0).astype(np.float64) if self.normalize else raw.copy()

    def evaluate(self, pair: Pair) -> Array:
        out = self._raw_values(pair)
        if self.normalize:
            out *= self.unit(pair.left).astype(out.dtype, copy=False)[:, None]
            out *= self.unit(pair.right).astype(out.dtype, copy=False)
        return out.astype(pair.dtype, copy=False)

    @property
    @abstractmethod
    def merge_key(self) -> Any:
        """Kernels with equal keys, not None, can be looked up together by `weigh`."""

    def weigh(self, samples: Samples, v: Array, terms: Terms | None = None) -> LookUp:
        """Return x -> sum_j v_j k(x_j, x), at a cost that does not depend on the number of x_j.

        With `terms`, kernels of the same `merge_key` and their factors, k is the sum of these.
        """
        amounts = v * self.unit(samples) if self.normalize else v
        found = self._table(samples, amounts, [(self, 1.0)] if terms is None else terms)
        return (lambda new: found(new) * self.unit(new)) if self.normalize else found

    def by_length(self) -> StringParts:
        """Return a family with one kernel for each k-mer length."""
        return StringParts(self).by_length()

    def by_position(self, window: int = 1) -> StringParts:
        """Return a family with one kernel for each window of start positions.

        The windows cover the longest training sequence.

        Parameters
        ----------
        window : int, default=1
            Number of positions of a window; the last one may be shorter.
        """
        return StringParts(self).by_position(window)


@dataclass(frozen=True)
class StringParts(Family):
    """The parts of a string kernel, as ``kernel.by_length()`` and ``kernel.by_position()`` give.

    The two can be called one after the other, in any order, for one kernel for each window and
    length. They come window by window, and within a window from the shortest k-mers up; where no
    training sample has a k-mer (too long, or all ambiguous) there is no kernel.

    Parameters
    ----------
    kernel : StringKernel
        The kernel to be taken apart.
    each_length : bool, default=False
        Whether there is one kernel for each k-mer length.
    window : int or None, default=None
        Number of start positions of each window; None for all positions in one kernel.

    Examples
    --------
    >>> from kernelweave.kernels import Samples, Spectrum
    >>> X = Samples(["ACGT", "TTACG"])
    >>> [kernel.name for kernel in Spectrum((2, 3)).by_length().by_position(2).expand(X)]
    ... # doctest: +NORMALIZE_WHITESPACE
    ['spectrum(k=2) positions 0-1', 'spectrum(k=3) positions 0-1',
     'spectrum(k=2) positions 2-3', 'spectrum(k=3) positions 2-3']
    """

    kernel: StringKernel
    each_length: bool = False
    window: int | None = None

    def by_length(self) -> StringParts:
        """Return the family with one kernel for each k-mer length as well."""
        return replace(self, each_length=True)

    def by_position(self, window: int = 1) -> StringParts:
        """Return the family with one kernel for each window of start positions as well."""
        if not is_whole(window) or window < 1:
            raise InvalidInputError(f"window must be an integer >= 1; got {window!r}.")
        return replace(self, window=int(window))

    def expand(self, samples: Samples) -> list[Kernel]:
        first, last = self.kernel.length_range
        lengths = [(first, last)]
        if self.each_length:
            lengths = [(k, k) for k in range(first, last + 1)]
        begin = 0 if self.kernel.positions is None else self.kernel.positions[0]
        there = self.kernel.longest_kmers(samples)
        end = max(0, len(there) - first + 1)
        if self.kernel.positions is not None:
            end = min(end, self.kernel.positions[1])
        windows = [(begin, end)]
        if self.window is not None:
            windows = [(at, min(at + self.window, end)) for at in range(begin, end, self.window)]
        # A kernel without a single k-mer would be zero, and a zero kernel has no scale.
        parts: list[Kernel] = [
            self.kernel.part(own, None if self.window is None else window)
            for window in windows
            for own in lengths
            if there[slice(*window)].max(initial=0) >= own[0]
        ]
        if not parts:
            raise InvalidInputError(
                f"kernel '{self.kernel.name}' has no parts on these samples: no sequence holds a "
                f"k-mer of length {first}."
            )
        return parts

    def __repr__(self) -> str:
        length = ".by_length()" if self.each_length else ""
        position = "" if self.window is None else f".by_position({self.window})"
        return f"{self.kernel!r}{length}{position}"


def is_whole(value: Any) -> bool:
    """Whether this is an integer."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def is_pair(value: Any) -> bool:
    """Whether these are two integers."""
    return isinstance(value, tuple | list) and len(value) == 2 and all(map(is_whole, value))


def position_text(positions: tuple[int, int] | None) -> str:
    """Return what the name of a part shows for its start positions, such as " positions 40-44"."""
    if positions is None:
        return ""
    start, stop = positions
    return f" position {start}" if stop == start + 1 else f" positions {start}-{stop - 1}"
