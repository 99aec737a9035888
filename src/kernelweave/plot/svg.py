"""A figure as inline SVG for a page: its colours are variables of the page's style sheet."""

from __future__ import annotations

import hashlib
import io
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from html import escape
from typing import Any

from kernelweave.plot.style import BLACK, COLOURS, GREY, LIGHT_BLUE, RULE, VERMILLION

_VARIABLES = {
    **{colour.lower(): f"var(--c{i})" for i, colour in enumerate(COLOURS)},
    LIGHT_BLUE.lower(): "var(--pale)",
    GREY.lower(): "var(--muted)",
    BLACK.lower(): "var(--ink)",
    RULE.lower(): "var(--rule)",
    "#000000": "var(--muted)",
    "#f2f2f2": "var(--faint)",
    "#d0d0d0": "var(--rule)",
    "#ffffff": "var(--paper)",
}
# Letters need more contrast than lines: they have the colour of text, or that of a warning.
_TEXT = {BLACK.lower(): "var(--ink)", VERMILLION.lower(): "var(--bad)"}
_SETTINGS: Any = {"svg.fonttype": "none", "svg.hashsalt": "kernelweave", "path.simplify": True}


@contextmanager
def page_style() -> Iterator[None]:
    """Draw as figures on a page look, whatever the user's own settings are.

    Axes are quiet, names of kernels are no formulas, and the page has letters that matplotlib's
    own font may not have.
    """
    from matplotlib import style

    quiet = {"edgecolor": GREY, "labelcolor": BLACK, "spines.top": False, "spines.right": False}
    ticks = {"color": GREY, "labelcolor": BLACK}
    settings: Any = {f"axes.{name}": value for name, value in quiet.items()}
    settings |= {f"{axis}tick.{name}": value for axis in "xy" for name, value in ticks.items()}
    chosen: Any = ["default", {**settings, "text.parse_math": False, "font.size": 11}]
    with style.context(chosen), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from")
        yield


def with_tips(artist: Any, texts: Sequence[str]) -> None:
    """Let a page show these texts, one for each mark that the artist draws, under the pointer."""
    artist.tips = texts


def figure_svg(figure: Any, label: str, *, wide: bool = False) -> str:
    """Return a figure as SVG; `label` says to those who cannot see it what it shows.

    A wide figure keeps its size and scrolls, others shrink with the page.
    """
    from matplotlib import rc_context

    tipped = [own for ax in figure.axes for own in ax.collections if hasattr(own, "tips")]
    for i, artist in enumerate(tipped):
        artist.set_gid(f"tips-{i}")
    file = io.StringIO()
    with rc_context(_SETTINGS):
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
    text = file.getvalue()
    inside = text[text.index("</metadata>") + len("</metadata>") : text.rindex("</svg>")]
    inside = re.sub(r"<style.*?</style>|<!--.*?-->", "", inside, flags=re.S)
    smallest = 8.0 if wide else 10.5
    # Inside of tags only: text is that of users.
    inside = re.sub(
        r"<[^>]+>", lambda tag: _for_page(tag[0], smallest), re.sub(r"\s*\n\s*", " ", inside)
    )
    for i, artist in enumerate(tipped):
        inside = _add_tips(inside, f'<g id="tips-{i}">', artist.tips)
    # Of the names only those that something refers to stay, and no two figures share one.
    inside = re.sub(r'<g id="[^"]*"', "<g", inside)
    key = hashlib.sha1(f"{label}{inside}".encode()).hexdigest()[:6]
    keyed = rf"\g<1>{key}-"
    inside = re.sub(r"<[^>]+>", lambda tag: re.sub(r'(id="|href="#|url\(#)', keyed, tag[0]), inside)
    width, height = (72 * size for size in figure.get_size_inches())
    kind = f'class="chart map" style="--w:{width:.0f}px"' if wide else 'class="chart"'
    return (
        f'<svg {kind} viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{escape(label)}">'
        f"{inside.strip()}</svg>"
    )


def _for_page(tag: str, smallest: float) -> str:
    """Round a tag to what can be seen, and leave its fonts and colours to the page."""
    tag = re.sub(r"-?\d+\.\d{2,}", lambda m: f"{float(m[0]):.4g}", tag.replace("xlink:", ""))
    tag = re.sub(r' d="[^"]*"', lambda m: re.sub(r"(?<=\S) ?([MLCQz]) ?", r"\1", m[0]), tag)
    if tag.startswith("<text"):
        # Letters have a size and a colour that can be read.
        tag = re.sub(r"font-family: [^;\"]*;? ?", "", tag)
        size = re.compile(r"font-size: ([\d.]+)px")
        tag = size.sub(lambda m: f"font-size: {max(float(m[1]), smallest):g}px", tag)
        fill = re.compile(r"fill: (#[0-9a-f]{6})")
        tag = fill.sub(lambda m: f"fill: {_TEXT.get(m[1], 'var(--muted)')}", tag)
    return re.sub(r"#[0-9a-f]{6}(?=[;\"])", lambda m: _VARIABLES.get(m[0], m[0]), tag)


def _add_tips(text: str, start: str, tips: Sequence[str]) -> str:
    before, after = text.split(start, 1)
    texts = iter(tips)
    # What is drawn several times over is defined once, under an id: that is no mark.
    marks = re.compile(r"<(use|path)(?= (?:href|d=))")

    def add(found: re.Match[str]) -> str:
        tip = next(texts, None)
        return found[0] if tip is None else f'{found[0]} data-tip="{escape(tip)}"'

    return before + start + marks.sub(add, after)
