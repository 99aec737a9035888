"""Files as bytes: found, unpacked, and with errors in plain words."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from kernelweave.errors import InvalidInputError

__all__ = ["PACKED", "existing_file", "plain_errors", "unpacked"]

_UNPACKERS: dict[str, tuple[bytes, Any]] = {
    ".gz": (b"\x1f\x8b", gzip.decompress),
    ".bz2": (b"BZh", bz2.decompress),
    ".xz": (b"\xfd7zXZ\x00", lzma.decompress),
}
PACKED = tuple(_UNPACKERS)
_LONGEST_REASON = 200


def existing_file(path: str | os.PathLike[str]) -> Path:
    """Return the path of a file that is there and not empty, or say what is there instead.

    Examples
    --------
    >>> existing_file("/none/a.csv")
    Traceback (most recent call last):
    ...
    kernelweave.errors.InvalidInputError: no such file: '/none/a.csv' (there is no folder '/none').
    """
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

    Examples
    --------
    >>> import gzip, tempfile
    >>> path = Path(tempfile.mkdtemp(), "a.csv.gz")
    >>> _ = path.write_bytes(gzip.compress(b"a,b"))
    >>> unpacked(path)
    b'a,b'
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        reason = error.strerror or error
        raise InvalidInputError(f"{str(path)!r} cannot be read: {reason}.") from error
    for magic, unpack in _UNPACKERS.values():
        if data.startswith(magic):
            try:
                data = unpack(data)
            except (OSError, EOFError, zlib.error, lzma.LZMAError, ValueError) as error:
                raise InvalidInputError(
                    f"{str(path)!r} is packed, but cannot be unpacked: {error}. Is it complete?"
                ) from error
            break
    if not data:
        raise InvalidInputError(f"{str(path)!r} holds nothing.")
    return data


@contextmanager
def plain_errors(path: Path, kind: str) -> Iterator[None]:
    """Turn what a library raises about a broken file into an `InvalidInputError`.

    Examples
    --------
    >>> with plain_errors(Path("a.npy"), "NPY"):
    ...     raise EOFError("no data left")
    Traceback (most recent call last):
    ...
    kernelweave.errors.InvalidInputError: 'a.npy' cannot be read as NPY: no data left.
    """
    try:
        yield
    except (InvalidInputError, MemoryError, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:
        # Panics of polars are no `Exception`.
        lines = str(error).strip().splitlines() or [type(error).__name__]
        reason = lines[0][:_LONGEST_REASON].rstrip(".")
        raise InvalidInputError(f"{str(path)!r} cannot be read as {kind}: {reason}.") from error
