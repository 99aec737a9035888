"""What all figures share: colours, axes, titles. Without pyplot, and so without a screen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kernelweave.errors import InvalidInputError
from kernelweave.inspect.words import number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
else:
    # Matplotlib is imported by the first figure.
    Axes = Any

# Okabe and Ito's palette: the colours stay apart for every kind of colour vision.
BLUE, LIGHT_BLUE, VERMILLION = "#0072B2", "#9BCBEB", "#D55E00"
GREY, BLACK, RULE = "#999999", "#222222", "#e5e5e5"
# For classes, groups and lines that need more than two.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C6D1F")
_DEEPEST = 0.8
# Columns of a legend.
_COLUMNS = 6


def check_top(top: int) -> None:
    """Raise unless `top`, how many rows to show, is a number of them."""
    if top < 1:
        raise InvalidInputError(f"top must be at least 1; got {top!r}.")


def new_axes(width: float, height: float) -> Axes:
    """Return the axes of a new figure, which pyplot does not know."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained").subplots()


def tidy(ax: Axes) -> None:
    """Take away what frames a picture and says nothing."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.set_axisbelow(True)


def title_and_legend(ax: Axes, title: str, handles: list[Any], right: bool = False) -> None:
    """Title, and between it and the axes a legend, where nothing is in its way."""
    rows = -(-len(handles) // _COLUMNS)
    ax.set_title(title, fontsize=11, pad=8 + 16 * rows if rows else None)
    if handles:
        ax.legend(
            handles=handles,
            loc="lower right" if right else "lower center",
            bbox_to_anchor=(1.0 if right else 0.5, 1.0),
            ncols=_COLUMNS,
            frameon=False,
            fontsize=8,
            borderaxespad=0.3,
            columnspacing=1.4,
            handletextpad=0.5,
        )


def write(ax: Axes, text: str, xy: tuple[float, float], by: tuple[float, float], **how: Any) -> Any:
    """Write a small text at a place, moved `by` so many points; it starts there, at half height."""
    how = {"va": "center", "fontsize": 8, "color": BLACK, **how}
    return ax.annotate(text, xy, xytext=by, textcoords="offset points", **how)


def log_axis(ax: Axes, which: str) -> None:
    """Let an axis be logarithmic, with numbers as people write them."""
    ax.set(**{f"{which}scale": "log"})
    getattr(ax, f"{which}axis").set_major_formatter(lambda value, _: number(value))


def rows_with_names(ax: Axes, names: Sequence[str]) -> None:
    """Name the rows of horizontal bars, the first on top."""
    ax.set_yticks(np.arange(len(names)), names)
    ax.set_ylim(max(len(names), 1) - 0.4, -0.6)
    ax.tick_params(axis="y", length=0)


def bars(
    ax: Axes,
    names: Sequence[str],
    sizes: Any,
    texts: Sequence[str],
    colours: Any = BLUE,
    **how: Any,
) -> None:
    """Draw horizontal bars with their names and, at their ends, these texts; the first on top."""
    drawn = ax.barh(np.arange(len(names)), sizes, color=colours, height=0.72)
    ax.bar_label(drawn, texts, padding=4, fontsize=8, color=BLACK, **how)
    rows_with_names(ax, names)
    tidy(ax)


def heat_map(
    ax: Axes,
    across: Any,
    values: Any,
    signed: bool = True,
    most: float | None = None,
    up: str = BLUE,
    down: str = VERMILLION,
) -> Any:
    """Draw values as squares between these vertical edges: the stronger, the larger.

    No colour is zero, the deepest is `most`. Only their opacity differs, so that colours suit any
    paper, and letters on them can be read.
    """
    from matplotlib.colors import LinearSegmentedColormap, to_rgba

    colours = [(0.0, to_rgba(up, 0.0)), (1.0, to_rgba(up, _DEEPEST))]
    if signed:
        falling = [(0.0, to_rgba(down, _DEEPEST)), (0.5, to_rgba(down, 0.0))]
        colours = falling + [(0.5 + 0.5 * place, colour) for place, colour in colours]
    most = most or max(float(np.abs(values).max(initial=0.0)), np.finfo(float).tiny)
    return ax.pcolormesh(
        across,
        np.arange(len(values) + 1) - 0.5,
        values,
        cmap=LinearSegmentedColormap.from_list("shades", colours),
        vmin=-most if signed else 0.0,
        vmax=most,
        # No square reaches beyond the axes, and a page with 900 of them is shorter so.
        clip_on=False,
    )


def position_axis(ax: Axes, first: float, last: float) -> None:
    """Let the horizontal axis show positions between these edges."""
    from matplotlib.ticker import MaxNLocator

    ax.set_xlim(first, last)
    ax.xaxis.set_major_locator(MaxNLocator(14, integer=True, steps=[1, 2, 5, 10]))
    ax.set_xlabel("position")


def position_map(ax: Axes, edges: Any, values: Any, label: str, wide: float, **how: Any) -> None:
    """Draw a map over positions; its colour bar is `wide` times narrower than a row is high."""
    image = heat_map(ax, edges, values, **how)
    position_axis(ax, edges[0], edges[-1])
    colour_bar(ax, image, label, pad=0.015, aspect=max(8, wide * len(values)))
    ax.spines[:].set_visible(True)
    ax.spines[:].set_color(GREY)


def colour_bar(ax: Axes, image: Any, label: str | None = None, **how: Any) -> None:
    """Say beside a map what its colours mean; in steps, which a page draws as shapes."""
    from matplotlib.ticker import MaxNLocator

    low, high = image.get_clim()
    bar = ax.figure.colorbar(
        image,
        ax=ax,
        label=label,
        boundaries=np.linspace(low, high, 22),
        spacing="proportional",
        **how,
    )
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=8)
    bar.locator = MaxNLocator(5)
    bar.update_ticks()
