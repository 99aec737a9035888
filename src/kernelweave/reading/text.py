"""CSV, TSV and other tables written as text: laid out by people, split and read by polars."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import compress, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from kernelweave.arrays import Flags, Index
from kernelweave.errors import InvalidInputError
from kernelweave.reading.bounded import Allowance, plain_errors, unpacked
from kernelweave.reading.table import Table
from kernelweave.validation import some_of

# What stands for a value that is not there; the second kind is a number to polars.
_GAPS = ("", "NA", "N/A", "n/a", "#N/A", "null", "NULL", "None", "?", ".")
_NANS = ("NaN", "nan", "NAN")
# Where several would do, the first: "1,5;2,5" is two numbers with decimal commas.
_SEPARATORS = ("\t", ";", ",", "|")
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?|[-+]?(inf|infinity)", re.IGNORECASE)
_DECIMAL_COMMA = rf"^([-+]?\d*(,\d+)?([eE][-+]?\d+)?|{'|'.join(_NANS)})$"
_SNIFFED_LINES = 100
_BOMS = ((b"\xef\xbb\xbf", "utf-8"), (b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be"))
_HEAD_BYTES = 65536
# Rows, and fields of them beyond the first few rows, by which a header is known.
_HEAD_ROWS, _HEAD_FIELDS = 1000, 1_000_000
_LONGEST_FIELD = 2**31 - 1
_SHOWN = 5  # names in a line
# Whole numbers up to here are exact as floats.
_EXACT = 2.0**53
# Memory for each field, for one in a file with quotes, for each line and for each column, as
# measured at the peak of reading; and the part of the memory that is free that all may take.
_FIELD_BYTES, _CAREFUL_BYTES, _LINE_BYTES, _COLUMN_BYTES = 60.0, 120.0, 70.0, 3000.0
_OF_TABLES = 0.9


def read_text(path: Path, kind: str) -> Table:
    """Read a text table; see `kernelweave.read_table` for how it is understood."""
    grid = read_grid(path)
    notes = list(grid.notes)
    if grid.header is None:
        names = [f"x{j}" for j in range(grid.text.width)]
        notes.append("no header: columns are called x0, x1, ...")
    else:
        given = [name.strip() for name in grid.header]
        taken = set(given)
        names = [name or f"x{j}{'_' * (f'x{j}' in taken)}" for j, name in enumerate(given)]
        check_names(names, path)
    if not grid.text.height:
        raise InvalidInputError(
            f"{str(path)!r} has a header ({some_of(names, _SHOWN)}) and no rows."
        )
    grid.text.columns = names
    frame, changed = typed(grid.text, commas=grid.has_commas)
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


# From bytes to fields


class Grid(NamedTuple):
    """A text table before its fields are understood."""

    text: pl.DataFrame  # All fields below the header, stripped; nulls where values are missing.
    header: list[str] | None
    separator: str
    has_commas: bool  # Inside of fields.
    notes: list[str]  # What a person should know.


def read_grid(path: Path) -> Grid:
    """Read the fields of a text table as text, and find out whether the first line is a header."""
    data, notes = _clean(path)
    head = data[:_HEAD_BYTES].decode("utf-8", errors="ignore")
    separator, _ = find_separator(head, whole=len(data) <= _HEAD_BYTES)
    if separator == " ":
        data = re.sub(rb"(?m)^\t|\t$", b"", re.sub(rb"[ \t]+", b"\t", data))
        separator = "\t"
    n_lines = data.count(b"\n") + 1
    n_fields = data.count(separator.encode()) + n_lines
    start = data.lstrip(b"\n ")
    n_columns = 1 + start.count(separator.encode(), 0, start.find(b"\n"))
    each = _CAREFUL_BYTES if b'"' in data else _FIELD_BYTES
    needed = 3.0 * len(data) + each * n_fields + _LINE_BYTES * n_lines
    needed += _COLUMN_BYTES * n_columns
    what = f"a table of {n_lines} lines and {n_fields} fields"
    Allowance(path, _OF_TABLES).take(needed, what)
    if 0 < data.count(b'"') <= 2 * n_fields and _are_needless(data, separator):
        data = data.replace(b'"', b"")
    with plain_errors(path, "a table"):
        read = _read_quoted if b'"' in data else _read_plain
        text, header, row_names = read(path, data, separator)
    if row_names:
        notes.append("the first column has no name in the header: called 'row names'")
    return Grid(text, header, separator, separator != "," and b"," in data, notes)


def _clean(path: Path) -> tuple[bytes, list[str]]:
    """Return a file as UTF-8 with Unix line ends, and what had to be guessed."""
    data, note = unpacked(path), None
    if not data.isascii():
        text, note = decode(data)
        if note is not None or data.startswith(_BOMS[0][0]):
            data = text.encode("utf-8")
    if b"\0" in data:
        at = 1 + data.count(b"\n", 0, data.index(b"\0"))
        raise InvalidInputError(
            f"{str(path)!r} is not a text file: line {at} holds binary data. Is the suffix right?"
        )
    if b"\r" in data:
        data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    if not data.strip():
        raise InvalidInputError(f"{str(path)!r} holds nothing but blank lines.")
    return data, [] if note is None else [note]


def decode(data: bytes, *, cut: bool = False) -> tuple[str, str | None]:
    """Return bytes as text, and a note if the encoding had to be guessed.

    With ``cut=True`` they may end in the middle of a letter.
    """
    for mark, encoding in _BOMS:
        if data.startswith(mark):
            text = data[len(mark) :].decode(encoding, errors="replace")
            return text, None if encoding == "utf-8" else f"read as {encoding[:6].upper()}"
    try:
        return data.decode("utf-8"), None
    except UnicodeDecodeError as error:
        if cut and error.reason == "unexpected end of data":
            return data[: error.start].decode("utf-8"), None
    note = "not UTF-8; read as Latin-1 (Windows-1252)"
    try:
        return data.decode("cp1252"), note
    except UnicodeDecodeError:
        return data.decode("latin-1"), note


def find_separator(text: str, *, whole: bool = True) -> tuple[str, bool]:
    """Find what separates the fields of a table, and whether all the first lines agree on several.

    A space stands for any number of spaces. Without ``whole=True`` the last line may be cut.
    """
    best, most, total = ",", 0, 0
    for candidate in _SEPARATORS:
        try:
            reader = csv.reader(io.StringIO(text, newline=""), delimiter=candidate)
            rows = [row for row in islice(reader, _SNIFFED_LINES) if any(map(str.strip, row))]
        except csv.Error:
            rows = [line.split(candidate) for line in text.split("\n") if line.strip()]
        if not whole and 1 < len(rows) < _SNIFFED_LINES:
            rows.pop()
        # Whatever separates the fields separates those of the first line.
        if not rows or len(rows[0]) < 2:
            continue
        agreeing = sum(len(row) in (len(rows[0]), len(rows[0]) + 1) for row in rows)
        if agreeing * total > most * len(rows) or not total:
            best, most, total = candidate, agreeing, len(rows)
    if total:
        return best, most == total > 1
    lines = [line for line in text.split("\n") if line.strip()]
    widths = [len(line.split()) for line in (lines if whole else lines[:-1])]
    if len(widths) > 1 and widths[0] > 1 and set(widths) == {widths[0]}:
        return " ", True
    return ",", False


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


# The fields below the header, the header, and whether a name for the first column was added to it.
_Fields = tuple[pl.DataFrame, list[str] | None, bool]


def _read_plain(path: Path, data: bytes, separator: str) -> _Fields:
    """Let polars split lines without quotes. It fills up short rows, so they are refused before."""
    mark, written = separator.encode(), data
    spaces = [space for space in (b" ", b"\t", b"\xc2\xa0") if space != mark]
    pairs = [(a, b) for space in spaces for a, b in ((space, mark), (space, b"\n"))]
    at_ends = data.startswith(tuple(spaces)) or data.endswith(tuple(spaces))
    if at_ends or any(a in data and (a + b in data or b + a in data) for a, b in pairs):
        space = rb"(?:%b)" % b"|".join(spaces)
        # A run of spaces is looked at from its first one only, so that long ones take no longer.
        run = b"".join(rb"(?<!%b)" % each for each in spaces) + space + b"+"
        border = rb"(%b|\n|\A|\Z)" % re.escape(mark)
        data = re.sub(rb"(?:%b)?%b%b*" % (run, border, space), rb"\1", data)
    if data[:1].isspace() or b"\n\n" in data or b"\n\t" in data:
        data = re.sub(rb"\A\s*\n|\n\s*(?=\n|\Z)", b"", data)
    values = np.frombuffer(data if data.endswith(b"\n") else data + b"\n", np.uint8)
    borders = np.flatnonzero((values == ord(separator)) | (values == ord("\n")))
    widths = np.diff(np.flatnonzero(values[borders] == ord("\n")), prepend=-1)
    few = max(3, min(_HEAD_ROWS, _HEAD_FIELDS // max(widths)))
    lines = [line.decode("utf-8").rstrip("\n") for line in islice(io.BytesIO(data), few)]
    first = [line.split(separator) for line in lines]

    def numbers() -> list[int]:
        return [i for i, line in enumerate(io.BytesIO(written), start=1) if line.strip()]

    header, missing = _find_header(path, first, widths, numbers, separator)
    if header is not None:
        data = data[len(lines[0].encode()) + 1 :]
    if not data:
        return text_columns({str(j): () for j in range(widths[0])}), header, missing
    options: dict[str, Any] = {
        "has_header": False,
        "quote_char": None,
        "infer_schema": False,
        "null_values": list(_GAPS),
    }
    height, width = len(widths) - (header is not None), int(widths[-1])
    if height >= width or b"\x1f" in data:
        return pl.read_csv(data, separator=separator, **options), header, missing
    # A column costs polars some kilobytes, so that very many are read as a single long one.
    data = data.removesuffix(b"\n").replace(b"\n", mark) + mark
    cells = pl.read_csv(data, separator="\x1f", eol_char=separator, **options).to_series()
    cells = cells.gather(np.arange(len(cells), dtype=np.uint32).reshape(height, width).T.ravel())
    columns = [cells.slice(j * height, height).alias(str(j)) for j in range(width)]
    return pl.DataFrame(columns), header, missing


def _read_quoted(path: Path, data: bytes, separator: str) -> _Fields:
    """Read rows by Python's own reader, which knows what to do with quotes inside fields."""
    numbers: list[int] = []
    rows: list[list[str]] = []
    number = 1
    text = data.decode("utf-8")
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
    widths = np.array([len(row) for row in rows])
    first = rows[:_HEAD_ROWS]
    header, missing = _find_header(path, first, widths, lambda: numbers, separator)
    body = rows if header is None else rows[1:]
    columns = list(zip(*body, strict=True)) or [()] * widths[0]
    return text_columns({str(j): column for j, column in enumerate(columns)}), header, missing


