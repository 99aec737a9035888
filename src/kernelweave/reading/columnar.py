"""Parquet and Arrow files: what they become in memory is counted by their metadata first.

Parquet (https://parquet.apache.org/docs/file-format/) has a footer and page headers, structs of
numbered fields in Thrift's compact protocol. The footer lists the column chunks, but the sizes that
count are those in the headers of their pages, by which pages are unpacked.

Arrow (https://arrow.apache.org/docs/format/Columnar.html) has messages whose metadata are
flatbuffers. Everything is counted as often as it is referred to: batches, buffers and fields may be
shared.
"""

from __future__ import annotations

import struct
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from kernelweave.errors import InvalidInputError
from kernelweave.reading.bounded import OF_ARRAYS, VALUE_BYTES, Allowance, plain_errors
from kernelweave.reading.table import Table

# Of the texts of some rows while they are made.
_COPIES = 4

# Kinds of values in Thrift's compact protocol; those of a fixed size with their bytes.
_BOOLEANS, _NUMBERS, _SIZES = (1, 2), (4, 5, 6), {3: 1, 7: 8}
_BINARY, _LISTS, _MAP, _STRUCT = 8, (9, 10), 11, 12
# Where the header of the data of a page is by the kind of the page, and in it the encoding.
_HEADERS = {0: (5, 2), 3: (8, 4)}
# Physical types, and the encoding that may make long texts of few bytes.
_TEXT, _FIXED, _DELTA_TEXT = 6, 7, 7
# A struct of the footer, an element of a list and a page, as objects; text is copied from pages.
_STRUCT_BYTES, _VALUE_BYTES, _PAGE_BYTES, _COPIES_OF_TEXT = 250.0, 40.0, 1000.0, 2.0
_DEEPEST, _MOST_FIELDS = 30, 100

# Of Arrow: a mark before lengths, and the kinds of messages.
_CONTINUED = 0xFFFFFFFF
_SCHEMA, _DICTIONARY, _BATCH = 1, 2, 3
# A field of the schema besides its name, as objects.
_FIELD_BYTES = 300.0


def read_columnar(path: Path, kind: str) -> Table:
    """Read a Parquet file or an Arrow file (Feather is one)."""
    with plain_errors(path, "Parquet" if kind == "parquet" else "Arrow (IPC, Feather)"):
        with path.open("rb") as file:
            data = Allowance(path, OF_ARRAYS).read(file)
        allowance = Allowance(path, OF_ARRAYS)
        if kind == "parquet":
            _count_differences(path, data, longest=_check_parquet(data, allowance))
            frame = pl.read_parquet(data)
        else:
            _check_arrow(data, allowance)
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


def _check_parquet(data: bytes, allowance: Allowance) -> float:
    """Count what all pages need, unpacked.

    Returns the length of the longest value that a column of texts may have which are told by how
    they differ from the one before; 0 if there is none. Pages do not bound the sum of these.
    """
    begin = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    if begin < 4 or not data.endswith(b"PAR1"):
        raise ValueError("it does not end as Parquet files do")
    footer = _Thrift(data, begin, allowance).struct()
    leaves = [element for element in footer.get(2, ()) if 1 in element]
    n_rows = sum(group.get(3, 0) for group in footer.get(4, ()))
    what = f"a table of {n_rows} rows and {len(leaves)} columns"
    longest: dict[int, float] = {}
    columns = [
        (j, group.get(3, 0), chunk.get(3, {}))
        for group in footer.get(4, ())
        for j, chunk in enumerate(group.get(1, ()))
    ]
    for j, n_rows_here, column in columns:
        width = leaves[j].get(2, 0) if j < len(leaves) and column.get(1) == _FIXED else 0
        n_values = max(n_rows_here, column.get(5, 0))
        allowance.take((VALUE_BYTES + max(width, 0)) * n_values, what)
    for j, n_rows_here, column in columns:
        n_values = max(n_rows_here, column.get(5, 0))
        largest = _count_pages(data, column, allowance)
        if n_values > n_rows_here:
            # Lists of texts: no number of rows bounds them.
            allowance.take(largest * n_values, what)
        elif largest:
            longest[j] = max(largest, longest.get(j, 0.0))
    return sum(longest.values(), 0.0)


