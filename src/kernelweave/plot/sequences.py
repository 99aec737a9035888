"""Figures of what a model learnt from sequences: heat maps of k-mers, and logos."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from kernelweave.arrays import Array
from kernelweave.errors import InvalidInputError
from kernelweave.inspect.kmers import KmerScores, kmer_scores, letter_scores, sequence_scores
from kernelweave.inspect.sequence_model import SequenceModel
from kernelweave.kernels.strings.alphabet import Alphabet
from kernelweave.kernels.strings.sequences import sequences_of
from kernelweave.plot.style import (
    BLACK,
    BLUE,
    COLOURS,
    GREY,
    VERMILLION,
    Axes,
    check_top,
    new_axes,
    position_axis,
    position_map,
    tidy,
)

# Okabe and Ito's palette; the letters of proteins by what their side chains are like.
_GREEN, _ORANGE = COLOURS[2], COLOURS[4]
_BASES = {"A": _GREEN, "C": BLUE, "G": _ORANGE, "T": VERMILLION, "U": VERMILLION}
_RESIDUES = {
    **dict.fromkeys("AVLIMFWCP", BLACK),  # hydrophobic
    **dict.fromkeys("STYNQG", _GREEN),  # polar
    **dict.fromkeys("KRH", BLUE),  # positive
    **dict.fromkeys("DE", VERMILLION),  # negative
}
# All k-mers are shown up to so many; of more, those with the largest scores.
_ALL_ROWS = 64


def plot_kmer_scores(
    model: Any,
    k: int = 1,
    ax: Axes | None = None,
    *,
    positions: tuple[int, int] | None = None,
    top: int = 20,
    include_shorter: bool = False,
    target: Any = None,
    kernel: str | None = None,
    origin: int = 0,
) -> Axes:
    """Draw what each k-mer adds to the decision function at each position, as a heat map.

    Parameters
    ----------
    model : fitted model as for :func:`kernelweave.report.kmer_scores`, or its result
        Where the scores come from.
    k : int, default=1
        Length of the k-mers.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure (not known to pyplot) when left out.
    positions : (int, int), optional
        The first position to show, counted from 0, and the one after the last.
    top : int, default=20
        Of more than 64 k-mers, show so many: those with the scores furthest from zero.
    include_shorter, target, kernel
        See :func:`kernelweave.report.kmer_scores`.
    origin : int, default=0
        The position that the axis calls 0.

    Returns
    -------
    matplotlib.axes.Axes
        Kernels without positions have bars instead of a map, for `top` k-mers of any length.

    Examples
    --------
    >>> from kernelweave import MKLClassifier
    >>> from kernelweave.kernels import WeightedDegree
    >>> from kernelweave.report import plot_kmer_scores
    >>> X, y = ["GACA", "CAGT", "GTCC", "CTGT"], [1, 1, 0, 0]
    >>> ax = plot_kmer_scores(MKLClassifier(WeightedDegree(2)).fit(X, y))
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['A', 'C', 'G', 'T']
    """
    check_top(top)
    if isinstance(model, KmerScores):
        table = model
    else:
        table = kmer_scores(model, k, include_shorter=include_shorter, target=target, kernel=kernel)
    start, stop = _range(positions, table.scores.shape[1])
    scores, names = table.scores[:, start:stop], table.kmers
    if len(scores) > _ALL_ROWS or not table.placed:
        largest = np.argsort(-np.abs(scores).max(axis=1), kind="stable")
        rows = np.sort(largest[:top])
        scores, names = scores[rows], names[rows]
    if ax is None:
        height = max(1.9, 1.1 + (0.26 if len(names) <= 20 else 0.17) * len(names))
        ax = new_axes(7.2 if table.placed else 4.8, height)
    if table.placed:
        edges = np.arange(start, stop + 1) - 0.5 - origin
        position_map(ax, edges, scores, "score", 1.2, up=VERMILLION, down=BLUE)
    else:
        order = np.argsort(-scores[:, 0], kind="stable")
        names, sizes = names[order], scores[order, 0]
        ax.barh(
            np.arange(len(sizes)), sizes, color=np.where(sizes > 0, VERMILLION, BLUE), height=0.72
        )
        ax.axvline(0.0, color=GREY, lw=0.8)
        ax.locator_params(axis="x", nbins=5)
        ax.set_xlabel("score, at any position")
        tidy(ax)
        ax.spines["left"].set_visible(False)
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.set_yticks(np.arange(len(names)), names.tolist(), family="monospace")
    ax.tick_params(axis="y", length=0, labelsize=9 if len(names) <= 20 else 7)
    what = f"{table.k}-mers" if table.k > 1 else "letters"
    ax.set_title(_title(what, table.title), fontsize=11)
    return ax


def plot_sequence_logo(
    model: Any,
    ax: Axes | None = None,
    *,
    sequence: str | None = None,
    positions: tuple[int, int] | None = None,
    target: Any = None,
    kernel: str | None = None,
    origin: int = 0,
) -> Axes:
    """Draw letters as high as they speak for (above the axis) or against (below it) a class.

    Parameters
    ----------
    model : MKLClassifier, MKLRegressor, MKLOneClass, or a pipeline or search that ends in one
        Fitted, with string kernels that have positions (any string kernels for a `sequence`); or
        what :func:`kernelweave.report.letter_scores` returned.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure (not known to pyplot) when left out.
    sequence : str, optional
        Draw this sequence, each letter as high as its share of the decision value
        (:func:`kernelweave.report.sequence_scores`). By default all letters are drawn, as high as
        their mean share over the training sequences that have them
        (:func:`kernelweave.report.letter_scores`).
    positions : (int, int), optional
        The first position to show, counted from 0, and the one after the last.
    target, kernel
        See :func:`kernelweave.report.kmer_scores`.
    origin : int, default=0
        The position that the axis calls 0.

    Returns
    -------
    matplotlib.axes.Axes

    Examples
    --------
    >>> from kernelweave import MKLClassifier
    >>> from kernelweave.kernels import WeightedDegree
    >>> from kernelweave.report import plot_sequence_logo
    >>> X, y = ["GACA", "CAGT", "GTCC", "CTGT"], [1, 1, 0, 0]
    >>> ax = plot_sequence_logo(MKLClassifier(WeightedDegree(2)).fit(X, y), sequence="CAGT")
    >>> ax.get_title()
    'letters for and against class 1'
    """
    if sequence is None:
        known = isinstance(model, KmerScores)
        table = model if known else letter_scores(model, target=target, kernel=kernel)
        heights, alphabet, title = table.scores, table.alphabet, table.title
    else:
        reader = SequenceModel.of(model, kernel, target)
        samples = reader.read([sequence])
        codes = sequences_of(samples, reader.alphabet).codes
        shown = codes < reader.alphabet.size
        heights = np.zeros((reader.alphabet.size, len(codes)))
        share = sequence_scores(model, [sequence], per="letter", target=target, kernel=kernel)[0]
        heights[codes[shown], np.flatnonzero(shown)] = share[shown]
        alphabet, title = reader.alphabet, reader.title
    start, stop = _range(positions, heights.shape[1])
    ax = ax or new_axes(float(np.clip(0.17 * (stop - start) + 0.8, 3.6, 12.0)), 2.6)
    _draw_letters(ax, heights[:, start:stop], start - origin, alphabet)
    ax.axhline(0.0, color=BLACK, lw=0.8)
    position_axis(ax, start - 0.5 - origin, stop - 0.5 - origin)
    mean = "mean " if sequence is None else ""
    ax.set_ylabel(f"{mean}share of the\ndecision value")
    ax.set_title(_title("letters", title), fontsize=11)
    tidy(ax)
    return ax


def _title(what: str, target: str) -> str:
    return f"{what} for and against {target}" if target else what


def _range(positions: tuple[int, int] | None, length: int) -> tuple[int, int]:
    if positions is None:
        return 0, length
    start, stop = positions
    if not 0 <= start < stop <= length:
        raise InvalidInputError(
            f"positions must be the first and the one after the last, from 0 to {length}; "
            f"got {positions!r}."
        )
    return int(start), int(stop)


@cache
def _outline(letter: str) -> Any:
    """The letter as a path that fills the unit square."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import TextPath
    from matplotlib.transforms import Affine2D

    path = TextPath(
        (0, 0), letter, size=1, prop=FontProperties(family="DejaVu Sans", weight="bold")
    )
    box = path.get_extents()
    # A narrow letter such as I stays narrow.
    width = max(box.width, 0.45)
    move = Affine2D().translate(-box.x0 - 0.5 * box.width, -box.y0)
    return move.scale(1.0 / width, 1.0 / box.height).transform_path(path)


