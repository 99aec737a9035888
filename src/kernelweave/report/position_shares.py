"""What each position of given sequences adds to the decision of a fitted model."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelweave.errors import InvalidInputError
from kernelweave.kernels import Samples
from kernelweave.kernels.strings.sequences import sequences_of
from kernelweave.report.kmer_table import KmerScores
from kernelweave.report.sequence_model import SequenceModel
from kernelweave.report.string_terms import Floats
from kernelweave.validation import unknown_name

__all__ = ["letter_scores", "sequence_scores", "shares"]

# Numbers that are computed at a time.
_ENTRIES = 2**22


def sequence_scores(
    model: Any, X: Any, *, per: str = "start", target: Any = None, kernel: str | None = None
) -> Floats:
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
    return shares(known, known.read(X), per)


def shares(known: SequenceModel, samples: Samples, per: str) -> Floats:
    """Return the scores of samples as the string kernels see them, some at a time.

    Examples
    --------
    >>> from kernelweave import MKLClassifier
    >>> from kernelweave.kernels import WeightedDegree
    >>> model = MKLClassifier(WeightedDegree(1), C=10).fit(["GA", "CA", "GT", "CT"], [1, 1, 0, 0])
    >>> shares(SequenceModel.of(model), Samples(["GA"]), "letter").round(1) + 0.0
    array([[0., 1.]])
    """
    lengths = sequences_of(samples, known.alphabet).lengths
    width = int(lengths.max())
    out = np.zeros((samples.n, width))
    longest = max((term.longest for term in known.terms), default=1)
    step = max(1, _ENTRIES // (width * longest))
    for first in range(0, samples.n, step):
        rows = np.arange(first, min(first + step, samples.n))
        for k, found in known.contributions(samples.take(rows)):
            # Rows of this block may all be shorter than the longest sequence.
            have = found.shape[1]
            if per == "start":
                out[rows, :have] += found
                continue
            for offset in range(k):
                out[rows, offset:have] += found[:, : have - offset] / k
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
    samples = known.training
    some = sequences_of(samples, known.alphabet)
    width = int(some.lengths.max())
    sums, counts = np.zeros((2, known.alphabet.size, width))
    step = max(1, _ENTRIES // width)
    for first in range(0, samples.n, step):
        part = samples.take(np.arange(first, min(first + step, samples.n)))
        found = shares(known, part, "letter")
        letters = _letters(part, known, found.shape[1])
        for code in range(known.alphabet.size):
            here = letters == code
            sums[code, : found.shape[1]] += np.where(here, found, 0.0).sum(axis=0)
            counts[code, : found.shape[1]] += here.sum(axis=0)
    means = np.divide(sums, counts, out=np.zeros_like(sums), where=counts > 0)
    return KmerScores(means, known.alphabet, 1, True, known.title)


def _letters(samples: Samples, known: SequenceModel, width: int) -> NDArray[np.uint8]:
    """Codes of the letters, one row a sequence; ambiguous beyond their ends."""
    some = sequences_of(samples, known.alphabet)
    out = np.full((len(some), width), 255, np.uint8)
    row = np.repeat(np.arange(len(some)), some.lengths)
    out[row, np.arange(len(some.codes)) - some.starts[row]] = some.codes
    return out
