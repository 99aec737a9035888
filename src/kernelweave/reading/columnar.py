"""Parquet and Arrow files."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import polars as pl

from kernelweave.errors import InvalidInputError
from kernelweave.reading.arrow_sizes import check_arrow
from kernelweave.reading.bounded import OF_ARRAYS, Allowance
from kernelweave.reading.files import plain_errors
from kernelweave.reading.parquet_sizes import check_parquet
from kernelweave.reading.table import Table

__all__ = ["read_columnar"]

# Of the texts of some rows while they are made.
_COPIES = 4


def read_columnar(path: Path, kind: str) -> Table:
    """Read a Parquet file or an Arrow file (Feather is one)."""
    with plain_errors(path, "Parquet" if kind == "parquet" else "Arrow (IPC, Feather)"):
        with path.open("rb") as file:
            data = Allowance(path, OF_ARRAYS).read(file)
        allowance = Allowance(path, OF_ARRAYS)
        if kind == "parquet":
            _count_differences(path, data, longest=check_parquet(data, allowance))
            frame = pl.read_parquet(data)
        else:
            check_arrow(data, allowance)
            read = pl.read_ipc if data.startswith(b"ARROW1") else pl.read_ipc_stream
            frame = read(data)
        _count_text(path, frame)
    if frame.height == 0 or frame.width == 0:
        raise InvalidInputError(
            f"{str(path)!r} holds {frame.height} rows and {frame.width} columns; "
            f"at least one of each is needed."
        )
    return Table(frame, frame.columns, kind)


def _count_differences(path: Path, data: bytes, longest: float) -> None:
    """Count texts that are told by differences, of no more rows at a time than surely fit."""
    if not longest:
        return
    allowance = Allowance(path, OF_ARRAYS)
    frame = pl.scan_parquet(BytesIO(data))
    n_rows = frame.select(pl.len()).collect().item()
    if n_rows <= allowance.times(longest):
        return
    step = max(1, allowance.times(_COPIES * longest))
    for first in range(0, n_rows, step):
        part = frame.select(pl.col(pl.String, pl.Binary)).slice(first, step).collect()
        allowance.take(part.estimated_size(), "its text")


def _count_text(path: Path, frame: pl.DataFrame) -> None:
    """Count the letters of all texts: equal ones share their memory only until they are used."""
    allowance = Allowance(path, OF_ARRAYS)
    for column, kind in zip(frame.iter_columns(), frame.dtypes, strict=True):
        if isinstance(kind, pl.String):
            n_bytes = column.str.len_bytes().cast(pl.Float64).sum()
        elif isinstance(kind, pl.Categorical | pl.Enum):
            counts = column.value_counts(name="number of rows")
            lengths = counts.to_series(0).cast(pl.String).str.len_bytes()
            n_bytes = (lengths.cast(pl.Float64) * counts.to_series(1)).sum()
        else:
            continue
        allowance.take(float(n_bytes), "its text")