def _draw_letters(ax: Axes, heights: Array, first: int, alphabet: Alphabet) -> None:
    from matplotlib.patches import PathPatch
    from matplotlib.transforms import Affine2D

    colours = _RESIDUES if alphabet.name == "protein" else _BASES
    known = alphabet.name in ("protein", "dna", "rna")
    # What is too flat to be seen would only make the figure large.
    least = 0.002 * float(np.abs(heights).max(initial=0.0))
    low = high = 0.0
    for column, own in enumerate(heights.T):
        up = down = 0.0
        # The tallest letters are furthest from the axis.
        for code in np.argsort(np.abs(own), kind="stable"):
            height = float(own[code])
            if abs(height) <= least:
                continue
            base = up if height > 0 else down + height
            letter = alphabet.letters[code]
            place = Affine2D().scale(0.92, abs(height)).translate(first + column, base)
            path = place.transform_path(_outline(letter))
            colour = colours.get(letter, BLUE) if known else BLUE
            ax.add_patch(PathPatch(path, facecolor=colour, linewidth=0))
            up, down = (up + height, down) if height > 0 else (up, down + height)
        low, high = min(low, down), max(high, up)
    room = 0.05 * max(high - low, np.finfo(float).tiny)
    ax.set_ylim(low - room, high + room)
