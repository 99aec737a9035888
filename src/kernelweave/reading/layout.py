"""How a text table is laid out: its encoding, separator, header and lines."""

from __future__ import annotations

import csv
import io
import re
from itertools import islice

# What stands for a value that is not there.
MISSING = ("", "NA", "N/A", "n/a", "#N/A", "NaN", "nan", "NAN", "null", "NULL", "None", "?", ".")
# Where several would do, the first: "1,5;2,5" is two numbers with decimal commas.
_SEPARATORS = ("\t", ";", ",", "|")
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?|[-+]?(inf|infinity)", re.IGNORECASE)
_SNIFFED_LINES = 100
_BOMS = ((b"\xef\xbb\xbf", "utf-8"), (b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be"))


def is_number(text: str) -> bool:
    return _NUMBER.fullmatch(text.strip()) is not None


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


def has_header(rows: list[list[str]]) -> bool:
    """Whether the first of the first few rows names the columns.

    It does not if it holds only numbers, and neither if it mixes numbers with words that come
    again below, as a row of data does.
    """
    first = rows[0]
    numbers = [is_number(field) for field in first]
    if not any(numbers):
        return True
    words = [j for j, field in enumerate(first) if not numbers[j] and field.strip() not in MISSING]
    if not words:
        # Years over the columns and an empty corner: a header, unless the data have a gap there.
        corner = not first[0].strip() and all(numbers[1:])
        return corner and len(rows) > 1 and all(row and not is_number(row[0]) for row in rows[1:])
    if any(is_number(field) and not field.strip().lstrip("+-").isdigit() for field in first):
        return False
    return not any(
        j < len(row) and row[j].strip() == first[j].strip() for j in words for row in rows[1:]
    )