def _count_pages(data: bytes, column: dict[int, Any], allowance: Allowance) -> float:
    """Count the pages of a column chunk; return the size of the largest of text by differences."""
    # Some writers list a dictionary page at 0 where there is none, others list it after the data.
    start = min((column[i] for i in (9, 11) if column.get(i, 0) > 0), default=0)
    end = min(start + column.get(7, 0), len(data))
    n_values, largest = 0, 0.0
    reader = _Thrift(data, start, allowance)
    copies = _COPIES_OF_TEXT if column.get(1) == _TEXT else 1.0
    while 0 <= reader.at < end and n_values < column.get(5, 0):
        page = reader.struct()
        unpacked, packed = page.get(2, 0), page.get(3, 0)
        if unpacked < 0 or packed < 0:
            raise ValueError(f"a page has a size of {min(unpacked, packed)} bytes")
        allowance.take(_PAGE_BYTES + copies * unpacked, "its unpacked content")
        reader.at += packed
        place, encoding = _HEADERS.get(page.get(1, -1), (-1, -1))
        header = page.get(place, {})
        n_values += header.get(1, 0)
        if column.get(1) == _TEXT and header.get(encoding) == _DELTA_TEXT:
            largest = max(largest, float(unpacked))
    return largest


class _Thrift:
    """Reads structs in Thrift's compact protocol from a place in the data on."""

    def __init__(self, data: bytes, at: int, allowance: Allowance) -> None:
        self._data, self.at, self._allowance = data, at, allowance

    def _byte(self) -> int:
        at = self.at
        if at >= len(self._data):
            raise ValueError("its metadata end too early")
        self.at = at + 1
        return self._data[at]

    def _varint(self) -> int:
        byte = self._byte()
        if byte < 128:
            return byte
        out, shift = byte & 127, 7
        while byte > 127:
            byte = self._byte()
            out |= (byte & 127) << shift
            shift += 7
        return out

    def _signed(self) -> int:
        out = self._varint()
        return (out >> 1) ^ -(out & 1)

    def struct(self, depth: int = 0) -> dict[int, Any]:
        """Read the fields of a struct: numbers, lists and structs; others become None."""
        self._allowance.take(_STRUCT_BYTES, "its metadata")
        out: dict[int, Any] = {}
        number = 0
        while head := self._byte():
            step, kind = head >> 4, head & 15
            number = number + step if step else self._signed()
            # A boolean field is all in its head; as an element of a list it takes a byte.
            out[number] = None if kind in _BOOLEANS else self._value(kind, depth + 1)
            if len(out) > _MOST_FIELDS:
                raise ValueError(f"a part of its metadata has more than {_MOST_FIELDS} fields")
        return out

    def _value(self, kind: int, depth: int) -> Any:
        if kind in _NUMBERS:
            return self._signed()
        if depth > _DEEPEST:
            raise ValueError(f"its metadata are nested more than {_DEEPEST} deep")
        if self.at >= len(self._data):
            raise ValueError("its metadata end too early")
        if kind == _STRUCT:
            return self.struct(depth)
        if kind in _LISTS:
            head = self._byte()
            length = head >> 4 if head >> 4 < 15 else self._varint()
            self._allowance.take(_VALUE_BYTES * length, "its metadata")
            return [self._value(head & 15, depth + 1) for _ in range(length)]
        if kind == _MAP:
            length = self._varint()
            kinds = self._byte() if length else 0
            for _ in range(length):
                self._value(kinds >> 4, depth + 1)
                self._value(kinds & 15, depth + 1)
        elif kind == _BINARY:
            length = self._varint()
            self.at += length
        elif kind in _SIZES or kind in _BOOLEANS:
            self.at += _SIZES.get(kind, 1)
        else:
            raise ValueError(f"a field of its metadata is of type {kind}")
        return None


def _check_arrow(data: bytes, allowance: Allowance) -> None:
    """Count what all batches need, unpacked; those of a file as its footer lists them."""
    reader = _Flat(data)
    if data.startswith(b"ARROW1"):
        end = len(data) - 10
        footer = reader.table(end - reader.number("<i", end))
        _count_fields(reader, reader.follow(footer, 1), allowance)
        for place in [*reader.places(footer, 2, 24), *reader.places(footer, 3, 24)]:
            offset, n_metadata = struct.unpack_from("<qi", data, place)
            _count_message(reader, reader.message(offset)[0], offset + n_metadata, allowance)
        return
    at = 0
    while at + 4 <= len(data):
        message, body = reader.message(at)
        if not message:
            return
        _count_message(reader, message, body, allowance)
        at = body + max(0, reader.scalar(message, 3, "<q"))


