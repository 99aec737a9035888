"""CSV, TSV and other tables written as text."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from kernelweave.errors import InvalidInputError
from kernelweave.reading.bounded import Allowance
from kernelweave.reading.files import plain_errors, unpacked
from kernelweave.reading.infer import typed
from kernelweave.reading.layout import Lines, decode, find_lines, find_separator, has_header
from kernelweave.reading.table import Table

__all__ = ["Grid", "check_names", "read_grid", "read_text"]

_HEAD_BYTES = 65536
# Rows, and fields of them beyond the first few rows, by which a header is known.
_HEAD_ROWS, _HEAD_FIELDS = 1000, 1_000_000
_LONGEST_FIELD = 2**31 - 1
# Memory for each field, for one in a file with quotes and for each line, as measured at the peak of
# reading; and the part of the memory that is free that all may take.
_FIELD_BYTES, _CAREFUL_BYTES, _LINE_BYTES = 40.0, 120.0, 70.0
_OF_TABLES = 0.9


def read_text(path: Path, kind: str) -> Table:
    """Read a text table; see `kernelweave.read_table` for how it is understood."""
    grid = read_grid(path)
    notes = list(grid.notes)
    if grid.names is None:
        names = [f"x{j}" for j in range(grid.width)]
        notes.append("no header: columns are called x0, x1, ...")
    else:
        names = _named(grid.names)
        check_names(names, path)
    if not len(grid.cells):
        raise InvalidInputError(f"{str(path)!r} has a header ({_some(names)}) and no rows.")
    frame, changed = typed(grid.cells, names, commas=grid.separator != ",")
    if changed:
        notes.append(f"commas read as decimal points: {_some(changed)}")
    return Table(frame, names, "tsv" if grid.separator == "\t" else "csv", tuple(notes))


def _named(header: list[str]) -> list[str]:
    """Give columns without a name one."""
    names = [name.strip() for name in header]
    taken = set(names)
    for j, name in enumerate(names):
        if not name:
            made = f"x{j}"
            while made in taken:
                made += "_"
            taken.add(made)
            names[j] = made
    return names


def check_names(names: Sequence[str], path: Path) -> None:
    """Refuse names of columns that are there twice."""
    if len(set(names)) == len(names):
        return
    places: dict[str, list[int]] = {}
    for j, name in enumerate(names):
        places.setdefault(name, []).append(j + 1)
    twice = [name for name, where in places.items() if len(where) > 1]
    more = f" (the same for {_some(twice[1:])})" if twice[1:] else ""
    where = ", ".join(str(j) for j in places[twice[0]])
    raise InvalidInputError(
        f"{str(path)!r} has several columns named {twice[0]!r}: columns {where}{more}. "
        f"Every column needs a name of its own."
    )


def _some(names: Sequence[str]) -> str:
    listed = ", ".join(names[:5])
    return listed if len(names) <= 5 else f"{listed}, ... ({len(names)} columns)"


class Grid(NamedTuple):
    """A text table before its fields are understood."""

    cells: pl.Series  # All fields below the header, one column after the other.
    width: int
    names: list[str] | None  # The header.
    separator: str
    notes: list[str]  # What a person should know.


class _Records(NamedTuple):
    """The lines of a table that are not blank."""

    first: list[list[str]]  # Fields of the first ones.
    widths: NDArray[np.int64]  # Number of fields of each.
    numbers: NDArray[np.int64]  # Where each begins in the file, counted from 1.
    cells: Callable[[int], pl.Series]  # Those from the i-th on, one column after the other.


def read_grid(path: Path) -> Grid:
    """Read the fields of a text table as text, and find out whether the first line is a header."""
    data, notes = _clean(path)
    head = data[:_HEAD_BYTES].decode("utf-8", errors="ignore")
    separator = find_separator(head, whole=len(data) <= _HEAD_BYTES).text
    if separator == " ":
        data = re.sub(rb"[ \t]+", b"\t", re.sub(rb"(?m)^[ \t]+|[ \t]+$", b"", data))
        separator = "\t"
    _check_size(path, data, separator)
    with plain_errors(path, "a table"):
        lines = find_lines(data, separator)
        split = _split_plain if lines.plain else _split_carefully
        records = split(path, data, lines, separator)
    widths = records.widths
    header = records.first[0] if has_header(records.first) else None
    if header is not None and len(widths) > 1 and (widths[1:] == widths[0] + 1).all():
        if all(not row[-1].strip() for row in records.first[1:]):
            header = [*header, ""]  # Only the rows end in a separator.
        else:
            header = ["row names", *header]
            notes.append("the first column has no name in the header: called 'row names'")
    else:
        _check_widths(path, records, header is not None, separator)
    cells = records.cells(0 if header is None else 1)
    return Grid(cells, int(widths[-1]), header, separator, notes)


def _check_size(path: Path, data: bytes, separator: str) -> None:
    """Refuse what would not fit in memory as a table, before its fields are looked for."""
    n_lines = data.count(b"\n") + 1
    n_fields = data.count(separator.encode()) + n_lines
    each = _CAREFUL_BYTES if b'"' in data else _FIELD_BYTES
    needed = 3.0 * len(data) + each * n_fields + _LINE_BYTES * n_lines
    what = f"a table of {n_lines} lines and {n_fields} fields"
    Allowance(path, _OF_TABLES).take(needed, what)


def _clean(path: Path) -> tuple[bytes, list[str]]:
    """Return a file as UTF-8 with Unix line ends, and what had to be guessed."""
    data = unpacked(path)
    text, note = decode(data)
    if "\0" in text:
        at = 1 + text.count("\n", 0, text.index("\0"))
        raise InvalidInputError(
            f"{str(path)!r} is not a text file: line {at} holds binary data. Is the suffix right?"
        )
    if note is not None or data.startswith(b"\xef\xbb\xbf"):
        data = text.encode("utf-8")
    if b"\r" in data:
        data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    if not data.strip():
        raise InvalidInputError(f"{str(path)!r} holds nothing but blank lines.")
    return data, [] if note is None else [note]


def _split_plain(path: Path, data: bytes, lines: Lines, separator: str) -> _Records:
    """Leave the work to polars: quotes, if any, stand around whole fields."""
    starts, ends, widths = lines.starts, lines.ends, lines.widths
    filled = np.array([bool(data[a:b].strip()) for a, b in zip(starts, ends, strict=True)])
    starts, ends, widths = starts[filled], ends[filled], widths[filled]
    numbers = _line_numbers(data, starts) if b'"' in data else 1 + np.flatnonzero(filled)
    few = max(3, min(_HEAD_ROWS, _HEAD_FIELDS // int(widths.max())))
    some = [data[a:b] for a, b in zip(starts[:few], ends[:few], strict=True)]
    first = [row for row, _ in _fields(b"\n".join(some).decode("utf-8"), separator)]

    def cells(skip: int) -> pl.Series:
        if skip >= len(starts):
            return pl.Series(dtype=pl.String)
        text = data[starts[skip] :]
        if not filled.all():
            text = b"\n".join(data[a:b] for a, b in zip(starts[skip:], ends[skip:], strict=True))
        width = int(widths[-1])
        if len(starts) < width and lines.bare:
            return _cells_of_wide(text, separator, width)
        with plain_errors(path, "a table"):
            read = pl.read_csv(
                io.BytesIO(text),
                has_header=False,
                schema={f"column {j}": pl.String for j in range(width)},
                separator=separator,
                quote_char='"' if b'"' in text else None,
            )
        return pl.concat(read.get_columns(), rechunk=True)

    return _Records(first, widths, numbers, cells)


def _cells_of_wide(body: bytes, separator: str, width: int) -> pl.Series:
    """Split lines without quotes that matter; polars takes long for each column of a file."""
    lines = body.replace(b'"', b"").decode("utf-8").removesuffix("\n").split("\n")
    cells = pl.Series("cells", lines).str.split(separator).explode()
    cells = cells.to_frame().select(pl.when(pl.col("cells") != "").then("cells")).to_series()
    return _by_column(cells, width)


def _by_column(cells: pl.Series, width: int) -> pl.Series:
    """Turn one row after the other into one column after the other."""
    return cells.gather(np.arange(len(cells), dtype=np.uint32).reshape(-1, width).T.ravel())


def _line_numbers(data: bytes, starts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where the lines begin in the file, which may hold line ends in quotes too."""
    return 1 + np.searchsorted(np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n")), starts)


def _split_carefully(path: Path, data: bytes, lines: Lines, separator: str) -> _Records:
    """Split by Python's own reader, which knows what to do with quotes inside fields."""
    numbers, rows, number = [], [], 1
    for row, last in _fields(data.decode("utf-8"), separator):
        if any(field.strip() for field in row) or len(row) > 1:
            numbers.append(number)
            rows.append(row)
        number = last + 1
    if not rows:
        raise InvalidInputError(f"{str(path)!r} holds nothing but blank lines.")
    if not lines.closed and "\n" in rows[-1][-1]:
        raise InvalidInputError(
            f'{str(path)!r}: a quote (") that is opened in line {numbers[-1]} is never closed.'
        )
    widths = np.array([len(row) for row in rows], dtype=np.int64)

    def cells(skip: int) -> pl.Series:
        flat = [field for row in rows[skip:] for field in row]
        return _by_column(pl.Series(flat, dtype=pl.String), int(widths[-1]))

    return _Records(rows[:_HEAD_ROWS], widths, np.array(numbers), cells)


def _fields(text: str, separator: str) -> Iterator[tuple[list[str], int]]:
    """The fields of each line, and the number of its last line in the text."""
    # Fields may be whole chromosomes.
    before = csv.field_size_limit(_LONGEST_FIELD)
    try:
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
        for row in reader:
            yield row, reader.line_num
    finally:
        csv.field_size_limit(before)


def _check_widths(path: Path, records: _Records, header: bool, separator: str) -> None:
    widths = records.widths
    wrong = np.flatnonzero(widths != widths[0])
    if not len(wrong):
        return
    i = int(wrong[0])
    shown = {"\t": "tab"}.get(separator, repr(separator))
    first = "the header" if header else f"line {records.numbers[0]}"
    others = f"; {len(wrong) - 1} other lines differ too" if len(wrong) > 1 else ""
    raise InvalidInputError(
        f"{str(path)!r}: line {records.numbers[i]} has {_count(int(widths[i]), 'field')}, but "
        f"{first} has {widths[0]} (separated by {shown}){others}. Fields that hold the separator "
        f"must stand in double quotes."
    )


def _count(n: int, what: str) -> str:
    return f"{n} {what}" if n == 1 else f"{n} {what}s"
