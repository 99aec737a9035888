"""What k-mers and letters add to the decisions of a model: tables of scores, and the largest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kernelweave.arrays import Array, Index
from kernelweave.cached import cached_property
from kernelweave.errors import InvalidInputError, MemoryBudgetError
from kernelweave.inspect.sequence_model import SequenceModel
from kernelweave.inspect.tables import table_of, text_table
from kernelweave.kernels.strings.alphabet import Alphabet
from kernelweave.kernels.strings.sequences import sequences_of
from kernelweave.memory import available_bytes, format_bytes
from kernelweave.validation import unknown_name, whole_number

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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
    scores: Array

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Number of letters of each k-mer."""
        return np.array([len(kmer) for kmer in self.kmers], dtype=np.int64)

    def __len__(self) -> int:
        return len(self.kmers)

    def to_frame(self) -> Any:
        """Return a table (pandas where installed, else polars): kmer, length, position, score."""
        columns: dict[str, Any] = {"kmer": self.kmers, "length": self.lengths}
        if self.positions is not None:
            columns["position"] = self.positions
        return table_of({**columns, "score": self.scores})

    def __repr__(self) -> str:
        scores = [f"{score:+.4f}" for score in self.scores[:_LISTED]]
        shown: dict[str, Any] = {"k-mer": self.kmers[:_LISTED], "length": self.lengths[:_LISTED]}
        if self.positions is not None:
            shown["position"] = self.positions[:_LISTED]
        rows = [list(map(str, row)) for row in zip(*shown.values(), scores, strict=True)]
        return "\n".join(text_table([*shown, "score"], rows, more=len(self) - _LISTED))


def _largest(values: Array, n: int) -> Index:
    """Return where the n values furthest from zero are, the furthest first; zeros are left out."""
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
    n = whole_number("n", n)
    known = SequenceModel.of(model, kernel, target)
    kmers: list[str] = []
    where: list[int] = []
    scores: list[Array] = [np.empty(0)]
    for k in _lengths(known, lengths):
        for at in range(known.n_positions(k)):
            numbers, values = known.at(k, at)
            own = _largest(values, n)
            kmers += [known.alphabet.text(int(number), k) for number in numbers[own]]
            where += [at] * len(own)
            scores.append(values[own])
    best = _largest(np.concatenate(scores), n)
    positions = np.array(where, dtype=np.int64)[best] if known.placed else None
    return TopKmers([kmers[i] for i in best], positions, np.concatenate(scores)[best])


def _lengths(known: SequenceModel, lengths: int | Sequence[int] | None) -> list[int]:
    if lengths is None:
        return known.lengths
    asked = [lengths] if isinstance(lengths, Integral) else list(lengths)  # type: ignore[arg-type]
    for k in asked:
        if not isinstance(k, Integral) or int(k) not in known.lengths:
            raise InvalidInputError(
                f"lengths must be among those of the k-mers that the model weighs, "
                f"{_span(known)}; got {lengths!r}."
            )
    return sorted({int(k) for k in asked})


def _span(known: SequenceModel) -> str:
    return f"{min(known.lengths, default=1)} to {max(known.lengths, default=1)}"


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

    scores: Array
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
        best = _largest(self.scores.ravel(), whole_number("n", n))
        rows, columns = np.unravel_index(best, self.scores.shape)
        return TopKmers(
            self.kmers[rows].tolist(),
            columns.astype(np.int64) if self.placed else None,
            self.scores[rows, columns],
        )

    def to_frame(self) -> Any:
        """Return a table: one row for each k-mer, one column for each position.

        A pandas DataFrame where pandas is installed, otherwise a polars one.
        """
        names = ["score"] if self.positions is None else self.positions
        scores = dict(zip(names, self.scores.T, strict=True))
        across = "" if self.positions is None else "position"
        return table_of({"kmer": self.kmers, **scores}, ["kmer"], across)

    def plot(
        self, ax: Axes | None = None, positions: tuple[int, int] | None = None, top: int = 20
    ) -> Axes:
        """Draw a heat map; see :func:`kernelweave.report.plot_kmer_scores`."""
        from kernelweave.plot.sequences import plot_kmer_scores

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
    k = whole_number("k", k)
    shorter_ones = [j for j in known.lengths if j < k and include_shorter]
    if k not in known.lengths and not shorter_ones:
        raise InvalidInputError(
            f"the model weighs k-mers of lengths {_span(known)}; got k={k}. With "
            f"include_shorter=True longer ones are scored by the shorter ones inside."
        )
    if known.n_positions(k) < 1:
        raise InvalidInputError(f"no sequence has a k-mer of length k={k}: they are shorter.")
    needed = 8.0 * float(known.alphabet.size) ** k * known.n_positions(k) * (1 + include_shorter)
    if needed > 0.5 * available_bytes():
        raise MemoryBudgetError(
            f"the scores of all {known.alphabet.size}^{k} k-mers at {known.n_positions(k)} "
            f"positions need {format_bytes(needed)} and {format_bytes(available_bytes())} of "
            f"memory are free. top_kmers(model, lengths={k}) gives the largest without a table."
        )
    scores = known.table(k)
    # The shorter k-mers begin at each letter of the longer ones.
    numbers, size = np.arange(len(scores)), known.alphabet.size
    for shorter in shorter_ones:
        table = known.table(shorter)
        for offset in range(k - shorter + 1):
            inner = numbers // size ** (k - shorter - offset) % size**shorter
            begin = offset if known.placed else 0
            scores += table[inner, begin : begin + scores.shape[1]]
    return KmerScores(scores, known.alphabet, k, known.placed, known.title)