def _count_message(reader: _Flat, message: int, body: int, allowance: Allowance) -> None:
    kind, header = reader.scalar(message, 1, "<B"), reader.follow(message, 2)
    if kind == _SCHEMA:
        _count_fields(reader, header, allowance)
    if kind not in (_DICTIONARY, _BATCH):
        return
    batch = reader.follow(header, 1) if kind == _DICTIONARY else header
    n_values = reader.pairs(batch, 1)[:, 0].astype(np.float64).clip(0).sum()
    buffers = reader.pairs(batch, 2)
    lengths = buffers[:, 1].astype(np.float64)
    if reader.follow(batch, 3):
        # The length of a packed buffer when it is unpacked stands before it.
        packed = np.flatnonzero(lengths >= 8)
        unpacked = reader.int64_at(body + buffers[packed, 0])
        lengths[packed] = np.maximum(unpacked, lengths[packed])
    needed = VALUE_BYTES * n_values + float(lengths.clip(0).sum())
    allowance.take(needed, "its unpacked content")


def _count_fields(reader: _Flat, schema: int, allowance: Allowance) -> None:
    """Count the fields of a schema; the same one may be part of many others."""
    known: dict[int, float] = {}

    def size(field: int, depth: int = 0) -> float:
        if depth > 100:
            raise ValueError("its columns are nested more than 100 deep")
        if field not in known:
            parts = [reader.table(at) for at in reader.places(field, 5, 4)]
            name = len(reader.places(field, 0, 1))
            known[field] = _FIELD_BYTES + name + sum(size(part, depth + 1) for part in parts)
        return known[field]

    for at in reader.places(schema, 1, 4):
        allowance.take(size(reader.table(at)), "the list of its columns")


class _Flat:
    """Reads flatbuffers: tables with optional fields, at their places in the data."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def number(self, kind: str, at: int) -> int:
        if not 0 <= at <= len(self._data) - struct.calcsize(kind):
            raise ValueError("its metadata refer to places that it has not")
        return int(struct.unpack_from(kind, self._data, at)[0])

    def table(self, at: int) -> int:
        """Where the table is that an offset at this place points to."""
        return at + self.number("<I", at)

    def message(self, at: int) -> tuple[int, int]:
        """The message at a place (0 if there is none), and the place after it."""
        length = self.number("<I", at)
        if length == _CONTINUED:
            at += 4
            length = self.number("<I", at)
        return (self.table(at + 4) if length else 0), at + 4 + length

    def field(self, table: int, index: int) -> int:
        """Where a field of a table is; 0 if it is not there."""
        entries = table - self.number("<i", table)
        slot = 4 + 2 * index
        if slot >= self.number("<H", entries):
            return 0
        offset = self.number("<H", entries + slot)
        return table + offset if offset else 0

    def scalar(self, table: int, index: int, kind: str) -> int:
        at = self.field(table, index)
        return self.number(kind, at) if at else 0

    def follow(self, table: int, index: int) -> int:
        at = self.field(table, index) if table else 0
        return self.table(at) if at else 0

    def places(self, table: int, index: int, size: int) -> range:
        """The places of the elements of a vector, or of the letters of a text."""
        at = self.follow(table, index)
        length = self.number("<I", at) if at else 0
        if at + 4 + length * size > len(self._data):
            raise ValueError(f"a list of {length} elements goes beyond its end")
        return range(at + 4, at + 4 + length * size, size)

    def pairs(self, table: int, index: int) -> NDArray[np.int64]:
        """A vector of structs of two whole numbers of 64 bits."""
        places = self.places(table, index, 16)
        return np.frombuffer(self._data, "<i8", 2 * len(places), places.start).reshape(-1, 2)

    def int64_at(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Whole numbers of 64 bits, at many places."""
        if len(places) and (places.min() < 0 or places.max() + 8 > len(self._data)):
            raise ValueError("a buffer goes beyond its end")
        values = np.frombuffer(self._data, np.uint8)[places[:, None] + np.arange(8)]
        return values.view("<i8")[:, 0]
