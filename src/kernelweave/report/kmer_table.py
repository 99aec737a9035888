"""The score of every k-mer at every position in a fitted model."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kernelweave.errors import InvalidInputError, MemoryBudgetError
from kernelweave.kernels.strings.alphabet import Alphabet
from kernelweave.memory import available_bytes, format_bytes
from kernelweave.report.largest_kmers import TopKmers, check_count, largest
from kernelweave.report.sequence_model import SequenceModel
from kernelweave.report.string_terms import Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["KmerScores", "kmer_scores"]

# Share of the free memory that a table may take.
_SHARE = 0.5


@dataclass(frozen=True, eq=False)
class KmerScores:
    """A score for every k-mer of one length at every position.

    Attributes
    ----------
    scores : ndarray of shape (n_kmers, n_positions)
        What a k-mer adds to the decision function where it starts at a position.
    alphabet : Alphabet
        The letters: row 1 of k = 2 is AC for DNA.
    k : int
        Length of the k-mers.
    placed : bool
        Whether positions matter; if not there is one column.
    title : str
        What the scores are for.

    Examples
    --------
    >>> from kernelweave.kernels.strings.alphabet import get_alphabet
    >>> scores = np.array([[0.0, 0.5], [0.0, 0.0], [0.25, 0.0], [0.0, -1.0]])
    >>> table = KmerScores(scores, get_alphabet("dna"), 1)
    >>> table.kmers
    array(['A', 'C', 'G', 'T'], dtype='<U1')
    >>> table.top(2)
    k-mer  length  position    score
    T           1         1  -1.0000
    A           1         1  +0.5000
    """

    scores: Floats
    alphabet: Alphabet
    k: int
    placed: bool = True
    title: str = ""

    @cached_property
    def kmers(self) -> NDArray[np.str_]:
        """The k-mers of the rows."""
        letters = np.array(list(self.alphabet.letters))
        out = letters
        for _ in range(self.k - 1):
            out = np.char.add(out[:, None], letters).ravel()
        return out

    @property
    def positions(self) -> NDArray[np.int64] | None:
        """The start positions of the columns, counted from 0; None if positions do not matter."""
        return np.arange(self.scores.shape[1]) if self.placed else None

    def top(self, n: int = 20) -> TopKmers:
        """Return the n scores furthest from zero as a table."""
        best = largest(self.scores.ravel(), check_count(n))
        rows, columns = np.unravel_index(best, self.scores.shape)
        return TopKmers(
            self.kmers[rows].tolist(),
            columns.astype(np.int64) if self.placed else None,
            self.scores[rows, columns],
        )

    def to_frame(self) -> Any:
        """Return a pandas DataFrame: one row for each k-mer, one column for each position."""
        try:
            import pandas as pd
        except ImportError as error:
            raise ImportError(
                "to_frame needs pandas: pip install pandas. The same numbers are in kmers, "
                "positions and scores."
            ) from error
        columns = ["score"] if self.positions is None else pd.Index(self.positions, name="position")
        return pd.DataFrame(self.scores, index=pd.Index(self.kmers, name="kmer"), columns=columns)

    def plot(
        self, ax: Axes | None = None, positions: tuple[int, int] | None = None, top: int = 20
    ) -> Axes:
        """Draw a heat map; see :func:`kernelweave.report.plot_kmer_scores`."""
        from kernelweave.report.plots_sequences import plot_kmer_scores

        return plot_kmer_scores(self, ax=ax, positions=positions, top=top)


def kmer_scores(
    model: Any,
    k: int = 1,
    *,
    include_shorter: bool = False,
    target: Any = None,
    kernel: str | None = None,
) -> KmerScores:
    r"""Return what every k-mer of one length adds to the decision function, at every position.

    A sum of string kernels is a sum over the k-mers of a sequence, f(x) = b + the sum of the
    scores of all k-mers that x shows, of all lengths. For weighted degree kernels

    .. math:: s(u, l) = \sum_m d_m c_m W_{m,l,|u|} \sum_j \alpha_j\, [u_{|u|,l}(x_j) = u]

    with the learnt weights :math:`d_m`, the factor :math:`c_m` that normalises a kernel and its
    weight W of each position and length. With shifts, equal k-mers of :math:`x_j` nearby count as
    they do in the kernel; with both strands, so does the reverse complement of u on the other one.
    A spectrum kernel has the same score at all positions, or at all of its window.

    Where a kernel is normalised by k(x, x), the factor of a new sequence belongs to no k-mer: the
    scores are for a sequence with the mean factor of the training sequences, which is the factor
    of all for weighted degree kernels without shifts on one strand. What centring adds is the same
    for all sequences and not part of any score. Other kernels of the model are left out.

    Parameters
    ----------
    model : MKLClassifier, MKLRegressor, MKLOneClass, or a pipeline or search that ends in one
        Fitted, with string kernels.
    k : int, default=1
        Length of the k-mers.
    include_shorter : bool, default=False
        Add the scores of all shorter k-mers inside: then the score is all that a sequence gets
        from the k letters.
    target : class label, optional
        The class they speak for. Needed for more than two classes; for two the default is the
        second, as in ``decision_function``.
    kernel : str, optional
        Only kernels with this text in their names. Needed if kernels read different columns.

    Returns
    -------
    KmerScores
        With ``scores`` of shape (n_kmers, n_positions), ``kmers`` and ``positions``.

    Examples
    --------
    >>> from kernelweave import MKLClassifier
    >>> from kernelweave.kernels import WeightedDegree
    >>> from kernelweave.report import kmer_scores
    >>> X, y = ["GAC", "CAG", "GTC", "CTG"], [1, 1, 0, 0]
    >>> model = MKLClassifier(WeightedDegree(1), C=10).fit(X, y)
    >>> table = kmer_scores(model)
    >>> dict(zip(table.kmers.tolist(), table.scores[:, 1].round(1).tolist()))
    {'A': 1.0, 'C': 0.0, 'G': 0.0, 'T': -1.0}
    """
    known = SequenceModel.of(model, kernel, target)
    first, last = known.lengths
    if not isinstance(k, Integral) or isinstance(k, bool) or k < 1:
        raise InvalidInputError(f"k must be an integer >= 1; got {k!r}.")
    k = int(k)
    if not known.has(k) and not (include_shorter and k > first):
        raise InvalidInputError(
            f"the model weighs k-mers of lengths {first} to {last}; got k={k}. With "
            f"include_shorter=True longer ones are scored by the shorter ones inside."
        )
    if known.n_positions(k) < 1:
        raise InvalidInputError(f"no sequence has a k-mer of length k={k}: they are shorter.")
    needed = 8.0 * float(known.alphabet.size) ** k * known.n_positions(k) * (1 + include_shorter)
    if needed > _SHARE * available_bytes():
        raise MemoryBudgetError(
            f"the scores of all {known.alphabet.size}^{k} k-mers at {known.n_positions(k)} "
            f"positions need {format_bytes(needed)} and {format_bytes(available_bytes())} of "
            f"memory are free. top_kmers(model, lengths={k}) gives the largest without a table."
        )
    scores = _table(known, k)
    if include_shorter:
        for shorter in range(first, k):
            if known.has(shorter):
                _add_inner(scores, _table(known, shorter), k, shorter, known)
    return KmerScores(scores, known.alphabet, k, known.placed, known.title)


def _table(known: SequenceModel, k: int) -> Floats:
    out = np.zeros((known.alphabet.size**k, known.n_positions(k)))
    for at in range(out.shape[1]):
        numbers, values = known.at(k, at)
        out[numbers, at] = values
    return out


def _add_inner(out: Floats, table: Floats, k: int, shorter: int, known: SequenceModel) -> None:
    """Add the scores of the shorter k-mers that begin at each letter of the longer ones."""
    numbers, size = np.arange(len(out)), known.alphabet.size
    for offset in range(k - shorter + 1):
        inner = numbers // size ** (k - shorter - offset) % size**shorter
        first = offset if known.placed else 0
        out += table[inner, first : first + out.shape[1]]
