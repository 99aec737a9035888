"""Parquet and Arrow files."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from kernelweave.errors import InvalidInputError
from kernelweave.reading.files import plain_errors
from kernelweave.reading.table import Table

__all__ = ["read_columnar"]


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
        data = path.read_bytes()
        if kind == "parquet":
            frame = pl.read_parquet(data)
        elif data.startswith(b"ARROW1"):
            frame = pl.read_ipc(data)
        else:
            frame = pl.read_ipc_stream(data)
    if frame.height == 0 or frame.width == 0:
        raise InvalidInputError(
            f"{str(path)!r} holds {frame.height} rows and {frame.width} columns; "
            f"at least one of each is needed."
        )
    return Table(frame, frame.columns, kind)
