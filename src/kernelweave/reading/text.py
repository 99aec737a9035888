"""CSV, TSV and other tables written as text: split into cells, and columns as what they are.

Tables may have as many columns as there are genes, and a call of polars for each of them would take
longer than the reading. So the cells of many columns are one long series, one column after the
other, and what is known of a column is a reduction along one axis of an array.
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from kernelweave.errors import InvalidInputError
from kernelweave.reading.bounded import Allowance, plain_errors, unpacked
from kernelweave.reading.layout import MISSING, decode, find_separator, has_header
from kernelweave.reading.table import Table
from kernelweave.validation import some_of

_HEAD_BYTES = 65536
# Rows, and fields of them beyond the first few rows, by which a header is known.
_HEAD_ROWS, _HEAD_FIELDS = 1000, 1_000_000
_LONGEST_FIELD = 2**31 - 1
_SHOWN = 5  # names in a line
# Whole numbers up to here are exact as floats.
_EXACT = 2.0**53
_DECIMAL_COMMA = r"^[-+]?\d*(,\d+)?([eE][-+]?\d+)?$"
# Cells whose types are found together.
_CELLS = 2**20
# Memory for each field, for one in a file with quotes and for each line, as measured at the peak of
# reading; and the part of the memory that is free that all may take.
_FIELD_BYTES, _CAREFUL_BYTES, _LINE_BYTES = 60.0, 120.0, 70.0
_OF_TABLES = 0.9


def read_text(path: Path, kind: str) -> Table:
    """Read a text table; see `kernelweave.read_table` for how it is understood."""
    grid = read_grid(path)
    notes = list(grid.notes)
    if grid.names is None:
        names = [f"x{j}" for j in range(grid.width)]
        notes.append("no header: columns are called x0, x1, ...")
    else:
        given = [name.strip() for name in grid.names]
        taken = set(given)
        names = [name or f"x{j}{'_' * (f'x{j}' in taken)}" for j, name in enumerate(given)]
        check_names(names, path)
    if not len(grid.cells):
        raise InvalidInputError(
            f"{str(path)!r} has a header ({some_of(names, _SHOWN)}) and no rows."
        )
    frame, changed = typed(grid.cells, names, commas=grid.separator != ",")
    if changed:
        notes.append(f"commas read as decimal points: {some_of(changed, _SHOWN)}")
    return Table(frame, names, "tsv" if grid.separator == "\t" else "csv", tuple(notes))


def check_names(names: Sequence[str], path: Path) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if not twice:
        return
    more = f" (the same for {some_of(twice[1:], _SHOWN)})" if twice[1:] else ""
    where = ", ".join(str(j) for j, name in enumerate(names, start=1) if name == twice[0])
    raise InvalidInputError(
        f"{str(path)!r} has several columns named {twice[0]!r}: columns {where}{more}. "
        f"Every column needs a name of its own."
    )


class Grid(NamedTuple):
    """A text table before its fields are understood."""

    cells: pl.Series  # All fields below the header, one column after the other.
    width: int
    names: list[str] | None  # The header.
    separator: str
    notes: list[str]  # What a person should know.


def read_grid(path: Path) -> Grid:
    """Read the fields of a text table as text, and find out whether the first line is a header."""
    data, notes = _clean(path)
    head = data[:_HEAD_BYTES].decode("utf-8", errors="ignore")
    separator, _ = find_separator(head, whole=len(data) <= _HEAD_BYTES)
    if separator == " ":
        data = re.sub(rb"[ \t]+", b"\t", re.sub(rb"(?m)^[ \t]+|[ \t]+$", b"", data))
        separator = "\t"
    n_lines = data.count(b"\n") + 1
    n_fields = data.count(separator.encode()) + n_lines
    each = _CAREFUL_BYTES if b'"' in data else _FIELD_BYTES
    needed = 3.0 * len(data) + each * n_fields + _LINE_BYTES * n_lines
    what = f"a table of {n_lines} lines and {n_fields} fields"
    Allowance(path, _OF_TABLES).take(needed, what)
    if 0 < data.count(b'"') <= 2 * n_fields and _are_needless(data, separator):
        data = data.replace(b'"', b"")
    with plain_errors(path, "a table"):
        text = data.decode("utf-8")
        split = _split_carefully if '"' in text else _split_plain
        numbers, rows, widths, first = split(path, text, separator)
    header = first[0] if has_header(first) else None
    if header is not None and widths[1:] and set(widths[1:]) == {widths[0] + 1}:
        if all(not row[-1].strip() for row in first[1:]):
            header = [*header, ""]  # Only the rows end in a separator.
        else:
            header = ["row names", *header]
            notes.append("the first column has no name in the header: called 'row names'")
    else:
        _check_widths(path, widths, numbers, header is not None, separator)
    body: Any = rows if header is None else rows[1:]
    if '"' in text:
        cells = pl.Series(list(chain.from_iterable(body)), dtype=pl.String)
    else:
        cells = pl.Series(body, dtype=pl.String).str.split(separator).explode()
    by_column = np.arange(len(cells), dtype=np.uint32).reshape(-1, widths[-1]).T.ravel()
    return Grid(cells.gather(by_column), widths[-1], header, separator, notes)


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


def _are_needless(data: bytes, separator: str) -> bool:
    """Whether quotes stand around whole fields and none of these needs them: it is often so."""
    values = np.frombuffer(data, np.uint8)
    border = (values == ord(separator)) | (values == ord("\n"))
    quotes = np.flatnonzero(values == ord('"'))
    opening, closing = quotes[::2], quotes[1::2]
    if len(opening) != len(closing) or b'""' in data:
        return False  # Without its quotes, a row of empty fields may be a blank line.
    before = border[opening - 1] | (opening == 0)
    after = border[np.minimum(closing + 1, len(values) - 1)] | (closing == len(values) - 1)
    places = np.flatnonzero(border)
    inside = np.searchsorted(places, closing) - np.searchsorted(places, opening)
    return bool(before.all() and after.all() and not inside.any())


# The number of the line in which each row begins, the rows, their numbers of fields, and the fields
# of the first ones. Blank lines are no rows.
_Rows = tuple[list[int], list[Any], list[int], list[list[str]]]


def _split_plain(path: Path, text: str, separator: str) -> _Rows:
    """Rows as lines, which polars splits: there are no quotes."""
    lines = text.split("\n")
    numbers = [i for i, line in enumerate(lines, start=1) if line.strip()]
    lines = [line for line in lines if line.strip()]
    widths = [line.count(separator) + 1 for line in lines]
    few = max(3, min(_HEAD_ROWS, _HEAD_FIELDS // max(widths)))
    return numbers, lines, widths, [line.split(separator) for line in lines[:few]]


def _split_carefully(path: Path, text: str, separator: str) -> _Rows:
    """Rows as fields, by Python's own reader, which knows what to do with quotes inside fields."""
    numbers: list[int] = []
    rows: list[list[str]] = []
    number = 1
    before = csv.field_size_limit(_LONGEST_FIELD)  # Fields may be whole chromosomes.
    try:
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
        for row in reader:
            if row and (len(row) > 1 or not row[0].isspace()):
                numbers.append(number)
                rows.append(row)
            number = reader.line_num + 1
    finally:
        csv.field_size_limit(before)
    if not rows:
        raise InvalidInputError(f"{str(path)!r} holds nothing but blank lines.")
    if text.count('"') % 2 and "\n" in rows[-1][-1]:
        raise InvalidInputError(
            f'{str(path)!r}: a quote (") that is opened in line {numbers[-1]} is never closed.'
        )
    return numbers, rows, list(map(len, rows)), rows[:_HEAD_ROWS]