def sequence_scores(
    model: Any, X: Any, *, per: str = "start", target: Any = None, kernel: str | None = None
) -> Array:
    r"""Return what each position of the given sequences adds to the decision function.

    .. math:: f(x) = b + \sum_l S_l(x), \qquad S_l(x) = \sum_k s\big(u_{k,l}(x), l\big)

    with the scores s of :func:`kmer_scores`, here with the exact factor of every sequence. Row
    sums and the intercept make the decision values if all kernels with a weight are string
    kernels on this column and none is centred.

    Parameters
    ----------
    model : MKLClassifier, MKLRegressor, MKLOneClass, or a pipeline or search that ends in one
        Fitted, with string kernels.
    X : n sequences, or samples as the model takes them
        What to explain.
    per : {"start", "letter"}, default="start"
        Whether a k-mer counts where it starts, or in equal shares at each of its letters.
    target : class label, optional
        The class they speak for. Needed for more than two classes; for two the default is the
        second, as in ``decision_function``.
    kernel : str, optional
        Only kernels with this text in their names. Needed if kernels read different columns.

    Returns
    -------
    ndarray of shape (n, L)
        L is the length of the longest sequence; zeros follow the end of shorter ones.

    Examples
    --------
    >>> from kernelweave import MKLClassifier
    >>> from kernelweave.kernels import WeightedDegree
    >>> from kernelweave.report import sequence_scores
    >>> X, y = ["GAC", "CAG", "GTC", "CTG"], [1, 1, 0, 0]
    >>> model = MKLClassifier(WeightedDegree(1), C=10).fit(X, y)
    >>> sequence_scores(model, ["AAA", "TTT"]).round(2) + 0.0
    array([[ 0.,  1.,  0.],
           [ 0., -1.,  0.]])
    """
    if per not in ("start", "letter"):
        raise unknown_name("per", per, ("start", "letter"))
    known = SequenceModel.of(model, kernel, target)
    samples = known.read(X)
    width = int(sequences_of(samples, known.alphabet).lengths.max())
    out = np.zeros((samples.n, width))
    for rows, found in known.shares(samples, per, width):
        out[rows] = found
    return out


def letter_scores(model: Any, *, target: Any = None, kernel: str | None = None) -> KmerScores:
    r"""Return how much each letter speaks at each position: the heights of a sequence logo.

    .. math:: h(a, l) = \text{mean of } S_l(x_i) \text{ over the training sequences with letter } a
              \text{ at position } l

    with the shares of letters, ``sequence_scores(per="letter")``: every k-mer, of any length, is
    shared by its letters. Without longer k-mers this is ``kmer_scores(k=1)``.

    Parameters
    ----------
    model : MKLClassifier, MKLRegressor, MKLOneClass, or a pipeline or search that ends in one
        Fitted, with string kernels that have positions.
    target : class label, optional
        The class they speak for; see :func:`kmer_scores`.
    kernel : str, optional
        Only kernels with this text in their names.

    Returns
    -------
    KmerScores
        Of single letters; zero for a letter that no training sequence has at a position.

    Examples
    --------
    >>> from kernelweave import MKLClassifier
    >>> from kernelweave.kernels import WeightedDegree
    >>> from kernelweave.report import letter_scores
    >>> X, y = ["GAC", "CAG", "GTC", "CTG"], [1, 1, 0, 0]
    >>> model = MKLClassifier(WeightedDegree(2), C=10).fit(X, y)
    >>> letter_scores(model).scores[:, 1].round(1) + 0.0  # A, C, G, T
    array([ 0.8,  0. ,  0. , -0.8])
    """
    known = SequenceModel.of(model, kernel, target)
    if not known.placed:
        raise InvalidInputError(
            "the string kernels of the model have no positions; top_kmers(model) lists their "
            "k-mers, and sequence_scores(model, X) explains given sequences."
        )
    some = sequences_of(known.training, known.alphabet)
    width, size = int(some.lengths.max()), known.alphabet.size
    sums, counts = np.zeros((2, size * width))
    for rows, found in known.shares(known.training, "letter", width):
        part = some[rows]
        row, position = part.places
        there = part.codes < size  # (ambiguous letters are beyond)
        places = part.codes[there].astype(np.int64) * width + position[there]
        sums += np.bincount(places, found[row[there], position[there]], len(sums))
        counts += np.bincount(places, minlength=len(counts))
    means = np.divide(sums, counts, out=np.zeros_like(sums), where=counts > 0)
    return KmerScores(means.reshape(size, width), known.alphabet, 1, True, known.title)
