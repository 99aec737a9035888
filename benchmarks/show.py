"""The one way to show: tables in Markdown, verdicts, figures."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np


def cell(value: Any) -> str:
    """Numbers to three digits, all digits of whole ones; text as it is; nothing for None."""
    if value is None:
        return ""
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, float | np.floating):
        return f"{value:,.0f}" if 1000 <= abs(value) < 1e9 else f"{value:.3g}"
    return str(value)


def _line(cells: Any) -> str:
    return "| " + " | ".join(cell(value) for value in cells) + " |"


def table(heads: list[str], rows: list[Any]) -> str:
    return "\n".join([_line(heads), "|" + "---|" * len(heads), *map(_line, rows)])


class Table:
    """A table that is printed row by row, while the work goes on."""

    def __init__(self, title: str, heads: Any) -> None:
        print((f"\n{title}\n\n" if title else "") + table(list(heads), []), flush=True)

    def row(self, *cells: Any) -> None:
        print(_line(cells), flush=True)


RACE = ("problem", "contestant", "seconds", "ratio")


def race_rows(
    found: Table, problem: str, best: dict[Any, Any], told: Callable[[Any], Any] | None = None
) -> dict[Any, float]:
    """Show a race, one row for each contestant: seconds, and how many times those of the first.

    `told` has what else there is to say of what a contestant returned. Returns the ratios.
    """
    first = next(iter(best.values()))[0]
    ratios = {name: seconds / first for name, (seconds, _) in best.items()}
    for name, (seconds, value) in best.items():
        more = [told(value)] if told is not None else []
        found.row(problem, name, seconds, f"{ratios[name]:.2f} x", *more)
    return ratios


def fit_words(fitted: Any) -> str:
    """Gap, iterations and support vectors of a model of ours; the SVC needs no words."""
    if not hasattr(fitted, "gap_"):
        return ""
    kernels = f"{np.count_nonzero(fitted.weights_)} kernels"
    support = f"{len(fitted.support_)} support vectors"
    return f"gap {fitted.gap_:.1e}, {fitted.n_iter_} iterations, {support}, {kernels}"


def spread(values: Any, digits: int = 2) -> str:
    return f"{np.mean(values):.{digits}f} ± {np.std(values):.{digits}f}"


def verdict(passed: bool, text: str) -> None:
    print(f"{'PASS' if passed else 'FAIL'}  {text}", flush=True)


def new_figure(width: float, height: float, *shape: int, **options: Any) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(*shape, squeeze=False, **options)
    for ax in axes.flat:
        ax.grid(alpha=0.3)
        ax.spines[["top", "right"]].set_visible(False)
    return figure, axes


def plain_numbers(*axes: Any) -> None:
    """Logarithmic axes with plain numbers at the powers of ten."""
    for ax in axes:
        ax.set(xscale="log", yscale="log")
        for side in (ax.xaxis, ax.yaxis):
            side.set_major_formatter("{x:,g}")
            side.set_minor_formatter("")


def save(figure: Any, path: Path | str, legend: Any = None, place: str = "lower center") -> None:
    """Write the figure, with the legend of one of its axes below; say where it is."""
    if legend is not None:
        known = legend.get_legend_handles_labels() if hasattr(legend, "plot") else legend
        columns = len(known[1]) if len(known[1]) < 5 else -(-len(known[1]) // 2)
        figure.legend(*known, loc=f"outside {place}", ncols=columns, frameon=False)
    figure.savefig(path, dpi=110)
    print(f"\nfigure: {path}")
