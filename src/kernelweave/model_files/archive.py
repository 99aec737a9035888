"""The file itself: a zip archive of a header, a skops schema and arrays."""

from __future__ import annotations

import hashlib
import io
import json
import os
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernelweave.archive import replacing, why_no_file
from kernelweave.errors import MemoryBudgetError, ModelFileError
from kernelweave.model_files.header import FORMAT, Header
from kernelweave.model_files.schema import walk
from kernelweave.reading.bounded import OF_ARRAYS, Allowance, check_npy, read_npz

__all__ = ["HEADER", "SCHEMA", "as_skops", "read", "read_header", "write"]

HEADER = "kernelweave.json"
SCHEMA = "schema.json"

# Data that do not get smaller than this part of themselves are stored as they are.
_WORTH = 0.9
_LOOK_AT = 2**16
# How much memory a byte of a member takes: of JSON as Python's objects; of arrays as they are, and
# on the way to skops.
_OF_JSON, _OF_DATA = 30.0, 2.0
# As early as a zip archive can tell: the same model gives the same file, but for its header.
_NO_TIME = (1980, 1, 1, 0, 0, 0)
# Unpackers have errors of their own, and none lists them.
_DAMAGED = Exception


def write(path: Path, header: Header, schema: dict[str, Any], members: Mapping[str, bytes]) -> None:
    """Write a model file, in the place of an older one once it is whole."""
    parts = {SCHEMA: json.dumps(schema, separators=(",", ":")).encode(), **members}
    digests = {name: _digest(data) for name, data in parts.items()}
    try:
        with replacing(path) as file, zipfile.ZipFile(file, "w") as archive:
            for name, data in {HEADER: header.to_json(digests), **parts}.items():
                info = zipfile.ZipInfo(name, _NO_TIME)
                archive.writestr(info, data, _method(data), compresslevel=6)
    except OSError as error:
        raise ModelFileError(f"{str(path)!r} cannot be written: {error}") from error


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _method(data: bytes) -> int:
    """Compress what gets smaller by that; numbers with all their digits hardly do."""
    some = data[:_LOOK_AT]
    smaller = len(zlib.compress(some, 1)) <= _WORTH * len(some)
    return zipfile.ZIP_DEFLATED if smaller else zipfile.ZIP_STORED


def read_header(path: str | os.PathLike[str]) -> Header:
    """Read what a model file says about itself; the model is not made.

    Parameters
    ----------
    path : str or path
        A file written by :func:`kernelweave.save`.

    Returns
    -------
    Header
    """
    file = Path(path)
    with _opened(file) as archive:
        header, _ = _header(file, archive, Allowance(file, OF_ARRAYS))
    return header


def read(path: str | os.PathLike[str]) -> tuple[Header, dict[str, Any], dict[str, bytes]]:
    """Read a model file: header, schema, and all other members; raises unless they are whole."""
    file = Path(path)
    allowance = Allowance(file, OF_ARRAYS)
    with _opened(file) as archive:
        header, digests = _header(file, archive, allowance)
        names = [name for name in archive.namelist() if name != HEADER]
        if sorted(names) != sorted(digests):
            odd = sorted(set(names) ^ set(digests)) or ["two members of one name"]
            raise _changed(file, odd[0])
        members = {}
        for name in names:
            times = _OF_JSON if name == SCHEMA else _OF_DATA
            try:
                members[name] = allowance.read_member(archive, name, times)
                _check_arrays(name, members[name], allowance)
            except MemoryBudgetError:
                raise
            except _DAMAGED as error:
                raise _changed(file, f"{name}: {error}") from error
            if _digest(members[name]) != digests[name]:
                raise _changed(file, name)
    try:
        schema = json.loads(members.pop(SCHEMA))
        if not isinstance(schema, dict):
            raise ValueError("it is no dict")
    except (KeyError, ValueError, RecursionError) as error:
        raise _changed(file, f"{SCHEMA}: {error}") from error
    # An array is made for each part that refers to it.
    files = [node["file"] for node in walk(schema) if isinstance(node.get("file"), str)]
    allowance.take(sum(len(members.get(name, b"")) for name in files), "the arrays of the model")
    return header, schema, members


def _check_arrays(name: str, data: bytes, allowance: Allowance) -> None:
    """Raise unless the arrays in a member, which may be an archive, are as large as they say."""
    if data.startswith(b"\x93NUMPY"):
        check_npy(io.BytesIO(data), len(data), name)
    elif data.startswith(b"PK"):
        read_npz(io.BytesIO(data), allowance)


def as_skops(schema: dict[str, Any], members: Mapping[str, bytes]) -> bytes:
    """Return an archive for skops, of what was checked and nothing else."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in {SCHEMA: json.dumps(schema).encode(), **members}.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def _opened(file: Path) -> zipfile.ZipFile:
    if missing := why_no_file(file):
        raise ModelFileError(f"{missing} Give the path of a file written by save.")
    try:
        return zipfile.ZipFile(file)
    except _DAMAGED as error:
        try:
            begin = file.open("rb").read(4)
        except OSError:
            raise _no_model(file, f"it cannot be read ({error})") from error
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
        raise _no_model(file, why) from error


def _header(
    file: Path, archive: zipfile.ZipFile, allowance: Allowance
) -> tuple[Header, dict[str, str]]:
    names = archive.namelist()
    if names.count(HEADER) != 1:
        if SCHEMA in names:
            why = "it has no header. For a file written by skops itself use skops.io.load"
        elif any(name.endswith(".npy") for name in names):
            why = "it is an archive of arrays. A Checkpoint is taken up by warm_start_from=path"
        else:
            why = "it is another kind of zip archive"
        raise _no_model(file, why)
    try:
        header, digests = Header.from_json(allowance.read_member(archive, HEADER, _OF_JSON))
    except MemoryBudgetError:
        raise
    except _DAMAGED as error:
        raise _no_model(file, f"its header cannot be read ({error})") from error
    if header.format > FORMAT:
        writer = f" ({version})" if (version := header.versions.get("kernelweave")) else ""
        raise ModelFileError(
            f"{str(file)!r} was written by a newer kernelweave{writer}: it has format "
            f"{header.format}, and this version reads formats up to {FORMAT}. Update kernelweave: "
            "pip install -U kernelweave."
        )
    return header, digests


def _no_model(file: Path, why: str) -> ModelFileError:
    return ModelFileError(f"{str(file)!r} is no model file of kernelweave: {why}.")


def _changed(file: Path, what: str) -> ModelFileError:
    return ModelFileError(
        f"{str(file)!r} is damaged, or has been changed since it was written ({what}). Copy it "
        "again, or save the model again."
    )
