"""What a Parquet file becomes in memory, by its footer and the headers of its pages.

The format is that of https://parquet.apache.org/docs/file-format/: structs of numbered fields in
Thrift's compact protocol. Of these only what tells sizes is read. The footer lists the column
chunks, but the sizes that count are those in the headers of their pages, by which pages are
unpacked.
"""

from __future__ import annotations

from typing import Any

from kernelweave.reading.bounded import VALUE_BYTES, Allowance

__all__ = ["check_parquet"]

# Kinds of values in Thrift's compact protocol; those of a fixed size with their bytes.
_BOOLEANS, _NUMBERS, _SIZES = (1, 2), (4, 5, 6), {3: 1, 7: 8}
_BINARY, _LISTS, _MAP, _STRUCT = 8, (9, 10), 11, 12
# Where the header of the data of a page is by the kind of the page, and in it the encoding.
_HEADERS = {0: (5, 2), 3: (8, 4)}
# Physical types, and the encoding that may make long texts of few bytes.
_TEXT, _FIXED, _DELTA_TEXT = 6, 7, 7
# A struct of the footer, another value and a page, as objects. Text is copied from its pages.
_STRUCT_BYTES, _VALUE_BYTES, _PAGE_BYTES, _COPIES_OF_TEXT = 250.0, 40.0, 1000.0, 2.0
_DEEPEST = 30


def check_parquet(data: bytes, allowance: Allowance) -> float:
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
        if not 0 <= self.at < len(self._data):
            raise ValueError("its metadata end too early")
        self.at += 1
        return self._data[self.at - 1]

    def _varint(self) -> int:
        byte = self._byte()
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
        return out

    def _value(self, kind: int, depth: int) -> Any:
        if depth > _DEEPEST:
            raise ValueError(f"its metadata are nested more than {_DEEPEST} deep")
        if self.at >= len(self._data):
            raise ValueError("its metadata end too early")
        self._allowance.take(_VALUE_BYTES, "its metadata")
        if kind in _NUMBERS:
            return self._signed()
        if kind == _STRUCT:
            return self.struct(depth)
        if kind in _LISTS:
            head = self._byte()
            length = head >> 4 if head >> 4 < 15 else self._varint()
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
