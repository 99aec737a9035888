"""Files as bytes: found, unpacked, and with errors in plain words."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from kernelweave.errors import InvalidInputError, MemoryBudgetError
from kernelweave.reading.bounded import Allowance

__all__ = ["PACKED", "existing_file", "numbered_names", "plain_errors", "unpacked"]

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
            data = Allowance(path).read(file) if unpack is None else _unpack(path, unpack(file))
    except OSError as error:
        reason = error.strerror or error
        raise InvalidInputError(f"{str(path)!r} cannot be read: {reason}.") from error
    if not data:
        raise InvalidInputError(f"{str(path)!r} holds nothing.")
    return data


def _unpack(path: Path, packed: Any) -> bytes:
    try:
        return Allowance(path).read(packed, "it is packed, and its unpacked content")
    except MemoryBudgetError:
        raise
    except Exception as error:
        # Every kind of packing has errors of its own.
        raise InvalidInputError(
            f"{str(path)!r} is packed, but cannot be unpacked: {error}. Is it complete?"
        ) from error


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
