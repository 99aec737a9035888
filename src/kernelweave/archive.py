"""The container of the files that kernelweave writes for itself, models and checkpoints.

It is a zip archive of data with one member more, ``kernelweave.json``: entries that say what the
file is, and the digests of all other members. Nothing in it is pickled, and a file takes the place
of an older one in one step.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import secrets
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy

from kernelweave.arrays import Array
from kernelweave.errors import MemoryBudgetError
from kernelweave.reading.bounded import OF_ARRAYS, Allowance, check_npy, read_npz, to_array

HEADER = "kernelweave.json"
# How much memory a byte of JSON takes as Python's objects.
OF_JSON = 30.0
# Data that do not get smaller than this part of themselves are stored as they are. To compress them
# takes 30 ms a megabyte. Random numbers come to 0.93 to 0.96 of their size, those of two digits to
# 0.24, labels to 0.05, and the first 64 KiB, compressed quickly, tell these apart.
_WORTH = 0.9
_LOOK_AT = 2**16
CHANGED = "it is damaged, or has been changed since it was written"
# As early as a zip archive can tell: the same model gives the same file, but for its header.
_NO_TIME = (1980, 1, 1, 0, 0, 0)


class DamagedFileError(Exception):
    """What is wrong with a file; whoever reads it tells what it should have been."""


def why_no_place(path: Path) -> str:
    """Say why no file can be at a path; "" if one can."""
    if path.is_dir():
        return f"{str(path)!r} is a folder; give the path of a file."
    if not path.parent.is_dir():
        return f"the folder of {str(path)!r} does not exist; make it first."
    return ""


def why_no_file(path: Path) -> str:
    """Say why there is no file to read at a path; "" if there is one."""
    if path.is_file():
        return ""
    return f"{str(path)!r} {'is a folder, not a file' if path.is_dir() else 'does not exist'}."


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Open a new file that takes the place of `path` in one step, once it is whole and on disk.

    An error, or being killed in the middle of it, leaves the old file as it was.
    """
    # In the same folder: a file cannot move to another disk in one step.
    trial = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    try:
        with open(trial, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(trial, path)
    except BaseException:
        with suppress(OSError):
            trial.unlink()
        raise


def write_archive(
    path: Path, entries: Mapping[str, Any], members: Mapping[str, bytes | Array]
) -> None:
    """Write the entries of the header, and members: bytes, or arrays as NPY files."""
    digests = {}
    with replacing(path) as file, zipfile.ZipFile(file, "w") as archive:
        for name, data in members.items():
            digest = hashlib.sha256()
            info = zipfile.ZipInfo(name, _NO_TIME)
            if isinstance(data, bytes):
                digest.update(data)
                archive.writestr(info, data, _method(data), compresslevel=6)
            else:
                # In pieces, so that a large array is not copied.
                with archive.open(info, "w", force_zip64=True) as stream:
                    npy.write_array(_Hashed(stream, digest), data, allow_pickle=False)
            digests[name] = digest.hexdigest()
        header = json.dumps({**entries, "digests": digests}, indent=1)
        archive.writestr(zipfile.ZipInfo(HEADER, _NO_TIME), header, zipfile.ZIP_DEFLATED)


class _Hashed:
    def __init__(self, stream: IO[bytes], digest: Any) -> None:
        self._stream, self._digest = stream, digest

    def write(self, data: bytes) -> None:
        self._digest.update(data)
        self._stream.write(data)


def _method(data: bytes) -> int:
    """Compress what gets smaller by that; numbers with all their digits hardly do."""
    some = data[:_LOOK_AT]
    smaller = len(zlib.compress(some, 1)) <= _WORTH * len(some)
    return zipfile.ZIP_DEFLATED if smaller else zipfile.ZIP_STORED


def opened(file: Path) -> zipfile.ZipFile:
    """Open an archive, or raise `DamagedFileError` saying what the file is instead."""
    try:
        return zipfile.ZipFile(file)
    except Exception as error:
        # Unpackers have errors of their own, and none lists them.
        try:
            begin = file.open("rb").read(4)
        except OSError:
            raise DamagedFileError(f"it cannot be read ({error})") from error
        if not begin:
            why = "it is empty"
        elif begin[:1] == b"\x80":
            why = (
                "it looks like a pickle, which could run any code when it is opened. If you made "
                "it yourself, open it with pickle or joblib and save the model again"
            )
        elif begin[:2] == b"PK":
            why = "it has been cut short or is damaged"
        else:
            why = "it is no zip archive"
        raise DamagedFileError(why) from error


def unpacked(
    archive: zipfile.ZipFile, digests: Mapping[str, str], allowance: Allowance, times: float
) -> Iterator[tuple[str, bytes]]:
    """Yield the members but the header; raises `DamagedFileError` unless they are as written.

    A byte of a member that is not JSON takes `times` the memory. Arrays are as large as they say.
    """
    names = [name for name in archive.namelist() if name != HEADER]
    if sorted(names) != sorted(digests):
        odd = sorted(set(names) ^ set(digests)) or ["two members of one name"]
        raise DamagedFileError(odd[0])
    for name in names:
        try:
            memory = OF_JSON if name.endswith(".json") else times
            data = allowance.read_member(archive, name, memory)
            if data.startswith(b"\x93NUMPY"):
                check_npy(io.BytesIO(data), len(data), name)
            elif data.startswith(b"PK"):
                read_npz(io.BytesIO(data), allowance)
        except MemoryBudgetError:
            raise
        except Exception as error:
            raise DamagedFileError(f"{name}: {error}") from error
        if hashlib.sha256(data).hexdigest() != digests[name]:
            raise DamagedFileError(name)
        yield name, data


def read_arrays(file: Path) -> tuple[dict[str, Array], bool]:
    """Read all arrays of a file, none of which is unpickled, and whether they are as written."""
    allowance = Allowance(file, OF_ARRAYS)
    with opened(file) as archive:
        if HEADER not in archive.namelist():
            # Before there was a header: an NPZ archive with one digest of all arrays in it.
            arrays = read_npz(file, allowance)
            told = str(arrays.pop("sha256", ""))
            parts = (part for name in sorted(arrays) for part in (name, arrays[name]))
            return arrays, told == digest_of(*parts)
        digests = json.loads(allowance.read_member(archive, HEADER, OF_JSON))["digests"]
        try:
            members = unpacked(archive, digests, allowance, times=1.0)
            names = ((name.removesuffix(".npy"), data) for name, data in members)
            return {name: to_array(name, data, allowance) for name, data in names}, True
        except DamagedFileError as error:
            raise DamagedFileError(f"{CHANGED} ({error})") from error


def digest_of(*parts: Any) -> str:
    """Return one name for all of these: arrays by their numbers, others by what they print."""
    found = hashlib.sha256()
    for part in parts:
        if isinstance(part, np.ndarray):
            found.update(f"{part.dtype}{part.shape}".encode())
            found.update(np.ascontiguousarray(part).tobytes())
        else:
            found.update(repr(part).encode())
        found.update(b"\0")
    return found.hexdigest()