def text_columns(columns: Mapping[str, Sequence[str | None]]) -> pl.DataFrame:
    """Return columns of text, stripped, with nulls where values are missing."""
    frame = pl.DataFrame([pl.Series(n, v, pl.String) for n, v in columns.items()])
    stripped = frame.select(pl.all().str.strip_chars())
    return stripped.select(pl.when(~pl.all().is_in(list(_GAPS))).then(pl.all()))


def _find_header(
    path: Path,
    first: list[list[str]],
    widths: Index,
    numbers: Callable[[], list[int]],
    separator: str,
) -> tuple[list[str] | None, bool]:
    """Return the header if the first row is one, and whether a name for the first column is added.

    Rows must all be as long. `first` are the fields of some, and `numbers` gives the number of the
    line in which each begins.
    """
    header = first[0] if has_header(first) else None
    if header is not None and len(widths) > 1 and (widths[1:] == widths[0] + 1).all():
        if all(not row[-1].strip() for row in first[1:]):
            return [*header, ""], False  # Only the rows end in a separator.
        return ["row names", *header], True
    wrong = np.flatnonzero(widths != widths[0])
    if not len(wrong):
        return header, False
    lines, n = numbers(), int(widths[wrong[0]])
    shown = "tab" if separator == "\t" else repr(separator)
    told = f"line {lines[0]}" if header is None else "the header"
    others = f"; {len(wrong) - 1} other lines differ too" if len(wrong) > 1 else ""
    raise InvalidInputError(
        f"{str(path)!r}: line {lines[wrong[0]]} has {n} field{'s' * (n != 1)}, but "
        f"{told} has {widths[0]} (separated by {shown}){others}. Fields that hold the separator "
        f"must stand in double quotes."
    )


