"""Tables of results: as frames, and as lines of text."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any


def table_of(columns: Mapping[Any, Any], index: Sequence[str] = (), across: str = "") -> Any:
    """Return a frame: of pandas where it is installed, with these columns as index; else polars.

    In pandas the row of column names may have a name too, `across`.
    """
    try:
        import pandas as pd
    except ImportError:
        import polars as pl

        return pl.DataFrame({str(name): values for name, values in columns.items()})
    frame = pd.DataFrame(dict(columns))
    if index:
        frame = frame.set_index(index[0] if len(index) == 1 else list(index))
    return frame.rename_axis(columns=across) if across else frame


def text_table(
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    left: Collection[int] = (0,),
    more: int = 0,
    of: str = "",
    indent: str = "",
) -> list[str]:
    """Return lines with straight columns, on the right except those of `left`.

    A row of two cells only is a name and a text that may run on. `more` rows are only counted, as
    what `of` says.

    >>> text_table(["name", "n", "m"], [["a", "12", "3"], ["b", "no such thing"]], more=5)
    ['name   n  m', 'a     12  3', 'b     no such thing', '5 more']
    """
    rows = [heads, *rows]
    full = [row for row in rows if len(row) == len(heads)]
    width = [max(map(len, cells)) for cells in zip(*full, strict=True)]
    width[0] = max(len(row[0]) for row in rows)
    lines = []
    for row in rows:
        wide = width if len(row) == len(width) else [width[0], 0]
        cells = [
            f"{cell:<{w}}" if j in left else f"{cell:>{w}}"
            for j, (cell, w) in enumerate(zip(row, wide, strict=True))
        ]
        lines.append(indent + "  ".join(cells).rstrip())
    return [*lines, f"{indent}{more} more{of}"] if more > 0 else lines
