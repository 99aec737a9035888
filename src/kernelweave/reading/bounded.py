"""Files as bytes: found, with errors in plain words, and counted while they are unpacked.

What a file says about its sizes is not trusted. A small file can say little and unpack to much, or
say much and hold nothing.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import math
import os
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import IO, Any

from numpy.lib import format as npy

from kernelweave.arrays import Array
from kernelweave.errors import InvalidInputError, MemoryBudgetError
from kernelweave.memory import available_bytes, format_bytes

_PIECE = 2**20
# Parts of the memory that is free. What is made of text takes several times its size; arrays are
# what they are.
_OF_TEXT, OF_ARRAYS = 0.25, 0.5
# Of a value in a table of columns; text takes as much besides its letters.
VALUE_BYTES = 16.0
# Others unpack all they are given at once, however much that becomes.
_PACKINGS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_MAGIC = b"\x93NUMPY"
# Version 3 differs from 2 in the letters that names of fields may have, and not in sizes.
_HEADERS = {1: npy.read_array_header_1_0} | dict.fromkeys((2, 3), npy.read_array_header_2_0)
_UNPACKERS: dict[str, tuple[bytes, Any]] = {
    ".gz": (b"\x1f\x8b", gzip.open),
    ".bz2": (b"BZh", bz2.open),
    ".xz": (b"\xfd7zXZ\x00", lzma.open),
}
PACKED = tuple(_UNPACKERS)
_LONGEST_MAGIC = max(len(magic) for magic, _ in _UNPACKERS.values())
_LONGEST_REASON = 200
# A name such as x1234567 and its place in a list.
_NAME_BYTES = 70.0


def existing_file(path: str | os.PathLike[str]) -> Path:
    """Return the path of a file that is there and not empty, or say what is there instead."""
    if not isinstance(path, str | os.PathLike):
        raise InvalidInputError(f"a path must be a str or a Path; got {path!r}.")
    found = Path(os.fsdecode(path)).expanduser()
    shown = str(found)
    if "\0" in shown:
        raise InvalidInputError(f"no such file: {shown!r}.")
    try:
        if found.is_dir():
            raise InvalidInputError(f"{shown!r} is a folder; give a file in it.")
        if not found.exists():
            raise InvalidInputError(_not_there(found))
        if found.is_file() and found.stat().st_size == 0:
            raise InvalidInputError(f"{shown!r} is empty (0 bytes).")
    except OSError as error:
        raise InvalidInputError(f"{shown!r} cannot be read: {error.strerror or error}.") from error
    return found


def _not_there(path: Path) -> str:
    folder = path.parent
    if not folder.is_dir():
        return f"no such file: {str(path)!r} (there is no folder {str(folder)!r})."
    names = sorted(entry.name for entry in folder.iterdir() if entry.is_file())
    # Names are compared without regard to case, but given as they are.
    by_lower = {name.lower(): name for name in names}
    close = get_close_matches(path.name.lower(), by_lower, n=1)
    hint = f"; did you mean {str(folder / by_lower[close[0]])!r}?" if close else "."
    return f"no such file: {str(path)!r}{hint}"


def unpacked(path: Path) -> bytes:
    """Return what a file holds, unpacked if it is packed by gzip, bzip2 or xz.

    The content counts, not the suffix: browsers unpack and leave the name.
    """
    try:
        with path.open("rb") as file:
            begin = file.peek(_LONGEST_MAGIC)  # A pipe cannot go back.
            unpack = next((u for magic, u in _UNPACKERS.values() if begin.startswith(magic)), None)
            if unpack is None:
                data = Allowance(path).read(file)
            else:
                with plain_errors(path, "a packed file"):
                    what = "it is packed, and its unpacked content"
                    data = Allowance(path).read(unpack(file), what)
    except OSError as error:
        reason = error.strerror or error
        raise InvalidInputError(f"{str(path)!r} cannot be read: {reason}.") from error
    if not data:
        raise InvalidInputError(f"{str(path)!r} holds nothing.")
    return data


def numbered_names(path: Path, first: int, stop: int) -> list[str]:
    """Return names of columns by their number, or say that the memory does not hold them."""
    what = f"the list of the {stop - first} columns it says it has"
    Allowance(path).take(_NAME_BYTES * (stop - first), what)
    return [f"x{j}" for j in range(first, stop)]


@contextmanager
def plain_errors(path: Path, kind: str) -> Iterator[None]:
    """Turn what a library raises about a broken file into an `InvalidInputError`.

    A file that says it is larger than memory is one, a `MemoryBudgetError`.
    """
    try:
        yield
    except (InvalidInputError, MemoryBudgetError, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except MemoryError as error:
        reason = str(error) or "out of memory"
        raise MemoryBudgetError(f"{str(path)!r} cannot be read as {kind}: {reason}.") from error
    except BaseException as error:
        # Panics of polars are no `Exception`.
        lines = str(error).strip().splitlines() or [type(error).__name__]
        reason = lines[0][:_LONGEST_REASON].rstrip(".")
        raise InvalidInputError(f"{str(path)!r} cannot be read as {kind}: {reason}.") from error


class Allowance:
    """The bytes that one file may still take: at first a part of the memory that is free."""

    def __init__(self, path: Path, share: float = _OF_TEXT) -> None:
        self._path, self._share, self._free = path, share, available_bytes()
        self._left = self._most = share * self._free

    def take(self, n_bytes: float, what: str) -> None:
        """Count bytes, or refuse the file because there are too many of them."""
        self._left -= n_bytes
        if self._left < 0:
            taken = format_bytes(self._most - self._left)
            raise MemoryBudgetError(
                f"{str(self._path)!r}: {what} needs {taken} or more, and the limit is "
                f"{format_bytes(self._most)}, {self._share:.0%} of the {format_bytes(self._free)} "
                "of memory that are free. Read it where more memory is free, or make it smaller."
            )

    def times(self, n_bytes: float) -> int:
        """How often that many bytes fit in what is left."""
        return int(self._left / n_bytes)

    def read(self, stream: IO[bytes], what: str = "its content", times: float = 1.0) -> bytes:
        """Read a stream to its end, each byte counted as `times` bytes of memory."""
        out = io.BytesIO()
        while piece := stream.read(_PIECE):
            self.take(times * len(piece), what)
            out.write(piece)
        return out.getvalue()  # Without another copy.

    def read_member(self, archive: zipfile.ZipFile, name: str, times: float = 1.0) -> bytes:
        """Read a member of an archive; its size there may be anything."""
        info = archive.getinfo(name)
        if info.compress_type not in _PACKINGS:
            raise ValueError(f"{name!r} is packed by zip method {info.compress_type}, not deflate")
        with archive.open(info) as stream:
            return self.read(stream, f"the unpacked {name!r}", times)


def check_npy(stream: IO[bytes], size: int, what: str) -> None:
    """Raise `ValueError` unless an NPY file of `size` bytes holds what its header tells."""
    # Anything else `np.load` takes for a pickle.
    if stream.read(len(_MAGIC)) != _MAGIC:
        raise ValueError(f"{what} does not begin as NPY files do")
    stream.seek(0)
    version, _ = npy.read_magic(stream)
    if version not in _HEADERS:
        raise ValueError(f"{what} has version {version} of the NPY format")
    shape, _, dtype = _HEADERS[version](stream)
    if dtype.hasobject:
        raise ValueError(
            f"{what} holds Python objects, which are not read because they can run code "
            "(allow_pickle=False). Save numbers or text: array.astype(float), array.astype(str)"
        )
    # Any number of elements without a size fits in a small file, and is too many to go through.
    if dtype.itemsize == 0:
        raise ValueError(f"{what} holds elements of no size ({dtype})")
    told, there = math.prod(shape) * dtype.itemsize, size - stream.tell()
    if min(shape, default=0) < 0 or told != there:
        raise ValueError(
            f"{what} has shape {shape} of {dtype}, which is {told} bytes, but {there} are there"
        )


def read_npz(source: Path | IO[bytes], allowance: Allowance) -> dict[str, Array]:
    """Return the arrays of an NPZ file, unpacked no further than the allowance goes."""
    out = {}
    with zipfile.ZipFile(source) as archive:
        for name in archive.namelist():
            if not name.endswith(".npy"):
                raise ValueError(f"{name!r} is not an array")
            key = name.removesuffix(".npy")
            out[key] = to_array(key, allowance.read_member(archive, name), allowance)
    return out


def to_array(name: str, data: bytes, allowance: Allowance) -> Array:
    """Return the array of an NPY file, made anew, so that the bytes can be forgotten."""
    what = f"array {name!r}"
    check_npy(io.BytesIO(data), len(data), what)
    allowance.take(len(data), what)
    out = npy.read_array(io.BytesIO(data), allow_pickle=False)
    allowance.take(-len(data), what)
    return out
