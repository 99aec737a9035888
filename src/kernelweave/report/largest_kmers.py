"""The k-mers that matter most, as a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelweave.errors import InvalidInputError
from kernelweave.report.sequence_model import SequenceModel
from kernelweave.report.string_terms import Floats

__all__ = ["TopKmers", "check_count", "largest", "top_kmers"]

_LISTED = 20


@dataclass(frozen=True, repr=False, eq=False)
class TopKmers:
    """K-mers with their positions and scores, the largest scores (either sign) first.

    Attributes
    ----------
    kmers : list of str
        The k-mers.
    positions : ndarray of int, or None
        Where each starts, counted from 0; None if positions do not matter.
    scores : ndarray
        What each adds to the decision function.

    Examples
    --------
    >>> TopKmers(["TA", "G"], np.array([3, 0]), np.array([0.5, -0.25]))
    k-mer  length  position    score
    TA          2         3  +0.5000
    G           1         0  -0.2500
    """

    kmers: list[str]
    positions: NDArray[np.int64] | None
    scores: Floats

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Number of letters of each k-mer."""
        return np.array([len(kmer) for kmer in self.kmers], dtype=np.int64)

    def __len__(self) -> int:
        return len(self.kmers)

    def to_frame(self) -> Any:
        """Return a pandas DataFrame with the columns kmer, length, position and score."""
        try:
            import pandas as pd
        except ImportError as error:
            raise ImportError(
                "to_frame needs pandas: pip install pandas. The same numbers are in kmers, "
                "lengths, positions and scores."
            ) from error
        columns: dict[str, Any] = {"kmer": self.kmers, "length": self.lengths}
        if self.positions is not None:
            columns["position"] = self.positions
        return pd.DataFrame({**columns, "score": self.scores})

    def __repr__(self) -> str:
        width = max([5, *(len(kmer) for kmer in self.kmers[:_LISTED])])
        place = "" if self.positions is None else "  position"
        lines = [f"{'k-mer':<{width}}  length{place}    score"]
        for i, kmer in enumerate(self.kmers[:_LISTED]):
            at = "" if self.positions is None else f"  {self.positions[i]:8d}"
            lines.append(f"{kmer:<{width}}  {len(kmer):6d}{at}  {self.scores[i]:+7.4f}")
        left = len(self) - _LISTED
        if left > 0:
            lines.append(f"{left} more")
        return "\n".join(lines)


def check_count(n: Any) -> int:
    """Return n as an int, or raise if it is no number of rows.

    Examples
    --------
    >>> check_count(3)
    3
    """
    if not isinstance(n, Integral) or isinstance(n, bool) or n < 1:
        raise InvalidInputError(f"n must be an integer >= 1; got {n!r}.")
    return int(n)


def largest(values: Floats, n: int) -> NDArray[np.intp]:
    """Return where the n values furthest from zero are, the furthest first; zeros are left out.

    Examples
    --------
    >>> largest(np.array([0.5, -2.0, 0.0, 1.0]), 2)
    array([1, 3])
    """
    size = np.abs(values)
    # Those that are as far as the n-th, so that which of them stay does not depend on a partition.
    bound = np.partition(size, len(size) - n)[len(size) - n] if n < len(size) else 0.0
    found = np.flatnonzero((size >= bound) & (size > 0))
    return found[np.argsort(-size[found], kind="stable")][:n]


def top_kmers(
    model: Any,
    n: int = 20,
    lengths: int | Sequence[int] | None = None,
    *,
    target: Any = None,
    kernel: str | None = None,
) -> TopKmers:
    """Return the k-mers that add most to the decision function, or take most from it.

    The score of a k-mer is what it adds by itself, without the shorter k-mers inside it; see
    :func:`kmer_scores`. No table of all k-mers is made, so they may be of any length.

    Parameters
    ----------
    model : MKLClassifier, MKLRegressor, MKLOneClass, or a pipeline or search that ends in one
        Fitted, with string kernels.
    n : int, default=20
        How many.
    lengths : int or sequence of int, optional
        Only k-mers of these lengths; all that the kernels compare by default.
    target : class label, optional
        The class they speak for. Needed for more than two classes; for two the default is the
        second, as in ``decision_function``.
    kernel : str, optional
        Only kernels with this text in their names.

    Returns
    -------
    TopKmers
        A table; ``print`` it, or see its ``to_frame()``.

    Examples
    --------
    >>> from kernelweave import MKLClassifier
    >>> from kernelweave.kernels import Spectrum
    >>> from kernelweave.report import top_kmers
    >>> X, y = ["TTTT", "TTTA", "ACGC", "GCCA"], [1, 1, 0, 0]
    >>> top_kmers(MKLClassifier(Spectrum(2), C=10).fit(X, y), n=1).kmers
    ['TT']
    """
    n = check_count(n)
    known = SequenceModel.of(model, kernel, target)
    kmers: list[str] = []
    where: list[int] = []
    scores: list[Floats] = [np.empty(0)]
    for k in _lengths(known, lengths):
        for at in range(known.n_positions(k)):
            numbers, values = known.at(k, at)
            own = largest(values, n)
            kmers += [known.alphabet.text(int(number), k) for number in numbers[own]]
            where += [at] * len(own)
            scores.append(values[own])
    every = np.concatenate(scores)
    best = largest(every, n)
    positions = np.array(where, dtype=np.int64)[best] if known.placed else None
    return TopKmers([kmers[i] for i in best], positions, every[best])


def _lengths(known: SequenceModel, lengths: int | Sequence[int] | None) -> list[int]:
    first, last = known.lengths
    if lengths is None:
        return [k for k in range(first, last + 1) if known.has(k)]
    asked = [lengths] if isinstance(lengths, Integral) else list(lengths)  # type: ignore[arg-type]
    for k in asked:
        if not isinstance(k, Integral) or not known.has(int(k)):
            raise InvalidInputError(
                f"lengths must be among those of the k-mers that the model weighs, "
                f"{first} to {last}; got {lengths!r}."
            )
    return sorted({int(k) for k in asked})
