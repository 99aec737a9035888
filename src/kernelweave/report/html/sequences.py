"""What was learnt from sequences: lengths and positions, letters, k-mers."""

from __future__ import annotations

from typing import Any

import numpy as np
from markupsafe import Markup, escape

from kernelweave.errors import InvalidInputError, MemoryBudgetError
from kernelweave.report.html.outlines import letter_colours, letter_outline
from kernelweave.report.html.svg import Axis, Chart, nice_ticks
from kernelweave.report.html.words import number, percent, shorten
from kernelweave.report.largest_kmers import TopKmers, top_kmers
from kernelweave.report.part_weights import PartWeights, length_position_weights
from kernelweave.report.position_shares import letter_scores
from kernelweave.report.string_members import string_members

__all__ = ["sequence_section"]

_KMERS = 15
# Kernels that do not look at positions give a k-mer the same score at all of them.
_PLACES = 60
_TARGETS = 4
# Letters of a logo, side by side; of longer sequences the part with most to say.
_POSITIONS = 100
# Mean shares of letters take a pass over all training sequences.
_MOST_SEQUENCES = 20_000
_CELL, _LEFT, _TOP, _BOTTOM = 18, 56, 24, 38


def sequence_section(estimator: Any) -> dict[str, Any] | None:
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
    blocks: list[dict[str, Any]] = []
    notes: list[str] = []
    columns = list(dict.fromkeys(member.column for member in used))
    for place, column in enumerate(columns):
        # Kernels on different columns are told apart by what their names say of them.
        chosen = column if len(columns) > 1 else None
        where = column if chosen else ""
        figures = _part_figures(estimator, chosen, where)
        for nth, target in enumerate(_targets(estimator)):
            try:
                figures += _target_figures(estimator, chosen, target, where, f"l{place}-{nth}")
            except (InvalidInputError, MemoryBudgetError) as error:
                notes.append(str(error))
                break
        blocks.append({"kind": "figures", "figures": figures})
    n_classes = len(getattr(estimator, "classes_", ()))
    if n_classes > _TARGETS:
        notes.append(
            f"Letters and k-mers are those of the first {_TARGETS} of {n_classes} classes."
        )
    blocks.append({"kind": "notes", "notes": list(dict.fromkeys(notes))})
    return {"id": "sequences", "title": "What the sequences show", "lead": lead, "blocks": blocks}


def _targets(estimator: Any) -> list[Any]:
    classes = getattr(estimator, "classes_", None)
    if classes is None or len(classes) == 2:
        return [None]
    return classes[:_TARGETS].tolist()


# Weights of the parts of a kernel


def _part_figures(estimator: Any, kernel: str | None, where: str) -> list[dict[str, Any]]:
    try:
        parts = length_position_weights(estimator, kernel=kernel)
    except InvalidInputError:
        return []  # Not taken apart: the weights above say all there is to say.
    table = parts.weights
    if not table.any():
        return []  # Another kernel has it all.
    if parts.windows is not None and len(parts.lengths) > 1:
        return [_part_map(parts, where)]
    if parts.windows is not None:
        edges: Any = np.append(parts.windows[:, 0], parts.windows[-1, 1]) - 0.5
        heights, axis = table[0], Axis(float(edges[0]), float(edges[-1]), "position")
        texts = [_span(a, b - 1) for a, b in parts.windows]
        title = f"Weight of each window of positions{where}"
    else:
        edges = np.arange(len(parts.lengths) + 1) + 0.5
        texts = [_span(a, b) for a, b in parts.lengths]
        ticks = tuple(range(1, len(texts) + 1))
        heights = table[:, 0]
        axis = Axis(0.5, len(texts) + 0.5, "k-mer length", ticks=ticks, texts=tuple(texts))
        title = f"Weight of each k-mer length{where}"
    chart = Chart(axis, Axis.around([0, *heights], "weight", zero=True))
    chart.bars(
        edges,
        heights,
        "s0",
        tips=[f"{t}: {number(h)}" for t, h in zip(texts, heights, strict=True)],
    )
    best = int(np.argmax(np.abs(heights)))
    rows = [[t, number(h)] for t, h in zip(texts, heights, strict=True) if h]
    heads = ["positions" if parts.windows is not None else "length", "weight"]
    return [
        {
            "title": title,
            "svg": chart.render(f"{title} of {parts.name}; largest at {texts[best]}."),
            "caption": f"Of {shorten(parts.name, 80)}. The largest is at {texts[best]}.",
            "table": {"heads": heads, "rows": rows[:40]},
        }
    ]