def _check_widths(
    path: Path, widths: list[int], numbers: list[int], header: bool, separator: str
) -> None:
    wrong = [i for i, width in enumerate(widths) if width != widths[0]]
    if not wrong:
        return
    n = widths[wrong[0]]
    shown = "tab" if separator == "\t" else repr(separator)
    first = "the header" if header else f"line {numbers[0]}"
    others = f"; {len(wrong) - 1} other lines differ too" if len(wrong) > 1 else ""
    raise InvalidInputError(
        f"{str(path)!r}: line {numbers[wrong[0]]} has {n} field{'s' * (n != 1)}, but "
        f"{first} has {widths[0]} (separated by {shown}){others}. Fields that hold the separator "
        f"must stand in double quotes."
    )


def typed(
    cells: pl.Series, names: list[str], *, commas: bool = False
) -> tuple[pl.DataFrame, list[str]]:
    """Return a table of text, one column after the other, with each in the type of its values.

    With `commas`, numbers may have decimal commas; also returns the columns that had any.
    """
    found: dict[str, pl.Series] = {}
    changed: list[str] = []
    height = len(cells) // len(names)
    step = max(1, _CELLS // height)
    for first in range(0, len(names), step):
        block = names[first : first + step]
        stripped = cells.slice(first * height, step * height).str.strip_chars()
        text = stripped.set(stripped.is_in(list(MISSING)), None)
        if commas:
            text, with_commas = _with_points(text, len(block))
            changed += [block[j] for j in np.flatnonzero(with_commas)]
        found |= _typed_columns(text, block)
    return pl.DataFrame([found[name] for name in names]), changed


def _by_column(values: pl.Series, width: int) -> NDArray[Any]:
    """One value a cell as an array with a row for each column; nulls of booleans are False."""
    plain = values.fill_null(False) if values.dtype == pl.Boolean else values
    return plain.to_numpy().reshape(width, -1)


def _pick(values: pl.Series, columns: NDArray[np.bool_]) -> pl.Series:
    """One value a cell, of these columns."""
    if columns.all():
        return values
    return values.gather(np.arange(len(values)).reshape(len(columns), -1)[columns].ravel())


def _typed_columns(text: pl.Series, names: list[str]) -> dict[str, pl.Series]:
    """The columns by name, some of them numbers or booleans; codes such as 007 stay text."""
    width = len(names)
    height = len(text) // width
    numbers = text.cast(pl.Float64, strict=False)
    missing, values = _by_column(text.is_null(), width), _by_column(numbers, width)
    known = ~missing.all(axis=1)
    number = known & (_by_column(numbers.is_null(), width) == missing).all(axis=1)
    largest = np.fmax.reduce(np.abs(values), axis=1)  # Values are NaN where there is no number.
    whole = number & ((values == np.rint(values)) | np.isnan(values)).all(axis=1)
    whole &= largest < np.inf
    if whole.any():
        starts = _pick(text, whole).str.contains(r"^[-+]?0\d")
        codes = whole.copy()
        codes[whole] = _by_column(starts, int(whole.sum())).any(axis=1)
        number, whole = number & ~codes, whole & ~codes
    large = whole & (largest >= _EXACT)
    truth = known & ~number
    if truth.any():
        lower = _pick(text, truth).str.to_lowercase()
        either = lower.is_in(["true", "false"]) | lower.is_null()
        truth[truth] = _by_column(either, int(truth.sum())).all(axis=1)
    out: dict[str, pl.Series] = {}
    for columns, kind in ((number & ~whole, pl.Float64), (whole & ~large, pl.Int64)):
        some = _pick(numbers, columns).fill_nan(None).cast(kind)
        out |= _chosen(some, columns, names)
    out |= _chosen(_pick(text, truth).str.to_lowercase() == "true", truth, names)
    out |= _chosen(_pick(text, ~number & ~truth), ~number & ~truth, names)
    for j in np.flatnonzero(large).tolist():
        out[names[j]] = _large(text.slice(j * height, height)).alias(names[j])
    return out


def _chosen(
    values: pl.Series, columns: NDArray[np.bool_], names: list[str]
) -> dict[str, pl.Series]:
    """The chosen columns by name, of one value a cell of them."""
    chosen = [names[j] for j in np.flatnonzero(columns)]
    height = len(values) // max(1, len(chosen))
    if 0 < height < len(chosen):
        # Few long series, turned over, take less time than many short ones.
        rows = {str(i): values.gather_every(height, i) for i in range(height)}
        series = pl.DataFrame(rows).transpose(column_names=chosen).get_columns()
    else:
        series = [values.slice(j * height, height).alias(name) for j, name in enumerate(chosen)]
    return dict(zip(chosen, series, strict=True))


def _large(text: pl.Series) -> pl.Series:
    """Whole numbers that floats cannot tell apart."""
    if not text.drop_nulls().str.contains(r"^[-+]?\d+$").all():
        return text.cast(pl.Float64).fill_nan(None)
    exact = text.cast(pl.Int64, strict=False)
    # Longer ones are names of things, of which rounding would make one.
    return exact if exact.null_count() == text.null_count() else text


def _with_points(text: pl.Series, width: int) -> tuple[pl.Series, NDArray[np.bool_]]:
    """Return the cells with points for decimal commas, and in which columns there were any.

    A column counts if all of its values are numbers that way and some comma has other than three
    digits behind it: "1,234" may well be a thousand.
    """
    sure: NDArray[np.bool_] = np.asarray(
        _by_column(text.str.contains(r",(\d{1,2}|\d{4,})$"), width).any(axis=1)
    )
    if sure.any():
        some = _pick(text, sure)
        numbers = some.str.contains(_DECIMAL_COMMA) | some.is_null()
        sure[sure] = _by_column(numbers, int(sure.sum())).all(axis=1)
    if sure.any():
        points = text.str.replace(",", ".", literal=True)
        text = points.zip_with(pl.Series(np.repeat(sure, len(text) // width)), text)
    return text, sure
