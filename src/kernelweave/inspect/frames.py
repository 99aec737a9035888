"""Tables of results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