def has_header(rows: list[list[str]]) -> bool:
    """Whether the first of the first few rows names the columns.

    It does not if it holds only numbers, and neither if it mixes numbers with words that come
    again below, as a row of data does.
    """
    first = [field.strip() for field in rows[0]]
    numbers = [_NUMBER.fullmatch(field) is not None for field in first]
    if not any(numbers):
        return True
    known = [j for j, field in enumerate(first) if field not in _GAPS and field not in _NANS]
    words = [j for j in known if not numbers[j]]
    if not words:
        # Years over the columns and an empty corner: a header, unless the data have a gap there.
        corner = not first[0] and all(numbers[1:])
        below = (row[0].strip() for row in rows[1:] if row)
        return corner and len(rows) > 1 and not any(map(_NUMBER.fullmatch, below))
    if any(number and not first[j].lstrip("+-").isdigit() for j, number in enumerate(numbers)):
        return False
    return not any(j < len(row) and row[j].strip() == first[j] for j in words for row in rows[1:])


# From text to the types of the values


def typed(text: pl.DataFrame, *, commas: bool = False) -> tuple[pl.DataFrame, list[str]]:
    """Return columns of text, which are stripped, each in the type of its values.

    Codes such as 007 stay text. With `commas`, numbers may have decimal commas; also returns the
    columns that had any.
    """
    # There may be as many columns as there are genes, so most steps take all of them at once.
    numbers = text.cast(pl.Float64, strict=False)
    changed: list[str] = []
    if commas:
        changed = _decimal_commas(text, list(compress(text.columns, ~_are_numbers(text, numbers))))
        text = text.with_columns(pl.col(changed).str.replace(",", ".", literal=True))
        numbers = numbers.with_columns(text.select(pl.col(changed).cast(pl.Float64)))
    number = _are_numbers(text, numbers)
    values = numbers.to_numpy()
    gaps = np.isnan(values)
    largest = np.fmax.reduce(np.abs(values), axis=0, initial=0.0)
    whole = ((values == np.rint(values)) | gaps).all(axis=0) & ~gaps.all(axis=0)
    whole &= number & (largest < np.inf)
    code = whole.copy()
    if whole.any():
        cells = pl.concat([text.to_series(j) for j in np.flatnonzero(whole).tolist()])
        starts = cells.str.contains(r"^[-+]?0\d").fill_null(False).to_numpy()
        code[whole] = starts.reshape(-1, text.height).any(axis=1)
    has_nan = gaps.sum(axis=0) > _null_counts(numbers)
    columns = numbers.get_columns()
    for j in np.flatnonzero(number & has_nan).tolist():
        columns[j] = columns[j].fill_nan(None)
    for j in np.flatnonzero(whole & ~code & (largest < _EXACT)).tolist():
        columns[j] = columns[j].cast(pl.Int64)
    large = whole & ~code & (largest >= _EXACT)
    firsts = text.row(0)
    for j in np.flatnonzero(~number | code | large).tolist():
        words = text.to_series(j)
        if has_nan[j]:
            words = words.set(words.is_in(_NANS), None)
        columns[j] = _large(words) if large[j] else _words(words, firsts[j])
    return pl.DataFrame(columns), changed