def _span(first: int, last: int) -> str:
    return str(first) if first == last else f"{first} to {last}"


def _part_map(parts: PartWeights, where: str) -> dict[str, Any]:
    windows: Any = parts.windows
    table = parts.weights
    most = float(np.abs(table).max()) or 1.0
    last = int(windows[-1, 1])
    unit = float(np.clip(640 / last, 2.5, 26))
    width = _LEFT + unit * last + 6
    height = _TOP + _CELL * len(table) + _BOTTOM
    bottom = _TOP + _CELL * len(table)
    cells = []
    for i, (a, b) in enumerate(parts.lengths):
        up = bottom - _CELL * (i + 1)
        cells.append(
            f'<text class="tick" x="{_LEFT - 6}" y="{up + 13}" text-anchor="end">'
            f"{_span(a, b)}</text>"
        )
        for j, (start, stop) in enumerate(windows):
            value = float(table[i, j])
            if value:
                tip = f"length {_span(a, b)}, positions {_span(start, stop - 1)}: {number(value)}"
                cells.append(
                    f'<rect class="cell {"s0" if value > 0 else "s1"}" '
                    f'x="{_LEFT + unit * start:.1f}" y="{up}" '
                    f'width="{max(unit * (stop - start) - 0.6, 0.8):.1f}" height="{_CELL - 1}" '
                    f'fill-opacity="{max(abs(value) / most, 0.06):.2f}" data-tip="{escape(tip)}"/>'
                )
    cells.append(_position_axis(0, last, unit, bottom))
    cells.append('<text class="label" x="2" y="12">k-mer length</text>')
    frame = (
        f'<rect class="frame" x="{_LEFT}" y="{_TOP}" width="{unit * last:.1f}" '
        f'height="{bottom - _TOP}"/>'
    )
    order = np.argsort(-np.abs(table).ravel(), kind="stable")[:_KMERS]
    rows = []
    for place in order:
        i, j = np.unravel_index(place, table.shape)
        if table[i, j]:
            positions = _span(windows[j, 0], windows[j, 1] - 1)
            rows.append([_span(*parts.lengths[i]), positions, number(float(table[i, j]))])
    title = f"Weights by k-mer length and position{where}"
    label = f"{title}; the largest is of length {rows[0][0]} at {rows[0][1]}." if rows else title
    return {
        "title": title,
        "svg": _wide(width, height, label, frame + "".join(cells)),
        "caption": f"Of {shorten(parts.name, 80)}. The darker, the more weight.",
        "wide": True,
        "table": {"heads": ["length", "positions", "weight"], "rows": rows},
    }


def _position_axis(start: int, stop: int, unit: float, bottom: float) -> str:
    out = []
    for tick in nice_ticks(start, stop - 1, 11):
        if tick == int(tick):
            x = _LEFT + unit * (tick - start + 0.5)
            out.append(
                f'<path class="tickmark" d="M{x:.1f} {bottom}v4"/><text class="tick" x="{x:.1f}" '
                f'y="{bottom + 15}" text-anchor="middle">{int(tick)}</text>'
            )
    right = _LEFT + unit * (stop - start)
    out.append(
        f'<text class="label" x="{right:.1f}" y="{bottom + 32}" text-anchor="end">position</text>'
    )
    return "".join(out)


def _wide(width: float, height: float, label: str, inside: str) -> Markup:
    return Markup(
        f'<svg class="chart map" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'style="--w:{width:.0f}px" role="img" aria-label="{escape(label)}">{inside}</svg>'
    )


# Letters and k-mers


def _target_figures(
    estimator: Any, kernel: str | None, target: Any, where: str, key: str
) -> list[dict[str, Any]]:
    best = top_kmers(estimator, _KMERS * _PLACES, target=target, kernel=kernel)
    figures = []
    n = estimator._kernel_set.n
    if best.positions is not None and n <= _MOST_SEQUENCES:
        figures.append(_logo(estimator, kernel, target, where, key))
    heads = ["k-mer", "position", "score"] if best.positions is not None else ["k-mer", "score"]
    rows = _kmer_rows(best)
    spoken = _spoken(estimator, target)
    figures.append(
        {
            "kind": "table",
            "title": f"K-mers with most to say{where}{spoken}",
            "heads": heads,
            "rows": rows,
            "numeric": list(range(1, len(heads))),
            "mono": True,
            "note": "The score is what a k-mer adds to the decision value, without the shorter "
            "ones inside it.",
        }
    )
    return figures


