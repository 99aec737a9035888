"""What an Arrow file or stream becomes in memory, by the metadata of its record batches.

The format is that of https://arrow.apache.org/docs/format/Columnar.html: messages whose metadata
are flatbuffers. Of these only what tells sizes is read. Everything is counted as often as it is
referred to: batches, buffers and fields may be shared.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from kernelweave.reading.bounded import VALUE_BYTES, Allowance

__all__ = ["check_arrow"]

_CONTINUED = 0xFFFFFFFF
# Kinds of messages.
_SCHEMA, _DICTIONARY, _BATCH = 1, 2, 3
# A field of the schema besides its name, as objects.
_FIELD_BYTES = 300.0


def check_arrow(data: bytes, allowance: Allowance) -> None:
    """Count what all batches need, unpacked; those of a file as its footer lists them."""
    reader = _Flat(data)
    if data.startswith(b"ARROW1"):
        footer = reader.table(len(data) - 10 - reader.number("<i", len(data) - 10))
        _count_fields(reader, reader.follow(footer, 1), allowance)
        for kind in (2, 3):
            for at in reader.structs(footer, kind, 24):
                offset, n_metadata = struct.unpack_from("<qi", data, at)
                message, _ = reader.message(offset)
                _count_batch(reader, message, offset + n_metadata, allowance)
        return
    for message, body in _stream(reader, len(data)):
        _count_batch(reader, message, body, allowance)


def _stream(reader: _Flat, size: int) -> Iterator[tuple[int, int]]:
    """The messages of a stream, and where the body of each begins."""
    at = 0
    while at + 4 <= size:
        message, body = reader.message(at)
        if not message:
            return
        yield message, body
        at = body + max(0, reader.scalar(message, 3, "<q"))


def _count_batch(reader: _Flat, message: int, body: int, allowance: Allowance) -> None:
    kind, header = reader.scalar(message, 1, "<B"), reader.follow(message, 2)
    if kind == _SCHEMA:
        _count_fields(reader, header, allowance)
        return
    if kind == _DICTIONARY:
        header = reader.follow(header, 1)
    elif kind != _BATCH:
        return
    n_values = reader.pairs(header, 1)[:, 0].astype(np.float64).clip(0).sum()
    buffers = reader.pairs(header, 2)
    lengths = buffers[:, 1].astype(np.float64)
    if reader.follow(header, 3):
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
            own = _FIELD_BYTES + reader.text_length(field, 0)
            parts = reader.tables(field, 5)
            known[field] = own + sum(size(part, depth + 1) for part in parts)
        return known[field]

    for field in reader.tables(schema, 1):
        allowance.take(size(field), "the list of its columns")


class _Flat:
    """Reads flatbuffers: tables with optional fields, at their places in the data."""

    def __init__(self, data: bytes) -> None:
        self._data, self._bytes = data, np.frombuffer(data, np.uint8)

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

    def text_length(self, table: int, index: int) -> int:
        at = self.follow(table, index)
        return self.number("<I", at) if at else 0

    def _vector(self, table: int, index: int, size: int) -> tuple[int, int]:
        """Where the elements of a vector begin, and how many there are."""
        at = self.follow(table, index)
        length = self.number("<I", at) if at else 0
        if at + 4 + length * size > len(self._data):
            raise ValueError(f"a list of {length} elements goes beyond its end")
        return at + 4, length

    def structs(self, table: int, index: int, size: int) -> range:
        """The places of the elements of a vector of structs."""
        begin, length = self._vector(table, index, size)
        return range(begin, begin + length * size, size)

    def tables(self, table: int, index: int) -> list[int]:
        """The places of the tables of a vector."""
        return [self.table(at) for at in self.structs(table, index, 4)]

    def pairs(self, table: int, index: int) -> NDArray[np.int64]:
        """A vector of structs of two whole numbers of 64 bits."""
        begin, length = self._vector(table, index, 16)
        return np.frombuffer(self._data, "<i8", 2 * length, begin).reshape(-1, 2)

    def int64_at(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Whole numbers of 64 bits, at many places."""
        if len(places) and (places.min() < 0 or places.max() + 8 > len(self._data)):
            raise ValueError("a buffer goes beyond its end")
        return self._bytes[places[:, None] + np.arange(8)].view("<i8")[:, 0]
