"""How a text table is laid out: its encoding, separator, header and lines."""

from __future__ import annotations

import csv
import io
import re
from itertools import islice
from typing import NamedTuple

__all__ = [
    "MISSING",
    "Separator",
    "decode",
    "find_separator",
    "has_header",
    "is_missing",
    "is_number",
]

# What stands for a value that is not there.
MISSING = ("", "NA", "N/A", "n/a", "#N/A", "NaN", "nan", "NAN", "null", "NULL", "None", "?", ".")
_MISSING = frozenset(MISSING)
# Where several would do, the first: "1,5;2,5" is two numbers with decimal commas.
_SEPARATORS = ("\t", ";", ",", "|")
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?|[-+]?(inf|infinity)", re.IGNORECASE)
_SNIFFED_LINES = 100
_BOMS = ((b"\xef\xbb\xbf", "utf-8"), (b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be"))


def is_number(text: str) -> bool:
    """Whether a field is a number."""
    return _NUMBER.fullmatch(text.strip()) is not None


def is_missing(text: str) -> bool:
    """Whether a field stands for a missing value."""
    return text.strip() in _MISSING


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


class Separator(NamedTuple):
    """What stands between fields; `certain` if all the first lines agree on several fields."""

    text: str
    certain: bool


def find_separator(text: str, *, whole: bool = True) -> Separator:
    """Find what separates the fields of a table; a space stands for any number of spaces."""
    best, most, total = ",", 0, 0
    for candidate in _SEPARATORS:
        rows = _first_rows(text, candidate, whole)
        # Whatever separates the fields separates those of the first line.
        if len(rows[0]) < 2:
            continue
        agreeing = sum(len(row) in (len(rows[0]), len(rows[0]) + 1) for row in rows)
        if agreeing * total > most * len(rows) or not total:
            best, most, total = candidate, agreeing, len(rows)
    if total:
        return Separator(best, most == total > 1)
    widths = [len(row[0].split()) for row in _first_rows(text, "\n", whole)]
    if len(widths) > 1 and widths[0] > 1 and set(widths) == {widths[0]}:
        return Separator(" ", True)
    return Separator(",", False)


def _first_rows(text: str, separator: str, whole: bool) -> list[list[str]]:
    """Fields of the first lines that are not blank."""
    if separator == "\n":
        rows = [[line] for line in text.split("\n") if line.strip()]
    else:
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
        try:
            rows = [row for row in islice(reader, _SNIFFED_LINES) if any(map(str.strip, row))]
        except csv.Error:
            rows = [line.split(separator) for line in text.split("\n") if line.strip()]
    if not whole and 1 < len(rows) < _SNIFFED_LINES:
        rows.pop()  # It has been cut.
    return rows or [[""]]


def has_header(rows: list[list[str]]) -> bool:
    """Whether the first of the first few rows names the columns.

    It does not if it holds only numbers, and neither if it mixes numbers with words that come
    again below, as a row of data does.
    """
    first = rows[0]
    numbers = [is_number(field) for field in first]
    if not any(numbers):
        return True
    words = [j for j, field in enumerate(first) if not numbers[j] and not is_missing(field)]
    if not words:
        # Years over the columns and an empty corner: a header, unless the data have a gap there.
        corner = not first[0].strip() and all(numbers[1:])
        return corner and len(rows) > 1 and all(row and not is_number(row[0]) for row in rows[1:])
    if any(is_number(field) and not field.strip().lstrip("+-").isdigit() for field in first):
        return False
    return not any(
        j < len(row) and row[j].strip() == first[j].strip() for j in words for row in rows[1:]
    )
