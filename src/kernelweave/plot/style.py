"""What all figures share: colours, axes, titles. Without pyplot, and so without a screen."""

from __future__ import annotations

from math import floor, log10
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "BLACK",
    "BLUE",
    "COLOURS",
    "GREY",
    "LIGHT_BLUE",
    "VERMILLION",
    "legend_above",
    "new_axes",
    "shorten",
    "tidy",
    "title_and_legend",
    "two_digits",
]

# Okabe and Ito's palette: the colours stay apart for every kind of colour vision.
BLUE, LIGHT_BLUE, VERMILLION = "#0072B2", "#9BCBEB", "#D55E00"
GREY, BLACK = "#999999", "#222222"
# For classes, groups and lines that need more than two.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C6D1F")


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
    columns = 6
    rows = -(-len(handles) // columns)
    ax.set_title(title, fontsize=11, pad=8 + 16 * rows if rows else None)
    if handles:
        legend_above(ax, handles, columns, right)


def legend_above(ax: Axes, handles: list[Any], columns: int, right: bool = False) -> None:
    """Put a legend on top of the axes, where nothing is in its way."""
    ax.legend(
        handles=handles,
        loc="lower right" if right else "lower center",
        bbox_to_anchor=(1.0 if right else 0.5, 1.0),
        ncols=columns,
        frameon=False,
        fontsize=8,
        borderaxespad=0.3,
        columnspacing=1.4,
        handletextpad=0.5,
    )


def shorten(name: str, limit: int = 44) -> str:
    """Return a name without its middle if it is long.

    Examples
    --------
    >>> shorten("rbf(width=2) on mean radius", 11)
    'rbf(w…adius'
    """
    if len(name) <= limit:
        return name
    keep = (limit - 1) // 2
    return f"{name[:keep]}…{name[-keep:]}"


def two_digits(seconds: float) -> str:
    """Return a time to two digits, without an exponent.

    Examples
    --------
    >>> two_digits(0.0123), two_digits(0.5), two_digits(12.34)
    ('0.012', '0.50', '12')
    """
    digits = 1 - floor(log10(max(seconds, 1e-4)))
    return f"{seconds:.{max(0, digits)}f}"
