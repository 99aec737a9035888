"""Parquet and Arrow files."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import polars as pl

from kernelweave.errors import InvalidInputError
from kernelweave.reading.bounded import OF_ARRAYS, Allowance
from kernelweave.reading.files import plain_errors
from kernelweave.reading.table import Table

__all__ = ["read_columnar"]

# Of a value; text takes as much besides its letters.
_VALUE_BYTES = 16.0


def read_columnar(path: Path, kind: str) -> Table:
    """Read a Parquet file or an Arrow file (Feather is one).

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp(), "a.parquet")
    >>> pl.DataFrame({"a": [1, 2], "b": ["x", None]}).write_parquet(path)
    >>> read_columnar(path, "parquet").data.rows()
    [(1, 'x'), (2, None)]
    """
    with plain_errors(path, "Parquet" if kind == "parquet" else "Arrow (IPC, Feather)"):
        with path.open("rb") as file:
            data = Allowance(path, OF_ARRAYS).read(file)
        if kind == "parquet":
            _check_size(path, pl.scan_parquet(BytesIO(data)))
            frame = pl.read_parquet(data)
        elif data.startswith(b"ARROW1"):
            _check_size(path, pl.scan_ipc(BytesIO(data)))
            frame = pl.read_ipc(data)
        else:
            frame = pl.read_ipc_stream(data)
    if frame.height == 0 or frame.width == 0:
        raise InvalidInputError(
            f"{str(path)!r} holds {frame.height} rows and {frame.width} columns; "
            f"at least one of each is needed."
        )
    return Table(frame, frame.columns, kind)


def _check_size(path: Path, frame: pl.LazyFrame) -> None:
    """Refuse more values than fit in memory, by what the file says of its rows and columns."""
    n_rows, n_columns = frame.select(pl.len()).collect().item(), len(frame.collect_schema())
    what = f"a table of {n_rows} rows and {n_columns} columns"
    Allowance(path, OF_ARRAYS).take(_VALUE_BYTES * n_rows * n_columns, what)
