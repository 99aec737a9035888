"""A folder for compiled code where neither the install nor the home folder can be written."""

from __future__ import annotations

import os
import stat
import tempfile
import warnings
from pathlib import Path

import numba

__all__ = ["ensure_cache_folder"]


def ensure_cache_folder() -> Path | None:
    """Give Numba a folder for compiled code if it finds none, and warn.

    Numba keeps compiled code beside the source or in the user's cache folder, and refuses to
    compile (with ``cache=True``) where it can write neither: a read-only install and no home, as
    in some containers. Then a private one in the temporary folder takes their place, for this
    process and those it starts. Returns the folder, if one was needed.
    """
    if _finds_a_folder():
        return None
    folder = _private_folder()
    os.environ["NUMBA_CACHE_DIR"] = str(folder)
    numba.config.CACHE_DIR = str(folder)  # type: ignore[attr-defined]
    warnings.warn(
        "neither the folder of kernelweave nor your cache folder can be written, so compiled code "
        f"is kept in {folder} and may have to be compiled again when that is cleared. Set the "
        "environment variable NUMBA_CACHE_DIR to a folder that stays.",
        RuntimeWarning,
        stacklevel=2,
    )
    return folder


def _finds_a_folder() -> bool:
    """Whether Numba can keep what it compiles; asked of Numba itself, which has several places."""
    try:
        numba.njit(cache=True)(_probe)
    except RuntimeError:
        return False
    return True


def _probe() -> None:
    """Never compiled: to decorate it is to look for a folder."""


def _private_folder() -> Path:
    """Return a folder that nobody else can write: what Numba loads from it is code."""
    user = os.getuid() if hasattr(os, "getuid") else "user"
    folder = Path(tempfile.gettempdir()) / f"kernelweave-numba-{user}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
        own = not hasattr(os, "getuid") or (
            found.st_uid == os.getuid() and not stat.S_IMODE(found.st_mode) & 0o022
        )
        if stat.S_ISDIR(found.st_mode) and own:
            return folder
    except OSError:
        pass
    return Path(tempfile.mkdtemp(prefix="kernelweave-numba-"))
