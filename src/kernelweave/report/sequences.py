"""What was learnt from sequences: lengths and positions, letters, k-mers."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernelweave.errors import InvalidInputError, MemoryBudgetError
from kernelweave.inspect.kmers import TopKmers, letter_scores, top_kmers
from kernelweave.inspect.part_weights import length_position_weights
from kernelweave.inspect.sequence_model import string_members
from kernelweave.inspect.words import number, percent, shorten
from kernelweave.plot.part_weights import (
    plot_length_position_weights,
    plot_length_weights,
    plot_position_weights,
)
from kernelweave.plot.sequences import plot_sequence_logo
from kernelweave.plot.style import new_axes
from kernelweave.report.blocks import Block, figure, figures, panel, section, table

_KMERS = 15
# Kernels that do not look at positions give a k-mer the same score at all of them.
_PLACES = 60
_TARGETS = 4
# Letters of a logo, side by side; of longer sequences the part with most to say.
_POSITIONS = 100
# Mean shares of letters compare all training sequences with all support vectors: 0.14 s for 2,000
# sequences of 141 letters and 20 lengths, and with the square 14 s for so many.
_MOST_SEQUENCES = 20_000


def sequence_section(estimator: Any) -> Block | None:
    """Panels of the string kernels; None if there are none with a weight."""
    try:
        members = string_members(estimator)
    except InvalidInputError:
        return None
    weights = np.abs(np.atleast_2d(estimator.weights_)).sum(axis=0)
    used = [member for member in members if weights[member.index] > 0]
    if not used:
        return None
    share = sum(weights[member.index] for member in used) / weights.sum()
    lead = (
        f"String kernels that carry weight: {len(used)} of {len(members)}, with "
        f"{percent(float(share))} of it. Positions are counted from 0."
    )
    blocks: list[Block] = []
    notes: list[str] = []
    columns = list(dict.fromkeys(member.column for member in used))
    classes: Any = getattr(estimator, "classes_", ())
    targets = [None] if len(classes) in (0, 2) else classes[:_TARGETS].tolist()
    for column in columns:
        # Kernels on different columns are told apart by what their names say of them.
        chosen = column if len(columns) > 1 else None
        items = _part_figures(estimator, chosen)
        for target in targets:
            try:
                items += _target_figures(estimator, chosen, target)
            except (InvalidInputError, MemoryBudgetError) as error:
                notes.append(str(error))
                break
        blocks.append(figures(*items))
    if len(classes) > _TARGETS:
        notes.append(
            f"Letters and k-mers are those of the first {_TARGETS} of {len(classes)} classes."
        )
    blocks.append({"kind": "notes", "notes": list(dict.fromkeys(notes))})
    return section("sequences", "What the sequences show", lead, *blocks)


def _part_figures(estimator: Any, kernel: str | None) -> list[Block]:
    try:
        parts = length_position_weights(estimator, kernel=kernel)
    except InvalidInputError:
        return []  # Not taken apart: the weights above say all there is to say.
    if not parts.weights.any():
        return []  # Another kernel has it all.
    caption, where = f"Of {shorten(parts.name, 80)}.", kernel or ""
    by_position = parts.windows is not None
    by_length = len(parts.lengths) > 1 or not by_position
    if by_length and by_position:
        ax = new_axes(8.2, max(1.8, 1.1 + 0.22 * len(parts.lengths)))
        plot_length_position_weights(estimator, ax, kernel=kernel)
        title = "Weights by k-mer length and position"
        caption += " The darker, the more weight."
    elif by_length:
        ax = plot_length_weights(estimator, panel(), kernel=kernel)
        title = "Weight of each k-mer length"
    else:
        ax = plot_position_weights(estimator, panel(), kernel=kernel)
        title = "Weight of each window of positions"
    # The parts with most weight.
    windows = [("", "")] if parts.windows is None else parts.windows - [0, 1]
    order = np.argsort(-np.abs(parts.weights).ravel(), kind="stable")[:_KMERS]
    rows = [
        [
            *([_span(*parts.lengths[i])] if by_length else []),
            *([_span(*windows[j])] if by_position else []),
            number(float(parts.weights[i, j])),
        ]
        for i, j in (np.unravel_index(place, parts.weights.shape) for place in order)
        if parts.weights[i, j]
    ]
    heads = ["length"] * by_length + ["positions"] * by_position + ["weight"]
    listed = {"heads": heads, "rows": rows}
    return [figure(title + where, ax, caption, listed, wide=by_length and by_position)]


def _span(first: Any, last: Any) -> str:
    return str(first) if first == last else f"{first} to {last}"


def _target_figures(estimator: Any, kernel: str | None, target: Any) -> list[Block]:
    best = top_kmers(estimator, _KMERS * _PLACES, target=target, kernel=kernel)
    classes = getattr(estimator, "classes_", None)
    spoken = kernel or ""
    if classes is not None:
        spoken += f", for class {shorten(classes[1] if target is None else target, 40)}"
    items = []
    if best.positions is not None and estimator._kernel_set.n <= _MOST_SEQUENCES:
        items.append(_logo(estimator, kernel, target, spoken))
    heads = ["k-mer", "position", "score"] if best.positions is not None else ["k-mer", "score"]
    note = "The score is what a k-mer adds to the decision value, without the shorter ones in it."
    title = f"K-mers with most to say{spoken}"
    numeric = range(1, len(heads))
    items.append(table(title, heads, _kmer_rows(best), numeric, mono=True, note=note))
    return items


def _kmer_rows(best: TopKmers) -> list[list[str]]:
    """Return a line for each k-mer and score; where it does not matter, with all its places."""
    places: dict[tuple[str, str], list[int]] = {}
    for i, kmer in enumerate(best.kmers):
        own = places.setdefault((kmer, f"{best.scores[i]:+.4f}"), [])
        if best.positions is not None:
            own.append(int(best.positions[i]))
    rows = []
    for (kmer, score), own in list(places.items())[:_KMERS]:
        where = []
        if own:
            first, last = min(own), max(own)
            gaps = last - first + 1 != len(own)
            where = [f"{len(own)} from {first} to {last}" if gaps else _span(first, last)]
        rows.append([kmer, *where, score])
    return rows


def _logo(estimator: Any, kernel: str | None, target: Any, spoken: str) -> Block:
    found = letter_scores(estimator, target=target, kernel=kernel)
    scores, letters = found.scores, found.alphabet.letters
    start, stop, note = 0, scores.shape[1], ""
    if stop > _POSITIONS:
        sums = np.convolve(np.abs(scores).sum(axis=0), np.ones(_POSITIONS), "valid")
        start = int(np.argmax(sums))
        note = f" Positions {start} to {start + _POSITIONS - 1} of {stop}, with most to say."
        stop = start + _POSITIONS
    ax = new_axes(8.2, 2.9)
    plot_sequence_logo(found, ax, positions=(start, stop))
    shown = scores[:, start:stop]
    places = np.sort(np.argsort(-np.abs(shown).max(axis=0), kind="stable")[:10])
    tallest = np.abs(shown[:, places]).argmax(axis=0)
    rows = [
        [start + int(j), letters[code], f"{shown[code, j]:+.4f}"]
        for j, code in zip(places, tallest, strict=True)
    ]
    title = f"Letters{spoken}"
    return figure(
        title,
        ax,
        "As high as the mean share of the decision value that sequences get from that letter "
        f"there; letters below the line speak against it.{note}",
        {"heads": ["position", "letter", "share"], "rows": rows, "title": "Tallest letters"},
        wide=True,
    )