def _kmer_rows(best: TopKmers) -> list[list[str]]:
    """Return a line for each k-mer and score; where it does not matter, with all its places."""
    places: dict[tuple[str, str], list[int]] = {}
    for i, kmer in enumerate(best.kmers):
        own = places.setdefault((kmer, f"{best.scores[i]:+.4f}"), [])
        if best.positions is not None:
            own.append(int(best.positions[i]))
    rows = [[kmer, *_where(own), score] for (kmer, score), own in places.items()]
    return rows[:_KMERS]


def _where(places: list[int]) -> list[str]:
    if not places:
        return []
    first, last = min(places), max(places)
    if first == last:
        return [str(first)]
    if last - first + 1 == len(places):
        return [f"{first} to {last}"]
    return [f"{len(places)} from {first} to {last}"]


def _spoken(estimator: Any, target: Any) -> str:
    classes = getattr(estimator, "classes_", None)
    if classes is None:
        return ""
    return f", for class {shorten(classes[1] if target is None else target, 40)}"


def _logo(estimator: Any, kernel: str | None, target: Any, where: str, key: str) -> dict[str, Any]:
    found = letter_scores(estimator, target=target, kernel=kernel)
    scores, letters = found.scores, found.alphabet.letters
    size = np.abs(scores).sum(axis=0)
    start, stop = 0, len(size)
    note = ""
    if stop > _POSITIONS:
        sums = np.convolve(size, np.ones(_POSITIONS), "valid")
        start = int(np.argmax(sums))
        note = f" Positions {start} to {start + _POSITIONS - 1} of {len(size)}, with most to say."
        stop = start + _POSITIONS
    shown = scores[:, start:stop]
    ups = np.maximum(shown, 0).sum(axis=0).max(initial=0.0)
    downs = np.maximum(-shown, 0).sum(axis=0).max(initial=0.0)
    tall = 150.0 / max(ups + downs, np.finfo(float).tiny)
    unit = float(np.clip(640 / max(stop - start, 1), 8, 22))
    zero = _TOP + ups * tall
    bottom = zero + downs * tall + 4
    used: set[int] = set()
    parts = []
    least = 0.004 * float(np.abs(shown).max(initial=0.0))
    for j, column in enumerate(shown.T):
        up = down = zero
        # The tallest letters are furthest from the axis.
        for code in np.argsort(np.abs(column), kind="stable"):
            value = float(column[code])
            if abs(value) <= least:
                continue
            reach = abs(value) * tall
            down, up = (down + reach, up) if value < 0 else (down, up - reach)
            base = down if value < 0 else up + reach
            used.add(int(code))
            x = _LEFT + unit * (j + 0.5)
            parts.append(
                f'<use href="#{key}-{code}" '
                f'transform="translate({x:.1f} {base:.1f}) scale({0.92 * unit:.2f} {-reach:.2f})"/>'
            )
    colours = letter_colours(found.alphabet)
    defs = "".join(
        f'<path id="{key}-{code}" class="{colours[letters[code]]}" '
        f'd="{letter_outline(letters[code])}"/>'
        for code in sorted(used)
    )
    axis = f'<path class="axis" d="M{_LEFT} {zero:.1f}H{_LEFT + unit * (stop - start):.1f}"/>'
    side = (
        f'<text class="label" x="2" y="12">speaks for it</text>'
        f'<text class="label" x="2" y="{bottom + 32:.1f}">below the line: against it</text>'
    )
    below = _position_axis(start, stop, unit, bottom)
    inside = f"<defs>{defs}</defs>{''.join(parts)}{axis}{below}{side}"
    width, height = _LEFT + unit * (stop - start) + 6, bottom + _BOTTOM
    places = np.argsort(-np.abs(shown).max(axis=0), kind="stable")[:10]
    rows = []
    for j in sorted(places.tolist()):
        code = int(np.abs(shown[:, j]).argmax())
        rows.append([start + j, letters[code], f"{shown[code, j]:+.4f}"])
    title = f"Letters{where}{_spoken(estimator, target)}"
    return {
        "title": title,
        "svg": _wide(
            width, height, f"Sequence logo. {title}; the tallest are in the table.", inside
        ),
        "caption": "As high as the mean share of the decision value that sequences get from that "
        f"letter there.{note}",
        "wide": True,
        "table": {
            "heads": ["position", "letter", "share"],
            "rows": rows,
            "title": "Tallest letters",
        },
    }
