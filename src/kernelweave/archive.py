"""The files that kernelweave writes for itself, models and checkpoints: where, and in one step."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

__all__ = ["replacing", "why_no_file", "why_no_place"]


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