def _are_numbers(text: pl.DataFrame, numbers: pl.DataFrame) -> Flags:
    """Of which columns all text is a number, where there is some."""
    missing = _null_counts(text)
    return (missing == _null_counts(numbers)) & (missing < text.height)


def _null_counts(frame: pl.DataFrame) -> Index:
    return np.array([column.null_count() for column in frame.get_columns()])


def _words(text: pl.Series, first: str | None) -> pl.Series:
    """Truth values from text, if it is nothing else; else the text."""
    if first is not None and first.lower() not in ("true", "false", "nan"):
        return text
    lower = text.str.to_lowercase()
    known = lower.drop_nulls()
    return lower == "true" if len(known) and known.is_in(["true", "false"]).all() else text


def _large(text: pl.Series) -> pl.Series:
    """Whole numbers that floats cannot tell apart."""
    if not text.drop_nulls().str.contains(r"^[-+]?\d+$").all():
        return text.cast(pl.Float64).fill_nan(None)
    exact = text.cast(pl.Int64, strict=False)
    # Longer ones are names of things, of which rounding would make one.
    return exact if exact.null_count() == text.null_count() else text


def _decimal_commas(text: pl.DataFrame, names: list[str]) -> list[str]:
    """Which of the columns hold numbers with decimal commas.

    All of their values must be numbers that way, and some comma have other than three digits behind
    it: "1,234" may well be a thousand.
    """
    if not names:
        return []
    columns = pl.col(names)
    sure = columns.str.contains(r",(\d{1,2}|\d{4,})$").any()
    flags = text.select(sure & columns.str.contains(_DECIMAL_COMMA).all())
    return [name for name in names if flags[name][0]]
