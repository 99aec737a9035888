"""Charts as inline SVG: axes, lines, dots, bars. Colours are classes that the style sheet knows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup, escape

from kernelweave.report.html.words import number

__all__ = ["SERIES", "Axis", "Chart", "fewer", "nice_ticks"]

# Colours that stay apart for every kind of colour vision; more lines than these are not drawn.
SERIES = 7
# Corners of the plotting area. Charts are narrow, so that letters stay readable on a phone.
_WIDTH, _HEIGHT = 380, 264
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 12, 24, 40


def nice_ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Return round numbers between two ends.

    Examples
    --------
    >>> nice_ticks(0.0, 1.0), nice_ticks(-3.0, 14.0)
    ([0.0, 0.2, 0.4, 0.6, 0.8, 1.0], [0.0, 5.0, 10.0])
    """
    if not high > low:
        return [low]
    rough = (high - low) / max(1, most - 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(s * power for s in (1, 2, 5, 10) if s * power >= rough * (1 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    # Rounded, so that 0.6000000000000001 is written 0.6.
    return [float(f"{i * step:.12g}") for i in range(first, last + 1)]


def fewer(n: int, most: int = 300) -> np.ndarray:
    """Return which of n points to draw: all, or so many evenly spread, both ends among them.

    Examples
    --------
    >>> fewer(4).tolist(), fewer(9, 3).tolist()
    ([0, 1, 2, 3], [0, 4, 8])
    """
    return np.unique(np.linspace(0, n - 1, min(n, most)).round().astype(int)) if n else np.arange(0)


@dataclass(frozen=True)
class Axis:
    """From numbers to places on the page."""

    low: float
    high: float
    label: str
    log: bool = False
    ticks: tuple[float, ...] | None = None
    texts: tuple[str, ...] | None = None

    @classmethod
    def around(cls, values: Any, label: str, *, log: bool = False, zero: bool = False) -> Axis:
        """Take in all values, and a little room around them; `zero` begins at zero."""
        known = np.asarray(values, dtype=float).ravel()
        known = known[np.isfinite(known) & ((known > 0) | (not log))]
        low, high = (float(known.min()), float(known.max())) if len(known) else (0.1, 1.0)
        if log:
            low, high = math.log10(low), math.log10(high)
        if zero:
            low, high = min(low, 0.0), max(high, 0.0)
        room = 0.05 * (high - low) or 0.5 * max(abs(high), 0.2 if log else 1e-3)
        low -= 0.0 if zero and low == 0 else room
        high += room
        if log:
            low, high = 10.0**low, 10.0**high
        return cls(low, high, label, log)

    def place(self, values: Any, first: float, last: float) -> np.ndarray:
        """Return where values are between two places on the page."""
        values = np.asarray(values, dtype=float)
        low, high = self.low, self.high
        if self.log:
            values, low, high = (
                np.log10(np.maximum(values, 1e-300)),
                math.log10(low),
                math.log10(high),
            )
        return first + (values - low) / (high - low) * (last - first)

    def marks(self) -> list[tuple[float, str]]:
        """Where the axis has numbers, and what they say."""
        if self.ticks is not None:
            texts = self.texts or tuple(number(tick) for tick in self.ticks)
            return list(zip(self.ticks, texts, strict=True))
        if not self.log:
            return [(tick, number(tick, 6)) for tick in nice_ticks(self.low, self.high)]
        first, last = math.ceil(math.log10(self.low)), math.floor(math.log10(self.high))
        if last - first < 1:
            span = nice_ticks(math.log10(self.low), math.log10(self.high), 4)
            return [(10.0**power, number(10.0**power, 2)) for power in span]
        step = -(-(last - first + 1) // 6)
        return [(10.0**power, number(10.0**power)) for power in range(first, last + 1, step)]


class Chart:
    """One chart: an x axis, a y axis, and what is drawn between them, in the order of the calls."""

    def __init__(self, x: Axis, y: Axis, *, width: int = _WIDTH, height: int = _HEIGHT) -> None:
        self.x, self.y = x, y
        self.width, self.height = width, height
        self._parts: list[str] = []

    def at(self, xs: Any, ys: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return where points are on the page."""
        across = self.x.place(xs, _LEFT, self.width - _RIGHT)
        return across, self.y.place(ys, self.height - _BOTTOM, _TOP)

    def line(self, xs: Any, ys: Any, kind: str, *, steps: bool = False) -> None:
        """Draw a line through the points, or steps from each to the next."""
        across, up = self.at(xs, ys)
        if not len(across):
            return
        parts = [f"M{across[0]:.1f} {up[0]:.1f}"]
        for x, y in zip(across[1:], up[1:], strict=True):
            parts.append(f"H{x:.1f}V{y:.1f}" if steps else f"L{x:.1f} {y:.1f}")
        self._parts.append(f'<path class="line {kind}" d="{"".join(parts)}"/>')

    def band(self, xs: Any, low: Any, high: Any, kind: str) -> None:
        """Fill between two lines."""
        across, lower = self.at(xs, low)
        _, upper = self.at(xs, high)
        there = "L".join(f"{x:.1f} {y:.1f}" for x, y in zip(across, upper, strict=True))
        back = zip(across[::-1], lower[::-1], strict=True)
        self._parts.append(
            f'<path class="band {kind}" d="M{there}L'
            f'{"L".join(f"{x:.1f} {y:.1f}" for x, y in back)}Z"/>'
        )

    def dots(
        self, xs: Any, ys: Any, kind: str, *, tips: Sequence[str] = (), radius: float = 2.6
    ) -> None:
        """Draw points; what `tips` says is shown where the pointer is."""
        for i, (x, y) in enumerate(zip(*self.at(xs, ys), strict=True)):
            tip = f' data-tip="{escape(tips[i])}"' if i < len(tips) else ""
            self._parts.append(
                f'<circle class="dot {kind}" cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}"{tip}/>'
            )

    def whiskers(self, xs: Any, low: Any, high: Any, kind: str) -> None:
        """Draw upright lines from one end to the other."""
        across, lower = self.at(xs, low)
        _, upper = self.at(xs, high)
        path = "".join(
            f"M{x:.1f} {a:.1f}V{b:.1f}" for x, a, b in zip(across, lower, upper, strict=True)
        )
        self._parts.append(f'<path class="whisker {kind}" d="{path}"/>')

    def bars(
        self, edges: Any, heights: Any, kind: str, *, tips: Sequence[str] = (), base: Any = 0.0
    ) -> None:
        """Draw upright bars between edges, from `base` up by `heights`."""
        edges, heights = np.asarray(edges, dtype=float), np.asarray(heights, dtype=float)
        across, _ = self.at(edges, 0 * edges)
        bottom = np.broadcast_to(np.asarray(base, dtype=float), heights.shape)
        _, low = self.at(edges[:-1], bottom)
        _, high = self.at(edges[:-1], bottom + heights)
        for i in np.flatnonzero(heights).tolist():
            tip = f' data-tip="{escape(tips[i])}"' if i < len(tips) else ""
            wide = max(across[i + 1] - across[i] - 0.8, 0.4)
            self._parts.append(
                f'<rect class="bar {kind}" x="{across[i] + 0.4:.1f}" y="{high[i]:.1f}" '
                f'width="{wide:.1f}" height="{low[i] - high[i]:.1f}"{tip}/>'
            )

    def rule(
        self, *, x: float | None = None, y: float | None = None, text: str = "", kind: str = "mark"
    ) -> None:
        """Draw a dashed line across the chart, with words at its end."""
        if x is not None:
            place = float(self.x.place(x, _LEFT, self.width - _RIGHT))
            path = f"M{place:.1f} {_TOP}V{self.height - _BOTTOM}"
            left = place > 0.7 * self.width
            words = (place - 5 if left else place + 5, _TOP + 9.0, "end" if left else "start")
        else:
            place = float(self.y.place(y, self.height - _BOTTOM, _TOP))
            path = f"M{_LEFT} {place:.1f}H{self.width - _RIGHT}"
            words = (_LEFT + 5.0, place - 5, "start")
        self._parts.append(f'<path class="rule {kind}" d="{path}"/>')
        if text:
            self._parts.append(
                f'<text class="rule-text {kind}" x="{words[0]:.1f}" y="{words[1]:.1f}" '
                f'text-anchor="{words[2]}">{escape(text)}</text>'
            )

    def diagonal(self) -> None:
        """Draw the line on which both axes have the same number."""
        low, high = max(self.x.low, self.y.low), min(self.x.high, self.y.high)
        across, up = self.at([low, high], [low, high])
        path = f"M{across[0]:.1f} {up[0]:.1f}L{across[1]:.1f} {up[1]:.1f}"
        self._parts.append(f'<path class="rule faint" d="{path}"/>')

    def render(self, label: str) -> Markup:
        """Return the chart; `label` says to those who cannot see it what it shows."""
        return Markup(
            f'<svg class="chart" viewBox="0 0 {self.width} {self.height}" role="img" '
            f'aria-label="{escape(label)}">{self._axes()}{"".join(self._parts)}</svg>'
        )

    def _axes(self) -> str:
        bottom, right = self.height - _BOTTOM, self.width - _RIGHT
        out = []
        for value, text in self.y.marks():
            place = float(self.y.place(value, bottom, _TOP))
            out.append(
                f'<path class="grid" d="M{_LEFT} {place:.1f}H{right}"/>'
                f'<text class="tick" x="{_LEFT - 6}" y="{place + 3.5:.1f}" text-anchor="end">'
                f"{escape(text)}</text>"
            )
        for value, text in self.x.marks():
            place = float(self.x.place(value, _LEFT, right))
            out.append(
                f'<path class="tickmark" d="M{place:.1f} {bottom}v4"/>'
                f'<text class="tick" x="{place:.1f}" y="{bottom + 15}" text-anchor="middle">'
                f"{escape(text)}</text>"
            )
        out.append(f'<path class="axis" d="M{_LEFT} {bottom}H{right}"/>')
        out.append(f'<text class="label" x="2" y="11">{escape(self.y.label)}</text>')
        out.append(
            f'<text class="label" x="{right}" y="{self.height - 6}" text-anchor="end">'
            f"{escape(self.x.label)}</text>"
        )
        return "".join(out)
